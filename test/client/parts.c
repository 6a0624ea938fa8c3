/*
 * parts.c
 *		The parts of the library that need no session of their own: time, texts,
 *		structs, pipes, errors, queued states, deadlines.
 */
#include "client.h"

#include <fcntl.h>

#include "arguments.h"
#include "error.h"
#include "fake.h"
#include "state.h"
#include "text.h"

/* --- time --- */

static void
numbers(void)
{
	int64_t before, at, low = LE_SEC_NS, high = 0;

	is_int(le_ms_up(INT64_MIN), 0, "le_ms_up of a negative time is 0");
	is_int(le_ms_up(0), 0, "le_ms_up of 0 is 0");
	is_int(le_ms_up(1), 1, "milliseconds are rounded up");
	is_int(le_ms_up(LE_MS_NS), 1, "whole milliseconds are not rounded");
	is_int(le_ms_up(7 * LE_MS_NS + 1), 8, "one nanosecond more is rounded up");
	is_int(le_add(2, 3), 5, "le_add returns the sum");
	is_int(le_add(LE_NEVER - 1, 1), LE_NEVER, "the greatest sum is LE_NEVER");
	is_int(le_add(LE_NEVER, 1), LE_NEVER, "a sum above LE_NEVER is LE_NEVER");

	is_int(le_until(-1), LE_NEVER, "le_until(-1) is LE_NEVER");
	before = le_now_ns();
	at = le_until(0);
	ok(at >= before && at <= le_now_ns(), "le_until(0) is now");
	at = le_until(INT32_MAX);
	ok(at >= before + INT32_MAX * LE_MS_NS && at <= le_now_ns() + INT32_MAX * LE_MS_NS,
	   "le_until of the longest limit");
	is_int(le_until_point(INT64_MIN), 0, "le_until_point of a past time");
	is_int(le_until_point(1), LE_MS_NS, "le_until_point of the first millisecond");
	is_int(le_until_point(LE_NEVER / LE_MS_NS - 1), (LE_NEVER / LE_MS_NS - 1) * LE_MS_NS,
		   "le_until_point of the last millisecond");
	is_int(le_until_point(LE_NEVER), LE_NEVER, "le_until_point of LE_NEVER");
	at = le_now_ns() / LE_MS_NS;
	ok(le_now() >= at && le_now() <= le_now_ns() / LE_MS_NS, "le_now() is the same clock in milliseconds");

	for (int i = 0; i < 2000; i++)
	{
		at = le_jitter(LE_SEC_NS);
		low = at < low ? at : low;
		high = at > high ? at : high;
	}
	ok(low >= LE_SEC_NS * 9 / 10 && low < LE_SEC_NS * 92 / 100, "the jitter reaches down to nine tenths");
	ok(high <= LE_SEC_NS * 11 / 10 && high > LE_SEC_NS * 108 / 100, "the jitter reaches up to eleven tenths");
	ok(le_random() != le_random(), "two random numbers differ");
}

/*
 * Returns whether programs that the application starts do not inherit the descriptor, and whether it does not
 * block.
 */
static bool
is_ours(int fd)
{
	return (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0 && (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0;
}

static void
pipes(void)
{
	int fds[2];
	struct pollfd fd = {.events = POLLIN};

	ok(le_pipe(fds) && is_ours(fds[0]) && is_ours(fds[1]), "a pipe");
	fd.fd = fds[0];
	for (int i = 0; i < 70000; i++)
		le_wake(fds);
	is_int(poll(&fd, 1, 0), 1, "a full pipe still wakes up");
	le_drain(fds);
	is_int(poll(&fd, 1, 0), 0, "le_drain empties the pipe");
	le_drain(fds);
	close(fds[0]);
	close(fds[1]);
}

static void
polls(void)
{
	int fds[2];
	struct pollfd both[2] = {{.fd = -1, .events = POLLIN}, {.events = POLLIN, .revents = POLLIN}};
	int64_t until;

	if (!le_pipe(fds))
		die("no pipe");
	both[1].fd = fds[0];
	le_poll(both, 2, le_now_ns() - 1);
	is_int(both[1].revents, 0, "le_poll until a past time returns immediately");
	until = le_until(120);
	both[1].revents = POLLIN;
	le_poll(both, 2, until);
	ok(le_now_ns() >= until, "le_poll until a future time does not return earlier");
	is_int(both[1].revents, 0, "le_poll without an event returns no event");
	until = le_now_ns();
	le_poll(both, 2, LE_NEVER);
	ok(le_now_ns() >= until + 900 * LE_MS_NS,
	   "le_poll without a limit returns after a second, to read the other clock");
	le_wake(fds);
	le_poll(both, 2, le_now_ns() - 1);
	ok(both[1].revents == POLLIN && both[0].revents == 0,
	   "le_poll until a past time returns a ready descriptor");
	le_poll(both, 2, LE_NEVER);
	ok(both[1].revents == POLLIN, "le_poll without a limit returns a ready descriptor");
	close(fds[0]);
	close(fds[1]);
}

static void
waits(void)
{
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t cond;
	int early = 0;
	int64_t start;

	polls();
	is_int(le_cond_init(&cond), 0, "a condition");
	pthread_mutex_lock(&lock);
	le_cond_wait(&cond, &lock, le_now_ns() - 1);
	/* the times are on both sides of a full second */
	for (int i = 0; i < 25; i++)
	{
		int64_t until = le_until(50);

		le_cond_wait(&cond, &lock, until);
		early += le_now_ns() < until - 5 * LE_MS_NS;
	}
	ok(early <= 2, "le_cond_wait waits until a point of time");
	start = le_now();
	le_cond_wait(&cond, &lock, le_until(20000));
	ok(le_now() >= start + 900 && le_now() < start + 15000,
	   "le_cond_wait returns after a second, to read the other clock");
	pthread_mutex_unlock(&lock);
	pthread_cond_destroy(&cond);
}

/* --- texts and structs --- */

/* Texts of all lengths, so that each limit of a buffer is reached. */
static void
texts(void)
{
	char many[1200];
	int wrong = 0;

	memset(many, 'm', sizeof(many));
	for (size_t n = 0; n < sizeof(many); n++)
	{
		le_text one = {0};
		char *copy;

		many[n] = '\0';
		le_text_add_bytes(&one, many, n);
		wrong += one.failed || one.len != n || strcmp(one.data, many) != 0;
		le_text_add(&one, "%s-%d", "text", 7);
		wrong += one.failed || one.len != n + 6 || strncmp(one.data, many, n) != 0 ||
				 strcmp(one.data + n, "text-7") != 0;
		copy = le_copy(one.data);
		wrong += strcmp(copy, one.data) != 0;
		free(copy);
		free(one.data);
		many[n] = 'm';
	}
	is_int(wrong, 0, "texts of all lengths");

	le_text failed = {.failed = true}, bytes = {0};
	le_text_add(&failed, "x");
	ok(failed.failed && failed.len == 0, "a failed text stays failed");
	le_text_add_bytes(&bytes, "a\0b", 3);
	ok(bytes.len == 3 && memcmp(bytes.data, "a\0b", 4) == 0, "bytes with a zero are added");
	many[sizeof(many) - 1] = '\0';
	le_text_add(&bytes, "%s", many);
	ok(bytes.failed && bytes.len == 3, "a text that is too long is not added");
	free(bytes.data);
}

typedef struct
{
	size_t size;
	char bytes[120000];
} sized;

static void
structs(void)
{
	static sized from, to;
	const size_t ours = 64, most = 65536;

	for (size_t i = 0; i < sizeof(from.bytes); i++)
		from.bytes[i] = 'x';
	from.size = sizeof(size_t) - 1;
	is_status(le_struct_read(&to, ours, &from, "s", &error), LE_INVALID,
			  "le_struct_read: a size without room for itself");
	is_status(le_struct_check(&from, sizeof(size_t), "s", &error), LE_INVALID,
			  "le_struct_check: a size without room for itself");
	from.size = sizeof(size_t);
	memset(&to, 'y', sizeof(to));
	is_status(le_struct_read(&to, ours, &from, "s", &error), LE_OK, "le_struct_read: only a size");
	ok(to.size == ours && to.bytes[0] == 0 && to.bytes[ours - sizeof(size_t) - 1] == 0 &&
		   to.bytes[ours - sizeof(size_t)] == 'y',
	   "le_struct_read: the known rest is zero");
	is_status(le_struct_check(&from, sizeof(size_t), "s", &error), LE_OK, "le_struct_check: the least size");
	from.size = ours + 1;
	is_status(le_struct_read(&to, ours, &from, "s", &error), LE_INVALID,
			  "le_struct_read: an unknown byte that is not zero");
	from.bytes[ours - sizeof(size_t)] = 0;
	is_status(le_struct_read(&to, ours, &from, "s", &error), LE_OK,
			  "le_struct_read: an unknown byte that is zero");
	ok(to.size == ours && to.bytes[ours - sizeof(size_t) - 1] == 'x' &&
		   to.bytes[ours - sizeof(size_t)] == 'y',
	   "le_struct_read: the known bytes are read");
	memset(from.bytes, 0, sizeof(from.bytes));
	from.size = most;
	is_status(le_struct_read(&to, ours, &from, "s", &error), LE_OK, "le_struct_read: the largest size");
	is_status(le_struct_check(&from, ours, "s", &error), LE_OK, "le_struct_check: the largest size");
	from.size = most + 1;
	is_status(le_struct_read(&to, ours, &from, "s", &error), LE_INVALID,
			  "le_struct_read: a size that was never set");
	is_status(le_struct_check(&from, ours, "s", &error), LE_INVALID,
			  "le_struct_check: a size that was never set");

	memset(&to, 'y', sizeof(to));
	memset(from.bytes, 'x', sizeof(from.bytes));
	to.size = ours + 2;
	le_struct_write(&to, &from, ours);
	ok(to.size == ours + 2 && to.bytes[0] == 'x' && to.bytes[ours - sizeof(size_t) - 1] == 'x' &&
		   to.bytes[ours - sizeof(size_t)] == 0 && to.bytes[ours + 1 - sizeof(size_t)] == 0 &&
		   to.bytes[ours + 2 - sizeof(size_t)] == 'y',
	   "le_struct_write fills a larger struct, and nothing after it");
}

/* --- errors --- */

static const struct
{
	const char *sqlstate;
	le_status status;
	bool passes, ends;
} codes[] = {
	{"LE001", LE_LOST, false, false},        {"40P01", LE_DEADLOCK, false, false},
	{"53200", LE_LIMIT, false, false},       {"53400", LE_LIMIT, false, false},
	{"42501", LE_DENIED, false, false},      {"28P01", LE_DENIED, false, false},
	{"22023", LE_INVALID, false, false},     {"08007", LE_UNKNOWN, true, true},
	{"57014", LE_UNKNOWN, true, false},      {"40003", LE_UNKNOWN, true, false},
	{"55000", LE_UNAVAILABLE, false, false}, {"57P01", LE_UNAVAILABLE, true, true},
	{"57P02", LE_UNAVAILABLE, true, true},   {"57P03", LE_UNAVAILABLE, true, true},
	{"57P05", LE_UNAVAILABLE, true, false},  {"53300", LE_UNAVAILABLE, true, true},
	{"53100", LE_UNAVAILABLE, true, false},  {"08006", LE_UNAVAILABLE, true, true},
	{"25006", LE_UNAVAILABLE, true, true},   {"42883", LE_UNAVAILABLE, false, false},
	{"3F000", LE_UNAVAILABLE, false, false}, {"3D000", LE_UNAVAILABLE, true, false},
	{"55P03", LE_UNAVAILABLE, true, false},  {"58030", LE_UNAVAILABLE, true, false},
	{"40001", LE_FAILED, true, false},       {"XX000", LE_FAILED, true, false},
	{"23505", LE_FAILED, false, false},
};

/* Errors as the server sends them, and their consequences. */
static void
errors(PGconn *db)
{
	le_error got, copy;

	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
	{
		char sql[200];
		PGresult *result;

		snprintf(sql, sizeof(sql), "DO $$BEGIN RAISE 'told' USING ERRCODE = '%s'%s; END$$", codes[i].sqlstate,
				 i == 0 ? ", HINT = 'do this'" : "");
		result = PQexec(db, sql);
		is_status(le_error_result(&got, result), codes[i].status, codes[i].sqlstate);
		ok(got.status == codes[i].status && strcmp(got.sqlstate, codes[i].sqlstate) == 0 &&
			   strcmp(got.message, i == 0 ? "told (do this)" : "told") == 0,
		   "the code and the message are those of the server");
		is_int(le_error_passes(&got), codes[i].passes, "whether the error is temporary");
		is_int(le_error_ends_connection(&got), codes[i].ends, "whether the error ends the connection");
		PQclear(result);
	}
	is_status(le_error_copy(&copy, &got), LE_FAILED, "le_error_copy returns the status");
	ok(memcmp(&copy, &got, sizeof(copy)) == 0, "le_error_copy copies the whole error");
	is_status(le_error_copy(NULL, &got), LE_FAILED, "le_error_copy to NULL returns the status");
	is_status(le_error_clear(&copy), LE_OK, "le_error_clear returns LE_OK");
	ok(copy.status == LE_OK && copy.sqlstate[0] == '\0' && copy.message[0] == '\0',
	   "le_error_clear clears the whole error");
	le_error_clear(NULL);
	is_status(le_error_set(&copy, LE_LOST, "", "%d", 7), LE_LOST, "le_error_set returns the status");
	ok(copy.status == LE_LOST && copy.sqlstate[0] == '\0' && strcmp(copy.message, "7") == 0,
	   "le_error_set sets an error without a code");
	is_status(le_connection_error(NULL, &copy), LE_NO_MEMORY, "le_connection_error without a connection");
	ok(strcmp(copy.message, "out of memory") == 0, "le_connection_error without a connection: the message");
}

/* --- what belongs to a session --- */

/*
 * Changes of the state are queued in order, up to the size of the queue. Beyond that, an end and the last
 * state are kept.
 */
static void
states(void)
{
	le_session *s = new_session();
	int wrong = 0;

	atomic_store(&s->state, LE_CONNECTED);
	le_set_state(s, LE_CONNECTED);
	is_int(s->nstates, 0, "an unchanged state is not queued");
	for (int i = 0; i < LE_STATES_MAX; i++)
		le_set_state(s, i % 2 == 0 ? LE_SUSPENDED : LE_CONNECTED);
	for (int i = 0; i < LE_STATES_MAX; i++)
		wrong += s->states[i] != (i % 2 == 0 ? LE_SUSPENDED : LE_CONNECTED);
	is_int(wrong, 0, "changes are queued in order");
	le_set_state(s, LE_SUSPENDED);
	ok(s->nstates == LE_STATES_MAX && s->states[LE_STATES_MAX - 1] == LE_SUSPENDED &&
		   s->states[LE_STATES_MAX - 2] == LE_SUSPENDED && s->states[0] == LE_SUSPENDED,
	   "the last of too many changes is kept");
	le_set_state(s, LE_ENDED);
	le_set_state(s, LE_CONNECTED);
	ok(s->nstates == LE_STATES_MAX && s->states[LE_STATES_MAX - 2] == LE_ENDED &&
		   s->states[LE_STATES_MAX - 1] == LE_CONNECTED,
	   "an end and the state after it are kept");
	le_set_state(s, LE_SUSPENDED);
	ok(s->states[LE_STATES_MAX - 2] == LE_ENDED && s->states[LE_STATES_MAX - 1] == LE_SUSPENDED,
	   "an end is kept when more changes follow");
	is_int(atomic_load(&s->state), LE_SUSPENDED, "the state itself is the last one");
	free_session(s);
}

/* --- the deadline, before any thread has noticed it --- */

static void
deadlines(void)
{
	le_session *s = new_session();
	le_hold *holds[3];
	int met = 0, wrong = 0;

	s->refs = 100;
	s->process = getpid();
	atomic_store(&s->state, LE_CONNECTED);
	atomic_store(&s->deadline, LE_NEVER);
	for (int i = 0; i < 2; i++)
		holds[i] = new_hold(s, LE_HELD, 1 + i, LE_PHASE_GRANTED, LE_HOLD_HELD);
	atomic_store(&holds[0]->token, 1);

	/* tests the last moments before the deadline */
	for (int i = 0; i < 10000 && met < 100; i++)
	{
		int64_t deadline = le_now_ns() + LE_MS_NS / 2;
		bool valid;

		atomic_store(&s->deadline, deadline);
		valid = le_valid(holds[0]) && le_hold_time_left(holds[0]) == 1;
		if (le_now_ns() >= deadline)
			continue;
		met++;
		wrong += !valid;
	}
	ok(met > 0 && wrong == 0, "a hold is valid up to its deadline");
	atomic_store(&s->deadline, le_now_ns());
	ok(!le_valid(holds[0]) && le_hold_time_left(holds[0]) == 0, "a hold is invalid from its deadline on");
	is_int(atomic_load(&s->state), LE_CONNECTED, "no thread has noticed the deadline");
	is_status(le_release(holds[0], 0, &error), LE_LOST, "a release after the deadline returns LE_LOST");
	is_int(atomic_load(&s->state), LE_ENDED, "the release ends the session");
	is_int(atomic_load(&holds[1]->state), LE_HOLD_OVER, "the end of the session ends its other holds");
	is_int(holds[0]->refs, 98, "the released hold is freed");
	is_status(le_await(holds[1], 0, &error), LE_LOST, "another hold of the ended session is lost");

	atomic_store(&s->state, LE_CONNECTED);
	holds[2] = new_hold(s, LE_HELD, 3, LE_PHASE_GRANTED, LE_HOLD_HELD);
	is_status(le_await(holds[2], 0, &error), LE_LOST, "le_await after the deadline returns LE_LOST");
	is_int(s->refs, 100, "no references to the session are kept");
	for (int i = 0; i < 3; i++)
	{
		pthread_cond_destroy(&holds[i]->changed);
		free(holds[i]);
	}
	free_session(s);
}

static void
tests(void)
{
	PGconn *db = connect_db();

	numbers();
	pipes();
	waits();
	texts();
	structs();
	errors(db);
	states();
	deadlines();
	PQfinish(db);
}

int
main(int argc, char **argv)
{
	return run_tests(argc, argv, tests);
}
