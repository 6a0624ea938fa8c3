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
	ok(!was_told[2], "nobody replaces a fenced holder");
	ok(!held("x", a.token), "which is no longer one for anybody else");
	is_int(on_token(LE_CMD_RENEW, 1, "x", a.token).status, LE_NOT_HELD, "its ended TTL cannot be renewed");
	is_int(release(1, "x", a.token).status, LE_NOT_HELD, "nor released");
	is_int(acquire_as(3, "x", X, NULL).status, LE_WAITING, "nor entered again");
	fence_ended();
	ok(got(2, LE_OK), "with the fence it ends");
	stop();

	start();
	a = acquire(1, "x", X);
	acquire(2, "x", X);
	batch();
	fenced_token = a.token;
	pass(TTL);
	fenced_token = 0;
	pass(LE_FENCE_RETRY);
	ok(got(2, LE_OK), "also if nobody says that the fence ended");
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
	is_int(apply(command(LE_CMD_FORCE, 3, "x")).ended, 1, "a fenced holder is counted when forced");
	is_int(apply(command(LE_CMD_FORCE, 3, "x")).ended, 0, "once");
	ok(slot_is_dirty(a.token), "that is written");
	batch();
	ok(!was_told[2], "it stays until then");
	fence_ended();
	ok(got(2, LE_OK), "and goes with its fence");

	a = acquire(1, "y", X);
	fenced_token = a.token;
	undo(1, 1);
	batch();
	ok(!held("y", a.token) && apply(request(3, "y", X, 0)).status == LE_NOT_GRANTED,
	   "a rollback waits for it too");
	fence_ended();
	is_int(apply(request(3, "y", X, 0)).status, LE_OK, "and is done then");
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
	ok(!was_told[2], "the grace runs from the expiry");
	pass(1);
	ok(got(2, LE_OK), "not from the end of the fence");
	stop();
}

/* The grace is over when the fence ends: the name is not closed, and counts for nobody. */
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
	is_int(acquire(2, "y", X).status, LE_OK, "another lock is all that the role has");
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
	ok(!was_told[2] && le_core_find_lease(core, lease) == NULL, "its lease may end before the fence");
	fence_ended();
	ok(got(2, LE_OK), "it ends with the fence");
	stop();
}

/* Who was ended by force while it was fenced still has its lease, which may expire. */
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
	ok(slot_is_dirty(a.token), "the grace that begins meanwhile is written");
	batch();
	fence_ended();
	pass(5 * LE_SECOND - 1);
	ok(!was_told[2], "the grace runs from the lease's expiry");
	pass(1);
	ok(got(2, LE_OK), "and not for longer");
	stop();
}

/* What ended while it was fenced must not come back to life. */
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
	ok(!held("x", FIRST - 1), "it is none");
	is_int(acquire(2, "x", X).status, LE_WAITING, "but is in the way");
	expire();
	ok(!was_told[2], "while its fence lasts");
	fence_ended();
	ok(got(2, LE_OK), "and no longer");
	stop();
}

/* What a role has closed is opened, also where it would be closed only when a fence ends. */
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
	ok(reply.ended == 0 && !reply.reopened, "another role has not closed it");
	cmd.role = ROLE;
	reply = apply(cmd);
	ok(reply.ended == 1 && reply.reopened, "its role has, and is forced to open it");
	is_int(apply(cmd).ended, 0, "once");
	batch();
	is_int(acquire(2, "x", X).status, LE_WAITING, "its fence lasts");
	fence_ended();
	ok(got(2, LE_OK), "and the name is open after that");
	stop();
}

static void
test_overdue(void)
{
	LeReply a, b;

	start();
	a = acquire(1, "x", X);
	fenced_token = a.token;
	ok(le_core_overdue(core, LE_SECOND, now) == NULL, "a fence of a holder is never overdue");
	pass(TTL);
	ok(le_core_overdue(core, LE_SECOND, now) == NULL, "nor at its end");
	pass(LE_SECOND);
	ok(le_core_overdue(core, LE_SECOND, now) == find_token(a.token), "but the timeout later");
	ok(le_core_overdue(core, LE_SECOND, now) == NULL, "once");
	pass(LE_SECOND - 1);
	ok(le_core_overdue(core, LE_SECOND, now) == NULL, "and not soon again");
	pass(1);
	ok(le_core_overdue(core, LE_SECOND, now) != NULL, "if that did not help");
	b = acquire(2, "y", X);
	fence_ended();
	ok(le_core_overdue(core, 0, now) == NULL && held("y", b.token), "with the fence it is over");
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
