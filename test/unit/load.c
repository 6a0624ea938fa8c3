/* Building the state from stored rows. */
/* Promises: D */
#include "fixture.h"

#define OLD (FIRST - 1000)

/* A waiter of old posts its request again. */
static LeReply
again(uint32_t session, const char *name, LeMode mode, int64_t revision)
{
	LeCommand cmd = request(session, name, mode, LE_WAIT_FOREVER);

	cmd.revision = revision;
	return apply(cmd);
}

static LeTime
time_left(int64_t token)
{
	return le_entry_time_left(find_token(token), now);
}

static void
test_holder(void)
{
	LeStoredEntry row;

	start_load();
	row = stored("x", OLD, X);
	row.holds = 2;
	row.since -= 7 * LE_SECOND;
	load_slot(row);
	load_done();
	batch();
	ok(held("x", OLD), "a holder is there again");
	is_int(find_token(OLD)->acquired_at, now - 7 * LE_SECOND, "and knows since when");
	is_int(acquire(2, "x", X).status, LE_WAITING, "it is in the way");
	release(1, "x", OLD);
	ok(held("x", OLD), "with its holds");
	batch();
	pass(TTL - 1);
	ok(!was_told[2], "for its full TTL");
	pass(1);
	ok(got(2, LE_OK), "and no longer");
	ok(told[2].token >= FIRST, "tokens go on");
	stop();
}

/* Renewals write nothing, so nobody knows when the last one was: a row says what is left at least. */
static void
test_time_left(void)
{
	LeStoredEntry row;
	LeStoredLease lease;

	start_load();
	row = stored("short", OLD, X);
	row.time_left = LE_SECOND;
	load_slot(row);
	row = stored("long", OLD + 1, X);
	row.ttl = 1000 * LE_SECOND;
	row.time_left = 600 * LE_SECOND;
	load_slot(row);
	row.name = text("too long");
	row.token = OLD + 2;
	row.time_left = 2000 * LE_SECOND;
	load_slot(row);
	lease = stored_lease(OLD + 3);
	lease.time_left = LE_SECOND;
	load_lease(lease);
	lease.id = OLD + 4;
	lease.ttl = 1000 * LE_SECOND;
	load_lease(lease);
	load_done();
	is_int(time_left(OLD), LE_SECOND, "there is what the row says");
	is_int(time_left(OLD + 1), 600 * LE_SECOND, "of a long one there is what was saved");
	is_int(time_left(OLD + 2), 1000 * LE_SECOND, "not more than it is");
	is_int(le_core_find_lease(core, OLD + 3)->deadline - now, LE_SECOND, "of a lease too");
	is_int(le_core_find_lease(core, OLD + 4)->deadline - now, LE_SECOND,
		   "of a long one there is what was saved");
	ok(le_next_dirty_lease(core, NULL) == NULL, "nothing to write for it");
	batch();
	stop();
}

static void
test_free_rows(void)
{
	LeStoredEntry row;

	start_load();
	load_slot(stored_free("x"));
	load_done();
	batch();
	is_int(le_core_lock_count(core), 1, "a free row lingers");
	pass(LE_LINGER + LE_LINGER_STEP);
	is_int(le_core_lock_count(core), 0, "and goes");
	stop();

	start_load();
	row = stored_free("x");
	row.closed_until = now + WALL_OFFSET + 5 * LE_SECOND;
	load_slot(row);
	row = stored_free("for ever");
	row.closed_until = INT64_MAX;
	load_slot(row);
	load_done();
	acquire(2, "x", X);
	acquire(3, "for ever", X);
	pass(5 * LE_SECOND - 1);
	ok(!was_told[2], "a closed name is closed after a load");
	pass(1);
	ok(got(2, LE_OK) && !was_told[3], "to its end");
	stop();
}

/* The rows were written tomorrow. */
static void
test_time_of_day_set_back(void)
{
	LeTime tomorrow = now + WALL_OFFSET + 86400 * LE_SECOND;
	LeStoredEntry row;
	LeCommand cmd;

	start_load();
	row = stored_free("closed");
	row.since = tomorrow;
	row.closed_until = tomorrow + 5 * LE_SECOND;
	load_slot(row);
	row = stored("held", OLD + 1, X);
	row.since = tomorrow;
	load_slot(row);
	load_done();
	cmd = command(LE_CMD_RELEASE, 1, "held");
	cmd.token = OLD + 1;
	cmd.hold_for = 5 * LE_SECOND;
	apply(cmd);
	acquire(2, "closed", X);
	acquire(3, "held", X);
	pass(5 * LE_SECOND - 1);
	ok(!was_told[2] && !was_told[3], "names are closed");
	pass(1);
	ok(got(2, LE_OK) && got(3, LE_OK), "for no longer than they were");
	stop();
}

static void
test_orphans(void)
{
	LeStoredEntry row;

	start_load();
	gone[2] = true;
	load_lease(stored_lease(OLD + 4));
	row = stored("bound", OLD, X);
	row.ttl = LE_TTL_BOUND;
	row.session = 102;
	load_slot(row);
	row = stored("leased", OLD + 1, X);
	row.lease = 12345;
	load_slot(row);
	row = stored("live", OLD + 5, X);
	row.lease = OLD + 4;
	load_slot(row);
	row = stored("leased", OLD + 2, X);
	row.lease = 12345;
	load_place(row);
	row = stored("bound", OLD + 3, X);
	row.ttl = LE_TTL_BOUND;
	row.session = 101;
	row.since -= LE_SECOND;
	load_place(row);
	is_int(find_token(OLD + 3)->waiter->since, now - LE_SECOND, "a place knows since when it waits");
	load_done();
	ok(le_next_dirty_slot(core, NULL) != NULL, "rows of the dead are written free");
	batch();
	ok(!held("bound", OLD), "who hung on a connection that is gone is gone");
	ok(held("bound", OLD + 3), "and the next place has its lock");
	ok(!held("leased", OLD + 1) && !held("leased", OLD + 2), "who hung on a lease that is gone is gone");
	ok(held("live", OLD + 5), "who hangs on one that is there is there");
	stop();
}

/* A connection that ended with the manager is like one that ends later. */
static void
test_grace(void)
{
	LeLimits limits = {.expiry_grace = 3 * LE_SECOND};
	LeStoredEntry row;

	start_load();
	le_core_set_limits(core, &limits);
	gone[1] = true;
	row = stored("x", OLD, X);
	row.ttl = LE_TTL_BOUND;
	row.session = 101;
	load_slot(row);
	row.name = text("fenced");
	row.token = fenced_token = OLD + 1;
	load_slot(row);
	load_done();
	batch();
	acquire(2, "x", X);
	acquire(3, "fenced", X);
	ok(!held("fenced", OLD + 1), "who hung on a connection that is gone is gone, fenced or not");
	fenced_token = 0;
	apply((LeCommand){.type = LE_CMD_FENCE_ENDED});
	pass(3 * LE_SECOND - 1);
	ok(!was_told[2] && !was_told[3], "the next one waits for the grace");
	pass(1);
	ok(got(2, LE_OK) && got(3, LE_OK), "and no longer");
	stop();
}

/* In a copy of the database nobody holds anything, whatever its sessions' numbers are. */
static void
test_copied(void)
{
	LeLoadEnv env;
	LeStoredEntry row;

	start();
	env = fixture_load();
	env.copied = true;
	le_core_load_begin(core, &env);
	load_lease(stored_lease(OLD));
	row = stored("x", OLD + 1, X);
	row.session = 101;
	fenced_token = OLD + 1;
	load_slot(row);
	row = stored_free("closed");
	row.closed_until = INT64_MAX;
	load_slot(row);
	load_place(stored("x", OLD + 2, X));
	load_done();
	ok(slot_is_dirty(OLD + 1) == false && le_next_dirty_slot(core, NULL) != NULL &&
		   le_next_dirty_lease(core, NULL) != NULL && le_next_dirty_place(core, NULL) != NULL,
	   "all rows of a copy are written");
	batch();
	ok(!held("x", OLD + 1) && !held("x", OLD + 2) && le_core_find_lease(core, OLD) == NULL,
	   "nothing is held in a copy");
	is_int(acquire(2, "closed", X).status, LE_OK, "nothing is closed");
	stop();
}

/* Somebody else has written into the table. */
static void
test_rivals(void)
{
	LeStoredEntry row;
	int64_t newest = 0;

	for (int i = 0; i < 2; i++)
	{
		start_load();
		row = stored("x", OLD + i, X);
		load_slot(row);
		row = stored("x", OLD + 1 - i, X);
		row.slot = 1;
		is_int(le_core_load_slot(core, &row, &newest), LE_LOADED_RIVAL,
			   "two holders of one lock are noticed");
		is_int(newest, OLD + 1, "the newer one stays");
		load_done();
		batch();
		ok(held("x", OLD + 1) && !held("x", OLD), "whichever row is read first");
		stop();
	}

	start_load();
	load_slot(stored("x", OLD, X));
	fenced_token = OLD;
	row = stored("x", OLD + 1, S);
	row.slot = 1;
	is_int(le_core_load_slot(core, &row, &newest), LE_LOADED_RIVAL, "shared or not");
	is_int(newest, OLD, "unless the older one is fenced");
	load_done();
	batch();
	ok(!held("x", OLD + 1), "nobody is let in beside a fence");
	fenced_token = 0;
	apply((LeCommand){.type = LE_CMD_FENCE_ENDED});
	batch();
	stop();

	start_load();
	row = stored("x", OLD, S);
	load_slot(row);
	row.slot = 1;
	row.token++;
	is_int(load_slot(row), LE_LOADED, "who share are no rivals");
	load_done();
	batch();
	ok(held("x", OLD) && held("x", OLD + 1), "and both stay");
	stop();
}

/* Rows that this core cannot have written. */
static void
test_invalid(void)
{
	char owner[LE_MAX_OWNER + 1] = "";
	LeStoredEntry row;
	LeStoredLease lease;

#define IS_INVALID(load, start_row, change, why)                                                             \
	do                                                                                                       \
	{                                                                                                        \
		row = start_row;                                                                                     \
		change;                                                                                              \
		is_int(load(row), LE_LOAD_INVALID, why);                                                             \
	} while (0)

	start_load();
	load_slot(stored("there", OLD, X));
	IS_INVALID(load_slot, stored("there", OLD, X), row.slot = 1, "a holder twice");
	IS_INVALID(load_slot, stored("", OLD + 1, X), , "no name");
	IS_INVALID(load_slot, stored("x", OLD + 1, X), row.kind = 3, "no kind");
	IS_INVALID(load_slot, stored("x", OLD + 1, X), row.slot = -1, "no slot");
	IS_INVALID(load_slot, stored("x", OLD + 1, 4), , "no mode");
	IS_INVALID(load_slot, stored("x", 0, X), , "no token");
	IS_INVALID(load_slot, stored("x", OLD + 1, X), row.holds = 0, "no holds");
	IS_INVALID(load_slot, stored("x", OLD + 1, X), row.ttl = 0, "no ttl");
	IS_INVALID(load_slot, stored("x", OLD + 1, X), row.end = LE_END_TIMEOUT, "an end that no holder has");
	IS_INVALID(load_slot, stored("x", OLD + 1, P), row.permits = 0, "no permits");
	IS_INVALID(load_slot, stored("x", OLD + 1, X), row.owner = ((LeText){owner, sizeof(owner)}),
			   "a long owner");
	IS_INVALID(load_slot, stored("x", OLD + 1, X), row.uncommitted = text("odd"), "half a hold");
	IS_INVALID(load_place, stored("there", OLD, X), , "a place whose token holds its lock");
	IS_INVALID(load_place, stored("x", OLD + 1, X), row.ttl = -7, "a place without a ttl");
	lease = stored_lease(OLD);
	lease.ttl = 0;
	is_int(load_lease(lease), LE_LOAD_INVALID, "a lease without a ttl");
	lease = stored_lease(OLD);
	load_lease(lease);
	is_int(load_lease(lease), LE_LOAD_INVALID, "a lease twice");
	load_done();
	batch();
	stop();
#undef IS_INVALID
}

static void
test_uncommitted(void)
{
	LeStoredHold holds[4];
	LeStoredEntry row;

	start_load();
	gone[3] = true;
	row = stored("x", OLD, X);
	row.session = 101;
	row.holds = 3;
	add_stored_hold(&row, holds, 1, 2);
	add_stored_hold(&row, holds, 2, 1);
	add_stored_hold(&row, holds, 3, 1);
	xacts[2]++; /* it has committed since */
	load_slot(row);
	load_slot(stored("y", OLD + 1, X));
	load_done();
	batch();
	undo(1, 3);
	is_int(find_token(OLD)->hold_count, 3, "a later savepoint is not its own");
	undo(1, 2);
	is_int(find_token(OLD)->hold_count, 2, "its transaction can still undo it");
	end_session(3);
	undo(2, 1);
	is_int(find_token(OLD)->hold_count, 2, "one that has committed cannot");
	batch();
	stop();
}

/* A batch that fails and is read back: leases go on where they were. */
static void
test_failed_batch(void)
{
	LeCommand renew;
	LeCore *failed;
	int64_t lease, a, b, c, d;

	start();
	a = acquire(1, "a", X).token;
	b = acquire(1, "b", X).token;
	c = acquire(1, "c", X).token;
	d = enqueue(2, "a", X).token;
	lease = grant_lease(TTL);
	batch();
	now += 4 * LE_SECOND;
	on_lease(LE_CMD_KEEP_ALIVE, lease);
	batch();
	now += 4 * LE_SECOND;

	/* the batch that fails: a renewal with another TTL, a release, and an end */
	renew = command(LE_CMD_RENEW, 1, "c");
	renew.token = c;
	renew.ttl = 2 * TTL;
	apply(renew);
	release(1, "b", b);
	on_lease(LE_CMD_REVOKE_LEASE, lease);
	is_int(find_token(b) == NULL, true, "it is released in the batch that fails");
	now += LE_SECOND;

	failed = start_reload();
	load_lease(stored_lease(lease));
	load_slot(stored("a", a, X));
	load_slot(stored("b", b, X));
	load_slot(stored("c", c, X));
	load_place(stored("a", d, X));
	load_done();
	is_int(time_left(a), LE_SECOND, "a lease goes on where it was");
	is_int(time_left(b), LE_SECOND, "also one that had ended in the batch that failed");
	is_int(time_left(c), TTL, "one that was given another TTL there starts again");
	is_int(time_left(d), LE_SECOND, "a place goes on");
	is_int(le_core_find_lease(core, lease)->deadline - now, 5 * LE_SECOND, "a named lease too");
	is_int(find_token(a)->lsn, lsn, "its row counts as written where it was loaded");
	is_int(find_token(d)->lsn, lsn, "so does a place's");
	is_int(le_core_find_lease(core, lease)->lsn, lsn, "and a lease's");
	batch();
	le_core_destroy(failed);
	stop();
}

/* Its time is up, but that could not be written. */
static void
test_failed_expiry(void)
{
	LeCore *failed;
	int64_t a, lease;

	start();
	a = acquire(1, "a", X).token;
	lease = grant_lease(TTL);
	batch();
	now += TTL;
	le_core_expire(core, now, 100);
	for (int i = 0; i < 2; i++)
	{
		now += LE_SECOND;
		failed = start_reload();
		load_lease(stored_lease(lease));
		load_slot(stored("a", a, X));
		load_done();
		is_int(time_left(a), 0, "an expiry that was not written is due at once");
		ok(le_core_find_lease(core, lease)->deadline <= now, "a lease's too");
		le_core_destroy(failed);
		le_core_expire(core, now, 100);
	}
	batch();
	is_int(le_core_lock_count(core), 1, "written at last");
	ok(!held("a", a) && le_core_find_lease(core, lease) == NULL, "it is over");
	stop();
}

/* A long lease's renewal is written before it is answered, also after a batch that failed. */
static void
test_failed_save(void)
{
	LeTime ttl = 1000 * LE_SECOND;
	LeCommand cmd;
	LeCore *failed;
	LeStoredEntry row;
	LeStoredLease lease_row;
	int64_t a, lease;

	start();
	cmd = request(1, "a", X, 0);
	cmd.ttl = ttl;
	a = apply(cmd).token;
	lease = grant_lease(ttl);
	batch();
	pass(LE_SAVE_INTERVAL);
	on_token(LE_CMD_RENEW, 1, "a", a);
	on_lease(LE_CMD_KEEP_ALIVE, lease);
	failed = start_reload();
	lease_row = stored_lease(lease);
	lease_row.ttl = ttl;
	lease_row.time_left = ttl - LE_SAVE_INTERVAL;
	load_lease(lease_row);
	row = stored("a", a, X);
	row.ttl = ttl;
	row.time_left = ttl - LE_SAVE_INTERVAL;
	load_slot(row);
	load_done();
	batch();
	on_token(LE_CMD_RENEW, 1, "a", a);
	on_lease(LE_CMD_KEEP_ALIVE, lease);
	ok(slot_is_dirty(a), "a renewal that was not written is written when it comes again");
	ok(le_next_dirty_lease(core, NULL) != NULL, "a lease's too");
	batch();
	le_core_destroy(failed);
	release(1, "a", a);
	on_lease(LE_CMD_REVOKE_LEASE, lease);
	batch();

	/* and the time left is saved when the row says far too much */
	cmd.name = text("b");
	a = apply(cmd).token;
	batch();
	now += LE_SAVE_INTERVAL;
	le_core_expire(core, now, 100);
	failed = start_reload();
	row = stored("b", a, X);
	row.ttl = row.time_left = ttl;
	load_slot(row);
	load_done();
	is_int(time_left(a), ttl - LE_SAVE_INTERVAL, "a long lease goes on where it was");
	batch();
	le_core_destroy(failed);
	le_core_expire(core, now, 100);
	ok(slot_is_dirty(a), "time that was not saved is saved again");
	batch();
	stop();
}

/*
 * Nobody is granted before all who wait are back: a reader must not overtake
 * a writer because its place was stored and the writer's call was not.
 */
static void
test_order(void)
{
	start_load();
	load_slot(stored("x", OLD, S));
	load_place(stored("x", OLD + 2, S));
	is_int(again(2, "x", X, OLD + 1).status, LE_WAITING, "the writer is back");
	load_done();
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
	start_load();
	load_slot(stored_free("x"));
	load_place(stored("x", OLD + 3, X));
	again(1, "x", X, OLD + 1);
	again(2, "x", X, OLD + 2);
	load_done();
	batch();
	ok(got(1, LE_OK) && !was_told[2], "the oldest has it");
	stop();

	/* a reader comes back before the writer that stood behind it */
	start_load();
	load_place(stored("x", OLD + 3, S));
	again(1, "x", S, OLD + 1);
	again(2, "x", X, OLD + 2);
	load_done();
	batch();
	ok(got(1, LE_OK) && !was_told[2], "the first reader has it");
	ok(!held("x", OLD + 3), "the one behind the writer has not");
	stop();
}

/* A waiter whose owner holds the lock by now joins, as it would have without the reload. */
static void
test_waiter_joins(void)
{
	LeStoredEntry row;
	LeCommand cmd;
	uint64_t wrote;

	start_load();
	row = stored("x", OLD, S);
	row.owner = text("worker");
	load_slot(row);
	cmd = request(1, "x", S, LE_WAIT_FOREVER);
	cmd.owner = text("worker");
	cmd.revision = OLD + 1;
	apply(cmd);
	load_done();
	batch();
	ok(got(1, LE_OK) && told[1].token == OLD, "a waiter of a holder's owner gets its token");
	stop();

	start_load();
	wrote = lsn;
	load_slot(row);
	cmd.mode = X;
	apply(cmd);
	load_done();
	batch();
	ok(got(1, LE_BAD_UPGRADE), "or is told why it may not have it");
	is_int(told[1].lsn, wrote, "which rests on the holder's row");
	stop();
}

/* One that comes back late may stand before those who keep each other waiting. */
static void
test_late_waiter(void)
{
	start_load();
	load_slot(stored("x", OLD, S));
	load_place(stored("x", OLD + 2, X));
	load_done();
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

	start_load();
	load_slot(stored("x", OLD, X));
	r = again(1, "x", X, OLD);
	load_done();
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
	LeStoredHold holds[2];
	LeStoredEntry row;
	LeReply r;

	start_load();
	row = stored("x", OLD, X);
	row.owner = text("worker");
	row.holds = 2;
	add_stored_hold(&row, holds, 2, 1);
	load_slot(row);
	r = again(1, "x", X, OLD);
	load_done();
	batch();
	ok(r.status == LE_OK && r.token == OLD, "a waiter that shares its lock by now is told that it has it");
	undo(2, 1);
	ok(held("x", OLD), "when the other one rolls back, its own hold is left");
	undo(1, 1);
	ok(!held("x", OLD), "and it can still roll back as well");
	stop();

	/* its own hold has been loaded: it is the same one */
	start_load();
	row.uncommitted = (LeText){NULL, 0};
	add_stored_hold(&row, holds, 1, 1);
	add_stored_hold(&row, holds, 2, 1);
	load_slot(row);
	again(1, "x", X, OLD);
	load_done();
	batch();
	undo(1, 1);
	ok(held("x", OLD), "a hold that was loaded is not counted again");
	stop();
}

static void
test_changed_permits(void)
{
	LeCommand cmd;

	start_load();
	load_slot(stored("x", OLD, P));
	cmd = request(2, "x", P, LE_WAIT_FOREVER);
	cmd.permits = 2;
	cmd.revision = OLD + 1;
	is_int(apply(cmd).status, LE_WAITING, "a waiter that had asked for another number is not refused");
	load_done();
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
	start_load();
	for (int i = 0; i < 3; i++)
	{
		LeStoredEntry row = stored("x", OLD + (i + 1) % 3, S);

		row.slot = i;
		row.session = 101;
		load_slot(row);
	}
	load_done();
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
	is_int(apply((LeCommand){.type = LE_CMD_ADVANCE, .revision = FIRST + 99}).revision, FIRST + 99,
		   "also by a command");
	is_int(apply((LeCommand){.type = LE_CMD_ADVANCE, .revision = 1}).revision, FIRST + 99,
		   "which says what is next");
	is_int(acquire(1, "x", X).token, FIRST + 99, "that is the next token");
	stop();
}

/* A load finds a holder that session 2 has a hold of; then a waiter of session 2, of the same owner, comes back. */
static LeReply
owned_and_back(uint64_t session, uint32_t holds)
{
	LeStoredHold uncommitted[1];
	LeStoredEntry row;
	LeCommand cmd;
	LeReply r;

	start_load();
	row = stored("x", OLD, X);
	row.owner = text("worker");
	row.session = session;
	row.holds = holds;
	add_stored_hold(&row, uncommitted, 2, 1);
	load_slot(row);
	cmd = request(2, "x", X, LE_WAIT_FOREVER);
	cmd.owner = text("worker");
	cmd.revision = OLD + 1;
	r = apply(cmd);
	load_done();
	batch();
	return r;
}

/* What its session holds of that has been its own place, and is no answer to the request that waits. */
static void
test_not_joined_yet(void)
{
	owned_and_back(102, 1);
	is_int(on_token(LE_CMD_CHECK, 2, "x", OLD).holds, 2, "one more hold beside the place's own");
	stop();
}

/* It was granted as one more hold of another session's holder, and only the answer was missing. */
static void
test_joined_already(void)
{
	LeReply r = owned_and_back(0, 2);

	ok(r.status == LE_OK && r.token == OLD && r.counted, "a waiter that has joined already is told so");
	is_int(on_token(LE_CMD_CHECK, 2, "x", OLD).holds, 2, "and does not join twice");
	undo(2, 1);
	is_int(on_token(LE_CMD_CHECK, 2, "x", OLD).holds, 1, "it can still roll back");
	stop();
}

int
main(void)
{
	test_holder();
	test_time_left();
	test_free_rows();
	test_time_of_day_set_back();
	test_orphans();
	test_grace();
	test_copied();
	test_rivals();
	test_invalid();
	test_uncommitted();
	test_failed_batch();
	test_failed_expiry();
	test_failed_save();
	test_order();
	test_waiter_joins();
	test_late_waiter();
	test_already_there();
	test_already_there_twice();
	test_not_joined_yet();
	test_joined_already();
	test_changed_permits();
	test_newest();
	test_revisions();
	return done_testing();
}
