/* Memory is exhausted at any point: only the command fails. */
/* Promises: - */
#include "fixture.h"

static LeCommand script[64];
static int nscript;

static void
write_script(void)
{
	static const char *const names[] = {"a", "b", "a-much-longer-name-than-the-others"};

	nscript = 0;
	for (uint32_t i = 0; i < 24; i++)
	{
		LeCommand *cmd = &script[nscript++];

		*cmd = request(i, names[i % 3], i % 4 == 3 ? S : X, LE_WAIT_FOREVER);
		if (i % 5 == 0)
			cmd->owner = text("an owner");
		if (i % 7 == 0)
		{
			cmd->kind = LE_KIND_ELECTION;
			cmd->value = text("a value");
		}
		cmd->enqueue = i % 6 == 1;
		if (i % 8 == 7)
		{
			script[nscript] = command(LE_CMD_GRANT_LEASE, i, NULL);
			script[nscript].owner = text("a lease's owner");
			script[nscript++].ttl = TTL;
		}
	}
}

/* Runs the script, in which only one command has a limited number of allocations. */
static bool
run(int which, int64_t allocations)
{
	bool failed = false;

	start();
	for (int i = 0; i < nscript; i++)
	{
		int64_t revision = le_core_next_revision(core);
		LeReply reply;

		if (i == which)
		{
			allocations_left = allocations;
			refused = false;
			failed = !le_core_reserve(core, &script[i]);
			allocations_left = -1;
			le_core_check(core);
			if (failed != refused)
				ok(false, "a command fails exactly if an allocation fails");
			if (failed && le_core_next_revision(core) != revision)
				ok(false, "a failed reserve changes nothing");
		}
		if (!le_core_reserve(core, &script[i]))
			abort();
		allocations_left = 0;
		le_core_apply(core, &script[i], now, &reply);
		allocations_left = -1;
	}
	batch();
	return failed;
}

static void
test_each_allocation(bool once)
{
	int failures = 0;

	write_script();
	refuse_once = once;
	for (int which = 0; which < nscript; which++)
	{
		for (int64_t n = 0; run(which, n); n++)
		{
			failures++;
			le_core_destroy(core);
			if (blocks != 0)
				ok(false, "all memory is returned");
		}
		le_core_destroy(core);
	}
	refuse_once = false;
	ok(failures > nscript,
	   once ? "every single allocation fails once" : "every allocation of every command fails once");
	is_int(blocks, 0, "all memory is returned");
}

/* Granting, ending and expiring allocate no memory. */
static void
test_apply_needs_none(void)
{
	write_script();
	run(-1, 0);
	allocations_left = 0;
	while (le_core_next_deadline(core) != LE_NEVER)
	{
		now = le_core_next_deadline(core);
		le_core_expire(core, now, 3);
		batch();
	}
	allocations_left = -1;
	ok(true, "expiry takes no memory");
	is_int(le_core_lock_count(core), 0, "no lock is left after the expiry");
	stop();
}

static void
test_create(void)
{
	LeEnv env = fixture_env();

	for (int64_t n = 0; n < 2; n++)
	{
		allocations_left = n;
		ok(le_core_create(&env, SESSIONS, FIRST) == NULL, "no core without memory");
		is_int(blocks, 0, "no memory is left of the failed core");
	}
	allocations_left = -1;
}

static void
test_load(void)
{
	int failures = 0;

	for (int64_t n = 0;; n++)
	{
		LeStoredHold holds[1];
		LeStoredLease lease = stored_lease(FIRST - 5);
		LeStoredEntry slot, place;
		bool good;

		start_load();
		lease.owner = text("me");
		slot = stored("x", FIRST - 4, X);
		slot.owner = text("me");
		slot.lease = FIRST - 5;
		slot.session = 101;
		place = slot;
		place.token = FIRST - 3;
		add_stored_hold(&slot, holds, 1, 1);
		allocations_left = n;
		good =
			load_lease(lease) == LE_LOADED && load_slot(slot) == LE_LOADED && load_place(place) == LE_LOADED;
		allocations_left = -1;
		le_core_destroy(core);
		if (blocks != 0)
			ok(false, "all memory is returned");
		if (good)
			break;
		failures++;
	}
	ok(failures > 5, "a load that fails at any allocation leaves no memory");
}

int
main(void)
{
	test_each_allocation(false);
	test_each_allocation(true);
	test_apply_needs_none();
	test_create();
	test_load();
	return done_testing();
}
