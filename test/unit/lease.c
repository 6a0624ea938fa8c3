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
	is_int(on_lease(LE_CMD_LEASE_TTL, lease).valid_for, 1, "time to live");
	is_int(on_lease(LE_CMD_KEEP_ALIVE, lease).valid_for, TTL, "keep alive");
	ok(le_next_dirty_lease(core, NULL) == NULL, "writes nothing");
	cmd = command(LE_CMD_KEEP_ALIVE, 1, NULL);
	cmd.lease = lease;
	cmd.role = ROLE + 1;
	is_int(apply(cmd).status, LE_DENIED, "another role may not");
	pass(TTL);
	is_int(on_lease(LE_CMD_KEEP_ALIVE, lease).status, LE_NO_LEASE, "it ends at its TTL");
	is_int(acquire_on(1, "x", lease, false).status, LE_NO_LEASE, "and nothing can hang on it");
	lease = grant_lease(TTL);
	cmd = request(1, "x", X, 0);
	cmd.lease = lease;
	cmd.role = ROLE + 1;
	is_int(apply(cmd).status, LE_DENIED, "nor may another role hang something on it");
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
	is_int(await(1, "z", c.token, 0).status, LE_QUEUED, "and every place");
	is_int(on_token(LE_CMD_RENEW, 1, "x", a.token).valid_for, TTL, "renewing one of them renews the lease");
	{
		LeCommand cmd = command(LE_CMD_RENEW, 1, "x");

		cmd.token = a.token;
		cmd.ttl = TTL;
		is_int(apply(cmd).status, LE_BAD_TTL, "a TTL cannot be given with a named lease");
	}
	end_session(1);
	ok(held("x", a.token), "a lease outlives the session");
	on_lease(LE_CMD_REVOKE_LEASE, lease);
	batch();
	ok(!held("x", a.token) && !held("y", b.token), "revoking it ends all");
	is_int(await(2, "z", c.token, 0).status, LE_LOST, "the place too");
	stop();
}

/* A client that does not know what became of its request sends it again. */
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
	is_int(b.token, a.token, "a place is taken once on a lease");
	is_int(b.position, 1, "and has one position");
	batch();
	undo(2, 1);
	batch();
	{
		LeCommand cmd = command(LE_CMD_FORCE, 0, "x");

		cmd.any_role = true;
		apply(cmd);
	}
	batch();
	ok(held("x", a.token), "one of two that ask keeps it, if the other rolls back");
	is_int(acquire_on(2, "x", lease, true).token, a.token, "what is held is held");
	stop();
}

/* It must not be granted what another one on the same dead lease leaves. */
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
		is_int(b.status, LE_QUEUED, "two owners on one lease are two");
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
		ok(got(2, LE_LOST), "a waiter learns of its lease's end at once");
		ok(got(4, LE_OK), "who has another lease is granted");
		is_int(le_core_stats(core)->handoffs, 1, "and nobody in between");
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

/* Its deadline has passed, but the batch that ends it is not that far yet. */
/* A keep-alive may come that was sent before the deadline: until that is known it has not ended. */
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
	ok(on_lease(LE_CMD_KEEP_ALIVE, lease).status == LE_OK, "kept alive at its deadline");
	batch();
	ok(got(2, LE_OK), "who waits on it is granted");
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
	is_int(acquire_on(4, "y", lease, false).status, LE_NO_LEASE, "nothing can hang on an overdue lease");
	release(1, "x", a.token);
	le_core_expire(core, now, 10);
	batch();
	ok(got(2, LE_LOST), "who waits on it is not granted");
	ok(got(3, LE_OK), "but the next one is");
	stop();

	start();
	lease = grant_lease(TTL);
	acquire_on(1, "x", lease, false);
	batch();
	now += TTL;
	is_int(on_lease(LE_CMD_KEEP_ALIVE, lease).valid_for, TTL,
		   "a keep-alive that is not too late to be read counts");
	le_core_expire(core, now, 10);
	batch();
	is_int(acquire_on(2, "y", lease, false).status, LE_OK, "and the lease lives");
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
	ok(le_next_dirty_lease(core, NULL) != NULL, "the time left of a long one is saved");
	batch();
	now += LE_SECOND;
	ok(on_lease(LE_CMD_KEEP_ALIVE, lease).wrote, "its renewal is written: it is restored from there");
	batch();
	a = acquire_on(1, "x", lease, false);
	batch();
	ok(!on_token(LE_CMD_RENEW, 1, "x", a.token).wrote, "the next one is not");
	now += LE_SAVE_INTERVAL;
	le_core_expire(core, now, 10);
	batch();
	ok(on_token(LE_CMD_RENEW, 1, "x", a.token).wrote, "the renewal of a lock on it is written as well");
	batch();
	now += LE_SAVE_INTERVAL;
	le_core_expire(core, now, 10);
	batch();
	ok(await(1, "x", a.token, 0).wrote, "and who waits for it keeps it alive likewise");
	batch();
	ok(!await(1, "x", a.token, 0).wrote, "the next one writes nothing");
	pass(4 * LE_SAVE_INTERVAL - 1);
	is_int(on_lease(LE_CMD_LEASE_TTL, lease).valid_for, 1, "it lives to its end");
	now += 2;
	is_int(on_lease(LE_CMD_LEASE_TTL, lease).valid_for, 0, "overdue: nothing is left, not less");
	stop();
}

/* Rows that were loaded have an old time left: it is saved again an interval after the load, not before. */
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
	   "for an interval after a load no time left is saved");
	now += 1;
	le_core_expire(core, now, 10);
	ok(le_next_dirty_lease(core, NULL) != NULL && le_next_dirty_slot(core, NULL) != NULL, "then it is");
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
