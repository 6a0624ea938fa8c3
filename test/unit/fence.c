/* A fenced holder is not ended or replaced before its fence ends. */
/* Promises: F */
#include "fixture.h"

static void
fence_ended(void)
{
	fenced_token = 0;
	apply(command(LE_CMD_FENCE_ENDED, 0, NULL));
	batch();
}

static void
test_expiry(void)
{
	LeReply a;

	start();
	a = acquire(1, "x", X);
	acquire(2, "x", X);
	batch();
	fenced_token = a.token;
	pass(TTL);
	ok(!was_told[2], "a fenced holder is not replaced");
	ok(!held("x", a.token), "a fenced holder whose TTL has passed is not held");
	is_int(on_token(LE_CMD_RENEW, 1, "x", a.token).status, LE_NOT_HELD, "a lapsed holder cannot be renewed");
	is_int(release(1, "x", a.token).status, LE_NOT_HELD, "a lapsed holder cannot be released");
	is_int(acquire_as(3, "x", X, NULL).status, LE_WAITING, "a lapsed holder cannot be re-entered");
	fence_ended();
	ok(got(2, LE_OK), "the waiter is granted at the end of the fence");
	stop();

	start();
	a = acquire(1, "x", X);
	acquire(2, "x", X);
	batch();
	fenced_token = a.token;
	pass(TTL);
	fenced_token = 0;
	pass(LE_FENCE_RETRY);
	ok(got(2, LE_OK), "the end of a fence is found without a report");
	stop();
}

static void
test_other_ends(void)
{
	LeReply a;

	start();
	a = acquire(1, "x", X);
	acquire(2, "x", X);
	batch();
	fenced_token = a.token;
	is_int(apply(command(LE_CMD_FORCE, 3, "x")).ended, 1, "a forced fenced holder is counted");
	is_int(apply(command(LE_CMD_FORCE, 3, "x")).ended, 0, "a forced fenced holder is counted once");
	ok(slot_is_dirty(a.token), "the forced end of a fenced holder is written");
	batch();
	ok(!was_told[2], "the forced fenced holder keeps its slot");
	fence_ended();
	ok(got(2, LE_OK), "the waiter is granted when the fence of the forced holder ends");

	a = acquire(1, "y", X);
	fenced_token = a.token;
	undo(1, 1);
	batch();
	ok(!held("y", a.token) && apply(request(3, "y", X, 0)).status == LE_NOT_GRANTED,
	   "the slot of a fenced holder stays after a rollback");
	fence_ended();
	is_int(apply(request(3, "y", X, 0)).status, LE_OK,
		   "the rolled back lock is free at the end of the fence");
	stop();
}

static void
test_grace_after_fence(void)
{
	LeLimits limits = {.expiry_grace = 5 * LE_SECOND};
	LeReply a;

	start();
	le_core_set_limits(core, &limits);
	a = acquire(1, "x", X);
	acquire(2, "x", X);
	batch();
	fenced_token = a.token;
	pass(TTL);
	pass(LE_SECOND);
	fence_ended();
	pass(4 * LE_SECOND - 1);
	ok(!was_told[2], "the waiter is not granted before the grace after the expiry");
	pass(1);
	ok(got(2, LE_OK), "the grace is not counted from the end of the fence");
	stop();
}

/* The grace has passed when the fence ends: the name is not closed, and counts for no role. */
static void
test_fence_outlasts_grace(void)
{
	LeLimits limits = {.expiry_grace = 5 * LE_SECOND, .locks_per_role = 1};
	LeReply a;

	start();
	le_core_set_limits(core, &limits);
	a = acquire(1, "x", X);
	batch();
	fenced_token = a.token;
	pass(TTL);
	pass(6 * LE_SECOND);
	fenced_token = 0;
	apply(command(LE_CMD_FENCE_ENDED, 0, NULL));
	is_int(acquire(2, "y", X).status, LE_OK, "the ended lock does not count for the role");
	stop();
}

static void
test_lease_ends(void)
{
	int64_t lease;
	LeCommand cmd;
	LeReply a;

	start();
	lease = grant_lease(TTL);
	cmd = request(1, "x", X, 0);
	cmd.lease = lease;
	a = apply(cmd);
	acquire(2, "x", X);
	batch();
	fenced_token = a.token;
	on_lease(LE_CMD_REVOKE_LEASE, lease);
	batch();
	ok(!was_told[2] && le_core_find_lease(core, lease) == NULL,
	   "the lease of a fenced holder can end before the fence");
	fence_ended();
	ok(got(2, LE_OK), "the holder on the ended lease ends with the fence");
	stop();
}

/* A fenced holder that was ended by force keeps its lease, which may expire. */
static void
test_grace_of_later_end(void)
{
	LeLimits limits = {.expiry_grace = 5 * LE_SECOND};
	LeCommand cmd;
	LeReply a;

	start();
	le_core_set_limits(core, &limits);
	cmd = request(1, "x", X, 0);
	cmd.lease = grant_lease(TTL);
	a = apply(cmd);
	acquire(2, "x", X);
	batch();
	fenced_token = a.token;
	apply(command(LE_CMD_FORCE, 1, "x"));
	batch();
	now += TTL;
	le_core_expire(core, now, 100);
	ok(slot_is_dirty(a.token), "the grace of a later expiry is written");
	batch();
	fence_ended();
	pass(5 * LE_SECOND - 1);
	ok(!was_told[2], "the waiter is not granted before the grace after the lease's expiry");
	pass(1);
	ok(got(2, LE_OK), "the waiter is granted after the grace");
	stop();
}

/* A holder that ended while it was fenced must not be restored by a load. */
static void
test_reload(void)
{
	LeStoredEntry row;

	start_load();
	row = stored("x", FIRST - 1, X);
	row.end = LE_END_EXPIRED;
	fenced_token = FIRST - 1;
	load_slot(row);
	load_done();
	batch();
	ok(!held("x", FIRST - 1), "a lapsed holder is not held after a load");
	is_int(acquire(2, "x", X).status, LE_WAITING, "a lapsed holder keeps its slot after a load");
	expire();
	ok(!was_told[2], "the waiter is not granted while the loaded fence lasts");
	fence_ended();
	ok(got(2, LE_OK), "the waiter is granted at the end of the loaded fence");
	stop();
}

/* FORCE_ROLE opens names that the role has closed, also those that close only at the end of a fence. */
static void
test_force_role_opens(void)
{
	LeCommand cmd;
	LeReply reply;

	start();
	cmd = command(LE_CMD_RELEASE, 1, "x");
	cmd.token = acquire(1, "x", X).token;
	cmd.hold_for = 10 * TTL;
	fenced_token = cmd.token;
	apply(cmd);
	batch();
	cmd = command(LE_CMD_FORCE_ROLE, 0, NULL);
	cmd.role = ROLE + 1;
	reply = apply(cmd);
	ok(reply.ended == 0 && !reply.reopened, "FORCE_ROLE of another role does not open the name");
	cmd.role = ROLE;
	reply = apply(cmd);
	ok(reply.ended == 1 && reply.reopened, "FORCE_ROLE opens a name that closes at the end of a fence");
	is_int(apply(cmd).ended, 0, "FORCE_ROLE opens the name once");
	batch();
	is_int(acquire(2, "x", X).status, LE_WAITING, "the fence of the opened name lasts");
	fence_ended();
	ok(got(2, LE_OK), "the name is open at the end of the fence");
	stop();
}

static void
test_overdue(void)
{
	LeReply a, b;

	start();
	a = acquire(1, "x", X);
	fenced_token = a.token;
	ok(le_core_overdue(core, LE_SECOND, now) == NULL, "the fence of a holder is not overdue");
	pass(TTL);
	ok(le_core_overdue(core, LE_SECOND, now) == NULL, "a fence is not overdue at the end of its holder");
	pass(LE_SECOND);
	ok(le_core_overdue(core, LE_SECOND, now) == find_token(a.token), "a fence is overdue after the timeout");
	ok(le_core_overdue(core, LE_SECOND, now) == NULL, "an overdue fence is reported once");
	pass(LE_SECOND - 1);
	ok(le_core_overdue(core, LE_SECOND, now) == NULL,
	   "an overdue fence is not reported again before the timeout");
	pass(1);
	ok(le_core_overdue(core, LE_SECOND, now) != NULL, "an overdue fence is reported again after the timeout");
	b = acquire(2, "y", X);
	fence_ended();
	ok(le_core_overdue(core, 0, now) == NULL && held("y", b.token), "a fence that has ended is not overdue");
	stop();
}

int
main(void)
{
	test_expiry();
	test_other_ends();
	test_grace_after_fence();
	test_fence_outlasts_grace();
	test_lease_ends();
	test_grace_of_later_end();
	test_reload();
	test_force_role_opens();
	test_overdue();
	return done_testing();
}
