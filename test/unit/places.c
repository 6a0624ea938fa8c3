/* Places: created by one call, awaited by others. */
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
	is_int(p.status, LE_QUEUED, "a held lock gives a place");
	ok(p.position == 1 && q.position == 2, "a place has a position");
	is_int(await(2, "x", p.token, 0).status, LE_QUEUED, "an AWAIT without a wait returns QUEUED");
	is_int(on_token(LE_CMD_RENEW, 2, "x", p.token).status, LE_QUEUED, "a renewal of a place returns QUEUED");
	is_int(await(5, "x", p.token, LE_SECOND).status, LE_WAITING,
		   "any session of the role can wait for a place");
	pass(LE_SECOND);
	ok(got(5, LE_QUEUED), "a wait for a place times out with QUEUED");
	await(5, "x", p.token, LE_WAIT_FOREVER);
	release(1, "x", a.token);
	batch();
	ok(got(5, LE_OK) && told[5].token == p.token, "a waiting call gets the grant of the place");
	is_int(await(2, "x", p.token, 0).status, LE_OK, "an AWAIT of a granted place returns LE_OK");
	is_int(release(3, "x", q.token).status, LE_OK, "a place can be released");
	is_int(await(3, "x", q.token, 0).status, LE_LOST, "a released place is lost");
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
	ok(got(3, LE_LOST), "a waiting call gets LE_LOST when its place is released");
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
	is_int(await(3, "x", p.token, LE_WAIT_FOREVER).displaced_session, 0,
		   "the first wait for a place displaces no other one");
	batch();
	q = await(4, "x", p.token, LE_SECOND);
	is_int(q.status, LE_WAITING, "a second wait for a place waits");
	ok(q.displaced_session == 103 && q.displaced_sessno == 3 && q.displaced_request == 1,
	   "a second wait for a place displaces the first one");
	undo(3, 1);
	end_session(3);
	batch();
	ok(!was_told[3] && !was_told[4], "the end of the displaced session does not end the place");
	release(1, "x", FIRST);
	batch();
	ok(got(4, LE_OK) && !was_told[3], "the second call gets the grant");
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
	is_int(on_token(LE_CMD_CHECK, 2, "x", p.token + 1).status, LE_NOT_HELD,
		   "a CHECK of a blocked call returns NOT HELD");
	release(1, "x", FIRST);
	is_int(on_token(LE_CMD_CHECK, 2, "x", p.token).status, LE_OK, "a granted place is a holder");
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
	is_int(await(2, "x", p.token, LE_WAIT_FOREVER).status, LE_WAITING, "each AWAIT renews the place");
	for (int i = 0; i < 3; i++)
	{
		pass(TTL - 1);
		keep_holder();
	}
	batch();
	ok(find_token(p.token) != NULL, "a waiting call keeps its place");

	/* The wait is cancelled: from here on, the place has its own deadline. */
	undo(2, 1);
	batch();
	pass(TTL - 1);
	keep_holder();
	ok(find_token(p.token) != NULL, "a place lasts for a TTL after its wait");
	pass(1);
	is_int(await(2, "x", p.token, 0).status, LE_LOST, "a place ends a TTL after its wait");
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
	ok(entry->waiter->row.on_disk && entry->lsn == lsn, "the row of a place is written");
	release(1, "x", FIRST);
	ok(le_next_dirty_place(core, NULL) == entry && entry->state == LE_STATE_HELD,
	   "the row of a granted place is deleted");
	batch();
	ok(entry->waiter == NULL && le_next_dirty_place(core, NULL) == NULL,
	   "no waiter is left of a granted place");
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
	ok(apply(cmd).reentrant, "a leader campaigns again");
	is_int(find_token(a.token)->value_len, 10, "a second campaign of the leader replaces the value");
	ok(slot_is_dirty(a.token), "a second campaign of the leader is written");
	cmd = command(LE_CMD_PROCLAIM, 1, "x");
	cmd.kind = LE_KIND_ELECTION;
	cmd.token = a.token;
	cmd.value = text("h3");
	is_int(apply(cmd).status, LE_OK, "a leader proclaims");
	is_int(find_token(a.token)->value_len, 2, "a proclamation replaces the value");
	cmd.token = a.token + 1;
	is_int(apply(cmd).status, LE_NOT_HELD, "only the leader can proclaim");
	stop();
}

/* A long queue, or a lease with many places: a requested place is found in either list. */
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
		is_int(apply(cmd).token, token, "a repeated request finds its place in either list");
		stop();
	}
}

/* A reply leaves nothing in the list of replies for the next batch. */
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
	ok(got(1, LE_QUEUED) && got(2, LE_QUEUED), "two waits for places time out in one batch");
	await(2, "x", places[1], LE_SECOND);
	await(1, "x", places[0], LE_SECOND / 2);
	pass(LE_SECOND / 2);
	ok(got(1, LE_QUEUED) && !was_told[2], "only the first wait times out in the next batch");
	pass(LE_SECOND / 2);
	ok(got(2, LE_QUEUED) && !was_told[1], "only the second wait times out in the batch after that");
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
