/* Replies and counters beyond the status, and the core's information about its sessions. */
/* Promises: - */
#include "fixture.h"
#include "core/state.h"

static LeCommand
bound_request(uint32_t session, const char *name)
{
	LeCommand cmd = request(session, name, X, LE_WAIT_FOREVER);

	cmd.ttl = LE_TTL_BOUND;
	return cmd;
}

static void
test_bound(void)
{
	LeReply reply;
	int64_t token;

	start();
	reply = apply(bound_request(1, "x"));
	ok(reply.status == LE_OK && reply.bound && reply.valid_for == LE_NEVER,
	   "the grant of a bound lock is marked");
	token = reply.token;
	batch();
	reply = on_token(LE_CMD_CHECK, 1, "x", token);
	ok(reply.bound && reply.valid_for == LE_NEVER, "the check of a bound lock is marked");
	reply = acquire(2, "y", X);
	ok(!reply.bound && reply.valid_for == TTL, "the grant of a lock with a lease is not marked as bound");
	token = reply.token;
	reply = on_token(LE_CMD_CHECK, 2, "y", token);
	ok(!reply.bound && reply.valid_for == TTL, "the check of a lock with a lease is not marked as bound");
	is_int(le_core_bound_to(core, 101, 1), 1, "a session has one bound entry");
	is_int(le_core_bound_to(core, 102, 2), 0, "a lock with its own lease is not bound to its session");
	is_int(le_core_bound_to(core, 555, 1), 0, "another session of the same number has no bound entry");
	end_session(1);
	is_int(le_core_bound_to(core, 101, 1), 0, "a session that has ended has no bound entry");
	batch();
	stop();
}

/* Properties of replies for several names. */
static LeReply
acquire_each(uint32_t session, const char *a, const char *b, int64_t lease, bool enqueue)
{
	static LeText names[2];
	static LeReply replies[2];
	LeCommand cmd = request(session, NULL, X, 0);
	LeReply all;

	names[0] = text(a);
	names[1] = text(b);
	cmd.each = true;
	cmd.names = names;
	cmd.nnames = 2;
	cmd.owner = text("o");
	cmd.enqueue = enqueue;
	cmd.lease = lease;
	cmd.ttl = lease != 0 ? 0 : TTL;
	if (!le_core_reserve(core, &cmd))
		abort();
	le_core_apply_each(core, &cmd, now, replies, &all);
	return all;
}

static void
test_each(void)
{
	LeReply reply;
	int64_t lease;

	start();
	ok(!acquire_each(1, "a", "b", 0, false).reentrant, "two new locks are not re-entered");
	batch();
	ok(acquire_each(1, "a", "b", 0, false).reentrant, "two held locks are re-entered");
	ok(!acquire_each(1, "a", "c", 0, false).reentrant, "a held and a new lock are not re-entered");
	ok(!acquire_each(1, "d", "a", 0, false).reentrant, "a new and a held lock are not re-entered");
	batch();
	acquire(2, "taken", X);
	ok(acquire_each(1, "a", "taken", 0, true).reentrant,
	   "a place does not count when a held lock is re-entered");
	ok(acquire_each(1, "taken", "a", 0, true).reentrant, "a place before a held lock does not count, either");
	batch();

	lease = grant_lease(TTL);
	batch();
	on_lease(LE_CMD_REVOKE_LEASE, lease);
	batch();
	now += LE_SECOND;
	reply = acquire_each(3, "e", "f", lease, false);
	is_int(reply.status, LE_NO_LEASE, "nothing is acquired on a revoked lease");
	ok(reply.ending == LE_END_REVOKED && reply.ending_ago == LE_SECOND,
	   "the reply contains the ending of the lease and its time");
	stop();
}

static void
test_work(void)
{
	LeLimits limits = {.work = 100};

	start();
	le_core_set_limits(core, &limits);
	batch();
	le_core_worked(core, 60);
	ok(!le_core_is_full(core), "work of the environment below the limit does not fill a batch");
	le_core_worked(core, 40);
	ok(le_core_is_full(core), "work of the environment at the limit fills the batch");
	batch();
	ok(!le_core_is_full(core), "the next batch begins without work");
	stop();
}

/* Returns the work that was done since the start of the batch. */
static int
work_done(void)
{
	int left = 0;

	while (!le_core_is_full(core))
	{
		le_core_worked(core, 1);
		left++;
	}
	batch();
	return 100 - left;
}

/* Entries that are created, granted or ended count, and rows that a command examines. */
static void
test_work_of_commands(void)
{
	LeLimits limits = {.work = 100};
	LeCommand cmd;
	LeReply a;

	start();
	le_core_set_limits(core, &limits);
	a = acquire(1, "x", X);
	is_int(work_done(), 2, "work of a request that is granted");
	acquire(2, "x", X);
	is_int(work_done(), 1, "work of a request that waits");
	release(1, "x", a.token);
	is_int(work_done(), 2, "work of a release and a grant");
	end_session(2);
	is_int(work_done(), 1, "work of the end of a session whose holder stays");
	for (uint32_t session = 3; session < 6; session++)
	{
		cmd = request(session, "p", P, 0);
		cmd.permits = 3;
		apply(cmd);
	}
	batch();
	cmd = command(LE_CMD_SET_PERMITS, 1, "p");
	cmd.permits = 4;
	cmd.any_role = true;
	apply(cmd);
	is_int(work_done(), 3, "work of another number of permits for three holders");
	cmd = command(LE_CMD_RELEASE, 6, "closed");
	cmd.token = acquire(6, "closed", X).token;
	cmd.hold_for = TTL;
	cmd.role = ROLE;
	apply(cmd);
	pass(TTL - 1);
	cmd = command(LE_CMD_FORCE_ROLE, 1, NULL);
	while ((cmd.from = apply(cmd).next) != 0)
		batch();
	batch();
	stop();

	/* only a closed name, also if its time has passed and this was not yet noticed */
	for (int late = 0; late < 2; late++)
	{
		start();
		le_core_set_limits(core, &limits);
		cmd = command(LE_CMD_RELEASE, 6, "closed");
		cmd.token = acquire(6, "closed", X).token;
		cmd.hold_for = TTL;
		apply(cmd);
		batch();
		now += late ? TTL : 1;
		a = apply(command(LE_CMD_FORCE_ROLE, 1, NULL));
		ok(a.ended == !late && a.reopened == !late,
		   "FORCE_ROLE opens a closed name, and counts it while it is closed");
		is_int(le_core_find_lock(core, LE_KIND_LOCK, text("closed"))->closed_until, 0,
			   "FORCE_ROLE opens the name immediately");
		is_int(work_done(), 1, "work of opening a name");
		stop();
	}
}

static void
test_handoffs(void)
{
	static const LeText names[] = {{"a", 1}, {"b", 1}};
	LeCommand both = request(2, NULL, X, LE_WAIT_FOREVER);
	LeReply a, b;

	start();
	a = acquire(1, "a", X);
	b = acquire(1, "b", X);
	both.names = names;
	both.nnames = 2;
	is_int(apply(both).status, LE_WAITING, "a group waits for two locks");
	batch();
	is_int(le_core_stats(core)->handoffs, 0, "a waiting group is no hand-off");
	release(1, "a", a.token);
	batch();
	is_int(le_core_stats(core)->handoffs, 0, "one free lock of a waiting group is no hand-off");
	release(1, "b", b.token);
	batch();
	ok(got(2, LE_OK), "the group is granted");
	is_int(le_core_stats(core)->handoffs, 2, "a granted group of two is two hand-offs");
	acquire(3, "a", X);
	batch();
	end_session(2);
	now += TTL;
	expire();
	ok(got(3, LE_OK), "a single waiter is granted");
	is_int(le_core_stats(core)->handoffs, 3, "a single waiter is one more hand-off");
	stop();
}

/*
 * If a batch takes longer than the TTL of a grant, the reply still contains a time, because 0 would mean
 * none.
 */
static void
test_late_answer(void)
{
	LeReply first;
	LeCommand cmd = request(2, "x", X, LE_WAIT_FOREVER);

	start();
	first = acquire(1, "x", X);
	cmd.ttl = TTL;
	apply(cmd);
	release(1, "x", first.token);
	now += 2 * TTL;
	batch();
	ok(got(2, LE_OK), "a grant gets its reply after its TTL");
	is_int(told[2].valid_for, 1, "the late reply contains the shortest time");
	expire();
	stop();
}

/* A waiter that joins a holder holds for as long as the holder. */
static void
test_joins(void)
{
	LeReply first;
	LeCommand cmd;
	int64_t lease;

	start();
	lease = grant_lease(TTL);
	first = acquire(1, "x", X);
	for (uint32_t session = 2; session < 4; session++)
	{
		cmd = request(session, "x", X, LE_WAIT_FOREVER);
		cmd.lease = lease;
		is_int(apply(cmd).status, LE_WAITING, "two calls wait on one lease");
	}
	batch();
	now += TTL / 2;
	release(1, "x", first.token);
	batch();
	ok(got(2, LE_OK) && got(3, LE_OK) && told[3].token == told[2].token,
	   "the second waiter on a lease joins the first");
	is_int(told[2].valid_for, TTL / 2, "the first waiter gets the remaining time of the lease");
	is_int(told[3].valid_for, TTL / 2, "the second waiter gets the remaining time of the lease");
	stop();

	/* the same for a named owner with a longer TTL */
	start();
	first = acquire(1, "x", X);
	cmd = request(2, "x", X, LE_WAIT_FOREVER);
	cmd.owner = text("me");
	cmd.ttl = 2 * TTL;
	apply(cmd);
	acquire_as(3, "x", X, "me");
	batch();
	release(1, "x", first.token);
	batch();
	ok(got(3, LE_OK) && told[3].token == told[2].token, "the second waiter of an owner joins the first");
	is_int(told[3].valid_for, 2 * TTL, "the second waiter of an owner gets the remaining time of the first");
	stop();
}

/* A renewed lease is written; a reply that contains its time depends on that write. */
static void
test_lease_is_dirty(void)
{
	LeCommand cmd = request(1, "x", X, 0);
	LeReply reply;

	start();
	cmd.lease = grant_lease(2 * LE_SAVE_INTERVAL);
	reply = apply(cmd);
	batch();
	commit(1);
	ok(!on_token(LE_CMD_CHECK, 1, "x", reply.token).wrote, "a check of a written lock depends on no write");
	now += LE_SAVE_INTERVAL;
	expire();
	on_lease(LE_CMD_KEEP_ALIVE, cmd.lease);
	ok(on_token(LE_CMD_CHECK, 1, "x", reply.token).wrote,
	   "a check depends on the lease that was renewed in the same batch");
	batch();
	stop();
}

/* The end of a connection without a grace: no later moment has to be awaited. */
static void
test_end_of_session(void)
{
	LeLock *lock;

	start();
	apply(bound_request(1, "x"));
	batch();
	end_session(1);
	lock = le_core_find_lock(core, LE_KIND_LOCK, text("x"));
	is_int(lock->closed_until, 0, "the name of the ended holder is not closed");
	is_int(acquire(2, "x", X).status, LE_OK, "the lock of the ended holder is free in the same batch");
	batch();
	stop();
}

int
main(void)
{
	test_bound();
	test_each();
	test_work();
	test_work_of_commands();
	test_handoffs();
	test_late_answer();
	test_joins();
	test_lease_is_dirty();
	test_end_of_session();
	return done_testing();
}
