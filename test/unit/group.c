/* Several locks acquired together: one token, all or none. */
/* Promises: M, Q */
#include "fixture.h"

#define MAX 40

static LeText names[8][MAX];
static char storage[MAX][8];

/* Each letter is a name: "abc" are the names a, b and c. */
static void
set_names(LeCommand *cmd, const char *letters)
{
	static int next;
	LeText *list = names[next++ % 8];

	cmd->nnames = (uint32_t) strlen(letters);
	cmd->names = list;
	for (uint32_t i = 0; i < cmd->nnames; i++)
		list[i] = (LeText){letters + i, 1};
}

static LeCommand
request_all(uint32_t session, const char *letters, LeMode mode, LeTime wait)
{
	LeCommand cmd = request(session, NULL, mode, wait);

	set_names(&cmd, letters);
	return cmd;
}

static LeReply
acquire_all(uint32_t session, const char *letters, LeMode mode)
{
	return apply(request_all(session, letters, mode, LE_WAIT_FOREVER));
}

static LeReply
try_all(uint32_t session, const char *letters, LeMode mode)
{
	return apply(request_all(session, letters, mode, 0));
}

static LeReply
all_as(uint32_t session, const char *letters, LeMode mode, const char *owner)
{
	LeCommand cmd = request_all(session, letters, mode, LE_WAIT_FOREVER);

	cmd.owner = text(owner);
	return apply(cmd);
}

static LeReply
on_all(LeCommandType type, uint32_t session, const char *letters, int64_t token)
{
	LeCommand cmd = command(type, session, NULL);

	set_names(&cmd, letters);
	cmd.token = token;
	return apply_to_all(cmd);
}

static uint32_t
waiting(const char *name)
{
	LeLock *lock = le_core_find_lock(core, LE_KIND_LOCK, text(name));

	return lock != NULL ? lock->waiting : 0;
}

static void
test_granted_at_once(void)
{
	LeReply a, b;

	start();
	a = acquire_all(1, "abc", X);
	is_int(a.status, LE_OK, "free locks are granted at once");
	ok(a.wrote && a.counted && a.valid_for == TTL, "a group is one grant");
	ok(held("a", a.token) && held("b", a.token) && held("c", a.token),
	   "each lock of a group is held with its token");
	ok(!held("d", a.token), "no other lock is held with the token of the group");
	b = try_all(2, "cd", X);
	is_int(b.status, LE_NOT_GRANTED, "a group with a held lock is not granted");
	is_int(acquire(3, "d", X).status, LE_OK, "a group that is not granted keeps no lock");
	batch();
	is_int(acquire(2, "b", X).status, LE_WAITING, "each lock of a group excludes others");
	release(1, "b", a.token);
	batch();
	ok(got(2, LE_OK) && told[2].token > a.token, "each lock of a group can be released separately");
	ok(held("a", a.token) && !held("b", a.token), "the other locks of the group are still held");
	is_int(on_all(LE_CMD_RELEASE, 1, "abc", a.token).status, LE_NOT_HELD,
		   "a release of the whole group returns that one lock is not held");
	ok(!held("a", a.token) && !held("c", a.token), "the release of the whole group releases the other locks");
	stop();
}

static void
test_waits_for_all(void)
{
	LeReply a, b, g;

	start();
	a = acquire(1, "a", X);
	b = acquire(2, "b", X);
	g = acquire_all(3, "abc", X);
	is_int(g.status, LE_WAITING, "the group waits");
	is_int(try_all(4, "c", X).status, LE_NOT_GRANTED,
		   "a try does not overtake a waiting group on its free lock");
	is_int(acquire(4, "c", X).status, LE_WAITING, "a request waits behind the group");
	batch();
	release(1, "a", a.token);
	batch();
	ok(!was_told[3] && !held("a", g.token), "a group is not granted when the first of two locks is free");
	is_int(acquire(5, "a", X).status, LE_WAITING,
		   "the free lock of a waiting group is not granted to others");
	release(2, "b", b.token);
	batch();
	ok(got(3, LE_OK) && told[3].token == g.token && told[3].valid_for == TTL,
	   "the group is granted when its last lock is free");
	ok(held("a", g.token) && held("b", g.token) && held("c", g.token), "all locks of the group are held");
	on_all(LE_CMD_RELEASE, 3, "abc", g.token);
	batch();
	ok(got(4, LE_OK) && got(5, LE_OK), "the waiters behind the group are granted");
	stop();
}

static void
test_any_order(void)
{
	LeReply a, g, h;

	start();
	a = acquire(1, "b", X);
	g = acquire_all(2, "abc", X);
	h = acquire_all(3, "cba", X);
	ok(g.status == LE_WAITING && h.status == LE_WAITING && h.token == g.token + 1,
	   "each group uses one revision");
	batch();
	release(1, "b", a.token);
	batch();
	ok(got(2, LE_OK) && !was_told[3], "the earlier group is granted first");
	on_all(LE_CMD_RELEASE, 2, "abc", g.token);
	batch();
	ok(got(3, LE_OK), "the later group is granted: no deadlock");
	stop();
}

/* Each group waits for one lock of the group before it. */
static void
test_chain(void)
{
	LeReply a;

	start();
	a = acquire(1, "a", X);
	for (uint32_t i = 2; i < 20; i++)
	{
		char *pair = storage[i];

		pair[0] = (char) ('a' + i - 2);
		pair[1] = (char) ('a' + i - 1);
		pair[2] = '\0';
		is_int(acquire_all(i, pair, S).status, LE_WAITING, "each group waits behind the previous one");
	}
	batch();
	release(1, "a", a.token);
	batch();
	for (uint32_t i = 2; i < 20; i++)
		ok(got(i, LE_OK), "all groups of the chain are granted in one batch");
	stop();
}

static void
test_ends_as_one(void)
{
	LeCommand cmd;
	LeReply a, g;

	start();
	a = acquire(1, "a", X);
	cmd = request_all(2, "abc", X, LE_SECOND);
	g = apply(cmd);
	acquire(3, "b", X);
	acquire(4, "c", X);
	batch();
	pass(LE_SECOND);
	ok(got(2, LE_NOT_GRANTED), "the wait of the group times out");
	ok(got(3, LE_OK) && got(4, LE_OK), "the locks that the group has blocked are granted");
	is_int(waiting("a"), 0, "no entry of the timed out group is left");
	ok(le_core_find_lease(core, g.token) == NULL, "the lease of the timed out group is removed");

	g = acquire_all(2, "ade", X);
	acquire(5, "d", X);
	undo(2, 1);
	batch();
	ok(!was_told[2] || told[2].status != LE_OK, "a cancelled group is not granted");
	ok(got(5, LE_OK) && waiting("a") == 0, "no entry of the cancelled group is left");
	g = acquire_all(2, "afg", X);
	acquire(6, "g", X);
	end_session(2);
	batch();
	ok(got(6, LE_OK) && waiting("a") == 0 && waiting("f") == 0,
	   "no entry of a group is left when its connection ends");
	release(1, "a", a.token);
	stop();
}

static LeReply
enqueue_all(const char *letters, LeMode mode, int64_t lease)
{
	LeCommand cmd = request_all(1, letters, mode, 0);

	cmd.enqueue = true;
	cmd.lease = lease;
	return apply(cmd);
}

/* A place in several queues ends as a whole: a release with its token ends it in all queues. */
static void
test_place_is_left(void)
{
	LeReply holder, place;

	start();
	holder = acquire(1, "b", X);
	batch();
	place = enqueue_all("abc", X, 0);
	batch();
	is_int(on_all(LE_CMD_CHECK, 2, "abc", place.token).status, LE_QUEUED,
		   "a place in three queues is queued");
	is_int(on_all(LE_CMD_RELEASE, 2, "abc", place.token).status, LE_OK,
		   "a place in three queues is released");
	is_int(waiting("a") + waiting("b") + waiting("c"), 0, "the released place has left all queues");
	is_int(on_all(LE_CMD_RELEASE, 2, "abc", place.token).status, LE_NOT_HELD,
		   "a released place cannot be released again");
	batch();
	ok(held("b", holder.token), "the holder is not affected by the release of the place");
	stop();
}

/* One lease can hold a lock with several tokens: a repeated request returns its own token. */
static void
test_enqueued_again(void)
{
	int64_t lease;
	LeCommand permit;
	LeReply held_permit;
	LeReply b, c, again;

	start();
	lease = grant_lease(TTL);
	b = enqueue_all("ab", LE_MODE_SHARED, lease);
	c = enqueue_all("ac", LE_MODE_SHARED, lease);
	ok(b.status == LE_OK && c.status == LE_OK && c.token > b.token, "two groups with one lock in common");
	batch();
	is_int(enqueue_all("ab", LE_MODE_SHARED, lease).token, b.token,
		   "the repeated first group returns its token");
	is_int(enqueue_all("ac", LE_MODE_SHARED, lease).token, c.token,
		   "the repeated second group returns its token");
	is_int(enqueue_all("a", LE_MODE_SHARED, lease).token, b.token,
		   "a request that matches two tokens returns the older one");

	/* the reply is that of the existing hold, whatever the repeated request contains */
	permit = request(1, "p", LE_MODE_PERMIT, 0);
	permit.permits = 2;
	permit.lease = lease;
	held_permit = apply(permit);
	is_int(held_permit.status, LE_OK, "a permit on the same lease");
	is_int(enqueue_all("p", X, lease).token, held_permit.token,
		   "a request for the lock returns the permit on the same lease");
	again = enqueue_all("abc", LE_MODE_SHARED, lease);
	ok(again.status == LE_OK && again.token > c.token,
	   "a group of which no token has all names gets a new token");
	is_int(enqueue_all("ac", LE_MODE_EXCLUSIVE, lease).status, LE_BAD_UPGRADE,
		   "a repeated shared group cannot become exclusive");
	is_int(enqueue_all("ab", LE_MODE_EXCLUSIVE, lease).status, LE_BAD_UPGRADE,
		   "the other shared group cannot become exclusive");
	batch();

	/*
	 * With many other holders of the lock, or many locks on the lease: the shorter of both lists is searched.
	 */
	for (uint32_t session = 2; session < 20; session++)
	{
		acquire(session, "a", LE_MODE_SHARED);
		batch();
	}
	is_int(enqueue_all("ab", LE_MODE_SHARED, lease).token, b.token,
		   "the token is found among many other holders");
	for (char letter = 'g'; letter <= 'o'; letter++)
	{
		enqueue_all((const char[]){letter, 0}, LE_MODE_SHARED, lease);
		batch();
	}
	is_int(enqueue_all("ac", LE_MODE_SHARED, lease).token, c.token,
		   "the token is found among many other locks of the lease");
	stop();
}

static void
test_own_lease(void)
{
	LeCommand cmd;
	LeReply g;

	start();
	g = acquire_all(1, "abc", X);
	batch();
	pass(TTL / 2);
	is_int(on_token(LE_CMD_RENEW, 1, "b", g.token).valid_for, TTL, "a renewal by one name of the group");
	pass(TTL - 1);
	ok(held("a", g.token) && held("c", g.token), "a renewal by one name renews all names");
	cmd = command(LE_CMD_RENEW, 1, "c");
	cmd.token = g.token;
	cmd.ttl = 3 * TTL;
	is_int(apply(cmd).valid_for, 3 * TTL, "a renewal by one name sets another TTL");
	ok(le_next_dirty_lease(core, NULL) != NULL, "another TTL of a group is written");
	batch();
	pass(3 * TTL - 1);
	ok(held("a", g.token), "another TTL applies to all names");
	is_int(on_lease(LE_CMD_KEEP_ALIVE, g.token).status, LE_NO_LEASE,
		   "the lease of a group cannot be kept alive as a named lease");
	is_int(on_lease(LE_CMD_REVOKE_LEASE, g.token).status, LE_NO_LEASE,
		   "the lease of a group cannot be revoked as a named lease");
	cmd = request(2, "z", X, 0);
	cmd.lease = g.token;
	is_int(apply(cmd).status, LE_NO_LEASE, "another lock cannot use the lease of a group");
	ok(le_core_lease_at(core, 0) == NULL, "the lease of a group is not shown");
	pass(1);
	ok(!held("a", g.token) && !held("b", g.token) && !held("c", g.token),
	   "all names of a group end together");
	ok(le_core_find_lease(core, g.token) == NULL, "the lease of a group ends with it");

	g = acquire_all(1, "ab", X);
	batch();
	release(1, "a", g.token);
	ok(le_core_find_lease(core, g.token) != NULL, "the lease of a group stays while one name is held");
	release(1, "b", g.token);
	ok(le_core_find_lease(core, g.token) == NULL, "the lease of a group ends with the last name");
	batch();
	stop();
}

static void
test_named_owner(void)
{
	LeCommand cmd;
	LeReply g, again, a;

	start();
	g = all_as(1, "ab", X, "w");
	commit(1);
	again = all_as(2, "ba", X, "w");
	ok(again.status == LE_OK && again.token == g.token && again.reentrant,
	   "the same owner re-enters its group");
	ok(again.wrote && again.counted, "re-entering a group is a counted hold");
	is_int(on_all(LE_CMD_RELEASE, 2, "ab", g.token).status, LE_OK, "a re-entered group is released once");
	ok(held("a", g.token) && held("b", g.token), "the group is held after one of two releases");
	a = acquire_as(3, "a", X, "w");
	ok(a.status == LE_OK && a.token == g.token, "the owner re-enters a single name of its group");
	cmd = request(3, "b", X, 0);
	cmd.owner = text("w");
	cmd.ttl = 3 * TTL;
	is_int(apply(cmd).valid_for, 3 * TTL, "re-entering a single name with a longer TTL");
	batch();
	pass(2 * TTL);
	ok(held("a", g.token), "the longer TTL applies to all names of the group");
	again = all_as(2, "abc", X, "w");
	ok(again.status == LE_BAD_GROUP && again.which == 0,
	   "a group of which only some names are held is rejected");
	again = all_as(2, "ca", X, "w");
	ok(again.status == LE_BAD_GROUP && again.which == 1, "the rejected name is returned");
	acquire_as(3, "d", X, "w");
	again = all_as(2, "ad", X, "w");
	ok(again.status == LE_BAD_GROUP && again.which == 1, "a group of names with two tokens is rejected");
	again = all_as(2, "ab", S, "w");
	ok(again.status == LE_OK, "a shared group is granted to its exclusive holder");
	all_as(4, "ef", S, "w");
	again = all_as(4, "ef", X, "w");
	is_int(again.status, LE_BAD_UPGRADE, "an exclusive group is not granted to its shared holder");
	undo(3, 1);
	batch();
	stop();
}

static void
test_transaction(void)
{
	LeReply g, again;

	start();
	g = acquire_all(1, "ab", X);
	again = acquire_all(1, "ab", X);
	ok(again.status == LE_OK && again.token == g.token, "a transaction re-enters its group");
	undo(1, 1);
	batch();
	ok(!held("a", g.token) && !held("b", g.token), "a rollback undoes all holds of the group");
	ok(le_core_find_lease(core, g.token) == NULL, "a rollback removes the lease of the group");
	stop();
}

/* Returns the least limit of bytes that admits one more uncommitted hold of this name. */
static int64_t
bytes_for_hold(const char *name)
{
	LeLimits limits = {0};

	do
	{
		limits.bytes_per_role++;
		le_core_set_limits(core, &limits);
	} while (apply(request(1, name, X, 0)).status == LE_LIMIT_BYTES);
	return limits.bytes_per_role;
}

/* The limit applies to all holds of a group together, not to each of them. */
static void
test_limit_of_holds(void)
{
	LeLimits limits;
	int64_t before, hold;

	start();
	acquire_all(1, "abc", X);
	before = bytes_for_hold("a");
	hold = bytes_for_hold("a") - before;
	limits = (LeLimits){.bytes_per_role = before + 4 * hold - 1};
	le_core_set_limits(core, &limits);
	is_int(acquire_all(1, "abc", X).status, LE_LIMIT_BYTES,
		   "one more hold of three names exceeds a limit for two");
	limits.bytes_per_role++;
	le_core_set_limits(core, &limits);
	is_int(acquire_all(1, "abc", X).status, LE_OK,
		   "one more hold of three names fits into a limit for three");
	batch();
	stop();
}

static void
test_bound_and_leased(void)
{
	int64_t lease;
	LeCommand cmd;
	LeReply g;

	start();
	cmd = request_all(1, "ab", X, LE_WAIT_FOREVER);
	cmd.ttl = LE_TTL_BOUND;
	g = apply(cmd);
	ok(g.status == LE_OK && g.valid_for == LE_NEVER, "a group is bound to a connection");
	batch();
	end_session(1);
	batch();
	ok(!held("a", g.token) && !held("b", g.token), "a bound group ends with its connection");
	lease = grant_lease(TTL);
	cmd = request_all(2, "ab", X, LE_WAIT_FOREVER);
	cmd.lease = lease;
	g = apply(cmd);
	is_int(g.status, LE_OK, "a group on a named lease is granted");
	commit(2);
	ok(apply(cmd).token == g.token, "a repeated group on a named lease returns its token");
	cmd.sessno = 3;
	cmd.session = 103;
	set_names(&cmd, "bc");
	is_int(apply(cmd).status, LE_BAD_GROUP, "a group of which the lease holds only a part is rejected");
	acquire(4, "c", X);
	cmd = request_all(5, "cd", X, LE_WAIT_FOREVER);
	cmd.lease = lease;
	is_int(apply(cmd).status, LE_WAITING, "a group waits on a named lease");
	acquire(6, "d", X);
	batch();
	on_lease(LE_CMD_REVOKE_LEASE, lease);
	batch();
	ok(got(5, LE_LOST) && got(6, LE_OK), "the waiting group ends with its lease");
	ok(!held("a", g.token) && !held("b", g.token), "the granted group ends with its lease");
	stop();
}

static void
test_bad_use(void)
{
	LeCommand cmd;
	LeReply g;

	start();
	cmd = request(1, "p", P, 0);
	cmd.permits = 2;
	apply(cmd);
	g = acquire_all(2, "ap", X);
	ok(g.status == LE_BAD_MODE && g.which == 1,
	   "a group with a name used for permits is rejected with its index");
	cmd = request_all(2, "ap", X, 0);
	cmd.enqueue = true;
	cmd.lease = grant_lease(TTL);
	g = apply(cmd);
	ok(g.status == LE_BAD_MODE && g.which == 1,
	   "a place of a group with a name used for permits is rejected with its index");
	is_int(acquire(3, "a", X).status, LE_OK, "a rejected group keeps no lock");
	le_core_set_limits(core, &(LeLimits){.waiters_per_lock = 1});
	acquire(4, "a", X);
	g = acquire_all(5, "ba", X);
	ok(g.status == LE_LIMIT_WAITERS && g.which == 1,
	   "a group with too many waiters is rejected with the index");
	is_int(waiting("b"), 0, "the rejected group does not wait for its other name");
	is_int(try_all(5, "ba", X).status, LE_NOT_GRANTED,
		   "a try is not rejected because of the limit of waiters");
	ok(!le_core_find_lock(core, LE_KIND_LOCK, text("b")), "a try of a free name leaves no lock");
	batch();
	stop();
}

static void
test_fenced(void)
{
	LeReply g;

	start();
	g = acquire_all(1, "ab", X);
	batch();
	fenced_token = g.token;
	acquire(2, "a", X);
	acquire(3, "b", X);
	pass(2 * TTL);
	ok(!was_told[2] && !was_told[3], "a fence of one name keeps the slots of the whole group");
	fenced_token = 0;
	apply((LeCommand){.type = LE_CMD_FENCE_ENDED});
	batch();
	ok(got(2, LE_OK) && got(3, LE_OK), "the waiters are granted at the end of the fence");
	stop();
}

static void
test_again_after_reload(void)
{
	LeCommand cmd;
	LeReply g;
	int64_t old = FIRST + 10;

	start_load();
	le_core_raise_revision(core, old + 10);

	/* granted and stored, but the reply was not sent */
	load_lease(stored_lease(old));
	for (int i = 0; i < 2; i++)
	{
		LeStoredEntry row = stored(i == 0 ? "a" : "b", old, X);

		row.lease = old;
		row.session = 101;
		row.locator = (uint64_t) (2 + i);
		load_slot(row);
	}
	cmd = request_all(1, "ab", X, LE_WAIT_FOREVER);
	cmd.revision = old;
	g = apply(cmd);
	ok(g.status == LE_OK && g.token == old && g.counted, "a group granted before the load gets its reply");

	/* a group that waited before the load */
	cmd = request_all(2, "bc", X, LE_WAIT_FOREVER);
	cmd.revision = old + 2;
	g = apply(cmd);
	ok(g.status == LE_WAITING && g.token == old + 2, "a group that waited before the load still waits");
	cmd = request(3, "c", X, LE_WAIT_FOREVER);
	cmd.revision = old + 3;
	apply(cmd);
	load_done();
	batch();
	ok(!was_told[3], "a later request waits behind the loaded group");
	ok(le_core_lease_at(core, 0) == NULL, "the lease of a loaded group is not shown as a named lease");
	undo(1, 1);
	batch();
	ok(got(2, LE_OK) && le_core_find_lease(core, old) == NULL,
	   "a group granted before the load can still be undone");
	stop();
}

/*
 * When the manager ended, the rest of a group existed only because of its fence, and the fence has ended
 * since.
 */
static void
test_lapsed_before_reload(void)
{
	LeCommand lease;
	LeStoredEntry row;
	int64_t old = FIRST - 10;

	start_load();
	load_lease(stored_lease(old));
	row = stored("a", old, X);
	row.lease = old;
	row.end = LE_END_EXPIRED;
	load_slot(row);
	load_done();
	batch();
	lease = command(LE_CMD_KEEP_ALIVE, 1, NULL);
	lease.lease = old;
	is_int(apply(lease).status, LE_NO_LEASE,
		   "the lease of a loaded lapsed group does not become a named lease");
	ok(le_core_find_lease(core, old) == NULL, "the lease of a loaded lapsed group is removed");
	stop();
}

static void
test_out_of_memory(void)
{
	bool reserved = false;

	start();
	acquire(1, "a", X);
	for (int64_t n = 0; !reserved; n++)
	{
		LeCommand cmd = all_as(2, "q", X, "first").status == LE_OK ? request_all(3, "abcdefgh", X, LE_SECOND)
																   : request_all(3, "abc", X, LE_SECOND);

		cmd.owner = text("w");
		allocations_left = n;
		reserved = le_core_reserve(core, &cmd);
		allocations_left = -1;
		if (reserved)
		{
			LeReply reply;

			le_core_apply(core, &cmd, now, &reply);
			is_int(reply.status, LE_WAITING, "the group waits with sufficient memory");
		}
	}
	batch();
	stop();
}

/* The manager defers ends of waits for many names. */
static void
test_heavy_end(void)
{
	LeReply holder;

	start();
	holder = acquire_all(1, "abcdefghijklmnopqrst", X);
	batch();
	acquire_all(2, "abcdefghijklmnopqrst", X);
	acquire(3, "a", X);
	batch();
	is_int(le_core_end_is_heavy(core, 101, 1), true, "the end of a session with many names is heavy");
	is_int(le_core_end_is_heavy(core, 102, 2), true, "the end of a wait for many names is heavy");
	is_int(le_core_end_is_heavy(core, 103, 3), false, "the end of a wait for one name is not heavy");
	on_all(LE_CMD_RELEASE, 1, "abcdefghijklmnopqrst", holder.token);
	stop();
}

/*
 * A client that has lost the reply repeats its request on its lease: the same names in the same order are the
 * same place.
 */
static void
test_same_place(void)
{
	static const char *const others[] = {"acb", "ab", "abcd", "abd"};
	LeCommand cmd;
	int64_t lease, place;

	start();
	acquire_all(1, "abcd", X);
	lease = grant_lease(TTL);
	cmd = request_all(2, "abc", X, 0);
	cmd.enqueue = true;
	cmd.lease = lease;
	place = apply(cmd).token;
	is_int(apply(cmd).token, place, "a repeated request returns the same place");
	batch();
	is_int(apply(cmd).token, place, "a repeated request in a later batch returns the same place");
	for (int i = 0; i < 4; i++)
	{
		set_names(&cmd, others[i]);
		ok(apply(cmd).token != place, others[i]);
	}
	set_names(&cmd, "abc");
	is_int(apply(cmd).token, place, "a repeated request returns the same place next to similar ones");
	is_int(waiting("d"), 2, "no repeated request is enqueued twice");
	batch();
	stop();
}

/* Committed entries count, and uncommitted holds of few entries, too. */
static void
test_heavy_end_of_few(void)
{
	char name[16];

	start();
	for (int i = 0; i < LE_FEW; i++)
	{
		release(1, "none", 0);
		is_int(le_core_end_is_heavy(core, 101, 1), false,
			   "the end of a session with few committed locks is not heavy");
		snprintf(name, sizeof(name), "x%d", i);
		acquire(1, name, X);
		commit(1);
	}
	release(1, "none", 0);
	is_int(le_core_end_is_heavy(core, 101, 1), true,
		   "the end of a session with many committed locks is heavy");
	is_int(le_core_end_is_heavy(core, 999, 1), false, "the end of another session is not heavy");
	batch();
	for (int i = 1; i < LE_FEW; i++)
	{
		LeCommand cmd = request(2, "y", X, 0);

		is_int(le_core_end_is_heavy(core, 102, 2), false,
			   "the end of a session with few holds of one lock is not heavy");
		cmd.subxact = (uint32_t) i;
		apply(cmd);
	}
	is_int(le_core_end_is_heavy(core, 102, 2), true,
		   "the end of a session with many holds of one lock is heavy");
	batch();
	stop();
}

/* A waiter for a place keeps its lease alive without a write. */
static void
test_awaited(void)
{
	LeCommand cmd = request(1, "b", X, 0);
	LeReply place;

	start();
	cmd.ttl = LE_TTL_BOUND;
	apply(cmd);
	cmd = request_all(2, "ab", X, 0);
	cmd.enqueue = true;
	place = apply(cmd);
	is_int(await(2, "a", place.token, LE_WAIT_FOREVER).status, LE_WAITING,
		   "a call waits for the place of a group");
	batch();
	now += TTL;
	le_core_expire(core, now, 10);
	ok(find_token(place.token) != NULL, "an awaited place lasts for longer than its TTL");
	ok(le_next_dirty_lease(core, NULL) == NULL, "an awaited place writes nothing");
	batch();
	is_int(undo(2, 1).status, LE_OK, "the wait for the place is undone");
	batch();
	pass(TTL + 1);
	ok(find_token(place.token) == NULL, "the place ends a TTL after the wait");
	stop();
}

/* await_locks() of several names: the reply names the lost one. */
static void
test_awaited_together(void)
{
	LeCommand cmd = command(LE_CMD_AWAIT, 1, NULL);
	LeReply reply;

	start();
	cmd.token = acquire_all(1, "ab", X).token;
	set_names(&cmd, "ab");
	is_int(apply(cmd).status, LE_OK, "awaiting two held names returns LE_OK");
	set_names(&cmd, "abz");
	reply = apply(cmd);
	ok(reply.status == LE_LOST && reply.which == 2, "awaiting a name that is not held returns its index");
	batch();
	stop();
}

int
main(void)
{
	test_granted_at_once();
	test_waits_for_all();
	test_any_order();
	test_chain();
	test_ends_as_one();
	test_place_is_left();
	test_enqueued_again();
	test_own_lease();
	test_named_owner();
	test_heavy_end();
	test_heavy_end_of_few();
	test_same_place();
	test_transaction();
	test_limit_of_holds();
	test_bound_and_leased();
	test_bad_use();
	test_fenced();
	test_again_after_reload();
	test_lapsed_before_reload();
	test_out_of_memory();
	test_awaited();
	test_awaited_together();
	return done_testing();
}
