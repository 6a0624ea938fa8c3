/*
 * failing_calls.c
 *		Calls of the library to the C library, the kernel and libpq that fail,
 *		one at a time.
 *
 * A chapter is something that a program does with sessions.  It is repeated:
 * in the first run, its first call of a kind fails, in the second run its
 * second call, until a run has no failure.  In each run, all calls return as
 * documented in the header, and the sessions continue.  The library is linked
 * so that its calls come here (Makefile), whatever sanitizer it is built with.
 * Each kind has a process and a database of its own, because most of the time
 * is spent waiting.
 */
#include "client.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/wait.h>

#include "objects.h"

/* More than the number of calls of any chapter. */
#define CALLS_MAX 2000
#define M(status) (1u << (status))

typedef enum Kind
{
	NONE,
	MEMORY,
	OBJECTS, /* descriptors, threads, conditions */
	TRIFLES, /* failures that must have no effect */
	SENDS,   /* libpq cannot connect or send */
	READS,   /* libpq cannot read */
	ANSWERS, /* libpq has no memory for a reply */
	KINDS
} Kind;

static const char *const kind_names[] = {"none", "memory", "objects", "trifles", "sends", "reads", "answers"};

/* The statuses that a call may return after a failure of each kind. */
static const unsigned kind_answers[] = {
	[MEMORY] = M(LE_NO_MEMORY),
	[OBJECTS] = M(LE_NO_MEMORY),
	[SENDS] = M(LE_NO_MEMORY) | M(LE_UNAVAILABLE),
	[READS] = M(LE_UNAVAILABLE),
	[ANSWERS] = M(LE_UNAVAILABLE) | M(LE_UNKNOWN),
};

static _Atomic int failing; /* a Kind */
static _Atomic int left;
static _Atomic int struck;

static bool
fails(Kind kind)
{
	if (failing != (int) kind || atomic_fetch_sub(&left, 1) != 1)
		return false;
	struck = 1;
	return true;
}

static int
fail(int code)
{
	errno = code;
	return -1;
}

#define WRAP(type, name, parameters, arguments, kind, failure)                                               \
	extern type __real_##name parameters;                                                                    \
	extern type __wrap_##name parameters;                                                                    \
	type __wrap_##name parameters                                                                            \
	{                                                                                                        \
		return fails(kind) ? (failure) : __real_##name arguments;                                            \
	}

WRAP(void *, malloc, (size_t size), (size), MEMORY, NULL)
WRAP(void *, calloc, (size_t n, size_t size), (n, size), MEMORY, NULL)
WRAP(void *, realloc, (void *old, size_t size), (old, size), MEMORY, NULL)

WRAP(int, pipe2, (int fds[2], int flags), (fds, flags), OBJECTS, fail(EMFILE))
WRAP(int, pthread_create, (pthread_t * thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg),
	 (thread, attr, run, arg), OBJECTS, EAGAIN)
WRAP(int, pthread_mutex_init, (pthread_mutex_t * lock, const pthread_mutexattr_t *attr), (lock, attr),
	 OBJECTS, EAGAIN)
WRAP(int, pthread_cond_init, (pthread_cond_t * cond, const pthread_condattr_t *attr), (cond, attr), OBJECTS,
	 EAGAIN)
WRAP(int, pthread_condattr_init, (pthread_condattr_t * attr), (attr), OBJECTS, ENOMEM)

WRAP(int, getentropy, (void *to, size_t size), (to, size), TRIFLES, fail(EIO))
WRAP(int, poll, (struct pollfd * fds, nfds_t n, int timeout), (fds, n, timeout), TRIFLES, fail(EINTR))
WRAP(ssize_t, read, (int fd, void *to, size_t size), (fd, to, size), TRIFLES, fail(EINTR))
WRAP(ssize_t, write, (int fd, const void *from, size_t size), (fd, from, size), TRIFLES, fail(EINTR))

WRAP(PGconn *, PQconnectStartParams, (const char *const *keys, const char *const *values, int expand),
	 (keys, values, expand), SENDS, NULL)
WRAP(PQconninfoOption *, PQconninfo, (PGconn * conn), (conn), SENDS, NULL)
WRAP(PQconninfoOption *, PQconninfoParse, (const char *text, char **message), (text, message), SENDS, NULL)
WRAP(int, PQsetnonblocking, (PGconn * conn, int on), (conn, on), SENDS, -1)
WRAP(int, PQsendQuery, (PGconn * conn, const char *sql), (conn, sql), SENDS, 0)
WRAP(int, PQsendQueryParams,
	 (PGconn * conn, const char *sql, int n, const Oid *types, const char *const *values, const int *lengths,
	  const int *formats, int format),
	 (conn, sql, n, types, values, lengths, formats, format), SENDS, 0)
WRAP(int, PQsendPrepare, (PGconn * conn, const char *name, const char *sql, int n, const Oid *types),
	 (conn, name, sql, n, types), SENDS, 0)
WRAP(int, PQsendQueryPrepared,
	 (PGconn * conn, const char *name, int n, const char *const *values, const int *lengths,
	  const int *formats, int format),
	 (conn, name, n, values, lengths, formats, format), SENDS, 0)
WRAP(int, PQflush, (PGconn * conn), (conn), READS, -1)
WRAP(int, PQconsumeInput, (PGconn * conn), (conn), READS, 0)
WRAP(PGresult *, PQexecParams,
	 (PGconn * conn, const char *sql, int n, const Oid *types, const char *const *values, const int *lengths,
	  const int *formats, int format),
	 (conn, sql, n, types, values, lengths, formats, format), SENDS, NULL)

extern PGresult *__real_PQgetResult(PGconn *conn);
extern PGresult *__wrap_PQgetResult(PGconn *conn);

/* Without memory, libpq returns an error without a code, or NULL. */
PGresult *
__wrap_PQgetResult(PGconn *conn)
{
	PGresult *result = __real_PQgetResult(conn);
	bool without_code;

	if (result == NULL || (!(without_code = fails(ANSWERS)) && !fails(READS)))
		return result;
	PQclear(result);
	return without_code ? PQmakeEmptyPGresult(conn, PGRES_FATAL_ERROR) : NULL;
}

/* --- one run --- */

static PGconn *db;
static le_session *a, *b;
static Kind kind;
static int run, wrong;

/* If the network fails, the outcome of some calls is unknown. */
static unsigned
network(void)
{
	return kind >= SENDS ? M(LE_UNKNOWN) : 0;
}

/*
 * Checks the status of a call: LE_OK, one that the kind of failure allows, or one that this call may always
 * return.
 */
static le_status
answered(le_status got, unsigned always, const char *call)
{
	unsigned allowed = M(LE_OK) | always | (struck ? kind_answers[kind] : 0);

	if ((M(got) & allowed) == 0 || error.status != got ||
		(got != LE_OK && error.message[0] == '\0' && kind < SENDS))
	{
		wrong++;
		printf("#   %s, call %d failed: %s answers %s: \"%s\"\n", kind_names[kind], run, call,
			   le_status_name(got), error.message);
	}
	return got;
}

static void
expect(bool good, const char *what)
{
	if (!good)
	{
		wrong++;
		printf("#   %s, call %d failed: %s\n", kind_names[kind], run, what);
	}
}

static void
give_back(le_hold *hold)
{
	answered(le_release(hold, 0, &error), network(), "le_release");
}

/* Breaks the connection of the first session. */
static void
break_connection(void)
{
	char pids[1000];

	/* A failure may have broken the connection already: then break the next one. */
	do
		snprintf(pids, sizeof(pids), "%s",
				 query(db,
					   "SELECT array_agg(pid) FROM pg_stat_activity WHERE CASE WHEN application_name = 'one'"
					   " AND datname = current_database() THEN pg_terminate_backend(pid) END"));
	while (pids[0] == '\0');
	eventually_quietly(
		strcmp(query(db, "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY ('%s')", pids), "0") == 0);
}

static void
nothing(void)
{
}

/* --- chapters --- */

static le_session *opened;

static void
opening(void)
{
	le_options o = options_of(600000);

	o.name = "somebody";
	answered(le_open(&o, &opened, &error), 0, "le_open");
	expect((error.status == LE_OK) == (opened != NULL),
		   "le_open returns a session exactly if it returns LE_OK");
}

static void
after_opening(void)
{
	le_close(opened, -1, NULL);
}

static int64_t lease;

static void
before_closing(void)
{
	opened = open_session(600000);
	lease = le_lease(opened);
	le_drop(must_lock(opened, "given back"));
}

static void
closing(void)
{
	const char *name = "held";
	le_hold *held, *waits;

	answered(lock(opened, name, PATIENCE, &held), 0, "le_acquire");
	answered(le_enqueue(opened, &name, 1, NULL, &waits, &error), 0, "le_enqueue");
	if (answered(le_close(opened, -1, &error), network(), "le_close") == LE_OK)
		expect(strcmp(query(db, "SELECT count(*) FROM lock_election.leases WHERE lease = %" PRId64, lease),
					  "0") == 0,
			   "no lease is left");
	le_drop(held);
	le_drop(waits);
}

static void
after_closing(void)
{
	query(db, "SELECT revoke_lease(%" PRId64 ")", lease);
}

static void
orphaning(void)
{
	le_hold *held;

	if (answered(lock(opened, "held", PATIENCE, &held), 0, "le_acquire") == LE_OK)
		le_orphan(opened);
	else
		le_close(opened, -1, NULL);
	le_drop(held);
}

/* All kinds of holds. */
static void
acquiring(void)
{
	static const char *const names[] = {"x", "y \"z\""};
	static const struct
	{
		int n, shared, permits, wait_ms;
	} ways[] = {{1, 0, 0, 0}, {1, 1, 0, PATIENCE}, {1, 0, 2, PATIENCE}, {2, 0, 0, PATIENCE}};

	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
	{
		le_how how = {.size = sizeof(how), .shared = ways[i].shared, .permits = ways[i].permits};
		le_hold *held;

		if (answered(le_acquire(a, names, ways[i].n, &how, ways[i].wait_ms, &held, &error), 0,
					 "le_acquire") == LE_OK)
		{
			expect(le_valid(held) && le_token(held) > 0, "an acquired hold is valid");
			give_back(held);
		}
		else
			expect(held == NULL, "a failed acquire returns no hold");
	}
}

static le_hold *blocks;

static void
before_waiting(void)
{
	blocks = must_lock(b, "w");
}

/* Three requests wait: one is canceled, one is granted when the holder releases, one is released. */
static void
waiting(void)
{
	const char *name = "w";
	le_hold *waits[3];

	for (int i = 0; i < 3; i++)
	{
		if (answered(le_enqueue(a, &name, 1, NULL, &waits[i], &error), 0, "le_enqueue") == LE_OK && i > 0)
			answered(le_await(waits[i], 5, &error), M(LE_WAITING), "le_await");
	}
	if (waits[0] != NULL)
	{
		le_cancel(waits[0]);
		answered(le_await(waits[0], 0, &error), M(LE_CANCELED), "le_await");
		expect(error.status != LE_OK, "a canceled request is not granted");
	}
	give_back(blocks);
	if (waits[1] != NULL && answered(le_await(waits[1], PATIENCE, &error), 0, "le_await") == LE_OK)
		expect(le_valid(waits[1]), "a granted request is valid");
	for (int i = 0; i < 3; i++)
		give_back(waits[i]);
}

static le_session *listener;

static void
before_listening(void)
{
	le_options o = options_of(600000);

	o.listen = 1;
	listener = open_with(&o);
	blocks = must_lock(b, "l");
}

/*
 * The first wait of a connection starts to listen. A failure of that is temporary if listening is required.
 */
static void
listening(void)
{
	const char *name = "l";
	le_hold *waits;
	bool tested = false;

	if (answered(le_enqueue(listener, &name, 1, NULL, &waits, &error), 0, "le_enqueue") != LE_OK)
		return;
	while (!tested && le_get_hold_state(waits) == LE_HOLD_WAITING)
	{
		usleep(200);
		le_lock(listener);
		tested = listener->deaf || listener->heard;
		le_unlock(listener);
	}
	give_back(blocks);
	blocks = NULL;
	if (answered(le_await(waits, PATIENCE, &error), 0, "le_await") == LE_OK)
		expect(le_valid(waits), "a request that listens is granted");
	give_back(waits);
}

static void
after_listening(void)
{
	le_drop(blocks);
	le_close(listener, -1, NULL);
}

static le_hold *fences[3];

static void
before_fencing(void)
{
	static const char *const names[] = {"f", "g"};

	fences[0] = must_lock(a, "h");
	if (le_acquire(a, names, 2, NULL, PATIENCE, &fences[1], &error) != LE_OK ||
		le_campaign(a, "f", "me", PATIENCE, &fences[2], &error) != LE_OK)
		die("%s", error.message);
	query(db, "BEGIN");
}

static void
fencing(void)
{
	for (int i = 0; i < 3; i++)
		answered(le_fence(fences[i], db, &error), 0, "le_fence");
}

static void
after_fencing(void)
{
	query(db, "ROLLBACK");
	for (int i = 0; i < 3; i++)
		le_release(fences[i], 0, NULL);
}

static void
leading(void)
{
	le_leader_info info = {.size = sizeof(info)};
	le_hold *term;

	if (answered(le_campaign(a, "e", "me", PATIENCE, &term, &error), 0, "le_campaign") != LE_OK)
		return;
	if (answered(le_leader(a, "e", &info, &error), 0, "le_leader") == LE_OK)
		expect(info.term == le_token(term) && strcmp(info.candidate, "me") == 0,
			   "le_leader returns the own term");
	if (answered(le_proclaim(term, "still me", &error), network(), "le_proclaim") == LE_OK &&
		answered(le_leader(a, "e", &info, &error), 0, "le_leader") == LE_OK)
		expect(strcmp(info.candidate, "still me") == 0, "le_leader returns the proclaimed text");
	answered(le_resign(term, &error), network(), "le_resign");
}

static le_hold *observed;
static _Atomic int64_t seen;
static _Atomic int proclaimed;

static void
on_change(const le_change *change, void *arg)
{
	(void) arg;
	seen = change->term;
	proclaimed += strcmp(change->how, "proclaimed") == 0;
}

static void
before_observing(void)
{
	if (le_campaign(b, "o", "them", PATIENCE, &observed, &error) != LE_OK)
		die("%s", error.message);
	seen = proclaimed = 0;
}

static void
observing(void)
{
	le_observer *observer;

	if (answered(le_observe(a, "o", -1, on_change, NULL, &observer, &error), 0, "le_observe") == LE_OK)
	{
		eventually_quietly(seen == le_token(observed));
		expect(seen == le_token(observed), "the observer sees the leader");
		if (answered(le_proclaim(observed, "us", &error), network(), "le_proclaim") == LE_OK)
		{
			eventually_quietly(proclaimed > 0);
			expect(proclaimed > 0, "the observer sees a change");
		}
	}
	le_unobserve(observer);
}

static void
after_observing(void)
{
	le_resign(observed, NULL);
}

static _Atomic int elected;

static int
on_elected(le_hold *term, void *arg)
{
	(void) arg;
	elected += le_valid(term);
	eventually_quietly(seen > 0);
	return 1;
}

static void
on_new_leader(const char *candidate, int64_t term, void *arg)
{
	(void) candidate;
	(void) arg;
	if (term != 0)
		seen = term;
}

static void
running(void)
{
	le_callbacks callbacks = {
		.size = sizeof(callbacks), .on_elected = on_elected, .on_new_leader = on_new_leader};
	le_runner *runner;

	seen = elected = 0;
	if (answered(le_run(a, "r", "me", &callbacks, &runner, &error), 0, "le_run") != LE_OK)
		return;
	answered(le_set_candidate(runner, "still me", &error), 0, "le_set_candidate");
	eventually_quietly(elected > 0 && seen > 0);
	expect(elected == 1, "the runner is elected once");
	expect(seen > 0, "the runner sees the leader");
	answered(le_stop(runner, &error), 0, "le_stop");
}

static le_hold *kept, *queued[2];

static void
before_reconnecting(void)
{
	kept = must_lock(a, "kept");
	blocks = must_lock(b, "w");
	for (int i = 0; i < 2; i++)
		queued[i] = enqueue(a, "w");
	eventually_quietly(le_position(queued[1]) > 0);
}

/* Holds and waiting requests survive a lost connection. */
static void
reconnecting(void)
{
	le_leader_info info = {.size = sizeof(info)};

	break_connection();
	answered(le_leader(a, "e", &info, &error), 0, "le_leader");
	expect(le_valid(kept), "a hold survives a lost connection");
	give_back(blocks);
	for (int i = 0; i < 2; i++)
	{
		if (answered(le_await(queued[i], PATIENCE, &error), 0, "le_await") == LE_OK)
			expect(le_valid(queued[i]), "a waiting request is granted after a lost connection");
		give_back(queued[i]);
	}
	give_back(kept);
}

static void
before_reopening(void)
{
	query(db, "SELECT revoke_lease(%" PRId64 ")", le_lease(a));
	break_connection();
	eventually_quietly(le_get_state(a) == LE_ENDED);
}

static void
reopening(void)
{
	le_hold *held;

	if (answered(le_reopen(a, &error), 0, "le_reopen") == LE_OK &&
		answered(lock(a, "x", PATIENCE, &held), 0, "le_acquire") == LE_OK)
		give_back(held);
}

static void
after_reopening(void)
{
	expect(le_reopen(a, &error) == LE_OK, "the session can be reopened");
}

static const struct
{
	const char *name;
	void (*before)(void), (*run)(void), (*after)(void);
} chapters[] = {
	{"opening", nothing, opening, after_opening},
	{"closing", before_closing, closing, after_closing},
	{"orphaning", before_closing, orphaning, after_closing},
	{"acquiring", nothing, acquiring, nothing},
	{"waiting", before_waiting, waiting, nothing},
	{"listening", before_listening, listening, after_listening},
	{"fencing", before_fencing, fencing, after_fencing},
	{"leading", nothing, leading, nothing},
	{"observing", before_observing, observing, after_observing},
	{"running", nothing, running, nothing},
	{"reconnecting", before_reconnecting, reconnecting, nothing},
	{"reopening", before_reopening, reopening, after_reopening},
};

/* --- all of them --- */

/* Chooses the next call that fails. Calls that fail alike in large numbers are tried only in part. */
static int
next_run(void)
{
	return run + 1 + (kind == TRIFLES || kind == READS ? run / 8 : 0);
}

static void
repeat(size_t chapter)
{
	int64_t start = le_now();
	int runs = 0;
	char name[80];

	wrong = 0;
	for (run = 1, struck = 1; struck && run < CALLS_MAX && wrong < 10; run = next_run())
	{
		chapters[chapter].before();
		struck = 0;
		left = run;
		failing = kind;
		chapters[chapter].run();
		failing = NONE;
		chapters[chapter].after();
		expect(le_get_state(a) != LE_ENDED && le_get_state(b) != LE_ENDED, "the sessions continue");
		runs++;
	}
	printf("# %d runs, %d ms\n", runs, (int) (le_now() - start));
	snprintf(name, sizeof(name), "%s: %s", kind_names[kind], chapters[chapter].name);
	ok(!struck && wrong == 0, name);
	snprintf(name, sizeof(name), "%s: nothing is left", kind_names[kind]);
	eventually(strcmp(query(db, "SELECT count(*) FROM lock_election.look()"), "0") == 0, name);
}

static int
tests_of_kind(void)
{
	char info[1000], one[1100];
	le_options o;

	snprintf(info, sizeof(info), "%s dbname=%s", conninfo, kind_names[kind]);
	snprintf(one, sizeof(one), "%s application_name=one", info);
	conninfo = info;
	o = options_of(600000);
	o.poll_ms = 20;
	db = connect_db();
	query(db, "SET client_min_messages = error");
	query(db, "CREATE EXTENSION lock_election");
	b = open_with(&o);
	o.conninfo = one;
	a = open_with(&o);
	for (size_t i = 0; i < sizeof(chapters) / sizeof(chapters[0]); i++)
		repeat(i);
	le_close(a, -1, NULL);
	le_close(b, -1, NULL);
	PQfinish(db);
	return done_testing();
}

/* Prints the test results of a child process as results of this process. */
static void
tell(FILE *from)
{
	char line[1000];

	while (fgets(line, sizeof(line), from) != NULL)
	{
		const char *name = strstr(line, " - ");

		line[strcspn(line, "\n")] = '\0';
		if (name != NULL && (strncmp(line, "ok ", 3) == 0 || strncmp(line, "not ok ", 7) == 0))
			ok(line[0] == 'o', name + 3);
		else if (strncmp(line, "1..", 3) != 0)
			printf("%s\n", line);
	}
	fclose(from);
}

static void
tests(void)
{
	pid_t children[KINDS];
	FILE *output[KINDS];
	int fds[2], status;

	db = connect_db();
	for (kind = MEMORY; kind < KINDS; kind++)
		query(db, "CREATE DATABASE %s", kind_names[kind]);
	PQfinish(db);
	for (kind = MEMORY; kind < KINDS; kind++)
	{
		if (pipe(fds) != 0 || (children[kind] = fork()) < 0)
			die("no process");
		if (children[kind] == 0)
		{
			dup2(fds[1], STDOUT_FILENO);
			close(fds[0]);
			close(fds[1]);
			exit(tests_of_kind());
		}
		close(fds[1]);
		output[kind] = fdopen(fds[0], "r");
	}
	for (kind = MEMORY; kind < KINDS; kind++)
	{
		tell(output[kind]);
		waitpid(children[kind], &status, 0);
		is_int(status, 0, "the process of a kind exits with 0");
	}
}

int
main(int argc, char **argv)
{
	return run_tests(argc, argv, tests);
}
