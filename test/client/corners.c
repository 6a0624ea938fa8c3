/*
 * corners.c
 *		The library without a server, or with a server that rejects requests:
 *		arguments, a child process, polls and renewals without a connection,
 *		urgent work, messages of libpq, missing functions.
 */
#include "client.h"

#include <wchar.h>

#include "due.h"
#include "fake.h"
#include "objects.h"
#include "ownership.h"
#include "state.h"
#include "text.h"

static PGconn *db;

/* --- messages of libpq about a failed connection --- */

static const char *said;
static int needs_password;

/* These replace the functions of libpq. */
char *
PQerrorMessage(const PGconn *conn)
{
	(void) conn;
	return (char *) said;
}

int
PQconnectionNeedsPassword(const PGconn *conn)
{
	(void) conn;
	return needs_password;
}

static void
messages(void)
{
	static char too_long[2000];
	char cut[sizeof(error.message)];
	int wrong = 0;
	/* a connection whose string is valid, but leads to no server */
	PGconn *conn = PQconnectdb("host=/nowhere dbname=postgres");
	static const struct
	{
		const char *said;
		le_status status;
		const char *sqlstate, *message, *what;
	} cases[] = {
		{"no route\n\n", LE_UNAVAILABLE, "", "no route", "a message of one line"},
		{"", LE_UNAVAILABLE, "", "", "an empty message"},
		{"\n", LE_UNAVAILABLE, "", "", "a message of a line feed"},
		{"FATAL:  28P01: wrong\nLOCATION:  auth_failed, auth.c:1\n", LE_DENIED, "28P01", "FATAL:  wrong",
		 "a code and a location"},
		{"FATAL:  57P03: a\nLOCATION:  x\nhost two: FATAL:  53300: b\nLOCATION:  y", LE_UNAVAILABLE, "53300",
		 "FATAL:  a\nhost two: FATAL:  b", "the code of the last host"},
		{"FATAL:  40P0: no code", LE_UNAVAILABLE, "", "FATAL:  40P0: no code", "four characters are no code"},
		{"FATAL:  40p01: no code", LE_UNAVAILABLE, "", "FATAL:  40p01: no code",
		 "a lower-case letter is not part of a code"},
		{"FATAL:  40P01 no code", LE_UNAVAILABLE, "", "FATAL:  40P01 no code", "no colon after the code"},
		{"FATAL: 40P01: no code", LE_UNAVAILABLE, "", "FATAL: 40P01: no code", "one blank before the code"},
		{"FATAL:  09AZ/: no code", LE_UNAVAILABLE, "", "FATAL:  09AZ/: no code",
		 "the character before the digits"},
		{"FATAL:  09AZ[: no code", LE_UNAVAILABLE, "", "FATAL:  09AZ[: no code",
		 "the character after the letters"},
		{"FATAL:  09AZ:: no code", LE_UNAVAILABLE, "", "FATAL:  09AZ:: no code",
		 "the character after the digits"},
		{"FATAL:  09AZ@: no code", LE_UNAVAILABLE, "", "FATAL:  09AZ@: no code",
		 "the character before the letters"},
		{"FATAL:  ZZ099: other", LE_FAILED, "ZZ099", "FATAL:  other", "an unknown code"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		said = cases[i].said;
		is_status(le_connection_error(conn, &error), cases[i].status, cases[i].what);
		ok(error.status == cases[i].status && strcmp(error.sqlstate, cases[i].sqlstate) == 0 &&
			   strcmp(error.message, cases[i].message) == 0,
		   "the message is that of libpq");
	}
	said = "none was given";
	needs_password = 1;
	is_status(le_connection_error(conn, &error), LE_DENIED, "a missing password is LE_DENIED");
	needs_password = 0;

	/* a character of several bytes at each position around the end of the buffer */
	for (int n = sizeof(error.message) - 12; n < (int) sizeof(error.message) + 3; n++)
	{
		bool kept = n < (int) sizeof(error.message) - 1;

		memset(too_long, 'm', (size_t) n);
		strcpy(too_long + n, ":  more");
		memcpy(cut, too_long, sizeof(cut));
		cut[sizeof(cut) - 1] = '\0';
		strcpy(too_long + n, ":  57P03: more");
		said = too_long;
		le_connection_error(conn, &error);
		wrong += strcmp(error.message, cut) != 0 || strcmp(error.sqlstate, kept ? "57P03" : "") != 0;
	}
	is_int(wrong, 0, "a long message is cut between two characters");
	PQfinish(conn);
}

/* --- arguments, and a child process --- */

static _Atomic int elected, dismissed;

/* Calls no function of the library, so that its thread does not see the simulated state of the session. */
static int
on_elected(le_hold *term, void *arg)
{
	(void) term;
	(void) arg;
	elected = 1;
	eventually_quietly(dismissed);
	return 1;
}

static void
never_told(const le_change *change, void *arg)
{
	(void) change;
	(void) arg;
}

static void
children(le_session *s)
{
	le_callbacks callbacks = {.size = sizeof(callbacks), .on_elected = on_elected};
	le_leader_info info = {.size = sizeof(info)};
	le_event event;
	le_hold *hold, *term;
	le_observer *observer;
	le_runner *runner;
	const char *name = "y";

	if (le_campaign(s, "e", "me", PATIENCE, &term, &error) != LE_OK)
		die("no term");
	/* simulates a child process */
	s->process++;
	is_status(le_acquire(s, &name, 1, NULL, 0, &hold, &error), LE_INVALID, "le_acquire");
	ok(hold == NULL && strstr(error.message, "parent process") != NULL,
	   "the error of a child process names the parent process");
	is_status(le_enqueue(s, &name, 1, NULL, &hold, &error), LE_INVALID, "le_enqueue");
	is_status(le_await(term, 0, &error), LE_INVALID, "le_await");
	is_status(le_await_until(term, 1, &error), LE_INVALID, "le_await_until");
	is_status(le_fence(term, db, &error), LE_INVALID, "le_fence");
	is_status(le_release(term, 0, &error), LE_OK, "le_release does nothing");
	is_status(le_resign(term, &error), LE_OK, "le_resign does nothing");
	is_status(le_proclaim(term, "you", &error), LE_INVALID, "le_proclaim");
	is_status(le_leader(s, "e", &info, &error), LE_INVALID, "le_leader");
	is_status(le_observe(s, "e", 0, never_told, NULL, &observer, &error), LE_INVALID, "le_observe");
	ok(observer == NULL, "le_observe returns no observer in a child process");
	is_status(le_run(s, "e", "me", &callbacks, &runner, &error), LE_INVALID, "le_run");
	ok(runner == NULL, "le_run returns no runner in a child process");
	is_status(le_reopen(s, &error), LE_INVALID, "le_reopen");
	is_status(le_close(s, 0, &error), LE_OK, "le_close does nothing");
	le_orphan(s);
	le_drop(term);
	le_cancel(term);
	le_progress(s);
	is_int(le_next_event(s, &event), 0, "a child process gets no events");
	ok(!le_valid(term) && le_hold_time_left(term) == 0 && le_must_stop(term),
	   "a child process holds nothing");
	ok(le_get_state(s) == LE_ENDED && le_time_left(s) == 0, "the session has ended in a child process");
	is_int(le_wait_stop(term, -1), 1, "le_wait_stop returns immediately in a child process");
	s->process--;

	ok(le_valid(term), "the parent still leads");
	is_status(le_fence(term, db, &error), LE_INVALID, "no fence without a transaction");
	is_status(le_fence(term, NULL, &error), LE_INVALID, "no fence without a connection");
	is_status(le_await_until(term, 1, &error), LE_OK,
			  "le_await_until a time in the past returns LE_OK for a granted hold");
	is_status(le_reopen(s, &error), LE_OK, "le_reopen of an open session returns LE_OK");
	is_status(le_resign(term, &error), LE_OK, "the parent resigns");
	if (le_run(s, "e", "me", &callbacks, &runner, &error) != LE_OK)
		die("no runner");
	eventually(elected, "a runner leads");
	s->process++;
	is_status(le_stop(runner, &error), LE_OK, "le_stop does nothing");
	is_status(le_set_candidate(runner, "you", &error), LE_INVALID, "le_set_candidate");
	s->process--;
	ok(le_next_event(s, &event) == 1, "the parent gets its events");
	is_status(le_set_candidate(runner, "", &error), LE_INVALID,
			  "le_set_candidate rejects an empty candidate");
	dismissed = 1;
	is_status(le_stop(runner, &error), LE_OK, "the runner of the parent is stopped");
}

static void
impossible_text(void)
{
	le_text text = {0};

	le_text_add(&text, "x");
	le_text_add(&text, "%lc", (wint_t) 0x7fffffff);
	ok(text.failed && strcmp(text.data, "x") == 0, "a text that cannot be formatted has failed");
	free(text.data);
}

/* --- a session without a connection --- */

static le_session *
alive(void)
{
	le_session *s = new_session();

	atomic_store(&s->state, LE_CONNECTED);
	return s;
}

static void
local_questions(void)
{
	le_session *s = alive();
	le_hold *hold = new_hold(s, LE_HELD, 1, LE_PHASE_GRANTED, LE_HOLD_HELD);

	s->deadline = le_now_ns() + 500 * LE_SEC_NS;
	ok(le_time_left(s) > 400000 && le_time_left(s) <= 500000, "le_time_left before the deadline");
	ok(le_get_state(s) == LE_CONNECTED && le_valid(hold),
	   "the session and its hold are valid before the deadline");
	s->deadline = le_now_ns() - 1;
	ok(le_get_state(s) == LE_ENDED && !le_valid(hold),
	   "the session has ended at its deadline even if no thread has noticed it");
	ok(le_time_left(s) <= 0, "no time is left after the deadline");
	s->deadline = le_now_ns() + 500 * LE_SEC_NS;
	atomic_store(&s->state, LE_ENDED);
	is_int(le_time_left(s), 0, "no time is left after the end of the session");
	free_hold(hold);
	free_session(s);
}

/*
 * Each failure is followed by a retry after a pause that grows up to a second, or to a twentieth of the TTL.
 */
static void
failures(void)
{
	static const int delays_ms[] = {50, 100, 200, 400, 800, 1000, 1000, 1000};
	static const le_error why = {LE_UNAVAILABLE, "", "why"};
	le_session *s = alive();

	le_lock(s);
	for (size_t i = 0; i < sizeof(delays_ms) / sizeof(delays_ms[0]); i++)
	{
		int64_t before = le_now_ns(), ms = delays_ms[i] * LE_MS_NS, at = le_failed(s, &why);

		ok(at >= before + ms - ms / 10 && at <= le_now_ns() + ms + ms / 10, "the pause after a failure");
		is_int(s->failures, (int) i + 1, "the failure is counted");
		is_int(s->state, LE_SUSPENDED, "the session is suspended after a failure");
	}
	s->ttl = 600 * LE_MS_NS;
	ok(le_failed(s, &why) <= le_now_ns() + 55 * LE_MS_NS, "a short TTL has short pauses");
	atomic_store(&s->state, LE_ENDED);
	ok(le_failed(s, &why) >= le_now_ns() + 4 * LE_SEC_NS, "without a lease, the pauses are long");

	/* the application's progress */
	atomic_store(&s->state, LE_CONNECTED);
	s->failures = 0;
	s->renew_at = 1000;
	is_int(le_due(s), 1000, "a renewal is due");
	s->progress = LE_SEC_NS;
	atomic_store(&s->progress_at, le_now_ns());
	ok(le_due(s) == 1000 && !s->withheld, "a renewal is due if the application has reported progress");
	atomic_store(&s->progress_at, le_now_ns() - LE_SEC_NS);
	ok(le_due(s) == LE_NEVER && s->withheld, "no renewal is due without progress");
	le_unlock(s);
	le_progress(s);
	le_lock(s);
	ok(le_due(s) == 1000, "a renewal is due again after a report of progress");

	/* other work that can be due */
	s->renew_at = LE_NEVER;
	s->progress = 0;
	is_int(le_due(s), LE_NEVER, "nothing is due");
	s->waiting = 1;
	s->last_at = 7;
	is_int(le_due(s), 7 + s->poll, "with a waiting request, a poll is due after the poll interval");
	s->heard = s->listens = true;
	is_int(le_due(s), LE_NEVER, "no poll is due if notifications arrive");
	s->later_at = 9;
	is_int(le_due(s), LE_NEVER, "no delayed release is due if there is none");
	le_link later;
	le_link_init(&later);
	le_link_append(&s->lists[LE_LATER], &later);
	is_int(le_due(s), 9, "a delayed release is due at its time");
	le_link_append(&s->lists[LE_ASKS], &later);
	s->ask_at = 5;
	is_int(le_due(s), 5, "a request is due at its time");
	le_link_append(&s->lists[LE_GIVES], &later);
	is_int(le_due(s), 0, "a release is due immediately");
	s->failures = 1;
	is_int(le_due(s), LE_NEVER, "after a failure, only the renewal is due");
	le_unlock(s);
	free_session(s);
}

/* A session that is being closed or has ended accepts no requests. */
static void
ended(void)
{
	le_session *s = alive();
	const char *name = "x";
	le_leader_info info = {.size = sizeof(info)};
	le_hold *hold;

	le_lock(s);
	le_end(s, "LE001", "it is over");
	le_end(s, "", "again");
	le_unlock(s);
	is_status(le_enqueue(s, &name, 1, NULL, &hold, &error), LE_LOST,
			  "le_enqueue in a session that has ended");
	ok(hold == NULL && strcmp(error.message, "it is over") == 0 && strcmp(error.sqlstate, "LE001") == 0,
	   "le_enqueue returns the reason of the end");
	s->closing = true;
	is_status(le_leader(s, "e", &info, &error), LE_LOST, "le_leader in a session that is being closed");
	ok(strcmp(error.message, "it is over") == 0, "le_leader returns the reason of the end");
	is_int(s->refs, 100, "no references to the session are kept");
	free_session(s);
}

/* --- a server that rejects requests --- */

static void
hide(const char *function)
{
	query(db, "ALTER FUNCTION %s RENAME TO hidden", function);
}

static void
show(const char *function)
{
	query(db, "ALTER FUNCTION hidden RENAME TO %s", function);
}

static void
missing_functions(le_session *s)
{
	le_leader_info info = {.size = sizeof(info)};
	le_hold *term;

	if (le_campaign(s, "e", "me", PATIENCE, &term, &error) != LE_OK)
		die("no term");
	hide("current_leader");
	is_status(le_leader(s, "e", &info, &error), LE_UNAVAILABLE, "le_leader without its function");
	ok(strcmp(error.sqlstate, "42883") == 0, "le_leader returns the code of the server");
	show("current_leader");
	is_status(le_leader(s, "e", &info, &error), LE_OK, "le_leader with its function");
	ok(info.term == le_token(term) && strcmp(info.candidate, "me") == 0, "the leader has not changed");
	is_status(le_resign(term, &error), LE_OK, "the leader resigns");
}

/* The server ends the lease before the session notices it. */
static void
revoked(le_session *s)
{
	le_options o = options_of(600000);
	le_hold *held = must_lock(s, "x"), *none;
	le_session *other;

	query(db, "SELECT revoke_lease(%" PRId64 ")", le_lease(s));
	is_status(lock(s, "y", 0, &none), LE_LOST, "a request on a revoked lease returns LE_LOST");
	ok(none == NULL && strcmp(error.sqlstate, "LE001") == 0,
	   "the request on the revoked lease returns the code");
	is_int(le_get_state(s), LE_ENDED, "the session has ended with its lease");
	query(db, "BEGIN");
	is_status(le_fence(held, db, &error), LE_LOST, "a hold of a revoked lease cannot be fenced");
	ok(strcmp(error.sqlstate, "LE001") == 0, "the fence returns the code");
	query(db, "ROLLBACK");
	is_status(le_release(held, 0, &error), LE_LOST, "a hold of a revoked lease is lost");
	hide("grant_lease");
	is_status(le_reopen(s, &error), LE_UNAVAILABLE, "le_reopen without grant_lease()");
	ok(strcmp(error.sqlstate, "42883") == 0, "le_reopen returns the code of the server");
	is_status(le_open(&o, &other, &error), LE_UNAVAILABLE, "le_open without grant_lease()");
	ok(other == NULL && strcmp(error.sqlstate, "42883") == 0, "le_open returns the code of the server");
	show("grant_lease");
	is_status(le_reopen(s, &error), LE_OK, "le_reopen succeeds with grant_lease()");
}

static void
broken_fence(le_session *s)
{
	le_hold *held = must_lock(s, "x");
	PGconn *yours = connect_db();

	query(yours, "BEGIN");
	query(db, "SELECT pg_terminate_backend(%d, 60000)", PQbackendPID(yours));
	is_status(le_fence(held, yours, &error), LE_UNAVAILABLE,
			  "no fence in a terminated connection of the application");
	is_status(le_release(held, 0, &error), LE_OK, "the session's own connection works");
	PQfinish(yours);
}

/* A runner without the right to call the functions of candidacies ends by itself. */
static void
refused_runner(void)
{
	le_callbacks callbacks = {.size = sizeof(callbacks), .on_elected = on_elected};
	le_status status = LE_OK;
	le_options o = options_of(600000);
	char info[1000];
	le_runner *runner;
	le_session *s;

	query(db, "CREATE ROLE limited LOGIN");
	snprintf(info, sizeof(info), "%s user=limited", conninfo);
	o.conninfo = info;
	s = open_with(&o);
	query(db, "REVOKE EXECUTE ON FUNCTION enqueue_candidate FROM PUBLIC");
	for (int i = 0; i < 16 && status == LE_OK; i++)
	{
		is_status(le_run(s, "e", "me", &callbacks, &runner, &error), LE_OK, "a runner");
		usleep(1000u << i);
		status = le_stop(runner, &error);
	}
	is_status(status, LE_FAILED, "the runner has ended by itself");
	ok(strcmp(error.sqlstate, "42501") == 0 && strstr(error.message, "permission denied") != NULL,
	   "le_stop returns the reason why the runner has ended");
	query(db, "GRANT EXECUTE ON FUNCTION enqueue_candidate TO PUBLIC");
	le_close(s, -1, NULL);
	query(db, "DROP ROLE limited");
}

static void *
asks(void *arg)
{
	le_leader_info info = {.size = sizeof(info)};

	return (void *) (intptr_t) le_leader(arg, "e", &info, NULL);
}

/* All releases are done when le_orphan() returns; a waiting call returns before le_close() does. */
static void
closing(void)
{
	le_session *s = open_session(600000);
	le_hold *kept = must_lock(s, "kept");
	int64_t lease = le_lease(s);
	bool waits = false;
	pthread_t thread;
	void *answer;

	for (int i = 0; i < 3; i++)
		le_drop(must_lock(s, i == 0 ? "one" : i == 1 ? "two" : "three"));
	le_orphan(s);
	le_drop(kept);
	ok(strcmp(
		   query(db, "SELECT string_agg(name, ' ') FROM lock_election.locks WHERE lease = %" PRId64, lease),
		   "kept") == 0,
	   "an orphaned session leaves only the hold that was not released");
	query(db, "SELECT revoke_lease(%" PRId64 ")", lease);

	s = open_session(600000);
	lease = le_lease(s);
	ask("stop");
	pthread_create(&thread, NULL, asks, s);
	while (!waits)
	{
		le_lock(s);
		waits = s->busy || s->asking > 0;
		le_unlock(s);
	}
	is_status(le_close(s, 100, &error), LE_UNKNOWN, "le_close with a server that does not reply");
	pthread_join(thread, &answer);
	is_int((intptr_t) answer, LE_LOST, "a waiting call of another thread returns LE_LOST");
	ask("cont");
	query(db, "SELECT revoke_lease(%" PRId64 ")", lease);
}

/* Makes waits end only by a wake-up or at their time. */
static _Atomic bool patient;
/*
 * Set in a thread that calls le_open: when its wait ends, the connection is terminated, and no other one can
 * be opened.
 */
static _Thread_local bool cuts;

static void
cut(pthread_mutex_t *lock)
{
	le_session *s = (le_session *) ((char *) lock - offsetof(le_session, lock));

	if (!s->opened)
		return;
	cuts = false;
	le_unlock(s);
	query(db, "UPDATE pg_database SET datallowconn = false");
	query(db, "SELECT pg_terminate_backend(%d)", PQbackendPID(s->net.conn));
	eventually(atomic_load(&s->state) == LE_SUSPENDED, "the connection ends before le_open has returned");
	le_lock(s);
}

extern void __real_le_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t until);
extern void __wrap_le_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t until);

void
__wrap_le_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t until)
{
	int64_t left = le_clamp(until - le_now_ns(), 0, 1000 * LE_SEC_NS);
	struct timespec t;

	if (!patient)
	{
		__real_le_cond_wait(cond, lock, until);
		if (cuts)
			cut(lock);
		return;
	}
	clock_gettime(CLOCK_MONOTONIC, &t);
	left += t.tv_nsec;
	t.tv_sec += left / LE_SEC_NS;
	t.tv_nsec = left % LE_SEC_NS;
	if (left > 0)
		pthread_cond_timedwait(cond, lock, &t);
}

/* The session thread hands the connection over to another thread, which does not take it. */
static void
let_go_first(void)
{
	le_session *s = open_session(600000);
	int64_t deadline = le_deadline(s);
	bool waits = false;
	le_hold *hold;

	patient = true;
	le_lock(s);
	s->asking++;
	s->renew_at = le_until(300);
	le_wake_net(s);
	le_unlock(s);
	eventually(le_deadline(s) > deadline, "a renewal is sent when it is due");
	hold = enqueue(s, "x");
	while (!waits)
	{
		le_lock(s);
		waits = s->watchers > 0;
		le_unlock(s);
	}
	le_lock(s);
	s->asking--;
	le_take(s, 0, &error);
	le_unlock(s);
	is_status(le_await(hold, PATIENCE, &error), LE_OK,
			  "the session thread continues when the other thread gives up");
	patient = false;
	le_release(hold, 0, NULL);
	le_close(s, -1, NULL);
}

/* The connection of a session has ended before le_open returns the session. */
static void
opened_and_cut(void)
{
	le_options o = options_of(600000);
	le_session *s = NULL;

	said = "the database takes no connections";
	cuts = true;
	is_status(le_open(&o, &s, &error), LE_OK, "le_open returns the session");
	ok(s != NULL && le_get_state(s) == LE_SUSPENDED, "the returned session is suspended");
	query(db, "UPDATE pg_database SET datallowconn = true WHERE datname <> 'template0'");
	eventually(s != NULL && le_get_state(s) == LE_CONNECTED, "the returned session reconnects");
	le_close(s, -1, NULL);
	said = NULL;
}

static void
tests(void)
{
	le_session *s = open_session(600000);

	db = connect_db();
	children(s);
	missing_functions(s);
	revoked(s);
	broken_fence(s);
	le_close(s, -1, NULL);
	refused_runner();
	closing();
	let_go_first();
	opened_and_cut();
	PQfinish(db);
	messages();
	impossible_text();
	local_questions();
	failures();
	ended();
}

int
main(int argc, char **argv)
{
	return run_tests(argc, argv, tests);
}
