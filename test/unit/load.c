/* Building the state from stored rows. */
#include "fixture.h"

#define OLD (FIRST - 1000)

static LeLoad
row(const char *name, int64_t token, LeMode mode)
{
	LeLoad load = {.held = true, .hold_count = 1, .time_left = TTL, .locator = 77};

	load.acquired_at = now;
	load.cmd = (LeCommand){
		.kind = LE_KIND_LOCK, .name = text(name), .mode = mode, .token = token, .ttl = TTL, .role = ROLE};
	return load;
}

static void
load_slot(LeLoad load)
{
	if (!le_core_load_slot(core, &load, now))
		abort();
}

static void
load_place(LeLoad load)
{
	load.held = false;
	if (!le_core_load_place(core, &load, now))
		abort();
}

/* A waiter of old posts its request again. */
static LeReply
again(uint32_t session, const char *name, LeMode mode, int64_t revision)
{
	LeCommand cmd = request(session, name, mode, LE_WAIT_FOREVER);

	cmd.revision = revision;
	return apply(cmd);
}

static void
test_holder(void)
{
	LeLoad load;

	start();
	load = row("x", OLD, X);
	load.time_left = LE_SECOND;
	load.hold_count = 2;
	load_slot(load);
	le_core_load_done(core, now);
	batch();
	ok(held("x", OLD), "a holder is there again");
	is_int(acquire(2, "x", X).status, LE_WAITING, "and in the way");
	release(1, "x", OLD);
	ok(held("x", OLD), "with its holds");
	batch();
	pass(LE_SECOND);
	ok(got(2, LE_OK), "for the time that it had left");
	ok(told[2].token >= FIRST, "tokens go on");
	stop();
}

static void
test_free_rows(void)
{
	LeLoad load;

	start();
	load = row("x", 0, 0);
	load.held = false;
	load_slot(load);
	le_core_load_done(core, now);
	batch();
	is_int(le_core_lock_count(core), 1, "a free row lingers");
	pass(LE_LINGER + LE_LINGER_STEP);
	is_int(le_core_lock_count(core), 0, "and goes");

	load.closed_until = now + 5 * LE_SECOND;
	load_slot(load);
	le_core_load_done(core, now);
	acquire(2, "x", X);
	pass(5 * LE_SECOND - 1);
	ok(!was_told[2], "a pause is kept over a reload");
	pass(1);
	ok(got(2, LE_OK), "to its end");
	stop();
}

static void
test_orphans(void)
{
	LeLoad load;
	LeCommand cmd;

	start();
	load = row("bound", OLD, X);
	load.cmd.ttl = LE_TTL_BOUND;
	load_slot(load);
	load = row("leased", OLD + 1, X);
	load.cmd.lease = 12345;
	load_slot(load);
	load = row("leased", OLD + 2, X);
	load.cmd.lease = 12345;
	load_place(load);
	load = row("bound", OLD + 3, X);
	load.cmd.ttl = LE_TTL_BOUND;
	load.cmd.session = 101;
	load.cmd.sessno = 1;
	load.acquired_at = now - LE_SECOND;
	load_place(load);
	is_int(le_core_find_token(core, OLD + 3)->since, now - LE_SECOND, "a place knows since when it waits");
	cmd = (LeCommand){.token = OLD + 4, .ttl = TTL, .role = ROLE};
	ok(le_core_load_lease(core, &cmd, LE_SECOND, 5, now), "load a lease");
	ok(le_core_dirty_leases(core) == NULL, "nothing to write for it");
	load = row("live", OLD + 5, X);
	load.cmd.lease = OLD + 4;
	load_slot(load);
	le_core_load_done(core, now);
	ok(le_core_dirty_slots(core) != NULL, "rows of the dead are written free");
	batch();
	ok(!held("bound", OLD), "who hung on a connection that is gone is gone");
	ok(held("bound", OLD + 3), "and the next place has its lock");
	ok(!held("leased", OLD + 1) && !held("leased", OLD + 2), "who hung on a lease that is gone is gone");
	is_int(le_entry_time_left(le_core_find_token(core, OLD + 5), now), LE_SECOND,
		   "a lease goes on where it was");
	stop();
}

static void
test_uncommitted(void)
{
	LeLoad load;

	start();
	load = row("x", OLD, X);
	load.cmd.session = 101;
	load.cmd.sessno = 1;
	load_slot(load);
	ok(load_hold("x", OLD, 1, 2), "load a hold");
	ok(load_hold("x", OLD + 1, 1, 2), "one that is gone does no harm");
	le_core_load_done(core, now);
	batch();
	undo(1, 3);
	ok(held("x", OLD), "a later savepoint is not its own");
	undo(1, 2);
	ok(!held("x", OLD), "its transaction can still undo it");
	stop();
}

/*
 * Nobody is granted before all who wait are back: a reader must not overtake
 * a writer because its place was stored and the writer's call was not.
 */
static void
test_order(void)
{
	start();
	load_slot(row("x", OLD, S));
	load_place(row("x", OLD + 2, S));
	is_int(again(2, "x", X, OLD + 1).status, LE_WAITING, "the writer is back");
	le_core_load_done(core, now);
	batch();
	ok(!held("x", OLD + 2), "the reader behind it waits");
	release(1, "x", OLD);
	batch();
	ok(got(2, LE_OK) && told[2].token == OLD + 1, "the writer first");
	release(2, "x", OLD + 1);
	batch();
	ok(held("x", OLD + 2), "then the reader");
	stop();

	/* the same with a pause that ends meanwhile, and two writers */
	start();
	{
		LeLoad load = row("x", 0, 0);

		load.held = false;
		load_slot(load);
	}
	load_place(row("x", OLD + 3, X));
	again(1, "x", X, OLD + 1);
	again(2, "x", X, OLD + 2);
	le_core_load_done(core, now);
	batch();
	ok(got(1, LE_OK) && !was_told[2], "the oldest has it");
	stop();

	/* a reader comes back before the writer that stood behind it */
	start();
	load_place(row("x", OLD + 3, S));
	again(1, "x", S, OLD + 1);
	again(2, "x", X, OLD + 2);
	le_core_load_done(core, now);
	batch();
	ok(got(1, LE_OK) && !was_told[2], "the first reader has it");
	ok(!held("x", OLD + 3), "the one behind the writer has not");
	stop();
}

/* A waiter whose owner holds the lock by now joins, as it would have without the reload. */
static void
test_waiter_joins(void)
{
	LeLoad load;
	LeCommand cmd;

	start();
	load = row("x", OLD, S);
	load.cmd.owner = text("worker");
	load_slot(load);
	cmd = request(1, "x", S, LE_WAIT_FOREVER);
	cmd.owner = text("worker");
	cmd.revision = OLD + 1;
	apply(cmd);
	le_core_load_done(core, now);
	batch();
	ok(got(1, LE_OK) && told[1].token == OLD, "a waiter of a holder's owner gets its token");
	stop();
}

/* One that comes back late may stand before those who keep each other waiting. */
static void
test_late_waiter(void)
{
	start();
	load_slot(row("x", OLD, S));
	load_place(row("x", OLD + 2, X));
	le_core_load_done(core, now);
	batch();
	again(2, "x", S, OLD + 1);
	batch();
	ok(got(2, LE_OK), "a reader before the writer is granted in the same batch");
	stop();
}

/* The batch was stored, the answer was not given. */
static void
test_already_there(void)
{
	LeReply r;

	start();
	load_slot(row("x", OLD, X));
	r = again(1, "x", X, OLD);
	le_core_load_done(core, now);
	batch();
	ok(r.status == LE_OK && r.token == OLD, "a waiter that was granted already is told so");
	undo(1, 1);
	ok(!held("x", OLD), "and can still roll back");
	stop();
}

/* Another session of the same owner has taken one more hold, and its answer was given. */
static void
test_already_there_twice(void)
{
	LeLoad load;
	LeReply r;

	start();
	load = row("x", OLD, X);
	load.cmd.owner = text("worker");
	load.hold_count = 2;
	load_slot(load);
	load_hold("x", OLD, 2, 1);
	r = again(1, "x", X, OLD);
	le_core_load_done(core, now);
	batch();
	ok(r.status == LE_OK && r.token == OLD, "a waiter that shares its lock by now is told that it has it");
	undo(2, 1);
	ok(held("x", OLD), "when the other one rolls back, its own hold is left");
	undo(1, 1);
	ok(!held("x", OLD), "and it can still roll back as well");
	stop();

	/* its own hold has been loaded: it is the same one */
	start();
	load_slot(load);
	load_hold("x", OLD, 1, 1);
	load_hold("x", OLD, 2, 1);
	again(1, "x", X, OLD);
	le_core_load_done(core, now);
	batch();
	undo(1, 1);
	ok(held("x", OLD), "a hold that was loaded is not counted again");
	stop();
}

static void
test_changed_permits(void)
{
	LeLoad load;
	LeCommand cmd;

	start();
	load = row("x", OLD, P);
	load.cmd.permits = 1;
	load_slot(load);
	cmd = request(2, "x", P, LE_WAIT_FOREVER);
	cmd.permits = 2;
	cmd.revision = OLD + 1;
	is_int(apply(cmd).status, LE_WAITING, "a waiter that had asked for another number is not refused");
	le_core_load_done(core, now);
	batch();
	release(1, "x", OLD);
	batch();
	ok(got(2, LE_OK), "it goes on waiting");
	stop();
}

/* Of several that a session holds, a release without a token means the newest. */
static void
test_newest(void)
{
	start();
	for (int i = 0; i < 3; i++)
	{
		LeLoad load = row("x", OLD + (i + 1) % 3, S);

		load.slot = i;
		load.cmd.session = 101;
		load.cmd.sessno = 1;
		load_slot(load);
	}
	le_core_load_done(core, now);
	batch();
	is_int(release(1, "x", 0).token, OLD + 2, "whatever the order of the rows");
	stop();
}

static void
test_revisions(void)
{
	start();
	le_core_raise_revision(core, FIRST + 50);
	is_int(le_core_next_revision(core), FIRST + 50, "the counter can be raised");
	le_core_raise_revision(core, FIRST);
	is_int(le_core_next_revision(core), FIRST + 50, "and not be lowered");
	is_int(apply((LeCommand){.type = LE_CMD_ADVANCE, .token = FIRST + 99}).token, FIRST + 99,
		   "also by a command");
	is_int(apply((LeCommand){.type = LE_CMD_ADVANCE, .token = 1}).token, FIRST + 99,
		   "which says what is next");
	is_int(acquire(1, "x", X).token, FIRST + 99, "that is the next token");
	stop();
}

int
main(void)
{
	test_holder();
	test_free_rows();
	test_orphans();
	test_uncommitted();
	test_order();
	test_waiter_joins();
	test_late_waiter();
	test_already_there();
	test_already_there_twice();
	test_changed_permits();
	test_newest();
	test_revisions();
	return done_testing();
}
