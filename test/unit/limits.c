/* The limits of one role, which do not affect others. */
/* Promises: - */
#include "fixture.h"
#include "core/role.h"
#include "core/state.h"

#define OTHER (ROLE + 1)

static void
limit(int64_t locks, int64_t leases)
{
	LeLimits limits = {.locks_per_role = locks, .leases_per_role = leases};

	le_core_set_limits(core, &limits);
}

static LeReply
acquire_by(uint32_t role, uint32_t session, const char *name)
{
	LeCommand cmd = request(session, name, X, LE_WAIT_FOREVER);

	cmd.role = role;
	return apply(cmd);
}

static LeStatus
grant_lease_by(uint32_t role, int64_t *lease)
{
	LeCommand cmd = command(LE_CMD_GRANT_LEASE, 0, NULL);
	LeReply reply;

	cmd.ttl = TTL;
	cmd.role = role;
	reply = apply(cmd);
	if (lease != NULL)
		*lease = reply.lease;
	return reply.status;
}

static void
test_locks(void)
{
	LeReply a, place;

	start();
	limit(3, 0);
	a = acquire(1, "a", X);
	is_int(a.status, LE_OK, "a lock counts");
	is_int(acquire(2, "a", X).status, LE_WAITING, "a waiter counts");
	place = enqueue(3, "a", X);
	is_int(place.status, LE_QUEUED, "a place counts");
	is_int(acquire(4, "b", X).status, LE_LIMIT_LOCKS, "at the limit, a free lock is not granted");
	is_int(acquire(4, "b", S).status, LE_LIMIT_LOCKS, "at the limit, a shared lock is not granted");
	is_int(acquire(4, "a", X).status, LE_LIMIT_LOCKS, "at the limit, no request can wait");
	is_int(enqueue(4, "a", X).status, LE_LIMIT_LOCKS, "at the limit, no place is created");
	is_int(apply(request(4, "a", X, 0)).status, LE_NOT_GRANTED,
		   "at the limit, a try of a held lock returns that it is not granted");
	is_int(apply(request(4, "b", X, 0)).status, LE_LIMIT_LOCKS,
		   "at the limit, a try of a free lock returns the limit");
	is_int(acquire(1, "a", X).status, LE_OK, "at the limit, a lock can be re-entered");
	is_int(acquire_by(OTHER, 5, "b").status, LE_OK, "another role has its own limit");
	is_int(acquire_by(OTHER, 6, "a").status, LE_WAITING, "another role can wait");
	batch();

	/* An entry that ends makes room, however it ends. */
	apply(command(LE_CMD_SESSION_END, 2, NULL));
	is_int(acquire(4, "b", X).status, LE_WAITING, "a wait that ended makes room");
	is_int(acquire(7, "c", X).status, LE_LIMIT_LOCKS, "a wait that ended makes room for one entry only");
	release(3, "a", place.token);
	is_int(acquire(7, "c", X).status, LE_OK, "a place that was released makes room");
	undo(7, 1);
	is_int(acquire(8, "c", X).status, LE_OK, "a rollback makes room");
	commit(1);
	release(1, "a", a.token);
	is_int(acquire(9, "d", X).status, LE_LIMIT_LOCKS, "one hold of two makes no room");
	release(1, "a", a.token);
	is_int(acquire(9, "d", X).status, LE_OK, "the release of the last hold makes room");
	batch();
	pass(TTL);
	is_int(acquire(9, "e", X).status, LE_OK, "an expiry makes room");
	stop();
}

/* A waiter that joins a holder of the same owner or lease is no longer an entry of its own. */
static void
test_joined(void)
{
	LeCommand cmd;
	LeReply first;

	start();
	limit(3, 0);
	acquire(1, "a", X);
	cmd = request(2, "a", X, LE_WAIT_FOREVER);
	cmd.owner = text("me");
	apply(cmd);
	cmd.session++;
	cmd.sessno++;
	apply(cmd);
	is_int(acquire(4, "b", X).status, LE_LIMIT_LOCKS, "the two waiters count separately");
	first = release(1, "a", 0);
	is_int(first.status, LE_OK, "the holder releases");
	is_int(acquire(4, "b", X).status, LE_OK, "the joined waiters count once");
	is_int(acquire(5, "c", X).status, LE_OK, "there is room for two entries after the join");
	is_int(acquire(6, "d", X).status, LE_LIMIT_LOCKS, "there is no room for a third entry after the join");
	batch();
	stop();
}

static void
test_kinds(void)
{
	LeCommand cmd;

	start();
	limit(2, 0);
	cmd = request(1, "p", P, 0);
	cmd.permits = 5;
	is_int(apply(cmd).status, LE_OK, "a permit counts");
	cmd = request(2, "e", X, 0);
	cmd.kind = LE_KIND_ELECTION;
	cmd.value = text("me");
	is_int(apply(cmd).status, LE_OK, "an election counts");
	cmd = request(3, "p", P, 0);
	cmd.permits = 5;
	is_int(apply(cmd).status, LE_LIMIT_LOCKS, "each permit counts");
	batch();
	stop();
}

/* A lapsed holder has ended, but still counts. */
static void
test_lapsed(void)
{
	LeReply a;

	start();
	limit(1, 0);
	a = acquire(1, "a", X);
	batch();
	fenced_token = a.token;
	pass(TTL);
	is_int(acquire(2, "b", X).status, LE_LIMIT_LOCKS, "a holder that is fenced counts");
	fenced_token = 0;
	apply(command(LE_CMD_FENCE_ENDED, 1, NULL));
	is_int(acquire(2, "b", X).status, LE_OK, "a lapsed holder counts until the end of its fence");
	batch();
	stop();
}

static void
test_leases(void)
{
	int64_t lease, other;

	start();
	limit(1, 2);
	is_int(grant_lease_by(ROLE, &lease), LE_OK, "a first lease is granted");
	is_int(grant_lease_by(ROLE, &other), LE_OK, "a second lease is granted");
	is_int(grant_lease_by(ROLE, NULL), LE_LIMIT_LEASES, "a third lease exceeds the limit");
	is_int(grant_lease_by(OTHER, NULL), LE_OK, "another role has its own limit");
	is_int(acquire(1, "a", X).status, LE_OK, "leases do not count as locks");
	is_int(on_lease(LE_CMD_KEEP_ALIVE, lease).status, LE_OK, "a lease can be kept alive at the limit");
	on_lease(LE_CMD_REVOKE_LEASE, lease);
	is_int(grant_lease_by(ROLE, NULL), LE_OK, "a revoked lease makes room");
	batch();
	pass(TTL);
	is_int(grant_lease_by(ROLE, NULL) + grant_lease_by(ROLE, NULL), LE_OK, "two expired leases make room");
	is_int(grant_lease_by(ROLE, NULL), LE_LIMIT_LEASES, "the limit of leases applies after the expiry");
	batch();
	stop();
}

static void
test_lowered(void)
{
	LeReply a;

	start();
	a = acquire(1, "a", X);
	acquire(2, "b", X);
	acquire(3, "a", X);
	grant_lease(TTL);
	limit(1, 1);
	batch();
	is_int(on_token(LE_CMD_RENEW, 1, "a", a.token).status, LE_OK, "a lowered limit ends nothing");
	release(1, "a", a.token);
	batch();
	ok(got(3, LE_OK), "a lowered limit ends no wait");
	is_int(acquire(4, "c", X).status, LE_LIMIT_LOCKS, "a lowered limit rejects new locks");
	is_int(grant_lease_by(ROLE, NULL), LE_LIMIT_LEASES, "a lowered limit rejects new leases");
	stop();
}

/* Loaded entries are not checked against the limits, but count. */
static void
test_loaded(void)
{
	LeCommand waiter;

	start_load();
	limit(2, 1);
	for (int i = 0; i < 2; i++)
	{
		const char *name = i == 0 ? "a" : "b";

		ok(load_lease(stored_lease(FIRST - 8 + i)) == LE_LOADED, "a lease is loaded");
		ok(load_slot(stored(name, FIRST - 5 + i, X)) == LE_LOADED &&
			   load_place(stored(name, FIRST - 3 + i, X)) == LE_LOADED,
		   "a holder and a place are loaded");
	}
	load_done();
	waiter = request(2, "a", X, LE_WAIT_FOREVER);
	waiter.revision = FIRST - 1;
	is_int(apply(waiter).status, LE_WAITING,
		   "a request that waited before the load waits again at the limit");
	is_int(acquire(3, "c", X).status, LE_LIMIT_LOCKS, "a new lock exceeds the limit after a load");
	is_int(grant_lease_by(ROLE, NULL), LE_LIMIT_LEASES, "a new lease exceeds the limit after a load");
	is_int(acquire_by(OTHER, 4, "c").status, LE_OK, "the limit of another role is not affected by the load");
	end_session(2);
	for (int i = 0; i < 2; i++)
	{
		release(1, i == 0 ? "a" : "b", FIRST - 3 + i);
		release(1, i == 0 ? "a" : "b", FIRST - 5 + i);
	}
	is_int(acquire(3, "d", X).status, LE_OK, "released loaded entries make room");
	batch();
	stop();
}

/* Very many roles: the memory of each role is freed when it has no entries. */
static void
test_many_roles(void)
{
	int refused = 0, granted = 0;
	char name[16];

	start();
	limit(1, 0);
	for (uint32_t role = 1; role <= 3000; role++)
	{
		snprintf(name, sizeof(name), "%u", role);
		granted += acquire_by(role, 1, name).status == LE_OK;
		refused += acquire_by(role, 1, "x").status == LE_LIMIT_LOCKS;
	}
	is_int(granted, 3000, "each role has its own limit");
	is_int(refused, 3000, "each role is rejected above its limit");
	end_session(1);
	batch();
	pass(TTL);
	pass_all();
	is_int(acquire_by(77, 1, "x").status, LE_OK, "a role that was freed starts again");
	batch();
	stop();
}

/* Returns whether the counted bytes are at least as many as were allocated, and not many more. */
static bool
is_about(LeUsage usage, size_t allocated)
{
	return usage.bytes >= allocated && usage.bytes <= allocated + 128;
}

static void
test_bytes(void)
{
	size_t slot = sizeof(LeLock) + sizeof(LeSlot);

	ok(is_about(le_usage_of_entry(200, 150, 400), sizeof(LeEntry) + slot + 750),
	   "the counted bytes of a lock include its texts");
	ok(is_about(le_usage_of_lease(200), sizeof(LeLease) + 200),
	   "the counted bytes of a lease include its owner");
	ok(is_about(le_usage_of_hold(), sizeof(LeUncommitted)), "the counted bytes of a hold");
	ok(is_about(le_usage_of_closed(200), slot + 200), "the counted bytes of a closed name");
	ok(le_usage_of_entry(1, 1, 1).bytes > sizeof(LeEntry) + slot + 3 &&
		   le_usage_of_closed(1).bytes > slot + 1 && le_usage_of_lease(1).bytes > sizeof(LeLease) + 1,
	   "the counted bytes include a share of the indexes");
}

/* A longer value needs bytes for its additional length, a shorter one frees none. */
static void
test_values(void)
{
	LeLimits limits = {0};
	LeReply leader;

	start();
	leader = campaign(1, "e", "four");
	batch();
	do
	{
		limits.bytes_per_role++;
		le_core_set_limits(core, &limits);
	} while (on_term(LE_CMD_PROCLAIM, 1, "e", leader.token, "seventeen letters").status == LE_LIMIT_BYTES);
	on_term(LE_CMD_PROCLAIM, 1, "e", leader.token, "ten letter");
	is_int(on_term(LE_CMD_PROCLAIM, 1, "e", leader.token, "seventeen letters").status, LE_OK,
		   "a value that grows from 10 to 17 letters needs 7 bytes");
	batch();
	is_int(on_term(LE_CMD_PROCLAIM, 1, "e", leader.token, "eighteen letters..").status, LE_LIMIT_BYTES,
		   "a value with one letter too many is rejected");
	is_int(on_term(LE_CMD_PROCLAIM, 1, "e", leader.token, "four").status, LE_OK,
		   "a shorter value is accepted");
	batch();
	limits.bytes_per_role -= 3;
	le_core_set_limits(core, &limits);
	is_int(on_term(LE_CMD_PROCLAIM, 1, "e", leader.token, "fourteen lette").status, LE_OK,
		   "with a limit that is 3 bytes lower, a value of 14 letters is accepted");
	batch();
	is_int(on_term(LE_CMD_PROCLAIM, 1, "e", leader.token, "fifteen letters").status, LE_LIMIT_BYTES,
		   "with a limit that is 3 bytes lower, a value of 15 letters is rejected");
	stop();
}

/*
 * Each additional hold of an uncommitted entry is a record of its own, also that of a place that is requested
 * again.
 */
static void
test_holds(void)
{
	LeLimits limits = {.bytes_per_role = 8192};
	LeText names[] = {text("x"), text("y")};
	LeCommand cmd;
	int n;

	start();
	acquire_by(OTHER, 1, "x");
	acquire_by(OTHER, 1, "y");
	le_core_set_limits(core, &limits);

	cmd = request(2, "x", X, 0);
	cmd.enqueue = true;
	cmd.lease = grant_lease(TTL);
	for (n = 0; n < 1000 && apply(cmd).status == LE_QUEUED; n++)
		;
	ok(n > 1 && n < 1000, "additional holds of a place reach the limit of bytes");
	is_int(apply(cmd).status, LE_LIMIT_BYTES, "no more holds of the place are accepted at the limit");
	batch();
	undo(2, 1);

	cmd = request(3, "", X, 0);
	cmd.enqueue = true;
	cmd.lease = grant_lease(TTL);
	cmd.names = names;
	cmd.nnames = 2;
	for (n = 0; n < 1000 && apply(cmd).status == LE_QUEUED; n++)
		;
	ok(n > 1 && n < 1000, "additional holds of a group's place reach the limit of bytes");
	is_int(apply(cmd).status, LE_LIMIT_BYTES, "no more holds of the group's place are accepted at the limit");
	batch();
	stop();
}

/* A holder has at most as many holds as its row can store. */
static void
test_most_holds(void)
{
	LeCommand cmd;
	LeReply reply;
	LeEntry *entry;

	start();
	cmd = request(1, "x", X, 0);
	cmd.owner = text("me");
	reply = apply(cmd);
	batch();
	commit(1);
	entry = find_token(reply.token);

	/* as after that many calls, each in its own transaction */
	entry->hold_count = LE_MAX_HOLDS - 1;
	is_int(apply(cmd).status, LE_OK, "the last hold that can be stored is granted");
	is_int(apply(cmd).status, LE_LIMIT_HOLDS, "one hold more is rejected");
	cmd.session = cmd.sessno = 2;
	cmd.owner = text("another");
	cmd.wait = LE_WAIT_FOREVER;
	is_int(apply(cmd).status, LE_WAITING, "another owner waits");
	batch();
	entry->hold_count = 1;
	batch();
	stop();
}

int
main(void)
{
	test_bytes();
	test_locks();
	test_joined();
	test_kinds();
	test_lapsed();
	test_leases();
	test_lowered();
	test_loaded();
	test_many_roles();
	test_values();
	test_holds();
	test_most_holds();
	return done_testing();
}
