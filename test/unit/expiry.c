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
	ok(held("x", a.token) && !was_told[2], "held to the end of its TTL");
	pass(1);
	ok(!held("x", a.token) && got(2, LE_OK), "then it is the next one's");
	is_int(renew(1, a.token, 0).status, LE_NOT_HELD, "what is lost cannot be renewed");
	stop();

	start();
	a = acquire(1, "x", X);
	batch();
	pass(TTL - 1);
	r = renew(1, a.token, 0);
	is_int(r.valid_for, TTL, "renewed: the full TTL again");
	ok(!r.wrote && le_next_dirty_slot(core, NULL) == NULL, "and nothing to write");
	pass(TTL - 1);
	ok(held("x", a.token), "it holds");
	r = renew(1, a.token, LE_SECOND);
	ok(r.valid_for == LE_SECOND && r.wrote, "another TTL is written before it is answered");
	pass(LE_SECOND - 1);
	ok(held("x", a.token), "it holds for the shorter TTL");
	pass(1);
	ok(!held("x", a.token), "and not longer");
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
	is_int(a.valid_for, LE_NEVER, "bound to the connection: no end");
	is_int(renew(1, a.token, TTL).status, LE_BAD_TTL, "and no TTL to give");
	is_int(renew(1, a.token, 0).valid_for, LE_NEVER, "renewing is fine");
	cmd = command(LE_CMD_RENEW, 1, "x");
	cmd.token = a.token;
	cmd.role = ROLE + 1;
	is_int(apply(cmd).status, LE_DENIED, "another role may not");
	cmd = command(LE_CMD_RENEW, 1, "y");
	cmd.token = a.token;
	is_int(apply(cmd).status, LE_NOT_HELD, "the name is checked");
	acquire(2, "x", X);
	batch();
	end_session(1);
	batch();
	ok(got(2, LE_OK), "it ends with its connection");
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
	is_int(apply(cmd).status, LE_OK, "released, to be left alone for a minute from its acquisition");
	is_int(apply(request(1, "x", X, 0)).status, LE_NOT_GRANTED, "also by the same owner");
	acquire(2, "x", X);
	batch();
	ok(!held("x", a.token), "nobody holds it");
	pass(58 * LE_SECOND - 1);
	ok(!was_told[2], "nor is granted it");
	pass(1);
	ok(got(2, LE_OK), "until the minute is over");
	stop();
}

/*
 * The manager comes late, and applies what has arrived before it looks at its
 * deadlines.  That must not make it forget who waits for the end of a pause.
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
	is_int(acquire(3, "x", X).status, LE_WAITING, "one that comes late does not overtake");
	expire();
	ok(got(2, LE_OK) && held("x", first.token), "the first is granted");
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
	ok(!held("x", a.token), "at its TTL a token is dead");
	ok(!was_told[2], "the next grant comes later");
	pass(LE_SECOND - 1);
	ok(!was_told[2], "not before the grace is over");
	pass(1);
	ok(got(2, LE_OK), "and then at once");
	acquire(3, "x", X);
	release(2, "x", told[2].token);
	batch();
	ok(got(3, LE_OK), "a release needs no grace");
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
	ok(!was_told[2], "the end of a connection does");
	pass(LE_SECOND);
	ok(got(2, LE_OK), "it is granted after it");
	stop();
}

/*
 * A long lease is restored with the time left that was saved: whatever is
 * promised has to be saved.
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
	ok(slot_is_dirty(a.token), "the time left of a long TTL is saved now and then");
	batch();
	now += LE_SECOND;
	ok(renew(1, a.token, 0).wrote && slot_is_dirty(a.token), "its renewal is written");
	batch();
	le_core_expire(core, now, 10);
	ok(!slot_is_dirty(a.token), "and saved no sooner than needed");
	pass(LE_SAVE_INTERVAL);
	pass(ttl - LE_SAVE_INTERVAL - 1);
	ok(held("x", a.token), "held to its end");
	pass(1);
	ok(!held("x", a.token), "and not longer");
	stop();
}

/* The timer of a lease that was renewed rings at the deadline that it had. */
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
	ok(held("x", a.token), "it holds beyond the first deadline");
	ok(!slot_is_dirty(a.token), "nor does anything else");
	stop();
}

/* Expiry in portions: nothing is forgotten, nothing handled twice. */
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
	is_int(rounds, 100 / 7, "a hundred expire by sevens");
	is_int(le_core_stats(core)->expiries, 100, "all of them");
	pass_all();
	is_int(le_core_lock_count(core), 0, "and nothing is left");
	stop();
}

/* The batch's requests are younger than the horizon. */
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
	ok(got(2, LE_OK), "what was due is granted to who has come since");
	is_int(told[2].valid_for, TTL, "for its whole TTL");
	is_int(le_core_stats(core)->durations[LE_DURATION_WAIT].sum, 0,
		   "it has not waited for less than nothing");
	ok(held("y", y.token), "what is due since then may still be renewed");
	le_core_set_horizon(core, LE_NEVER);
	expire();
	ok(!held("y", y.token), "and ends with the next batch");
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
