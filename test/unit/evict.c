/* Eviction: a holder keeps the time that it was promised, and no more. */
/* Promises: D, L, M */
#include "fixture.h"

#define OTHER     (ROLE + 1)
#define OLD       (FIRST - 1000)
#define EVERYBODY 0

/* On what the holder lives. */
typedef enum Time
{
	OWN,
	NAMED, /* a lease on which y hangs, too */
	GROUP  /* the lease of x and y together */
} Time;

static const char *const times[] = {"a lease of its own", "a named lease", "a lease of two names"};

/* For a caller who may end the holders of this role. */
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

/* Session 1 holds x, and unless it lives on a lease of its own y, too; *lease: the named one. */
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

/* The client keeps alive what it has, as before. */
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
	is_int(evict("x").ended, 1, "is evicted");
	ok(slot_is_dirty(a.token), "which is written");
	batch();

	/* it holds, and cannot be kept */
	again = on_token(LE_CMD_CHECK, 1, "x", a.token);
	ok(again.status == LE_OK && again.valid_for == 3 * TTL / 4, "it holds for as long as it was told");
	again = on_token(LE_CMD_RENEW, 1, "x", a.token);
	ok(again.status == LE_NOT_HELD && again.ending == LE_END_EVICTED, "a renewal is refused");
	again = await(1, "x", a.token, 0);
	ok(again.status == LE_LOST && again.ending == LE_END_EVICTED, "and await_lock");
	is_int(renew(time, lease, a.token), time == NAMED ? LE_OK : LE_NOT_HELD,
		   "nor is it by a name beside it; but what else hangs on a named lease is renewed");
	is_int(evict("x").ended, 0, "there is nobody left to evict");
	ok(le_next_dirty_slot(core, NULL) == NULL, "and nothing to write");
	batch();

	/* its end */
	pass(3 * TTL / 4 - 1);
	ok(held("x", a.token) && !was_told[2], "it holds to the end of that");
	renew(time, lease, a.token);
	pass(1);
	ok(!held("x", a.token) && got(2, LE_OK), "and no longer: the next one is granted");
	is_int(on_token(LE_CMD_RENEW, 1, "x", a.token).ending, LE_END_EVICTED, "it is told how it has ended");
	ok(time == OWN || le_core_find_lock(core, LE_KIND_LOCK, text("y"))->held == (time == NAMED),
	   "the other name is held on, unless they were one holder");
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
	is_int(release(1, "x", a.token).status, LE_OK, "given back");
	batch();
	ok(got(2, LE_OK), "the next one is granted at once");
	pass_all();
	stop();
}

/* Several names with one lease are one holder; each can be given back by itself. */
static void
test_all_of_a_group(void)
{
	int64_t none;
	LeReply a;

	start();
	a = hold(GROUP, &none);
	pass(LE_SECOND);
	is_int(evict("x").ended, 1, "a holder of two names");
	is_int(evict("y").ended, 0, "by either of them");
	batch();
	is_int(le_core_find_lease(core, a.token) == NULL, true, "their lease is gone");
	pass(TTL - LE_SECOND - 1);
	ok(held("x", a.token) && held("y", a.token), "they have their time");
	release(1, "x", a.token);
	batch();
	ok(!held("x", a.token) && held("y", a.token), "each for itself");
	pass(1);
	ok(!held("y", a.token), "and end");
	stop();
}

/* A named lease goes on without it, and takes it along where it ends sooner. */
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
		   "a lease with evicted holders alone is kept alive");
	pass(1);
	ok(!held("x", a.token), "they are not");
	is_int(on_lease(LE_CMD_LEASE_TTL, lease).valid_for, TTL - 1, "it goes on");
	stop();

	start();
	a = hold(NAMED, &lease);
	evict("x");
	batch();
	on_lease(LE_CMD_REVOKE_LEASE, lease);
	batch();
	is_int(on_token(LE_CMD_RENEW, 1, "x", a.token).ending, LE_END_REVOKED,
		   "whoever revokes the lease gives it back");
	stop();

	start();
	a = hold(NAMED, &lease);
	evict("x");
	batch();
	pass(TTL);
	is_int(on_token(LE_CMD_RENEW, 1, "x", a.token).ending, LE_END_EVICTED,
		   "where the lease expires with it, it ends as evicted");
	stop();
}

/* A client believes a renewal of all that hangs on its lease. */
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
		   "so it tells the time of an evicted holder");
	pass(TTL / 4);
	reply = on_lease(LE_CMD_KEEP_ALIVE, lease);
	ok(reply.valid_for == TTL / 4 && reply.valid_least == TTL / 4 && !reply.raised, "again and again");
	evict("y");
	batch();
	is_int(on_token(LE_CMD_RENEW, 1, "z", z.token).valid_for, TTL / 4,
		   "also by another hold, of several the least");
	is_int(on_lease(LE_CMD_LEASE_TTL, lease).valid_for, TTL, "though the lease lives longer");
	release(1, "x", FIRST + 1);
	batch();
	is_int(on_lease(LE_CMD_KEEP_ALIVE, lease).valid_for, TTL, "given back, it is not counted");
	stop();
}

/* Whoever asks for the lock again waits, as everybody. */
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
		   "not one more hold in the same transaction, or on the same lease");
	cmd.reenter = a.token;
	is_int(apply(cmd).status, LE_NOT_GRANTED, "nor by its token");
	cmd.reenter = 0;
	cmd.enqueue = true;
	is_int(apply(cmd).status, LE_QUEUED, "a place is a new one");
	batch();
	release(1, "x", a.token);
	batch();
	is_int(le_core_find_lock(core, LE_KIND_LOCK, text("x"))->held, 1, "which is granted in its turn");
	pass_all();
	stop();
}

/* The same request for several names, sent again; await_locks(). */
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
	is_int(apply(cmd).token, a.token, "held once");
	evict("y");
	batch();
	is_int(apply(cmd).status, LE_QUEUED, "one of two names is evicted: the request is a new one");
	cmd.type = LE_CMD_AWAIT;
	cmd.token = a.token;
	cmd.enqueue = false;
	is_int(apply(cmd).status, LE_LOST, "nor are both");
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
	ok(got(2, LE_OK) && told[2].token == b.token && b.token != a.token, "and is granted the lock anew");
	stop();

	/* evicted while it waits */
	start();
	acquire(3, "x", S);
	acquire(4, "x", X);
	b = acquire_as(2, "x", S, "o");
	batch();
	evict("x");
	batch();
	release(3, "x", FIRST);
	batch();
	ok(got(4, LE_OK) && !was_told[2], "the queue is in its order");
	stop();
}

static void
test_several_holders(void)
{
	LeCommand cmd;
	LeReply a, b, reply;
	LeLimits limits = {.work = 3};
	int evicted = 0, steps = 0;

	/* all or none */
	start();
	a = acquire(1, "x", S);
	cmd = request(2, "x", S, 0);
	cmd.ttl = LE_TTL_BOUND;
	b = apply(cmd);
	batch();
	reply = evict("x");
	ok(reply.status == LE_HELD_BOUND && reply.token == b.token && reply.ended == 0,
	   "a holder that is bound to its connection refuses it, and is named");
	ok(le_next_dirty_slot(core, NULL) == NULL, "and nobody is evicted");
	is_int(evict_by(LE_KIND_LOCK, "x", OTHER).status, LE_OK, "unless the caller has no right for that one");
	is_int(on_token(LE_CMD_RENEW, 1, "x", a.token).status, LE_OK, "none");
	stop();

	/* those of one role */
	start();
	acquire(1, "x", S);
	cmd = request(2, "x", S, 0);
	cmd.role = OTHER;
	apply(cmd);
	batch();
	is_int(evict_by(LE_KIND_LOCK, "x", OTHER).ended, 1, "holders of one role");
	is_int(on_token(LE_CMD_RENEW, 1, "x", FIRST).status, LE_OK, "alone");
	stop();

	/* very many, in steps */
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
	ok(evicted == 8 && steps > 1, "very many are evicted in steps");
	is_int(on_token(LE_CMD_RENEW, 9, "x", find_token(FIRST + 8)->token).status, LE_OK,
		   "but not whom the lock was granted after the first step");
	stop();
}

/* What it does not touch: waiters, closed names, holders that have ended; and that it raises no epoch. */
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
	is_int(epochs[a.epoch], epoch, "it is held still: its session may go on answering so");
	ok(on_token(LE_CMD_CHECK, 2, "x", b.token).status == LE_QUEUED &&
		   await(2, "x", b.token, 0).status == LE_QUEUED,
	   "a place stays");
	batch();
	release(1, "x", a.token);
	batch();
	ok(held("x", b.token), "and is granted in its turn");

	/* lapsed */
	fenced_token = b.token;
	release(2, "x", b.token);
	batch();
	is_int(evict("x").ended, 0, "one that has ended, and is fenced, has no time to wait for");
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
	is_int(evict("y").reopened, false, "a closed name is not opened");
	is_int(apply(request(2, "y", X, 0)).status, LE_NOT_GRANTED, "by nobody");
	stop();
}

/* Its client may work to the end: grace is for that; it is fenced as any other. */
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
	ok(!held("x", a.token) && !was_told[2], "its deadline is followed by the grace of an expiry");
	pass(LE_SECOND);
	ok(got(2, LE_OK), "then the next one is granted");
	evict("x");
	release(2, "x", told[2].token);
	batch();
	is_int(acquire(3, "x", X).status, LE_OK, "there is none after a release");
	fenced_token = find_token(FIRST + 2)->token;
	evict("x");
	batch();
	pass(TTL);
	is_int(find_token(FIRST + 2)->state, LE_STATE_LAPSED, "fenced it stays beyond its deadline");
	batch();
	fenced_token = 0;
	apply(command(LE_CMD_FENCE_ENDED, 0, NULL));
	batch();
	is_int(on_token(LE_CMD_RENEW, 3, "x", FIRST + 2).ending, LE_END_EVICTED, "and is gone with its fence");
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
	is_int(evict_by(LE_KIND_ELECTION, "e", EVERYBODY).ended, 1, "a leader");
	is_int(on_term(LE_CMD_PROCLAIM, 1, "e", a.token, "another").status, LE_OK, "leads, and may proclaim");
	is_int(on_term(LE_CMD_RENEW, 1, "e", a.token, NULL).status, LE_NOT_HELD, "but renews no more");
	batch();
	now += TTL;
	le_core_expire(core, now, 100);
	for (change = NULL; (change = le_next_change(core, change)) != NULL;)
		newest = change;
	ok(newest != NULL && newest->how == LE_HOW_EVICTED && newest->term == a.token, "the history tells of it");
	batch();
	stop();
}

/* Another call may have evicted it a moment ago: it is told when that is on disk. */
static void
test_rests_on(void)
{
	LeReply reply;

	start();
	acquire(1, "x", X);
	batch();
	is_int(evict("x").wrote, true, "it rests on its batch");
	is_int(evict("x").wrote, true, "so does the same again");
	batch();
	reply = evict("x");
	ok(!reply.wrote && reply.lsn == lsn, "and later on the row that tells of it");
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
	is_int(on_token(LE_CMD_RENEW, 1, "x", OLD).status, LE_NOT_HELD, "it is so after a load");
	is_int(le_entry_time_left(find_token(OLD), now), TTL / 2, "with what was left of its time");
	pass(TTL / 2);
	is_int(on_token(LE_CMD_RENEW, 1, "x", OLD).ending, LE_END_EVICTED, "then it ends");
	stop();

	/* on a lease that goes on */
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
	ok(held("x", OLD), "on a named lease, too");
	pass(1);
	ok(!held("x", OLD), "it has a time of its own");
	stop();

	/* and on one that ends before */
	start_load();
	lease = stored_lease(OLD + 1);
	lease.time_left = LE_SECOND;
	load_lease(lease);
	load_slot(row);
	load_done();
	batch();
	is_int(le_entry_time_left(find_token(OLD), now), LE_SECOND, "but no more of it than the lease has");
	stop();

	start_load();
	row = stored_evicted(TTL);
	row.ttl = LE_TTL_BOUND;
	row.session = 101;
	is_int(load_slot(row), LE_LOAD_INVALID, "no row tells that of a holder that is bound to its connection");
	load_done();
	stop();
}

/* The client keeps its lease alive, and managers come and go: the evicted holder ends all the same. */
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
	ok(runs >= 5 && runs < 10, "its time is not begun again by each start");
}

/* The batch fails, and these rows are loaded; a row without a lease has none to load. */
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

/* A batch that fails takes an eviction back, and one that was written keeps its deadline. */
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
	is_int(le_entry_time_left(find_token(a.token), now), TTL - LE_SECOND, "its deadline is where it was");
	is_int(on_token(LE_CMD_RENEW, 1, "x", a.token).status, LE_OK, "not written: it is renewed");
	batch();

	evict("x");
	batch();
	row.evicted = true;
	row.lease = time == GROUP ? 0 : lease;
	now += LE_SECOND;
	fail_batch(row, lease_row);
	is_int(on_token(LE_CMD_RENEW, 1, "x", a.token).status, LE_NOT_HELD, "written: it is not");
	is_int(le_entry_time_left(find_token(a.token), now), TTL - LE_SECOND, "and has its deadline");
	stop();
}

/* A long time is saved now and then, also where the lease is another one's. */
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
	is_int(find_token(a.token)->saved.left, 1000 * LE_SECOND, "a long time is saved");
	now += LE_SAVE_INTERVAL;
	le_core_expire(core, now, 100);
	ok(slot_is_dirty(a.token) && find_token(a.token)->saved.left == 1000 * LE_SECOND - LE_SAVE_INTERVAL,
	   "and saved again");
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
