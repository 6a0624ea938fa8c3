/* The connections that are stored for acquirers, and the information about ended tokens. */
/* Promises: - */
#include "fixture.h"

static LeReply
acquire_from(uint32_t session, const char *name, const char *acquirer)
{
	LeCommand cmd = request(session, name, X, LE_WAIT_FOREVER);

	cmd.acquirer = text(acquirer);
	return apply(cmd);
}

static bool
is_from(const LeEntry *entry, const char *acquirer)
{
	return entry != NULL && entry->acquirer != NULL && entry->acquirer->len == strlen(acquirer) &&
		   memcmp(entry->acquirer->text, acquirer, entry->acquirer->len) == 0;
}

static void
test_shared_record(void)
{
	LeReply a, b, c;
	int64_t before;

	start();
	a = acquire_from(1, "x", "4711 - psql");
	batch();
	before = blocks;
	b = acquire_from(1, "y", "4711 - psql");
	batch();
	ok(is_from(find_token(a.token), "4711 - psql"), "the acquirer is stored with the holder");
	ok(find_token(a.token)->acquirer == find_token(b.token)->acquirer,
	   "all holders of one session share one acquirer");
	is_int(blocks - before, 1, "one more lock of the same acquirer needs only memory for its name");
	c = acquire_from(2, "x", "4712 10.0.0.7 worker");
	batch();
	ok(is_from(find_token(c.token), "4712 10.0.0.7 worker"), "the acquirer of a waiter is stored");
	release(1, "x", a.token);
	batch();
	ok(is_from(find_token(c.token), "4712 10.0.0.7 worker"), "the acquirer of a granted waiter is kept");
	release(1, "y", b.token);
	batch();
	ok(is_from(find_token(c.token), "4712 10.0.0.7 worker"),
	   "the acquirer is kept when other holders have ended");
	release(2, "x", c.token);
	batch();
	stop();
}

static void
test_forgotten(void)
{
	static const char *const acquirers[] = {"4711 - psql", "4712 - psql", "4713 - psql"};
	int64_t after = 0;

	start();
	for (int i = 0; i < 3; i++)
	{
		release(1, "x", acquire_from(1, "x", acquirers[i]).token);
		batch();
		if (i > 0)
			is_int(blocks, after, "the memory of an acquirer without holders is freed");
		after = blocks;
	}
	stop();
}

static void
test_session_is_gone(void)
{
	LeReply a;

	start();
	a = acquire_from(1, "x", "4711 - psql");
	batch();
	apply(command(LE_CMD_SESSION_END, 1, NULL));
	batch();
	ok(is_from(find_token(a.token), "4711 - psql"),
	   "the acquirer of a holder is kept after its connection has ended");
	stop();
}

static void
test_load(void)
{
	LeStoredEntry row, place;

	start_load();
	row = stored("x", FIRST - 4, X);
	row.acquirer = text("4711 - psql");
	is_int(load_slot(row), LE_LOADED, "a holder with an acquirer is loaded");
	place = stored("x", FIRST - 3, X);
	place.acquirer = text("4711 - psql");
	is_int(load_place(place), LE_LOADED, "a place with an acquirer is loaded");
	load_done();
	ok(is_from(find_token(FIRST - 4), "4711 - psql"), "the acquirer is unchanged after a load");
	ok(find_token(FIRST - 4)->acquirer == find_token(FIRST - 3)->acquirer,
	   "a loaded holder and place share one acquirer");
	batch();
	stop();

	start_load();
	row = stored("x", FIRST - 4, X);
	row.acquirer = (LeText){"", LE_MAX_ACQUIRER + 1};
	is_int(load_slot(row), LE_LOAD_INVALID, "an acquirer that is too long is rejected");
	stop();
}

/* --- endings --- */

static LeReply
ask(const char *name, int64_t token, uint32_t role)
{
	LeCommand cmd = command(LE_CMD_AWAIT, 5, name);

	cmd.token = token;
	cmd.role = role;
	return apply(cmd);
}

static void
test_endings(void)
{
	LeReply a, reply;
	LeCommand cmd;

	start();
	a = acquire(1, "x", X);
	release(1, "x", a.token);
	batch();
	now += 3 * LE_SECOND;
	reply = ask("x", a.token, ROLE);
	is_int(reply.status, LE_LOST, "a released token is lost");
	is_int(reply.ending, LE_END_RELEASED, "the ending of a released token");
	is_int(reply.ending_ago, 3 * LE_SECOND, "the time since the ending");
	is_int(ask("x", a.token, ROLE + 1).ending, LE_END_NONE, "another role does not see the ending");
	is_int(ask("x", a.token + 1000, ROLE).ending, LE_END_NONE, "an unknown token has no ending");

	a = acquire(1, "x", X);
	batch();
	now += TTL;
	le_core_expire(core, now, 100);
	batch();
	is_int(ask("x", a.token, ROLE).ending, LE_END_EXPIRED, "expired");

	a = acquire(1, "x", X);
	apply(command(LE_CMD_FORCE, 2, "x"));
	batch();
	is_int(ask("x", a.token, ROLE).ending, LE_END_FORCED, "forced");

	cmd = command(LE_CMD_GRANT_LEASE, 1, NULL);
	cmd.ttl = TTL;
	reply = apply(cmd);
	cmd = request(1, "x", X, 0);
	cmd.lease = reply.lease;
	a = apply(cmd);
	batch();
	{
		LeCommand revoke = command(LE_CMD_REVOKE_LEASE, 1, NULL);

		revoke.lease = reply.lease;
		apply(revoke);
	}
	batch();
	is_int(ask("x", a.token, ROLE).ending, LE_END_REVOKED, "the ending of a token on a revoked lease");
	reply = apply(cmd);
	is_int(reply.status, LE_NO_LEASE, "a revoked lease does not exist");
	is_int(reply.ending, LE_END_REVOKED, "the ending of a revoked lease");

	a = acquire(1, "x", X);
	batch();
	fenced_token = a.token;
	release(1, "x", a.token);
	batch();
	is_int(ask("x", a.token, ROLE).ending, LE_END_RELEASED,
		   "the ending of a released token that is still fenced");
	fenced_token = 0;
	apply(command(LE_CMD_FENCE_ENDED, 1, NULL));
	batch();

	/* many later endings */
	for (int i = 0; i < 2000; i++)
	{
		LeReply other = acquire(2, "y", X);

		release(2, "y", other.token);
		batch();
	}
	is_int(ask("x", a.token, ROLE).ending, LE_END_NONE, "an ending is forgotten after 2000 later ones");
	stop();
}

int
main(void)
{
	test_shared_record();
	test_forgotten();
	test_session_is_gone();
	test_load();
	test_endings();
	return done_testing();
}
