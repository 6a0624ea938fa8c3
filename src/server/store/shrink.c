/*
 * store/shrink.c
 *		A table that is mostly dead rows is written anew.
 *
 * While somebody keeps an old snapshot, VACUUM removes no dead row, and the
 * tables grow with each batch.  What it does remove later leaves the table as
 * large as it was: vacuum_truncate is off, for the manager would wait for that.
 * A manager that starts reads all of it.
 *
 * So the manager copies the rows that it can see to a new table, and lets
 * PostgreSQL swap the files of the two and build the key, as REFRESH MATERIALIZED
 * VIEW does: so the key is checked once more.  It is one transaction; a crash, or an
 * error, leaves the old file.  Nobody is waited for: the lock is taken if it is free,
 * or the next time.
 *
 * Old snapshots are no obstacle, as nothing reads these tables to learn of the
 * past: the rows are frozen, so each snapshot sees the new ones.  VACUUM FULL would
 * copy all dead rows that an old snapshot may see.  For logical decoding nothing has
 * happened, as with VACUUM FULL.
 */
#include "postgres.h"

#include "access/multixact.h"
#include "access/table.h"
#include "access/tableam.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/snapmgr.h"

#include "shared/fault.h"
#include "store/table.h"

/* A table of 64 MB is soon read. */
#define SHRINK_PAGES 8192
/* Worth it with so many pages for each row. */
#define PAGES_A_ROW 4
/* More take the manager too long to copy. */
#define SHRINK_ROWS 100000

static StoreTable *const tables[LE_DB_TABLES] = {&le_slot_table, &le_lease_table, &le_queue_table};

/* Where the rows of a table are once the transaction is committed. */
static struct
{
	LeRelFileNumber file; /* InvalidOid: as it was */
	LeSpot *spots;        /* the new ones */
	uint32 n;
} moved[LE_DB_TABLES];

/* --- copying --- */

/*
 * Copy all rows that can be seen, in the order of their TIDs: no scan that joins
 * another one, and begins where that is.  Those of the core are met in that order; a
 * row that it does not know is copied as well, for whoever loads it.
 */
static int
copy_rows(StoreTable *table, Relation from, Relation to, LeSpot *spots, uint32 n)
{
	TupleTableSlot *row = table_slot_create(from, NULL);
	TableScanDesc scan = table_beginscan_strat(from, GetActiveSnapshot(), 0, NULL, true, false);
	uint32 next = 0;
	int rows = 0;

	while (table_scan_getnextslot(scan, ForwardScanDirection, row))
	{
		uint64 old = le_table_locator(&row->tts_tid);

		table_tuple_insert(to, row, FirstCommandId, TABLE_INSERT_FROZEN | TABLE_INSERT_NO_LOGICAL, NULL);
		if (next < n && spots[next].locator == old)
			spots[next++].locator = le_table_locator(&row->tts_tid);
		rows++;
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(row);
	Assert(next <= n && next <= rows);
	if (next < n)
	{
		table->known = false; /* or each look would copy the table, in vain */
		le_store_row_changed(table, "an entry");
	}
	return rows;
}

/* The table is locked by us alone; it is closed.  Returns its pages. */
static BlockNumber
rewrite(LeCore *core, int i, Relation rel)
{
	StoreTable *table = tables[i];
	BlockNumber old_pages = RelationGetNumberOfBlocks(rel), pages;
	char persistence = rel->rd_rel->relpersistence;
	Oid copy_oid = make_new_heap(table->oid, rel->rd_rel->reltablespace, rel->rd_rel->relam, persistence,
								 AccessExclusiveLock);
	Relation copy = table_open(copy_oid, NoLock);
	int rows;

	LE_FAULT("shrink-new-file");
	Assert(table->nleft == 0 && table->known);
	moved[i].spots = le_known_spots(table, core, &moved[i].n);
	rows = copy_rows(table, rel, copy, moved[i].spots, moved[i].n);
	pages = RelationGetNumberOfBlocks(copy);
	le_make_visibility_map(copy);
	moved[i].file = le_relfilenumber(copy);
	Assert(moved[i].file != table->file);
	LE_FAULT("shrink-copied");
	pgstat_count_truncate(rel);
	pgstat_force_next_flush(); /* or the next commit forgets it */
	table_close(copy, NoLock);
	table_close(rel, NoLock);
	le_finish_heap_swap(table->oid, copy_oid, RecentXmin, ReadNextMultiXactId(), persistence);
	ereport(LOG,
			(errmsg("table \"%s.%s\" was mostly dead rows and is written anew", STORE_SCHEMA, table->name),
			 errdetail("It has %d rows, and had %u pages; now it has %u.", rows, old_pages, pages)));
	return pages;
}

/* --- looking --- */

/* NULL: somebody has it. */
static Relation
open_if_free(const StoreTable *table)
{
	if (!ConditionalLockRelationOid(table->oid, AccessShareLock))
		return NULL;
	return try_table_open(table->oid, NoLock);
}

/* Few rows on many pages; and the rows are where the core has them, not where others have rewritten them. */
static bool
is_worth_it(LeCore *core, const StoreTable *table, Relation rel, BlockNumber pages)
{
	uint32 indexes = le_core_row_indexes(core, table->type);
	uint32 max = Min(pages / PAGES_A_ROW, SHRINK_ROWS);
	uint32 n = 0;

	if (pages <= SHRINK_PAGES || !table->known || le_relfilenumber(rel) != table->file)
		return false;
	for (uint32 i = 0; i < indexes && n <= max; i++)
		n += le_core_row_at(core, table->type, i) != NULL;
	return n <= max;
}

void
le_store_shrink(LeCore *core, MemoryContext context, uint64 *bytes)
{
	MemoryContext old_context = MemoryContextSwitchTo(context);

	memset(moved, 0, sizeof(moved));
	le_store_begin_batch();
	for (int i = 0; i < LE_DB_TABLES; i++)
	{
		Relation rel = open_if_free(tables[i]);
		BlockNumber pages;

		if (rel == NULL)
			continue;
		pages = RelationGetNumberOfBlocks(rel);
		if (is_worth_it(core, tables[i], rel, pages) &&
			ConditionalLockRelationOid(tables[i]->oid, AccessExclusiveLock))
			pages = rewrite(core, i, rel);
		else
			table_close(rel, AccessShareLock);
		bytes[i] = (uint64) pages * BLCKSZ;
	}
	MemoryContextSwitchTo(old_context);
}

void
le_store_shrunk(void)
{
	for (int i = 0; i < LE_DB_TABLES; i++)
	{
		if (moved[i].file == InvalidOid)
			continue;
		Assert(tables[i]->file != moved[i].file);
		for (uint32 n = 0; n < moved[i].n; n++)
		{
			Assert(moved[i].spots[n].row->on_disk);
			moved[i].spots[n].row->locator = moved[i].spots[n].locator;
		}
		tables[i]->file = moved[i].file;
	}
}
