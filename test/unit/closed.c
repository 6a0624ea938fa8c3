/* A name that its holder has left closed: who can open it, and the contents of its rows. */
/* Promises: C */
#include "fixture.h"

static LeReply
release_for(uint32_t session, const char *name, int64_t token, LeTime hold_for)
{
	LeCommand cmd = command(LE_CMD_RELEASE, session, name);

	cmd.token = token;
	cmd.hold_for = hold_for;
	return apply(cmd);
}

static LeReply
force_as(uint32_t role, const char *name)
{
	LeCommand cmd = command(LE_CMD_FORCE, 5, name);

	cmd.role = role;
	return apply(cmd);
}

static LeLock *
find(const char *name)
{
	return le_core_find_lock(core, LE_KIND_LOCK, text(name));
}

static void
test_reopened(void)
{
	LeReply reply;

	start();
	reply = acquire(1, "x", X);
	batch();
	release_for(1, "x", reply.token, 60 * LE_SECOND);
	batch();
	is_int(find("x")->closed_until, now + 60 * LE_SECOND, "hold_for closes the name");
	is_int(acquire(2, "x", X).status, LE_WAITING, "nobody gets it");
	reply = force_as(ROLE + 1, "x");
	ok(!reply.reopened && !reply.wrote, "another role does not open it");
	is_int(find("x")->waiting, 1, "so the waiter stays");
	reply = force_as(ROLE, "x");
	ok(reply.reopened && reply.wrote, "the role that closed it does");
	is_int(reply.ended, 0, "which ends no holder");
	batch();
	ok(was_told[2] && told[2].status == LE_OK, "and the waiter gets it in that batch");
	ok(!force_as(ROLE + 1, "x").reopened, "there is nothing to open where somebody holds it");
	stop();
}

static void
test_row(void)
{
	LeReply reply;
	LeCommand cmd = command(LE_CMD_FORCE, 5, "x");

	start();
	reply = acquire(1, "x", X);
	batch();
	release_for(1, "x", reply.token, 60 * LE_SECOND);
	batch();
	cmd.any_role = true;
	reply = apply(cmd);
	ok(reply.reopened, "an administrator opens it");
	ok(le_next_dirty_slot(core, NULL) != NULL && le_next_dirty_slot(core, NULL)->lock == find("x"),
	   "which is written");
	batch();
	is_int(acquire(2, "x", X).status, LE_OK, "anybody gets it");
	stop();
}

/* The release waits for a fence, and closes the name after it. */
static void
test_lapsed(void)
{
	LeReply reply;

	start();
	reply = acquire(1, "x", X);
	batch();
	fenced_token = reply.token;
	release_for(1, "x", reply.token, 60 * LE_SECOND);
	batch();
	ok(!force_as(ROLE + 1, "x").reopened, "closed from the end of a fence on: not opened by another role");
	ok(force_as(ROLE, "x").reopened, "but by its own");
	ok(slot_is_dirty(reply.token), "which is written");
	batch();
	fenced_token = 0;
	apply(command(LE_CMD_FENCE_ENDED, 1, NULL));
	is_int(acquire(2, "x", X).status, LE_OK, "it is open when the fence ends");
	stop();
}

/* Its lease ends after the fence has, and before anybody has told of that. */
static void
test_lapsed_on_lease(void)
{
	LeCommand cmd;
	LeReply reply;

	start();
	cmd = request(1, "x", X, 0);
	cmd.lease = grant_lease(TTL);
	reply = apply(cmd);
	batch();
	fenced_token = reply.token;
	release_for(1, "x", reply.token, 60 * LE_SECOND);
	batch();
	fenced_token = 0;
	on_lease(LE_CMD_REVOKE_LEASE, cmd.lease);
	batch();
	is_int(find("x")->closed_until, now + 60 * LE_SECOND, "the end of its lease does not open the name");
	stop();
}

static void
test_shared(void)
{
	LeReply one, two;
	LeCommand cmd;

	start();
	one = acquire(1, "x", S);
	cmd = request(2, "x", S, 0);
	cmd.role = ROLE - 1;
	two = apply(cmd);
	batch();
	release_for(1, "x", one.token, 60 * LE_SECOND);
	cmd = command(LE_CMD_RELEASE, 2, "x");
	cmd.role = ROLE - 1;
	cmd.token = two.token;
	cmd.hold_for = 60 * LE_SECOND;
	apply(cmd);
	batch();
	is_int(find("x")->closed_by, ROLE - 1, "closed by two for as long: the lower role's");
	stop();
}

static void
test_load(void)
{
	LeStoredEntry row;

	start_load();
	row = stored_free("x");
	row.closed_until = now + WALL_OFFSET + 60 * LE_SECOND;
	row.role = ROLE;
	is_int(load_slot(row), LE_LOADED, "a closed name is loaded");
	load_done();
	batch();
	is_int(find("x")->closed_until, now + 60 * LE_SECOND, "until when it is closed");
	ok(!force_as(ROLE + 1, "x").reopened, "and by whom");
	ok(force_as(ROLE, "x").reopened, "who can open it");
	stop();
}

/* A name that was to stay closed up to this very moment does not: then it is a release like any other. */
static void
test_held_for_long(void)
{
	for (int early = 0; early < 2; early++)
	{
		LeCommand cmd = command(LE_CMD_RELEASE, 1, "x");
		LeReply reply;

		start();
		cmd.token = acquire(1, "x", X).token;
		cmd.hold_for = TTL / 2;
		batch();
		now += TTL / 2 - early;
		reply = apply(cmd);
		is_int(reply.may_return, !early, "closed no more: a crash may bring it back");
		is_int(apply(request(2, "x", X, 0)).status, early ? LE_NOT_GRANTED : LE_OK, "and it is free");
		batch();
		stop();
	}
}

int
main(void)
{
	test_held_for_long();
	test_reopened();
	test_row();
	test_lapsed();
	test_lapsed_on_lease();
	test_shared();
	test_load();
	return done_testing();
}
