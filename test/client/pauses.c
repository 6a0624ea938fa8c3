/*
 * pauses.c
 *		How often a session sends: with pauses after errors, nothing while there
 *		is nothing to do, and few statements for many waiting requests.
 */
#include "client.h"
#include "statements.h"

#include <errno.h>
#include <sys/syscall.h>

static PGconn *db;
static le_session *other;

/* --- what is measured --- */

#define NAP_MS 300

static int64_t
cpu_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * INT64_C(1000) + t.tv_nsec / 1000000;
}

/* Checks that almost nothing is sent, and that no thread runs in a loop, while nothing happens. */
static void
quiet(const char *name)
{
	int sent = all_sent;
	int64_t cpu = cpu_ms();

	usleep(NAP_MS * 1000);
	sent = all_sent - sent;
	cpu = cpu_ms() - cpu;
	if (!ok(sent <= 10 && cpu < NAP_MS / 3, name))
		printf("#   %d statements and %d ms of processor time in %d ms\n", sent, (int) cpu, NAP_MS);
}

/* Lets a statement fail repeatedly, and checks the pauses in between; then lets it succeed. */
static void
paused(statement *s, int64_t least_ms, const char *name)
{
	int seen = s->seen;
	int64_t least;

	eventually_quietly(s->seen >= seen + 2);
	s->least = INT64_MAX;
	seen = s->seen;
	eventually_quietly(s->seen >= seen + 3);
	/* read first: a statement that succeeds from here on may be followed by another one without a pause */
	least = s->least;
	s->fails = false;
	query(db, "UPDATE told SET fails = false");
	/* times are whole milliseconds */
	if (!ok(s->seen >= seen + 3 && least >= least_ms - 1, name))
		printf("#   %d times, at least %d ms between two\n", s->seen - seen, (int) least);
}

/* Lets all turns fail. */
static void
fail_turns(void)
{
	query(db, "UPDATE told SET fails = true");
}

static le_session *
polling(int poll_ms)
{
	le_options o = options_of(600000);

	o.listen = -1;
	o.poll_ms = poll_ms;
	return open_with(&o);
}

/* --- pauses after errors --- */

/* Milliseconds. The jitter can make a pause a tenth shorter. */
#define FIRST_PAUSE    45
#define OBSERVER_PAUSE 50
#define CALL_PAUSE     50

static void
asks(void)
{
	le_session *s = open_session(600000);
	le_hold *holds[3];

	quiet("a session that has nothing to do");
	fail_turns();
	for (int i = 0; i < 3; i++)
		holds[i] = enqueue(s, (const char *const[]){"a", "b", "c"}[i]);
	paused(&turns, FIRST_PAUSE, "requests are repeated with pauses");
	for (int i = 0; i < 3; i++)
		is_status(le_await(holds[i], PATIENCE, &error), LE_OK, "the repeated requests are granted");
	eventually(le_get_state(s) == LE_CONNECTED, "the session is connected after the failures");
	quiet("a session that holds locks");

	fail_turns();
	for (int i = 0; i < 3; i++)
		le_drop(holds[i]);
	paused(&turns, FIRST_PAUSE, "releases are repeated with pauses");
	eventually(strcmp(query(db, "SELECT count(*) FROM lock_election.look()"), "0") == 0,
			   "nothing is left after the repeated releases");
	quiet("a session that has released everything");
	le_close(s, -1, NULL);
}

/* A session that does not listen polls, with one statement for all waiting requests. */
static void
looks(void)
{
	le_session *s = polling(200);
	le_hold *held = must_lock(other, "x"), *waits[3];

	for (int i = 0; i < 3; i++)
		waits[i] = enqueue(s, "x");
	eventually(le_position(waits[2]) == 3, "three requests wait");
	turns.least = INT64_MAX;
	turns.seen = 0;
	eventually_quietly(turns.seen >= 4);
	ok(turns.least >= 199, "a session that waits polls with pauses");
	quiet("a session that waits sends nothing between polls");
	le_release(held, 0, NULL);
	for (int i = 0; i < 3; i++)
	{
		is_status(le_await(waits[i], PATIENCE, &error), LE_OK, "granted");
		le_release(waits[i], 0, NULL);
	}
	le_close(s, -1, NULL);
}

static void *
release_soon(void *hold)
{
	usleep(200000);
	le_release(hold, 0, NULL);
	return NULL;
}

/* Sessions that listen are notified of the grant. */
static void
hears(void)
{
	le_session *s = open_session(600000);
	le_hold *held = must_lock(other, "x"), *waits[2];
	int seen = listens.seen;

	for (int i = 0; i < 2; i++)
		waits[i] = enqueue(s, "x");
	eventually(le_position(waits[1]) == 2 && listens.seen > seen, "two requests wait");
	eventually_quietly(turns.at < le_now() - 50);
	quiet("a session that waits, and listens");
	le_release(held, 0, NULL);
	is_status(le_await(waits[0], PATIENCE, &error), LE_OK, "the first waiter is granted");
	quiet("a session whose second request still waits");
	is_int(listens.seen - seen, 1, "the channel is listened to once");
	le_release(waits[0], 0, NULL);
	is_status(le_await(waits[1], PATIENCE, &error), LE_OK, "the second waiter is granted");
	quiet("a session that holds a lock after a wait");
	le_release(waits[1], 0, NULL);

	/* the call's own turn, while the session thread is idle and still listens */
	for (int i = 0; i < 3; i++)
	{
		pthread_t thread;
		int64_t start = le_now();

		held = must_lock(other, "x");
		usleep(100000);
		pthread_create(&thread, NULL, release_soon, held);
		is_status(lock(s, "x", PATIENCE, &waits[0]), LE_OK, "a later wait is granted");
		ok(le_now() - start < 20000, "a later wait is notified");
		pthread_join(thread, NULL);
		le_release(waits[0], 0, NULL);
	}
	le_close(s, -1, NULL);
}

/* --- no server --- */

#define TRIES 10

static pthread_t main_thread;
static _Atomic bool unreachable;
static _Atomic int tries;
static int64_t tried_at[TRIES];

/* Replaces the function of the system for libpq in the sessions' threads. */
int
connect(int fd, const struct sockaddr *address, socklen_t size)
{
	if (pthread_equal(pthread_self(), main_thread) || !unreachable)
		return (int) syscall(SYS_connect, fd, address, size);
	if (tries < TRIES)
		tried_at[tries] = le_now();
	tries++;
	errno = ECONNREFUSED;
	return -1;
}

/*
 * Breaks the connection, and lets this many attempts to reconnect fail. Returns a hold that waits meanwhile.
 */
static le_hold *
outage(le_session *s, int n)
{
	le_hold *hold;

	tries = 0;
	unreachable = true;
	places.cut = true;
	hold = enqueue(s, "x");
	eventually_quietly(tries >= n);
	unreachable = false;
	return hold;
}

static void
connects(void)
{
	le_session *s = open_session(600000);
	le_hold *hold = outage(s, TRIES);
	int64_t first = INT64_MAX;
	int wrong = 0;

	for (int i = 1; i < TRIES; i++)
	{
		int64_t pause = tried_at[i] - tried_at[i - 1], least = 50 << (i - 1);

		wrong += pause < (least < 1000 ? least : 1000) * 9 / 10 - 1;
	}
	is_int(wrong, 0, "the pauses between attempts to reconnect grow");
	ok(tried_at[TRIES - 1] - tried_at[TRIES - 2] < 8000,
	   "the pauses between attempts to reconnect are bounded");
	is_status(le_await(hold, PATIENCE, &error), LE_OK, "the request is granted after the reconnect");
	le_release(hold, 0, NULL);

	/* a busy machine can be slow, but not each time */
	for (int i = 0; i < 10 && first >= 500; i++)
	{
		hold = outage(s, 2);
		first = tried_at[1] - tried_at[0] < first ? tried_at[1] - tried_at[0] : first;
		is_status(le_await(hold, PATIENCE, &error), LE_OK, "the request is granted after a short outage");
		le_release(hold, 0, NULL);
	}
	ok(first < 500, "the first pause of the next outage is short again");
	quiet("a session that has reconnected");
	le_close(s, -1, NULL);
}

/* A lease of 12 s is renewed every 4 s. */
static void
renews(void)
{
	le_session *s = open_session(12000);

	fail_turns();
	paused(&turns, FIRST_PAUSE, "failed renewals are repeated with pauses");
	eventually(le_get_state(s) == LE_CONNECTED, "the session is connected after a renewal");
	quiet("a session whose lease was renewed");
	is_status(le_close(s, -1, &error), LE_OK, "the session has not ended");
}

/* --- lost replies --- */

/*
 * A session that leaves its lease behind keeps its holds, and releases a lock that it has just requested.
 * On a busy machine, the old backend can live for too long, but not each time.
 */
static void
orphaned(void)
{
	bool given_back = false, kept = true;

	for (int i = 0; i < 10 && !given_back && kept; i++)
	{
		le_session *s = open_session(600000);
		le_hold *holds[2] = {must_lock(s, "kept")};
		int64_t lease = le_lease(s);
		int seen = places.seen;
		const char *left;

		places.slow_ms = 300;
		places.cut = true;
		holds[1] = enqueue(s, "asked");
		eventually_quietly(places.seen > seen);
		le_orphan(s);
		places.slow_ms = 0;
		left = query(db, "SELECT string_agg(name, ' ' ORDER BY name DESC) FROM lock_election.look()");
		given_back = strcmp(left, "kept") == 0;
		kept = strncmp(left, "kept", 4) == 0;
		for (int h = 0; h < 2; h++)
			le_drop(holds[h]);
		query(db, "SELECT revoke_lease(%" PRId64 ")", lease);
	}
	ok(kept, "the holds of an orphaned session stay held");
	ok(given_back, "a lock whose reply was lost is released by le_orphan");
}

/* --- elections --- */

static void
calls(void)
{
	le_options o = options_of(600000);
	le_leader_info info = {.size = sizeof(info)};
	le_session *s;
	int seen = leaders.seen;

	o.call_ms = 3000;
	s = open_with(&o);
	leaders.fails = true;
	is_status(le_leader(s, "e", &info, &error), LE_UNAVAILABLE, "le_leader fails if its function fails");
	ok(leaders.seen - seen >= 2 && leaders.least >= CALL_PAUSE - 1, "le_leader is repeated with pauses");
	leaders.fails = false;
	is_status(le_leader(s, "e", &info, &error), LE_OK, "le_leader succeeds if its function succeeds");
	is_int(info.term, 0, "nobody leads");
	quiet("a session after le_leader");
	le_close(s, -1, NULL);
}

static _Atomic int changes;

static void
on_change(const le_change *change, void *arg)
{
	(void) arg;
	changes += change->leads;
}

static void
observes(int listen)
{
	le_options o = options_of(600000);
	le_observer *observer;
	le_session *s;
	le_hold *term;

	changes = 0;
	o.listen = listen;
	s = open_with(&o);
	histories.fails = true;
	is_status(le_observe(s, "e", 0, on_change, NULL, &observer, &error), LE_OK,
			  "an observer starts while its function fails");
	paused(&histories, OBSERVER_PAUSE, "the observer reads with pauses");
	is_status(le_campaign(other, "e", "me", PATIENCE, &term, &error), LE_OK, "another session is elected");
	eventually(changes > 0, "the observer sees the change");
	quiet("an observer that has read all");
	le_resign(term, NULL);
	le_unobserve(observer);
	quiet("a session without its observer");
	le_close(s, -1, NULL);
}

/* --- does LISTEN work? --- */

/* The notification that the session sends to itself does not arrive. */
static void
deaf(void)
{
	le_options o = options_of(600000);
	le_hold *held = must_lock(other, "x"), *waits[2];
	le_session *s;
	int64_t start;

	o.poll_ms = 100;
	notifies.astray = true;
	s = open_with(&o);
	notifies.seen = 0;
	waits[0] = enqueue(s, "x");
	eventually(notifies.seen == 1, "a session tests whether it receives notifications");
	turns.seen = 0;
	eventually(turns.seen > 3, "a session without notifications polls");
	le_release(held, 0, NULL);
	is_status(le_await(waits[0], PATIENCE, &error), LE_OK, "a session without notifications is granted");
	is_int(notifies.seen, 1, "the session has tested once");
	le_release(waits[0], 0, NULL);
	le_close(s, -1, NULL);

	held = must_lock(other, "x");
	o.listen = 1;
	s = open_with(&o);
	start = le_now();
	for (int i = 0; i < 2; i++)
		waits[i] = enqueue(s, "x");
	for (int i = 0; i < 2; i++)
	{
		is_status(le_await(waits[i], PATIENCE, &error), LE_UNAVAILABLE,
				  "a session that requires LISTEN does not wait without notifications");
		ok(strstr(error.message, "LISTEN") != NULL, "the error names LISTEN");
	}
	ok(le_now() - start >= 299, "the session waits for the notification first");
	eventually(strcmp(query(db, "SELECT count(*) FROM lock_election.waiters"), "0") == 0, "no place is left");
	eventually_quietly(turns.at < le_now() - 50);
	quiet("a session whose waits have failed");
	for (int i = 0; i < 2; i++)
		le_drop(waits[i]);
	le_close(s, -1, NULL);
	le_release(held, 0, NULL);
	notifies.astray = false;
}

/* A session listens for a while after its last wait, and then stops listening. */
static void
lingers(void)
{
	le_options o = options_of(600000);
	le_hold *held = must_lock(other, "x"), *waits;
	le_session *s;

	o.listen = 1; /* notifications arrive */
	s = open_with(&o);
	listens.seen = unlistens.seen = 0;
	unlistens.least = INT64_MAX;
	waits = enqueue(s, "x");
	eventually(listens.seen == 1, "a session listens while it waits");
	le_release(held, 0, NULL);
	is_status(le_await(waits, PATIENCE, &error), LE_OK, "the listening session is granted");
	eventually(unlistens.seen == 2, "the session stops listening");
	is_int(listens.seen, 1, "the session has listened once");
	ok(unlistens.least >= 900, "the session stops listening only after a while");
	le_release(waits, 0, NULL);
	le_close(s, -1, NULL);
}

/* LISTEN fails after it has worked, which is noticed immediately; it works again some seconds later. */
static void
deaf_for_a_while(void)
{
	le_options o = options_of(600000);
	le_hold *held, *waits;
	le_session *s;

	o.listen = 1;
	s = open_with(&o);
	held = must_lock(other, "x");
	listens.seen = unlistens.seen = 0;
	waits = enqueue(s, "x");
	eventually(listens.seen == 1, "the session listens while LISTEN works");
	le_release(held, 0, NULL);
	is_status(le_await(waits, PATIENCE, &error), LE_OK, "the session is notified while LISTEN works");
	eventually(unlistens.seen == 2, "the session stops listening after its wait");
	le_release(waits, 0, NULL);

	held = must_lock(other, "x");
	listens.seen = 0;
	listens.refuse = true;
	waits = enqueue(s, "x");
	is_status(le_await(waits, PATIENCE / 2, &error), LE_UNAVAILABLE,
			  "a session that requires LISTEN does not wait if it fails");
	le_drop(waits);
	le_close(s, -1, NULL);

	o.listen = 0;
	s = open_with(&o);
	listens.seen = 0;
	listens.refuse = true;
	waits = enqueue(s, "x");
	eventually(!listens.refuse, "LISTEN fails in a session that may poll");
	turns.seen = 0;
	eventually(turns.seen > 3, "the session polls if LISTEN fails");
	eventually(listens.seen == 2, "the session listens again after a while");
	eventually(turns.at < le_now() - 10 * 250, "the session stops polling when LISTEN works");
	le_release(held, 0, NULL);
	is_status(le_await(waits, PATIENCE, &error), LE_OK, "the session is notified when LISTEN works again");
	le_release(waits, 0, NULL);
	le_close(s, -1, NULL);
}

/* --- the end --- */

static void *
mend_soon(void *arg)
{
	PGconn *conn = connect_db();

	(void) arg;
	eventually_quietly(turns.seen >= 3);
	query(conn, "UPDATE told SET fails = false");
	PQfinish(conn);
	return NULL;
}

/* A statement that fails is repeated within the limit of the call. */
static void
closed(void)
{
	le_session *s = open_session(600000); /* the lease does not end by itself meanwhile */
	int64_t lease = le_lease(s);
	le_hold *held = must_lock(s, "x"), *next;
	pthread_t thread;

	query(db, "UPDATE told SET fails = true");
	turns.seen = 0;
	le_drop(held);
	pthread_create(&thread, NULL, mend_soon, NULL);
	le_orphan(s);
	pthread_join(thread, NULL);
	is_status(lock(other, "x", 0, &next), LE_OK, "a lock released before le_orphan is free");
	le_release(next, 0, NULL);
	query(db, "SELECT revoke_lease(%" PRId64 ")", lease);

	s = open_session(40000);
	revokes.seen = 0;
	revokes.cut = true;
	is_status(le_close(s, -1, &error), LE_OK, "the lease is revoked by the second attempt");
	is_int(revokes.seen, 2, "the second attempt uses another connection");

	s = open_session(40000);
	lease = le_lease(s);
	revokes.fails = true;
	revokes.seen = 0;
	revokes.least = INT64_MAX;
	is_status(le_close(s, 1000, &error), LE_UNKNOWN,
			  "le_close returns LE_UNKNOWN if the revoke fails until the limit");
	ok(revokes.seen > 2 && revokes.least >= CALL_PAUSE - 1, "the revoke is repeated with pauses");
	revokes.fails = false;
	query(db, "SELECT revoke_lease(%" PRId64 ")", lease);
}

static void
tests(void)
{
	main_thread = pthread_self();
	db = connect_db();
	statements_begin(db);
	/*
	 * For other functions that fail temporarily: statements.h redirects calls from schema public to this one.
	 */
	query(db,
		  "CREATE SCHEMA publix; DO $$DECLARE f pg_proc; BEGIN FOR f IN SELECT * FROM pg_proc"
		  " WHERE pronamespace = 'public'::regnamespace LOOP EXECUTE format('CREATE FUNCTION publix.%%I(%%s)"
		  " RETURNS %%s LANGUAGE plpgsql AS ''BEGIN RAISE io_error; END'' ', f.proname,"
		  " pg_get_function_arguments(f.oid), pg_get_function_result(f.oid)); END LOOP; END$$");
	wrap_calls(db);
	other = open_session(600000);
	asks();
	looks();
	hears();
	connects();
	renews();
	orphaned();
	calls();
	observes(0);
	observes(-1);
	deaf();
	lingers();
	deaf_for_a_while();
	closed();
	le_close(other, -1, NULL);
	is_int(atoi(query(db, "SELECT count(*) FROM lock_election.look()")), 0, "nothing is left");
	PQfinish(db);
}

int
main(int argc, char **argv)
{
	return run_tests(argc, argv, tests);
}
