/* An extension that was not confirmed is taken back: the lease ends when it would have without it. */
#include "fixture.h"

static LeExtension
extension(void)
{
	LeExtension made = {0};

	ok(le_core_extended(core, &made), "an extension");
	return made;
}

static bool
extends_nothing(void)
{
	LeExtension made;

	return !le_core_extended(core, &made);
}

static LeTime
left(int64_t token)
{
	return le_entry_time_left(le_core_find_token(core, token), now);
}

static void
test_lock(void)
{
	LeExtension first, second;
	int64_t token;

	start();
	token = acquire(1, "x", X).token;
	ok(extends_nothing(), "a grant is none");
	batch();
	now += TTL / 2;
	on_token(LE_CMD_RENEW, 1, "x", token);
	first = extension();
	is_int(left(token), TTL, "renewed");
	now += TTL / 4;
	le_core_take_back(core, &first, now);
	is_int(left(token), TTL / 4, "taken back");
	ok(!slot_is_dirty(token), "which writes nothing");

	on_token(LE_CMD_RENEW, 1, "x", token);
	first = extension();
	now += TTL / 8;
	on_token(LE_CMD_RENEW, 1, "x", token);
	second = extension();
	le_core_take_back(core, &first, now);
	is_int(left(token), TTL, "the extension after it counts");
	is_int(second.from, first.to, "and knows what it has come after");
	le_core_take_back(core, &second, now);
	is_int(left(token), TTL - TTL / 8, "the one before is back");

	on_token(LE_CMD_CHECK, 1, "x", token);
	ok(extends_nothing(), "asking is no extension");
	pass(TTL);
	ok(!held("x", token), "and it ends");
	le_core_take_back(core, &second, now);
	stop();
}

static void
test_ended_while_unconfirmed(void)
{
	LeExtension made;
	int64_t token;

	start();
	token = acquire(1, "x", X).token;
	batch();
	now += TTL - 1;
	on_token(LE_CMD_RENEW, 1, "x", token);
	made = extension();
	pass(TTL / 2);
	ok(held("x", token), "it lasts while its renewal waits");
	le_core_take_back(core, &made, now);
	expire();
	ok(!held("x", token), "and has ended when that fails");
	stop();
}

static void
test_ttl(void)
{
	LeCommand cmd = command(LE_CMD_RENEW, 1, "x");
	LeExtension made;
	int64_t token;

	start();
	token = acquire(1, "x", X).token;
	batch();
	cmd.token = token;
	cmd.ttl = 2 * LE_SAVE_INTERVAL;
	ok(apply(cmd).wrote, "another TTL is written");
	made = extension();
	batch();
	le_core_take_back(core, &made, now);
	ok(slot_is_dirty(token), "and so is the one before");
	is_int(le_core_find_token(core, token)->ttl, TTL, "which it has again");
	is_int(le_core_find_token(core, token)->saved_left, TTL, "with what was left");
	batch();
	pass(TTL);
	ok(!held("x", token), "it ends");
	stop();
}

static void
test_lease(void)
{
	LeCommand cmd = request(1, "x", X, 0);
	LeExtension made;
	int64_t lease, token;

	start();
	lease = grant_lease(LE_SAVE_INTERVAL + LE_SECOND);
	ok(extends_nothing(), "a new lease is none");
	cmd.lease = lease;
	token = apply(cmd).token;
	ok(extends_nothing(), "nor is a lock on it");
	batch();
	pass(LE_SAVE_INTERVAL);
	batch();
	on_lease(LE_CMD_KEEP_ALIVE, lease);
	made = extension();
	is_int(made.id, lease, "of a lease");
	batch();
	le_core_take_back(core, &made, now);
	is_int(on_lease(LE_CMD_LEASE_TTL, lease).valid_for, LE_SECOND, "kept alive for nothing");
	ok(le_core_dirty_leases(core) != NULL, "its time left is written");
	batch();
	on_token(LE_CMD_RENEW, 1, "x", token);
	made = extension();
	is_int(made.id, lease, "the renewal of a lock on it as well");
	le_core_take_back(core, &made, now);
	batch();
	pass(LE_SECOND);
	ok(!held("x", token), "all ends");
	stop();
}

static void
test_several(void)
{
	LeText names[] = {{"a", 1}, {"b", 1}};
	LeCommand cmd;
	LeExtension made;
	int64_t token;

	start();
	cmd = request(1, NULL, X, 0);
	cmd.names = names;
	cmd.nnames = 2;
	cmd.owner = text("me");
	token = apply(cmd).token;
	batch();
	now += TTL / 2;
	ok(apply(cmd).reentrant, "once more");
	made = extension();
	is_int(made.id, token, "of the lease of several locks");
	le_core_take_back(core, &made, now);
	is_int(left(token), TTL / 2, "taken back");
	batch();
	stop();
}

static void
test_place(void)
{
	LeExtension made;
	int64_t first, place;

	start();
	first = acquire(1, "x", X).token;
	place = enqueue(2, "x", X).token;
	ok(extends_nothing(), "a new place is none");
	batch();
	now += TTL / 2;
	on_token(LE_CMD_RENEW, 1, "x", first);
	await(2, "x", place, 0);
	made = extension();
	is_int(made.id, place, "of a place");
	le_core_take_back(core, &made, now);
	pass(TTL / 2);
	is_int(await(2, "x", place, 0).status, LE_LOST, "it ends");

	place = enqueue(2, "x", X).token;
	batch();
	now += 1;
	await(2, "x", place, 0);
	made = extension();
	release(1, "x", first);
	batch();
	now += 1;
	on_token(LE_CMD_RENEW, 2, "x", place);
	le_core_take_back(core, &made, now);
	is_int(left(place), TTL, "a grant is not taken back");
	stop();
}

int
main(void)
{
	test_lock();
	test_ended_while_unconfirmed();
	test_ttl();
	test_lease();
	test_several();
	test_place();
	return done_testing();
}
