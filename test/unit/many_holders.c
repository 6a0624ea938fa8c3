/*
 * A lock with very many holders: who asks for it, has it or leaves it must not
 * keep the manager from everybody else's requests while it looks at each.
 */
#include <time.h>

#include "fixture.h"

#define HOLDERS  20000
#define REQUESTS 20000
/* A manager that does not run for so long counts as stalled. */
#define STALL ((double) CLOCKS_PER_SEC)

/* Each in a transaction of its own. */
static void
fill(void)
{
	start();
	for (int i = 0; i < HOLDERS; i++)
	{
		acquire(1, "x", S);
		commit(1);
	}
	batch();
}

static void
test_sessions(void)
{
	clock_t begun;
	int n = 0;
	LeReply own;

	fill();
	own = apply(request(2, "x", S, 0));
	commit(2);
	begun = clock();
	for (int i = 0; i < REQUESTS; i++)
	{
		n += apply(request(3, "x", X, 0)).own;
		n += release(3, "x", 0).status == LE_OK;
		n += !apply(request(2, "x", X, 0)).own;
		n += on_token(LE_CMD_CHECK, 2, "x", 0).token != own.token;
	}
	ok(clock() - begun < STALL, "tries and releases of sessions that hold little, or nothing");
	is_int(n, 0, "have the right answers");
	batch();
	stop();
}

int
main(void)
{
	test_sessions();
	return done_testing();
}
