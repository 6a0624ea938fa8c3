/*
 * sent.c
 *		What a session sends, and when: deadlines, answers that are lost, ends of
 *		waits.
 */
#include "client.h"
#include "statements.h"

static PGconn *db;

/* --- the deadline --- */

#define TTL    6000
#define MARGIN 300

/* However late the answer is. */
static void
deadline(void)
{
	le_session *s;
	int64_t first;

	grants.slow_ms = turns.slow_ms = 400;
	s = open_session(TTL);
	first = le_deadline(s);
	ok(first <= grants.at + TTL - MARGIN, "the TTL counts from the sending of what grants the lease");
	eventually(le_deadline(s) > first, "a renewal");
	ok(le_deadline(s) <= turns.at + TTL - MARGIN, "from its sending, too");
	grants.slow_ms = turns.slow_ms = 0;
	le_close(s, -1, NULL);
}

/* --- a connection that takes the place of another one --- */

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
	eventually(listens.seen > before, "and listens again on its next connection");
	le_release(held, 0, NULL);
	is_status(le_await(waits, PATIENCE, &error), LE_OK, "where it is told of the grant");
	le_release(waits, 0, NULL);
	le_close(s, -1, NULL);
	le_close(other, -1, NULL);
}

/* Where LISTEN is refused the session looks often, on the same connection. */
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
	is_status(le_await(waits, 3000, &error), LE_OK, "the grant is found soon");
	ok(strcmp(query(db, find), backend) == 0, "on the same connection");
	is_int(atoi(query(db, "SELECT count(*) FROM lock_election.locks WHERE owner ~ '^[0-9]{199}#'")), 1,
		   "a long name is cut between two characters");
	le_release(waits, 0, NULL);
	le_close(s, -1, NULL);
	le_close(other, -1, NULL);
}

/* A session of this name. */
static le_session *
named(const char *name, int ttl_ms)
{
	le_options o = options_of(ttl_ms);

	o.name = name;
	return open_with(&o);
}

/* The application may hang locks of its own on the lease, under any owner. */
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
	is_status(le_await(lost, PATIENCE, &error), LE_OK,
			  "what was granted is found, though the answer was lost");
	ok(!places.cut, "it has been looked for");
	is_status(lock(s, "y", PATIENCE, &next), LE_OK, "the session goes on");
	is_int(atoi(query(db, "SELECT count(*) FROM lock_election.locks WHERE name IN ('own', 'named', 'longer',"
						  " 'shorter')")),
		   4, "and releases nothing that is not its own");
	le_release(lost, 0, NULL);
	le_release(next, 0, NULL);
	is_status(le_close(s, -1, &error), LE_OK, "closed");
}

static int64_t
token_of(const char *kind, const char *name)
{
	return atoll(query(db, "SELECT token FROM lock_election.%s WHERE name = '%s'", kind, name));
}

/*
 * Many that were asked for in one call are told from each other, also where one
 * name begins as the other; what waits keeps its place.
 */
static void
lost_together(void)
{
	static const char *const names[] = {"n1", "n", "n12"};
	le_session *s = named("worker", 60000), *other = open_session(60000);
	le_hold *gate = must_lock(other, "n1"), *before = enqueue(other, "n1"), *slow, *holds[3];

	eventually(le_position(before) == 1, "one holds, one waits");
	places.slow_ms = 500;
	slow = enqueue(s, "slow");
	eventually_quietly(places.seen > 0 && places.at > le_now() - 400);
	of_n12.cut = true;
	for (int i = 0; i < 3; i++)
		holds[i] = enqueue(s, names[i]);
	is_status(le_await(slow, PATIENCE, &error), LE_OK, "while a session is busy");
	places.slow_ms = 0;
	eventually(!of_n12.cut, "it is asked for several locks, and the answer is lost");
	for (int i = 1; i < 3; i++)
	{
		is_status(le_await(holds[i], PATIENCE, &error), LE_OK, "one was granted");
		is_int(le_token(holds[i]), token_of("locks", names[i]), "by its own token");
	}
	eventually(strcmp(query(db, "SELECT max(queue_position) FROM lock_election.waiters WHERE name = 'n1'"),
					  "2") == 0,
			   "one waits where it was");
	le_drop(gate);
	is_status(le_await(before, PATIENCE, &error), LE_OK, "it is the other's turn");
	is_status(le_await(holds[0], 0, &error), LE_WAITING, "not yet its own");
	le_drop(before);
	is_status(le_await(holds[0], PATIENCE, &error), LE_OK, "then it is");
	for (int i = 0; i < 3; i++)
		is_status(le_release(holds[i], 0, &error), LE_OK, "released");
	le_release(slow, 0, NULL);
	le_close(s, -1, NULL);
	le_close(other, -1, NULL);
}

/* Whatever is asked for: several locks, permits, terms. */
static void
lost_kinds(void)
{
	static const char *const both[] = {"m1", "m2"}, *const permit_name[] = {"p"};
	le_how permit = {.size = sizeof(permit), .permits = 1};
	le_session *s = named("worker", 60000), *other = open_session(60000);
	le_hold *gates[] = {must_lock(other, "m1"), must_lock(other, "m2"), enqueue(other, "m2")}, *many, *one,
			*term;

	eventually(le_position(gates[2]) == 1, "somebody waits for one of two");
	places.cut = true;
	is_status(le_enqueue(s, both, 2, NULL, &many, &error), LE_OK, "both");
	eventually(!places.cut, "the answer is lost");
	permits.cut = true;
	is_status(le_enqueue(s, both, 1, &permit, &one, &error), LE_OK, "no permit is of a lock");
	is_status(le_await(one, PATIENCE, &error), LE_INVALID, "which the server says");
	le_drop(one);
	eventually(strcmp(query(db, "SELECT max(queue_position) FROM lock_election.waiters WHERE name = 'm2'"),
					  "2") == 0,
			   "the place in the longer queue");
	permits.cut = true;
	is_status(le_enqueue(s, permit_name, 1, &permit, &one, &error), LE_OK, "a permit");
	is_status(le_await(one, PATIENCE, &error), LE_OK, "granted");
	is_int(le_token(one), token_of("locks", "p"), "by its token, once");
	candidacies.cut = true;
	is_status(le_enqueue_candidate(s, "boss", "me", &term, &error), LE_OK, "a candidacy");
	is_status(le_await(term, PATIENCE, &error), LE_OK, "elected");
	ok(!permits.cut && !candidacies.cut, "all of these answers were lost");
	is_status(le_proclaim(term, "still me", &error), LE_OK, "it leads");
	for (int i = 0; i < 3; i++)
		le_drop(gates[i]);
	is_status(le_await(many, PATIENCE, &error), LE_OK, "both are granted");
	is_int(atoi(query(db, "SELECT count(*) FROM lock_election.locks WHERE token = %" PRId64, le_token(many))),
		   2, "by one token");
	is_status(le_release(many, 0, &error), LE_OK, "released");
	is_status(le_release(one, 0, &error), LE_OK, "released");
	is_status(le_resign(term, &error), LE_OK, "resigned");
	le_close(s, -1, NULL);
	le_close(other, -1, NULL);
}

/* What the application does not want any more is given back; and what hangs on the lease under our owners, unknown. */
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
		   "two that nobody knows of");
	places.slow_ms = 400;
	places.cut = true;
	lost = enqueue(s, "unwanted");
	waits = enqueue(s, "held");
	le_drop(lost);
	eventually(!places.cut, "an answer is lost of what is not wanted any more");
	places.slow_ms = 0;
	eventually(
		strcmp(query(db, "SELECT count(*) FROM lock_election.look() WHERE name IN ('ghost', 'unwanted')"),
			   "0") == 0,
		"nothing of it stays");
	eventually(strcmp(query(db, "SELECT count(*) FROM lock_election.waiters WHERE name = 'held'"), "1") == 0,
			   "the session goes on");
	ok(le_valid(held), "with what it holds");
	le_drop(waits);
	le_release(held, 0, NULL);
	le_close(s, -1, NULL);
}

/* A release that is sent once more, and finds nothing, was done before. */
static void
lost_release(void)
{
	le_session *s = open_session(60000);
	le_hold *held = must_lock(s, "x");

	releases.cut = true;
	is_status(le_release(held, 0, &error), LE_OK, "a release whose answer is lost");
	ok(!releases.cut, "is sent once more");
	held = must_lock(s, "x");
	releases.cut = true;
	is_status(le_release(held, 1000, &error), LE_UNKNOWN,
			  "with hold_for, whether that was done is not known");
	held = must_lock(s, "x");
	is_status(le_release(held, 0, &error), LE_OK, "but it was released");
	le_close(s, -1, NULL);
}

/* --- looking at what waits and at what is held --- */

#define MANY 300

/* In few statements, however many wait. */
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
	is_status(le_acquire(other, names, MANY, NULL, PATIENCE, &all, &error), LE_OK, "many locks");
	for (int i = 0; i < MANY; i++)
		waits[i] = enqueue(s, names[i]);
	eventually(le_position(waits[MANY - 1]) == 1, "are waited for");
	turns.seen = 0;
	le_drop(all);
	while (granted < MANY && le_await(waits[granted], PATIENCE, &error) == LE_OK)
		granted++;
	is_int(granted, MANY, "and granted");
	ok(turns.seen < MANY, "without asking for each");
	for (int i = 0; i < MANY; i++)
		le_drop(waits[i]);
	le_close(s, -1, NULL);
	le_close(other, -1, NULL);
}

/* A place that somebody takes away: a lock's, several locks', a candidacy. */
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
	is_status(le_campaign(other, "e", "other", 0, &term, &error), LE_OK, "somebody leads");
	one = enqueue(s, "a");
	is_status(le_enqueue(s, both, 2, NULL, &two, &error), LE_OK, "two");
	is_status(le_enqueue_candidate(s, "e", "me", &candidate, &error), LE_OK, "and a term");
	eventually(le_position(one) == 1 && le_position(two) == 2 && le_position(candidate) == 1,
			   "are waited for");
	query(db, "SELECT release_lock(name, token) FROM lock_election.waiters WHERE name = 'a' AND "
			  "queue_position = 1");
	is_status(le_await(one, PATIENCE, &error), LE_LOST, "a place is lost");
	ok(strcmp(error.sqlstate, "LE001") == 0, "by the server's word");
	is_status(le_await(two, 0, &error), LE_WAITING, "the others are not");
	query(db, "SELECT release_locks('{a,b}', token) FROM lock_election.waiters WHERE name = 'b'");
	is_status(le_await(two, PATIENCE, &error), LE_LOST, "now two are");
	is_status(le_await(candidate, 0, &error), LE_WAITING, "the last one is not");
	query(db, "SELECT resign(name, token) FROM lock_election.look() WHERE kind = 'election' AND "
			  "queue_position > 0");
	is_status(le_await(candidate, PATIENCE, &error), LE_LOST, "until it is, too");
	le_drop(one);
	le_drop(two);
	le_drop(candidate);
	le_drop(a);
	le_drop(term);
	le_close(s, -1, NULL);
	le_close(other, -1, NULL);
}

/* Also the first renewal of a lease tells the news. */
static void
first_renewal_looks(void)
{
	le_session *s = open_session(6000);
	le_hold *held = must_lock(s, "forced");
	int before;

	query(db, "SELECT force_release_lock('forced')");
	before = turns.seen;
	eventually(!le_valid(held), "a renewal finds what was forced");
	is_int(turns.seen - before, 1, "the next one");
	le_drop(held);
	le_close(s, -1, NULL);
}

/* A renewal tells what has ended of what is held, and what was granted. */
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
	eventually(le_position(waits) == 1, "one waits");
	query(db,
		  "SELECT force_release_lock(name) FROM (VALUES ('held 0'), ('held 50'), ('held 99')) AS v(name)");
	eventually(!le_valid(holds[0]) && !le_valid(holds[50]) && !le_valid(holds[99]),
			   "renewals find what was forced");
	ok(le_valid(holds[1]) && le_valid(holds[49]) && le_valid(holds[51]) && le_valid(holds[98]),
	   "and nothing else");
	le_drop(gate);
	is_status(le_await(waits, PATIENCE, &error), LE_OK, "and what was granted");
	le_drop(waits);
	for (int i = 0; i < 100; i++)
		le_drop(holds[i]);
	le_close(s, -1, NULL);
	le_close(other, -1, NULL);
}

/* --- the end of a wait --- */

/* Nothing else wakes the session for a minute: neither a look at the queue nor a renewal. */
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
	is_status(le_enqueue(s, &name, 1, &late, &a, &error), LE_OK, "a wait for an hour");
	eventually(le_position(a) == 1, "queued");
	soon.until = le_now() + 300;
	is_status(le_enqueue(s, &name, 1, &soon, &b, &error), LE_OK, "one for a moment");
	eventually_quietly(le_get_hold_state(b) == LE_HOLD_OVER);
	ok(le_get_hold_state(b) == LE_HOLD_OVER && le_now() >= soon.until && le_now() < soon.until + 30000,
	   "is over when its time has come");
	is_status(le_await(b, 0, &error), LE_TIMEOUT, "with the reason");
	is_status(le_await(a, 0, &error), LE_WAITING, "the other goes on");
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

/* One more lock of this role is refused from here on, or is not. */
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
	ok(refused == yes, yes ? "candidacies are refused" : "and are not any more");
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
	eventually(candidacies.seen >= TRIES, "stands again and again");
	ok(candidacies.at - before >= 2000, "after longer and longer pauses");
	ok(candidacies.at - before < 10000, "which do not grow for ever");
	refuse(false);
	eventually(leads == 1, "until it is elected");

	refuse(true);
	candidacies.seen = 0;
	query(db, "SELECT force_resign('boss')");
	eventually_quietly(candidacies.seen >= 1);
	before = candidacies.at;
	eventually(candidacies.seen >= 2, "it is forced out, and refused again");
	ok(candidacies.at - before < 4000, "after a term the pauses begin anew");
	refuse(false);
	eventually(leads == 2, "elected again");
	is_status(le_stop(runner, &error), LE_OK, "stopped");
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
