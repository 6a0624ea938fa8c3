/*
 * store/history.c
 *		The history of elections: a row for each change, written with the batch
 *		that makes it, never changed, and deleted when it is old.
 *
 * Rows are added by one process, in the order of their numbers, and each batch
 * is committed before the next is begun: who sees a change sees all changes
 * before it.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/index.h"
#include "catalog/indexing.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_type_d.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

#include "store/internal.h"
#include "store/store.h"

/* The columns of lock_election.history, in their order. */
enum
{
	HISTORY_CHANGE,
	HISTORY_TERM,
	HISTORY_ELECTED_AT,
	HISTORY_AT,
	HISTORY_HOW, /* LeHow */
	HISTORY_ELECTION,
	HISTORY_CANDIDATE,
	HISTORY_COLUMNS
};

static const Oid history_types[HISTORY_COLUMNS] = {INT8OID, INT8OID, TIMESTAMPTZOID, TIMESTAMPTZOID,
												   INT2OID, TEXTOID, TEXTOID};

static Relation
open_history(LOCKMODE lockmode)
{
	Relation rel = table_open(le_store_tables.history_oid, lockmode);

	le_store_check_shape(rel, history_types, HISTORY_COLUMNS);
	return rel;
}

/* --- writing --- */

static HeapTuple
form_change(TupleDesc desc, const LeChange *change, const Clock *clock)
{
	const LeLock *lock = change->lock;
	text *election = cstring_to_text_with_len(lock->name, lock->name_len);
	text *candidate = cstring_to_text_with_len(change->value != NULL ? change->value : "", change->value_len);
	Datum values[HISTORY_COLUMNS];
	bool nulls[HISTORY_COLUMNS] = {false};
	HeapTuple tuple;

	values[HISTORY_CHANGE] = Int64GetDatum(change->number);
	values[HISTORY_TERM] = Int64GetDatum(change->term);
	values[HISTORY_ELECTED_AT] = TimestampTzGetDatum(le_store_to_wall(clock, change->elected_at));
	values[HISTORY_AT] = TimestampTzGetDatum(le_store_to_wall(clock, change->at));
	values[HISTORY_HOW] = Int16GetDatum(change->how);
	values[HISTORY_ELECTION] = PointerGetDatum(election);
	values[HISTORY_CANDIDATE] = PointerGetDatum(candidate);
	tuple = heap_form_tuple(desc, values, nulls);
	pfree(election);
	pfree(candidate);
	return tuple;
}

/* An index that an administrator has added is kept up if that is simple. */
static void
check_index(Relation rel, Relation index, const IndexInfo *info)
{
	bool simple = index->rd_rel->relam == BTREE_AM_OID && info->ii_Expressions == NIL &&
				  info->ii_Predicate == NIL && info->ii_ExclusionOps == NULL;

	for (int i = 0; simple && i < info->ii_NumIndexAttrs; i++)
		simple = info->ii_IndexAttrNumbers[i] > 0;
	if (!simple)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("index \"%s\" of table \"%s.%s\" is not supported",
							   RelationGetRelationName(index), STORE_NAME, RelationGetRelationName(rel)),
						errdetail("Only B-tree indexes on plain columns are."), errhint("Drop the index.")));
}

static void
check_indexes(CatalogIndexState indexes)
{
	for (int i = 0; i < indexes->ri_NumIndices; i++)
		check_index(indexes->ri_RelationDesc, indexes->ri_IndexRelationDescs[i],
					indexes->ri_IndexRelationInfo[i]);
}

int
le_store_write_changes(LeCore *core, const Clock *clock)
{
	Relation rel;
	CatalogIndexState indexes;
	int rows = 0;

	if (le_core_changes(core) == NULL)
		return 0;
	rel = open_history(RowExclusiveLock);
	indexes = CatalogOpenIndexes(rel);
	check_indexes(indexes);
	for (const LeChange *change = le_core_changes(core); change != NULL; change = change->next, rows++)
	{
		HeapTuple tuple = form_change(RelationGetDescr(rel), change, clock);

		/* a lease may have ended with very many leaders on it */
		CatalogTupleInsertWithInfo(rel, tuple, indexes);
		heap_freetuple(tuple);
	}
	CatalogCloseIndexes(indexes);
	table_close(rel, NoLock);
	return rows;
}

/* --- deleting --- */

bool
le_store_has_history(void)
{
	Relation rel = open_history(AccessShareLock);
	bool any = RelationGetNumberOfBlocks(rel) > 0;

	table_close(rel, NoLock);
	return any;
}

static void
prune_pages(Relation rel, BlockNumber from, BlockNumber pages, TimestampTz before)
{
	TupleTableSlot *row = table_slot_create(rel, NULL);
	TableScanDesc scan;
	ItemPointerData min, max;

	ItemPointerSet(&min, from, FirstOffsetNumber);
	ItemPointerSet(&max, from + pages - 1, MaxOffsetNumber);
	scan = table_beginscan_tidrange(rel, GetActiveSnapshot(), &min, &max);
	while (table_scan_getnextslot_tidrange(scan, ForwardScanDirection, row))
	{
		ItemPointerData tid = row->tts_tid;
		bool isnull;

		if (DatumGetTimestampTz(slot_getattr(row, HISTORY_AT + 1, &isnull)) >= before)
			continue;
		CatalogTupleDelete(rel, &tid);
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(row);
}

void
le_store_prune_history(TimestampTz before, uint32 pages, uint32 *from)
{
	Relation rel = open_history(RowExclusiveLock);
	BlockNumber blocks = RelationGetNumberOfBlocks(rel);

	/* it may have become smaller */
	if (*from < blocks)
	{
		pages = Min(pages, blocks - *from);
		prune_pages(rel, *from, pages, before);
		*from += pages;
	}
	if (*from >= blocks)
		*from = 0;
	table_close(rel, NoLock);
}

/* --- reading --- */

static void
read_change(HeapTuple tuple, TupleDesc desc, LeStoredChange *change)
{
	Datum values[HISTORY_COLUMNS];
	bool nulls[HISTORY_COLUMNS];

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
	rel = open_history(AccessShareLock);
	index_oid = get_relname_relid("history_key", le_store_tables.nspoid);
	if (!OidIsValid(index_oid) || IndexGetRelation(index_oid, true) != RelationGetRelid(rel))
		le_store_wrong_table(rel);
	index = index_open(index_oid, AccessShareLock);
	ScanKeyInit(&keys[0], HISTORY_ELECTION + 1, BTEqualStrategyNumber, F_TEXTEQ,
				PointerGetDatum(cstring_to_text_with_len(election.data, election.len)));
	ScanKeyInit(&keys[1], HISTORY_CHANGE + 1, BTGreaterStrategyNumber, F_INT8GT, Int64GetDatum(after));
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
