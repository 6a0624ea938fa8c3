/* Eviction: a holder keeps the time that it was promised, and no more. */
/* Promises: D, L, M */
#include "fixture.h"

#define OTHER     (ROLE + 1)
#define OLD       (FIRST - 1000)
#define EVERYBODY 0

/* The kind of lease of the holder. */
typedef enum Time
{
	OWN,
	NAMED, /* a named lease that y uses, too */
	GROUP  /* one lease for x and y, acquired together */
} Time;

static const char *const times[] = {"a lease of its own", "a named lease", "a lease of two names"};

/* For a caller with the right to end the holders of this role. */
static LeReply
evict_by(LeKind kind, const char *name, uint32_t role)
{
	LeCommand cmd = command(LE_CMD_EVICT, 5, name);

	cmd.kind = kind;
	cmd.role = 0;
	cmd.any_role = role == EVERYBODY;
	cmd.value = (LeText){(const char *) &role, role == EVERYBODY ? 0 : sizeof(role)};
	return apply(cmd);
}

static LeReply
evict(const char *name)
{
	return evict_by(LE_KIND_LOCK, name, EVERYBODY);
}

/* Session 1 acquires x, and also y unless x has its own lease. *lease: the named lease. */
static LeReply
hold(Time time, int64_t *lease)
{
	static const LeText names[] = {{"x", 1}, {"y", 1}};
	LeCommand cmd = request(1, "x", X, LE_WAIT_FOREVER);
	LeReply reply;

	*lease = time == NAMED ? grant_lease(TTL) : 0;
	cmd.lease = *lease;
	if (time == GROUP)
	{
		cmd.names = names;
		cmd.nnames = 2;
	}
	reply = apply(cmd);
	if (time == NAMED)
	{
		cmd.name = text("y");
		apply(cmd);
	}
	batch();
	return reply;
}

/* Renews what the client has, as before the eviction. */
static LeStatus
renew(Time time, int64_t lease, int64_t token)
{
	if (time == NAMED)
		return on_lease(LE_CMD_KEEP_ALIVE, lease).status;
	return on_token(LE_CMD_RENEW, 1, time == GROUP ? "y" : "x", token).status;
}

static void
test_runs_to_its_deadline(Time time)
{
	int64_t lease;
	LeReply a, again;

	start();
	a = hold(time, &lease);
	acquire(2, "x", X);
	batch();
	pass(TTL / 2);
	is_int(renew(time, lease, a.token), LE_OK, times[time]);
	pass(TTL / 4);
	is_int(evict("x").ended, 1, "one holder is evicted");
	ok(slot_is_dirty(a.token), "an eviction is written");
	batch();

	/* the evicted holder still holds, but cannot renew */
	again = on_token(LE_CMD_CHECK, 1, "x", a.token);
	ok(again.status == LE_OK && again.valid_for == 3 * TTL / 4,
	   "an evicted holder is valid until its old deadline");
	again = on_token(LE_CMD_RENEW, 1, "x", a.token);
	ok(again.status == LE_NOT_HELD && again.ending == LE_END_EVICTED, "an evicted holder cannot renew");
	again = await(1, "x", a.token, 0);
	ok(again.status == LE_LOST && again.ending == LE_END_EVICTED, "an evicted holder cannot await its token");
	is_int(renew(time, lease, a.token), time == NAMED ? LE_OK : LE_NOT_HELD,
		   "a renewal of its own lease fails; a named lease is still renewed");
	is_int(evict("x").ended, 0, "an evicted holder is not evicted again");
	ok(le_next_dirty_slot(core, NULL) == NULL, "a second eviction writes nothing");
	batch();

	/* the end of the evicted holder */
	pass(3 * TTL / 4 - 1);
	ok(held("x", a.token) && !was_told[2], "an evicted holder holds until its deadline");
	renew(time, lease, a.token);
	pass(1);
	ok(!held("x", a.token) && got(2, LE_OK), "the waiter is granted at the deadline of the evicted holder");
	is_int(on_token(LE_CMD_RENEW, 1, "x", a.token).ending, LE_END_EVICTED, "the ending of an evicted holder");
	ok(time == OWN || le_core_find_lock(core, LE_KIND_LOCK, text("y"))->held == (time == NAMED),
	   "the other name on a named lease is still held");
	stop();
}

static void
test_given_back(Time time)
{
	int64_t lease;
	LeReply a;

	start();
	a = hold(time, &lease);
	acquire(2, "x", X);
	batch();
	evict("x");
	batch();
	is_int(release(1, "x", a.token).status, LE_OK, "an evicted holder can release");
	batch();
	ok(got(2, LE_OK), "the waiter is granted after the release of the evicted holder");
	pass_all();
	stop();
}

/* Several names with one lease are one holder; each of them can be released separately. */
static void
test_all_of_a_group(void)
{
	int64_t none;
	LeReply a;

	start();
	a = hold(GROUP, &none);
	pass(LE_SECOND);
	is_int(evict("x").ended, 1, "a holder of two names is evicted by the first name");
	is_int(evict("y").ended, 0, "the second name of the evicted holder is not evicted again");
	batch();
	is_int(le_core_find_lease(core, a.token) == NULL, true, "the lease of the evicted group is removed");
	pass(TTL - LE_SECOND - 1);
	ok(held("x", a.token) && held("y", a.token), "both names are held until the deadline");
	release(1, "x", a.token);
	batch();
	ok(!held("x", a.token) && held("y", a.token), "one name of the evicted group is released separately");
	pass(1);
	ok(!held("y", a.token), "the other name of the evicted group ends at the deadline");
	stop();
}

/*
 * A named lease survives the eviction of its holder. If it ends earlier than the evicted holder, it ends the
 * holder.
 */
static void
test_named_lease(void)
{
	int64_t lease;
	LeReply a;

	start();
	a = hold(NAMED, &lease);
	evict("x");
	evict("y");
	batch();
	pass(TTL - 1);
	is_int(on_lease(LE_CMD_KEEP_ALIVE, lease).status, LE_OK,
		   "a lease that has only evicted holders can be kept alive");
	pass(1);
	ok(!held("x", a.token), "the evicted holder ends although its lease is kept alive");
	is_int(on_lease(LE_CMD_LEASE_TTL, lease).valid_for, TTL - 1, "the lease survives its evicted holder");
	stop();

	start();
	a = hold(NAMED, &lease);
	evict("x");
	batch();
	on_lease(LE_CMD_REVOKE_LEASE, lease);
	batch();
	is_int(on_token(LE_CMD_RENEW, 1, "x", a.token).ending, LE_END_REVOKED,
		   "a revoked lease ends its evicted holder as revoked");
	stop();

	start();
	a = hold(NAMED, &lease);
	evict("x");
	batch();
	pass(TTL);
	is_int(on_token(LE_CMD_RENEW, 1, "x", a.token).ending, LE_END_EVICTED,
		   "an evicted holder that expires together with its lease ends as evicted");
	stop();
}

/* A client applies the validity of a renewal to everything on its lease. */
static void
test_validity(void)
{
	LeCommand cmd = request(1, "z", X, 0);
	LeReply reply, z;
	int64_t lease;

	start();
	hold(NAMED, &lease);
	cmd.lease = lease;
	z = apply(cmd);
	batch();
	pass(TTL / 2);
	evict("x");
	batch();
	is_int(on_lease(LE_CMD_KEEP_ALIVE, lease).valid_for, TTL / 2,
		   "a renewal returns the remaining time of the evicted holder");
	pass(TTL / 4);
	reply = on_lease(LE_CMD_KEEP_ALIVE, lease);
	ok(reply.valid_for == TTL / 4 && reply.valid_least == TTL / 4 && !reply.raised,
	   "a later renewal returns the remaining time of the evicted holder");
	evict("y");
	batch();
	is_int(on_token(LE_CMD_RENEW, 1, "z", z.token).valid_for, TTL / 4,
		   "a renewal by another hold returns the least of several remaining times");
	is_int(on_lease(LE_CMD_LEASE_TTL, lease).valid_for, TTL,
		   "lease_time_to_live returns the time of the lease itself");
	release(1, "x", FIRST + 1);
	batch();
	is_int(on_lease(LE_CMD_KEEP_ALIVE, lease).valid_for, TTL,
		   "a released evicted holder does not limit the validity");
	stop();
}

/* A new request for the lock is enqueued like any other. */
static void
test_no_more_holds(Time time)
{
	LeCommand cmd = request(1, "x", X, LE_WAIT_FOREVER);
	int64_t lease;
	LeReply a;

	start();
	a = hold(time, &lease);
	evict("x");
	batch();
	cmd.lease = lease;
	cmd.wait = 0;
	is_int(apply(cmd).status, LE_NOT_GRANTED,
		   "an evicted holder gets no more holds in its transaction or on its lease");
	cmd.reenter = a.token;
	is_int(apply(cmd).status, LE_NOT_GRANTED, "an evicted holder gets no more holds by its token");
	cmd.reenter = 0;
	cmd.enqueue = true;
	is_int(apply(cmd).status, LE_QUEUED, "a place on the lease of an evicted holder is a new entry");
	batch();
	release(1, "x", a.token);
	batch();
	is_int(le_core_find_lock(core, LE_KIND_LOCK, text("x"))->held, 1,
		   "the new place is granted after the evicted holder");
	pass_all();
	stop();
}

/* A repeated request for several names, and await_locks(). */
static void
test_several_names_again(void)
{
	static const LeText names[] = {{"x", 1}, {"y", 1}};
	LeCommand cmd = request(1, NULL, X, 0);
	LeReply a;

	start();
	cmd.lease = grant_lease(TTL);
	cmd.names = names;
	cmd.nnames = 2;
	cmd.enqueue = true;
	a = apply(cmd);
	batch();
	is_int(apply(cmd).token, a.token, "a repeated request returns the same token");
	evict("y");
	batch();
	is_int(apply(cmd).status, LE_QUEUED, "a repeated request with one evicted name creates a new place");
	cmd.type = LE_CMD_AWAIT;
	cmd.token = a.token;
	cmd.enqueue = false;
	is_int(apply(cmd).status, LE_LOST, "await_locks with one evicted name returns LE_LOST");
	batch();
	stop();
}

static void
test_named_owner(void)
{
	LeReply a, b;

	start();
	a = acquire_as(1, "x", X, "o");
	batch();
	evict("x");
	batch();
	commit(1);
	b = acquire_as(2, "x", X, "o");
	is_int(b.status, LE_WAITING, "a named owner waits for its evicted holder");
	batch();
	pass(TTL);
	ok(got(2, LE_OK) && told[2].token == b.token && b.token != a.token,
	   "the named owner is granted a new token");
	stop();

	/* evicted while another entry of the owner waits */
	start();
	acquire(3, "x", S);
	acquire(4, "x", X);
	b = acquire_as(2, "x", S, "o");
	batch();
	evict("x");
	batch();
	release(3, "x", FIRST);
	batch();
	ok(got(4, LE_OK) && !was_told[2], "the queue keeps its order");
	stop();
}

static void
test_several_holders(void)
{
	LeCommand cmd;
	LeReply a, b, reply;
	LeLimits limits = {.work = 3};
	int evicted = 0, steps = 0;

	/* all holders or none */
	start();
	a = acquire(1, "x", S);
	cmd = request(2, "x", S, 0);
	cmd.ttl = LE_TTL_BOUND;
	b = apply(cmd);
	batch();
	reply = evict("x");
	ok(reply.status == LE_HELD_BOUND && reply.token == b.token && reply.ended == 0,
	   "a bound holder makes the eviction fail, and its token is returned");
	ok(le_next_dirty_slot(core, NULL) == NULL, "nobody is evicted if one holder is bound");
	is_int(evict_by(LE_KIND_LOCK, "x", OTHER).status, LE_OK,
		   "a bound holder of another role does not make the eviction fail");
	is_int(on_token(LE_CMD_RENEW, 1, "x", a.token).status, LE_OK, "a holder of another role is not evicted");
	stop();

	/* holders of one role */
	start();
	acquire(1, "x", S);
	cmd = request(2, "x", S, 0);
	cmd.role = OTHER;
	apply(cmd);
	batch();
	is_int(evict_by(LE_KIND_LOCK, "x", OTHER).ended, 1, "holders of one role");
	is_int(on_token(LE_CMD_RENEW, 1, "x", FIRST).status, LE_OK, "the holder of another role is not evicted");
	stop();

	/* many holders, in steps */
	start();
	for (uint32_t i = 1; i <= 8; i++)
		acquire(i, "x", S);
	batch();
	le_core_set_limits(core, &limits);
	now += LE_SECOND;
	le_core_expire(core, now, 0);
	cmd = command(LE_CMD_EVICT, 0, "x");
	cmd.any_role = true;
	do
	{
		reply = apply(cmd);
		if (steps++ == 0)
		{
			now += LE_SECOND;
			acquire(9, "x", S);
		}
		evicted += reply.ended;
		cmd.from = reply.next;
		expire();
	} while (reply.next != 0 && steps < 20);
	ok(evicted == 8 && steps > 1, "many holders are evicted in steps");
	is_int(on_token(LE_CMD_RENEW, 9, "x", find_token(FIRST + 8)->token).status, LE_OK,
		   "a holder granted after the first step is not evicted");
	stop();
}

/*
 * Entries that an eviction does not change: waiters, closed names, holders that have ended. It changes no
 * epoch.
 */
static void
test_leaves_alone(void)
{
	LeReply a, b;
	uint32_t epoch;

	start();
	is_int(evict("nobody holds this").status, LE_OK, "a name that nobody holds");
	a = acquire(1, "x", X);
	b = enqueue(2, "x", X);
	batch();
	epoch = epochs[a.epoch];
	evict("x");
	is_int(epochs[a.epoch], epoch, "an eviction does not change the epoch, because the lock is still held");
	ok(on_token(LE_CMD_CHECK, 2, "x", b.token).status == LE_QUEUED &&
		   await(2, "x", b.token, 0).status == LE_QUEUED,
	   "a place is not evicted");
	batch();
	release(1, "x", a.token);
	batch();
	ok(held("x", b.token), "the place is granted after the evicted holder");

	/* lapsed */
	fenced_token = b.token;
	release(2, "x", b.token);
	batch();
	is_int(evict("x").ended, 0, "a lapsed holder is not evicted");
	fenced_token = 0;
	apply(command(LE_CMD_FENCE_ENDED, 0, NULL));
	batch();

	/* closed */
	{
		LeCommand cmd = command(LE_CMD_RELEASE, 1, "y");

		cmd.token = acquire(1, "y", X).token;
		cmd.hold_for = TTL;
		apply(cmd);
		batch();
	}
	is_int(evict("y").reopened, false, "an eviction does not open a closed name");
	is_int(apply(request(2, "y", X, 0)).status, LE_NOT_GRANTED, "the closed name is still not granted");
	stop();
}

/* The client may work until its deadline: grace and fences apply as to any other holder. */
static void
test_grace_and_fence(void)
{
	LeLimits limits = {.expiry_grace = LE_SECOND};
	LeReply a;

	start();
	le_core_set_limits(core, &limits);
	a = acquire(1, "x", X);
	acquire(2, "x", X);
	batch();
	evict("x");
	pass(TTL);
	ok(!held("x", a.token) && !was_told[2], "the grace follows the deadline of an evicted holder");
	pass(LE_SECOND);
	ok(got(2, LE_OK), "the waiter is granted after the grace");
	evict("x");
	release(2, "x", told[2].token);
	batch();
	is_int(acquire(3, "x", X).status, LE_OK, "there is no grace after the release of an evicted holder");
	fenced_token = find_token(FIRST + 2)->token;
	evict("x");
	batch();
	pass(TTL);
	is_int(find_token(FIRST + 2)->state, LE_STATE_LAPSED, "a fenced evicted holder lapses at its deadline");
	batch();
	fenced_token = 0;
	apply(command(LE_CMD_FENCE_ENDED, 0, NULL));
	batch();
	is_int(on_token(LE_CMD_RENEW, 3, "x", FIRST + 2).ending, LE_END_EVICTED,
		   "a fenced evicted holder ends with its fence as evicted");
	pass_all();
	stop();
}

static void
test_election(void)
{
	LeReply a;
	LeChange *change, *newest = NULL;

	start();
	a = campaign(1, "e", "value");
	batch();
	is_int(evict_by(LE_KIND_ELECTION, "e", EVERYBODY).ended, 1, "a leader is evicted");
	is_int(on_term(LE_CMD_PROCLAIM, 1, "e", a.token, "another").status, LE_OK,
		   "an evicted leader can proclaim");
	is_int(on_term(LE_CMD_RENEW, 1, "e", a.token, NULL).status, LE_NOT_HELD,
		   "an evicted leader cannot renew");
	batch();
	now += TTL;
	le_core_expire(core, now, 100);
	for (change = NULL; (change = le_next_change(core, change)) != NULL;)
		newest = change;
	ok(newest != NULL && newest->how == LE_HOW_EVICTED && newest->term == a.token,
	   "the history has a change for the evicted leader");
	batch();
	stop();
}

/* If another call has evicted the holder just before, the reply waits until that eviction is on disk. */
static void
test_rests_on(void)
{
	LeReply reply;

	start();
	acquire(1, "x", X);
	batch();
	is_int(evict("x").wrote, true, "the reply to an eviction depends on its batch");
	is_int(evict("x").wrote, true, "the reply to a second eviction depends on the same batch");
	batch();
	reply = evict("x");
	ok(!reply.wrote && reply.lsn == lsn, "the reply to a later eviction depends on the written row");
	stop();
}

/* --- loading --- */

static LeStoredEntry
stored_evicted(LeTime left)
{
	LeStoredEntry row = stored("x", OLD, X);

	row.evicted = true;
	row.time_left = left;
	return row;
}

static void
test_load(void)
{
	LeStoredEntry row;
	LeStoredLease lease;

	start_load();
	load_slot(stored_evicted(TTL / 2));
	load_done();
	batch();
	is_int(on_token(LE_CMD_RENEW, 1, "x", OLD).status, LE_NOT_HELD,
		   "an evicted holder cannot renew after a load");
	is_int(le_entry_time_left(find_token(OLD), now), TTL / 2,
		   "an evicted holder keeps its remaining time over a load");
	pass(TTL / 2);
	is_int(on_token(LE_CMD_RENEW, 1, "x", OLD).ending, LE_END_EVICTED,
		   "a loaded evicted holder ends at its deadline");
	stop();

	/* on a named lease that is kept alive */
	start_load();
	load_lease(stored_lease(OLD + 1));
	row = stored_evicted(TTL / 2);
	row.lease = OLD + 1;
	load_slot(row);
	load_done();
	batch();
	on_lease(LE_CMD_KEEP_ALIVE, OLD + 1);
	pass(TTL / 2 - 1);
	on_lease(LE_CMD_KEEP_ALIVE, OLD + 1);
	ok(held("x", OLD), "a loaded evicted holder on a named lease is held");
	pass(1);
	ok(!held("x", OLD), "a loaded evicted holder on a named lease ends at its own deadline");
	stop();

	/* on a named lease that ends earlier */
	start_load();
	lease = stored_lease(OLD + 1);
	lease.time_left = LE_SECOND;
	load_lease(lease);
	load_slot(row);
	load_done();
	batch();
	is_int(le_entry_time_left(find_token(OLD), now), LE_SECOND,
		   "a loaded evicted holder has at most the time of its lease");
	stop();

	start_load();
	row = stored_evicted(TTL);
	row.ttl = LE_TTL_BOUND;
	row.session = 101;
	is_int(load_slot(row), LE_LOAD_INVALID, "a row of an evicted bound holder is rejected");
	load_done();
	stop();
}

/*
 * The evicted holder ends although the client keeps its lease alive and the manager restarts several times.
 */
static void
test_restarts(void)
{
	LeLife life = {0};
	LeStoredLease lease = {.id = OLD + 1, .ttl = TTL, .time_left = TTL, .role = ROLE, .locator = 5};
	LeStoredEntry row;
	LeLoadEnv env;
	int runs = 0;

	start();
	le_core_destroy(core);
	row = stored_evicted(TTL);
	row.lease = lease.id;
	le_life_begin(&life);
	lease.life = row.life = life.number;
	for (bool ended = false; !ended && runs < 100; runs++)
	{
		start_at(FIRST + runs * 100);
		env = fixture_load();
		env.life = &life;
		le_core_load_begin(core, &env);
		load_lease(lease);
		load_slot(row);
		load_done();
		batch();
		on_lease(LE_CMD_KEEP_ALIVE, lease.id);
		lease.life = life.number;
		batch();
		pass(2 * LE_SECOND);
		ended = find_token(OLD) == NULL;
		life.uptime = (uint32_t) (2 * LE_SECOND / LE_LIFE_TICK);
		le_core_destroy(core);
		core = NULL;
		le_life_begin(&life);
	}
	ok(runs >= 5 && runs < 10, "restarts do not extend the time of an evicted holder");
}

/* Fails the batch, and loads these rows; a row without a lease has no lease row to load. */
static void
fail_batch(LeStoredEntry row, LeStoredLease lease_row)
{
	LeCore *failed = start_reload();

	if (row.lease != 0)
		load_lease(lease_row);
	load_slot(row);
	load_done();
	le_core_destroy(failed);
	batch();
}

/* A failed batch undoes an eviction. A written eviction keeps its deadline. */
static void
test_failed_batch(Time time)
{
	int64_t lease;
	LeStoredEntry row;
	LeStoredLease lease_row = {.ttl = TTL, .time_left = TTL, .role = ROLE, .locator = 5};
	LeReply a;

	start();
	a = hold(time, &lease);
	row = stored("x", a.token, X);
	row.lease = time == GROUP ? a.token : lease;
	lease_row.id = row.lease;
	now += LE_SECOND;
	evict("x");
	fail_batch(row, lease_row);
	is_int(le_entry_time_left(find_token(a.token), now), TTL - LE_SECOND,
		   "a failed batch does not move the deadline");
	is_int(on_token(LE_CMD_RENEW, 1, "x", a.token).status, LE_OK,
		   "a holder whose eviction was not written can renew");
	batch();

	evict("x");
	batch();
	row.evicted = true;
	row.lease = time == GROUP ? 0 : lease;
	now += LE_SECOND;
	fail_batch(row, lease_row);
	is_int(on_token(LE_CMD_RENEW, 1, "x", a.token).status, LE_NOT_HELD,
		   "a holder whose eviction was written cannot renew");
	is_int(le_entry_time_left(find_token(a.token), now), TTL - LE_SECOND,
		   "a written eviction keeps its deadline over a failed batch");
	stop();
}

/* The remaining time of a long eviction is saved at intervals, also on a named lease. */
static void
test_long(void)
{
	LeCommand cmd = request(1, "x", X, 0);
	LeReply a;

	start();
	cmd.lease = grant_lease(1000 * LE_SECOND);
	a = apply(cmd);
	batch();
	evict("x");
	batch();
	is_int(find_token(a.token)->saved.left, 1000 * LE_SECOND, "the remaining time of an eviction is saved");
	now += LE_SAVE_INTERVAL;
	le_core_expire(core, now, 100);
	ok(slot_is_dirty(a.token) && find_token(a.token)->saved.left == 1000 * LE_SECOND - LE_SAVE_INTERVAL,
	   "the remaining time is saved again after the interval");
	batch();
	stop();
}

int
main(void)
{
	for (Time time = OWN; time <= GROUP; time++)
	{
		test_runs_to_its_deadline(time);
		test_given_back(time);
		test_no_more_holds(time);
		test_failed_batch(time);
	}
	test_all_of_a_group();
	test_named_lease();
	test_validity();
	test_several_names_again();
	test_named_owner();
	test_several_holders();
	test_leaves_alone();
	test_grace_and_fence();
	test_election();
	test_rests_on();
	test_load();
	test_restarts();
	test_long();
	return done_testing();
}
