/* Semaphores. */
/* Promises: M */
#include "fixture.h"

static LeReply
permit(uint32_t session, int32_t permits)
{
	LeCommand cmd = request(session, "x", P, LE_WAIT_FOREVER);

	cmd.permits = permits;
	return apply(cmd);
}

static LeReply
set_permits(int32_t permits)
{
	LeCommand cmd = command(LE_CMD_SET_PERMITS, 0, "x");

	cmd.permits = permits;
	cmd.any_role = true;
	return apply(cmd);
}

static void
test_count(void)
{
	LeReply a, b;

	start();
	a = permit(1, 2);
	b = permit(2, 2);
	ok(a.status == LE_OK && b.status == LE_OK, "as many as there are permits");
	is_int(permit(3, 2).status, LE_WAITING, "and no more");
	is_int(permit(4, 3).status, LE_BAD_PERMITS, "another size while in use is refused");
	is_int(permit(4, 3).permits, 2, "naming the one in use");
	is_int(acquire(4, "x", X).status, LE_BAD_MODE, "so is another use");
	release(1, "x", a.token);
	batch();
	ok(got(3, LE_OK), "what comes back goes to the next");
	release(2, "x", b.token);
	release(3, "x", told[3].token);
	batch();
	is_int(permit(5, 7).status, LE_OK, "unused, it may have another size");
	stop();

	start();
	permit(1, 2);
	commit(1);
	is_int(permit(1, 2).status, LE_OK, "one connection may have several");
	{
		LeCommand cmd = request(1, "x", P, 0);

		cmd.permits = 2;
		is_int(apply(cmd).status, LE_NOT_GRANTED, "each counts for itself");
	}
	stop();
}

static void
test_set(void)
{
	LeReply held_by[4];

	start();
	is_int(set_permits(3).status, LE_NOT_HELD, "nothing to set while unused");
	for (uint32_t i = 0; i < 4; i++)
		held_by[i] = permit(i + 1, 2);
	batch();
	is_int(set_permits(4).permits, 2, "the old number is told");
	batch();
	ok(got(3, LE_OK) && got(4, LE_OK), "raising wakes waiters");
	is_int(permit(5, 2).status, LE_BAD_PERMITS, "the new number counts");
	permit(5, 4);
	set_permits(1);
	for (uint32_t i = 0; i < 3; i++)
	{
		release(i + 1, "x", held_by[i].token);
		batch();
		ok(!was_told[5], "lowering takes effect as permits come back");
	}
	release(4, "x", held_by[3].token);
	batch();
	ok(got(5, LE_OK), "down to the new number");
	acquire(6, "y", X);
	{
		LeCommand cmd = command(LE_CMD_SET_PERMITS, 0, "y");

		cmd.permits = 2;
		cmd.any_role = true;
		is_int(apply(cmd).status, LE_BAD_MODE, "a lock has no permits");
	}
	stop();
}

/* Rights that were looked at say nothing of a role that has come since. */
static void
test_rights(void)
{
	uint32_t roles[] = {ROLE, ROLE + 1};
	LeCommand cmd = request(1, "x", P, LE_WAIT_FOREVER), set = command(LE_CMD_SET_PERMITS, 0, "x");
	LeReply reply;

	start();
	cmd.permits = 2;
	cmd.role = ROLE + 1;
	reply = apply(cmd);
	is_int(reply.status, LE_OK, "a permit of another role");
	batch();
	set.permits = 3;
	set.value = (LeText){(const char *) roles, sizeof(roles[0])};
	is_int(apply(set).status, LE_DENIED, "whose rights were not looked at");
	is_int(permit(2, 2).status, LE_OK, "the number stays");
	batch();
	set.value.len = sizeof(roles);
	is_int(apply(set).permits, 2, "with both roles");
	set.value.data = NULL;
	set.value.len = 0;
	is_int(apply(set).status, LE_DENIED, "none was looked at");
	set.any_role = true;
	is_int(apply(set).permits, 3, "who may always names none");
	batch();

	/* a name that the other role has closed, for which somebody waits */
	cmd = command(LE_CMD_RELEASE, 1, "x");
	cmd.role = ROLE + 1;
	cmd.token = reply.token;
	cmd.hold_for = 100 * LE_SECOND;
	apply(cmd);
	release(2, "x", told[2].token);
	permit(3, 3);
	batch();
	set.any_role = false;
	set.permits = 4;
	set.value = (LeText){(const char *) roles, sizeof(roles[0])};
	is_int(apply(set).status, LE_DENIED, "nor is who has closed it");
	set.value.len = sizeof(roles);
	is_int(apply(set).permits, 3, "until it is looked at");
	stop();
}

int
main(void)
{
	test_count();
	test_set();
	test_rights();
	return done_testing();
}
