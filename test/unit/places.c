/* Queue places: entered by one call, awaited by others. */
/* Promises: Q */
#include "fixture.h"

static void
test_await(void)
{
	LeReply a, p, q;

	start();
	p = enqueue(1, "free", X);
	is_int(p.status, LE_OK, "a free lock is granted at once");
	a = acquire(1, "x", X);
	p = enqueue(2, "x", X);
	q = enqueue(3, "x", X);
	is_int(p.status, LE_QUEUED, "else there is a place");
	ok(p.position == 1 && q.position == 2, "with a position");
	is_int(await(2, "x", p.token, 0).status, LE_QUEUED, "not yet");
	is_int(on_token(LE_CMD_RENEW, 2, "x", p.token).status, LE_QUEUED, "a place is not renewed");
	is_int(await(5, "x", p.token, LE_SECOND).status, LE_WAITING, "anybody of the role may wait for it");
	pass(LE_SECOND);
	ok(got(5, LE_QUEUED), "the wait runs out, the place stays");
	await(5, "x", p.token, LE_WAIT_FOREVER);
	release(1, "x", a.token);
	batch();
	ok(got(5, LE_OK) && told[5].token == p.token, "granted: told to who waits");
	is_int(await(2, "x", p.token, 0).status, LE_OK, "and to who asks");
	is_int(release(3, "x", q.token).status, LE_OK, "releasing a place leaves the queue");
	is_int(await(3, "x", q.token, 0).status, LE_LOST, "then it is gone");
	stop();
}

static void
test_released_while_awaited(void)
{
	LeReply p;

	start();
	acquire(1, "x", X);
	p = enqueue(2, "x", X);
	await(3, "x", p.token, LE_WAIT_FOREVER);
	batch();
	release(2, "x", p.token);
	batch();
	ok(got(3, LE_LOST), "who waits for a place that is given up learns that it is gone");
	stop();
}

static void
test_displaced(void)
{
	LeReply p, q;

	start();
	acquire(1, "x", X);
	p = enqueue(2, "x", X);
	commit(2);
	is_int(await(3, "x", p.token, LE_WAIT_FOREVER).displaced_session, 0, "nobody waits for a new place");
	batch();
	q = await(4, "x", p.token, LE_SECOND);
	is_int(q.status, LE_WAITING, "a second wait for a place");
	ok(q.displaced_session == 103 && q.displaced_sessno == 3 && q.displaced_request == 1, "takes it over");
	undo(3, 1);
	end_session(3);
	batch();
	ok(!was_told[3] && !was_told[4], "the end of the first does not matter any more");
	release(1, "x", FIRST);
	batch();
	ok(got(4, LE_OK) && !was_told[3], "the grant is told to the second");
	stop();
}

static void
test_check(void)
{
	LeReply p;

	start();
	acquire(1, "x", X);
	p = enqueue(2, "x", X);
	acquire(3, "x", X);
	is_int(on_token(LE_CMD_CHECK, 2, "x", p.token).status, LE_QUEUED, "a place is queued");
	is_int(on_token(LE_CMD_CHECK, 2, "x", p.token + 1).status, LE_NOT_HELD, "a blocked call is nothing");
	release(1, "x", FIRST);
	is_int(on_token(LE_CMD_CHECK, 2, "x", p.token).status, LE_OK, "then a holder");
	stop();
}

static void
keep_holder(void)
{
	on_token(LE_CMD_RENEW, 1, "x", FIRST);
}

static void
test_ttl(void)
{
	LeReply p;

	start();
	acquire(1, "x", X);
	p = enqueue(2, "x", X);
	commit(2);
	batch();
	pass(TTL - 1);
	keep_holder();
	is_int(await(2, "x", p.token, 0).status, LE_QUEUED, "a place lasts for its TTL");
	pass(TTL - 1);
	keep_holder();
	is_int(await(2, "x", p.token, LE_WAIT_FOREVER).status, LE_WAITING, "each call renews it");
	for (int i = 0; i < 3; i++)
	{
		pass(TTL - 1);
		keep_holder();
	}
	batch();
	ok(find_token(p.token) != NULL, "a wait keeps it");

	/* the wait is cancelled: from here on it is on its own */
	undo(2, 1);
	batch();
	pass(TTL - 1);
	keep_holder();
	ok(find_token(p.token) != NULL, "it lasts for a TTL after the wait");
	pass(1);
	is_int(await(2, "x", p.token, 0).status, LE_LOST, "and no longer");
	stop();
}

static void
test_row(void)
{
	LeReply p;
	LeEntry *entry;

	start();
	acquire(1, "x", X);
	p = enqueue(2, "x", X);
	entry = find_token(p.token);
	ok(le_next_dirty_place(core, NULL) == entry, "a place has a row");
	batch();
	ok(entry->waiter->row.on_disk && entry->lsn == lsn, "written");
	release(1, "x", FIRST);
	ok(le_next_dirty_place(core, NULL) == entry && entry->state == LE_STATE_HELD,
	   "deleted when it is granted");
	batch();
	ok(entry->waiter == NULL && le_next_dirty_place(core, NULL) == NULL, "and nothing is left of the wait");
	stop();
}

static void
test_election(void)
{
	LeCommand cmd;
	LeReply a;

	start();
	cmd = request(1, "x", X, 0);
	cmd.kind = LE_KIND_ELECTION;
	cmd.owner = text("one");
	cmd.value = text("host1");
	a = apply(cmd);
	batch();
	cmd.value = text("host2:5432");
	ok(apply(cmd).reentrant, "campaigning again while leader");
	is_int(find_token(a.token)->value_len, 10, "is a proclaim");
	ok(slot_is_dirty(a.token), "and is written");
	cmd = command(LE_CMD_PROCLAIM, 1, "x");
	cmd.kind = LE_KIND_ELECTION;
	cmd.token = a.token;
	cmd.value = text("h3");
	is_int(apply(cmd).status, LE_OK, "a proclaim");
	is_int(find_token(a.token)->value_len, 2, "changes the value");
	cmd.token = a.token + 1;
	is_int(apply(cmd).status, LE_NOT_HELD, "of the leader only");
	stop();
}

/* The queue is long, or the lease has many places: the one that is asked for again is found in either list. */
static void
test_again_among_many(void)
{
	char name[2] = "a";
	LeCommand cmd = request(1, "x", X, 0), other = cmd;
	int64_t token;

	for (uint32_t waiters = 2; waiters <= 12; waiters += 10)
	{
		start();
		acquire(0, "x", X);
		cmd.lease = grant_lease(TTL);
		cmd.enqueue = true;
		for (uint32_t i = 2; i < waiters; i++)
			acquire(i, "x", X);
		other = cmd;
		for (name[0] = 'a'; name[0] < (waiters == 2 ? 'k' : 'c'); name[0]++)
		{
			acquire(0, name, X);
			other.name = text(name);
			apply(other);
		}
		acquire(15, "x", X);
		token = apply(cmd).token;
		acquire(16, "x", X);
		batch();
		is_int(apply(cmd).token, token, "the same place");
		stop();
	}
}

/* An answer leaves no trace in the list of the next batch's answers. */
static void
test_answered_again(void)
{
	int64_t places[2];

	start();
	acquire(3, "x", X);
	for (uint32_t i = 0; i < 2; i++)
		places[i] = enqueue(i + 1, "x", X).token;
	batch();
	await(1, "x", places[0], LE_SECOND);
	await(2, "x", places[1], LE_SECOND);
	pass(LE_SECOND);
	ok(got(1, LE_QUEUED) && got(2, LE_QUEUED), "two waits for places are over in one batch");
	await(2, "x", places[1], LE_SECOND);
	await(1, "x", places[0], LE_SECOND / 2);
	pass(LE_SECOND / 2);
	ok(got(1, LE_QUEUED) && !was_told[2], "the next time only one, and only that one is told");
	pass(LE_SECOND / 2);
	ok(got(2, LE_QUEUED) && !was_told[1], "and then the other");
	stop();
}

int
main(void)
{
	test_await();
	test_displaced();
	test_check();
	test_released_while_awaited();
	test_ttl();
	test_row();
	test_election();
	test_again_among_many();
	test_answered_again();
	return done_testing();
}
