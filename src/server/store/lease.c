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
						   .locator = le_store_pack_tid(&row->tts_tid)};
}

void
le_store_load_leases(const LeRowReader *reader)
{
	Relation rel = table_open(le_store_tables.lease_oid, RowExclusiveLock);
	TupleTableSlot *row = table_slot_create(rel, NULL);
	TableScanDesc scan;

	le_store_check_lease_table(rel);
	le_store_tables.lease_file = le_relfilenumber(rel);
	scan = table_beginscan(rel, GetActiveSnapshot(), 0, NULL);
	while (table_scan_getnextslot(scan, ForwardScanDirection, row))
	{
		LeStoredLease lease;

		CHECK_FOR_INTERRUPTS();
		lease = read_lease(row);
		if (!reader->lease(reader->arg, &lease))
			le_store_invalid_row(rel, row);
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(row);
	table_close(rel, NoLock);
}
