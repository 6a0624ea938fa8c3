/* Additional holds of a lock that is already held. */
/* Promises: - */
#include "fixture.h"

static LeReply
acquire_ttl(uint32_t session, const char *owner, LeTime ttl)
{
	LeCommand cmd = request(session, "x", X, LE_WAIT_FOREVER);

	cmd.owner = text(owner);
	cmd.ttl = ttl;
	return apply(cmd);
}

static LeReply
acquire_on(uint32_t session, LeMode mode, int64_t lease)
{
	LeCommand cmd = request(session, "x", mode, LE_WAIT_FOREVER);

	cmd.lease = lease;
	return apply(cmd);
}

static void
test_named_owner(void)
{
	LeReply a, b;

	start();
	a = acquire_ttl(1, "worker", TTL);
	b = acquire_ttl(2, "worker", 3 * LE_SECOND);
	ok(b.status == LE_OK && b.reentrant, "a named owner is granted again");
	is_int(le_core_stats(core)->grants, 2, "which counts as a grant");
	ok(b.shared_owner, "which is said where it is another connection");
	is_int(b.token, a.token, "with the same token");
	is_int(b.valid_for, TTL, "never a shorter TTL");
	is_int(acquire_ttl(2, "worker", 2 * TTL).valid_for, 2 * TTL, "but a longer one");
	ok(!acquire_ttl(1, "worker", TTL).shared_owner, "and not where it is the same");
	release(1, "x", a.token);
	is_int(acquire_ttl(3, "other", TTL).status, LE_WAITING, "another owner waits");
	is_int(release(1, "x", a.token).status, LE_OK, "each hold is released for itself");
	release(2, "x", a.token);
	ok(held("x", a.token), "until the last one");
	release(2, "x", a.token);
	ok(!held("x", a.token), "is gone");
	batch();
	ok(got(3, LE_OK), "then the next owner is granted");
	acquire_ttl(1, "worker", TTL);
	acquire_ttl(2, "worker", TTL);
	release(3, "x", told[3].token);
	batch();
	ok(got(1, LE_OK) && !told[1].shared_owner, "the first of two that wait as one owner holds it alone");
	ok(got(2, LE_OK) && told[2].shared_owner, "the second joins it");
	stop();

	start();
	a = acquire_ttl(1, "worker", TTL);
	acquire_ttl(1, "worker", TTL);
	{
		LeCommand cmd = command(LE_CMD_RELEASE, 1, "x");

		cmd.token = a.token;
		cmd.all_holds = true;
		apply(cmd);
	}
	ok(!held("x", a.token), "or all holds at once");
	stop();
}

/* What a session is about to release, and acquires again before it has. */
static void
test_named_by_command(void)
{
	LeCommand cmd;
	LeReply a, b;

	start();
	a = acquire(1, "x", S);
	commit(1);
	cmd = request(1, "x", S, LE_WAIT_FOREVER);
	cmd.reenter = a.token;
	b = apply(cmd);
	ok(b.status == LE_OK && b.reentrant && b.counted,
	   "a session's own holder is held once more when the request names it");
	is_int(b.token, a.token, "with the same token");
	cmd.mode = X;
	is_int(apply(cmd).status, LE_BAD_UPGRADE, "by the rules of every other holder");
	cmd.mode = S;
	cmd.ttl = 2 * TTL;
	is_int(apply(cmd).valid_for, 2 * TTL, "with a longer TTL");
	cmd.ttl = LE_TTL_BOUND;
	is_int(apply(cmd).status, LE_BAD_TTL, "not of another kind");
	cmd = request(2, "x", X, LE_WAIT_FOREVER);
	cmd.reenter = a.token;
	is_int(apply(cmd).status, LE_LOST, "not another session's, which is not waited for either");
	cmd.wait = 0;
	is_int(apply(cmd).status, LE_NOT_GRANTED, "nor is it an error not to wait");
	undo(1, 1);
	ok(held("x", a.token), "undone");
	release(1, "x", a.token);
	ok(!held("x", a.token), "the first one is left");
	stop();
}

static void
test_newest_of_session(void)
{
	LeCommand cmd;
	LeReply a, b;

	start();
	a = acquire(1, "x", S);
	commit(1);
	b = acquire(1, "x", S);
	acquire(2, "x", S);
	cmd = command(LE_CMD_CHECK, 1, "x");
	is_int(apply(cmd).token, b.token, "without a token the newest of the session is meant");
	cmd.before = b.token;
	is_int(apply(cmd).token, a.token, "and the one before that");
	cmd.before = a.token;
	is_int(apply(cmd).status, LE_NOT_HELD, "and no other");
	stop();
}

static void
test_roles_and_modes(void)
{
	LeCommand cmd;

	start();
	acquire_as(1, "x", X, "worker");
	cmd = request(2, "x", X, 0);
	cmd.owner = text("worker");
	cmd.role = ROLE + 1;
	is_int(apply(cmd).status, LE_NOT_GRANTED, "an owner of the same name but another role is another one");
	ok(acquire_as(2, "x", S, "worker").reentrant,
	   "an exclusive holder that asks for shared gets one more hold");
	acquire_as(1, "y", S, "worker");
	is_int(acquire_as(2, "y", X, "worker").status, LE_BAD_UPGRADE,
		   "a shared holder that asks for exclusive is refused at once");
	cmd = request(2, "x", X, LE_WAIT_FOREVER);
	cmd.owner = text("worker");
	cmd.ttl = LE_TTL_BOUND;
	is_int(apply(cmd).status, LE_BAD_TTL, "bound and unbound do not mix");
	stop();
}

static void
test_connection(void)
{
	LeReply a;

	start();
	a = acquire(1, "x", X);
	ok(acquire(1, "x", X).reentrant, "inside its transaction a connection is granted again");
	release(1, "x", a.token);
	commit(1);
	is_int(acquire(1, "x", X).status, LE_WAITING, "after it, it must not look like the first holder");
	stop();
}

/* What is bound to another connection would end with that one. */
static void
test_bound_elsewhere(void)
{
	LeReply a, b;

	start();
	a = acquire_ttl(1, "worker", LE_TTL_BOUND);
	ok(acquire_ttl(1, "worker", LE_TTL_BOUND).reentrant, "bound: granted again to the same connection");
	b = acquire_ttl(2, "worker", LE_TTL_BOUND);
	is_int(b.status, LE_WAITING, "but not to another one of that owner");
	end_session(1);
	batch();
	ok(got(2, LE_OK), "which is granted when the first is gone");
	ok(told[2].token > a.token && held("x", b.token), "with a token of its own");
	stop();
}

/* The lock has many holders, or the lease many locks: the one of both is found wherever it is in either list. */
static void
test_among_many(void)
{
	char name[2] = "a";
	LeCommand cmd;
	LeReply late, last;
	int64_t lease;

	start();
	for (uint32_t i = 2; i < 12; i++)
		acquire(i, "x", S);
	lease = grant_lease(TTL);
	late = acquire_on(1, S, lease);
	for (uint32_t i = 12; i < 22; i++)
		acquire(i, "x", S);
	batch();
	ok(acquire_on(SESSIONS - 1, S, lease).token == late.token, "among many holders");
	for (; name[0] < 'm'; name[0]++)
	{
		cmd = request(1, name, S, 0);
		cmd.lease = lease;
		last = apply(cmd);
	}
	batch();
	name[0]--;
	cmd.session = SESSIONS - 1;
	ok(apply(cmd).token == last.token, "among many locks");
	ok(acquire_on(SESSIONS - 1, S, lease).token == late.token, "and among both");
	stop();
}

static void
test_lease(void)
{
	LeReply a, b;
	int64_t lease;

	start();
	lease = grant_lease(TTL);
	a = acquire_on(1, X, lease);
	commit(1);
	batch();
	b = acquire_on(2, X, lease);
	ok(b.reentrant && b.token == a.token, "the same lease is granted again with the same token");
	acquire_on(1, X, lease);
	release(1, "x", a.token);
	ok(!held("x", a.token), "and without a count");
	batch();

	/* once the first transaction is over, the lease's hold counts once, whatever becomes of a second one */
	a = acquire_on(1, X, lease);
	commit(1);
	release(1, "y", acquire(1, "y", X).token);
	batch();
	ok(!acquire_on(2, X, lease).counted, "one hold of a lease");
	undo(2, 1);
	ok(held("x", a.token), "is not taken back by another's rollback");
	release(1, "x", a.token);
	batch();

	/* two transactions on one lease: one rolls back, the other does not */
	a = acquire_on(1, X, lease);
	b = acquire_on(2, X, lease);
	commit(2);
	acquire(2, "y", X);
	undo(1, 1);
	ok(held("x", a.token), "a rollback does not undo what another transaction was granted");
	release(2, "x", a.token);
	ok(!held("x", a.token), "one release ends it");
	stop();
}

/* A process that has one lease for its threads, which keep each other out. */
static void
test_owners_of_a_lease(void)
{
	LeCommand cmd;
	LeReply a, b;

	start();
	cmd = request(1, "x", X, LE_WAIT_FOREVER);
	cmd.lease = grant_lease(TTL);
	cmd.owner = text("one");
	a = apply(cmd);
	commit(1);
	cmd.session++;
	cmd.sessno++;
	b = apply(cmd);
	ok(b.reentrant && b.token == a.token, "the same owner has it");
	cmd.owner = text("two");
	b = apply(cmd);
	is_int(b.status, LE_WAITING, "another owner on the same lease waits");
	batch();
	release(1, "x", a.token);
	batch();
	ok(got(2, LE_OK) && told[2].token == b.token, "and is granted after it");
	stop();
}

static LeReply
acquire_shared(uint32_t session, const char *owner, int64_t lease, bool enqueued)
{
	LeCommand cmd = request(session, "x", S, 0);

	cmd.owner = text(owner);
	cmd.lease = lease;
	cmd.enqueue = enqueued;
	return apply(cmd);
}

/* The owner says who asks, and the lease how long. */
static void
test_owner_and_lease(void)
{
	int64_t lease, other;
	LeReply a, b, c;

	start();
	lease = grant_lease(TTL);
	other = grant_lease(TTL);
	a = acquire_shared(1, NULL, lease, false);
	b = acquire_shared(2, "w", lease, false);
	ok(b.status == LE_OK && !b.reentrant, "an owner is not the lease that it names");
	is_int(acquire_shared(3, NULL, lease, false).token, a.token, "the lease alone finds its own");
	is_int(acquire_shared(3, "w", lease, false).token, b.token, "and the owner its own");
	is_int(acquire_shared(3, "w", other, false).status, LE_BAD_TTL,
		   "which it does not have on another lease");
	c = acquire_shared(3, "w", other, true);
	ok(c.status == LE_OK && !c.reentrant, "where it takes a place");
	for (int i = 0; i < 2; i++)
	{
		is_int(acquire_shared(4, "w", lease, i).token, b.token, "of two, the one on the lease that it names");
		is_int(acquire_shared(4, "w", other, i).token, c.token, "on either of them");
	}
	apply(command(LE_CMD_FORCE, 1, "x"));
	batch();
	a = acquire_shared(5, "w", 0, false);
	ok(a.status == LE_OK && !a.reentrant, "now on no named lease");
	b = acquire_shared(5, "w", lease, true);
	ok(!b.reentrant && b.token != a.token, "a place on a lease is another one");
	is_int(acquire_shared(6, "w", lease, true).token, b.token, "and found again");
	stop();
}

/* The first of the queue belongs to the one that was granted just before. */
static void
test_queue_joins(void)
{
	LeReply a, b, c;
	LeCommand cmd;
	int64_t lease;

	start();
	a = acquire(1, "x", X);
	b = acquire_as(2, "x", X, "worker");
	cmd = request(3, "x", X, LE_WAIT_FOREVER);
	cmd.owner = text("worker");
	cmd.ttl = 2 * TTL;
	cmd.value = text("later");
	apply(cmd);
	c = acquire(4, "x", X);
	release(1, "x", a.token);
	batch();
	ok(got(2, LE_OK) && got(3, LE_OK), "two waiters of one owner are granted together");
	is_int(told[3].token, b.token, "with one token");
	is_int(find_token(b.token)->hold_count, 2, "and two holds");
	is_int(le_entry_time_left(find_token(b.token), now), 2 * TTL, "for the longer TTL");
	ok(find_token(b.token)->value_len == 5, "a later value counts, as a proclaim");
	ok(!was_told[4], "nobody else");
	release(2, "x", b.token);
	release(3, "x", b.token);
	batch();
	ok(got(4, LE_OK) && told[4].token == c.token, "then the next one");
	stop();

	start();
	lease = grant_lease(TTL);
	a = acquire(1, "x", X);
	b = acquire_on(2, X, lease);
	acquire_on(3, X, lease);
	release(1, "x", a.token);
	batch();
	ok(got(2, LE_OK) && got(3, LE_OK) && told[3].token == b.token, "two waiters on one lease are one");
	release(2, "x", b.token);
	ok(!held("x", b.token), "and need one release");
	stop();
}

/* So many that a walk by recursion would show. */
static void
test_many_join(void)
{
	LeReply a;

	start();
	a = acquire(1, "x", X);
	for (uint32_t i = 2; i < SESSIONS; i++)
		acquire_as(i, "x", X, "worker");
	release(1, "x", a.token);
	batch();
	is_int(find_token(told[2].token)->hold_count, SESSIONS - 2, "all waiters of one owner join");
	stop();
}

int
main(void)
{
	test_named_owner();
	test_named_by_command();
	test_newest_of_session();
	test_roles_and_modes();
	test_connection();
	test_bound_elsewhere();
	test_among_many();
	test_lease();
	test_owners_of_a_lease();
	test_owner_and_lease();
	test_queue_joins();
	test_many_join();
	return done_testing();
}
