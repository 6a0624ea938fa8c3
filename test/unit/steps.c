/* Large operations are done in steps, during which no other client gets the locks. */
/* Promises: G */
#include "fixture.h"

#define OTHER (ROLE + 1)
#define STEP  3

static void
limit_work(void)
{
	LeLimits limits = {.work = STEP};

	le_core_set_limits(core, &limits);
}

static char *
name_of(int i)
{
	static char name[8];

	snprintf(name, sizeof(name), "n%d", i);
	return name;
}

/* Acquires n names, a few in each batch. */
static void
acquire_many(uint32_t session, int n, int64_t lease, LeTime ttl, int64_t *tokens)
{
	for (int i = 0; i < n; i++)
	{
		LeCommand cmd = request(session, name_of(i), X, 0);

		cmd.lease = lease;
		cmd.ttl = ttl;
		tokens[i] = apply(cmd).token;
		batch();
	}
}

static int
count_held(int n, const int64_t *tokens)
{
	int held_now = 0;

	for (int i = 0; i < n; i++)
		held_now += held(name_of(i), tokens[i]);
	return held_now;
}

static uint64_t
entries(void)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < le_core_lock_indexes(core); i++)
	{
		const LeLock *lock = le_core_lock_at(core, i);

		n += lock != NULL ? (uint64_t) lock->held + lock->waiting : 0;
	}
	return n;
}

/* Returns the number of lapsed holders. */
static int
lapsed(void)
{
	int n = 0;

	for (uint32_t i = 0; i < le_core_lock_indexes(core); i++)
	{
		const LeLock *lock = le_core_lock_at(core, i);

		for (const LeSlot *slot = lock != NULL ? lock->slots : NULL; slot != NULL; slot = slot->next)
			n += le_slot_holder(slot) != NULL && le_slot_holder(slot)->state == LE_STATE_LAPSED;
	}
	return n;
}

static void
test_lease(void)
{
	int64_t tokens[10], lease;
	LeCommand cmd;
	LeReply reply;

	start();
	limit_work();
	lease = grant_lease(TTL);
	acquire_many(1, 10, lease, TTL, tokens);
	acquire(2, "n9", X);
	batch();
	reply = on_lease(LE_CMD_REVOKE_LEASE, lease);
	is_int(reply.status, LE_OK, "a lease with many entries is revoked");
	ok(reply.next != 0, "the revocation takes several steps");
	is_int(entries(), 10 - STEP + 1, "the first step ends a part of the entries");
	is_int(count_held(10, tokens), 0, "no entry of the revoked lease is held");
	is_int(on_token(LE_CMD_RENEW, 1, "n9", tokens[9]).status, LE_NOT_HELD,
		   "no entry of the revoked lease can be renewed");
	is_int(release(1, "n9", tokens[9]).status, LE_NOT_HELD, "no entry of the revoked lease can be released");
	is_int(on_lease(LE_CMD_KEEP_ALIVE, lease).status, LE_NO_LEASE, "the revoked lease cannot be kept alive");
	cmd = request(3, "free", X, 0);
	cmd.lease = lease;
	is_int(apply(cmd).status, LE_NO_LEASE, "nothing is acquired on the revoked lease");
	is_int(acquire(4, "n9", X).status, LE_WAITING, "a lock whose entry was not yet ended is not granted");
	batch();
	is_int(le_core_next_deadline(core) <= now, true, "the next step is due immediately");
	is_int(le_core_expire(core, now, 100) > 0, true, "the next step ends entries");
	batch();
	is_int(entries(), 10 - 2 * STEP + 2, "the next step has the same size");
	reply = on_lease(LE_CMD_REVOKE_LEASE, lease);
	ok(reply.status == LE_OK && reply.next != 0,
	   "a repeated revocation returns that the lease has not yet ended");
	batch();
	reply = on_lease(LE_CMD_REVOKE_LEASE, lease);
	is_int(reply.next, 0, "a repeated revocation returns that the lease has ended");
	batch();
	pass_all();
	is_int(entries(), 0, "no entry is left after the revocation");
	stop();
}

/* Waiters on a lease that is revoked in steps, which could be granted between two steps. */
static void
test_waits_on_lease(void)
{
	int64_t tokens[10], lease, blocked, awaited;
	LeCommand cmd;

	start();
	lease = grant_lease(TTL);
	acquire_many(1, 10, lease, TTL, tokens);
	blocked = acquire(2, "blocked", X).token;
	awaited = acquire(2, "awaited", X).token;
	cmd = request(3, "blocked", X, LE_WAIT_FOREVER);
	cmd.lease = lease;
	is_int(apply(cmd).status, LE_WAITING, "a call waits on a lease");
	cmd = request(4, "awaited", X, 0);
	cmd.lease = lease;
	cmd.enqueue = true;
	is_int(await(4, "awaited", apply(cmd).token, LE_WAIT_FOREVER).status, LE_WAITING,
		   "a call waits for a place on the lease");
	acquire(5, "awaited", X);
	batch();
	limit_work();
	ok(on_lease(LE_CMD_REVOKE_LEASE, lease).next != 0, "the lease with waiters is revoked in steps");
	batch();
	release(2, "blocked", blocked);
	release(2, "awaited", awaited);
	batch();
	ok(got(3, LE_LOST) && told[3].ending == LE_END_REVOKED,
	   "the waiting call on the revoked lease gets LE_LOST although its lock is free");
	ok(got(4, LE_LOST), "the call for a place on the revoked lease gets LE_LOST");
	for (int i = 0; i < 10; i++)
		expire();
	is_int(entries(), 1, "all entries on the lease have ended");
	ok(le_core_find_lock(core, LE_KIND_LOCK, text("awaited"))->held == 1,
	   "the waiter behind the revoked lease is granted");
	stop();
}

/* Fenced entries are counted in the steps, too. */
static void
test_lapses(void)
{
	int64_t tokens[10], lease;

	start();
	lease = grant_lease(TTL);
	acquire_many(1, 10, lease, TTL, tokens);
	fenced_token = ALL_FENCED;
	limit_work();
	ok(on_lease(LE_CMD_REVOKE_LEASE, lease).next != 0, "a lease with many fenced entries is revoked");
	is_int(lapsed(), STEP, "the first step lapses a part of the fenced entries");
	batch();
	for (int i = 0; i < 10; i++)
		expire();
	is_int(lapsed(), 10, "all fenced entries have lapsed after the last step");
	fenced_token = 0;
	apply(command(LE_CMD_FENCE_ENDED, 1, NULL));
	for (int i = 0; i < 10; i++)
		expire();
	is_int(entries(), 0, "no entry is left at the end of the fences");
	stop();
}

static void
test_undo(void)
{
	int64_t tokens[10];

	start();
	limit_work();
	acquire_many(1, 10, 0, TTL, tokens);
	ok(undo(1, 1).next != 0, "a rollback of many locks takes several steps");
	is_int(entries(), 10 - STEP, "the first step undoes a part of the locks");
	batch();
	for (int i = 0; i < 2; i++)
	{
		ok(undo(1, 1).next != 0, "a repeated rollback does the next step");
		batch();
	}
	is_int(undo(1, 1).next, 0, "the last rollback returns that it is complete");
	is_int(entries(), 0, "no lock is left after the rollback");
	batch();
	stop();
}

static void
test_session_end(void)
{
	int64_t tokens[10];

	start();
	limit_work();
	acquire_many(1, 10, 0, LE_TTL_BOUND, tokens);
	ok(end_session(1).next != 0, "the end of a session with many locks takes several steps");
	ok(entries() < 10 && entries() > 0, "the first step ends a part of the session's locks");
	batch();
	for (int i = 0; i < 10 && end_session(1).next != 0; i++)
		batch();
	is_int(entries(), 0, "no lock is left after the end of the session");
	batch();
	stop();
}

static void
test_grants(void)
{
	LeReply holder;
	int granted = 0;

	start();
	limit_work();
	holder = acquire(1, "x", X);
	batch();
	for (uint32_t i = 2; i < 12; i++)
	{
		acquire(i, "x", S);
		batch();
	}
	release(1, "x", holder.token);
	batch();
	for (uint32_t i = 2; i < 12; i++)
		granted += got(i, LE_OK);
	ok(granted > 0 && granted <= STEP, "a step grants a part of many waiters");
	is_int(acquire(12, "x", S).status, LE_WAITING, "a new request does not overtake the remaining waiters");
	batch();
	is_int(le_core_next_deadline(core) <= now, true, "the next step of grants is due immediately");
	for (int i = 0; i < 10 && le_core_next_deadline(core) <= now; i++)
		expire();
	is_int(le_core_find_lock(core, LE_KIND_LOCK, text("x"))->held, 11,
		   "all waiters are granted without any time passing");
	stop();
}

static void
test_force(void)
{
	LeCommand cmd;
	LeReply reply;
	int ended = 0;

	start();
	for (uint32_t i = 1; i <= 8; i++)
		acquire(i, "x", S);
	batch();
	limit_work();
	now += LE_SECOND;
	cmd = command(LE_CMD_FORCE, 0, "x");
	do
	{
		reply = apply(cmd);
		if (ended == 0)
		{
			now += LE_SECOND;
			acquire(9, "x", S);
		}
		ended += reply.ended;
		cmd.from = reply.next;
		batch();
	} while (reply.next != 0 && ended < 20);
	expire();
	is_int(ended, 8, "FORCE ends all holders in steps");
	ok(le_core_find_lock(core, LE_KIND_LOCK, text("x"))->held == 1,
	   "FORCE does not end a holder granted after the first step");

	/* closed names are opened */
	cmd = command(LE_CMD_RELEASE, 1, "y");
	cmd.token = acquire(1, "y", X).token;
	cmd.hold_for = TTL;
	apply(cmd);
	batch();
	is_int(apply(request(2, "y", X, 0)).status, LE_NOT_GRANTED, "closed");
	cmd = command(LE_CMD_FORCE, 0, "y");
	cmd.role = OTHER;
	is_int(apply(cmd).reopened, false, "FORCE of another role does not open a closed name");
	cmd.any_role = true;
	is_int(apply(cmd).reopened, true, "FORCE with the right for any role opens a closed name");
	is_int(apply(request(2, "y", X, 0)).status, LE_OK, "the opened name is granted");
	batch();
	stop();
}

static void
test_force_role(void)
{
	int64_t tokens[6], lease;
	LeCommand cmd;
	LeReply reply, theirs;
	int ended = 0, steps = 0;
	bool wrote = true, onward = true;

	start();
	lease = grant_lease(TTL);
	acquire_many(1, 6, lease, TTL, tokens);
	enqueue(2, "n0", X);
	cmd = request(3, "n0", X, LE_WAIT_FOREVER);
	cmd.role = OTHER;
	theirs = apply(cmd);
	enqueue(4, "n0", X);
	acquire(5, "n1", X);
	cmd = command(LE_CMD_RELEASE, 6, "closed");
	cmd.token = acquire(6, "closed", X).token;
	cmd.hold_for = TTL;
	apply(cmd);
	acquire(7, "alone", X);
	batch();
	limit_work();
	cmd = command(LE_CMD_FORCE_ROLE, 0, NULL);
	do
	{
		reply = apply(cmd);
		ended += reply.ended;
		wrote = wrote && reply.wrote;
		onward = onward && (reply.next == 0 || reply.next >= cmd.from);
		cmd.from = reply.next;
		batch();
		if (got(5, LE_LOST))
			ok(true, "a waiting call of the role gets LE_LOST");
	} while (reply.next != 0 && ++steps < 20);
	expire();
	is_int(steps > 1, true, "FORCE_ROLE takes several steps");
	ok(wrote, "each step of FORCE_ROLE depends on its write");
	ok(onward, "each step of FORCE_ROLE continues after the previous one");
	is_int(ended, 2 + 1 + 1 + 1 + 1, "FORCE_ROLE ends two places, a wait, a lease, a lock and a closed name");
	is_int(entries(), 1, "no entry of the role is left");
	ok(theirs.status == LE_WAITING && le_core_find_lock(core, LE_KIND_LOCK, text("n0"))->held == 1,
	   "the waiter of another role is granted after FORCE_ROLE");
	is_int(apply(request(8, "closed", X, 0)).status, LE_OK,
		   "the closed name of the role is open after FORCE_ROLE");
	batch();
	stop();
}

/* Another manager starts between two steps: the remaining entries have other indexes in its core. */
static void
test_force_role_reload(void)
{
	int64_t tokens[20];
	LeCommand cmd = command(LE_CMD_FORCE_ROLE, 0, NULL);
	LeReply reply;
	LeCore *before;
	int left;

	start();
	acquire_many(1, 20, 0, TTL, tokens);
	limit_work();
	for (int steps = 0; steps < 3; steps++)
	{
		reply = apply(cmd);
		cmd.from = reply.next;
		batch();
	}
	left = count_held(20, tokens);
	ok(reply.next != 0 && left > 0 && left < 20, "a part of the role's entries has ended");
	before = start_reload();
	for (int i = 0; i < 20; i++)
	{
		if (le_core_find_entry(before, LE_KIND_LOCK, text(name_of(i)), tokens[i]) != NULL)
			load_slot(stored(name_of(i), tokens[i], X));
	}
	load_done();
	le_core_destroy(before);
	is_int(count_held(20, tokens), left, "the remaining entries are loaded");
	batch();
	limit_work();
	do
	{
		reply = apply(cmd);
		cmd.from = reply.next;
		batch();
	} while (reply.next != 0);
	is_int(entries(), 0, "the steps after the load end all remaining entries");
	stop();
}

/* A lease that is revoked or forced closes no name, also if a later batch ends its entries. */
static void
test_drained_with_grace(void)
{
	static const LeCommandType types[] = {LE_CMD_REVOKE_LEASE, LE_CMD_FORCE_ROLE};
	LeLimits limits = {.work = STEP, .expiry_grace = TTL};

	for (int i = 0; i < 2; i++)
	{
		int64_t tokens[6];
		LeCommand cmd = command(types[i], 0, NULL);
		int closed = 0;

		start();
		cmd.lease = grant_lease(TTL);
		acquire_many(1, 6, cmd.lease, TTL, tokens);
		le_core_set_limits(core, &limits);
		ok(apply(cmd).next != 0, "the lease ends in several steps");
		batch();
		for (int n = 0; n < 6; n++)
			expire();
		for (int k = 0; k < 6; k++)
			closed += apply(request(2, name_of(k), X, 0)).status != LE_OK;
		is_int(closed, 0, "no name of the ended lease is closed");
		batch();
		stop();
	}
}

/* A step examines a limited number of entries of all roles, whatever the work of a batch. */
static void
test_looks(void)
{
	static LeCommand cmd;
	LeReply reply;
	int n = 0, steps = 0, ended = 0;

	start();
	for (; n < 25000; n++)
		apply(request(1, name_of(n), X, 0));
	batch();
	cmd = request(2, "last", X, 0);
	cmd.role = OTHER;
	apply(cmd);
	batch();
	cmd = command(LE_CMD_FORCE_ROLE, 0, NULL);
	cmd.role = OTHER;
	do
	{
		reply = apply(cmd);
		ended += reply.ended;
		cmd.from = reply.next;
		batch();
	} while (reply.next != 0 && ++steps < 20);
	ok(ended == 1 && steps > 1 && steps < 5,
	   "FORCE_ROLE completes in a few steps among many entries of others");
	is_int(entries(), n, "FORCE_ROLE ends no entry of other roles");
	end_session(1);
	batch();
	stop();
}

static void
test_bytes(void)
{
	LeLimits limits = {.bytes_per_role = 20000};
	int n = 0, holds = 0;
	bool refused = false;
	LeReply reply;

	start();
	le_core_set_limits(core, &limits);
	while (n < 1000 && apply(request(1, name_of(n), X, 0)).status == LE_OK)
		n++;
	ok(n > 10 && n < 100, "locks of a role reach the limit of bytes");
	is_int(apply(request(1, name_of(n), X, 0)).status, LE_LIMIT_BYTES,
		   "a lock above the limit of bytes is rejected");
	for (int i = 0; i < 10; i++)
		refused |= grant_lease(TTL) == 0;
	ok(refused, "a lease above the limit of bytes is rejected");
	batch();
	undo(1, 1);
	batch();
	do
		reply = acquire_as(2, "again", X, "me");
	while (reply.status == LE_OK && ++holds < 100000);
	is_int(reply.status, LE_LIMIT_BYTES, "uncommitted holds reach the limit of bytes");
	is_int(release(2, "again", 0).status, LE_OK, "a release is not rejected at the limit of bytes");
	batch();
	stop();
}

/* Closed names count for the role that has closed them. */
static void
test_closed(void)
{
	LeLimits limits = {.locks_per_role = 2};
	LeCommand cmd;

	start();
	le_core_set_limits(core, &limits);
	for (int i = 0; i < 2; i++)
	{
		cmd = command(LE_CMD_RELEASE, 1, name_of(i));
		cmd.token = acquire(1, name_of(i), X).token;
		cmd.hold_for = TTL;
		is_int(apply(cmd).status, LE_OK, "a lock is released with hold_for");
		batch();
	}
	is_int(apply(request(1, "more", X, 0)).status, LE_LIMIT_LOCKS, "closed names reach the limit of locks");
	cmd = request(2, "more", X, 0);
	cmd.role = OTHER;
	is_int(apply(cmd).status, LE_OK, "another role is not limited by the closed names");
	batch();
	pass(TTL);
	is_int(apply(request(1, name_of(0), X, 0)).status, LE_OK, "names that have opened do not count");
	batch();
	stop();
}

/* The rows of an unused lock are deleted in steps. */
static void
test_rows(void)
{
	LeReply readers[10];
	int rows = 0;

	start();
	limit_work();
	for (uint32_t i = 0; i < 10; i++)
		readers[i] = acquire(i, "x", S);
	batch();
	for (uint32_t i = 0; i < 10; i++)
		release(i, "x", readers[i].token);
	batch();
	now += LE_LINGER + LE_LINGER_STEP;
	le_core_expire(core, now, 100);
	for (const LeSlot *slot = NULL; (slot = le_next_dirty_slot(core, slot)) != NULL;)
		rows++;
	is_int(rows, STEP, "a step deletes a part of a lock's rows");
	batch();
	for (int i = 0; i < 10; i++)
		expire();
	is_int(le_core_lock_count(core), 0, "the lock is removed after its last row");
	stop();
}

/* Entries of a lease that ends in steps cannot be re-entered. */
static void
test_draining(void)
{
	int64_t tokens[10], lease;
	int refused = 0;

	start();
	lease = grant_lease(TTL);
	acquire_many(1, 10, lease, TTL, tokens);
	limit_work();
	ok(on_lease(LE_CMD_REVOKE_LEASE, lease).next != 0, "the lease is revoked in several steps");
	for (int i = 0; i < 10; i++)
	{
		LeCommand cmd = request(1, name_of(i), X, 0);

		cmd.reenter = tokens[i];
		refused += apply(cmd).status == LE_NOT_GRANTED;
	}
	is_int(refused, 10 - STEP, "remaining locks of the revoked lease are not granted to their own owner");
	batch();
	pass_all();
	stop();
}

/* The rows are written in the order of their position in the table. */
static void
test_set_permits(void)
{
	LeCommand cmd;
	LeReply reply;
	int steps = 0, written[10] = {0}, once = 0;

	start_load();
	for (int i = 0; i < 10; i++)
	{
		LeStoredEntry row = stored("x", (INT64_C(1) << 28) + i, P);

		row.permits = 20;
		row.slot = i * 7 % 10;
		load_slot(row);
	}
	load_done();
	batch();
	limit_work();
	cmd = command(LE_CMD_SET_PERMITS, 0, "x");
	cmd.permits = 30;
	cmd.any_role = true;
	do
	{
		reply = apply(cmd);
		cmd.from = reply.next;
		for (const LeSlot *slot = NULL; (slot = le_next_dirty_slot(core, slot)) != NULL;)
			written[slot->number]++;
		batch();
	} while (reply.next != 0 && ++steps < 20);
	for (int i = 0; i < 10; i++)
		once += written[i] == 1;
	is_int(reply.next, 0, "SET_PERMITS writes all rows in steps");
	is_int(once, 10, "SET_PERMITS writes each row once");
	stop();
}

int
main(void)
{
	test_lease();
	test_waits_on_lease();
	test_lapses();
	test_undo();
	test_session_end();
	test_grants();
	test_force();
	test_force_role();
	test_force_role_reload();
	test_drained_with_grace();
	test_looks();
	test_bytes();
	test_closed();
	test_rows();
	test_draining();
	test_set_permits();
	return done_testing();
}
