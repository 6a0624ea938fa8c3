/*
 * store/shrink.c
 *		Rewrites a table that consists mostly of dead rows.
 *
 * While any session keeps an old snapshot, VACUUM cannot remove dead rows, and the tables grow with each
 * batch.  When VACUUM removes the rows later, the table's file keeps its size, because vacuum_truncate is
 * off: the manager would have to wait for a truncation.  A large file delays the start of a manager, which
 * reads all of it.
 *
 * So the manager copies the visible rows to a new table.  PostgreSQL then swaps the files of the two tables,
 * as for REFRESH MATERIALIZED VIEW, and builds the index of the key, which checks the key again.  All this is
 * done in one transaction, so that a crash or an error leaves the old file in place.  The manager does not
 * wait for the lock on the table: if the lock is not free, the manager tries again at the next check.
 *
 * Old snapshots do not prevent the rewrite, because no session needs old versions of these rows.  The new
 * rows are frozen, so that every snapshot sees them.  VACUUM FULL would copy all dead rows that an old
 * snapshot may see.  Logical decoding sees no changes, as with VACUUM FULL.
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
#include "store/store.h"
#include "store/table.h"

/* Minimum size of a table that is rewritten, in pages (64 MB).  Smaller tables are read quickly. */
#define SHRINK_PAGES 8192
/* Minimum ratio of pages to rows at which a rewrite is worthwhile. */
#define PAGES_A_ROW 4
/* Maximum number of rows to copy; more rows would take the manager too long. */
#define SHRINK_ROWS 100000

static StoreTable *const tables[LE_DB_TABLES] = {&le_slot_table, &le_lease_table, &le_queue_table};

/* The new positions of the rows of each table, valid once the transaction has committed. */
static struct
{
	LeRelFileNumber file; /* the new file; InvalidOid = the table was not rewritten */
	LeSpot *spots;        /* the rows, with their new locators */
	uint32 n;
} moved[LE_DB_TABLES];

/* --- copying --- */

/*
 * Copies all visible rows, and sets their new locators in spots.  The spots are ordered by TID, so the scan
 * must return the rows in this order, too: it is not a synchronized scan, which may begin in the middle of
 * the table.  Also copies rows that the core does not know, so that the next load finds them.  Returns the
 * number of rows.
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
		table->known = false; /* prevents further attempts, which would fail in the same way */
		le_store_row_changed(table, "an entry");
	}
	return rows;
}

/*
 * Rewrites a table on which this process has an exclusive lock, and closes it.  Returns the new number of
 * pages.
 */
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
	pgstat_force_next_flush(); /* make the next commit report the truncation */
	table_close(copy, NoLock);
	table_close(rel, NoLock);
	le_finish_heap_swap(table->oid, copy_oid, RecentXmin, ReadNextMultiXactId(), persistence);
	ereport(LOG, (errmsg("table \"%s.%s\" contained mostly dead rows and was rewritten", STORE_SCHEMA,
						 table->name),
				  errdetail("It has %d rows, and had %u pages; now it has %u.", rows, old_pages, pages)));
	return pages;
}

/* --- checking --- */

/* Opens the table.  Returns NULL if another process has a conflicting lock. */
static Relation
open_if_free(const StoreTable *table)
{
	if (!ConditionalLockRelationOid(table->oid, AccessShareLock))
		return NULL;
	return try_table_open(table->oid, NoLock);
}

/*
 * Returns whether the table has few rows on many pages, and can be rewritten: the rows are where the core has
 * recorded them, and no other process has rewritten the table.
 */
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
