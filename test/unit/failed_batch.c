/* A failed batch: the stored state is loaded again, and work continues from there. */
/* Promises: D */
#include "fixture.h"

#define OLD (FIRST - 1000)

/*
 * A place ends, and its waiter repeats its request with the same token: the new entry is found, not the old
 * one.
 */
static void
test_ended_and_asked_again(void)
{
	LeStoredEntry row;
	LeCommand cmd;
	LeCore *failed;

	start_load();
	row = stored("x", OLD, X);
	row.lease = OLD - 1;
	load_place(row);
	load_done();
	ok(find_token(OLD) == NULL, "a place whose lease is gone has ended");
	cmd = request(1, "x", X, LE_WAIT_FOREVER);
	cmd.revision = OLD;
	apply(cmd);
	now += 4 * LE_SECOND;
	failed = start_reload();
	load_slot(stored("x", OLD, X));
	load_done();
	is_int(le_entry_time_left(find_token(OLD), now), TTL - 4 * LE_SECOND,
		   "the lock of the repeated request keeps its deadline");
	batch();
	le_core_destroy(failed);
	stop();
}

int
main(void)
{
	test_ended_and_asked_again();
	return done_testing();
}
