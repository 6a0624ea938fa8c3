/*
 * The write on which a reply depends: a client that learns of a grant waits until
 * the grant is replicated, even if it asks in a later batch.  No reply depends on
 * a release that may be written later.
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

/* Writes another batch with another change. */
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
	is_int(renew_with("x", token, 0).lsn, wrote, "a renewal depends on the write of the grant");
	is_int(await(1, "x", token, 0).lsn, wrote, "an AWAIT of a holder depends on the write of the grant");
	is_int(on_token(LE_CMD_CHECK, 1, "x", token).lsn, wrote, "a CHECK depends on the write of the grant");
	is_int(on_token(LE_CMD_CHECK, 1, "x", 0).lsn, wrote,
		   "a CHECK without a token depends on the write of the grant");
	again = request(1, "x", X, 0);
	again.owner = text("me");
	is_int(apply(again).lsn, wrote, "re-entering depends on the write of the grant");
	ok(apply(again).wrote, "re-entering also writes");
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
	is_int(await(2, "x", second, 0).lsn, wrote, "an AWAIT of a place depends on the write of the place");
	release(1, "x", first);
	batch();
	wrote = lsn;
	other_batch();
	is_int(await(2, "x", second, 0).lsn, wrote,
		   "an AWAIT of a granted place depends on the write of the grant");
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
	is_int(on_lease(LE_CMD_KEEP_ALIVE, lease).lsn, wrote, "a keep-alive depends on the write of the lease");
	is_int(on_lease(LE_CMD_LEASE_TTL, lease).lsn, wrote,
		   "the time to live depends on the write of the lease");

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
	ok(apply(cmd).wrote, "a repeated request for a place depends on the renewal of the same batch");
	cmd.session = cmd.sessno = 1;
	cmd.xact = xacts[1];
	cmd.enqueue = false;
	cmd.name = text("x");
	ok(apply(cmd).wrote, "re-entering depends on the renewal of the same batch");
	batch();
	wrote = lsn;
	other_batch();
	is_int(renew_with("x", token, 0).lsn, wrote,
		   "the renewal of a lock on the lease depends on the write of the lease's renewal");
	is_int(on_token(LE_CMD_CHECK, 1, "x", token).lsn, wrote,
		   "a CHECK of a lock on the lease depends on the write of the lease's renewal");
	is_int(apply(cmd).lsn, wrote,
		   "re-entering a lock on the lease depends on the write of the lease's renewal");
	stop();

	start_load();
	load_done();
	cmd = command(LE_CMD_REVOKE_LEASE, 1, NULL);
	cmd.lease = lease;
	cmd.from = 1;
	is_int(apply(cmd).lsn, lsn, "the end of a lease that was revoked in steps depends on the load");
	stop();
}

/* The manager itself ends the last part of a lease with very many entries: the revoking client asks again. */
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
	ok(cmd.from != 0, "a revocation takes several steps");
	batch();
	expire();
	le_core_expire(core, now, 100);
	is_int(apply(cmd).status, LE_NO_LEASE, "the lease ends between two steps");
	ok(apply(cmd).wrote, "a step in the batch that ends the lease depends on this batch");
	batch();
	wrote = lsn;
	other_batch();
	is_int(apply(cmd).lsn, wrote, "a later step depends on the write of the end");
	ok(!apply(cmd).wrote, "a later step does not write");
	on_lease(LE_CMD_REVOKE_LEASE, grant_lease(TTL));
	ok(!apply(cmd).wrote, "a later step does not depend on the end of another lease");
	cmd.from = 0;
	is_int(apply(cmd).lsn, 0, "the reply about an unknown lease depends on no write");
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
	is_int(renew_with("a", token, 0).lsn, wrote,
		   "a renewal of one name of a group depends on the write of the grant");
	cmd.type = LE_CMD_CHECK;
	cmd.token = token;
	is_int(apply_to_all(cmd).lsn, wrote, "a CHECK of all names depends on the write of the grant");
	ok(renew_with("a", token, 2 * TTL).wrote, "another TTL of a group is written");
	batch();
	wrote = lsn;
	other_batch();
	is_int(renew_with("b", token, 0).lsn, wrote, "the next renewal depends on the write of the TTL");

	cmd.type = LE_CMD_ACQUIRE;
	cmd.enqueue = true;
	cmd.token = 0;
	token = apply(cmd).token;
	ok(await(2, "a", token, 0).wrote, "an AWAIT of a new place depends on the batch");
	ok(on_token(LE_CMD_CHECK, 2, "b", token).wrote,
	   "a CHECK of a new place by another name depends on the batch");
	ok(on_token(LE_CMD_RENEW, 2, "b", token).wrote,
	   "a renewal of a new place by another name depends on the batch");
	batch();
	wrote = lsn;
	other_batch();
	cmd.type = LE_CMD_CHECK;
	cmd.token = token;
	is_int(apply_to_all(cmd).status, LE_QUEUED, "a CHECK of a place by all names returns QUEUED");
	is_int(apply_to_all(cmd).lsn, wrote, "a CHECK of a place by all names depends on the write of the place");
	ok(!apply_to_all(cmd).bound, "a place by all names is not bound");
	stop();
}

/* Releases a lock or place with this TTL, which is its own or that of its lease. */
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

/* A client that releases a bound lock does not have to wait for a flush. */
static void
test_bound(void)
{
	for (int i = 0; i < 4; i++)
	{
		start();
		ok(!release_after(TTL, i & 1, i & 2).bound,
		   "a release of an entry with a TTL is not marked as bound");
		stop();
	}
	start();
	ok(release_after(LE_TTL_BOUND, false, false).bound, "a release of a bound lock is marked as bound");
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
		   "a release of an entry with a TTL of at most five minutes may be undone by a crash");
		stop();
		start();
		ok(!release_after(LE_SAVE_INTERVAL + 1, i & 1, i & 2).may_return,
		   "a release of an entry with a longer TTL must not be undone by a crash");
		stop();
	}

	start();
	ok(on_lease(LE_CMD_REVOKE_LEASE, grant_lease(LE_SAVE_INTERVAL)).may_return,
	   "the revocation of a short lease may be undone by a crash");
	ok(!on_lease(LE_CMD_REVOKE_LEASE, grant_lease(LE_SAVE_INTERVAL + 1)).may_return,
	   "the revocation of a long lease must not be undone by a crash");
	ok(!acquire(1, "y", X).may_return, "a grant must not be undone by a crash");

	cmd = command(LE_CMD_RELEASE, 1, "y");
	cmd.hold_for = 2 * TTL;
	reply = apply(cmd);
	ok(reply.status == LE_OK && !reply.may_return,
	   "a release that closes the name must not be undone by a crash");
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
		ok(reply.status == LE_OK && reply.may_return == (i == 0),
		   "a release of a group may be undone by a crash only if its TTL is short");
		cmd.type = LE_CMD_CHECK;
		ok(!apply_to_all(cmd).may_return, "a CHECK of a group is not marked");
		stop();
	}
}

/* Whether loaded rows were flushed or replicated is unknown: they count as written at the load. */
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
	is_int(on_token(LE_CMD_CHECK, 1, "x", FIRST - 1).lsn, wrote,
		   "a CHECK of a loaded holder depends on the load");
	is_int(await(1, "x", FIRST - 2, 0).lsn, wrote, "an AWAIT of a loaded place depends on the load");
	is_int(on_lease(LE_CMD_LEASE_TTL, FIRST - 3).lsn, wrote,
		   "the time to live of a loaded lease depends on the load");
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
