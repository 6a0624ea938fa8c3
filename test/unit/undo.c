/* Rollbacks, savepoints, and the end of sessions. */
/* Promises: G */
#include "fixture.h"

static LeReply
acquire_in(uint32_t session, uint32_t subxact, const char *name, const char *owner)
{
	LeCommand cmd = request(session, name, X, LE_WAIT_FOREVER);

	cmd.subxact = subxact;
	cmd.owner = text(owner);
	return apply(cmd);
}

static void
test_rollback(void)
{
	LeReply a, b;

	start();
	a = acquire(1, "x", X);
	b = acquire(1, "y", X);
	acquire(2, "x", X);
	batch();
	undo(1, 1);
	batch();
	ok(!held("x", a.token) && !held("y", b.token), "a rollback undoes acquired locks");
	ok(got(2, LE_OK), "the waiter is granted after the rollback");

	a = acquire(1, "z", X);
	commit(1);
	acquire(1, "y", X);
	undo(1, 1);
	ok(held("z", a.token), "a lock of an earlier transaction stays");
	stop();
}

static void
test_savepoint(void)
{
	LeReply a, b, c, again;

	start();
	a = acquire_in(1, 1, "a", NULL);
	b = acquire_in(1, 2, "b", NULL);
	c = acquire_in(1, 3, "c", NULL);
	again = acquire_in(1, 3, "a", NULL);
	ok(again.reentrant, "a savepoint sees what the transaction holds");
	undo(1, 2);
	ok(!held("b", b.token) && !held("c", c.token), "ROLLBACK TO undoes later locks");
	ok(held("a", a.token), "ROLLBACK TO does not undo earlier locks");
	is_int(find_token(a.token)->hold_count, 1, "ROLLBACK TO undoes one of two holds");
	undo(1, 1);
	ok(!held("a", a.token), "a rollback undoes the remaining hold");
	stop();
}

/* Only holds of that transaction are undone, never another hold of the owner. */
static void
test_other_hold(void)
{
	LeReply a;

	start();
	a = acquire_in(1, 1, "x", "worker");
	acquire_in(2, 1, "x", "worker");
	commit(2);
	undo(1, 1);
	ok(held("x", a.token), "the other session's hold of the same owner stays");
	release(2, "x", a.token);
	ok(!held("x", a.token), "the other session's hold is the last one");

	a = acquire_in(1, 1, "x", "worker");
	commit(1);
	acquire_in(2, 1, "x", "worker");
	undo(2, 1);
	ok(held("x", a.token), "a committed hold survives the rollback of a later one");
	stop();
}

/*
 * Two waiters of one owner: the second becomes one more hold of the first, until its own transaction rolls
 * back.
 */
static void
test_joined_hold(void)
{
	LeReply a, b;

	start();
	a = acquire(1, "x", X);
	b = acquire_in(2, 1, "x", "worker");
	acquire_in(3, 1, "x", "worker");
	batch();
	release(1, "x", a.token);
	batch();
	ok(got(2, LE_OK) && got(3, LE_OK) && told[3].token == b.token, "both waiters of an owner are granted");
	is_int(find_token(b.token)->hold_count, 2, "each joined waiter is a hold");
	commit(2);
	undo(3, 1);
	is_int(find_token(b.token)->hold_count, 1, "a rollback undoes the joined hold");
	release(2, "x", b.token);
	ok(!held("x", b.token), "the other hold is the last one");
	stop();
}

static void
test_undo_waiting(void)
{
	LeReply a, b;

	start();
	a = acquire(1, "x", X);
	b = acquire_in(2, 2, "x", NULL);
	acquire(3, "x", X);
	undo(2, 3);
	batch();
	ok(find_token(b.token) != NULL, "an inner savepoint does not end an outer wait");
	undo(2, 2);
	batch();
	ok(find_token(b.token) == NULL, "a cancelled wait leaves the queue");
	release(1, "x", a.token);
	batch();
	ok(got(3, LE_OK), "the next waiter is granted after the cancelled one");
	stop();

	/* a cancel in the same batch as the grant */
	start();
	a = acquire(1, "x", X);
	b = acquire(2, "x", X);
	acquire(3, "x", X);
	batch();
	release(1, "x", a.token);
	undo(2, 1);
	batch();
	ok(!held("x", b.token), "a grant in the same batch as a cancel is undone");
	ok(got(3, LE_OK), "the next waiter is granted after the cancelled grant");
	stop();
}

static void
test_undo_place(void)
{
	LeReply a, p, q;

	start();
	a = acquire(1, "x", X);
	p = enqueue(1, "x", X);
	q = enqueue(2, "x", X);
	await(3, "x", q.token, LE_WAIT_FOREVER);
	batch();
	undo(1, 1);
	batch();
	ok(!held("x", a.token) && !held("x", p.token),
	   "a rollback undoes the holder and the place of a transaction");
	ok(got(3, LE_OK) && held("x", q.token), "the next place is granted after the rollback");
	is_int(le_core_stats(core)->handoffs, 1, "the rollback causes one hand-off");
	stop();

	start();
	a = acquire(1, "x", X);
	p = enqueue(2, "x", X);
	await(3, "x", p.token, LE_WAIT_FOREVER);
	batch();
	undo(2, 1);
	batch();
	ok(got(3, LE_LOST), "a call that waits for an undone place gets LE_LOST");
	stop();
}

static void
test_session_end(void)
{
	LeCommand cmd;
	LeReply a, b;

	start();
	cmd = request(1, "bound", X, 0);
	cmd.ttl = LE_TTL_BOUND;
	a = apply(cmd);
	b = acquire(1, "ttl", X);
	acquire(1, "own", X);
	acquire(2, "bound", X);
	acquire(2, "ttl", X);
	end_session(1);
	batch();
	ok(got(2, LE_OK) || held("bound", a.token + 3), "a bound lock ends with its connection");
	ok(held("ttl", b.token), "a lock with a TTL does not end with its connection");
	stop();

	start();
	a = acquire(1, "x", X);
	b = acquire(2, "x", X);
	batch();
	end_session(2);
	batch();
	ok(find_token(b.token) == NULL, "a waiter ends with its connection");

	/* A new session with the same number implies the end of the old one. */
	cmd = request(3, "bound", X, 0);
	cmd.ttl = LE_TTL_BOUND;
	a = apply(cmd);
	cmd = request(3, "other", X, 0);
	cmd.session = 999;
	apply(cmd);
	ok(!held("bound", a.token), "a new session with the same number ends the bound lock of the old one");
	stop();
}

static void
test_bound_place(void)
{
	LeCommand cmd;
	LeReply a, p;

	start();
	cmd = request(1, "x", X, 0);
	cmd.ttl = LE_TTL_BOUND;
	a = apply(cmd);
	cmd.enqueue = true;
	commit(1);
	cmd.xact = xacts[1];
	p = apply(cmd);
	is_int(p.status, LE_QUEUED, "a bound holder enqueues a place");
	acquire(2, "x", X);
	batch();
	end_session(1);
	batch();
	ok(!held("x", a.token) && !held("x", p.token), "bound holder and place end with the connection");
	ok(got(2, LE_OK), "the next waiter is granted after the end of the connection");
	is_int(le_core_stats(core)->handoffs, 1, "the end of the connection causes one hand-off");
	stop();
}

int
main(void)
{
	test_rollback();
	test_savepoint();
	test_other_hold();
	test_joined_hold();
	test_undo_waiting();
	test_undo_place();
	test_session_end();
	test_bound_place();
	return done_testing();
}
