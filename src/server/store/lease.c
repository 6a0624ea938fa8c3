/*
 * store/lease.c
 *		The rows of named leases.
 *
 * The table has no index: a lease's id is its own revision, which is never
 * given out twice, and a row is found by its TID.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

#include "shared/compat.h"
#include "store/internal.h"
#include "store/store.h"

static Relation leases = NULL;
static TupleTableSlot *tuple = NULL;

/* Only if there is something to write.  False: the table was rewritten since it was loaded. */
bool
le_store_open_leases(LeCore *core)
{
	Relation rel;

	leases = NULL;
	tuple = NULL;
	if (le_core_dirty_leases(core) == NULL)
		return true;
	rel = le_store_open_loaded(le_store_tables.lease_oid, le_store_tables.lease_file);
	if (rel == NULL)
		return false;
	le_store_check_lease_table(rel);
	leases = rel;
	tuple = MakeSingleTupleTableSlot(RelationGetDescr(rel), &TTSOpsHeapTuple);
	return true;
}

void
le_store_close_leases(void)
{
	if (leases == NULL)
		return;
	ExecDropSingleTupleTableSlot(tuple);
	table_close(leases, NoLock);
	tuple = NULL;
	leases = NULL;
}

/* --- writing --- */

static void
row_changed(const LeLease *lease)
{
	ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("row of lease " INT64_FORMAT " was changed by somebody else", lease->id),
					errdetail("Table \"%s.%s\" is written by lock_election alone.", STORE_NAME,
							  RelationGetRelationName(leases))));
}

static void
put_lease(LeLease *lease, CommandId cid)
{
	Datum values[LEASE_COLUMNS];
	bool nulls[LEASE_COLUMNS] = {false};
	HeapTuple row;
	Size len;
	ItemPointerData tid;
	TM_FailureData failure;
	LockTupleMode lockmode;
	LeUpdateIndexes update_indexes;

	values[LEASE_ID] = Int64GetDatum(lease->id);
	values[LEASE_TTL] = Int64GetDatum(lease->ttl);
	values[LEASE_TIME_LEFT] = Int64GetDatum(lease->saved_left);
	values[LEASE_ROLE] = ObjectIdGetDatum(lease->role);
	nulls[LEASE_OWNER] = lease->owner == NULL;
	if (lease->owner != NULL)
		values[LEASE_OWNER] = PointerGetDatum(cstring_to_text_with_len(lease->owner, lease->owner_len));
	row = heap_form_tuple(RelationGetDescr(leases), values, nulls);
	len = row->t_len;
	ExecStoreHeapTuple(row, tuple, true);
	if (!lease->row.on_disk)
		table_tuple_insert(leases, tuple, cid, 0, NULL);
	else
	{
		le_store_unpack_tid(lease->row.locator, &tid);
		if (!le_store_prepare_page(leases, &tid, len) ||
			table_tuple_update(leases, &tid, tuple, cid, InvalidSnapshot, InvalidSnapshot, true, &failure,
							   &lockmode, &update_indexes) != TM_Ok)
			row_changed(lease);
	}
	lease->row.locator = le_store_pack_tid(&tuple->tts_tid);
	lease->row.on_disk = true;
	ExecClearTuple(tuple);
}

static void
delete_lease(LeLease *lease, CommandId cid)
{
	ItemPointerData tid;
	TM_FailureData failure;

	le_store_unpack_tid(lease->row.locator, &tid);
	if (!le_store_prepare_page(leases, &tid, 0) ||
		table_tuple_delete(leases, &tid, cid, InvalidSnapshot, InvalidSnapshot, true, &failure, false) !=
			TM_Ok)
		row_changed(lease);
	lease->row.on_disk = false;
}

int
le_store_write_leases(LeCore *core, CommandId cid)
{
	int rows = 0;

	for (LeLease *lease = le_core_dirty_leases(core); lease != NULL; lease = lease->dirty_next)
	{
		if (!lease->ended)
			put_lease(lease, cid);
		else if (lease->row.on_disk)
			delete_lease(lease, cid);
		rows++;
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
	if (!le_core_load_lease(core, &cmd, left, le_store_pack_tid(&row->tts_tid), now))
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
}

/* Returns the highest id. */
int64
le_store_load_leases(LeCore *core, const LeLoadHooks *hooks, LeTime now)
{
	Relation rel = table_open(le_store_tables.lease_oid, RowExclusiveLock);
	TupleTableSlot *row = table_slot_create(rel, NULL);
	TableScanDesc scan;
	int64 highest = 0;

	le_store_check_lease_table(rel);
	le_store_tables.lease_file = le_relfilenumber(rel);
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
