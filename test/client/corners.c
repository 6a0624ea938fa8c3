/*
 * corners.c
 *		What the library does where no server is needed, or none is there, or it
 *		refuses: arguments, a child process, looks and renewals without a
 *		connection, what is urgent, messages of libpq, functions that are missing.
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

/* --- what libpq says of a connection that failed --- */

static const char *said;
static int needs_password;

/* These come before libpq's. */
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
	/* one whose string was read, and that leads nowhere */
	PGconn *conn = PQconnectdb("host=/nowhere dbname=postgres");
	static const struct
	{
		const char *said;
		le_status status;
		const char *sqlstate, *message, *what;
	} cases[] = {
		{"no route\n\n", LE_UNAVAILABLE, "", "no route", "a line"},
		{"", LE_UNAVAILABLE, "", "", "nothing"},
		{"\n", LE_UNAVAILABLE, "", "", "nothing but its end"},
		{"FATAL:  28P01: wrong\nLOCATION:  auth_failed, auth.c:1\n", LE_DENIED, "28P01", "FATAL:  wrong",
		 "a code, and a place"},
		{"FATAL:  57P03: a\nLOCATION:  x\nhost two: FATAL:  53300: b\nLOCATION:  y", LE_UNAVAILABLE, "53300",
		 "FATAL:  a\nhost two: FATAL:  b", "the code of the last host"},
		{"FATAL:  40P0: no code", LE_UNAVAILABLE, "", "FATAL:  40P0: no code", "four digits"},
		{"FATAL:  40p01: no code", LE_UNAVAILABLE, "", "FATAL:  40p01: no code", "a small letter"},
		{"FATAL:  40P01 no code", LE_UNAVAILABLE, "", "FATAL:  40P01 no code", "no colon behind"},
		{"FATAL: 40P01: no code", LE_UNAVAILABLE, "", "FATAL: 40P01: no code", "one blank before"},
		{"FATAL:  09AZ/: no code", LE_UNAVAILABLE, "", "FATAL:  09AZ/: no code", "what is before a digit"},
		{"FATAL:  09AZ[: no code", LE_UNAVAILABLE, "", "FATAL:  09AZ[: no code", "what is behind a letter"},
		{"FATAL:  09AZ:: no code", LE_UNAVAILABLE, "", "FATAL:  09AZ:: no code", "what is behind a digit"},
		{"FATAL:  09AZ@: no code", LE_UNAVAILABLE, "", "FATAL:  09AZ@: no code", "or before a letter"},
		{"FATAL:  ZZ099: other", LE_FAILED, "ZZ099", "FATAL:  other", "a code that nobody knows"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		said = cases[i].said;
		is_status(le_connection_error(conn, &error), cases[i].status, cases[i].what);
		ok(error.status == cases[i].status && strcmp(error.sqlstate, cases[i].sqlstate) == 0 &&
			   strcmp(error.message, cases[i].message) == 0,
		   "in its words");
	}
	said = "none was given";
	needs_password = 1;
	is_status(le_connection_error(conn, &error), LE_DENIED, "a password was asked for");
	needs_password = 0;

	/* at each place of the end of what is kept */
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
	is_int(wrong, 0, "a message that is cut");
	PQfinish(conn);
}

/* --- arguments, and a child process --- */

static _Atomic int elected, dismissed;

/* Asks the library nothing, so that its thread does not see what the session is made to be. */
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
	/* what a child sees */
	s->process++;
	is_status(le_acquire(s, &name, 1, NULL, 0, &hold, &error), LE_INVALID, "le_acquire");
	ok(hold == NULL && strstr(error.message, "parent process") != NULL, "in words");
	is_status(le_enqueue(s, &name, 1, NULL, &hold, &error), LE_INVALID, "le_enqueue");
	is_status(le_await(term, 0, &error), LE_INVALID, "le_await");
	is_status(le_await_until(term, 1, &error), LE_INVALID, "le_await_until");
	is_status(le_fence(term, db, &error), LE_INVALID, "le_fence");
	is_status(le_release(term, 0, &error), LE_OK, "le_release does nothing");
	is_status(le_resign(term, &error), LE_OK, "nor does le_resign");
	is_status(le_proclaim(term, "you", &error), LE_INVALID, "le_proclaim");
	is_status(le_leader(s, "e", &info, &error), LE_INVALID, "le_leader");
	is_status(le_observe(s, "e", 0, never_told, NULL, &observer, &error), LE_INVALID, "le_observe");
	ok(observer == NULL, "no observer");
	is_status(le_run(s, "e", "me", &callbacks, &runner, &error), LE_INVALID, "le_run");
	ok(runner == NULL, "no runner");
	is_status(le_reopen(s, &error), LE_INVALID, "le_reopen");
	is_status(le_close(s, 0, &error), LE_OK, "le_close does nothing");
	le_orphan(s);
	le_drop(term);
	le_cancel(term);
	le_progress(s);
	is_int(le_next_event(s, &event), 0, "no events");
	ok(!le_valid(term) && le_hold_time_left(term) == 0 && le_must_stop(term), "nothing is held");
	ok(le_get_state(s) == LE_ENDED && le_time_left(s) == 0, "by no session");
	is_int(le_wait_stop(term, -1), 1, "what leads has to stop");
	s->process--;

	ok(le_valid(term), "the parent still leads");
	is_status(le_fence(term, db, &error), LE_INVALID, "no transaction");
	is_status(le_fence(term, NULL, &error), LE_INVALID, "no connection");
	is_status(le_await_until(term, 1, &error), LE_OK, "what is held is held at any time");
	is_status(le_reopen(s, &error), LE_OK, "nothing to be opened again");
	is_status(le_resign(term, &error), LE_OK, "it resigns");
	if (le_run(s, "e", "me", &callbacks, &runner, &error) != LE_OK)
		die("no runner");
	eventually(elected, "a runner leads");
	s->process++;
	is_status(le_stop(runner, &error), LE_OK, "le_stop does nothing");
	is_status(le_set_candidate(runner, "you", &error), LE_INVALID, "le_set_candidate");
	s->process--;
	ok(le_next_event(s, &event) == 1, "the parent has its events");
	is_status(le_set_candidate(runner, "", &error), LE_INVALID, "no candidate");
	dismissed = 1;
	is_status(le_stop(runner, &error), LE_OK, "a runner is stopped");
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
	ok(le_time_left(s) > 400000 && le_time_left(s) <= 500000, "the time that is left");
	ok(le_get_state(s) == LE_CONNECTED && le_valid(hold), "it lives");
	s->deadline = le_now_ns() - 1;
	ok(le_get_state(s) == LE_ENDED && !le_valid(hold),
	   "until its deadline, whether somebody has looked or not");
	ok(le_time_left(s) <= 0, "nothing is left");
	s->deadline = le_now_ns() + 500 * LE_SEC_NS;
	atomic_store(&s->state, LE_ENDED);
	is_int(le_time_left(s), 0, "nor after its end");
	free_hold(hold);
	free_session(s);
}

/* Each failure is followed by another try, after a while that grows up to a second, or a twentieth of the TTL. */
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

		ok(at >= before + ms - ms / 10 && at <= le_now_ns() + ms + ms / 10, "a failure");
		is_int(s->failures, (int) i + 1, "is counted");
		is_int(s->state, LE_SUSPENDED, "and told");
	}
	s->ttl = 600 * LE_MS_NS;
	ok(le_failed(s, &why) <= le_now_ns() + 55 * LE_MS_NS, "a short TTL leaves no time");
	atomic_store(&s->state, LE_ENDED);
	ok(le_failed(s, &why) >= le_now_ns() + 4 * LE_SEC_NS, "without a lease there is time");

	/* the application's progress */
	atomic_store(&s->state, LE_CONNECTED);
	s->failures = 0;
	s->renew_at = 1000;
	is_int(le_due(s), 1000, "a renewal is due");
	s->progress = LE_SEC_NS;
	atomic_store(&s->progress_at, le_now_ns());
	ok(le_due(s) == 1000 && !s->withheld, "with progress");
	atomic_store(&s->progress_at, le_now_ns() - LE_SEC_NS);
	ok(le_due(s) == LE_NEVER && s->withheld, "not without");
	le_unlock(s);
	le_progress(s);
	le_lock(s);
	ok(le_due(s) == 1000, "until there is some");

	/* what else is due */
	s->renew_at = LE_NEVER;
	s->progress = 0;
	is_int(le_due(s), LE_NEVER, "nothing is");
	s->waiting = 1;
	s->last_at = 7;
	is_int(le_due(s), 7 + s->poll, "who waits looks after a while");
	s->heard = s->listens = true;
	is_int(le_due(s), LE_NEVER, "unless it is heard of");
	s->later_at = 9;
	is_int(le_due(s), LE_NEVER, "nothing is to be given back later");
	le_link later;
	le_link_init(&later);
	le_link_append(&s->lists[LE_LATER], &later);
	is_int(le_due(s), 9, "now something is");
	le_link_append(&s->lists[LE_ASKS], &later);
	s->ask_at = 5;
	is_int(le_due(s), 5, "or to be asked for");
	le_link_append(&s->lists[LE_GIVES], &later);
	is_int(le_due(s), 0, "or to be given back");
	s->failures = 1;
	is_int(le_due(s), LE_NEVER, "after a failure only the renewal is");
	le_unlock(s);
	free_session(s);
}

/* A session that is being closed, or has ended, takes nothing more. */
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
	is_status(le_enqueue(s, &name, 1, NULL, &hold, &error), LE_LOST, "no hold of a session that has ended");
	ok(hold == NULL && strcmp(error.message, "it is over") == 0 && strcmp(error.sqlstate, "LE001") == 0,
	   "and why");
	s->closing = true;
	is_status(le_leader(s, "e", &info, &error), LE_LOST, "no call of one that is being closed");
	ok(strcmp(error.message, "it is over") == 0, "and why");
	is_int(s->refs, 100, "no references are kept");
	free_session(s);
}

/* --- a server that refuses --- */

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
	is_status(le_leader(s, "e", &info, &error), LE_UNAVAILABLE, "le_leader");
	ok(strcmp(error.sqlstate, "42883") == 0, "says why");
	show("current_leader");
	is_status(le_leader(s, "e", &info, &error), LE_OK, "with the function");
	ok(info.term == le_token(term) && strcmp(info.candidate, "me") == 0, "nothing has changed");
	is_status(le_resign(term, &error), LE_OK, "others are given back");
}

/* The server knows of the end of the lease first. */
static void
revoked(le_session *s)
{
	le_options o = options_of(600000);
	le_hold *held = must_lock(s, "x"), *none;
	le_session *other;

	query(db, "SELECT revoke_lease(%" PRId64 ")", le_lease(s));
	is_status(lock(s, "y", 0, &none), LE_LOST, "a request tells it");
	ok(none == NULL && strcmp(error.sqlstate, "LE001") == 0, "by its code");
	is_int(le_get_state(s), LE_ENDED, "the session has ended");
	query(db, "BEGIN");
	is_status(le_fence(held, db, &error), LE_LOST, "no fence");
	ok(strcmp(error.sqlstate, "LE001") == 0, "by its code");
	query(db, "ROLLBACK");
	is_status(le_release(held, 0, &error), LE_LOST, "what was held was lost");
	hide("grant_lease");
	is_status(le_reopen(s, &error), LE_UNAVAILABLE, "le_reopen");
	ok(strcmp(error.sqlstate, "42883") == 0, "says why");
	is_status(le_open(&o, &other, &error), LE_UNAVAILABLE, "le_open");
	ok(other == NULL && strcmp(error.sqlstate, "42883") == 0, "says why");
	show("grant_lease");
	is_status(le_reopen(s, &error), LE_OK, "the session begins once more");
}

static void
broken_fence(le_session *s)
{
	le_hold *held = must_lock(s, "x");
	PGconn *yours = connect_db();

	query(yours, "BEGIN");
	query(db, "SELECT pg_terminate_backend(%d, 60000)", PQbackendPID(yours));
	is_status(le_fence(held, yours, &error), LE_UNAVAILABLE, "the application's connection is gone");
	is_status(le_release(held, 0, &error), LE_OK, "the session's is not");
	PQfinish(yours);
}

/* A runner whose candidacies are refused ends by itself. */
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
	is_status(status, LE_FAILED, "it has ended by itself");
	ok(strcmp(error.sqlstate, "42501") == 0 && strstr(error.message, "permission denied") != NULL,
	   "says why");
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

/* What is given back has gone when le_orphan() returns; a call that waits is answered before le_close() does. */
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
	   "what was not given back is left behind");
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
	is_status(le_close(s, 100, &error), LE_UNKNOWN, "a server that stands still");
	pthread_join(thread, &answer);
	is_int((intptr_t) answer, LE_LOST, "a call of another thread");
	ask("cont");
	query(db, "SELECT revoke_lease(%" PRId64 ")", lease);
}

/* Waits that end by nothing but a wake-up, or their time. */
static _Atomic bool patient;
/* The wait of le_open, behind whose end the connection ends, and no other one can be made. */
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
	eventually(atomic_load(&s->state) == LE_SUSPENDED,
			   "the connection ends when le_open has not returned yet");
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

/* The session thread lets another one have the connection, which does not come to take it. */
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
	eventually(le_deadline(s) > deadline, "a renewal is made when it is due");
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
	is_status(le_await(hold, PATIENCE, &error), LE_OK, "when that one gives up the session thread goes on");
	patient = false;
	le_release(hold, 0, NULL);
	le_close(s, -1, NULL);
}

/* A session whose connection has ended by the time that le_open returns it. */
static void
opened_and_cut(void)
{
	le_options o = options_of(600000);
	le_session *s = NULL;

	said = "the database takes no connections";
	cuts = true;
	is_status(le_open(&o, &s, &error), LE_OK, "a session that was opened is given");
	ok(s != NULL && le_get_state(s) == LE_SUSPENDED, "though its connection has ended");
	query(db, "UPDATE pg_database SET datallowconn = true WHERE datname <> 'template0'");
	eventually(s != NULL && le_get_state(s) == LE_CONNECTED, "it makes another one");
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
