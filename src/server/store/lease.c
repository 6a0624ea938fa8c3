/*
 * store/lease.c
 *		The rows of named leases.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

#include "shared/compat.h"
#include "store/internal.h"
#include "store/store.h"

/* --- writing --- */

static bool
put_lease(LeLease *lease)
{
	Datum values[LEASE_COLUMNS];
	bool nulls[LEASE_COLUMNS] = {false};

	values[LEASE_ID] = Int64GetDatum(lease->id);
	values[LEASE_TTL] = Int64GetDatum(lease->ttl);
	values[LEASE_TIME_LEFT] = Int64GetDatum(lease->saved_left);
	values[LEASE_ROLE] = ObjectIdGetDatum(lease->role);
	nulls[LEASE_OWNER] = lease->owner == NULL;
	if (lease->owner != NULL)
		values[LEASE_OWNER] = PointerGetDatum(cstring_to_text_with_len(lease->owner, lease->owner_len));
	return le_table_put(&le_lease_table, &lease->row, values, nulls, false);
}

int
le_store_write_leases(LeCore *core)
{
	int rows = 0;

	for (LeLease *lease = le_core_dirty_leases(core); lease != NULL; lease = lease->dirty_next, rows++)
	{
		bool done = true;

		if (!lease->ended)
			done = put_lease(lease);
		else if (lease->row.on_disk)
			done = le_table_delete(&le_lease_table, &lease->row);
		if (!done)
			le_store_row_changed(&le_lease_table, psprintf("lease " INT64_FORMAT, lease->id));
	}
	return rows;
}

/* --- loading --- */

static LeTime
lease_time_left(const LeLoadHooks *hooks, int64 id, LeTime ttl, LeTime stored)
{
	LeTime left;

	if (hooks->lease_time_left != NULL && hooks->lease_time_left(id, ttl, &left))
		return left;
	return ttl <= LE_SAVE_INTERVAL ? ttl : Min(Max(stored, 0), ttl);
}

static void
load_lease(LeCore *core, const LeLoadHooks *hooks, TupleTableSlot *row, LeTime now)
{
	LeCommand cmd = {0};
	LeTime left;

	slot_getallattrs(row);
	cmd.token = DatumGetInt64(row->tts_values[LEASE_ID]);
	cmd.ttl = DatumGetInt64(row->tts_values[LEASE_TTL]);
	cmd.role = DatumGetObjectId(row->tts_values[LEASE_ROLE]);
	if (!row->tts_isnull[LEASE_OWNER])
	{
		text *owner = DatumGetTextPP(row->tts_values[LEASE_OWNER]);

		cmd.owner.data = VARDATA_ANY(owner);
		cmd.owner.len = VARSIZE_ANY_EXHDR(owner);
	}
	if (cmd.token <= 0 || cmd.ttl <= 0 || cmd.owner.len > LE_MAX_OWNER ||
		le_core_find_lease(core, cmd.token) != NULL)
		ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED),
						errmsg("row of lease " INT64_FORMAT " is not valid", cmd.token)));

	left = hooks->drop_all
			   ? -1
			   : lease_time_left(hooks, cmd.token, cmd.ttl, DatumGetInt64(row->tts_values[LEASE_TIME_LEFT]));
	if (!le_core_load_lease(core, &cmd, left, le_table_locator(&row->tts_tid), now))
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
}

/* Returns the highest id. */
int64
le_store_load_leases(LeCore *core, const LeLoadHooks *hooks, LeTime now)
{
	Relation rel = le_table_open_to_load(&le_lease_table);
	TupleTableSlot *row = table_slot_create(rel, NULL);
	TableScanDesc scan;
	int64 highest = 0;

	scan = table_beginscan(rel, GetActiveSnapshot(), 0, NULL);
	while (table_scan_getnextslot(scan, ForwardScanDirection, row))
	{
		CHECK_FOR_INTERRUPTS();
		load_lease(core, hooks, row, now);
		highest = Max(highest, DatumGetInt64(row->tts_values[LEASE_ID]));
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(row);
	table_close(rel, NoLock);
	return highest;
}
