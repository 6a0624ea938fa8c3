/*
 * A transaction with very many holds: its end must not delay the manager's other
 * requests for longer than one pass over all holds takes.
 */
/* Promises: - */
#include <time.h>

#include "fixture.h"

#define MANY 100000
/* clock ticks; a manager that does not run for a second counts as stalled */
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
	is_int(acquire(1, "y", X).status, LE_OK, "a lock is acquired after a commit of very many holds");
	ok(clock() - begun < STALL, "a commit of very many holds of one lock is fast");
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
	ok(clock() - begun < STALL, "a rollback of very many holds of one lock is fast");
	is_int(acquire(2, "x", X).status, LE_WAITING, "the rollback keeps the hold of an earlier transaction");
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
	ok(clock() - begun < STALL, "a rollback to a savepoint after very many locks is fast");
	batch();
	is_int(acquire_numbered(2, MANY - 1, 1).status, LE_OK,
		   "the rollback to the savepoint releases a later lock");
	is_int(acquire_numbered(2, 0, 1).status, LE_NOT_GRANTED,
		   "the rollback to the savepoint releases no earlier lock");
	stop();
}

/* Holds of one entry, adjacent and separate, when the end of the entry removes them all. */
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
	is_int(acquire(3, "x", X).status, LE_OK,
		   "the first of three interleaved locks is free after the rollback");
	is_int(acquire(3, "y", X).status, LE_OK,
		   "the second of three interleaved locks is free after the rollback");
	is_int(acquire(3, "z", X).status, LE_OK,
		   "the third of three interleaved locks is free after the rollback");
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
