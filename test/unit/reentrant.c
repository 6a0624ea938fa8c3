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
	is_int(le_core_stats(core)->grants, 2, "re-entering counts as a grant");
	ok(b.shared_owner, "re-entering from another connection is marked");
	is_int(b.token, a.token, "re-entering returns the same token");
	is_int(b.valid_for, TTL, "re-entering with a shorter TTL does not shorten the lease");
	is_int(acquire_ttl(2, "worker", 2 * TTL).valid_for, 2 * TTL,
		   "re-entering with a longer TTL extends the lease");
	ok(!acquire_ttl(1, "worker", TTL).shared_owner, "re-entering from the same connection is not marked");
	release(1, "x", a.token);
	is_int(acquire_ttl(3, "other", TTL).status, LE_WAITING, "another owner waits");
	is_int(release(1, "x", a.token).status, LE_OK, "each hold is released separately");
	release(2, "x", a.token);
	ok(held("x", a.token), "the lock is held until the last release");
	release(2, "x", a.token);
	ok(!held("x", a.token), "the last release ends the holder");
	batch();
	ok(got(3, LE_OK), "the next owner is granted after the last release");
	acquire_ttl(1, "worker", TTL);
	acquire_ttl(2, "worker", TTL);
	release(3, "x", told[3].token);
	batch();
	ok(got(1, LE_OK) && !told[1].shared_owner, "the first of two waiters of one owner is granted alone");
	ok(got(2, LE_OK) && told[2].shared_owner, "the second waiter of the owner joins the first");
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
	ok(!held("x", a.token), "one release can end all holds");
	stop();
}

/* A session acquires a lock again that it is about to release. */
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
	is_int(b.token, a.token, "the re-entered own holder keeps its token");
	cmd.mode = X;
	is_int(apply(cmd).status, LE_BAD_UPGRADE, "an upgrade of the own holder is rejected");
	cmd.mode = S;
	cmd.ttl = 2 * TTL;
	is_int(apply(cmd).valid_for, 2 * TTL, "a longer TTL of the own holder counts");
	cmd.ttl = LE_TTL_BOUND;
	is_int(apply(cmd).status, LE_BAD_TTL, "a bound request for the own holder is rejected");
	cmd = request(2, "x", X, LE_WAIT_FOREVER);
	cmd.reenter = a.token;
	is_int(apply(cmd).status, LE_LOST, "another session's holder is not re-entered, nor waited for");
	cmd.wait = 0;
	is_int(apply(cmd).status, LE_NOT_GRANTED, "a try that names another session's holder is not granted");
	undo(1, 1);
	ok(held("x", a.token), "the rollback undoes only the additional holds");
	release(1, "x", a.token);
	ok(!held("x", a.token), "the first hold is released last");
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
	is_int(apply(cmd).token, b.token, "a CHECK without a token finds the newest holder of the session");
	cmd.before = b.token;
	is_int(apply(cmd).token, a.token, "a CHECK before the newest token finds the previous one");
	cmd.before = a.token;
	is_int(apply(cmd).status, LE_NOT_HELD, "a CHECK before the oldest token finds none");
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
	is_int(apply(cmd).status, LE_NOT_GRANTED, "an owner of the same name with another role is another owner");
	ok(acquire_as(2, "x", S, "worker").reentrant,
	   "an exclusive holder that requests shared gets one more hold");
	acquire_as(1, "y", S, "worker");
	is_int(acquire_as(2, "y", X, "worker").status, LE_BAD_UPGRADE,
		   "a shared holder that requests exclusive is rejected immediately");
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
	is_int(acquire(1, "x", X).status, LE_WAITING,
		   "after its transaction, a connection waits for its own lock");
	stop();
}

/* A hold that is bound to another connection would end with that connection. */
static void
test_bound_elsewhere(void)
{
	LeReply a, b;

	start();
	a = acquire_ttl(1, "worker", LE_TTL_BOUND);
	ok(acquire_ttl(1, "worker", LE_TTL_BOUND).reentrant, "bound: granted again to the same connection");
	b = acquire_ttl(2, "worker", LE_TTL_BOUND);
	is_int(b.status, LE_WAITING, "a bound lock is not granted to another connection of its owner");
	end_session(1);
	batch();
	ok(got(2, LE_OK), "the other connection is granted when the first has ended");
	ok(told[2].token > a.token && held("x", b.token), "the other connection gets a new token");
	stop();
}

/*
 * With many holders of the lock, or many locks on the lease, the holder is found in the shorter of both
 * lists.
 */
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
	ok(acquire_on(SESSIONS - 1, S, lease).token == late.token, "the holder is found among many holders");
	for (; name[0] < 'm'; name[0]++)
	{
		cmd = request(1, name, S, 0);
		cmd.lease = lease;
		last = apply(cmd);
	}
	batch();
	name[0]--;
	cmd.session = SESSIONS - 1;
	ok(apply(cmd).token == last.token, "the holder is found among many locks");
	ok(acquire_on(SESSIONS - 1, S, lease).token == late.token,
	   "the holder is found among many holders and many locks");
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
	ok(!held("x", a.token), "holds of a lease are not counted: one release ends the holder");
	batch();

	/*
	 * Once the first transaction has committed, the hold of the lease counts once, whatever happens to a
	 * second request.
	 */
	a = acquire_on(1, X, lease);
	commit(1);
	release(1, "y", acquire(1, "y", X).token);
	batch();
	ok(!acquire_on(2, X, lease).counted, "a second request on the lease is not counted");
	undo(2, 1);
	ok(held("x", a.token), "the rollback of the second request does not end the holder");
	release(1, "x", a.token);
	batch();

	/* Two transactions on one lease: one rolls back, the other commits. */
	a = acquire_on(1, X, lease);
	b = acquire_on(2, X, lease);
	commit(2);
	acquire(2, "y", X);
	undo(1, 1);
	ok(held("x", a.token), "a rollback does not undo what another transaction was granted");
	release(2, "x", a.token);
	ok(!held("x", a.token), "one release ends the holder of both transactions");
	stop();
}

/* A process has one lease for its threads, which exclude each other by their owners. */
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
	ok(b.reentrant && b.token == a.token, "the same owner on the same lease re-enters");
	cmd.owner = text("two");
	b = apply(cmd);
	is_int(b.status, LE_WAITING, "another owner on the same lease waits");
	batch();
	release(1, "x", a.token);
	batch();
	ok(got(2, LE_OK) && told[2].token == b.token,
	   "another owner on the same lease is granted after the release");
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

/* The owner identifies the requester, and the lease determines the time. */
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
	ok(b.status == LE_OK && !b.reentrant,
	   "an owner on a lease does not re-enter the holder of the lease alone");
	is_int(acquire_shared(3, NULL, lease, false).token, a.token,
		   "a request with the lease alone finds its holder");
	is_int(acquire_shared(3, "w", lease, false).token, b.token,
		   "a request with owner and lease finds its holder");
	is_int(acquire_shared(3, "w", other, false).status, LE_BAD_TTL,
		   "a request of the owner on another lease is rejected");
	c = acquire_shared(3, "w", other, true);
	ok(c.status == LE_OK && !c.reentrant, "a place of the owner on another lease is a new entry");
	for (int i = 0; i < 2; i++)
	{
		is_int(acquire_shared(4, "w", lease, i).token, b.token,
			   "of two holders of an owner, that on the given lease is found");
		is_int(acquire_shared(4, "w", other, i).token, c.token,
			   "the holder on the other lease is found, too");
	}
	apply(command(LE_CMD_FORCE, 1, "x"));
	batch();
	a = acquire_shared(5, "w", 0, false);
	ok(a.status == LE_OK && !a.reentrant, "the owner acquires without a named lease");
	b = acquire_shared(5, "w", lease, true);
	ok(!b.reentrant && b.token != a.token, "a place of the owner on a lease is a new entry");
	is_int(acquire_shared(6, "w", lease, true).token, b.token,
		   "the place of the owner on the lease is found again");
	stop();
}

/* The first waiter belongs to the owner that was granted just before. */
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
	is_int(told[3].token, b.token, "two waiters of one owner get one token");
	is_int(find_token(b.token)->hold_count, 2, "two waiters of one owner are two holds");
	is_int(le_entry_time_left(find_token(b.token), now), 2 * TTL,
		   "the longer TTL of two joined waiters counts");
	ok(find_token(b.token)->value_len == 5, "the value of the later waiter counts");
	ok(!was_told[4], "no waiter of another owner is granted");
	release(2, "x", b.token);
	release(3, "x", b.token);
	batch();
	ok(got(4, LE_OK) && told[4].token == c.token, "the next owner is granted after both releases");
	stop();

	start();
	lease = grant_lease(TTL);
	a = acquire(1, "x", X);
	b = acquire_on(2, X, lease);
	acquire_on(3, X, lease);
	release(1, "x", a.token);
	batch();
	ok(got(2, LE_OK) && got(3, LE_OK) && told[3].token == b.token,
	   "two waiters on one lease are granted with one token");
	release(2, "x", b.token);
	ok(!held("x", b.token), "two waiters on one lease need one release");
	stop();
}

/* So many that a recursive search would fail. */
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
