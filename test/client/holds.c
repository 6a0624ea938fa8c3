/*
 * holds.c
 *		Locks, shared locks, several locks, waiting and canceling, fences: what
 *		a session does while the server is well.
 */
#include "client.h"

static le_session *one, *two;
static PGconn *db;

static void
tries_and_waits(void)
{
	le_hold *a, *b, *c;
	int64_t start;

	is_status(lock(one, "x", 0, &a), LE_OK, "a free lock is acquired by trying");
	ok(le_valid(a) && le_hold_time_left(a) > 0, "an acquired hold is valid");
	ok(le_get_hold_state(a) == LE_HOLD_HELD, "an acquired hold is HELD");
	ok(le_token(a) > 0, "an acquired hold has a token");
	is_status(lock(two, "x", 0, &b), LE_TIMEOUT, "a held lock is not granted to another session");
	ok(b == NULL, "a failed acquire returns no hold");
	is_status(lock(one, "x", 0, &b), LE_TIMEOUT, "a held lock is not granted again to the same session");
	start = le_now();
	is_status(lock(two, "x", 150, &b), LE_TIMEOUT, "a wait with a limit times out");
	ok(le_now() - start >= 150 && le_now() - start < 10000, "the wait times out after its limit");
	is_status(lock_how(two, "x", (le_how){.until = le_now() + 100}, -1, &b), LE_TIMEOUT,
			  "a wait with a deadline times out");
	is_status(lock_how(two, "x", (le_how){.until = 1}, -1, &b), LE_TIMEOUT,
			  "a wait whose deadline has passed times out immediately");
	eventually(strcmp(query(db, "SELECT count(*) FROM lock_election.waiters"), "0") == 0,
			   "no place is left after a timeout");

	b = enqueue(two, "x");
	eventually(le_position(b) == 1, "a place is first in the queue");
	is_status(le_await(b, 0, &error), LE_WAITING, "the place is not yet granted");
	is_status(le_await_until(b, INT64_MIN, &error), LE_WAITING,
			  "le_await_until the smallest time returns immediately");
	ok(le_token(b) == 0 && !le_valid(b), "a waiting hold has no token and is not valid");
	is_status(le_release(a, 0, &error), LE_OK, "the holder releases");
	is_status(le_await(b, PATIENCE, &error), LE_OK, "the place is granted after the release");
	ok(le_valid(b) && le_token(b) > 0, "the granted hold is valid and has a token");
	c = enqueue(one, "x");
	eventually(le_position(c) == 1, "another place is first in the queue behind the holder");
	le_drop(b);
	is_status(le_await(c, PATIENCE, &error), LE_OK,
			  "le_drop releases in the background, and the next place is granted");
	is_status(le_release(c, 0, &error), LE_OK, "the last holder releases");
}

static void
cancels(void)
{
	le_hold *a = must_lock(one, "x"), *b = enqueue(two, "x"), *c;

	le_cancel(b);
	is_status(le_await(b, -1, &error), LE_CANCELED, "canceled immediately after the enqueue");
	le_release(b, 0, NULL);
	b = enqueue(two, "x");
	eventually(le_position(b) > 0, "the place is in the queue");
	le_cancel(b);
	is_status(le_await(b, -1, &error), LE_CANCELED, "a place in the queue is canceled");
	ok(le_get_hold_state(b) == LE_HOLD_OVER, "a canceled hold is OVER");
	eventually(strcmp(query(db, "SELECT count(*) FROM lock_election.waiters"), "0") == 0,
			   "no place is left after the cancel");
	is_status(le_release(b, 0, &error), LE_OK, "a canceled hold is freed");
	le_cancel(a);
	ok(le_valid(a), "le_cancel does not affect a granted hold");
	is_status(le_release(a, 0, &error), LE_OK, "the granted hold is released");
	is_status(lock(two, "x", 0, &c), LE_OK, "the lock is free after the release");
	le_release(c, 0, NULL);
}

static void *
cancel_soon(void *arg)
{
	eventually(le_position(arg) > 0, "the place waits until it is canceled");
	le_cancel(arg);
	return NULL;
}

static void
cancels_from_a_thread(void)
{
	le_hold *a = must_lock(one, "x"), *b = enqueue(two, "x");
	pthread_t thread;

	pthread_create(&thread, NULL, cancel_soon, b);
	is_status(le_await(b, -1, &error), LE_CANCELED, "another thread ends a wait without limit");
	pthread_join(thread, NULL);
	le_release(b, 0, NULL);
	le_release(a, 0, NULL);
}

static void
shared(void)
{
	le_hold *a, *b, *w, *r;

	is_status(lock_how(one, "s", (le_how){.shared = 1}, 0, &a), LE_OK, "a shared holder is granted");
	is_status(lock_how(two, "s", (le_how){.shared = 1}, 0, &b), LE_OK, "a second shared holder is granted");
	is_status(lock(two, "s", 0, &w), LE_TIMEOUT, "an exclusive request is not granted beside shared holders");
	w = enqueue(two, "s");
	eventually(le_position(w) == 1, "an exclusive request waits");
	is_status(lock_how(one, "s", (le_how){.shared = 1}, 0, &r), LE_TIMEOUT,
			  "a shared request does not overtake the exclusive waiter");
	le_release(a, 0, NULL);
	le_release(b, 0, NULL);
	is_status(le_await(w, PATIENCE, &error), LE_OK, "the exclusive waiter is granted after both releases");
	le_release(w, 0, NULL);
}

static void
several(void)
{
	const char *xy[] = {"m1", "m 2, \"quoted\\"}, *y[] = {"m 2, \"quoted\\", "m3"}, *twice[] = {"a", "a"};
	le_hold *a, *b;

	is_status(le_acquire(one, xy, 2, NULL, 0, &a, &error), LE_OK, "two locks at once");
	is_status(le_acquire(two, y, 2, NULL, 0, &b, &error), LE_TIMEOUT,
			  "a group is not granted if one of its locks is held");
	is_status(lock(two, "m3", 0, &b), LE_OK, "the other lock of the group is still free");
	le_release(b, 0, NULL);
	is_int(atoi(query(db, "SELECT count(*) FROM lock_election.locks WHERE token = %" PRId64, le_token(a))), 2,
		   "both locks of a group have the same token");
	is_status(le_release(a, 0, &error), LE_OK, "the group is released");
	is_int(atoi(query(db, "SELECT count(*) FROM lock_election.locks")), 0,
		   "both locks of the group are released");
	is_status(le_acquire(one, twice, 2, NULL, 0, &a, &error), LE_INVALID, "one name twice");
	ok(strcmp(error.sqlstate, "22023") == 0, "one name twice is rejected by the server");
	is_status(le_acquire(one, xy, 2, NULL, 0, &a, &error), LE_OK, "the group is acquired again");
	is_status(le_release(a, 400, &error), LE_OK, "the group is released with hold_for");
	is_status(lock(two, "m1", 0, &b), LE_TIMEOUT, "the first name is closed");
	is_status(lock(two, xy[1], 0, &b), LE_TIMEOUT, "the second name is closed");
	is_status(le_acquire(two, xy, 2, NULL, 0, &b, &error), LE_TIMEOUT,
			  "the group of closed names is not granted");
	is_status(lock(two, "m1", PATIENCE, &b), LE_OK, "a name opens after hold_for");
	le_release(b, 0, NULL);
}

static void
permits(void)
{
	le_hold *a, *b, *c;

	is_status(lock_how(one, "p", (le_how){.permits = 2}, 0, &a), LE_OK, "a permit is granted");
	is_status(lock_how(one, "p", (le_how){.permits = 2}, 0, &b), LE_OK,
			  "a second permit is granted to the same session");
	is_status(lock_how(two, "p", (le_how){.permits = 2}, 0, &c), LE_TIMEOUT,
			  "a third of two permits is not granted");
	is_status(lock_how(two, "p", (le_how){.permits = 3}, 0, &c), LE_INVALID,
			  "another number of permits is rejected");
	is_status(lock_how(two, "p", (le_how){.permits = 2, .shared = 1}, 0, &c), LE_INVALID,
			  "a shared permit is rejected");
	is_status(le_release(a, 0, &error), LE_OK, "a permit is released");
	is_status(lock_how(two, "p", (le_how){.permits = 2}, 0, &c), LE_OK,
			  "the released permit is granted to another session");
	le_release(b, 0, NULL);
	le_release(c, 0, NULL);
}

/* Places for several locks and for permits. */
static void
places(void)
{
	const char *ab[] = {"a", "b"}, *bc[] = {"b", "c"};
	le_how permit = {.size = sizeof(permit), .permits = 1};
	le_hold *a, *b, *c;

	is_status(le_acquire(one, ab, 2, NULL, PATIENCE, &a, &error), LE_OK,
			  "two locks are acquired with a wait");
	is_status(le_acquire(two, bc, 2, NULL, 100, &b, &error), LE_TIMEOUT,
			  "a group is not granted within a short wait");
	is_status(le_enqueue(two, bc, 2, NULL, &b, &error), LE_OK,
			  "a group is enqueued behind a group that shares one name");
	eventually(le_position(b) > 0, "the group is in the queue");
	is_status(lock(one, "c", 0, &c), LE_TIMEOUT, "nobody overtakes a waiting group on its free name");
	le_release(a, 0, NULL);
	is_status(le_await(b, PATIENCE, &error), LE_OK, "the waiting group is granted");
	is_status(le_enqueue(one, ab, 2, NULL, &a, &error), LE_OK, "another group is enqueued");
	eventually(le_position(a) > 0, "the other group is in the queue");
	le_cancel(a);
	is_status(le_release(a, 0, &error), LE_OK, "a canceled group is freed");
	is_status(le_release(b, 0, &error), LE_OK, "released");

	is_status(le_acquire(one, ab, 1, &permit, PATIENCE, &a, &error), LE_OK, "the only permit is granted");
	is_status(le_enqueue(two, ab, 1, &permit, &b, &error), LE_OK, "a place for the permit is enqueued");
	eventually(le_position(b) == 1, "the place for the permit is first");
	le_release(a, 0, NULL);
	is_status(le_await(b, PATIENCE, &error), LE_OK, "the place for the permit is granted");
	le_release(b, 0, NULL);
	eventually(strcmp(query(db, "SELECT count(*) FROM lock_election.look()"), "0") == 0, "nothing is left");
}

static void
closed(void)
{
	le_hold *a = must_lock(one, "job"), *b;
	int64_t start = le_now();

	is_status(le_release(a, 700, &error), LE_OK, "released with hold_for");
	is_status(lock(two, "job", 0, &b), LE_TIMEOUT, "the name is closed after a release with hold_for");
	is_status(lock(one, "job", PATIENCE, &b), LE_OK, "the name opens after hold_for");
	ok(le_now() - start >= 500, "the name does not open earlier");
	is_status(le_release(b, INT32_MAX, &error), LE_INVALID, "a hold_for above max_hold_for is rejected");
	is_status(lock(two, "job", 0, &b), LE_OK, "the lock is released although its hold_for was rejected");
	le_release(b, 0, NULL);
}

static void
fences(void)
{
	const char *names[] = {"f1", "f2"};
	char sql[100];
	PGconn *mine = PQconnectdb(conninfo);
	le_hold *a = must_lock(one, "f"), *many, *term;

	is_status(le_fence(a, mine, &error), LE_INVALID, "no fence without a transaction");
	is_status(le_fence(a, NULL, &error), LE_INVALID, "no fence without a connection");
	query(mine, "BEGIN");
	is_status(le_fence(a, mine, &error), LE_OK, "a lock is fenced");
	query(mine, "COMMIT");
	le_acquire(one, names, 2, NULL, 0, &many, &error);
	is_status(le_campaign(one, "f", "me", 0, &term, &error), LE_OK, "a leader");
	query(mine, "BEGIN");
	is_status(le_fence(many, mine, &error), LE_OK, "several locks are fenced");
	is_status(le_fence(term, mine, &error), LE_OK, "a term is fenced");
	is_int(atoi(query(db, "SELECT count(*) FROM lock_election.locks WHERE fenced_by <> '{}'")), 3,
		   "the view shows all fences");
	query(mine, "COMMIT");
	query(db, "SELECT force_release_lock('f')");
	query(mine, "BEGIN");
	is_status(le_fence(a, mine, &error), LE_LOST, "a lost lock cannot be fenced");
	ok(strcmp(error.sqlstate, "LE001") == 0, "the error of the fence comes from the server");
	is_status(le_fence(many, mine, &error), LE_INVALID, "no fence in a failed transaction");
	query(mine, "ROLLBACK");
	is_status(le_release(a, 0, &error), LE_LOST, "the release of the lost lock returns LE_LOST");
	a = must_lock(one, "f");
	query(mine, "BEGIN");
	snprintf(sql, sizeof(sql), "SELECT pg_terminate_backend(%s, 10000)",
			 query(mine, "SELECT pg_backend_pid()"));
	query(db, "%s", sql);
	is_status(le_fence(a, mine, &error), LE_UNAVAILABLE, "no fence in a connection that has ended");
	is_status(le_release(a, 0, &error), LE_OK, "the lock is released after the failed fence");
	is_status(le_fence(many, mine, &error), LE_INVALID, "no fence in a connection that was found closed");
	le_release(many, 0, NULL);
	le_release(term, 0, NULL);
	PQfinish(mine);
}

static void
forced(void)
{
	le_hold *a = must_lock(one, "forced");

	query(db, "SELECT force_release_lock('forced')");
	ok(le_valid(a), "a forced lock is valid until the next renewal");
	eventually(!le_valid(a), "the next renewal finds the forced release");
	is_status(le_await(a, 0, &error), LE_LOST, "le_await of a forced lock returns LE_LOST");
	is_status(le_release(a, 0, &error), LE_LOST, "le_release of a forced lock returns LE_LOST");
	ok(le_get_state(one) == LE_CONNECTED, "the session continues after a forced release");
}

static int
never_elected(le_hold *term, void *arg)
{
	(void) term;
	(void) arg;
	return 1;
}

/* Every call itself rejects invalid names and candidates: nothing is sent. */
static void
calls_refuse(const char *too_long)
{
	static char candidate[4098];
	const char *wrong[] = {NULL, "", too_long}, *none[] = {NULL, "", candidate}, *pair[] = {"a", NULL};
	le_callbacks callbacks = {.size = sizeof(callbacks), .on_elected = never_elected};
	le_leader_info info = {.size = sizeof(info)};
	le_how negative = {.size = sizeof(negative), .until = -1}, many = {.size = sizeof(many), .permits = -1};
	le_runner *runner;
	le_hold *term, *a;

	memset(candidate, 'c', sizeof(candidate) - 1);
	is_status(le_campaign(one, "refuse", "me", 0, &term, &error), LE_OK, "a term");
	for (int i = 0; i < 3; i++)
	{
		is_status(le_enqueue(one, &wrong[i], 1, NULL, &a, &error), LE_INVALID, "le_enqueue");
		is_status(le_campaign(one, wrong[i], "me", 0, &a, &error), LE_INVALID, "le_campaign, election");
		is_status(le_campaign(one, "e", none[i], 0, &a, &error), LE_INVALID, "candidate");
		is_status(le_enqueue_candidate(one, wrong[i], "me", &a, &error), LE_INVALID,
				  "le_enqueue_candidate, election");
		is_status(le_enqueue_candidate(one, "e", none[i], &a, &error), LE_INVALID, "candidate");
		is_status(le_leader(one, wrong[i], &info, &error), LE_INVALID, "le_leader");
		ok(error.sqlstate[0] == '\0', "le_leader: the error comes from the library");
		is_status(le_proclaim(term, none[i], &error), LE_INVALID, "le_proclaim");
		ok(error.sqlstate[0] == '\0', "le_proclaim: the error comes from the library");
		is_status(le_run(one, wrong[i], "me", &callbacks, &runner, &error), LE_INVALID,
				  "le_run, invalid election");
		is_status(le_run(one, "e", none[i], &callbacks, &runner, &error), LE_INVALID,
				  "le_run, invalid candidate");
	}
	is_status(le_run(one, "e", "me", NULL, &runner, &error), LE_INVALID, "le_run without callbacks");
	is_status(le_acquire(one, pair, 2, NULL, 0, &a, &error), LE_INVALID,
			  "the second of two names is invalid");
	is_status(le_enqueue(one, pair, 1001, NULL, &a, &error), LE_INVALID, "too many names");
	is_status(le_enqueue(one, pair, -1, NULL, &a, &error), LE_INVALID, "a negative number of names");
	is_status(le_enqueue(one, pair, 1, &negative, &a, &error), LE_INVALID, "a negative deadline");
	is_status(le_enqueue(one, pair, 1, &many, &a, &error), LE_INVALID, "a negative number of permits");
	many.permits = 1;
	is_status(le_enqueue(one, wrong, 2, &many, &a, &error), LE_INVALID, "a permit for two names");
	is_status(le_stop(NULL, &error), LE_OK, "le_stop(NULL) does nothing");
	candidate[4096] = '\0';
	is_status(le_proclaim(term, candidate, &error), LE_OK, "the longest candidate is proclaimed");
	is_status(le_leader(two, "refuse", &info, &error), LE_OK, "the longest candidate can be read");
	ok(strcmp(info.candidate, candidate) == 0, "the longest candidate is unchanged");
	le_resign(term, NULL);
}

static void
arguments(void)
{
	const char *empty = "";
	char longest[300];
	const char *too_long = longest;
	le_hold *a;

	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	is_status(le_acquire(one, &empty, 1, NULL, 0, &a, &error), LE_INVALID, "an empty name");
	is_status(le_acquire(one, &too_long, 1, NULL, 0, &a, &error), LE_INVALID, "a name that is too long");
	is_status(le_acquire(one, NULL, 0, NULL, 0, &a, &error), LE_INVALID, "no name");
	is_status(le_acquire(one, &empty, 1, &(le_how){.shared = 1}, 0, &a, &error), LE_INVALID,
			  "le_how without a size");
	is_status(le_campaign(one, "e", "", 0, &a, &error), LE_INVALID, "an empty candidate");
	is_status(le_campaign(one, "e", NULL, 0, &a, &error), LE_INVALID, "no candidate");
	calls_refuse(too_long);
	longest[255] = '\0';
	is_status(lock(one, longest, 0, &a), LE_OK, "the longest name");
	is_status(le_release(a, 0, NULL), LE_OK, "the error argument can be NULL");
	is_status(lock(one, "it's", 0, &a), LE_OK, "a name with a quote");
	le_release(a, 0, NULL);
}

/* Structs of programs that were built with another version of the header are longer or shorter. */
static void
sizes(void)
{
	struct
	{
		le_how how;
		int64_t more;
	} how = {.how = {.size = sizeof(how), .shared = 1}};
	struct
	{
		le_options options;
		int64_t more;
	} options = {.options = options_of(5000)};
	struct
	{
		le_callbacks callbacks;
		int64_t more;
	} callbacks = {.callbacks = {.size = sizeof(callbacks)}, .more = 1};
	static union
	{
		le_leader_info info;
		char bytes[sizeof(le_leader_info) + 16];
	} leader;
	le_how shorter = {.size = offsetof(le_how, permits), .shared = 1, .permits = -1, .until = 1};
	const char *name = "sized";
	size_t least = offsetof(le_leader_info, candidate) + sizeof(leader.info.candidate);
	le_runner *runner;
	le_session *s;
	le_hold *a, *b;

	is_status(le_acquire(one, &name, 1, &how.how, 0, &a, &error), LE_OK, "a longer struct");
	is_status(le_acquire(one, &name, 1, &shorter, 0, &b, &error), LE_OK,
			  "a shorter struct: the rest is not read");
	is_int(atoi(query(db, "SELECT count(*) FROM lock_election.locks WHERE mode = 'shared'")), 2,
		   "both structs request shared locks");
	le_release(a, 0, NULL);
	le_release(b, 0, NULL);
	how.more = 1;
	is_status(le_acquire(one, &name, 1, &how.how, 0, &a, &error), LE_INVALID,
			  "le_acquire rejects an unknown member");
	is_status(le_enqueue(one, &name, 1, &how.how, &a, &error), LE_INVALID,
			  "le_enqueue rejects an unknown member");
	ok(strstr(error.message, "le_how") != NULL, "the error names the struct with the unknown member");
	how.how.size = (size_t) 1 << 40;
	is_status(le_enqueue(one, &name, 1, &how.how, &a, &error), LE_INVALID,
			  "a size that was never set is rejected");

	options.options.size = sizeof(options);
	is_status(le_open(&options.options, &s, &error), LE_OK, "longer options");
	le_close(s, -1, NULL);
	options.more = 1;
	is_status(le_open(&options.options, &s, &error), LE_INVALID, "le_open rejects an unknown option");
	options.options.size = offsetof(le_options, margin_ms);
	options.options.margin_ms = -1;
	is_status(le_open(&options.options, &s, &error), LE_OK, "shorter options");
	ok(le_time_left(s) <= 4750, "options after the end of shorter ones have defaults");
	le_close(s, -1, NULL);
	is_status(le_run(one, "e", "c", &callbacks.callbacks, &runner, &error), LE_INVALID,
			  "le_run rejects an unknown callback");
	callbacks.callbacks.size = offsetof(le_callbacks, on_elected);
	is_status(le_run(one, "e", "c", &callbacks.callbacks, &runner, &error), LE_INVALID,
			  "le_run requires on_elected");

	is_status(le_campaign(one, "e", "me", 0, &a, &error), LE_OK, "a leader");
	memset(&leader, 'x', sizeof(leader));
	leader.info.size = sizeof(leader);
	is_status(le_leader(one, "e", &leader.info, &error), LE_OK, "le_leader fills a longer struct");
	ok(leader.info.size == sizeof(leader) && leader.info.term == le_token(a) &&
		   strcmp(leader.info.candidate, "me") == 0 && leader.bytes[sizeof(leader) - 1] == 0,
	   "unknown members of the longer struct are zero");
	memset(&leader, 'x', sizeof(leader));
	leader.info.size = least;
	is_status(le_leader(one, "e", &leader.info, &error), LE_OK, "le_leader fills a shorter struct");
	ok(strcmp(leader.info.candidate, "me") == 0 && leader.bytes[least] == 'x',
	   "nothing is written after the shorter struct");
	leader.info.size = least - 1;
	is_status(le_leader(one, "e", &leader.info, &error), LE_INVALID,
			  "le_leader rejects a struct that is too short");
	le_resign(a, NULL);
}

/* The hold is freed in any case; the session then releases the lock. */
static void
releases(void)
{
	le_options o = options_of(3000);
	char info[1000];
	le_session *s;
	le_hold *a, *b;

	is_status(le_campaign(one, "e", "me", 0, &a, &error), LE_OK, "a term for the release with hold_for");
	is_status(le_release(a, 1000, &error), LE_INVALID, "a term cannot be released with hold_for");
	is_status(lock(one, "x", 0, &a), LE_OK, "a lock for a negative hold_for");
	is_status(le_release(a, -1, &error), LE_INVALID, "a negative hold_for is rejected");
	is_int(atoi(query(db, "SELECT count(*) FROM lock_election.locks")), 0,
		   "the lock is released without the negative hold_for");
	is_status(lock(one, "x", 0, &a), LE_OK, "a lock for a long hold_for");
	is_status(le_release(a, 2 * 86400 * 1000, &error), LE_INVALID,
			  "a hold_for above max_hold_for is rejected");
	is_int(atoi(query(db, "SELECT count(*) FROM lock_election.locks")), 0,
		   "the lock is released without the long hold_for");
	if (getenv("LE_TEST_DIRECT") != NULL)
		return; /* the pooler knows no other role */

	query(db, "CREATE ROLE limited LOGIN");
	snprintf(info, sizeof(info), "%s user=limited", conninfo);
	o.conninfo = info;
	s = open_with(&o);
	is_status(lock(s, "x", 0, &a), LE_OK, "another role acquires a lock");
	query(db, "REVOKE EXECUTE ON FUNCTION release_lock(text, bigint, interval, boolean) FROM PUBLIC");
	is_status(le_release(a, 0, &error), LE_UNKNOWN,
			  "a release without the right to call it returns LE_UNKNOWN");
	ok(strcmp(error.sqlstate, "42501") == 0 && strstr(error.message, "permission denied") != NULL,
	   "the error names the missing right");
	is_status(lock(s, "y", PATIENCE, &b), LE_OK, "the session continues after the denied release");
	is_status(lock(two, "x", 0, &a), LE_TIMEOUT, "the lock is held after the denied release");
	query(db, "GRANT EXECUTE ON FUNCTION release_lock(text, bigint, interval, boolean) TO PUBLIC");
	is_status(lock(two, "x", PATIENCE, &a), LE_OK, "the lock is released as soon as the right is granted");
	ok(le_valid(b), "the lease survives the denied release");
	le_release(a, 0, NULL);
	le_release(b, 0, NULL);
	le_close(s, -1, NULL);
	query(db, "DROP ROLE limited");
}

static void
events(void)
{
	struct pollfd fd = {.fd = le_fd(one), .events = POLLIN};
	le_hold *a, *b;
	le_event event;
	int granted = 0, end = 0, x;

	while (le_next_event(one, &event))
		;
	is_int(poll(&fd, 1, 0), 0, "the descriptor is not readable without events");
	a = must_lock(two, "x");
	b = enqueue(one, "x");
	le_set_user(b, &x);
	le_release(a, 0, NULL);
	while (!granted && end++ < 1000)
	{
		poll(&fd, 1, PATIENCE);
		while (le_next_event(one, &event))
			granted +=
				event.kind == LE_EVENT_HOLD && event.hold == b && le_user(event.hold) == &x && le_valid(b);
	}
	is_int(granted, 1, "the grant is one event");
	le_release(b, 0, NULL);
	while (le_next_event(one, &event))
		ok(event.kind != LE_EVENT_HOLD, "no event of a released hold");
	is_int(poll(&fd, 1, 0), 0, "the descriptor is not readable after the last event");
}

static void
elections(void)
{
	static le_leader_info info = {.size = sizeof(info)};
	le_hold *a, *b, *x;

	is_status(le_leader(one, "e", &info, &error), LE_OK, "le_leader before the campaign");
	is_int(info.term, 0, "no leader before the campaign");
	is_status(le_campaign(one, "e", "one", 0, &a, &error), LE_OK, "the first session is elected");
	is_status(le_leader(two, "e", &info, &error), LE_OK, "le_leader after the campaign");
	ok(info.term == le_token(a) && strcmp(info.candidate, "one") == 0,
	   "le_leader returns the term and the candidate");
	ok(info.elected_at > 1600000000000000 && info.valid_ms > 0,
	   "le_leader returns the time of the election and the validity");
	is_status(le_campaign(two, "e", "two", 100, &b, &error), LE_TIMEOUT, "the second is not elected in time");
	is_status(le_proclaim(a, "first", &error), LE_OK, "the leader proclaims another text");
	le_leader(two, "e", &info, &error);
	ok(strcmp(info.candidate, "first") == 0, "another session reads the proclaimed text");
	is_status(le_enqueue_candidate(two, "e", "two", &b, &error), LE_OK,
			  "the second session enqueues a candidacy");
	is_status(le_proclaim(b, "too early", &error), LE_LOST, "a waiting candidate cannot proclaim");
	is_status(le_resign(a, &error), LE_OK, "the leader resigns");
	is_status(le_await(b, PATIENCE, &error), LE_OK, "the second session is elected after the resignation");
	x = must_lock(one, "x");
	is_status(le_proclaim(x, "?", &error), LE_INVALID, "le_proclaim rejects a lock");
	le_release(x, 0, NULL);
	query(db, "SELECT force_resign('e')");
	is_status(le_proclaim(b, "too late", &error), LE_LOST, "a leader that was forced out cannot proclaim");
	is_status(le_resign(b, &error), LE_LOST, "a leader that was forced out cannot resign");
}

static void
lifetime(void)
{
	le_session *s = open_session(20000);
	le_hold *a = must_lock(s, "x"), *b = must_lock(two, "y"), *c = enqueue(s, "y"), *d;
	int64_t lease = le_lease(s);

	ok(lease > 0 && le_deadline(s) > le_now() && le_time_left(s) <= 19000,
	   "a deadline before the end of the lease");
	is_status(le_close(s, -1, &error), LE_OK, "the session is closed");
	ok(!le_valid(a), "a hold is invalid after its session was closed");
	is_status(le_await(c, -1, &error), LE_LOST, "a wait ends with its session");
	is_status(le_release(a, 0, &error), LE_LOST, "a hold can be released after its session was closed");
	le_drop(c);
	is_status(lock(two, "x", 0, &d), LE_OK, "the lease was revoked");
	le_release(d, 0, NULL);
	le_release(b, 0, NULL);

	s = open_session(4000);
	a = must_lock(s, "x");
	le_orphan(s);
	le_drop(a);
	is_status(lock(two, "x", 0, &d), LE_TIMEOUT, "the lock of an orphaned session is held");
	is_status(lock(two, "x", PATIENCE, &d), LE_OK, "the lock of an orphaned session expires with its lease");
	le_release(d, 0, NULL);

	is_status(le_close(NULL, 0, NULL), LE_OK, "le_close(NULL) does nothing");
	le_drop(NULL);
}

static void
tests(void)
{
	char version[20];

	one = open_session(9000);
	two = open_session(9000);
	db = connect_db();
	snprintf(version, sizeof(version), "%d.%d.", LE_VERSION_MAJOR, LE_VERSION_MINOR);
	ok(strncmp(le_version(), version, strlen(version)) == 0, "the version");
	tries_and_waits();
	cancels();
	cancels_from_a_thread();
	shared();
	several();
	permits();
	places();
	closed();
	fences();
	forced();
	arguments();
	sizes();
	releases();
	events();
	elections();
	lifetime();
	is_status(le_close(one, -1, &error), LE_OK, "closed");
	is_status(le_close(two, -1, &error), LE_OK, "the second session is closed");
	is_int(atoi(query(db, "SELECT count(*) FROM lock_election.look()")), 0, "nothing is left");
	PQfinish(db);
}

int
main(int argc, char **argv)
{
	return run_tests(argc, argv, tests);
}
