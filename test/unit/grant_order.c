/* Which requests are granted, and in which order. */
/* Promises: M, Q, W */
#include "fixture.h"

static void
test_exclusive(void)
{
	LeReply a, b, c;

	start();
	a = acquire(1, "x", X);
	is_int(a.status, LE_OK, "a free lock is granted at once");
	is_int(a.token, FIRST, "the token is the next revision");
	is_int(a.valid_for, TTL, "a grant is valid for its TTL");
	b = acquire(2, "x", X);
	is_int(b.status, LE_WAITING, "a second request waits");
	c = acquire(3, "x", X);
	ok(a.token < b.token && b.token < c.token, "revisions follow arrival");
	batch();
	ok(!was_told[2] && !was_told[3], "no waiter is granted beside the holder");

	is_int(release(1, "x", a.token).status, LE_OK, "the holder releases");
	batch();
	ok(got(2, LE_OK), "the oldest waiter is granted in the same batch");
	is_int(told[2].token, b.token, "its token is its revision");
	ok(!was_told[3], "the younger waiter still waits");
	is_int(release(1, "x", a.token).status, LE_NOT_HELD, "a token is released once");
	release(2, "x", b.token);
	batch();
	ok(got(3, LE_OK), "the younger waiter is granted after the older one");
	release(3, "x", c.token);
	batch();
	pass_all();
	is_int(le_core_lock_count(core), 0, "an unused lock is removed");
	stop();
}

static void
test_shared(void)
{
	LeReply r1, r2, w, r3, r4;

	start();
	r1 = acquire(1, "x", S);
	r2 = acquire(2, "x", S);
	ok(r1.status == LE_OK && r2.status == LE_OK, "readers share");
	w = acquire(3, "x", X);
	r3 = acquire(4, "x", S);
	r4 = acquire(5, "x", S);
	is_int(w.status, LE_WAITING, "a writer waits for readers");
	is_int(r3.status, LE_WAITING, "a reader behind a queued writer waits");
	release(1, "x", r1.token);
	batch();
	ok(!was_told[3], "a writer is not granted before both readers have released");
	release(2, "x", r2.token);
	batch();
	ok(got(3, LE_OK) && !was_told[4], "the writer alone is granted");
	release(3, "x", w.token);
	batch();
	ok(got(4, LE_OK) && got(5, LE_OK), "all readers up to the next writer are granted");
	ok(held("x", r3.token) && held("x", r4.token), "both readers hold");
	stop();
}

static void
test_waits(void)
{
	LeReply r;

	start();
	acquire(1, "x", X);
	r = apply(request(2, "x", X, 0));
	is_int(r.status, LE_NOT_GRANTED, "wait 0 does not wait");
	is_int(le_core_next_revision(core), FIRST + 1, "a try that fails uses no revision");
	r = apply(request(2, "x", X, 2 * LE_SECOND));
	pass(2 * LE_SECOND - 1);
	ok(!was_told[2], "a wait does not time out before its limit");
	pass(1);
	ok(got(2, LE_NOT_GRANTED), "a wait times out at its limit");
	is_int(release(2, "x", r.token).status, LE_NOT_HELD, "a wait that timed out cannot be released");

	/* a reader behind a writer that gives up is granted */
	release(1, "x", 0);
	batch();
	acquire(1, "x", S);
	apply(request(2, "x", X, LE_SECOND));
	acquire(3, "x", S);
	pass(LE_SECOND);
	ok(got(2, LE_NOT_GRANTED) && got(3, LE_OK),
	   "a reader behind a writer that timed out is granted in the same batch");
	stop();
}

static void
test_uses(void)
{
	LeCommand cmd;
	LeLimits limits = {.waiters_per_lock = 1};

	start();
	le_core_set_limits(core, &limits);
	acquire(1, "x", X);
	cmd = request(2, "x", P, 0);
	cmd.permits = 2;
	is_int(apply(cmd).status, LE_BAD_MODE, "a lock in use cannot be used for permits");
	cmd = request(2, "x", X, 0);
	cmd.kind = LE_KIND_ELECTION;
	is_int(apply(cmd).status, LE_OK, "an election of the same name is independent of the lock");
	acquire(3, "x", X);
	is_int(acquire(4, "x", X).status, LE_LIMIT_WAITERS, "the limit of waiters is enforced");
	stop();
}

static void
test_own(void)
{
	start();
	acquire(1, "x", X);
	commit(1);
	ok(acquire(1, "x", X).own_session, "a session that waits for its own lock gets own_session");
	ok(!acquire(2, "x", X).own_session, "another waiter does not get own_session");
	stop();
}

static void
test_force(void)
{
	LeReply a, b, c;
	LeCommand cmd;

	start();
	a = acquire(1, "x", S);
	cmd = request(2, "x", S, 0);
	cmd.role = ROLE + 1;
	b = apply(cmd);
	c = acquire(3, "x", S);
	acquire(4, "x", X);
	is_int(apply(command(LE_CMD_FORCE, 5, "x")).ended, 2, "FORCE ends the holders of the own role");
	batch();
	ok(!held("x", a.token) && !held("x", c.token), "the forced holders have ended");
	ok(!was_told[4], "a holder of another role stays");
	cmd = command(LE_CMD_FORCE, 5, "x");
	cmd.any_role = true;
	is_int(apply(cmd).ended, 1, "FORCE with rights ends the holder of another role");
	batch();
	is_int(release(2, "x", b.token).status, LE_NOT_HELD, "the forced holder cannot release");
	ok(got(4, LE_OK), "the waiter is granted, and not ended by FORCE");
	stop();
}

int
main(void)
{
	test_exclusive();
	test_shared();
	test_waits();
	test_uses();
	test_own();
	test_force();
	return done_testing();
}
