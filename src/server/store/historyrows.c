/*
 * store/historyrows.c
 *		Reads and writes the history of elections, which has one row for each change.  A row is written in the
 *		batch that makes the change, is never updated, and is deleted when it is older than
 *		lock_election.history_retention.
 *
 * Only the manager adds rows, in the order of their numbers, and each batch is committed before the next one
 * begins.  So a reader that sees a change sees all earlier changes, too.
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

#include "store/store.h"
#include "store/table.h"

/* --- writing --- */

/* Adds the row of a change. */
static void
write_change(const LeChange *change, const LeClock *clock)
{
	const LeLock *lock = change->lock;
	LeRow row = {0};
	LeStoredChange fields = {.number = change->number,
							 .term = change->term,
							 .elected_at = le_store_to_wall(clock, change->elected_at),
							 .at = le_store_to_wall(clock, change->at),
							 .how = (LeHow) change->how,
							 .role = change->role,
							 .election = {lock->name, lock->name_len},
							 .candidate = {change->value != NULL ? change->value : "", change->value_len}};

	Assert(lock->kind == LE_KIND_ELECTION && change->number > change->previous && change->term > 0);
	Assert(change->elected_at <= change->at && change->at <= clock->now);
	(void) le_table_put(&le_history_table, &row, &fields);
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
	le_make_visibility_map(rel);

	/* max may be beyond the end of the table: the scan then ends at the end of the table */
	ItemPointerSet(&min, *from, FirstOffsetNumber);
	ItemPointerSet(&max, *from + pages - 1, MaxOffsetNumber);
	scan = le_beginscan_tidrange(rel, GetActiveSnapshot(), &min, &max);
	while (table_scan_getnextslot_tidrange(scan, ForwardScanDirection, row))
	{
		ItemPointerData tid = row->tts_tid;
		LeStoredChange change = {0};

		/* the scan reads only these pages, so each pass over the table reads every row once */
		Assert(ItemPointerGetBlockNumber(&tid) - *from < pages);
		le_table_read(&le_history_table, row, &change);
		seen(change.role, change.number, le_store_history_bytes(change.election.len, change.candidate.len),
			 change.at < before);
		if (change.at < before)
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

void
le_store_scan_history(LeText election, int64 after, void (*callback)(void *arg, const LeStoredChange *change),
					  void *arg)
{
	Relation rel, index;
	Oid index_oid;
	SysScanDesc scan;
	ScanKeyData keys[2];
	HeapTuple tuple;
	TupleTableSlot *row;

	if (!le_store_find())
		return;

	/* open the index of the key, which orders the changes of an election by number */
	rel = le_table_open_to_read(&le_history_table, AccessShareLock);
	index_oid = get_relname_relid("history_key", le_store_schema);
	if (IndexGetRelation(index_oid, true) != RelationGetRelid(rel))
		le_table_wrong(rel);
	index = index_open(index_oid, AccessShareLock);
	ScanKeyInit(&keys[0], le_history_table.key[0], BTEqualStrategyNumber, F_TEXTEQ,
				PointerGetDatum(cstring_to_text_with_len(election.data, election.len)));
	ScanKeyInit(&keys[1], le_history_table.key[1], BTGreaterStrategyNumber, F_INT8GT, Int64GetDatum(after));

	/* read the changes */
	row = MakeSingleTupleTableSlot(RelationGetDescr(rel), &TTSOpsHeapTuple);
	scan = systable_beginscan_ordered(rel, index, GetActiveSnapshot(), lengthof(keys), keys);
	while ((tuple = systable_getnext_ordered(scan, ForwardScanDirection)) != NULL)
	{
		LeStoredChange change = {0};

		CHECK_FOR_INTERRUPTS();
		ExecStoreHeapTuple(tuple, row, false);
		le_table_read(&le_history_table, row, &change);
		Assert(change.number > after);
		callback(arg, &change);
	}
	ExecDropSingleTupleTableSlot(row);
	systable_endscan_ordered(scan);
	index_close(index, NoLock);
	table_close(rel, NoLock);
}
