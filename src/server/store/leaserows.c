/*
 * store/leaserows.c
 *		The rows of named leases.
 */
#include "postgres.h"

#include "store/table.h"

/* --- writing --- */

/* False: the row was changed by somebody else. */
static bool
put_lease(LeLease *lease, const LeClock *clock)
{
	Datum values[LEASE_COLUMNS];
	bool nulls[LEASE_COLUMNS] = {false};

	Assert(lease->id > 0 && lease->row.dirty);
	values[LEASE_ID] = Int64GetDatum(lease->id);
	values[LEASE_TTL] = Int64GetDatum(lease->ttl);
	values[LEASE_TIME_LEFT] = Int64GetDatum(lease->saved_left);
	values[LEASE_EXPIRES_AT] = TimestampTzGetDatum(le_store_to_wall(clock, lease->deadline));
	values[LEASE_ROLE] = ObjectIdGetDatum(lease->role);
	le_store_set_text(values, nulls, LEASE_OWNER, lease->owner, lease->owner_len);
	return le_table_put(&le_lease_table, &lease->row, values, nulls);
}

int
le_store_write_leases(LeCore *core, const LeClock *clock)
{
	int rows = 0;

	for (LeLease *lease = NULL; (lease = le_next_dirty_lease(core, lease)) != NULL; rows++)
	{
		bool done = true;

		if (!lease->ended)
			done = put_lease(lease, clock);
		else if (lease->row.on_disk)
			done = le_table_delete(&le_lease_table, &lease->row);
		if (!done)
			le_store_row_changed(&le_lease_table, psprintf("lease " INT64_FORMAT, lease->id));
	}
	return rows;
}

/* --- loading --- */

/* Read a row; texts point into it. */
static LeStoredLease
read_lease(TupleTableSlot *row)
{
	const Datum *values = row->tts_values;

	slot_getallattrs(row);
	return (LeStoredLease){.id = DatumGetInt64(values[LEASE_ID]),
						   .ttl = DatumGetInt64(values[LEASE_TTL]),
						   .time_left = Max(DatumGetInt64(values[LEASE_TIME_LEFT]), 0),
						   .role = DatumGetObjectId(values[LEASE_ROLE]),
						   .owner = le_store_read_text(row, LEASE_OWNER),
						   .locator = le_table_locator(&row->tts_tid)};
}

bool
le_store_load_leases(LeCore *core, LeCore *failed)
{
	LeRows rows;

	le_rows_begin(&rows, &le_lease_table, failed);
	while (le_rows_next(&rows))
	{
		LeStoredLease lease = read_lease(rows.tuple);

		le_rows_taken(&rows, le_core_load_lease(core, &lease));
	}
	return le_rows_end(&rows);
}
