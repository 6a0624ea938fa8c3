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
	is_int(acquire(2, "x", X).status, LE_WAITING, "a closed name is not granted");
	reply = force_as(ROLE + 1, "x");
	ok(!reply.reopened && !reply.wrote, "another role cannot open a closed name");
	is_int(find("x")->waiting, 1, "the waiter for a closed name stays");
	reply = force_as(ROLE, "x");
	ok(reply.reopened && reply.wrote, "the role that closed a name can open it");
	is_int(reply.ended, 0, "opening a name ends no holder");
	batch();
	ok(was_told[2] && told[2].status == LE_OK, "the waiter is granted in the batch that opens the name");
	ok(!force_as(ROLE + 1, "x").reopened, "a held name is not reopened");
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
	ok(reply.reopened, "an administrator can open a closed name");
	ok(le_next_dirty_slot(core, NULL) != NULL && le_next_dirty_slot(core, NULL)->lock == find("x"),
	   "opening a name is written");
	batch();
	is_int(acquire(2, "x", X).status, LE_OK, "an opened name is granted to another session");
	stop();
}

/* A release of a fenced holder takes effect at the end of the fence, and then closes the name. */
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
	ok(!force_as(ROLE + 1, "x").reopened,
	   "another role cannot open a name that closes at the end of a fence");
	ok(force_as(ROLE, "x").reopened, "the own role can open a name that closes at the end of a fence");
	ok(slot_is_dirty(reply.token), "opening a name of a fenced holder is written");
	batch();
	fenced_token = 0;
	apply(command(LE_CMD_FENCE_ENDED, 1, NULL));
	is_int(acquire(2, "x", X).status, LE_OK, "the opened name is free when the fence ends");
	stop();
}

/* The lease of a lapsed holder ends after its fence, and before the end of the fence is reported. */
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
	is_int(find("x")->closed_until, now + 60 * LE_SECOND,
		   "the end of the lease does not open the closed name");
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
	is_int(find("x")->closed_by, ROLE - 1,
		   "a name closed equally long by two roles belongs to the lower role");
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
	is_int(find("x")->closed_until, now + 60 * LE_SECOND, "closed_until is loaded");
	ok(!force_as(ROLE + 1, "x").reopened,
	   "the role that closed the name is loaded: another role cannot open it");
	ok(force_as(ROLE, "x").reopened, "the loaded role can open the name");
	stop();
}

/* A name that should stay closed until exactly now is not closed: its release is like any other. */
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
		is_int(reply.may_return, !early, "a release whose hold_for has passed may be undone by a crash");
		is_int(apply(request(2, "x", X, 0)).status, early ? LE_NOT_GRANTED : LE_OK,
			   "the name is free if its hold_for has passed");
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
