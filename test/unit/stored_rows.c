/* Single rows: how the store finds them, and which values it can read. */
/* Promises: - */
#include "fixture.h"
#include "core/state.h"

/* Each type of rows has its own numbers; the environment finds rows by type and number. */
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
		is_int(n, 0, "before the batch, there is no row");
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
				is_int(le_container(row, LeLease, row)->id, lease, "the row of a lease is that of the lease");
			else
				ok(le_container(row, LeWaiter, row)->entry->state == LE_STATE_QUEUED,
				   "the row of a place is that of a waiter");
		}
		is_int(n, expected[t], titles[t]);
	}
	stop();
}

/* The time of a lapsed holder is counted from its end, or from the load if the end is unknown. */
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
	ok(le_core_overdue(core, LE_SECOND, now) == NULL, "a loaded lapsed holder is not overdue immediately");
	ok(le_core_overdue(core, LE_SECOND, now + LE_SECOND) != NULL,
	   "a loaded lapsed holder is overdue a timeout after the load");
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
	ok(le_core_overdue(core, 10 * LE_SECOND, now) != NULL,
	   "after a failed batch, the time of a lapsed holder is counted from its end");
	batch();
	now += 10 * LE_SECOND;
	fenced_token = 0;
	apply(command(LE_CMD_FENCE_ENDED, 0, NULL));
	failed = start_reload();
	fenced_token = token;
	load_slot(row);
	load_done();
	le_core_destroy(failed);
	ok(le_core_overdue(core, 10 * LE_SECOND, now) != NULL,
	   "after a failed batch with the end of the fence, the time is counted from its end");
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
	ok(le_core_overdue(core, LE_SECOND, now + LE_SECOND) != NULL,
	   "the time of this lapsed holder is counted from the load");
	batch();
	fenced_token = 0;
	apply(command(LE_CMD_FENCE_ENDED, 0, NULL));
	pass_all();
	stop();
}

/* Timestamps of rows that are not valid points in time. */
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
	is_int(find_token(FIRST + 1)->acquired_at, now, "a time in the future is loaded as now");
	is_int(find_token(FIRST + 2)->acquired_at, 0, "minus infinity is loaded as 0");
	is_int(find_token(FIRST + 3)->acquired_at, now,
		   "other times are converted by the wall clock of the load");
	pass_all();
	stop();
}

/* Texts of the maximum length, and longer ones. */
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
			ok((load_slot(row) == LE_LOAD_INVALID) == (more == 1),
			   more ? "a text that is too long is rejected" : "a text of the maximum length is loaded");
			load_done();
			le_core_destroy(core);
		}
	}

	start_load();
	lease = stored_lease(FIRST);
	lease.owner = text("me");
	load_lease(lease);
	load_done();
	is_int(le_core_find_lease(core, FIRST)->owner_len, 2, "the owner of a lease is loaded with its length");
	ok(memcmp(le_core_find_lease(core, FIRST)->owner, "me", 2) == 0, "the owner of a lease is loaded");
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
