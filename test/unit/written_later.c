/* A release that a crash may undo is written with a later batch: one write instead of two. */
/* Promises: D, G */
#include "fixture.h"
#include "core/state.h"

static LeReply
release_later(const char *name, int64_t token, LeTime hold_for)
{
	LeCommand cmd = command(LE_CMD_RELEASE, 1, name);

	cmd.token = token;
	cmd.hold_for = hold_for;
	cmd.later = true;
	return apply(cmd);
}

static bool
anything_to_write(void)
{
	return le_next_dirty_slot(core, NULL) != NULL;
}

/* Returns the token of a lock that session 1 has held for a batch. */
static int64_t
held_lock(const char *name, LeMode mode)
{
	int64_t token = acquire(1, name, mode).token;

	batch();
	return token;
}

static void
test_waits(void)
{
	int64_t token;

	start();
	token = held_lock("x", X);
	ok(le_core_later_since(core) == LE_NEVER, "no release waits to be written");
	ok(release_later("x", token, 0).status == LE_OK && !anything_to_write(),
	   "a release does not have to be written immediately");
	is_int(le_core_later_since(core), now, "the time of the oldest unwritten release");
	now += LE_SECOND;
	batch();
	is_int(le_core_later_since(core), now - LE_SECOND,
		   "the time of the unwritten release stays over a batch");
	ok(!held("x", token), "the lock of the unwritten release is not held");
	le_core_write_now(core);
	ok(anything_to_write(), "le_core_write_now() makes the release be written");
	batch();
	ok(!anything_to_write() && le_core_later_since(core) == LE_NEVER, "the release is written once");
	stop();
}

static void
test_overwritten(void)
{
	int64_t token;

	start();
	token = held_lock("x", X);
	release_later("x", token, 0);
	batch();
	token = acquire(2, "x", X).token;
	ok(anything_to_write(), "the next holder of the lock is written");
	batch();
	ok(held("x", token) && le_core_later_since(core) == LE_NEVER,
	   "the write of the next holder includes the release");

	token = held_lock("y", X);
	release_later("y", token, 0);
	batch();
	acquire(2, "z", X);
	le_core_recycle_rows(core, now);
	ok(le_next_dirty_slot(core, NULL)->row.recycled, "another lock gets the row");
	batch();
	ok(!anything_to_write() && le_core_later_since(core) == LE_NEVER,
	   "the write of the recycled row includes the release");
	stop();
}

/*
 * Releases that must be written immediately: rows of other holders would contradict them, or a caller depends
 * on them.
 */
static void
test_written_at_once(void)
{
	int64_t token, other;

	start();
	token = held_lock("shared", S);
	other = acquire(2, "shared", S).token;
	batch();
	release_later("shared", token, 0);
	ok(anything_to_write(), "a release of a lock with two slots is written immediately");
	batch();
	release(2, "shared", other);
	batch();

	token = held_lock("closed", X);
	release_later("closed", token, LE_SECOND);
	ok(anything_to_write(), "a release that closes the name is written immediately");
	batch();

	token = held_lock("x", X);
	release(1, "x", token);
	ok(anything_to_write(), "a release of a session that requires it is written immediately");
	batch();

	token = held_lock("forced", X);
	release_later("forced", token, 0);
	token = acquire(1, "forced", X).token;
	ok(release_later("forced", token, 0).status == LE_OK && anything_to_write(),
	   "a release of a row that the batch writes anyway is written");
	stop();
}

/*
 * A release whose reply was sent stays applied, whatever fails later; a release of the failed batch is
 * requested again.
 */
static void
test_failed_batch(void)
{
	int64_t answered, failing;
	LeCore *failed;

	start();
	answered = held_lock("answered", X);
	failing = held_lock("failing", X);
	release_later("answered", answered, 0);
	batch();
	release_later("failing", failing, 0);
	for (int i = 1; i <= 2; i++)
	{
		failed = start_reload();
		load_slot(stored("answered", answered, X));
		load_slot(stored("failing", failing, X));
		load_done();
		le_core_destroy(failed);
		ok(!held("answered", answered), "a release whose reply was sent stays applied after each failure");
		ok(held("failing", failing), "a release of the failed batch is not applied");
		ok(anything_to_write(), "the row of the applied release is written after the failure");
		is_int(le_core_later_since(core), now, "the time of the unwritten release is that of the load");
		now += LE_SECOND;
	}
	batch();
	failed = start_reload();
	load_slot(stored("answered", answered, X));
	load_done();
	le_core_destroy(failed);
	ok(held("answered", answered), "after the release was written, the row decides");
	stop();
}

/* Several such releases are found in any order. */
static void
test_failed_batch_of_many(void)
{
	char name[8];
	int64_t tokens[40];
	LeCore *failed;
	int n = 0;

	start();
	for (int i = 0; i < 40; i++)
	{
		snprintf(name, sizeof(name), "x%d", i);
		tokens[i] = held_lock(name, X);
	}
	for (int i = 0; i < 40; i++)
	{
		snprintf(name, sizeof(name), "x%d", i * 7 % 40);
		release_later(name, tokens[i * 7 % 40], 0);
	}
	batch();
	failed = start_reload();
	for (int i = 0; i < 40; i++)
	{
		snprintf(name, sizeof(name), "x%d", i);
		load_slot(stored(name, tokens[i], X));
	}
	load_done();
	le_core_destroy(failed);
	for (int i = 0; i < 40; i++)
	{
		snprintf(name, sizeof(name), "x%d", i);
		n += held(name, tokens[i]);
	}
	is_int(n, 0, "all releases whose replies were sent stay applied");
	batch();
	stop();
}

/* The locks of a group have one token. */
static void
test_failed_batch_of_a_group(void)
{
	static char storage[20][8];
	LeText names[20];
	LeCommand cmd = request(1, NULL, X, LE_WAIT_FOREVER);
	int64_t token;
	LeCore *failed;
	int n = 0;

	start();
	for (int i = 0; i < 20; i++)
	{
		snprintf(storage[i], sizeof(storage[i]), "g%d", i);
		names[i] = text(storage[i]);
	}
	cmd.names = names;
	cmd.nnames = 20;
	token = apply(cmd).token;
	batch();
	for (int i = 0; i < 20; i += 2)
		release_later(storage[i], token, 0);
	batch();
	failed = start_reload();
	for (int i = 0; i < 20; i++)
		load_slot(stored(storage[i], token, X));
	load_done();
	le_core_destroy(failed);
	for (int i = 0; i < 20; i += 2)
		n += held(storage[i], token);
	is_int(n, 0, "each release of a group stays applied");
	for (int i = 1; i < 20; i += 2)
		n += held(storage[i], token);
	is_int(n, 10, "no other lock of the group is released");
	batch();
	stop();
}

int
main(void)
{
	test_waits();
	test_overwritten();
	test_written_at_once();
	test_failed_batch();
	test_failed_batch_of_many();
	test_failed_batch_of_a_group();
	return done_testing();
}
