/* Several locks acquired together: one token, all or none. */
/* Promises: M, Q */
#include "fixture.h"

#define MAX 40

static LeText names[8][MAX];
static char storage[MAX][8];

/* Names of one letter each: "abc" are a, b and c. */
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
	ok(a.wrote && a.counted && a.valid_for == TTL, "as one");
	ok(held("a", a.token) && held("b", a.token) && held("c", a.token), "each is held by the one token");
	ok(!held("d", a.token), "and nothing else");
	b = try_all(2, "cd", X);
	is_int(b.status, LE_NOT_GRANTED, "who cannot have all gets none");
	is_int(acquire(3, "d", X).status, LE_OK, "and keeps nothing");
	batch();
	is_int(acquire(2, "b", X).status, LE_WAITING, "each keeps others out");
	release(1, "b", a.token);
	batch();
	ok(got(2, LE_OK) && told[2].token > a.token, "each can be released alone");
	ok(held("a", a.token) && !held("b", a.token), "the others stay");
	is_int(on_all(LE_CMD_RELEASE, 1, "abc", a.token).status, LE_NOT_HELD, "one is not held any more");
	ok(!held("a", a.token) && !held("c", a.token), "the others are released all the same");
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
	is_int(g.status, LE_WAITING, "waits");
	is_int(try_all(4, "c", X).status, LE_NOT_GRANTED, "nobody overtakes: a free lock stays free");
	is_int(acquire(4, "c", X).status, LE_WAITING, "behind it");
	batch();
	release(1, "a", a.token);
	batch();
	ok(!was_told[3] && !held("a", g.token), "the first of two is not enough");
	is_int(acquire(5, "a", X).status, LE_WAITING, "nor is it given to others");
	release(2, "b", b.token);
	batch();
	ok(got(3, LE_OK) && told[3].token == g.token && told[3].valid_for == TTL, "granted with the last one");
	ok(held("a", g.token) && held("b", g.token) && held("c", g.token), "all of them");
	on_all(LE_CMD_RELEASE, 3, "abc", g.token);
	batch();
	ok(got(4, LE_OK) && got(5, LE_OK), "then those behind");
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
	ok(g.status == LE_WAITING && h.status == LE_WAITING && h.token == g.token + 1, "one revision each");
	batch();
	release(1, "b", a.token);
	batch();
	ok(got(2, LE_OK) && !was_told[3], "the earlier one first");
	on_all(LE_CMD_RELEASE, 2, "abc", g.token);
	batch();
	ok(got(3, LE_OK), "then the other: no deadlock");
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
		is_int(acquire_all(i, pair, S).status, LE_WAITING, "one behind the other");
	}
	batch();
	release(1, "a", a.token);
	batch();
	for (uint32_t i = 2; i < 20; i++)
		ok(got(i, LE_OK), "all in one batch");
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
	ok(got(2, LE_NOT_GRANTED), "its wait runs out");
	ok(got(3, LE_OK) && got(4, LE_OK), "and the locks that it kept are free");
	is_int(waiting("a"), 0, "it is nowhere any more");
	ok(le_core_find_lease(core, g.token) == NULL, "nor is its lease");

	g = acquire_all(2, "ade", X);
	acquire(5, "d", X);
	undo(2, 1);
	batch();
	ok(!was_told[2] || told[2].status != LE_OK, "cancelled");
	ok(got(5, LE_OK) && waiting("a") == 0, "all of it");
	g = acquire_all(2, "afg", X);
	acquire(6, "g", X);
	end_session(2);
	batch();
	ok(got(6, LE_OK) && waiting("a") == 0 && waiting("f") == 0, "or its connection ends");
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

/* A place in several queues ends as a whole: each name that is released with it is. */
static void
test_place_is_left(void)
{
	LeReply holder, place;

	start();
	holder = acquire(1, "b", X);
	batch();
	place = enqueue_all("abc", X, 0);
	batch();
	is_int(on_all(LE_CMD_CHECK, 2, "abc", place.token).status, LE_QUEUED, "a place in three queues");
	is_int(on_all(LE_CMD_RELEASE, 2, "abc", place.token).status, LE_OK, "is left as a whole");
	is_int(waiting("a") + waiting("b") + waiting("c"), 0, "nobody waits any more");
	is_int(on_all(LE_CMD_RELEASE, 2, "abc", place.token).status, LE_NOT_HELD, "once");
	batch();
	ok(held("b", holder.token), "the holder stays");
	stop();
}

/* One lease may hold a lock with several tokens: the request once more is told its own. */
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
	is_int(enqueue_all("ab", LE_MODE_SHARED, lease).token, b.token, "the first once more");
	is_int(enqueue_all("ac", LE_MODE_SHARED, lease).token, c.token, "and the second");
	is_int(enqueue_all("a", LE_MODE_SHARED, lease).token, b.token, "of two that would do it is the older");

	/* it is answered as it was, whatever it asks for now */
	permit = request(1, "p", LE_MODE_PERMIT, 0);
	permit.permits = 2;
	permit.lease = lease;
	held_permit = apply(permit);
	is_int(held_permit.status, LE_OK, "a permit on the same lease");
	is_int(enqueue_all("p", X, lease).token, held_permit.token, "is told to one who asks for the lock");
	again = enqueue_all("abc", LE_MODE_SHARED, lease);
	ok(again.status == LE_OK && again.token > c.token, "and no one where none has all names");
	is_int(enqueue_all("ac", LE_MODE_EXCLUSIVE, lease).status, LE_BAD_UPGRADE,
		   "neither can be made exclusive");
	is_int(enqueue_all("ab", LE_MODE_EXCLUSIVE, lease).status, LE_BAD_UPGRADE, "as little the other");
	batch();

	/* many others hold the lock, and many locks are on the lease: whichever list is shorter has it */
	for (uint32_t session = 2; session < 20; session++)
	{
		acquire(session, "a", LE_MODE_SHARED);
		batch();
	}
	is_int(enqueue_all("ab", LE_MODE_SHARED, lease).token, b.token, "beside many other holders");
	for (char letter = 'g'; letter <= 'o'; letter++)
	{
		enqueue_all((const char[]){letter, 0}, LE_MODE_SHARED, lease);
		batch();
	}
	is_int(enqueue_all("ac", LE_MODE_SHARED, lease).token, c.token, "and beside many other locks");
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
	is_int(on_token(LE_CMD_RENEW, 1, "b", g.token).valid_for, TTL, "a renewal by one name");
	pass(TTL - 1);
	ok(held("a", g.token) && held("c", g.token), "is one of all");
	cmd = command(LE_CMD_RENEW, 1, "c");
	cmd.token = g.token;
	cmd.ttl = 3 * TTL;
	is_int(apply(cmd).valid_for, 3 * TTL, "and so is another TTL");
	ok(le_next_dirty_lease(core, NULL) != NULL, "which is written");
	batch();
	pass(3 * TTL - 1);
	ok(held("a", g.token), "which all have");
	is_int(on_lease(LE_CMD_KEEP_ALIVE, g.token).status, LE_NO_LEASE, "it is nobody's lease");
	is_int(on_lease(LE_CMD_REVOKE_LEASE, g.token).status, LE_NO_LEASE, "by no means");
	cmd = request(2, "z", X, 0);
	cmd.lease = g.token;
	is_int(apply(cmd).status, LE_NO_LEASE, "nor can another lock hang on it");
	ok(le_core_lease_at(core, 0) == NULL, "and it is not shown");
	pass(1);
	ok(!held("a", g.token) && !held("b", g.token) && !held("c", g.token), "they end together");
	ok(le_core_find_lease(core, g.token) == NULL, "with their lease");

	g = acquire_all(1, "ab", X);
	batch();
	release(1, "a", g.token);
	ok(le_core_find_lease(core, g.token) != NULL, "it stays as long as one does");
	release(1, "b", g.token);
	ok(le_core_find_lease(core, g.token) == NULL, "and goes with the last");
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
	ok(again.status == LE_OK && again.token == g.token && again.reentrant, "the same owner has them");
	ok(again.wrote && again.counted, "once more");
	is_int(on_all(LE_CMD_RELEASE, 2, "ab", g.token).status, LE_OK, "so each release");
	ok(held("a", g.token) && held("b", g.token), "leaves one");
	a = acquire_as(3, "a", X, "w");
	ok(a.status == LE_OK && a.token == g.token, "also by a single name");
	cmd = request(3, "b", X, 0);
	cmd.owner = text("w");
	cmd.ttl = 3 * TTL;
	is_int(apply(cmd).valid_for, 3 * TTL, "the longest TTL counts, for all");
	batch();
	pass(2 * TTL);
	ok(held("a", g.token), "of them");
	again = all_as(2, "abc", X, "w");
	ok(again.status == LE_BAD_GROUP && again.which == 0, "some, with another token, is refused");
	again = all_as(2, "ca", X, "w");
	ok(again.status == LE_BAD_GROUP && again.which == 1, "and said which");
	acquire_as(3, "d", X, "w");
	again = all_as(2, "ad", X, "w");
	ok(again.status == LE_BAD_GROUP && again.which == 1, "and of two tokens");
	again = all_as(2, "ab", S, "w");
	ok(again.status == LE_OK, "shared, for who holds exclusively");
	all_as(4, "ef", S, "w");
	again = all_as(4, "ef", X, "w");
	is_int(again.status, LE_BAD_UPGRADE, "but not the other way");
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
	ok(again.status == LE_OK && again.token == g.token, "again in the same transaction");
	undo(1, 1);
	batch();
	ok(!held("a", g.token) && !held("b", g.token), "which undoes all");
	ok(le_core_find_lease(core, g.token) == NULL, "and their lease");
	stop();
}

/* The least limit of bytes with which one more hold of this name, uncommitted, is admitted. */
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

/* All of their holds, not each for itself. */
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
		   "one more hold of three, where there is room for two");
	limits.bytes_per_role++;
	le_core_set_limits(core, &limits);
	is_int(acquire_all(1, "abc", X).status, LE_OK, "... for three");
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
	ok(g.status == LE_OK && g.valid_for == LE_NEVER, "bound to a connection");
	batch();
	end_session(1);
	batch();
	ok(!held("a", g.token) && !held("b", g.token), "they end with it");
	lease = grant_lease(TTL);
	cmd = request_all(2, "ab", X, LE_WAIT_FOREVER);
	cmd.lease = lease;
	g = apply(cmd);
	is_int(g.status, LE_OK, "on a named lease");
	commit(2);
	ok(apply(cmd).token == g.token, "once more is the same");
	cmd.sessno = 3;
	cmd.session = 103;
	set_names(&cmd, "bc");
	is_int(apply(cmd).status, LE_BAD_GROUP, "a part is not");
	acquire(4, "c", X);
	cmd = request_all(5, "cd", X, LE_WAIT_FOREVER);
	cmd.lease = lease;
	is_int(apply(cmd).status, LE_WAITING, "a wait on a lease");
	acquire(6, "d", X);
	batch();
	on_lease(LE_CMD_REVOKE_LEASE, lease);
	batch();
	ok(got(5, LE_LOST) && got(6, LE_OK), "ends with it, as one");
	ok(!held("a", g.token) && !held("b", g.token), "with what was held");
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
	ok(g.status == LE_BAD_MODE && g.which == 1, "a name that is used for permits is told");
	cmd = request_all(2, "ap", X, 0);
	cmd.enqueue = true;
	cmd.lease = grant_lease(TTL);
	g = apply(cmd);
	ok(g.status == LE_BAD_MODE && g.which == 1,
	   "also to one who asks for a place on a lease, where the first is new");
	is_int(acquire(3, "a", X).status, LE_OK, "and nothing is kept");
	le_core_set_limits(core, &(LeLimits){.waiters_per_lock = 1});
	acquire(4, "a", X);
	g = acquire_all(5, "ba", X);
	ok(g.status == LE_LIMIT_WAITERS && g.which == 1, "too many waiters, and where");
	is_int(waiting("b"), 0, "none in the other");
	is_int(try_all(5, "ba", X).status, LE_NOT_GRANTED, "a try is not refused");
	ok(!le_core_find_lock(core, LE_KIND_LOCK, text("b")), "a name that was only asked for leaves nothing");
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
	ok(!was_told[2] && !was_told[3], "one fence keeps all of them");
	fenced_token = 0;
	apply((LeCommand){.type = LE_CMD_FENCE_ENDED});
	batch();
	ok(got(2, LE_OK) && got(3, LE_OK), "until it ends");
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

	/* granted and stored, only the answer was missing */
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
	ok(g.status == LE_OK && g.token == old && g.counted, "what was granted is answered");

	/* and one that waited */
	cmd = request_all(2, "bc", X, LE_WAIT_FOREVER);
	cmd.revision = old + 2;
	g = apply(cmd);
	ok(g.status == LE_WAITING && g.token == old + 2, "who waited goes on to wait");
	cmd = request(3, "c", X, LE_WAIT_FOREVER);
	cmd.revision = old + 3;
	apply(cmd);
	load_done();
	batch();
	ok(!was_told[3], "in the old order");
	ok(le_core_lease_at(core, 0) == NULL, "their lease is known as their own");
	undo(1, 1);
	batch();
	ok(got(2, LE_OK) && le_core_find_lease(core, old) == NULL, "an open transaction can still be undone");
	stop();
}

/* What was left of a group when the manager ended was fenced only, and its fence is gone. */
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
	is_int(apply(lease).status, LE_NO_LEASE, "its own lease does not become a named one");
	ok(le_core_find_lease(core, old) == NULL, "and ends with it");
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
			is_int(reply.status, LE_WAITING, "with memory enough it waits");
		}
	}
	batch();
	stop();
}

/* The manager takes the end of a wait for many names in turns. */
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
	is_int(le_core_end_is_heavy(core, 102, 2), true, "so has who waits for many");
	is_int(le_core_end_is_heavy(core, 103, 3), false, "not who waits for one");
	on_all(LE_CMD_RELEASE, 1, "abcdefghijklmnopqrst", holder.token);
	stop();
}

/* Who has not got the answer asks again, on its lease: the same names in the same order are the same place. */
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
	is_int(apply(cmd).token, place, "the same names again: the same place");
	batch();
	is_int(apply(cmd).token, place, "also in a later batch");
	for (int i = 0; i < 4; i++)
	{
		set_names(&cmd, others[i]);
		ok(apply(cmd).token != place, others[i]);
	}
	set_names(&cmd, "abc");
	is_int(apply(cmd).token, place, "beside those it is still there");
	is_int(waiting("d"), 2, "and nothing twice");
	batch();
	stop();
}

/* Entries that are committed count, and so do uncommitted holds of few entries. */
static void
test_heavy_end_of_few(void)
{
	char name[16];

	start();
	for (int i = 0; i < LE_FEW; i++)
	{
		release(1, "none", 0);
		is_int(le_core_end_is_heavy(core, 101, 1), false, "few locks, committed");
		snprintf(name, sizeof(name), "x%d", i);
		acquire(1, name, X);
		commit(1);
	}
	release(1, "none", 0);
	is_int(le_core_end_is_heavy(core, 101, 1), true, "many");
	is_int(le_core_end_is_heavy(core, 999, 1), false, "not of another session");
	batch();
	for (int i = 1; i < LE_FEW; i++)
	{
		LeCommand cmd = request(2, "y", X, 0);

		is_int(le_core_end_is_heavy(core, 102, 2), false, "few holds of a lock");
		cmd.subxact = (uint32_t) i;
		apply(cmd);
	}
	is_int(le_core_end_is_heavy(core, 102, 2), true, "with its entry many");
	batch();
	stop();
}

/* Who waits for a place keeps its lease alive, and nothing is written for that. */
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
	is_int(await(2, "a", place.token, LE_WAIT_FOREVER).status, LE_WAITING, "somebody waits for a place");
	batch();
	now += TTL;
	le_core_expire(core, now, 10);
	ok(find_token(place.token) != NULL, "which lasts longer than its TTL then");
	ok(le_next_dirty_lease(core, NULL) == NULL, "with nothing to write");
	batch();
	is_int(undo(2, 1).status, LE_OK, "the wait ends");
	batch();
	pass(TTL + 1);
	ok(find_token(place.token) == NULL, "and the place with its TTL");
	stop();
}

/* Locks that are awaited together: the answer names the one that is lost. */
static void
test_awaited_together(void)
{
	LeCommand cmd = command(LE_CMD_AWAIT, 1, NULL);
	LeReply reply;

	start();
	cmd.token = acquire_all(1, "ab", X).token;
	set_names(&cmd, "ab");
	is_int(apply(cmd).status, LE_OK, "what is held is there");
	set_names(&cmd, "abz");
	reply = apply(cmd);
	ok(reply.status == LE_LOST && reply.which == 2, "the name that is not held");
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
