/*
 * store/leaserows.c
 *		Writes and loads the rows of named leases.
 */
#include "postgres.h"

#include "store/table.h"

/* --- writing --- */

/* Writes the row of a lease.  Returns false if another process has changed the row. */
static bool
put_lease(const LeCore *core, LeLease *lease, const LeClock *clock)
{
	LeSaved saved = le_core_saved(core, &lease->saved, lease->ttl);
	LeStoredLease row = {.id = lease->id,
						 .ttl = lease->ttl,
						 .time_left = saved.left,
						 .life = saved.life,
						 .expires_at = le_store_to_wall(clock, lease->deadline),
						 .role = lease->role,
						 .owner = {lease->owner, lease->owner_len}};

	Assert(lease->id > 0 && lease->row.dirty);
	return le_table_put(&le_lease_table, &lease->row, &row);
}

int
le_store_write_leases(LeCore *core, const LeClock *clock)
{
	int rows = 0;

	for (LeLease *lease = NULL; (lease = le_next_dirty_lease(core, lease)) != NULL;)
	{
		bool done;

		/* skip a lease that both began and ended in this batch */
		if (lease->ended && !lease->row.on_disk)
			continue;
		done = lease->ended ? le_table_delete(&le_lease_table, &lease->row) : put_lease(core, lease, clock);
		if (!done)
			le_store_row_changed(&le_lease_table, psprintf("lease " INT64_FORMAT, lease->id));
		rows++;
	}
	return rows;
}

/* --- loading --- */

bool
le_store_load_leases(LeCore *core, LeCore *failed)
{
	LeRows rows;

	le_rows_begin(&rows, &le_lease_table, failed);
	while (le_rows_next(&rows))
	{
		LeStoredLease lease = {.locator = le_table_locator(&rows.tuple->tts_tid)};

		le_table_read(&le_lease_table, rows.tuple, &lease);
		lease.time_left = Max(lease.time_left, 0);
		le_rows_taken(&rows, le_core_load_lease(core, &lease));
	}
	return le_rows_end(&rows);
}
