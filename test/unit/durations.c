/* Durations of waits, holds and terms; the waiters, and the start of their waits. */
/* Promises: - */
#include "fixture.h"

static const LeDurations *
durations(LeDurationType type)
{
	return &le_core_stats(core)->durations[type];
}

/* Returns the bucket of the only duration of this type; -1 if there are several or none. */
static int
bucket_of(LeDurationType type)
{
	int found = -1;

	for (int i = 0; i <= LE_DURATION_BOUNDS; i++)
	{
		if (durations(type)->n[i] == 0)
			continue;
		if (found >= 0 || durations(type)->n[i] > 1)
			return -1;
		found = i;
	}
	return found;
}

/*
 * Checks that the only duration of this type is in the right bucket: longer than the previous bound, and not
 * longer than its own.
 */
static bool
is_only(LeDurationType type, LeTime length)
{
	int bucket = bucket_of(type);

	return durations(type)->count == 1 && durations(type)->sum == length && bucket >= 0 &&
		   (bucket == 0 || le_duration_bounds[bucket - 1] < length) &&
		   (bucket == LE_DURATION_BOUNDS || length <= le_duration_bounds[bucket]);
}

static void
test_buckets(void)
{
	for (int i = 0; i <= LE_DURATION_BOUNDS; i++)
	{
		LeTime bound = i < LE_DURATION_BOUNDS ? le_duration_bounds[i] : 4 * 86400 * LE_SECOND;
		LeCommand cmd = request(1, "x", X, 0);
		LeReply a;

		ok(i == 0 || bound > le_duration_bounds[i - 1], "bounds ascend");
		start();
		cmd.ttl = 10 * 86400 * LE_SECOND;
		a = apply(cmd);
		batch();
		now += bound;
		release(1, "x", a.token);
		batch();
		is_int(bucket_of(LE_DURATION_HOLD), i, "a hold as long as a bound is in its bucket");
		ok(is_only(LE_DURATION_HOLD, bound), "a hold as long as a bound is in the sum");
		a = apply(cmd);
		batch();
		now += bound + 1;
		release(1, "x", a.token);
		batch();
		is_int(durations(LE_DURATION_HOLD)->n[i < LE_DURATION_BOUNDS ? i + 1 : i],
			   1 + (i == LE_DURATION_BOUNDS), "a longer hold is in the next bucket");
		stop();
	}
}

static void
test_waits(void)
{
	LeReply a, b;

	start();
	a = acquire(1, "x", X);
	batch();
	is_int(le_core_oldest_wait(core), LE_NEVER, "no wait before the first waiter");
	now += LE_SECOND;
	b = acquire(2, "x", X);
	batch();
	is_int(le_core_oldest_wait(core), now, "the oldest wait is that of the only waiter");
	is_int(le_core_held(core), 1, "one holder");
	is_int(le_core_queued(core), 1, "one waiter");
	now += LE_SECOND;
	enqueue(3, "y", X);
	acquire(4, "x", X);
	batch();
	is_int(le_core_oldest_wait(core), now - LE_SECOND, "the oldest of several waits");
	now += 2 * LE_SECOND;
	release(1, "x", a.token);
	batch();
	ok(got(2, LE_OK), "the waiter is granted");
	ok(is_only(LE_DURATION_WAIT, 3 * LE_SECOND), "the wait of a granted waiter is counted");
	ok(is_only(LE_DURATION_HOLD, 4 * LE_SECOND), "the hold of the previous holder is counted");
	is_int(le_core_oldest_wait(core), now - 2 * LE_SECOND, "the next waiter has the oldest wait");
	is_int(le_core_held(core), 2, "a place of a free lock is a holder");
	undo(4, 1);
	batch();
	ok(is_only(LE_DURATION_FRUITLESS_WAIT, 2 * LE_SECOND), "a wait that was cancelled counts as fruitless");
	is_int(le_core_oldest_wait(core), LE_NEVER, "no waiter is left");
	ok(held("x", b.token), "the granted waiter holds");
	stop();
}

static void
test_fruitless(void)
{
	start();
	acquire(1, "x", X);
	apply(request(2, "x", X, 3 * LE_SECOND));
	batch();
	pass(3 * LE_SECOND);
	ok(got(2, LE_NOT_GRANTED), "a wait times out");
	ok(is_only(LE_DURATION_FRUITLESS_WAIT, 3 * LE_SECOND), "a wait that timed out counts as fruitless");
	is_int(apply(request(2, "x", X, 0)).status, LE_NOT_GRANTED, "a try");
	is_int(durations(LE_DURATION_FRUITLESS_WAIT)->count, 1, "a try does not count as a wait");
	is_int(durations(LE_DURATION_WAIT)->count, 0, "no wait counts as granted");
	stop();

	/* two connections of one owner wait: the second joins the first */
	start();
	acquire(1, "x", X);
	acquire_as(2, "x", X, "me");
	now += LE_SECOND;
	acquire_as(3, "x", X, "me");
	batch();
	pass(TTL);
	ok(got(2, LE_OK) && got(3, LE_OK), "both are granted");
	is_int(durations(LE_DURATION_WAIT)->count, 2, "both waits of one owner are counted");
	is_int(durations(LE_DURATION_FRUITLESS_WAIT)->count, 0, "no wait of a granted owner counts as fruitless");
	is_int(durations(LE_DURATION_HOLD)->count, 1, "only the hold of the first holder has ended");
	stop();

	start();
	acquire(1, "x", X);
	enqueue(2, "x", X);
	batch();
	pass(TTL);
	ok(is_only(LE_DURATION_HOLD, TTL), "an expired hold is counted");
	stop();
}

static void
test_fenced(void)
{
	LeReply a;

	start();
	a = acquire(1, "x", X);
	batch();
	fenced_token = a.token;
	pass(TTL);
	ok(is_only(LE_DURATION_HOLD, TTL), "a fenced holder is counted up to the end of its lease");
	pass(TTL);
	fenced_token = 0;
	apply(command(LE_CMD_FENCE_ENDED, 0, NULL));
	batch();
	ok(is_only(LE_DURATION_HOLD, TTL), "a fenced holder is counted once");
	stop();
}

static void
test_elections(void)
{
	LeReply a;

	start();
	a = campaign(1, "x", "a");
	campaign(2, "x", "b");
	batch();
	is_int(le_core_stats(core)->elected, 1, "a leader is counted as elected");
	is_int(le_core_oldest_wait(core), LE_NEVER, "candidates do not count for the oldest wait");
	is_int(le_core_queued(core), 1, "candidates are queued");
	now += 5 * LE_SECOND;
	resign(1, "x", a.token);
	batch();
	is_int(le_core_stats(core)->elected, 2, "the next leader is counted as elected");
	ok(is_only(LE_DURATION_TERM, 5 * LE_SECOND), "the length of a term is counted");
	is_int(durations(LE_DURATION_HOLD)->count, 0, "a term does not count as a hold");
	is_int(durations(LE_DURATION_WAIT)->count, 0, "a candidate's wait does not count");
	stop();
}

static void
test_load(void)
{
	static const LeText names[] = {{"x", 1}, {"y", 1}};
	LeCommand cmd;
	LeStoredEntry row;

	start_load();
	row = stored("x", FIRST - 10, X);
	row.since = now + WALL_OFFSET - 7 * LE_SECOND;
	load_slot(row);
	row = stored("x", FIRST - 9, X);
	row.since = now + WALL_OFFSET - 5 * LE_SECOND;
	load_place(row);

	/* its connection has ended without the core's knowledge */
	gone[5] = true;
	row = stored("y", FIRST - 8, X);
	row.ttl = LE_TTL_BOUND;
	row.session = 105;
	load_place(row);
	load_done();
	is_int(durations(LE_DURATION_FRUITLESS_WAIT)->count, 0, "waits that a load ends are not counted");
	cmd = request(3, "x", X, LE_WAIT_FOREVER);
	cmd.revision = FIRST - 8;
	cmd.since = now - 4 * LE_SECOND;
	apply(cmd);
	batch();
	is_int(le_core_oldest_wait(core), now - 5 * LE_SECOND, "the oldest wait is that of a loaded place");
	release(1, "x", FIRST - 10);
	batch();
	ok(is_only(LE_DURATION_HOLD, 7 * LE_SECOND), "the hold of a loaded holder counts from its start");
	ok(is_only(LE_DURATION_WAIT, 5 * LE_SECOND), "the wait of a loaded place counts from its start");
	is_int(le_core_oldest_wait(core), now - 4 * LE_SECOND,
		   "the oldest wait is that of a blocked call that waited before the load");
	stop();

	/* a group that waited before the load */
	start_load();
	load_slot(stored("x", FIRST - 10, X));
	load_done();
	cmd = request(3, NULL, X, LE_WAIT_FOREVER);
	cmd.names = names;
	cmd.nnames = 2;
	cmd.revision = FIRST - 8;
	cmd.since = now - 4 * LE_SECOND;
	is_int(apply(cmd).status, LE_WAITING, "a group waits again after a load");
	batch();
	is_int(le_core_oldest_wait(core), now - 4 * LE_SECOND,
		   "the oldest wait is that of a group that waited before the load");
	stop();

	/* times in the future, by the duration of the load itself */
	start_load();
	row = stored("x", FIRST - 10, X);
	load_slot(row);
	load_done();
	now -= LE_SECOND / 2;
	release(1, "x", FIRST - 10);
	batch();
	ok(is_only(LE_DURATION_HOLD, 0), "no hold is negative");
	stop();

	/* the time of day was set back, so that a wait starts in the future */
	start_load();
	load_slot(stored("x", FIRST - 10, X));
	row = stored("x", FIRST - 9, X);
	row.since = now + WALL_OFFSET + 86400 * LE_SECOND;
	load_place(row);
	load_done();
	is_int(le_core_oldest_wait(core), now, "a wait that starts in the future starts now");
	release(1, "x", FIRST - 10);
	batch();
	ok(is_only(LE_DURATION_WAIT, 0), "no wait is negative");
	stop();
}

int
main(void)
{
	test_buckets();
	test_waits();
	test_fruitless();
	test_fenced();
	test_elections();
	test_load();
	return done_testing();
}
