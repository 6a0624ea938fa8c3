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
	is_int(acquire(2, "a", X).status, LE_WAITING, "so does one who waits");
	place = enqueue(3, "a", X);
	is_int(place.status, LE_QUEUED, "and a queue place");
	is_int(acquire(4, "b", X).status, LE_LIMIT_LOCKS, "there are no more, not even of a free lock");
	is_int(acquire(4, "b", S).status, LE_LIMIT_LOCKS, "of whatever mode");
	is_int(acquire(4, "a", X).status, LE_LIMIT_LOCKS, "nor to wait for");
	is_int(enqueue(4, "a", X).status, LE_LIMIT_LOCKS, "nor a place");
	is_int(apply(request(4, "a", X, 0)).status, LE_NOT_GRANTED, "a try that gets nothing anyway is told so");
	is_int(apply(request(4, "b", X, 0)).status, LE_LIMIT_LOCKS, "one that would is refused");
	is_int(acquire(1, "a", X).status, LE_OK, "one more hold is no more locks");
	is_int(acquire_by(OTHER, 5, "b").status, LE_OK, "another role has its own limit");
	is_int(acquire_by(OTHER, 6, "a").status, LE_WAITING, "and may wait");
	batch();

	/* room comes back, however it ends */
	apply(command(LE_CMD_SESSION_END, 2, NULL));
	is_int(acquire(4, "b", X).status, LE_WAITING, "a wait that ended leaves room");
	is_int(acquire(7, "c", X).status, LE_LIMIT_LOCKS, "for one");
	release(3, "a", place.token);
	is_int(acquire(7, "c", X).status, LE_OK, "so does a place that was left");
	undo(7, 1);
	is_int(acquire(8, "c", X).status, LE_OK, "and a lock whose transaction rolled back");
	commit(1);
	release(1, "a", a.token);
	is_int(acquire(9, "d", X).status, LE_LIMIT_LOCKS, "one hold of two makes no room");
	release(1, "a", a.token);
	is_int(acquire(9, "d", X).status, LE_OK, "the last one does");
	batch();
	pass(TTL);
	is_int(acquire(9, "e", X).status, LE_OK, "and the end of a lease");
	stop();
}

/* A hold of an owner or a lease that waited is no longer an entry of its own. */
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
	is_int(acquire(4, "b", X).status, LE_LIMIT_LOCKS, "both wait");
	first = release(1, "a", 0);
	is_int(first.status, LE_OK, "released");
	is_int(acquire(4, "b", X).status, LE_OK, "both are granted as one");
	is_int(acquire(5, "c", X).status, LE_OK, "which leaves room for two");
	is_int(acquire(6, "d", X).status, LE_LIMIT_LOCKS, "no more");
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
	is_int(apply(cmd).status, LE_OK, "and an election");
	cmd = request(3, "p", P, 0);
	cmd.permits = 5;
	is_int(apply(cmd).status, LE_LIMIT_LOCKS, "each permit for itself");
	batch();
	stop();
}

/* Ended, but fenced: it is in the way still. */
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
	is_int(acquire(2, "b", X).status, LE_OK, "to the end of the fence");
	batch();
	stop();
}

static void
test_leases(void)
{
	int64_t lease, other;

	start();
	limit(1, 2);
	is_int(grant_lease_by(ROLE, &lease), LE_OK, "a lease");
	is_int(grant_lease_by(ROLE, &other), LE_OK, "and another");
	is_int(grant_lease_by(ROLE, NULL), LE_LIMIT_LEASES, "but no more");
	is_int(grant_lease_by(OTHER, NULL), LE_OK, "another role has its own limit");
	is_int(acquire(1, "a", X).status, LE_OK, "leases are no locks");
	is_int(on_lease(LE_CMD_KEEP_ALIVE, lease).status, LE_OK, "they go on");
	on_lease(LE_CMD_REVOKE_LEASE, lease);
	is_int(grant_lease_by(ROLE, NULL), LE_OK, "one that was revoked leaves room");
	batch();
	pass(TTL);
	is_int(grant_lease_by(ROLE, NULL) + grant_lease_by(ROLE, NULL), LE_OK, "so do those that ended");
	is_int(grant_lease_by(ROLE, NULL), LE_LIMIT_LEASES, "all of them");
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
	ok(got(3, LE_OK), "nor a wait");
	is_int(acquire(4, "c", X).status, LE_LIMIT_LOCKS, "it refuses new ones");
	is_int(grant_lease_by(ROLE, NULL), LE_LIMIT_LEASES, "of each kind");
	stop();
}

/* What is stored is not asked again, but counts. */
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
		   "and what is locked");
	}
	load_done();
	waiter = request(2, "a", X, LE_WAIT_FOREVER);
	waiter.revision = FIRST - 1;
	is_int(apply(waiter).status, LE_WAITING, "a waiter of old comes back");
	is_int(acquire(3, "c", X).status, LE_LIMIT_LOCKS, "a new one does not");
	is_int(grant_lease_by(ROLE, NULL), LE_LIMIT_LEASES, "nor does a new lease");
	is_int(acquire_by(OTHER, 4, "c").status, LE_OK, "but for another role");
	end_session(2);
	for (int i = 0; i < 2; i++)
	{
		release(1, i == 0 ? "a" : "b", FIRST - 3 + i);
		release(1, i == 0 ? "a" : "b", FIRST - 5 + i);
	}
	is_int(acquire(3, "d", X).status, LE_OK, "released, there is room");
	batch();
	stop();
}

/* Very many roles: each is forgotten when it has nothing. */
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
	is_int(granted, 3000, "each role has its own");
	is_int(refused, 3000, "and no more");
	end_session(1);
	batch();
	pass(TTL);
	pass_all();
	is_int(acquire_by(77, 1, "x").status, LE_OK, "and all is forgotten");
	batch();
	stop();
}

/* As much as is allocated, and not much more. */
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
	   "a lock counts with all its texts");
	ok(is_about(le_usage_of_lease(200), sizeof(LeLease) + 200), "a lease with its owner");
	ok(is_about(le_usage_of_hold(), sizeof(LeUncommitted)), "a hold");
	ok(is_about(le_usage_of_closed(200), slot + 200), "a closed name");
	ok(le_usage_of_entry(1, 1, 1).bytes > sizeof(LeEntry) + slot + 3 &&
		   le_usage_of_closed(1).bytes > slot + 1 && le_usage_of_lease(1).bytes > sizeof(LeLease) + 1,
	   "and each its share of the indexes");
}

/* A longer value counts for what it is longer, a shorter one for nothing. */
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
		   "from ten letters to seventeen takes seven");
	batch();
	is_int(on_term(LE_CMD_PROCLAIM, 1, "e", leader.token, "eighteen letters..").status, LE_LIMIT_BYTES,
		   "one letter more than fits");
	is_int(on_term(LE_CMD_PROCLAIM, 1, "e", leader.token, "four").status, LE_OK, "a shorter value");
	batch();
	limits.bytes_per_role -= 3;
	le_core_set_limits(core, &limits);
	is_int(on_term(LE_CMD_PROCLAIM, 1, "e", leader.token, "fourteen lette").status, LE_OK,
		   "three letters less, where there is room for three less");
	batch();
	is_int(on_term(LE_CMD_PROCLAIM, 1, "e", leader.token, "fifteen letters").status, LE_LIMIT_BYTES,
		   "and no more");
	stop();
}

/* Each beside one that may still roll back is a record of its own, also of a queue place that is asked for again. */
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
	ok(n > 1 && n < 1000, "one more hold of a place is refused at some time");
	is_int(apply(cmd).status, LE_LIMIT_BYTES, "as there are too many");
	batch();
	undo(2, 1);

	cmd = request(3, "", X, 0);
	cmd.enqueue = true;
	cmd.lease = grant_lease(TTL);
	cmd.names = names;
	cmd.nnames = 2;
	for (n = 0; n < 1000 && apply(cmd).status == LE_QUEUED; n++)
		;
	ok(n > 1 && n < 1000, "so it is of a group's place");
	is_int(apply(cmd).status, LE_LIMIT_BYTES, "with all its names");
	batch();
	stop();
}

/* A holder has no more holds than its row can tell. */
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

	/* as after so many calls, each in its transaction */
	entry->hold_count = LE_MAX_HOLDS - 1;
	is_int(apply(cmd).status, LE_OK, "the last one that fits");
	is_int(apply(cmd).status, LE_LIMIT_HOLDS, "one too many");
	cmd.session = cmd.sessno = 2;
	cmd.owner = text("another");
	cmd.wait = LE_WAIT_FOREVER;
	is_int(apply(cmd).status, LE_WAITING, "others wait");
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
