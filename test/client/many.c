/*
 * many.c
 *		Very many holds and waiters of one session, on one connection.
 */
#include "client.h"

#define MANY 1000

static PGconn *db;
static le_hold *holds[MANY], *waiters[MANY];

static int
statements(void)
{
	return atoi(ask("statements"));
}

static void
wait_for_all(void)
{
	le_session *a = open_session(60000), *b = open_session(60000);
	le_hold *gate = must_lock(a, "gate");
	char name[32];
	const char *names[] = {name};
	int granted = 0, positions = 0;
	int64_t start;

	for (int i = 0; i < MANY; i++)
	{
		snprintf(name, sizeof(name), "n%d", i);
		le_acquire(a, names, 1, NULL, 0, &holds[i], &error);
	}
	for (int i = 0; i < MANY; i++)
	{
		snprintf(name, sizeof(name), "n%d", i);
		waiters[i] = enqueue(b, i % 2 ? name : "gate");
	}
	for (int i = 0; i < MANY; i++)
	{
		eventually_quietly(le_position(waiters[i]) > 0);
		positions += le_position(waiters[i]) > 0;
	}
	is_int(positions, MANY, "a thousand waiters");
	is_int(
		atoi(query(db, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'liblockelection'")),
		2, "each session has one connection");
	for (int i = 1; i < MANY; i += 2)
		le_drop(holds[i]);
	for (int i = 1; i < MANY; i += 2)
		granted += le_await(waiters[i], PATIENCE, &error) == LE_OK;
	is_int(granted, MANY / 2, "waiters for many names are granted");

	/* The places of one name are granted one after the other, in order of arrival. */
	start = le_now();
	le_release(gate, 0, NULL);
	granted = 0;
	for (int i = 0; i < MANY; i += 2)
	{
		granted += le_await(waiters[i], PATIENCE, &error) == LE_OK;
		le_release(waiters[i], 0, NULL);
	}
	is_int(granted, MANY / 2, "waiters for one name are granted");
	printf("# %d hand-offs within one session: %.1f ms each\n", MANY / 2, (le_now() - start) * 2.0 / MANY);
	ok(le_now() - start < MANY / 2 * 500, "grants do not wait for the next poll after 5 s");
	is_status(le_close(b, -1, &error), LE_OK, "the session of the waiters is closed");
	for (int i = 1; i < MANY; i += 2)
		le_drop(waiters[i]);
	for (int i = 0; i < MANY; i += 2)
		le_drop(holds[i]);
	is_status(le_close(a, -1, &error), LE_OK, "the session of the holders is closed");
	is_int(atoi(query(db, "SELECT count(*) FROM lock_election.look()")), 0, "nothing is left");
}

static void
renewals(void)
{
	static _Atomic int renewed;
	le_options o = options_of(4500);
	le_session *s;
	char name[32];
	const char *names[] = {name};
	le_event event;
	int before, after, valid = 0;

	o.arg = (void *) &renewed;
	s = open_with(&o);
	for (int i = 0; i < MANY; i++)
	{
		snprintf(name, sizeof(name), "n%d", i);
		if (le_acquire(s, names, 1, NULL, 0, &holds[i], &error) != LE_OK)
			die("%s", error.message);
	}
	renewed = 0;
	before = statements();
	while (renewed < 4)
	{
		struct pollfd fd = {.fd = le_fd(s), .events = POLLIN};

		poll(&fd, 1, PATIENCE);
		while (le_next_event(s, &event))
			renewed += event.kind == LE_EVENT_RENEWED;
	}
	after = statements();
	for (int i = 0; i < MANY; i++)
		valid += le_valid(holds[i]);
	is_int(valid, MANY, "a thousand holds are held");
	/* more than four if replies are late, but not one for each hold */
	ok(after - before < MANY && after - before >= 3, "a renewal is one statement for all holds");
	le_close(s, -1, NULL);
	for (int i = 0; i < MANY; i++)
		le_drop(holds[i]);
}

static int
compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *) a, y = *(const int64_t *) b;

	return (x > y) - (x < y);
}

/* Measures the time from the sending of a release until a waiter of another session knows the grant. */
static void
hand_offs(void)
{
	le_session *sessions[2] = {open_session(60000), open_session(60000)};
	le_hold *held = must_lock(sessions[0], "x"), *next;
	static int64_t took[200];
	struct timespec t;
	int64_t start;
	int held_too = 0;

	for (int i = 0; i < 200; i++)
	{
		next = enqueue(sessions[(i + 1) % 2], "x");
		eventually_quietly(le_position(next) > 0);
		usleep(2000);
		clock_gettime(CLOCK_MONOTONIC, &t);
		start = t.tv_sec * INT64_C(1000000) + t.tv_nsec / 1000;
		le_drop(held);
		held_too += le_await(next, PATIENCE, &error) == LE_OK;
		clock_gettime(CLOCK_MONOTONIC, &t);
		took[i] = t.tv_sec * INT64_C(1000000) + t.tv_nsec / 1000 - start;
		held = next;
	}
	qsort(took, 200, sizeof(took[0]), compare);
	is_int(held_too, 200, "200 hand-offs between two sessions");
	printf("# hand-off: p50 %.2f ms, p99 %.2f ms\n", took[100] / 1000.0, took[198] / 1000.0);
	ok(took[100] < 100000, "hand-offs use notifications, not polls");
	le_drop(held);
	le_close(sessions[0], -1, NULL);
	le_close(sessions[1], -1, NULL);
}

static void
tests(void)
{
	db = connect_db();
	wait_for_all();
	renewals();
	hand_offs();
	PQfinish(db);
}

int
main(int argc, char **argv)
{
	return run_tests(argc, argv, tests);
}
