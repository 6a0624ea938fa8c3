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
	ok(reply.status == LE_OK && reply.bound && reply.valid_for == LE_NEVER, "a grant that is bound says so");
	token = reply.token;
	batch();
	reply = on_token(LE_CMD_CHECK, 1, "x", token);
	ok(reply.bound && reply.valid_for == LE_NEVER, "and a check of it");
	reply = acquire(2, "y", X);
	ok(!reply.bound && reply.valid_for == TTL, "one with a lease is not");
	token = reply.token;
	reply = on_token(LE_CMD_CHECK, 2, "y", token);
	ok(!reply.bound && reply.valid_for == TTL, "nor is its check");
	is_int(le_core_bound_to(core, 101, 1), 1, "a session has what is bound to it");
	is_int(le_core_bound_to(core, 102, 2), 0, "a lease of its own is not");
	is_int(le_core_bound_to(core, 555, 1), 0, "nor has another session of the same number anything");
	end_session(1);
	is_int(le_core_bound_to(core, 101, 1), 0, "and the session that has ended has nothing");
	batch();
	stop();
}

/* What several names have in common. */
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
	ok(!acquire_each(1, "a", "b", 0, false).reentrant, "two new locks are not held before");
	batch();
	ok(acquire_each(1, "a", "b", 0, false).reentrant, "again: both are");
	ok(!acquire_each(1, "a", "c", 0, false).reentrant, "one of the two is not");
	ok(!acquire_each(1, "d", "a", 0, false).reentrant, "in whatever order");
	batch();
	acquire(2, "taken", X);
	ok(acquire_each(1, "a", "taken", 0, true).reentrant, "a place is nothing that was granted");
	ok(acquire_each(1, "taken", "a", 0, true).reentrant, "wherever it stands");
	batch();

	lease = grant_lease(TTL);
	batch();
	on_lease(LE_CMD_REVOKE_LEASE, lease);
	batch();
	now += LE_SECOND;
	reply = acquire_each(3, "e", "f", lease, false);
	is_int(reply.status, LE_NO_LEASE, "on a lease that is gone nothing is acquired");
	ok(reply.ending == LE_END_REVOKED && reply.ending_ago == LE_SECOND,
	   "and it says how that has ended, and when");
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
	ok(!le_core_is_full(core), "what the environment has looked at is less than a batch's work");
	le_core_worked(core, 40);
	ok(le_core_is_full(core), "and together it is that work");
	batch();
	ok(!le_core_is_full(core), "the next batch begins with none");
	stop();
}

/* So much of a batch's work has been done since it began. */
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

/* Entries that are made, granted or ended count, and rows that are looked at for a command. */
static void
test_work_of_commands(void)
{
	LeLimits limits = {.work = 100};
	LeCommand cmd;
	LeReply a;

	start();
	le_core_set_limits(core, &limits);
	a = acquire(1, "x", X);
	is_int(work_done(), 2, "a lock is asked for, and granted");
	acquire(2, "x", X);
	is_int(work_done(), 1, "or waits");
	release(1, "x", a.token);
	is_int(work_done(), 2, "an end, and a grant");
	end_session(2);
	is_int(work_done(), 1, "a session ends that has one, which stays");
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
	is_int(work_done(), 3, "another number of permits is written with each");
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

	/* a closed name alone, also when its time is over and nobody has looked yet */
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
		   "a name that a role has closed is opened, and counts while it is closed");
		is_int(le_core_find_lock(core, LE_KIND_LOCK, text("closed"))->closed_until, 0, "at once");
		is_int(work_done(), 1, "which counts");
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
	is_int(le_core_stats(core)->handoffs, 0, "which are not handed over yet");
	release(1, "a", a.token);
	batch();
	is_int(le_core_stats(core)->handoffs, 0, "nor is one alone");
	release(1, "b", b.token);
	batch();
	ok(got(2, LE_OK), "the group is granted");
	is_int(le_core_stats(core)->handoffs, 2, "both are counted as handed over");
	acquire(3, "a", X);
	batch();
	end_session(2);
	now += TTL;
	expire();
	ok(got(3, LE_OK), "a single waiter gets one");
	is_int(le_core_stats(core)->handoffs, 3, "which is one more");
	stop();
}

/* A batch that takes longer than the TTL of a grant still tells of some time: 0 would tell of none. */
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
	ok(got(2, LE_OK), "a grant is answered after its TTL");
	is_int(told[2].valid_for, 1, "with the shortest time");
	expire();
	stop();
}

/* A waiter that becomes one more hold of a holder has it for as long as that has, and no longer. */
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
	ok(got(2, LE_OK) && got(3, LE_OK) && told[3].token == told[2].token, "the second is a hold of the first");
	is_int(told[2].valid_for, TTL / 2, "it is told how long the lease lasts");
	is_int(told[3].valid_for, TTL / 2, "and so is the second");
	stop();

	/* of a named owner, with a longer TTL */
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
	ok(got(3, LE_OK) && told[3].token == told[2].token, "an owner's second call is a hold of the first");
	is_int(told[3].valid_for, 2 * TTL, "for as long as that holds");
	stop();
}

/* A lease that is renewed is written; who is told of its time rests on that. */
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
	ok(!on_token(LE_CMD_CHECK, 1, "x", reply.token).wrote, "a check of what is written");
	now += LE_SAVE_INTERVAL;
	expire();
	on_lease(LE_CMD_KEEP_ALIVE, cmd.lease);
	ok(on_token(LE_CMD_CHECK, 1, "x", reply.token).wrote,
	   "rests on the lease that is renewed in the same batch");
	batch();
	stop();
}

/* The end of a connection without a grace: nobody has to wait for another moment. */
static void
test_end_of_session(void)
{
	LeLock *lock;

	start();
	apply(bound_request(1, "x"));
	batch();
	end_session(1);
	lock = le_core_find_lock(core, LE_KIND_LOCK, text("x"));
	is_int(lock->closed_until, 0, "its name is not closed");
	is_int(acquire(2, "x", X).status, LE_OK, "and free in the same batch");
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
