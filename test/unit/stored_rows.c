/* Single rows: how the store finds them, and which values it may read. */
/* Promises: - */
#include "fixture.h"
#include "core/state.h"

/* Each type of rows has its own; the environment looks them up by it. */
static void
test_rows(void)
{
	static const LeRowType types[] = {LE_ROW_SLOT, LE_ROW_LEASE, LE_ROW_PLACE};
	static const char *const titles[] = {"slots", "leases", "places"};
	static const int expected[] = {3, 1, 2};
	int64_t lease;

	start();
	lease = grant_lease(TTL);
	for (int i = 0; i < 3; i++)
		acquire(1, (const char *[]){"a", "b", "c"}[i], X);
	enqueue(2, "a", X);
	enqueue(3, "a", X);
	for (int t = 0; t < 3; t++)
	{
		int n = 0;

		for (uint32_t i = 0; i < le_core_row_indexes(core, types[t]); i++)
			n += le_core_row_at(core, types[t], i) != NULL;
		is_int(n, 0, "before the batch no row is there");
	}
	batch();
	for (int t = 0; t < 3; t++)
	{
		int n = 0;

		for (uint32_t i = 0; i < le_core_row_indexes(core, types[t]); i++)
		{
			LeRow *row = le_core_row_at(core, types[t], i);

			if (row == NULL)
				continue;
			n++;
			if (types[t] == LE_ROW_SLOT)
				ok(le_slot_holder(le_container(row, LeSlot, row)) != NULL,
				   "the row of a slot is that of a holder");
			else if (types[t] == LE_ROW_LEASE)
				is_int(le_container(row, LeLease, row)->id, lease, "that of a lease is the lease's");
			else
				ok(le_container(row, LeWaiter, row)->entry->state == LE_STATE_QUEUED,
				   "that of a place is a waiter's");
		}
		is_int(n, expected[t], titles[t]);
	}
	stop();
}

/* How long a holder is lapsed is counted from its end, or if that is not known from the load. */
static void
test_lapsed_since(void)
{
	LeStoredEntry row;
	LeCommand cmd;
	int64_t token;
	LeCore *failed;

	start_load();
	row = stored("x", FIRST + 1, X);
	row.end = LE_END_EXPIRED;
	fenced_token = FIRST + 1;
	load_slot(row);
	load_done();
	batch();
	ok(le_core_overdue(core, LE_SECOND, now) == NULL,
	   "a lapsed holder that was loaded is not overdue at once");
	ok(le_core_overdue(core, LE_SECOND, now + LE_SECOND) != NULL, "but a timeout after the load");
	fenced_token = 0;
	apply(command(LE_CMD_FENCE_ENDED, 0, NULL));
	pass_all();
	stop();

	start();
	token = acquire(1, "x", X).token;
	batch();
	fenced_token = token;
	pass(TTL);
	now += 10 * LE_SECOND;
	failed = start_reload();
	fenced_token = token;
	row = stored("x", token, X);
	row.end = LE_END_EXPIRED;
	load_slot(row);
	load_done();
	le_core_destroy(failed);
	ok(le_core_overdue(core, 10 * LE_SECOND, now) != NULL, "after a failed batch it goes on from its end");
	batch();
	now += 10 * LE_SECOND;
	fenced_token = 0;
	apply(command(LE_CMD_FENCE_ENDED, 0, NULL));
	failed = start_reload();
	fenced_token = token;
	load_slot(row);
	load_done();
	le_core_destroy(failed);
	ok(le_core_overdue(core, 10 * LE_SECOND, now) != NULL, "also if the end of its fence was in that batch");
	batch();
	fenced_token = 0;
	apply(command(LE_CMD_FENCE_ENDED, 0, NULL));
	pass_all();
	stop();

	start();
	cmd = request(1, "x", X, 0);
	cmd.lease = grant_lease(TTL);
	token = apply(cmd).token;
	batch();
	now += TTL;
	le_core_expire(core, now, 10);
	failed = start_reload();
	fenced_token = token;
	row = stored("x", token, X);
	row.lease = cmd.lease;
	load_slot(row);
	load_done();
	le_core_destroy(failed);
	ok(find_token(token)->state == LE_STATE_LAPSED && le_core_overdue(core, LE_SECOND, now) == NULL,
	   "a holder that the failed batch ended without a fence lapses with the load");
	ok(le_core_overdue(core, LE_SECOND, now + LE_SECOND) != NULL, "from then on");
	batch();
	fenced_token = 0;
	apply(command(LE_CMD_FENCE_ENDED, 0, NULL));
	pass_all();
	stop();
}

/* Timestamps of rows that are no moments. */
static void
test_wall_times(void)
{
	LeStoredEntry row;

	start_load();
	row = stored("never", FIRST + 1, X);
	row.since = INT64_MAX;
	load_slot(row);
	row = stored("ever", FIRST + 2, X);
	row.since = INT64_MIN;
	load_slot(row);
	row = stored("now", FIRST + 3, X);
	load_slot(row);
	load_done();
	batch();
	is_int(find_token(FIRST + 1)->acquired_at, now, "what is in the future begins now");
	is_int(find_token(FIRST + 2)->acquired_at, 0, "minus infinity is the beginning");
	is_int(find_token(FIRST + 3)->acquired_at, now, "others count from the wall clock of the load");
	pass_all();
	stop();
}

/* Texts as long as they may be, and longer. */
static void
test_longest_texts(void)
{
	static char long_text[LE_MAX_VALUE + 1];
	const LeText longest[] = {{long_text, LE_MAX_NAME},
							  {long_text, LE_MAX_OWNER},
							  {long_text, LE_MAX_VALUE},
							  {long_text, LE_MAX_ACQUIRER}};
	LeStoredLease lease;

	memset(long_text, 'x', sizeof(long_text));
	for (int more = 0; more <= 1; more++)
	{
		for (int i = 0; i < 4; i++)
		{
			LeStoredEntry row = stored("x", FIRST, X);
			LeText *texts[] = {&row.name, &row.owner, &row.value, &row.acquirer};

			start_load();
			*texts[i] = longest[i];
			texts[i]->len += (uint32_t) more;
			ok((load_slot(row) == LE_LOAD_INVALID) == (more == 1), more ? "too long" : "as long as may be");
			load_done();
			le_core_destroy(core);
		}
	}

	start_load();
	lease = stored_lease(FIRST);
	lease.owner = text("me");
	load_lease(lease);
	load_done();
	is_int(le_core_find_lease(core, FIRST)->owner_len, 2, "a lease has its owner");
	ok(memcmp(le_core_find_lease(core, FIRST)->owner, "me", 2) == 0, "by name");
	batch();
	pass_all();
	stop();
}

int
main(void)
{
	test_rows();
	test_lapsed_since();
	test_wall_times();
	test_longest_texts();
	return done_testing();
}
