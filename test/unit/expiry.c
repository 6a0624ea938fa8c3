/* Deadlines: the end of a holder, and the grant to the next one. */
/* Promises: L */
#include "fixture.h"

static LeReply
renew(uint32_t session, int64_t token, LeTime ttl)
{
	LeCommand cmd = command(LE_CMD_RENEW, session, "x");

	cmd.token = token;
	cmd.ttl = ttl;
	return apply(cmd);
}

static void
test_ttl(void)
{
	LeReply a, r;

	start();
	a = acquire(1, "x", X);
	acquire(2, "x", X);
	batch();
	pass(TTL - 1);
	ok(held("x", a.token) && !was_told[2], "a lock is held until the end of its TTL");
	pass(1);
	ok(!held("x", a.token) && got(2, LE_OK), "the waiter is granted at the end of the TTL");
	is_int(renew(1, a.token, 0).status, LE_NOT_HELD, "a lost lock cannot be renewed");
	stop();

	start();
	a = acquire(1, "x", X);
	batch();
	pass(TTL - 1);
	r = renew(1, a.token, 0);
	is_int(r.valid_for, TTL, "a renewal returns the full TTL");
	ok(!r.wrote && le_next_dirty_slot(core, NULL) == NULL, "a renewal writes nothing");
	pass(TTL - 1);
	ok(held("x", a.token), "a renewed lock is held");
	r = renew(1, a.token, LE_SECOND);
	ok(r.valid_for == LE_SECOND && r.wrote, "a renewal with another TTL is written before the reply");
	pass(LE_SECOND - 1);
	ok(held("x", a.token), "a lock is held for its shorter TTL");
	pass(1);
	ok(!held("x", a.token), "a lock ends at its shorter TTL");
	stop();
}

static void
test_refusals(void)
{
	LeReply a;
	LeCommand cmd;

	start();
	cmd = request(1, "x", X, 0);
	cmd.ttl = LE_TTL_BOUND;
	a = apply(cmd);
	is_int(a.valid_for, LE_NEVER, "a bound lock has no deadline");
	is_int(renew(1, a.token, TTL).status, LE_BAD_TTL, "a renewal of a bound lock with a TTL is rejected");
	is_int(renew(1, a.token, 0).valid_for, LE_NEVER, "a renewal of a bound lock returns no deadline");
	cmd = command(LE_CMD_RENEW, 1, "x");
	cmd.token = a.token;
	cmd.role = ROLE + 1;
	is_int(apply(cmd).status, LE_DENIED, "another role cannot renew");
	cmd = command(LE_CMD_RENEW, 1, "y");
	cmd.token = a.token;
	is_int(apply(cmd).status, LE_NOT_HELD, "a renewal with another name is rejected");
	acquire(2, "x", X);
	batch();
	end_session(1);
	batch();
	ok(got(2, LE_OK), "a bound lock ends with its connection");
	stop();
}

static void
test_hold_for(void)
{
	LeReply a;
	LeCommand cmd;

	start();
	a = acquire(1, "x", X);
	batch();
	pass(2 * LE_SECOND);
	cmd = command(LE_CMD_RELEASE, 1, "x");
	cmd.hold_for = 60 * LE_SECOND;
	is_int(apply(cmd).status, LE_OK, "a release with hold_for, a minute from the acquire on");
	is_int(apply(request(1, "x", X, 0)).status, LE_NOT_GRANTED,
		   "the closed name is not granted to the same owner");
	acquire(2, "x", X);
	batch();
	ok(!held("x", a.token), "the closed name is not held");
	pass(58 * LE_SECOND - 1);
	ok(!was_told[2], "the closed name is not granted before its time");
	pass(1);
	ok(got(2, LE_OK), "the closed name is granted a minute after the acquire");
	stop();
}

/*
 * The manager wakes up late, and applies requests before it examines its
 * deadlines.  It must not forget the waiters for the end of a pause.
 */
static void
test_request_after_pause(void)
{
	LeReply first;
	LeCommand cmd;

	start();
	acquire(1, "x", X);
	cmd = command(LE_CMD_RELEASE, 1, "x");
	cmd.hold_for = LE_SECOND;
	apply(cmd);
	first = acquire(2, "x", X);
	batch();
	now += 2 * LE_SECOND;
	is_int(acquire(3, "x", X).status, LE_WAITING, "a late request does not overtake the waiter");
	expire();
	ok(got(2, LE_OK) && held("x", first.token), "the first waiter is granted");
	stop();
}

static void
test_grace(void)
{
	LeLimits limits = {.expiry_grace = LE_SECOND};
	LeReply a;

	start();
	le_core_set_limits(core, &limits);
	a = acquire(1, "x", X);
	acquire(2, "x", X);
	batch();
	pass(TTL);
	ok(!held("x", a.token), "a token ends at its TTL");
	ok(!was_told[2], "the waiter is not granted at the TTL");
	pass(LE_SECOND - 1);
	ok(!was_told[2], "the waiter is not granted before the end of the grace");
	pass(1);
	ok(got(2, LE_OK), "the waiter is granted at the end of the grace");
	acquire(3, "x", X);
	release(2, "x", told[2].token);
	batch();
	ok(got(3, LE_OK), "a release has no grace");
	stop();

	start();
	le_core_set_limits(core, &limits);
	{
		LeCommand cmd = request(1, "x", X, 0);

		cmd.ttl = LE_TTL_BOUND;
		apply(cmd);
	}
	acquire(2, "x", X);
	batch();
	end_session(1);
	batch();
	ok(!was_told[2], "the end of a connection has a grace");
	pass(LE_SECOND);
	ok(got(2, LE_OK), "the waiter is granted after the grace of the ended connection");
	stop();
}

/*
 * A long lease is restored with the remaining time that was saved, so a longer
 * time that was returned to a client has to be saved.
 */
static void
test_long_ttl(void)
{
	LeTime ttl = 4 * LE_SAVE_INTERVAL;
	LeCommand cmd;
	LeReply a;

	start();
	cmd = request(1, "x", X, 0);
	cmd.ttl = ttl;
	a = apply(cmd);
	batch();
	now += LE_SAVE_INTERVAL;
	le_core_expire(core, now, 10);
	ok(slot_is_dirty(a.token), "the remaining time of a long TTL is saved at intervals");
	batch();
	now += LE_SECOND;
	ok(renew(1, a.token, 0).wrote && slot_is_dirty(a.token),
	   "a renewal of a long TTL is written after a save");
	batch();
	le_core_expire(core, now, 10);
	ok(!slot_is_dirty(a.token), "the remaining time is not saved before the interval has passed");
	pass(LE_SAVE_INTERVAL);
	pass(ttl - LE_SAVE_INTERVAL - 1);
	ok(held("x", a.token), "a long lock is held until its end");
	pass(1);
	ok(!held("x", a.token), "a long lock ends at its TTL");
	stop();
}

/* The timer of a renewed lease fires at its old deadline. */
static void
test_renewed(void)
{
	LeReply a;

	start();
	a = apply(request(1, "x", X, 0));
	batch();
	now += TTL / 2;
	ok(!renew(1, a.token, 0).wrote, "a renewal writes nothing");
	now += TTL / 2;
	le_core_expire(core, now, 10);
	ok(held("x", a.token), "a renewed lock is held after its first deadline");
	ok(!slot_is_dirty(a.token), "the old timer writes nothing");
	stop();
}

/* Expiry in portions: no entry is forgotten, none is handled twice. */
static void
test_portions(void)
{
	int rounds = 0;

	start();
	for (int i = 0; i < 100; i++)
	{
		char name[16];

		snprintf(name, sizeof(name), "n%d", i);
		apply(request(1, name, X, 0));
	}
	batch();
	now += TTL;
	while (le_core_expire(core, now, 7) == 7)
	{
		batch();
		rounds++;
	}
	batch();
	is_int(rounds, 100 / 7, "100 locks expire in portions of seven");
	is_int(le_core_stats(core)->expiries, 100, "all 100 locks have expired");
	pass_all();
	is_int(le_core_lock_count(core), 0, "no lock is left after the expiry");
	stop();
}

/* The requests of the batch are later than the horizon. */
static void
test_horizon(void)
{
	LeReply y;

	start();
	acquire(1, "x", X);
	now += LE_SECOND;
	y = acquire(3, "y", X);
	batch();
	le_core_set_horizon(core, now + TTL - LE_SECOND / 2);
	now += TTL + LE_SECOND / 2;
	acquire(2, "x", X);
	expire();
	ok(got(2, LE_OK), "an expired lock is granted to a request after the horizon");
	is_int(told[2].valid_for, TTL, "the grant after the horizon has its whole TTL");
	is_int(le_core_stats(core)->durations[LE_DURATION_WAIT].sum, 0,
		   "the wait after the horizon is not negative");
	ok(held("y", y.token), "a lock that expires after the horizon is still held");
	le_core_set_horizon(core, LE_NEVER);
	expire();
	ok(!held("y", y.token), "a lock that expired after the horizon ends in the next batch");
	stop();
}

int
main(void)
{
	test_ttl();
	test_refusals();
	test_hold_for();
	test_request_after_pause();
	test_horizon();
	test_grace();
	test_long_ttl();
	test_renewed();
	test_portions();
	return done_testing();
}
