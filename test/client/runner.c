/*
 * runner.c
 *		Runners, observers, and the watchdog.
 */
#include "client.h"

#include <dirent.h>

static PGconn *db;

/* --- signals --- */

/*
 * Threads of the library, in which callbacks run, block all signals of the application, so that its own
 * threads receive them.
 */
static _Atomic int unblocked;

static bool
is_blocked(void)
{
	sigset_t set;

	pthread_sigmask(SIG_BLOCK, NULL, &set);
	return sigismember(&set, SIGTERM) == 1 && sigismember(&set, SIGALRM) == 1;
}

/* --- the order of the callbacks --- */

typedef struct
{
	_Atomic int elected, running, lost, overlaps, lost_outside, must_stop;
	_Atomic int leave;       /* nonzero: on_elected returns by itself, with this value - 1 */
	_Atomic int64_t work_ms; /* how long on_elected continues to work after it was told to stop */
	_Atomic int64_t term;
	_Atomic int seen, vacant;
	le_session *session;
} record;

static _Atomic int leaders; /* running on_elected callbacks of all runners of a test */

static int
on_elected(le_hold *term, void *arg)
{
	record *r = arg;

	unblocked += !is_blocked();
	r->overlaps += atomic_fetch_add(&r->running, 1) != 0;
	atomic_fetch_add(&leaders, 1);
	r->term = le_token(term);
	r->elected++;
	while (r->leave == 0 && !le_wait_stop(term, 20))
		;
	r->must_stop += le_must_stop(term);
	usleep((useconds_t) r->work_ms * 1000);
	atomic_fetch_sub(&leaders, 1);
	atomic_fetch_sub(&r->running, 1);
	return r->leave > 0 ? r->leave - 1 : 0;
}

static void
on_lost(le_hold *term, void *arg)
{
	record *r = arg;

	unblocked += !is_blocked();
	r->lost_outside += le_token(term) != r->term || le_valid(term);
	r->lost++;
}

static void
on_new_leader(const char *candidate, int64_t term, void *arg)
{
	record *r = arg;

	(void) term;
	if (candidate == NULL)
		r->vacant++;
	else
		r->seen++;
}

static le_runner *
run(record *r, const char *candidate)
{
	le_callbacks callbacks = {.size = sizeof(callbacks),
							  .on_elected = on_elected,
							  .on_lost = on_lost,
							  .on_new_leader = on_new_leader,
							  .arg = r};
	le_runner *runner;

	if (le_run(r->session, "boss", candidate, &callbacks, &runner, &error) != LE_OK)
		die("le_run: %s", error.message);
	return runner;
}

static void
order(void)
{
	record a = {.session = open_session(9000), .work_ms = 150}, b = {.session = open_session(9000)};
	le_runner *first = run(&a, "a"), *second;
	le_leader_info info = {.size = sizeof(info)};
	int64_t term;

	eventually(a.running == 1, "the first runner leads");
	second = run(&b, "b");
	eventually(a.seen >= 1 && b.seen >= 1, "both runners see the leader");
	is_status(le_leader(b.session, "boss", &info, &error), LE_OK, "le_leader returns a leader");
	ok(strcmp(info.candidate, "a") == 0 && info.term == a.term, "le_leader returns the first runner");

	/* A leader that is forced out is told, stops, and campaigns again. */
	query(db, "SELECT force_resign('boss')");
	eventually(a.lost == 1, "on_lost is called if the term is lost while on_elected runs");
	eventually(b.running == 1, "the second runner leads after the first was forced out");
	eventually(a.running == 0, "on_elected of the first runner has returned");
	is_int(a.must_stop, 1, "the first runner had to stop");
	is_int(b.lost, 0, "the second runner has lost nothing");

	/*
	 * A leader whose on_elected returns resigns after its work, and campaigns again behind the other
	 * candidate.
	 */
	term = b.term;
	b.work_ms = 200;
	b.leave = 1;
	eventually(a.elected == 2, "the first runner leads again");
	is_int(b.running, 0, "on_elected of the second runner has returned before");
	ok(a.term > term, "the new term is higher");
	b.leave = 0;
	is_int(b.lost, 0, "on_lost is not called for a leader that resigns");

	/* A runner that is stopped waits for its work, and then resigns. */
	is_status(le_set_candidate(second, "", &error), LE_INVALID, "le_set_candidate rejects an empty text");
	is_status(le_set_candidate(second, NULL, &error), LE_INVALID, "le_set_candidate rejects NULL");
	is_status(le_set_candidate(second, "b again", &error), LE_OK, "le_set_candidate sets another text");
	is_status(le_stop(first, &error), LE_OK, "the leading runner is stopped");
	is_int(a.running, 0, "le_stop returns after on_elected has returned");
	eventually(b.elected == 2, "the second runner leads after the first was stopped");
	eventually(le_leader(a.session, "boss", &info, &error) == LE_OK && info.term == b.term,
			   "le_leader returns the second runner");
	eventually(a.lost == 1 && a.lost_outside + b.lost_outside == 0,
			   "on_lost was called once, and only for a lost term");
	b.leave = 2;
	eventually(b.running == 0, "on_elected can end its runner");
	usleep(500 * 1000);
	is_int(b.elected, 2, "an ended runner does not campaign again");
	is_status(le_stop(second, &error), LE_OK, "le_stop of an ended runner returns LE_OK");
	eventually(le_leader(a.session, "boss", &info, &error) == LE_OK && info.term == 0,
			   "nobody leads after both runners have ended");
	is_int(a.overlaps + b.overlaps, 0, "two terms of one runner never overlap");
	ok(!is_blocked(), "the application's thread does not block signals");
	le_close(a.session, -1, NULL);
	le_close(b.session, -1, NULL);
}

/* The lease is lost: the runner opens a new one after its work. */
static void
lost_lease(void)
{
	record a = {.session = open_session(6000), .work_ms = 300};
	le_runner *runner = run(&a, "a");
	PGconn *mine = PQconnectdb(conninfo); /* a lease can be revoked only by its role */
	int64_t term;

	eventually(a.running == 1, "the runner leads");
	term = a.term;
	query(mine, "SELECT revoke_lease(%" PRId64 ")", le_lease(a.session));
	PQfinish(mine);
	eventually(a.lost == 1, "on_lost is called when the lease is lost");
	eventually(a.elected == 2, "the runner leads again with a new lease");
	ok(a.term > term && a.overlaps == 0, "the new term is higher and does not overlap");
	is_status(le_stop(runner, &error), LE_OK, "the runner with the new lease is stopped");
	is_int(a.lost, 1, "on_lost is not called for a stop");
	le_close(a.session, -1, NULL);
}

/* Returns the number of threads. */
static int
threads(void)
{
	DIR *tasks = opendir("/proc/self/task");
	int n = 0;

	while (readdir(tasks) != NULL)
		n++;
	closedir(tasks);
	return n;
}

/* The session cannot be reopened: temporary errors are retried, others end the runner. */
static void
lost_for_a_while(void)
{
	record a = {.session = open_session(6000)};
	int before = threads();
	le_runner *runner = run(&a, "a");
	PGconn *mine = PQconnectdb(conninfo);

	query(db, "ALTER FUNCTION grant_lease RENAME TO real_grant_lease; CREATE SEQUENCE tries; GRANT USAGE ON "
			  "SEQUENCE tries TO PUBLIC;"
			  " CREATE FUNCTION grant_lease(interval, text, interval) RETURNS bigint LANGUAGE plpgsql AS $$"
			  "BEGIN IF nextval('tries') > 2 THEN RETURN real_grant_lease($1, $2, $3); END IF;"
			  " RAISE 'not now' USING ERRCODE = CASE currval('tries') WHEN 1 THEN 'XX000' ELSE '40001' END;"
			  " END$$");
	eventually(a.running == 1, "the runner leads before its lease is revoked");
	query(mine, "SELECT revoke_lease(%" PRId64 ")", le_lease(a.session));
	eventually(a.elected == 2, "the runner leads again after temporary errors");
	is_int(atoi(query(db, "SELECT last_value FROM tries")), 3, "both temporary errors were returned");

	query(db, "DROP FUNCTION grant_lease");
	query(mine, "SELECT revoke_lease(%" PRId64 ")", le_lease(a.session));
	eventually(threads() == before, "the runner ends if grant_lease() is missing");
	is_status(le_stop(runner, &error), LE_FAILED, "le_stop of the failed runner returns LE_FAILED");
	ok(strcmp(error.sqlstate, "42883") == 0, "le_stop returns the code of the missing function");
	query(db, "DROP SEQUENCE tries; ALTER FUNCTION real_grant_lease RENAME TO grant_lease");
	le_close(a.session, -1, NULL);
	PQfinish(mine);
}

static void
stop_early(void)
{
	record a = {.session = open_session(5000)}, b = {.session = open_session(5000)};
	le_runner *leader = run(&a, "a"), *waiting;
	le_leader_info info = {.size = sizeof(info)};

	eventually(a.running == 1, "a runner leads");
	waiting = run(&b, "b");
	is_status(le_stop(waiting, &error), LE_OK, "a waiting runner is stopped");
	is_int(b.elected, 0, "the stopped runner has never led");
	is_status(le_set_candidate(leader, "other", &error), LE_OK, "le_set_candidate of the leading runner");
	query(db, "SELECT force_resign('boss')");
	eventually(le_leader(a.session, "boss", &info, &error) == LE_OK && strcmp(info.candidate, "other") == 0,
			   "the runner campaigns again with the new text");
	is_status(le_stop(leader, &error), LE_OK, "the leading runner is stopped");
	for (int i = 0; i < 20; i++)
	{
		leader = run(&a, "a");
		usleep(rand() % 3000);
		le_stop(leader, NULL);
	}
	is_int(a.running + a.overlaps, 0, "a runner is started and stopped many times");
	le_close(a.session, -1, NULL);
	le_close(b.session, -1, NULL);
	is_int(atoi(query(db, "SELECT count(*) FROM lock_election.look()")), 0, "nothing is left");
}

/* --- the watchdog --- */

static void
watchdog(void)
{
	le_options o = options_of(3000);
	le_session *s, *other = open_session(20000);
	le_hold *held, *next;
	int64_t end;

	o.progress_ms = 1500;
	s = open_with(&o);
	held = must_lock(s, "x");
	next = enqueue(other, "x");
	for (end = le_now() + 5000; le_now() < end; usleep(20000))
		le_progress(s);
	ok(le_valid(held), "a session that reports progress keeps its hold");
	is_status(le_await(next, PATIENCE, &error), LE_OK,
			  "a session without progress loses its lock to the waiter");
	ok(!le_valid(held), "the hold without progress is invalid");
	is_status(le_await(held, 0, &error), LE_LOST, "the hold without progress is lost");
	ok(strstr(error.message, "progress") != NULL, "the error names the missing progress");
	is_status(le_reopen(s, &error), LE_UNAVAILABLE, "le_reopen fails without progress");
	le_progress(s);
	is_status(le_reopen(s, &error), LE_OK, "le_reopen succeeds after a report of progress");
	le_drop(held);
	le_drop(next);
	le_close(s, -1, NULL);
	le_close(other, -1, NULL);
}

/* --- observers --- */

#define CHANGES 2000

typedef struct
{
	_Atomic int n, wrong, slow;
	_Atomic int64_t last;
	int64_t changes[CHANGES];
} log_of_changes;

static void
on_change(const le_change *change, void *arg)
{
	log_of_changes *l = arg;

	unblocked += !is_blocked();
	/* A current leader is reported without a number of the change if the history does not show it yet. */
	if ((change->change <= l->last && (change->change != 0 || l->n > 0)) || l->n >= CHANGES)
		l->wrong++;
	else
		l->changes[l->n++] = change->change;
	l->last = change->change;
	usleep((useconds_t) l->slow * 1000);
}

static int
history(int64_t after)
{
	return atoi(query(db, "SELECT count(*) FROM election_history('o', %" PRId64 ")", after));
}

static void
observers(void)
{
	static log_of_changes all, some, now;
	le_session *s = open_session(20000), *watch = open_session(20000);
	le_observer *first, *second, *third;
	le_hold *term;
	int64_t middle;

	is_status(le_observe(watch, "o", 0, on_change, &all, &first, &error), LE_OK,
			  "an observer of all changes starts");
	for (int i = 0; i < 40; i++)
	{
		le_campaign(s, "o", "first", PATIENCE, &term, &error);
		le_proclaim(term, "second", &error);
		le_resign(term, NULL);
		if (i % 4 == 1)
			query(db, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = "
					  "'liblockelection'");
	}
	eventually(all.n == history(0), "the observer sees every change, over lost connections");
	is_int(all.wrong, 0, "the observer sees each change once, in order");
	ok(all.n >= 100, "the election had at least 100 changes");
	middle = all.changes[all.n / 2];
	le_unobserve(first);

	some.slow = 3;
	le_observe(watch, "o", middle, on_change, &some, &second, &error);
	le_campaign(s, "o", "now", PATIENCE, &term, &error);
	le_observe(watch, "o", -1, on_change, &now, &third, &error);
	eventually(some.n == history(middle) && some.wrong == 0,
			   "an observer with a slow callback sees all changes after a number");
	eventually(now.n == 1, "an observer from now on sees the current leader");
	le_proclaim(term, "still", &error);
	eventually(now.n == 2 && now.wrong == 0, "an observer from now on sees a later change");
	le_resign(term, NULL);
	eventually(now.n == 3, "an observer from now on sees the resignation");
	le_unobserve(second);
	le_unobserve(third);

	memset(&now, 0, sizeof(now));
	le_observe(watch, "vacant", -1, on_change, &now, &first, &error);
	usleep(50000);
	le_campaign(s, "vacant", "me", PATIENCE, &term, &error);
	eventually(now.n == 1, "an observer from now on sees the first leader of a vacant election");
	le_resign(term, NULL);
	le_unobserve(first);
	le_close(s, -1, NULL);
	le_close(watch, -1, NULL);
}

/* The data of an observed change. */
typedef struct
{
	_Atomic int n;
	struct
	{
		char how[20], candidate[20];
		int64_t term, elected_at, changed_at;
		int leads;
	} rows[10];
	le_observer *own; /* the callback ends it */
	_Atomic bool calling, hold;
} changes;

static void
on_any_change(const le_change *change, void *arg)
{
	changes *c = arg;

	c->calling = true;
	while (c->hold)
		usleep(1000);
	if (c->n < 10)
	{
		snprintf(c->rows[c->n].how, sizeof(c->rows[0].how), "%s", change->how);
		snprintf(c->rows[c->n].candidate, sizeof(c->rows[0].candidate), "%s", change->candidate);
		c->rows[c->n].term = change->term;
		c->rows[c->n].elected_at = change->elected_at;
		c->rows[c->n].changed_at = change->changed_at;
		c->rows[c->n].leads = change->leads;
	}
	if (c->own != NULL)
		le_unobserve(c->own);
	c->n++;
	c->calling = false;
}

static void *
release_soon(void *arg)
{
	usleep(300000);
	((changes *) arg)->hold = false;
	return NULL;
}

static void
observed(void)
{
	static const char *const how[] = {"elected", "proclaimed", "resigned"};
	static changes told, held, ended;
	le_options o = options_of(20000);
	le_session *s, *slow;
	le_observer *observer, *other;
	le_hold *term;
	pthread_t thread;
	int64_t now = (int64_t) time(NULL) * 1000000, start;
	int wrong = 0;
	char w[20]; /* a name whose history is empty */

	snprintf(w, sizeof(w), "w%d", (int) getpid());
	s = open_with(&o);
	is_status(le_observe(s, "", 0, on_any_change, NULL, &observer, &error), LE_INVALID,
			  "le_observe with an empty election");
	is_status(le_observe(s, w, 0, NULL, NULL, &observer, &error), LE_INVALID,
			  "le_observe without a callback");
	is_status(le_observe(s, w, -2, on_any_change, NULL, &observer, &error), LE_INVALID,
			  "le_observe with an invalid number");
	ok(observer == NULL, "le_observe returns no observer for invalid arguments");
	le_unobserve(NULL);

	le_observe(s, w, 0, on_any_change, &told, &observer, &error);
	le_campaign(s, w, "first", PATIENCE, &term, &error);
	usleep(20000);
	le_proclaim(term, "second", &error);
	le_resign(term, NULL);
	eventually(told.n == 3, "the observer sees three changes");
	for (int i = 0; i < 3; i++)
		wrong += strcmp(told.rows[i].how, how[i]) != 0 || told.rows[i].leads != (i < 2) ||
				 told.rows[i].term != told.rows[0].term ||
				 told.rows[i].elected_at < now - 3600 * INT64_C(1000000) ||
				 told.rows[i].elected_at > now + 3600 * INT64_C(1000000) ||
				 told.rows[i].elected_at != told.rows[0].elected_at ||
				 told.rows[i].changed_at < told.rows[i].elected_at;
	is_int(wrong, 0, "each change has its kind, term, times, and whether somebody leads");
	ok(strcmp(told.rows[0].candidate, "first") == 0 && strcmp(told.rows[1].candidate, "second") == 0,
	   "each change has its candidate");
	ok(told.rows[1].changed_at >= told.rows[0].changed_at + 20000, "the times of changes are microseconds");
	le_unobserve(observer);

	/* A callback that runs, and one that ends its own observer. */
	held.hold = true;
	le_observe(s, w, 0, on_any_change, &held, &observer, &error);
	eventually(held.calling, "a long callback runs");
	pthread_create(&thread, NULL, release_soon, &held);
	le_unobserve(observer);
	ok(!held.calling, "le_unobserve waits for the running callback");
	is_int(held.n, 1, "no callback starts after le_unobserve");
	pthread_join(thread, NULL);
	ended.hold = true;
	le_observe(s, w, 0, on_any_change, &ended, &other, &error);
	ended.own = other;
	ended.hold = false;
	eventually(ended.n == 1 && !ended.calling, "a callback can end its observer");

	/*
	 * The session polls only every minute, so the rest of a long history is found in time only if the
	 * observer continues to read.
	 */
	o.listen = -1;
	o.poll_ms = 60000;
	slow = open_with(&o);
	for (int i = 0; i < 50; i++)
	{
		le_campaign(s, w, "me", PATIENCE, &term, &error);
		le_resign(term, NULL);
	}
	memset(&told, 0, sizeof(told));
	start = le_now();
	le_observe(slow, w, 0, on_any_change, &told, &observer, &error);
	eventually(told.n == 103, "the observer sees a long history");
	ok(le_now() - start < 60000, "a long history is read without a poll in between");
	is_int(ended.n, 1, "an ended observer sees nothing");
	le_unobserve(observer);
	le_close(slow, -1, NULL);
	le_close(s, -1, NULL);
}

static void
tests(void)
{
	db = connect_db();
	order();
	lost_lease();
	lost_for_a_while();
	stop_early();
	watchdog();
	observers();
	observed();
	is_int(unblocked, 0, "all callbacks run in threads that block signals");
	PQfinish(db);
}

int
main(int argc, char **argv)
{
	return run_tests(argc, argv, tests);
}
