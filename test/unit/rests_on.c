/*
 * The write on which a reply depends: a client that learns of a grant waits until
 * that is replicated, even if it asks in a later batch.  No reply depends on a
 * release that may be written later.
 */
/* Promises: D */
#include "fixture.h"

static LeReply
renew_with(const char *name, int64_t token, LeTime ttl)
{
	LeCommand cmd = command(LE_CMD_RENEW, 1, name);

	cmd.token = token;
	cmd.ttl = ttl;
	return apply(cmd);
}

/* A batch that writes something else. */
static void
other_batch(void)
{
	acquire(9, "other", X);
	commit(9);
	batch();
	on_token(LE_CMD_RELEASE, 9, "other", 0);
	batch();
}

static void
test_holder(void)
{
	LeCommand again;
	uint64_t wrote;
	int64_t token;

	start();
	token = acquire_as(1, "x", X, "me").token;
	batch();
	wrote = lsn;
	other_batch();
	is_int(renew_with("x", token, 0).lsn, wrote, "renewing a lock");
	is_int(await(1, "x", token, 0).lsn, wrote, "awaiting a token that holds");
	is_int(on_token(LE_CMD_CHECK, 1, "x", token).lsn, wrote, "asking whether it is held, or fencing it");
	is_int(on_token(LE_CMD_CHECK, 1, "x", 0).lsn, wrote, "also for the connection's own");
	again = request(1, "x", X, 0);
	again.owner = text("me");
	is_int(apply(again).lsn, wrote, "acquiring it again");
	ok(apply(again).wrote, "which is a write of its own as well");
	stop();
}

static void
test_handed_on(void)
{
	int64_t first, second;
	uint64_t wrote;

	start();
	first = acquire(1, "x", X).token;
	second = enqueue(2, "x", X).token;
	batch();
	wrote = lsn;
	other_batch();
	is_int(await(2, "x", second, 0).lsn, wrote, "a queue place");
	release(1, "x", first);
	batch();
	wrote = lsn;
	other_batch();
	is_int(await(2, "x", second, 0).lsn, wrote, "a place that was granted");
	stop();
}

static void
test_lease(void)
{
	LeCommand cmd;
	int64_t lease, token;
	uint64_t wrote;

	start();
	lease = grant_lease(LE_SAVE_INTERVAL + LE_SECOND);
	batch();
	wrote = lsn;
	other_batch();
	is_int(on_lease(LE_CMD_KEEP_ALIVE, lease).lsn, wrote, "keeping a lease alive");
	is_int(on_lease(LE_CMD_LEASE_TTL, lease).lsn, wrote, "asking for its time");

	cmd = request(1, "x", X, 0);
	cmd.lease = lease;
	token = apply(cmd).token;
	batch();
	pass(LE_SAVE_INTERVAL);
	batch();
	cmd.session = cmd.sessno = 2;
	cmd.xact = xacts[2];
	cmd.enqueue = true;
	cmd.name = text("y");
	acquire(3, "y", X);
	ok(apply(cmd).wrote, "a place on a lease is written");
	commit(2);
	batch();
	ok(on_lease(LE_CMD_KEEP_ALIVE, lease).wrote, "a long lease is renewed after its time left was saved");
	ok(apply(cmd).wrote, "who asks for a place again rests on that batch");
	cmd.session = cmd.sessno = 1;
	cmd.xact = xacts[1];
	cmd.enqueue = false;
	cmd.name = text("x");
	ok(apply(cmd).wrote, "so does one more hold");
	batch();
	wrote = lsn;
	other_batch();
	is_int(renew_with("x", token, 0).lsn, wrote, "the renewal of a lock on it rests on that");
	is_int(on_token(LE_CMD_CHECK, 1, "x", token).lsn, wrote, "and its time left, for who asks");
	is_int(apply(cmd).lsn, wrote, "or acquires it again");
	stop();

	start_load();
	load_done();
	cmd = command(LE_CMD_REVOKE_LEASE, 1, NULL);
	cmd.lease = lease;
	cmd.from = 1;
	is_int(apply(cmd).lsn, lsn, "that a lease, revoked in steps, is gone rests on the load");
	stop();
}

/* Of a lease with very much on it, the manager ends the last part by itself: who revokes it asks again. */
static void
test_revoked(void)
{
	LeLimits limits = {.work = 1};
	LeCommand cmd = command(LE_CMD_REVOKE_LEASE, 1, NULL);
	const char *const names[] = {"a", "b", "c"};
	uint64_t wrote;

	start();
	cmd.lease = grant_lease(TTL);
	for (int i = 0; i < 3; i++)
	{
		LeCommand on_it = request(1, names[i], X, 0);

		on_it.lease = cmd.lease;
		apply(on_it);
	}
	batch();
	le_core_set_limits(core, &limits);
	cmd.from = apply(cmd).next;
	ok(cmd.from != 0, "a step of a revocation");
	batch();
	expire();
	le_core_expire(core, now, 100);
	is_int(apply(cmd).status, LE_NO_LEASE, "it ends between two");
	ok(apply(cmd).wrote, "which is to be written, for who asks in that batch");
	batch();
	wrote = lsn;
	other_batch();
	is_int(apply(cmd).lsn, wrote, "and later is what the answer rests on");
	ok(!apply(cmd).wrote, "without a write of its own");
	on_lease(LE_CMD_REVOKE_LEASE, grant_lease(TTL));
	ok(!apply(cmd).wrote, "also where another lease ends in this batch");
	cmd.from = 0;
	is_int(apply(cmd).lsn, 0, "a lease that was not there rests on nothing");
	stop();
}

static void
test_several(void)
{
	LeText names[] = {{"a", 1}, {"b", 1}};
	LeCommand cmd;
	int64_t token;
	uint64_t wrote;

	start();
	cmd = request(1, NULL, X, 0);
	cmd.names = names;
	cmd.nnames = 2;
	token = apply(cmd).token;
	batch();
	wrote = lsn;
	other_batch();
	is_int(renew_with("a", token, 0).lsn, wrote, "renewing one of several");
	cmd.type = LE_CMD_CHECK;
	cmd.token = token;
	is_int(apply_to_all(cmd).lsn, wrote, "asking for all of them");
	ok(renew_with("a", token, 2 * TTL).wrote, "another TTL for all of them");
	batch();
	wrote = lsn;
	other_batch();
	is_int(renew_with("b", token, 0).lsn, wrote, "is what the next renewal rests on");

	cmd.type = LE_CMD_ACQUIRE;
	cmd.enqueue = true;
	cmd.token = 0;
	token = apply(cmd).token;
	ok(await(2, "a", token, 0).wrote, "a place that is not on the disk yet, for who asks");
	ok(on_token(LE_CMD_CHECK, 2, "b", token).wrote, "also by the other name");
	ok(on_token(LE_CMD_RENEW, 2, "b", token).wrote, "or to renew it");
	batch();
	wrote = lsn;
	other_batch();
	cmd.type = LE_CMD_CHECK;
	cmd.token = token;
	is_int(apply_to_all(cmd).status, LE_QUEUED, "places for all of them");
	is_int(apply_to_all(cmd).lsn, wrote, "are told of when they are on the disk");
	ok(!apply_to_all(cmd).bound, "as they outlive the connection");
	stop();
}

/* A lock or place with this TTL, of its own or of its lease, is released. */
static LeReply
release_after(LeTime ttl, bool on_a_lease, bool queued)
{
	LeCommand cmd = request(1, "x", X, 0);

	if (queued)
		acquire(2, "x", X);
	cmd.enqueue = queued;
	cmd.ttl = on_a_lease ? 0 : ttl;
	cmd.lease = on_a_lease ? grant_lease(ttl) : 0;
	return on_token(LE_CMD_RELEASE, 1, "x", apply(cmd).token);
}

/* Who releases what ends with the connection need not wait for a flush. */
static void
test_bound(void)
{
	for (int i = 0; i < 4; i++)
	{
		start();
		ok(!release_after(TTL, i & 1, i & 2).bound, "a release of what outlives the connection");
		stop();
	}
	start();
	ok(release_after(LE_TTL_BOUND, false, false).bound, "and of what ends with it");
	stop();
}

static void
test_may_return(void)
{
	LeText names[] = {{"a", 1}, {"b", 1}};
	LeCommand cmd;
	LeReply reply;

	for (int i = 0; i < 4; i++)
	{
		start();
		ok(release_after(LE_SAVE_INTERVAL, i & 1, i & 2).may_return,
		   "a release: held for five minutes at most");
		stop();
		start();
		ok(!release_after(LE_SAVE_INTERVAL + 1, i & 1, i & 2).may_return, "for longer");
		stop();
	}

	start();
	ok(on_lease(LE_CMD_REVOKE_LEASE, grant_lease(LE_SAVE_INTERVAL)).may_return, "a lease is revoked");
	ok(!on_lease(LE_CMD_REVOKE_LEASE, grant_lease(LE_SAVE_INTERVAL + 1)).may_return, "a long one");
	ok(!acquire(1, "y", X).may_return, "a grant");

	cmd = command(LE_CMD_RELEASE, 1, "y");
	cmd.hold_for = 2 * TTL;
	reply = apply(cmd);
	ok(reply.status == LE_OK && !reply.may_return, "a release after which the name stays closed");
	stop();

	for (int i = 0; i < 2; i++)
	{
		start();
		cmd = request(1, NULL, X, 0);
		cmd.names = names;
		cmd.nnames = 2;
		cmd.ttl = LE_SAVE_INTERVAL + i;
		cmd.token = apply(cmd).token;
		cmd.type = LE_CMD_RELEASE;
		reply = apply_to_all(cmd);
		ok(reply.status == LE_OK && reply.may_return == (i == 0), "several locks");
		cmd.type = LE_CMD_CHECK;
		ok(!apply_to_all(cmd).may_return, "nothing is released");
		stop();
	}
}

/* Nobody knows whether what was read is flushed or replicated: it counts as written at the load. */
static void
test_loaded(void)
{
	uint64_t wrote;

	start_load();
	wrote = lsn;
	load_lease(stored_lease(FIRST - 3));
	load_slot(stored("x", FIRST - 1, X));
	load_place(stored("x", FIRST - 2, X));
	load_done();
	batch();
	other_batch();
	is_int(on_token(LE_CMD_CHECK, 1, "x", FIRST - 1).lsn, wrote, "a holder that was loaded");
	is_int(await(1, "x", FIRST - 2, 0).lsn, wrote, "a place");
	is_int(on_lease(LE_CMD_LEASE_TTL, FIRST - 3).lsn, wrote, "and a lease");
	stop();
}

int
main(void)
{
	test_holder();
	test_handed_on();
	test_lease();
	test_revoked();
	test_several();
	test_bound();
	test_may_return();
	test_loaded();
	return done_testing();
}
