/*
 * A transaction with very many holds: its end must not delay the manager's other
 * requests for longer than it takes to look at each hold once.
 */
/* Promises: - */
#include <time.h>

#include "fixture.h"

#define MANY 100000
/* A manager that does not run for so long counts as stalled. */
#define STALL ((double) CLOCKS_PER_SEC)

static LeReply
acquire_numbered(uint32_t session, int number, uint32_t subxact)
{
	char name[32];
	LeCommand cmd;

	snprintf(name, sizeof(name), "lock %d", number);
	cmd = request(session, name, X, 0);
	cmd.subxact = subxact;
	return apply(cmd);
}

static void
test_one_lock(void)
{
	clock_t begun;

	start();
	for (int i = 0; i < MANY; i++)
		acquire_as(1, "x", X, "me");
	batch();
	begun = clock();
	commit(1);
	is_int(acquire(1, "y", X).status, LE_OK, "a commit of very many holds of one lock");
	ok(clock() - begun < STALL, "is forgotten at once");
	stop();

	start();
	acquire_as(1, "x", X, "me");
	batch();
	commit(1);
	for (int i = 0; i < MANY; i++)
		acquire_as(1, "x", X, "me");
	batch();
	begun = clock();
	undo(1, 1);
	ok(clock() - begun < STALL, "so is a rollback");
	is_int(acquire(2, "x", X).status, LE_WAITING, "which leaves the hold of before");
	stop();
}

static void
test_many_locks(void)
{
	clock_t begun;

	start();
	for (int i = 0; i < MANY; i++)
		acquire_numbered(1, i, i < MANY / 2 ? 1 : 2);
	batch();
	begun = clock();
	undo(1, 2);
	ok(clock() - begun < STALL, "a rollback to a savepoint behind very many locks");
	batch();
	is_int(acquire_numbered(2, MANY - 1, 1).status, LE_OK, "gives back what came after it");
	is_int(acquire_numbered(2, 0, 1).status, LE_NOT_GRANTED, "and nothing else");
	stop();
}

/* Holds of one entry side by side and apart, when its end takes them all. */
static void
test_mixed(void)
{
	LeReply x;

	start();
	x = acquire_as(1, "x", X, "me");
	acquire_as(1, "x", X, "me");
	acquire_as(1, "y", X, "me");
	acquire_as(1, "x", X, "me");
	acquire_as(1, "z", X, "me");
	release(2, "x", x.token);
	release(2, "x", x.token);
	undo(1, 1);
	batch();
	is_int(acquire(3, "x", X).status, LE_OK, "a lock with fewer holds left than were taken");
	is_int(acquire(3, "y", X).status, LE_OK, "is undone with those");
	is_int(acquire(3, "z", X).status, LE_OK, "that lie between");
	stop();
}

int
main(void)
{
	test_one_lock();
	test_many_locks();
	test_mixed();
	return done_testing();
}
