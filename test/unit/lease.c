/* Named leases and the locks on them. */
/* Promises: G */
#include "fixture.h"

static LeReply
acquire_by(uint32_t session, const char *name, int64_t lease, bool enqueued, const char *owner)
{
	LeCommand cmd = request(session, name, X, enqueued ? 0 : LE_WAIT_FOREVER);

	cmd.lease = lease;
	cmd.enqueue = enqueued;
	cmd.owner = (LeText){owner, owner != NULL ? (uint32_t) strlen(owner) : 0};
	return apply(cmd);
}

static LeReply
acquire_on(uint32_t session, const char *name, int64_t lease, bool enqueued)
{
	return acquire_by(session, name, lease, enqueued, NULL);
}

static void
test_life(void)
{
	int64_t lease;
	LeCommand cmd;

	start();
	lease = grant_lease(TTL);
	is_int(lease, FIRST, "a lease has a revision");
	batch();
	pass(TTL - 1);
	is_int(on_lease(LE_CMD_LEASE_TTL, lease).valid_for, 1, "the time to live of a lease");
	is_int(on_lease(LE_CMD_KEEP_ALIVE, lease).valid_for, TTL, "a keep-alive returns the full TTL");
	ok(le_next_dirty_lease(core, NULL) == NULL, "a keep-alive writes nothing");
	cmd = command(LE_CMD_KEEP_ALIVE, 1, NULL);
	cmd.lease = lease;
	cmd.role = ROLE + 1;
	is_int(apply(cmd).status, LE_DENIED, "another role cannot keep a lease alive");
	pass(TTL);
	is_int(on_lease(LE_CMD_KEEP_ALIVE, lease).status, LE_NO_LEASE, "a lease ends at its TTL");
	is_int(acquire_on(1, "x", lease, false).status, LE_NO_LEASE, "nothing is acquired on an ended lease");
	lease = grant_lease(TTL);
	cmd = request(1, "x", X, 0);
	cmd.lease = lease;
	cmd.role = ROLE + 1;
	is_int(apply(cmd).status, LE_DENIED, "another role cannot acquire on a lease");
	stop();
}

static void
test_one_keep_alive_for_all(void)
{
	int64_t lease;
	LeReply a, b, c;

	start();
	lease = grant_lease(TTL);
	acquire(3, "z", X);
	a = acquire_on(1, "x", lease, false);
	b = acquire_on(2, "y", lease, false);
	c = acquire_on(1, "z", lease, true);
	batch();
	for (int i = 0; i < 3; i++)
	{
		pass(TTL / 2);
		on_lease(LE_CMD_KEEP_ALIVE, lease);
		on_token(LE_CMD_RENEW, 3, "z", FIRST + 1);
	}
	ok(held("x", a.token) && held("y", b.token), "one keep-alive keeps every lock");
	is_int(await(1, "z", c.token, 0).status, LE_QUEUED, "one keep-alive keeps every place");
	is_int(on_token(LE_CMD_RENEW, 1, "x", a.token).valid_for, TTL, "renewing one lock renews its lease");
	{
		LeCommand cmd = command(LE_CMD_RENEW, 1, "x");

		cmd.token = a.token;
		cmd.ttl = TTL;
		is_int(apply(cmd).status, LE_BAD_TTL, "a TTL cannot be given with a named lease");
	}
	end_session(1);
	ok(held("x", a.token), "a lease outlives its session");
	on_lease(LE_CMD_REVOKE_LEASE, lease);
	batch();
	ok(!held("x", a.token) && !held("y", b.token), "revoking a lease ends its locks");
	is_int(await(2, "z", c.token, 0).status, LE_LOST, "revoking a lease ends its place");
	stop();
}

/* A client repeats a request whose outcome it does not know. */
static void
test_same_request(void)
{
	int64_t lease;
	LeReply a, b;

	start();
	lease = grant_lease(TTL);
	acquire(3, "x", X);
	a = acquire_on(1, "x", lease, true);
	b = acquire_on(2, "x", lease, true);
	is_int(b.token, a.token, "a repeated request on a lease returns the same place");
	is_int(b.position, 1, "a repeated place has one position");
	batch();
	undo(2, 1);
	batch();
	{
		LeCommand cmd = command(LE_CMD_FORCE, 0, "x");

		cmd.any_role = true;
		apply(cmd);
	}
	batch();
	ok(held("x", a.token), "one of two requests keeps the lock if the other one rolls back");
	is_int(acquire_on(2, "x", lease, true).token, a.token,
		   "a repeated request for a held lock returns its token");
	stop();
}

/* A waiter must not be granted the lock that another entry on the same ended lease releases. */
static void
test_waiter_on_dead_lease(void)
{
	int64_t lease;
	LeReply a, b;

	for (int revoke = 0; revoke < 2; revoke++)
	{
		start();
		lease = grant_lease(TTL);
		a = acquire_by(1, "x", lease, true, "one");
		is_int(a.status, LE_OK, "holder on the lease");
		b = acquire_by(2, "x", lease, true, "two");
		is_int(b.status, LE_QUEUED, "two owners on one lease are two entries");
		await(2, "x", b.token, LE_WAIT_FOREVER);
		acquire_on(3, "y", lease, false);
		acquire(4, "x", X);
		batch();
		if (revoke)
		{
			on_lease(LE_CMD_REVOKE_LEASE, lease);
			batch();
		}
		else
			pass(TTL);
		ok(got(2, LE_LOST), "a waiter is ended in the same batch as its lease");
		ok(got(4, LE_OK), "the next waiter, which is not on the lease, is granted");
		is_int(le_core_stats(core)->handoffs, 1, "no waiter on the ended lease was granted in between");
		stop();
	}
}

static void
test_blocked_on_dead_lease(void)
{
	int64_t lease;

	start();
	lease = grant_lease(TTL);
	acquire(1, "x", X);
	pass(TTL / 2);
	on_token(LE_CMD_RENEW, 1, "x", FIRST + 1);
	acquire_on(2, "x", lease, false);
	pass(TTL / 2);
	ok(got(2, LE_LOST), "a blocked call ends with its lease");
	stop();
}

/*
 * The deadline of the lease has passed, but a keep-alive that was sent before the deadline can still arrive:
 * until the horizon has passed the deadline, the lease has not ended.
 */
static void
test_horizon(void)
{
	int64_t lease, first;

	start();
	lease = grant_lease(TTL);
	first = acquire(1, "x", X).token;
	acquire_on(2, "x", lease, false);
	batch();
	le_core_set_horizon(core, now + TTL - 1);
	now += TTL;
	release(1, "x", first);
	ok(on_lease(LE_CMD_KEEP_ALIVE, lease).status == LE_OK, "a lease is kept alive at its deadline");
	batch();
	ok(got(2, LE_OK), "a waiter on the lease is granted");
	le_core_set_horizon(core, LE_NEVER);
	stop();
}

static void
test_overdue(void)
{
	int64_t lease;
	LeReply a;

	start();
	lease = grant_lease(TTL);
	a = acquire(1, "x", X);
	acquire_on(2, "x", lease, false);
	acquire(3, "x", X);
	batch();
	now += TTL;
	is_int(acquire_on(4, "y", lease, false).status, LE_NO_LEASE, "nothing is acquired on an overdue lease");
	release(1, "x", a.token);
	le_core_expire(core, now, 10);
	batch();
	ok(got(2, LE_LOST), "a waiter on an overdue lease is not granted");
	ok(got(3, LE_OK), "the waiter behind it is granted");
	stop();

	start();
	lease = grant_lease(TTL);
	acquire_on(1, "x", lease, false);
	batch();
	now += TTL;
	is_int(on_lease(LE_CMD_KEEP_ALIVE, lease).valid_for, TTL,
		   "a keep-alive that is applied before the expiry counts");
	le_core_expire(core, now, 10);
	batch();
	is_int(acquire_on(2, "y", lease, false).status, LE_OK, "the lease is valid after the keep-alive");
	stop();
}

static void
test_long_lease(void)
{
	int64_t lease;
	LeReply a;

	start();
	lease = grant_lease(4 * LE_SAVE_INTERVAL);
	batch();
	now += LE_SAVE_INTERVAL;
	le_core_expire(core, now, 10);
	ok(le_next_dirty_lease(core, NULL) != NULL, "the remaining time of a long lease is saved");
	batch();
	now += LE_SECOND;
	ok(on_lease(LE_CMD_KEEP_ALIVE, lease).wrote,
	   "a keep-alive after a save is written, because a load restores the saved time");
	batch();
	a = acquire_on(1, "x", lease, false);
	batch();
	ok(!on_token(LE_CMD_RENEW, 1, "x", a.token).wrote, "a second renewal after the save is not written");
	now += LE_SAVE_INTERVAL;
	le_core_expire(core, now, 10);
	batch();
	ok(on_token(LE_CMD_RENEW, 1, "x", a.token).wrote,
	   "the renewal of a lock on the lease after a save is written");
	batch();
	now += LE_SAVE_INTERVAL;
	le_core_expire(core, now, 10);
	batch();
	ok(await(1, "x", a.token, 0).wrote, "an AWAIT of a lock on the lease after a save is written");
	batch();
	ok(!await(1, "x", a.token, 0).wrote, "a second AWAIT after the save is not written");
	pass(4 * LE_SAVE_INTERVAL - 1);
	is_int(on_lease(LE_CMD_LEASE_TTL, lease).valid_for, 1, "a long lease lasts until its deadline");
	now += 2;
	is_int(on_lease(LE_CMD_LEASE_TTL, lease).valid_for, 0, "the time to live of an overdue lease is 0");
	stop();
}

/*
 * Loaded rows have an old remaining time, which is saved again an interval after the load, and not earlier.
 */
static void
test_loaded_long_lease(void)
{
	LeStoredLease lease;
	LeStoredEntry row;

	start_load();
	lease = stored_lease(FIRST - 2);
	row = stored("x", FIRST - 1, X);
	lease.ttl = row.ttl = 4 * LE_SAVE_INTERVAL;
	lease.time_left = row.time_left = 2 * LE_SAVE_INTERVAL;
	load_lease(lease);
	load_slot(row);
	load_done();
	batch();
	now += LE_SAVE_INTERVAL - 1;
	le_core_expire(core, now, 10);
	ok(le_next_dirty_lease(core, NULL) == NULL && le_next_dirty_slot(core, NULL) == NULL,
	   "no remaining time is saved for an interval after a load");
	now += 1;
	le_core_expire(core, now, 10);
	ok(le_next_dirty_lease(core, NULL) != NULL && le_next_dirty_slot(core, NULL) != NULL,
	   "remaining times are saved an interval after a load");
	batch();
	stop();
}

int
main(void)
{
	test_life();
	test_one_keep_alive_for_all();
	test_same_request();
	test_waiter_on_dead_lease();
	test_blocked_on_dead_lease();
	test_horizon();
	test_overdue();
	test_long_lease();
	test_loaded_long_lease();
	return done_testing();
}
