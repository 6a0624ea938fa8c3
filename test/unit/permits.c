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
	ok(a.status == LE_OK && b.status == LE_OK, "all permits are granted");
	is_int(permit(3, 2).status, LE_WAITING, "a request for one permit more waits");
	is_int(permit(4, 3).status, LE_BAD_PERMITS, "another number of permits is rejected while in use");
	is_int(permit(4, 3).permits, 2, "the rejection returns the number in use");
	is_int(acquire(4, "x", X).status, LE_BAD_MODE,
		   "an exclusive request is rejected while permits are in use");
	release(1, "x", a.token);
	batch();
	ok(got(3, LE_OK), "a released permit is granted to the waiter");
	release(2, "x", b.token);
	release(3, "x", told[3].token);
	batch();
	is_int(permit(5, 7).status, LE_OK, "an unused name can get another number of permits");
	stop();

	start();
	permit(1, 2);
	commit(1);
	is_int(permit(1, 2).status, LE_OK, "one connection can have several permits");
	{
		LeCommand cmd = request(1, "x", P, 0);

		cmd.permits = 2;
		is_int(apply(cmd).status, LE_NOT_GRANTED, "each permit of a connection counts");
	}
	stop();
}

static void
test_set(void)
{
	LeReply held_by[4];

	start();
	is_int(set_permits(3).status, LE_NOT_HELD, "SET_PERMITS of an unused name is rejected");
	for (uint32_t i = 0; i < 4; i++)
		held_by[i] = permit(i + 1, 2);
	batch();
	is_int(set_permits(4).permits, 2, "SET_PERMITS returns the old number");
	batch();
	ok(got(3, LE_OK) && got(4, LE_OK), "a higher number grants waiters");
	is_int(permit(5, 2).status, LE_BAD_PERMITS, "a request with the old number is rejected");
	permit(5, 4);
	set_permits(1);
	for (uint32_t i = 0; i < 3; i++)
	{
		release(i + 1, "x", held_by[i].token);
		batch();
		ok(!was_told[5], "with a lower number, releases do not grant waiters at first");
	}
	release(4, "x", held_by[3].token);
	batch();
	ok(got(5, LE_OK), "a waiter is granted when fewer permits than the new number are held");
	acquire(6, "y", X);
	{
		LeCommand cmd = command(LE_CMD_SET_PERMITS, 0, "y");

		cmd.permits = 2;
		cmd.any_role = true;
		is_int(apply(cmd).status, LE_BAD_MODE, "a lock has no permits");
	}
	stop();
}

/* Checked rights do not cover a role that has acquired a permit since the check. */
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
	is_int(reply.status, LE_OK, "another role is granted a permit");
	batch();
	set.permits = 3;
	set.value = (LeText){(const char *) roles, sizeof(roles[0])};
	is_int(apply(set).status, LE_DENIED, "SET_PERMITS is denied if the rights on one role were not checked");
	is_int(permit(2, 2).status, LE_OK, "the number of permits is unchanged");
	batch();
	set.value.len = sizeof(roles);
	is_int(apply(set).permits, 2, "SET_PERMITS succeeds if both roles were checked");
	set.value.data = NULL;
	set.value.len = 0;
	is_int(apply(set).status, LE_DENIED, "SET_PERMITS is denied if no role was checked");
	set.any_role = true;
	is_int(apply(set).permits, 3, "SET_PERMITS with the right for any role succeeds");
	batch();

	/* a name that the other role has closed, with a waiter */
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
	is_int(apply(set).status, LE_DENIED,
		   "SET_PERMITS is denied if the role that closed the name was not checked");
	set.value.len = sizeof(roles);
	is_int(apply(set).permits, 3, "SET_PERMITS succeeds if the role that closed the name was checked");
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
