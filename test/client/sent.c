/*
 * sent.c
 *		What a session sends, and when: deadlines, lost replies, timeouts of
 *		waits.
 */
#include "client.h"
#include "statements.h"

static PGconn *db;

/* --- the deadline --- */

#define TTL    6000
#define MARGIN 300

/* The deadline counts from the sending of the request, not from the arrival of the reply. */
static void
deadline(void)
{
	le_session *s;
	int64_t first;

	grants.slow_ms = turns.slow_ms = 400;
	s = open_session(TTL);
	first = le_deadline(s);
	ok(first <= grants.at + TTL - MARGIN,
	   "the TTL counts from the sending of the request that grants the lease");
	eventually(le_deadline(s) > first, "a renewal extends the deadline");
	ok(le_deadline(s) <= turns.at + TTL - MARGIN, "the TTL counts from the sending of the renewal");
	grants.slow_ms = turns.slow_ms = 0;
	le_close(s, -1, NULL);
}

/* --- a connection that replaces another one --- */

static void
listening(void)
{
	char info[1000];
	le_options o = options_of(60000);
	le_session *s, *other = open_session(60000);
	le_hold *held = must_lock(other, "x"), *waits;
	int before;

	snprintf(info, sizeof(info), "%s application_name=listens", conninfo);
	o.conninfo = info;
	s = open_with(&o);
	waits = enqueue(s, "x");
	eventually(listens.seen > 0, "a session that waits listens");
	before = listens.seen;
	query(db, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'listens'");
	eventually(listens.seen > before, "a session that waits listens again on its next connection");
	le_release(held, 0, NULL);
	is_status(le_await(waits, PATIENCE, &error), LE_OK, "the grant is notified on the new connection");
	le_release(waits, 0, NULL);
	le_close(s, -1, NULL);
	le_close(other, -1, NULL);
}

/* If LISTEN fails, the session polls at short intervals, on the same connection. */
static void
refused(void)
{
	char backend[100];
	char info[1000];
	le_options o = options_of(60000);
	le_session *s, *other = open_session(60000);
	le_hold *held = must_lock(other, "x"), *waits;
	static const char find[] =
		"SELECT backend_start FROM pg_stat_activity WHERE application_name = 'refused'";

	snprintf(info, sizeof(info), "%s application_name=refused", conninfo);
	o.conninfo = info;
	o.name =
		"1234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890"
		"123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789é"
		".";
	s = open_with(&o);
	snprintf(backend, sizeof(backend), "%s", query(db, find));
	listens.refuse = true;
	waits = enqueue(s, "x");
	eventually(!listens.refuse, "LISTEN is refused");
	le_release(held, 0, NULL);
	is_status(le_await(waits, 3000, &error), LE_OK, "without LISTEN, the grant is found soon");
	ok(strcmp(query(db, find), backend) == 0, "a failed LISTEN does not end the connection");
	is_int(atoi(query(db, "SELECT count(*) FROM lock_election.locks WHERE owner ~ '^[0-9]{199}#'")), 1,
		   "a long name is cut between two characters");
	le_release(waits, 0, NULL);
	le_close(s, -1, NULL);
	le_close(other, -1, NULL);
}

/* Opens a session with this name. */
static le_session *
named(const char *name, int ttl_ms)
{
	le_options o = options_of(ttl_ms);

	o.name = name;
	return open_with(&o);
}

/* The application may attach locks of its own to the lease, under any owner. */
static void
lost_answer(const char *name)
{
	le_session *s = named(name, 60000);
	le_hold *lost, *next;

	query(db, "SELECT acquire_lock('own', lease => %" PRId64 ")", le_lease(s));
	query(db, "SELECT acquire_lock('named', owner => 'worker', lease => %" PRId64 ")", le_lease(s));
	query(db, "SELECT acquire_lock('longer', owner => 'worker 7#', lease => %" PRId64 ")", le_lease(s));
	query(db, "SELECT acquire_lock('shorter', owner => 'w', lease => %" PRId64 ")", le_lease(s));
	places.cut = true;
	lost = enqueue(s, "x");
	is_status(le_await(lost, PATIENCE, &error), LE_OK, "a grant is found although its reply was lost");
	ok(!places.cut, "the reply of the grant was lost");
	is_status(lock(s, "y", PATIENCE, &next), LE_OK, "the session continues after a lost reply");
	is_int(atoi(query(db, "SELECT count(*) FROM lock_election.locks WHERE name IN ('own', 'named', 'longer',"
						  " 'shorter')")),
		   4, "the session releases no lock of another owner");
	le_release(lost, 0, NULL);
	le_release(next, 0, NULL);
	is_status(le_close(s, -1, &error), LE_OK, "the session with lost replies is closed");
}

static int64_t
token_of(const char *kind, const char *name)
{
	return atoll(query(db, "SELECT token FROM lock_election.%s WHERE name = '%s'", kind, name));
}

/*
 * Several requests of one call are told apart after its reply was lost, also if one name is the prefix of
 * another; a waiting request keeps its place.
 */
static void
lost_together(void)
{
	static const char *const names[] = {"n1", "n", "n12"};
	le_session *s = named("worker", 60000), *other = open_session(60000);
	le_hold *gate = must_lock(other, "n1"), *before = enqueue(other, "n1"), *slow, *holds[3];

	eventually(le_position(before) == 1, "one session holds n1, and one waits for it");
	places.slow_ms = 500;
	slow = enqueue(s, "slow");
	eventually_quietly(places.seen > 0 && places.at > le_now() - 400);
	of_n12.cut = true;
	for (int i = 0; i < 3; i++)
		holds[i] = enqueue(s, names[i]);
	is_status(le_await(slow, PATIENCE, &error), LE_OK, "the slow request is granted");
	places.slow_ms = 0;
	eventually(!of_n12.cut, "several requests are sent in one call, and its reply is lost");
	for (int i = 1; i < 3; i++)
	{
		is_status(le_await(holds[i], PATIENCE, &error), LE_OK,
				  "a free lock is granted although the reply was lost");
		is_int(le_token(holds[i]), token_of("locks", names[i]), "the granted lock has its own token");
	}
	eventually(strcmp(query(db, "SELECT max(queue_position) FROM lock_election.waiters WHERE name = 'n1'"),
					  "2") == 0,
			   "the waiting request has kept its place");
	le_drop(gate);
	is_status(le_await(before, PATIENCE, &error), LE_OK, "the earlier waiter is granted first");
	is_status(le_await(holds[0], 0, &error), LE_WAITING, "the later waiter still waits");
	le_drop(before);
	is_status(le_await(holds[0], PATIENCE, &error), LE_OK,
			  "the later waiter is granted after the earlier one");
	for (int i = 0; i < 3; i++)
		is_status(le_release(holds[i], 0, &error), LE_OK, "a lock of the lost reply is released");
	le_release(slow, 0, NULL);
	le_close(s, -1, NULL);
	le_close(other, -1, NULL);
}

/* Lost replies of requests for several locks, permits and terms. */
static void
lost_kinds(void)
{
	static const char *const both[] = {"m1", "m2"}, *const permit_name[] = {"p"};
	le_how permit = {.size = sizeof(permit), .permits = 1};
	le_session *s = named("worker", 60000), *other = open_session(60000);
	le_hold *gates[] = {must_lock(other, "m1"), must_lock(other, "m2"), enqueue(other, "m2")}, *many, *one,
			*term;

	eventually(le_position(gates[2]) == 1, "a place waits for one of two locks");
	places.cut = true;
	is_status(le_enqueue(s, both, 2, NULL, &many, &error), LE_OK, "both locks are requested");
	eventually(!places.cut, "the reply for both locks is lost");
	permits.cut = true;
	is_status(le_enqueue(s, both, 1, &permit, &one, &error), LE_OK, "a permit of two locks is requested");
	is_status(le_await(one, PATIENCE, &error), LE_INVALID, "the server rejects the permit of two locks");
	le_drop(one);
	eventually(strcmp(query(db, "SELECT max(queue_position) FROM lock_election.waiters WHERE name = 'm2'"),
					  "2") == 0,
			   "the group has its place in the longer queue");
	permits.cut = true;
	is_status(le_enqueue(s, permit_name, 1, &permit, &one, &error), LE_OK, "a permit is requested");
	is_status(le_await(one, PATIENCE, &error), LE_OK, "the permit is granted");
	is_int(le_token(one), token_of("locks", "p"), "the permit is held once, with its token");
	candidacies.cut = true;
	is_status(le_enqueue_candidate(s, "boss", "me", &term, &error), LE_OK, "a candidacy is requested");
	is_status(le_await(term, PATIENCE, &error), LE_OK, "the candidate is elected");
	ok(!permits.cut && !candidacies.cut, "the replies of the permit and of the candidacy were lost");
	is_status(le_proclaim(term, "still me", &error), LE_OK, "the elected candidate can proclaim");
	for (int i = 0; i < 3; i++)
		le_drop(gates[i]);
	is_status(le_await(many, PATIENCE, &error), LE_OK, "both locks are granted");
	is_int(atoi(query(db, "SELECT count(*) FROM lock_election.locks WHERE token = %" PRId64, le_token(many))),
		   2, "both locks have one token");
	is_status(le_release(many, 0, &error), LE_OK, "both locks are released");
	is_status(le_release(one, 0, &error), LE_OK, "the permit is released");
	is_status(le_resign(term, &error), LE_OK, "the leader resigns");
	le_close(s, -1, NULL);
	le_close(other, -1, NULL);
}

/*
 * Releases what the application no longer wants, and all entries on the lease with an owner of this session
 * that it does not know.
 */
static void
lost_unwanted(void)
{
	le_session *s = named("worker", 60000);
	le_hold *held = must_lock(s, "held"), *lost, *waits;
	char owner[100];

	snprintf(
		owner, sizeof(owner), "%s",
		query(db, "SELECT regexp_replace(owner, '-.*', '') FROM lock_election.locks WHERE name = 'held'"));
	query(db, "SELECT acquire_lock('ghost', owner => '%s-999', lease => %" PRId64 ")", owner, le_lease(s));
	query(db, "SELECT campaign('ghost', 'me', owner => '%s-998', lease => %" PRId64 ")", owner, le_lease(s));
	is_int(atoi(query(db, "SELECT count(*) FROM lock_election.look() WHERE name = 'ghost'")), 2,
		   "two entries with unknown owners of this session");
	places.slow_ms = 400;
	places.cut = true;
	lost = enqueue(s, "unwanted");
	waits = enqueue(s, "held");
	le_drop(lost);
	eventually(!places.cut, "the reply of a dropped request is lost");
	places.slow_ms = 0;
	eventually(
		strcmp(query(db, "SELECT count(*) FROM lock_election.look() WHERE name IN ('ghost', 'unwanted')"),
			   "0") == 0,
		"the unknown entries and the dropped request are released");
	eventually(strcmp(query(db, "SELECT count(*) FROM lock_election.waiters WHERE name = 'held'"), "1") == 0,
			   "the session still waits for another lock");
	ok(le_valid(held), "the session still holds its lock");
	le_drop(waits);
	le_release(held, 0, NULL);
	le_close(s, -1, NULL);
}

/* A repeated release that finds nothing was done by the first attempt. */
static void
lost_release(void)
{
	le_session *s = open_session(60000);
	le_hold *held = must_lock(s, "x");

	releases.cut = true;
	is_status(le_release(held, 0, &error), LE_OK, "a release succeeds although its reply is lost");
	ok(!releases.cut, "the reply of the release was lost");
	held = must_lock(s, "x");
	releases.cut = true;
	is_status(le_release(held, 1000, &error), LE_UNKNOWN,
			  "a release with hold_for whose reply is lost has an unknown outcome");
	held = must_lock(s, "x");
	is_status(le_release(held, 0, &error), LE_OK, "the lock was released although the outcome was unknown");
	le_close(s, -1, NULL);
}

/* --- reading the state of waiting requests and holds --- */

#define MANY 300

/* Uses few statements, whatever the number of waiting requests. */
static void
looks(void)
{
	static char texts[MANY][16];
	static const char *names[MANY];
	static le_hold *waits[MANY];
	le_options o = options_of(600000);
	le_session *s, *other = open_session(60000);
	le_hold *all;
	int granted = 0;

	for (int i = 0; i < MANY; i++)
	{
		snprintf(texts[i], sizeof(texts[i]), "many %d", i);
		names[i] = texts[i];
	}
	o.listen = -1;
	s = open_with(&o);
	is_status(le_acquire(other, names, MANY, NULL, PATIENCE, &all, &error), LE_OK,
			  "many locks are acquired as a group");
	for (int i = 0; i < MANY; i++)
		waits[i] = enqueue(s, names[i]);
	eventually(le_position(waits[MANY - 1]) == 1, "each of the many locks is waited for");
	turns.seen = 0;
	le_drop(all);
	while (granted < MANY && le_await(waits[granted], PATIENCE, &error) == LE_OK)
		granted++;
	is_int(granted, MANY, "each of the many locks is granted");
	ok(turns.seen < MANY, "fewer statements than locks were sent");
	for (int i = 0; i < MANY; i++)
		le_drop(waits[i]);
	le_close(s, -1, NULL);
	le_close(other, -1, NULL);
}

/* Places that another session ends: of a lock, of several locks, of a candidacy. */
static void
places_lost(void)
{
	static const char *const both[] = {"a", "b"};
	le_options o = options_of(600000);
	le_session *s, *other = open_session(60000);
	le_hold *a = must_lock(other, "a"), *term, *one, *two, *candidate;

	o.listen = -1;
	o.poll_ms = 50;
	s = open_with(&o);
	is_status(le_campaign(other, "e", "other", 0, &term, &error), LE_OK, "another session leads");
	one = enqueue(s, "a");
	is_status(le_enqueue(s, both, 2, NULL, &two, &error), LE_OK, "a place for two locks is requested");
	is_status(le_enqueue_candidate(s, "e", "me", &candidate, &error), LE_OK, "a candidacy is requested");
	eventually(le_position(one) == 1 && le_position(two) == 2 && le_position(candidate) == 1,
			   "all three requests wait");
	query(db, "SELECT release_lock(name, token) FROM lock_election.waiters WHERE name = 'a' AND "
			  "queue_position = 1");
	is_status(le_await(one, PATIENCE, &error), LE_LOST,
			  "a place that was released by another session is lost");
	ok(strcmp(error.sqlstate, "LE001") == 0, "the error of the lost place comes from the server");
	is_status(le_await(two, 0, &error), LE_WAITING, "the place for two locks is not lost");
	query(db, "SELECT release_locks('{a,b}', token) FROM lock_election.waiters WHERE name = 'b'");
	is_status(le_await(two, PATIENCE, &error), LE_LOST, "the place for two locks is lost");
	is_status(le_await(candidate, 0, &error), LE_WAITING, "the candidacy is not lost");
	query(db, "SELECT resign(name, token) FROM lock_election.look() WHERE kind = 'election' AND "
			  "queue_position > 0");
	is_status(le_await(candidate, PATIENCE, &error), LE_LOST,
			  "a candidacy that was resigned by another session is lost");
	le_drop(one);
	le_drop(two);
	le_drop(candidate);
	le_drop(a);
	le_drop(term);
	le_close(s, -1, NULL);
	le_close(other, -1, NULL);
}

/* The first renewal of a lease returns news, too. */
static void
first_renewal_looks(void)
{
	le_session *s = open_session(6000);
	le_hold *held = must_lock(s, "forced");
	int before;

	query(db, "SELECT force_release_lock('forced')");
	before = turns.seen;
	eventually(!le_valid(held), "a renewal finds a forced release");
	is_int(turns.seen - before, 1, "the first renewal finds it");
	le_drop(held);
	le_close(s, -1, NULL);
}

/* A renewal returns which holds have ended, and which places were granted. */
static void
turns_look(void)
{
	static le_hold *holds[100];
	le_options o = options_of(3000);
	le_session *s, *other = open_session(60000);
	le_hold *gate = must_lock(other, "gate"), *waits;

	o.listen = -1;
	o.poll_ms = 600000;
	s = open_with(&o);
	for (int i = 0; i < 100; i++)
	{
		char name[16];

		snprintf(name, sizeof(name), "held %d", i);
		holds[i] = must_lock(s, name);
	}
	waits = enqueue(s, "gate");
	eventually(le_position(waits) == 1, "a place waits");
	query(db,
		  "SELECT force_release_lock(name) FROM (VALUES ('held 0'), ('held 50'), ('held 99')) AS v(name)");
	eventually(!le_valid(holds[0]) && !le_valid(holds[50]) && !le_valid(holds[99]),
			   "renewals find three forced releases");
	ok(le_valid(holds[1]) && le_valid(holds[49]) && le_valid(holds[51]) && le_valid(holds[98]),
	   "no other hold is lost");
	le_drop(gate);
	is_status(le_await(waits, PATIENCE, &error), LE_OK, "renewals find a grant");
	le_drop(waits);
	for (int i = 0; i < 100; i++)
		le_drop(holds[i]);
	le_close(s, -1, NULL);
	le_close(other, -1, NULL);
}

/* --- timeouts of waits --- */

/* Nothing else wakes up the session for a minute: neither a poll nor a renewal. */
static void
until(void)
{
	le_options o = options_of(600000);
	le_how late = {.size = sizeof(late), .until = le_now() + 3600000}, soon = late;
	const char *name = "x";
	le_session *s, *other = open_session(60000);
	le_hold *held = must_lock(other, name), *a, *b;

	o.listen = -1;
	o.poll_ms = 60000;
	s = open_with(&o);
	is_status(le_enqueue(s, &name, 1, &late, &a, &error), LE_OK, "a place with a limit of an hour");
	eventually(le_position(a) == 1, "the place is in the queue");
	soon.until = le_now() + 300;
	is_status(le_enqueue(s, &name, 1, &soon, &b, &error), LE_OK, "a place with a limit of 300 ms");
	eventually_quietly(le_get_hold_state(b) == LE_HOLD_OVER);
	ok(le_get_hold_state(b) == LE_HOLD_OVER && le_now() >= soon.until && le_now() < soon.until + 30000,
	   "the place with the short limit ends in time");
	is_status(le_await(b, 0, &error), LE_TIMEOUT, "the place with the short limit returns LE_TIMEOUT");
	is_status(le_await(a, 0, &error), LE_WAITING, "the place with the long limit still waits");
	le_drop(a);
	le_drop(b);
	le_release(held, 0, NULL);
	le_close(s, -1, NULL);
	le_close(other, -1, NULL);
}

/* --- the runner --- */

static _Atomic int leads;

static int
on_elected(le_hold *term, void *arg)
{
	(void) arg;
	leads++;
	le_wait_stop(term, -1);
	return 0;
}

/* Makes the server reject one more lock of this role, or accept it again. */
static void
refuse(bool yes)
{
	bool refused = !yes;

	query(db, "ALTER SYSTEM SET lock_election.max_locks_per_role = %d", yes ? 1 : 1000);
	query(db, "SELECT pg_reload_conf()");
	for (int64_t end = le_now() + PATIENCE; refused != yes && le_now() < end; usleep(2000))
	{
		refused = strncmp(query(db, "SELECT try_acquire_lock('probe')"), "ERROR", 5) == 0;
		query(db, "SELECT release_lock('probe') FROM lock_election.locks WHERE name = 'probe'");
	}
	ok(refused == yes, yes ? "the server rejects candidacies" : "the server accepts candidacies again");
}

#define TRIES 7

static void
pauses(void)
{
	le_callbacks callbacks = {.size = sizeof(callbacks), .on_elected = on_elected};
	le_session *s = open_session(60000);
	le_hold *held = must_lock(s, "one");
	le_runner *runner;
	int64_t before;

	refuse(true);
	candidacies.seen = 0;
	is_status(le_run(s, "boss", "me", &callbacks, &runner, &error), LE_OK, "a runner");
	eventually_quietly(candidacies.seen >= TRIES - 1);
	before = candidacies.at;
	eventually(candidacies.seen >= TRIES, "a runner whose candidacies are rejected campaigns again");
	ok(candidacies.at - before >= 2000, "the pauses between candidacies grow");
	ok(candidacies.at - before < 10000, "the pauses between candidacies are bounded");
	refuse(false);
	eventually(leads == 1, "the runner is elected when candidacies are accepted");

	refuse(true);
	candidacies.seen = 0;
	query(db, "SELECT force_resign('boss')");
	eventually_quietly(candidacies.seen >= 1);
	before = candidacies.at;
	eventually(candidacies.seen >= 2, "the runner is forced out, and campaigns again");
	ok(candidacies.at - before < 4000, "after a term, the pauses start at the first length again");
	refuse(false);
	eventually(leads == 2, "the runner is elected again");
	is_status(le_stop(runner, &error), LE_OK, "the runner is stopped");
	le_release(held, 0, NULL);
	le_close(s, -1, NULL);
	query(db, "ALTER SYSTEM RESET lock_election.max_locks_per_role");
	query(db, "SELECT pg_reload_conf()");
}

static void
tests(void)
{
	db = connect_db();
	statements_begin(db);
	deadline();
	listening();
	refused();
	lost_answer("");
	lost_answer("worker");
	lost_together();
	lost_kinds();
	lost_unwanted();
	lost_release();
	looks();
	places_lost();
	first_renewal_looks();
	turns_look();
	until();
	pauses();
	is_int(atoi(query(db, "SELECT count(*) FROM lock_election.look()")), 0, "nothing is left");
	PQfinish(db);
}

int
main(int argc, char **argv)
{
	return run_tests(argc, argv, tests);
}
