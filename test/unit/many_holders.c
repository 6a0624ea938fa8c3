/*
 * A lock with very many holders: a request for it, or a release, must not delay
 * the manager's other requests while all holders are examined.
 */
/* Promises: - */
#include <time.h>

#include "fixture.h"

#define HOLDERS  20000
#define REQUESTS 20000
#define OWN      (3 * HOLDERS)
/* clock ticks; a manager that does not run for a second counts as stalled */
#define STALL ((double) CLOCKS_PER_SEC)

static LeCommand
numbered(uint32_t session, int number, LeMode mode, LeTime wait)
{
	static char owner[32];
	LeCommand cmd = request(session, "x", mode, wait);

	snprintf(owner, sizeof(owner), "reader %d", number);
	cmd.owner = text(owner);
	return cmd;
}

/* Creates many holders, each in its own transaction. */
static void
fill(bool named)
{
	start();
	for (int i = 0; i < HOLDERS; i++)
	{
		LeCommand cmd = numbered(1, i, S, 0);

		if (!named)
			cmd.owner = text(NULL);
		apply(cmd);
		commit(1);
	}
	batch();
}

static void
test_sessions(void)
{
	clock_t begun;
	int n = 0;
	LeReply own;

	fill(false);
	own = apply(request(2, "x", S, 0));
	commit(2);
	begun = clock();
	for (int i = 0; i < REQUESTS; i++)
	{
		n += apply(request(3, "x", X, 0)).own_session;
		n += release(3, "x", 0).status == LE_OK;
		n += !apply(request(2, "x", X, 0)).own_session;
		n += on_token(LE_CMD_CHECK, 2, "x", 0).token != own.token;
	}
	ok(clock() - begun < STALL, "tries and releases of sessions with few or no holders are fast");
	is_int(n, 0, "tries and releases of sessions with few or no holders return the right status");
	batch();
	stop();
}

/* An open transaction has acquired very many locks; each request searches them. */
static void
test_transaction(void)
{
	clock_t begun;
	char name[16];
	int n = 0;

	start();
	apply(request(1, "x", X, 0));
	for (int i = 0; i < HOLDERS; i++)
	{
		snprintf(name, sizeof(name), "%d", i);
		apply(request(2, name, S, 0));
	}
	apply(request(3, name, S, 0));
	batch();
	begun = clock();
	for (int i = 0; i < REQUESTS; i++)
		n += apply(request(2, "x", X, 0)).status != LE_NOT_GRANTED;
	ok(clock() - begun < STALL, "requests in a transaction with many holders are fast");
	n += !apply(request(2, name, S, 0)).reentrant;
	is_int(n, 0, "requests in a transaction with many holders return the right status");
	batch();
	stop();
}

/* Re-entering one of many holders; a new owner; and a rejected request. */
static void
test_owners(void)
{
	clock_t begun;
	int n = 0;

	fill(true);
	begun = clock();
	for (int i = 0; i < REQUESTS; i++)
	{
		n += !apply(numbered(3, i, S, 0)).reentrant;
		n += apply(numbered(3, HOLDERS + i, X, 0)).status != LE_NOT_GRANTED;
		commit(3);
	}
	ok(clock() - begun < STALL, "requests of named owners are fast");
	is_int(n, 0, "requests of named owners return the right status");
	batch();
	stop();
}

/* One owner has all holders, and releases them from both ends. */
static void
test_one_owner(void)
{
	static int64_t tokens[OWN];
	LeCommand cmd;
	clock_t begun;
	int n = 0;

	start();
	for (int i = 0; i < OWN; i++)
	{
		cmd = request(1, "x", S, 0);
		cmd.owner = text("reader");
		cmd.enqueue = true;
		tokens[i] = apply(cmd).token;
		commit(1);
	}
	batch();
	begun = clock();
	for (int i = 0; i < OWN; i++)
		n += release(1, "x", tokens[i % 2 == 0 ? i / 2 : OWN - 1 - i / 2]).status != LE_OK;
	ok(clock() - begun < STALL, "releases of an owner with many holders are fast");
	is_int(n, 0, "releases of an owner with many holders return LE_OK");
	batch();
	stop();
}

/* The same for leases: the lease has very many other locks, or none. */
static void
test_leases(void)
{
	LeCommand cmd;
	clock_t begun;
	int64_t full, empty;
	char name[16];
	int n = 0;

	fill(false);
	full = grant_lease(TTL);
	empty = grant_lease(TTL);
	for (int i = 0; i < HOLDERS; i++)
	{
		snprintf(name, sizeof(name), "%d", i);
		cmd = request(3, name, X, 0);
		cmd.lease = full;
		apply(cmd);
		commit(3);
	}
	batch();
	begun = clock();
	for (int i = 0; i < REQUESTS; i++)
	{
		cmd = request(4, "0", X, 0);
		cmd.lease = full;
		n += !apply(cmd).reentrant;
		cmd = request(4, "x", X, 0);
		cmd.lease = empty;
		n += apply(cmd).status != LE_NOT_GRANTED;
		commit(4);
	}
	ok(clock() - begun < STALL, "requests on leases are fast");
	is_int(n, 0, "requests on leases return the right status");
	batch();
	stop();
}

/* The owner of a holder that has ended or lapsed is not found any more. */
static void
test_gone(void)
{
	LeReply a, b;

	start();
	a = acquire_as(1, "x", S, "me");
	b = acquire_as(2, "x", S, "you");
	acquire_as(3, "y", S, "me");
	batch();
	release(1, "x", a.token);
	ok(!acquire_as(4, "x", S, "me").reentrant, "the owner of a released holder gets a new holder");
	ok(acquire_as(4, "x", S, "me").reentrant, "the new holder after a release is found");
	fenced_token = b.token;
	pass(TTL);
	ok(!acquire_as(5, "x", S, "you").reentrant, "the owner of a lapsed holder gets a new holder");
	ok(acquire_as(5, "x", S, "you").reentrant, "the new holder next to a lapsed one is found");
	fenced_token = 0;
	apply(command(LE_CMD_FENCE_ENDED, 1, NULL));
	ok(acquire_as(5, "x", S, "you").reentrant, "the new holder is found after the end of the lapsed one");
	batch();
	stop();
}

/* Each holder was acquired by another process. */
static void
test_acquirers(void)
{
	char acquirer[32];
	clock_t begun;

	start();
	begun = clock();
	for (int i = 0; i < HOLDERS; i++)
	{
		LeCommand cmd = request(1, "x", S, 0);

		snprintf(acquirer, sizeof(acquirer), "process %d", i);
		cmd.acquirer = text(acquirer);
		apply(cmd);
		commit(1);
	}
	ok(clock() - begun < STALL, "acquires of many processes are fast");
	batch();
	stop();
}

int
main(void)
{
	test_sessions();
	test_transaction();
	test_owners();
	test_one_owner();
	test_leases();
	test_gone();
	test_acquirers();
	return done_testing();
}
