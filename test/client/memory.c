/*
 * memory.c
 *		Allocations of the library and of libpq that fail: every call returns the
 *		error, and the session survives it.
 */
#include "client.h"

#include <errno.h>

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CAN_FAIL 1
#endif

static _Atomic int one_in; /* one of so many allocations fails; 0: none */
static _Atomic unsigned failed;

#ifdef CAN_FAIL
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *old, size_t size);

static _Atomic unsigned asked;

static bool
fails(void)
{
	int n = one_in;

	if (n == 0 || (asked++ * 2654435761u >> 8) % (unsigned) n != 0)
		return false;
	failed++;
	errno = ENOMEM;
	return true;
}

void *
malloc(size_t size)
{
	return fails() ? NULL : __libc_malloc(size);
}

void *
calloc(size_t n, size_t size)
{
	return fails() ? NULL : __libc_calloc(n, size);
}

void *
realloc(void *old, size_t size)
{
	return fails() ? NULL : __libc_realloc(old, size);
}
#endif

static _Atomic int changes;

static void
on_change(const le_change *change, void *arg)
{
	(void) arg;
	changes += change->leads;
}

static int
on_elected(le_hold *term, void *arg)
{
	(void) arg;
	le_wait_stop(term, 5);
	return 0;
}

static void
round_of(le_session *a, le_session *b)
{
	static const char *const names[] = {"x", "y"};
	le_callbacks callbacks = {.size = sizeof(callbacks), .on_elected = on_elected};
	le_leader_info info = {.size = sizeof(info)};
	le_observer *observer;
	le_runner *runner;
	le_hold *held, *next;

	if (le_observe(a, "e", 0, on_change, NULL, &observer, NULL) != LE_OK)
		observer = NULL;
	if (le_run(b, "e", "b", &callbacks, &runner, NULL) != LE_OK)
		runner = NULL;
	if (le_acquire(a, names, 2, NULL, 50, &held, &error) == LE_OK)
	{
		if (le_enqueue(b, names, 1, NULL, &next, NULL) == LE_OK)
		{
			le_release(held, 0, NULL);
			le_await(next, 50, NULL);
			le_drop(next);
		}
		else
			le_drop(held);
	}
	le_leader(a, "e", &info, NULL);
	le_stop(runner, NULL);
	le_unobserve(observer);
}

static void
tests(void)
{
	PGconn *db = connect_db();
	le_session *a, *b, *c;
	char hosts[1000];
	int opened = 0;

	/* every second time with several hosts */
	snprintf(hosts, sizeof(hosts), "%s host=%s,%s port=%s,%s", conninfo, PQhost(db), PQhost(db), PQport(db),
			 PQport(db));
	for (int i = 0; i < 80; i++)
	{
		le_options o = {.size = sizeof(o), .conninfo = i % 2 == 0 ? conninfo : hosts};

		one_in = 10 + 3 * (i / 2);
		if (le_open(&o, &c, &error) == LE_OK)
		{
			opened++;
			le_close(c, -1, NULL);
		}
		one_in = 0;
	}
	printf("# %d of 80 sessions were opened\n", opened);

	/*
	 * A connection needs many allocations, so it can take a while until all of one succeed; no lease may end
	 * meanwhile.
	 */
	a = open_session(600000);
	b = open_session(600000);
	for (int i = 0; i < 100; i++)
	{
		one_in = 20 + 20 * (i % 10);
		round_of(a, b);
	}
	one_in = 0;
	printf("# %u allocations have failed\n", failed);
#ifdef CAN_FAIL
	ok(failed > 100, "more than 100 allocations have failed");
#endif
	ok(le_get_state(a) != LE_ENDED && le_get_state(b) != LE_ENDED, "the sessions have not ended");
	eventually(strcmp(query(db, "SELECT count(*) FROM lock_election.look()"), "0") == 0,
			   "the sessions have released everything");
	changes = 0;
	/* a busy machine can be too slow for one round */
	for (int i = 0; i < 100 && changes == 0; i++)
		round_of(a, b);
	ok(changes > 0, "the sessions work after the failures");
	is_status(le_close(a, -1, &error), LE_OK, "the first session is closed");
	is_status(le_close(b, -1, &error), LE_OK, "the second session is closed");
	PQfinish(db);
}

int
main(int argc, char **argv)
{
	return run_tests(argc, argv, tests);
}
