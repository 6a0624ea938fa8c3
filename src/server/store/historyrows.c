/*
 * store/historyrows.c
 *		The history of elections: a row for each change, written with the batch
 *		that makes it, never changed, and deleted when it is old.
 *
 * Rows are added by one process, in the order of their numbers, and each batch
 * is committed before the next is begun: who sees a change sees all changes
 * before it.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/index.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

#include "store/table.h"

/* --- writing --- */

/* Add the row of a change. */
static void
write_change(const LeChange *change, const LeClock *clock)
{
	const LeLock *lock = change->lock;
	Datum values[HISTORY_COLUMNS];
	bool nulls[HISTORY_COLUMNS] = {false};
	LeRow row = {0};

	Assert(lock->kind == LE_KIND_ELECTION && change->number > change->previous && change->term > 0);
	values[HISTORY_CHANGE] = Int64GetDatum(change->number);
	values[HISTORY_TERM] = Int64GetDatum(change->term);
	values[HISTORY_ELECTED_AT] = TimestampTzGetDatum(le_store_to_wall(clock, change->elected_at));
	values[HISTORY_AT] = TimestampTzGetDatum(le_store_to_wall(clock, change->at));
	values[HISTORY_ROLE] = ObjectIdGetDatum(change->role);
	values[HISTORY_HOW] = Int16GetDatum(change->how);
	le_store_set_text(values, nulls, HISTORY_ELECTION, lock->name, lock->name_len);
	le_store_set_text(values, nulls, HISTORY_CANDIDATE, change->value != NULL ? change->value : "",
					  change->value_len);
	(void) le_table_put(&le_history_table, &row, values, nulls);
}

int
le_store_write_changes(LeCore *core, const LeClock *clock)
{
	int rows = 0;

	if (le_next_change(core, NULL) == NULL)
		return 0;
	le_table_open(&le_history_table);
	for (const LeChange *change = NULL; (change = le_next_change(core, change)) != NULL; rows++)
		write_change(change, clock);
	le_table_close(&le_history_table);
	return rows;
}

/* --- deleting --- */

void
le_store_prune_history(TimestampTz before, uint32 pages, uint32 *from, LeHistorySeen seen)
{
	Relation rel = le_table_open_to_read(&le_history_table, RowExclusiveLock);
	TupleTableSlot *row = table_slot_create(rel, NULL);
	TableScanDesc scan;
	ItemPointerData min, max;

	Assert(pages > 0 && *from % pages == 0);

	/* the scan ends where the table does, and is empty behind it */
	ItemPointerSet(&min, *from, FirstOffsetNumber);
	ItemPointerSet(&max, *from + pages - 1, MaxOffsetNumber);
	scan = table_beginscan_tidrange(rel, GetActiveSnapshot(), &min, &max);
	while (table_scan_getnextslot_tidrange(scan, ForwardScanDirection, row))
	{
		ItemPointerData tid = row->tts_tid;
		bool old;

		slot_getallattrs(row);
		old = DatumGetTimestampTz(row->tts_values[HISTORY_AT]) < before;
		seen(DatumGetObjectId(row->tts_values[HISTORY_ROLE]), DatumGetInt64(row->tts_values[HISTORY_CHANGE]),
			 le_store_history_bytes(le_store_read_text(row, HISTORY_ELECTION).len,
									le_store_read_text(row, HISTORY_CANDIDATE).len),
			 old);
		if (old)
			simple_heap_delete(rel, &tid);
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(row);
	*from += pages;
	if (*from >= RelationGetNumberOfBlocks(rel))
		*from = 0;
	table_close(rel, NoLock);
}

/* --- reading --- */

/* Read a row; texts point into it. */
static void
read_change(HeapTuple tuple, TupleDesc desc, LeStoredChange *change)
{
	Datum *values = palloc(desc->natts * sizeof(Datum));
	bool *nulls = palloc(desc->natts * sizeof(bool));

	heap_deform_tuple(tuple, desc, values, nulls);
	change->number = DatumGetInt64(values[HISTORY_CHANGE]);
	change->term = DatumGetInt64(values[HISTORY_TERM]);
	change->elected_at = DatumGetTimestampTz(values[HISTORY_ELECTED_AT]);
	change->at = DatumGetTimestampTz(values[HISTORY_AT]);
	change->how = (LeHow) DatumGetInt16(values[HISTORY_HOW]);
	change->candidate = values[HISTORY_CANDIDATE];
}

void
le_store_scan_history(LeText election, int64 after, void (*callback)(void *arg, const LeStoredChange *change),
					  void *arg)
{
	Relation rel, index;
	Oid index_oid;
	SysScanDesc scan;
	ScanKeyData keys[2];
	HeapTuple tuple;

	if (!le_store_find())
		return;

	/* the key's index has the changes of an election in order */
	rel = le_table_open_to_read(&le_history_table, AccessShareLock);
	index_oid = get_relname_relid("history_key", le_store_schema);
	if (!OidIsValid(index_oid) || IndexGetRelation(index_oid, true) != RelationGetRelid(rel))
		le_table_wrong(rel);
	index = index_open(index_oid, AccessShareLock);
	ScanKeyInit(&keys[0], HISTORY_ELECTION + 1, BTEqualStrategyNumber, F_TEXTEQ,
				PointerGetDatum(cstring_to_text_with_len(election.data, election.len)));
	ScanKeyInit(&keys[1], HISTORY_CHANGE + 1, BTGreaterStrategyNumber, F_INT8GT, Int64GetDatum(after));

	/* read */
	scan = systable_beginscan_ordered(rel, index, GetActiveSnapshot(), lengthof(keys), keys);
	while ((tuple = systable_getnext_ordered(scan, ForwardScanDirection)) != NULL)
	{
		LeStoredChange change;

		CHECK_FOR_INTERRUPTS();
		read_change(tuple, RelationGetDescr(rel), &change);
		callback(arg, &change);
	}
	systable_endscan_ordered(scan);
	index_close(index, NoLock);
	table_close(rel, NoLock);
}
