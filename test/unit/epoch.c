/* A session detects by the epoch that its lock is no longer held. */
/* Promises: E */
#include "fixture.h"

static LeReply x;

static bool
is_known(void)
{
	return x.epoch_is != 0 && epochs[x.epoch] == x.epoch_is;
}

static void
begin(void)
{
	start();
	x = acquire(1, "x", X);
	batch();
	ok(is_known(), "a granted lock is known to be held");
}

static void
end(const char *how)
{
	ok(!is_known(), how);
	stop();
}

static void
test_ends(void)
{
	LeCommand cmd;

	begin();
	release(1, "x", x.token);
	end("released");

	begin();
	pass(TTL + 1);
	end("expired");

	begin();
	cmd = command(LE_CMD_FORCE, 2, "x");
	cmd.any_role = true;
	apply(cmd);
	end("ended by force");

	begin();
	cmd = command(LE_CMD_FORCE_ROLE, 2, NULL);
	cmd.name = (LeText){NULL, 0};
	cmd.any_role = true;
	(void) apply(cmd);
	end("ended with all locks of its role");

	begin();
	undo(1, 1);
	end("ended by a rollback");

	begin();
	fenced_token = x.token;
	pass(TTL + 1);
	fenced_token = 0;
	ok(!held("x", x.token), "a fenced holder that was released is not held");
	end("lapsed because of a fence");
}

static void
test_session(void)
{
	LeCommand cmd;

	start();
	cmd = request(1, "x", X, 0);
	cmd.ttl = LE_TTL_BOUND;
	x = apply(cmd);
	batch();
	ok(is_known(), "a bound lock is known to be held");
	end_session(1);
	end("ended with its connection");
}

static void
test_lease(void)
{
	int64_t lease;
	LeCommand cmd;

	start();
	lease = grant_lease(TTL);
	cmd = request(1, "x", X, 0);
	cmd.lease = lease;
	x = apply(cmd);
	batch();
	ok(is_known(), "a lock on a lease is known to be held");
	on_lease(LE_CMD_REVOKE_LEASE, lease);
	end("ended with its revoked lease");
}

/* After a change of the TTL, the release may have to be flushed. */
static void
test_ttl(void)
{
	LeCommand cmd;

	begin();
	cmd = command(LE_CMD_RENEW, 1, "x");
	cmd.token = x.token;
	apply(cmd);
	ok(is_known(), "renewed");
	cmd.ttl = 10 * TTL;
	apply(cmd);
	end("renewed for longer");

	start();
	x = acquire_as(1, "x", X, "me");
	batch();
	(void) acquire_as(2, "x", X, "me");
	ok(is_known(), "a lock acquired once more is known to be held");
	cmd = request(3, "x", X, 0);
	cmd.owner = text("me");
	cmd.ttl = 10 * TTL;
	(void) apply(cmd);
	end("acquired once more, for longer");
}

static void
test_waiter(void)
{
	LeReply before;

	begin();
	before = x;
	is_int(apply(request(2, "x", X, LE_WAIT_FOREVER)).status, LE_WAITING, "another session waits");
	release(1, "x", x.token);
	batch();
	x = told[2];
	ok(got(2, LE_OK) && is_known(), "a lock granted after a wait is known to be held");
	ok(epochs[before.epoch] != before.epoch_is, "the previous holder is not known to be held");
	stop();

	/* granted and ended in one batch */
	begin();
	(void) apply(request(2, "x", X, LE_WAIT_FOREVER));
	batch();
	release(1, "x", x.token);
	undo(2, 1);
	batch();
	x = told[2];
	end("granted and undone in one batch");
}

static void
test_core(void)
{
	begin();
	le_core_check(core);
	le_core_destroy(core);
	start_at(FIRST);
	end("another core");

	/* the counter of an epoch overflows */
	start();
	for (int i = 0; i < LE_EPOCHS; i++)
		epochs[i] = UINT32_MAX;
	release(1, "x", acquire(1, "x", X).token);
	x = acquire(1, "x", X);
	ok(is_known(), "no epoch is 0");
	stop();
}

int
main(void)
{
	test_ends();
	test_session();
	test_lease();
	test_ttl();
	test_waiter();
	test_core();
	return done_testing();
}
