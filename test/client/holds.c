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
	ok(le_valid(a) && le_hold_time_left(a) > 0, "it is valid");
	ok(le_get_hold_state(a) == LE_HOLD_HELD, "and held");
	ok(le_token(a) > 0, "it has a token");
	is_status(lock(two, "x", 0, &b), LE_TIMEOUT, "another session does not get it");
	ok(b == NULL, "and gets no hold");
	is_status(lock(one, "x", 0, &b), LE_TIMEOUT, "nor does the same session again");
	start = le_now();
	is_status(lock(two, "x", 150, &b), LE_TIMEOUT, "a wait with a limit ends");
	ok(le_now() - start >= 150 && le_now() - start < 10000, "after that limit");
	is_status(lock_how(two, "x", (le_how){.until = le_now() + 100}, -1, &b), LE_TIMEOUT,
			  "a deadline ends it, too");
	is_status(lock_how(two, "x", (le_how){.until = 1}, -1, &b), LE_TIMEOUT, "one that has passed at once");
	eventually(strcmp(query(db, "SELECT count(*) FROM lock_election.waiters"), "0") == 0, "no place is left");

	b = enqueue(two, "x");
	eventually(le_position(b) == 1, "a place in the queue");
	is_status(le_await(b, 0, &error), LE_WAITING, "not yet granted");
	is_status(le_await_until(b, INT64_MIN, &error), LE_WAITING, "nor before the beginning of time");
	ok(le_token(b) == 0 && !le_valid(b), "no token, not valid");
	is_status(le_release(a, 0, &error), LE_OK, "released");
	is_status(le_await(b, PATIENCE, &error), LE_OK, "granted to the next");
	ok(le_valid(b) && le_token(b) > 0, "who holds it");
	c = enqueue(one, "x");
	eventually(le_position(c) == 1, "a place behind it");
	le_drop(b);
	is_status(le_await(c, PATIENCE, &error), LE_OK, "given back in the background, it goes on");
	is_status(le_release(c, 0, &error), LE_OK, "released");
}

static void
cancels(void)
{
	le_hold *a = must_lock(one, "x"), *b = enqueue(two, "x"), *c;

	le_cancel(b);
	is_status(le_await(b, -1, &error), LE_CANCELED, "canceled before it is asked for, perhaps");
	le_release(b, 0, NULL);
	b = enqueue(two, "x");
	eventually(le_position(b) > 0, "queued");
	le_cancel(b);
	is_status(le_await(b, -1, &error), LE_CANCELED, "canceled in the queue");
	ok(le_get_hold_state(b) == LE_HOLD_OVER, "it is over");
	eventually(strcmp(query(db, "SELECT count(*) FROM lock_election.waiters"), "0") == 0,
			   "the place is left");
	is_status(le_release(b, 0, &error), LE_OK, "and freed");
	le_cancel(a);
	ok(le_valid(a), "what is held cannot be canceled");
	is_status(le_release(a, 0, &error), LE_OK, "released");
	is_status(lock(two, "x", 0, &c), LE_OK, "the lock is free");
	le_release(c, 0, NULL);
}

static void *
cancel_soon(void *arg)
{
	eventually(le_position(arg) > 0, "it waits");
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

	is_status(lock_how(one, "s", (le_how){.shared = 1}, 0, &a), LE_OK, "a reader");
	is_status(lock_how(two, "s", (le_how){.shared = 1}, 0, &b), LE_OK, "and another");
	is_status(lock(two, "s", 0, &w), LE_TIMEOUT, "no writer");
	w = enqueue(two, "s");
	eventually(le_position(w) == 1, "a writer waits");
	is_status(lock_how(one, "s", (le_how){.shared = 1}, 0, &r), LE_TIMEOUT, "no reader overtakes it");
	le_release(a, 0, NULL);
	le_release(b, 0, NULL);
	is_status(le_await(w, PATIENCE, &error), LE_OK, "then it writes");
	le_release(w, 0, NULL);
}

static void
several(void)
{
	const char *xy[] = {"m1", "m 2, \"quoted\\"}, *y[] = {"m 2, \"quoted\\", "m3"}, *twice[] = {"a", "a"};
	le_hold *a, *b;

	is_status(le_acquire(one, xy, 2, NULL, 0, &a, &error), LE_OK, "two locks at once");
	is_status(le_acquire(two, y, 2, NULL, 0, &b, &error), LE_TIMEOUT, "one of them is not free");
	is_status(lock(two, "m3", 0, &b), LE_OK, "the other was not touched");
	le_release(b, 0, NULL);
	is_int(atoi(query(db, "SELECT count(*) FROM lock_election.locks WHERE token = %" PRId64, le_token(a))), 2,
		   "one token for both");
	is_status(le_release(a, 0, &error), LE_OK, "released");
	is_int(atoi(query(db, "SELECT count(*) FROM lock_election.locks")), 0, "both");
	is_status(le_acquire(one, twice, 2, NULL, 0, &a, &error), LE_INVALID, "one name twice");
	ok(strcmp(error.sqlstate, "22023") == 0, "is what the server says");
	is_status(le_acquire(one, xy, 2, NULL, 0, &a, &error), LE_OK, "again");
	is_status(le_release(a, 400, &error), LE_OK, "released, and closed for a while");
	is_status(lock(two, "m1", 0, &b), LE_TIMEOUT, "the one");
	is_status(lock(two, xy[1], 0, &b), LE_TIMEOUT, "and the other");
	is_status(le_acquire(two, xy, 2, NULL, 0, &b, &error), LE_TIMEOUT, "and both");
	is_status(lock(two, "m1", PATIENCE, &b), LE_OK, "the while passes");
	le_release(b, 0, NULL);
}

static void
permits(void)
{
	le_hold *a, *b, *c;

	is_status(lock_how(one, "p", (le_how){.permits = 2}, 0, &a), LE_OK, "a permit");
	is_status(lock_how(one, "p", (le_how){.permits = 2}, 0, &b), LE_OK, "another of the same session");
	is_status(lock_how(two, "p", (le_how){.permits = 2}, 0, &c), LE_TIMEOUT, "and no more");
	is_status(lock_how(two, "p", (le_how){.permits = 3}, 0, &c), LE_INVALID, "another number");
	is_status(lock_how(two, "p", (le_how){.permits = 2, .shared = 1}, 0, &c), LE_INVALID, "shared");
	is_status(le_release(a, 0, &error), LE_OK, "given back");
	is_status(lock_how(two, "p", (le_how){.permits = 2}, 0, &c), LE_OK, "it is another's");
	le_release(b, 0, NULL);
	le_release(c, 0, NULL);
}

/* As for one lock: places for several, and for permits. */
static void
places(void)
{
	const char *ab[] = {"a", "b"}, *bc[] = {"b", "c"};
	le_how permit = {.size = sizeof(permit), .permits = 1};
	le_hold *a, *b, *c;

	is_status(le_acquire(one, ab, 2, NULL, PATIENCE, &a, &error), LE_OK, "two locks, with a wait");
	is_status(le_acquire(two, bc, 2, NULL, 100, &b, &error), LE_TIMEOUT, "no wait that is too short");
	is_status(le_enqueue(two, bc, 2, NULL, &b, &error), LE_OK, "two others, one of them the same");
	eventually(le_position(b) > 0, "are queued for");
	is_status(lock(one, "c", 0, &c), LE_TIMEOUT, "nobody overtakes in any of them");
	le_release(a, 0, NULL);
	is_status(le_await(b, PATIENCE, &error), LE_OK, "granted");
	is_status(le_enqueue(one, ab, 2, NULL, &a, &error), LE_OK, "and again");
	eventually(le_position(a) > 0, "queued");
	le_cancel(a);
	is_status(le_release(a, 0, &error), LE_OK, "canceled");
	is_status(le_release(b, 0, &error), LE_OK, "released");

	is_status(le_acquire(one, ab, 1, &permit, PATIENCE, &a, &error), LE_OK, "the only permit");
	is_status(le_enqueue(two, ab, 1, &permit, &b, &error), LE_OK, "a place for it");
	eventually(le_position(b) == 1, "the first");
	le_release(a, 0, NULL);
	is_status(le_await(b, PATIENCE, &error), LE_OK, "granted");
	le_release(b, 0, NULL);
	eventually(strcmp(query(db, "SELECT count(*) FROM lock_election.look()"), "0") == 0, "nothing is left");
}

static void
closed(void)
{
	le_hold *a = must_lock(one, "job"), *b;
	int64_t start = le_now();

	is_status(le_release(a, 700, &error), LE_OK, "released with hold_for");
	is_status(lock(two, "job", 0, &b), LE_TIMEOUT, "nobody has it for a while");
	is_status(lock(one, "job", PATIENCE, &b), LE_OK, "then it goes on");
	ok(le_now() - start >= 500, "not before");
	is_status(le_release(b, INT32_MAX, &error), LE_INVALID, "a hold_for that is not allowed");
	is_status(lock(two, "job", 0, &b), LE_OK, "released all the same");
	le_release(b, 0, NULL);
}

static void
fences(void)
{
	const char *names[] = {"f1", "f2"};
	char sql[100];
	PGconn *mine = PQconnectdb(conninfo);
	le_hold *a = must_lock(one, "f"), *many, *term;

	is_status(le_fence(a, mine, &error), LE_INVALID, "no transaction, no fence");
	is_status(le_fence(a, NULL, &error), LE_INVALID, "nor without a connection");
	query(mine, "BEGIN");
	is_status(le_fence(a, mine, &error), LE_OK, "fenced");
	query(mine, "COMMIT");
	le_acquire(one, names, 2, NULL, 0, &many, &error);
	is_status(le_campaign(one, "f", "me", 0, &term, &error), LE_OK, "a leader");
	query(mine, "BEGIN");
	is_status(le_fence(many, mine, &error), LE_OK, "several are fenced");
	is_status(le_fence(term, mine, &error), LE_OK, "and a leader");
	is_int(atoi(query(db, "SELECT count(*) FROM lock_election.locks WHERE fenced_by <> '{}'")), 3,
		   "all of them");
	query(mine, "COMMIT");
	query(db, "SELECT force_release_lock('f')");
	query(mine, "BEGIN");
	is_status(le_fence(a, mine, &error), LE_LOST, "no fence for who has lost it");
	ok(strcmp(error.sqlstate, "LE001") == 0, "by the server's word");
	is_status(le_fence(many, mine, &error), LE_INVALID, "a transaction that has failed fences nothing");
	query(mine, "ROLLBACK");
	is_status(le_release(a, 0, &error), LE_LOST, "which its release tells as well");
	a = must_lock(one, "f");
	query(mine, "BEGIN");
	snprintf(sql, sizeof(sql), "SELECT pg_terminate_backend(%s, 10000)",
			 query(mine, "SELECT pg_backend_pid()"));
	query(db, "%s", sql);
	is_status(le_fence(a, mine, &error), LE_UNAVAILABLE,
			  "a connection that has ended fences nothing, for certain");
	is_status(le_release(a, 0, &error), LE_OK, "released");
	is_status(le_fence(many, mine, &error), LE_INVALID, "nor later on");
	le_release(many, 0, NULL);
	le_release(term, 0, NULL);
	PQfinish(mine);
}

static void
forced(void)
{
	le_hold *a = must_lock(one, "forced");

	query(db, "SELECT force_release_lock('forced')");
	ok(le_valid(a), "nobody can know at once that a lock was forced");
	eventually(!le_valid(a), "the next renewal tells");
	is_status(le_await(a, 0, &error), LE_LOST, "it is lost");
	is_status(le_release(a, 0, &error), LE_LOST, "and released as lost");
	ok(le_get_state(one) == LE_CONNECTED, "the session goes on");
}

static int
never_elected(le_hold *term, void *arg)
{
	(void) term;
	(void) arg;
	return 1;
}

/* Every call refuses what is no name or no candidate by itself: nothing is sent. */
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
		ok(error.sqlstate[0] == '\0', "by the library's word");
		is_status(le_proclaim(term, none[i], &error), LE_INVALID, "le_proclaim");
		ok(error.sqlstate[0] == '\0', "by the library's word");
		is_status(le_run(one, wrong[i], "me", &callbacks, &runner, &error), LE_INVALID, "le_run, election");
		is_status(le_run(one, "e", none[i], &callbacks, &runner, &error), LE_INVALID, "candidate");
	}
	is_status(le_run(one, "e", "me", NULL, &runner, &error), LE_INVALID, "no callbacks");
	is_status(le_acquire(one, pair, 2, NULL, 0, &a, &error), LE_INVALID, "the second of two");
	is_status(le_enqueue(one, pair, 1001, NULL, &a, &error), LE_INVALID, "too many");
	is_status(le_enqueue(one, pair, -1, NULL, &a, &error), LE_INVALID, "fewer than none");
	is_status(le_enqueue(one, pair, 1, &negative, &a, &error), LE_INVALID, "a negative point of time");
	is_status(le_enqueue(one, pair, 1, &many, &a, &error), LE_INVALID, "a negative number of permits");
	many.permits = 1;
	is_status(le_enqueue(one, wrong, 2, &many, &a, &error), LE_INVALID, "a permit of two names");
	is_status(le_stop(NULL, &error), LE_OK, "no runner");
	candidate[4096] = '\0';
	is_status(le_proclaim(term, candidate, &error), LE_OK, "the longest candidate");
	is_status(le_leader(two, "refuse", &info, &error), LE_OK, "is told");
	ok(strcmp(info.candidate, candidate) == 0, "as it is");
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
	is_status(le_acquire(one, &too_long, 1, NULL, 0, &a, &error), LE_INVALID, "a long name");
	is_status(le_acquire(one, NULL, 0, NULL, 0, &a, &error), LE_INVALID, "no name");
	is_status(le_acquire(one, &empty, 1, &(le_how){.shared = 1}, 0, &a, &error), LE_INVALID, "no size");
	is_status(le_campaign(one, "e", "", 0, &a, &error), LE_INVALID, "no candidate");
	is_status(le_campaign(one, "e", NULL, 0, &a, &error), LE_INVALID, "none at all");
	calls_refuse(too_long);
	longest[255] = '\0';
	is_status(lock(one, longest, 0, &a), LE_OK, "the longest name");
	is_status(le_release(a, 0, NULL), LE_OK, "and an error that nobody wants");
	is_status(lock(one, "it's", 0, &a), LE_OK, "a quote");
	le_release(a, 0, NULL);
}

/* Structs of programs that were built with another version of the header: longer, or shorter. */
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
			  "a shorter one: the rest is not read");
	is_int(atoi(query(db, "SELECT count(*) FROM lock_election.locks WHERE mode = 'shared'")), 2,
		   "with what they ask for");
	le_release(a, 0, NULL);
	le_release(b, 0, NULL);
	how.more = 1;
	is_status(le_acquire(one, &name, 1, &how.how, 0, &a, &error), LE_INVALID, "a wish that is not known");
	is_status(le_enqueue(one, &name, 1, &how.how, &a, &error), LE_INVALID, "is not left out in silence");
	ok(strstr(error.message, "le_how") != NULL, "but named");
	how.how.size = (size_t) 1 << 40;
	is_status(le_enqueue(one, &name, 1, &how.how, &a, &error), LE_INVALID, "a size that was never set");

	options.options.size = sizeof(options);
	is_status(le_open(&options.options, &s, &error), LE_OK, "longer options");
	le_close(s, -1, NULL);
	options.more = 1;
	is_status(le_open(&options.options, &s, &error), LE_INVALID, "one that is not known");
	options.options.size = offsetof(le_options, margin_ms);
	options.options.margin_ms = -1;
	is_status(le_open(&options.options, &s, &error), LE_OK, "shorter ones");
	ok(le_time_left(s) <= 4750, "are obeyed, the rest are defaults");
	le_close(s, -1, NULL);
	is_status(le_run(one, "e", "c", &callbacks.callbacks, &runner, &error), LE_INVALID,
			  "an unknown callback");
	callbacks.callbacks.size = offsetof(le_callbacks, on_elected);
	is_status(le_run(one, "e", "c", &callbacks.callbacks, &runner, &error), LE_INVALID,
			  "on_elected is needed");

	is_status(le_campaign(one, "e", "me", 0, &a, &error), LE_OK, "a leader");
	memset(&leader, 'x', sizeof(leader));
	leader.info.size = sizeof(leader);
	is_status(le_leader(one, "e", &leader.info, &error), LE_OK, "a longer answer");
	ok(leader.info.size == sizeof(leader) && leader.info.term == le_token(a) &&
		   strcmp(leader.info.candidate, "me") == 0 && leader.bytes[sizeof(leader) - 1] == 0,
	   "what is not known is zero");
	memset(&leader, 'x', sizeof(leader));
	leader.info.size = least;
	is_status(le_leader(one, "e", &leader.info, &error), LE_OK, "a shorter one");
	ok(strcmp(leader.info.candidate, "me") == 0 && leader.bytes[least] == 'x',
	   "nothing is written behind it");
	leader.info.size = least - 1;
	is_status(le_leader(one, "e", &leader.info, &error), LE_INVALID, "one that does not have it all");
	le_resign(a, NULL);
}

/* The hold is gone in any case; the session sees to the lock. */
static void
releases(void)
{
	le_options o = options_of(3000);
	char info[1000];
	le_session *s;
	le_hold *a, *b;

	is_status(le_campaign(one, "e", "me", 0, &a, &error), LE_OK, "a term");
	is_status(le_release(a, 1000, &error), LE_INVALID, "is not released with hold_for");
	is_status(lock(one, "x", 0, &a), LE_OK, "a lock");
	is_status(le_release(a, -1, &error), LE_INVALID, "not with a negative one");
	is_int(atoi(query(db, "SELECT count(*) FROM lock_election.locks")), 0, "but without");
	is_status(lock(one, "x", 0, &a), LE_OK, "a lock");
	is_status(le_release(a, 2 * 86400 * 1000, &error), LE_INVALID, "nor with one above max_hold_for");
	is_int(atoi(query(db, "SELECT count(*) FROM lock_election.locks")), 0, "but without");
	if (getenv("LE_TEST_DIRECT") != NULL)
		return; /* the pooler knows no other role */

	query(db, "CREATE ROLE limited LOGIN");
	snprintf(info, sizeof(info), "%s user=limited", conninfo);
	o.conninfo = info;
	s = open_with(&o);
	is_status(lock(s, "x", 0, &a), LE_OK, "a lock of another role");
	query(db, "REVOKE EXECUTE ON FUNCTION release_lock(text, bigint, interval, boolean) FROM PUBLIC");
	is_status(le_release(a, 0, &error), LE_UNKNOWN, "which the server does not let it release");
	ok(strcmp(error.sqlstate, "42501") == 0 && strstr(error.message, "permission denied") != NULL,
	   "with the reason");
	is_status(lock(s, "y", PATIENCE, &b), LE_OK, "the session goes on");
	is_status(lock(two, "x", 0, &a), LE_TIMEOUT, "the lock is held");
	query(db, "GRANT EXECUTE ON FUNCTION release_lock(text, bigint, interval, boolean) TO PUBLIC");
	is_status(lock(two, "x", PATIENCE, &a), LE_OK, "until the server lets it");
	ok(le_valid(b), "which is not the end of the lease");
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
	is_int(poll(&fd, 1, 0), 0, "nothing to tell");
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
	is_int(granted, 1, "a descriptor tells of a grant, once");
	le_release(b, 0, NULL);
	while (le_next_event(one, &event))
		ok(event.kind != LE_EVENT_HOLD, "nothing of a hold that was released");
	is_int(poll(&fd, 1, 0), 0, "and then nothing");
}

static void
elections(void)
{
	static le_leader_info info = {.size = sizeof(info)};
	le_hold *a, *b, *x;

	is_status(le_leader(one, "e", &info, &error), LE_OK, "who leads?");
	is_int(info.term, 0, "nobody");
	is_status(le_campaign(one, "e", "one", 0, &a, &error), LE_OK, "elected");
	is_status(le_leader(two, "e", &info, &error), LE_OK, "who leads?");
	ok(info.term == le_token(a) && strcmp(info.candidate, "one") == 0, "the first");
	ok(info.elected_at > 1600000000000000 && info.valid_ms > 0, "since when, and for how long");
	is_status(le_campaign(two, "e", "two", 100, &b, &error), LE_TIMEOUT, "the second is not elected in time");
	is_status(le_proclaim(a, "first", &error), LE_OK, "proclaimed");
	le_leader(two, "e", &info, &error);
	ok(strcmp(info.candidate, "first") == 0, "everybody sees it");
	is_status(le_enqueue_candidate(two, "e", "two", &b, &error), LE_OK, "a candidate");
	is_status(le_proclaim(b, "too early", &error), LE_LOST, "does not proclaim");
	is_status(le_resign(a, &error), LE_OK, "resigned");
	is_status(le_await(b, PATIENCE, &error), LE_OK, "the second is elected");
	x = must_lock(one, "x");
	is_status(le_proclaim(x, "?", &error), LE_INVALID, "a lock proclaims nothing");
	le_release(x, 0, NULL);
	query(db, "SELECT force_resign('e')");
	is_status(le_proclaim(b, "too late", &error), LE_LOST, "one who was forced out does not either");
	is_status(le_resign(b, &error), LE_LOST, "and cannot resign");
}

static void
lifetime(void)
{
	le_session *s = open_session(20000);
	le_hold *a = must_lock(s, "x"), *b = must_lock(two, "y"), *c = enqueue(s, "y"), *d;
	int64_t lease = le_lease(s);

	ok(lease > 0 && le_deadline(s) > le_now() && le_time_left(s) <= 19000,
	   "a deadline before the end of the lease");
	is_status(le_close(s, -1, &error), LE_OK, "closed");
	ok(!le_valid(a), "what it held is not");
	is_status(le_await(c, -1, &error), LE_LOST, "nor what it waited for");
	is_status(le_release(a, 0, &error), LE_LOST, "a hold outlives its session");
	le_drop(c);
	is_status(lock(two, "x", 0, &d), LE_OK, "the lease was revoked");
	le_release(d, 0, NULL);
	le_release(b, 0, NULL);

	s = open_session(4000);
	a = must_lock(s, "x");
	le_orphan(s);
	le_drop(a);
	is_status(lock(two, "x", 0, &d), LE_TIMEOUT, "an orphan is held");
	is_status(lock(two, "x", PATIENCE, &d), LE_OK, "until its lease has ended");
	le_release(d, 0, NULL);

	is_status(le_close(NULL, 0, NULL), LE_OK, "nothing to close");
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
	is_status(le_close(two, -1, &error), LE_OK, "closed");
	is_int(atoi(query(db, "SELECT count(*) FROM lock_election.look()")), 0, "nothing is left");
	PQfinish(db);
}

int
main(int argc, char **argv)
{
	return run_tests(argc, argv, tests);
}
