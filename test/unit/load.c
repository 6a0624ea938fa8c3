/* Building the state from stored rows. */
/* Promises: D */
#include "fixture.h"

#define OLD (FIRST - 1000)

/* A waiter from before the load posts its request again. */
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
	ok(held("x", OLD), "a loaded holder holds");
	is_int(find_token(OLD)->acquired_at, now - 7 * LE_SECOND, "a loaded holder has the time of its acquire");
	is_int(acquire(2, "x", X).status, LE_WAITING, "a request waits for the loaded holder");
	release(1, "x", OLD);
	ok(held("x", OLD), "a loaded holder has all its holds");
	batch();
	pass(TTL - 1);
	ok(!was_told[2], "a loaded holder holds for its full TTL");
	pass(1);
	ok(got(2, LE_OK), "the waiter is granted at the end of the loaded holder's TTL");
	ok(told[2].token >= FIRST, "tokens after the load are higher");
	stop();
}

/* Renewals write nothing, so the time of the last one is unknown. A row contains the least remaining time. */
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
	is_int(time_left(OLD), LE_SECOND, "a loaded holder has the remaining time of its row");
	is_int(time_left(OLD + 1), 600 * LE_SECOND, "a loaded long holder has the saved remaining time");
	is_int(time_left(OLD + 2), 1000 * LE_SECOND, "a remaining time above the TTL is reduced to the TTL");
	is_int(le_core_find_lease(core, OLD + 3)->deadline - now, LE_SECOND,
		   "a loaded lease has its stored time");
	is_int(le_core_find_lease(core, OLD + 4)->deadline - now, LE_SECOND,
		   "a loaded long lease has the saved remaining time");
	ok(le_next_dirty_lease(core, NULL) == NULL, "loading a lease writes nothing");
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
	is_int(le_core_lock_count(core), 1, "a loaded free row is kept for a while");
	pass(LE_LINGER + LE_LINGER_STEP);
	is_int(le_core_lock_count(core), 0, "a loaded free row is removed later");
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
	ok(got(2, LE_OK) && !was_told[3], "a closed name is granted when it opens, and not before");
	stop();
}

/* The rows have times in the future, because the time of day was set back. */
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
	ok(!was_told[2] && !was_told[3], "closed names are closed after the time of day was set back");
	pass(1);
	ok(got(2, LE_OK) && got(3, LE_OK), "names are not closed for longer after the time of day was set back");
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
	is_int(find_token(OLD + 3)->waiter->since, now - LE_SECOND, "a loaded place has the start of its wait");
	load_done();
	ok(le_next_dirty_slot(core, NULL) != NULL, "the rows of ended holders are written as free");
	batch();
	ok(!held("bound", OLD), "a holder bound to a connection that is gone has ended");
	ok(held("bound", OLD + 3), "the next place is granted the lock of the ended holder");
	ok(!held("leased", OLD + 1) && !held("leased", OLD + 2), "holder and place of a lost lease have ended");
	ok(held("live", OLD + 5), "a holder on a loaded lease holds");
	stop();
}

/* The end of a connection together with the manager is treated like a later end. */
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
	ok(!held("fenced", OLD + 1), "a fenced holder bound to a connection that is gone is not held");
	fenced_token = 0;
	apply((LeCommand){.type = LE_CMD_FENCE_ENDED});
	pass(3 * LE_SECOND - 1);
	ok(!was_told[2] && !was_told[3], "the waiters are not granted before the grace");
	pass(1);
	ok(got(2, LE_OK) && got(3, LE_OK), "the waiters are granted after the grace");
	stop();
}

/* In a copy of a database nothing is held, whatever the numbers of its sessions. */
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
	is_int(acquire(2, "closed", X).status, LE_OK, "no name is closed in a copy");
	stop();
}

/* Another program has written into the table. */
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
			   "two exclusive holders of one lock are detected");
		is_int(newest, OLD + 1, "the newer of two exclusive holders is kept");
		load_done();
		batch();
		ok(held("x", OLD + 1) && !held("x", OLD), "the newer holder is kept in either order of the rows");
		stop();
	}

	start_load();
	load_slot(stored("x", OLD, X));
	fenced_token = OLD;
	row = stored("x", OLD + 1, S);
	row.slot = 1;
	is_int(le_core_load_slot(core, &row, &newest), LE_LOADED_RIVAL,
		   "an exclusive holder next to a shared one is detected");
	is_int(newest, OLD, "the fenced older holder is kept");
	load_done();
	batch();
	ok(!held("x", OLD + 1), "no holder is admitted next to a fence");
	fenced_token = 0;
	apply((LeCommand){.type = LE_CMD_FENCE_ENDED});
	batch();
	stop();

	start_load();
	row = stored("x", OLD, S);
	load_slot(row);
	row.slot = 1;
	row.token++;
	is_int(load_slot(row), LE_LOADED, "two shared holders are not rivals");
	load_done();
	batch();
	ok(held("x", OLD) && held("x", OLD + 1), "both shared holders are kept");
	stop();
}

/* Rows that a core cannot have written. */
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
	IS_INVALID(load_slot, stored("x", OLD + 1, X), row.uncommitted = text("odd"), "an incomplete hold");
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
	xacts[2]++; /* committed since then */
	load_slot(row);
	load_slot(stored("y", OLD + 1, X));
	load_done();
	batch();
	undo(1, 3);
	is_int(find_token(OLD)->hold_count, 3, "a rollback of a later savepoint undoes no loaded hold");
	undo(1, 2);
	is_int(find_token(OLD)->hold_count, 2, "a rollback of its savepoint undoes a loaded hold");
	end_session(3);
	undo(2, 1);
	is_int(find_token(OLD)->hold_count, 2, "a rollback after a commit does not undo a loaded hold");
	batch();
	stop();
}

/* After a failed batch is reloaded, leases continue with their old deadlines. */
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

	/* the failed batch: a renewal with another TTL, a release, and an end */
	renew = command(LE_CMD_RENEW, 1, "c");
	renew.token = c;
	renew.ttl = 2 * TTL;
	apply(renew);
	release(1, "b", b);
	on_lease(LE_CMD_REVOKE_LEASE, lease);
	is_int(find_token(b) == NULL, true, "a lock is released in the failed batch");
	now += LE_SECOND;

	failed = start_reload();
	load_lease(stored_lease(lease));
	load_slot(stored("a", a, X));
	load_slot(stored("b", b, X));
	load_slot(stored("c", c, X));
	load_place(stored("a", d, X));
	load_done();
	is_int(time_left(a), LE_SECOND, "a holder keeps its deadline over a failed batch");
	is_int(time_left(b), LE_SECOND, "a holder that ended in the failed batch keeps its deadline");
	is_int(time_left(c), TTL, "a holder that got another TTL in the failed batch has its full old TTL");
	is_int(time_left(d), LE_SECOND, "a place keeps its deadline over a failed batch");
	is_int(le_core_find_lease(core, lease)->deadline - now, 5 * LE_SECOND,
		   "a named lease keeps its deadline");
	is_int(find_token(a)->lsn, lsn, "the row of a holder counts as written at the load");
	is_int(find_token(d)->lsn, lsn, "the row of a place counts as written at the load");
	is_int(le_core_find_lease(core, lease)->lsn, lsn, "the row of a lease counts as written at the load");
	batch();
	le_core_destroy(failed);
	stop();
}

/* The deadline has passed, but the expiry could not be written. */
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
		is_int(time_left(a), 0, "an expiry that was not written is due immediately");
		ok(le_core_find_lease(core, lease)->deadline <= now,
		   "the unwritten expiry of a lease is due immediately");
		le_core_destroy(failed);
		le_core_expire(core, now, 100);
	}
	batch();
	is_int(le_core_lock_count(core), 1, "the expiry is written");
	ok(!held("a", a) && le_core_find_lease(core, lease) == NULL, "holder and lease have expired");
	stop();
}

/* The renewal of a long lease is written before its reply, also after a failed batch. */
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
	ok(slot_is_dirty(a), "a repeated renewal of a long holder is written");
	ok(le_next_dirty_lease(core, NULL) != NULL, "a repeated renewal of a long lease is written");
	batch();
	le_core_destroy(failed);
	release(1, "a", a);
	on_lease(LE_CMD_REVOKE_LEASE, lease);
	batch();

	/* the remaining time is saved again if that of the row is much too long */
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
	is_int(time_left(a), ttl - LE_SAVE_INTERVAL, "a long holder keeps its deadline over a failed batch");
	batch();
	le_core_destroy(failed);
	le_core_expire(core, now, 100);
	ok(slot_is_dirty(a), "a remaining time that was not written is saved again");
	batch();
	stop();
}

/*
 * No request is granted before all waiters are back: a reader must not overtake
 * a writer because the reader's place was stored, and the writer's call was not.
 */
static void
test_order(void)
{
	start_load();
	load_slot(stored("x", OLD, S));
	load_place(stored("x", OLD + 2, S));
	is_int(again(2, "x", X, OLD + 1).status, LE_WAITING, "the writer waits again after the load");
	load_done();
	batch();
	ok(!held("x", OLD + 2), "the reader behind the writer still waits");
	release(1, "x", OLD);
	batch();
	ok(got(2, LE_OK) && told[2].token == OLD + 1, "the writer is granted first");
	release(2, "x", OLD + 1);
	batch();
	ok(held("x", OLD + 2), "the reader is granted after the writer");
	stop();

	/* the same with two writers, and a closed name that opens meanwhile */
	start_load();
	load_slot(stored_free("x"));
	load_place(stored("x", OLD + 3, X));
	again(1, "x", X, OLD + 1);
	again(2, "x", X, OLD + 2);
	load_done();
	batch();
	ok(got(1, LE_OK) && !was_told[2], "the oldest writer is granted");
	stop();

	/* a reader returns before the writer that was behind it */
	start_load();
	load_place(stored("x", OLD + 3, S));
	again(1, "x", S, OLD + 1);
	again(2, "x", X, OLD + 2);
	load_done();
	batch();
	ok(got(1, LE_OK) && !was_told[2], "the first reader is granted");
	ok(!held("x", OLD + 3), "the reader behind the writer is not granted");
	stop();
}

/* A waiter whose owner holds the lock joins the holder, as it would have without the load. */
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
	ok(got(1, LE_OK) && told[1].token == OLD, "a waiter joins the holder of its owner");
	stop();

	start_load();
	wrote = lsn;
	load_slot(row);
	cmd.mode = X;
	apply(cmd);
	load_done();
	batch();
	ok(got(1, LE_BAD_UPGRADE), "a waiter that cannot join the holder of its owner gets the error");
	is_int(told[1].lsn, wrote, "the error depends on the row of the holder");
	stop();
}

/* A waiter that returns late can be ahead of waiters that block each other. */
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
	ok(got(2, LE_OK), "a late reader ahead of the writer is granted in the same batch");
	stop();
}

/* The batch was stored, but the reply was not sent. */
static void
test_already_there(void)
{
	LeReply r;

	start_load();
	load_slot(stored("x", OLD, X));
	r = again(1, "x", X, OLD);
	load_done();
	batch();
	ok(r.status == LE_OK && r.token == OLD, "a waiter that was granted before the load gets its token");
	undo(1, 1);
	ok(!held("x", OLD), "a lock that was granted before the load can be rolled back");
	stop();
}

/* Another session of the same owner has re-entered the lock, and got its reply. */
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
	ok(r.status == LE_OK && r.token == OLD,
	   "a waiter that was granted before the load gets its token next to another hold");
	undo(2, 1);
	ok(held("x", OLD), "the waiter's hold survives the rollback of the other session");
	undo(1, 1);
	ok(!held("x", OLD), "the waiter's hold can be rolled back");
	stop();

	/* the waiter's own hold was loaded, too */
	start_load();
	row.uncommitted = (LeText){NULL, 0};
	add_stored_hold(&row, holds, 1, 1);
	add_stored_hold(&row, holds, 2, 1);
	load_slot(row);
	again(1, "x", X, OLD);
	load_done();
	batch();
	undo(1, 1);
	ok(held("x", OLD), "a loaded hold is not counted again");
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
	is_int(apply(cmd).status, LE_WAITING,
		   "a waiter with another number of permits is not rejected after a load");
	load_done();
	batch();
	release(1, "x", OLD);
	batch();
	ok(got(2, LE_OK), "the waiter with another number of permits is granted");
	stop();
}

/* A release without a token ends the newest of several holders of a session. */
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
	is_int(release(1, "x", 0).token, OLD + 2, "the newest holder is found in any order of the rows");
	stop();
}

static void
test_revisions(void)
{
	start();
	le_core_raise_revision(core, FIRST + 50);
	is_int(le_core_next_revision(core), FIRST + 50, "the counter can be raised");
	le_core_raise_revision(core, FIRST);
	is_int(le_core_next_revision(core), FIRST + 50, "the counter cannot be lowered");
	is_int(apply((LeCommand){.type = LE_CMD_ADVANCE, .revision = FIRST + 99}).revision, FIRST + 99,
		   "ADVANCE raises the counter");
	is_int(apply((LeCommand){.type = LE_CMD_ADVANCE, .revision = 1}).revision, FIRST + 99,
		   "ADVANCE returns the next revision");
	is_int(acquire(1, "x", X).token, FIRST + 99, "the next token is the raised counter");
	stop();
}

/*
 * Loads a holder of which session 2 has a hold; then a waiter of session 2, of the same owner, posts its
 * request again.
 */
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

/* The session's loaded hold comes from its own place, so it is not the reply to the waiting request. */
static void
test_not_joined_yet(void)
{
	owned_and_back(102, 1);
	is_int(on_token(LE_CMD_CHECK, 2, "x", OLD).holds, 2, "the waiter joins next to the hold of the place");
	stop();
}

/* The waiter was granted as one more hold of another session's holder, but the reply was not sent. */
static void
test_joined_already(void)
{
	LeReply r = owned_and_back(0, 2);

	ok(r.status == LE_OK && r.token == OLD && r.counted,
	   "a waiter that joined before the load gets its token");
	is_int(on_token(LE_CMD_CHECK, 2, "x", OLD).holds, 2,
		   "a waiter that joined before the load does not join again");
	undo(2, 1);
	is_int(on_token(LE_CMD_CHECK, 2, "x", OLD).holds, 1, "the joined hold can be rolled back");
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
