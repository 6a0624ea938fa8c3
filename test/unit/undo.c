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
	ok(!held("x", a.token) && !held("y", b.token), "a rollback undoes what was acquired");
	ok(got(2, LE_OK), "and grants on");

	a = acquire(1, "z", X);
	commit(1);
	acquire(1, "y", X);
	undo(1, 1);
	ok(held("z", a.token), "what an earlier transaction acquired stays");
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
	ok(!held("b", b.token) && !held("c", c.token), "ROLLBACK TO undoes what came after");
	ok(held("a", a.token), "and not what came before");
	is_int(find_token(a.token)->hold_count, 1, "of a lock taken twice, one hold");
	undo(1, 1);
	ok(!held("a", a.token), "the rest goes with the transaction");
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
	ok(!held("x", a.token), "and is the last one");

	a = acquire_in(1, 1, "x", "worker");
	commit(1);
	acquire_in(2, 1, "x", "worker");
	undo(2, 1);
	ok(held("x", a.token), "a committed hold survives the rollback of a later one");
	stop();
}

/* Two of one owner wait: the second becomes one more hold of the first, until its own transaction rolls back. */
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
	ok(got(2, LE_OK) && got(3, LE_OK) && told[3].token == b.token, "both of an owner are granted");
	is_int(find_token(b.token)->hold_count, 2, "a hold each");
	commit(2);
	undo(3, 1);
	is_int(find_token(b.token)->hold_count, 1, "a rollback takes the joined hold back");
	release(2, "x", b.token);
	ok(!held("x", b.token), "and the other is the last one");
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
	ok(got(3, LE_OK), "and is not granted");
	stop();

	/* the cancel meets the grant */
	start();
	a = acquire(1, "x", X);
	b = acquire(2, "x", X);
	acquire(3, "x", X);
	batch();
	release(1, "x", a.token);
	undo(2, 1);
	batch();
	ok(!held("x", b.token), "a grant that meets a cancel is given back");
	ok(got(3, LE_OK), "to the next one");
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
	ok(!held("x", a.token) && !held("x", p.token), "holder and queue place of one transaction go together");
	ok(got(3, LE_OK) && held("x", q.token), "and the next place is granted");
	is_int(le_core_stats(core)->handoffs, 1, "only it");
	stop();

	start();
	a = acquire(1, "x", X);
	p = enqueue(2, "x", X);
	await(3, "x", p.token, LE_WAIT_FOREVER);
	batch();
	undo(2, 1);
	batch();
	ok(got(3, LE_LOST), "who waits for a place that is undone learns that it is gone");
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
	ok(held("ttl", b.token), "one with a TTL does not");
	stop();

	start();
	a = acquire(1, "x", X);
	b = acquire(2, "x", X);
	batch();
	end_session(2);
	batch();
	ok(find_token(b.token) == NULL, "a waiter goes with its connection");

	/* a new session under the same number: the old one's end is implied */
	cmd = request(3, "bound", X, 0);
	cmd.ttl = LE_TTL_BOUND;
	a = apply(cmd);
	cmd = request(3, "other", X, 0);
	cmd.session = 999;
	apply(cmd);
	ok(!held("bound", a.token), "the next session with its number ends it as well");
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
	is_int(p.status, LE_QUEUED, "a bound holder queues again");
	acquire(2, "x", X);
	batch();
	end_session(1);
	batch();
	ok(!held("x", a.token) && !held("x", p.token), "both end with the connection");
	ok(got(2, LE_OK), "and the next one is granted");
	is_int(le_core_stats(core)->handoffs, 1, "only it");
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
