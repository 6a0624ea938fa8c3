/*
 * store/readback.c
 *		Reads the rows of a table: all rows, or only those whose TIDs are known.
 *
 * A table may contain very many dead versions, because they cannot be removed while any session keeps an old
 * snapshot.  When a manager starts, it reads the whole table.  After a failed batch it reads only the
 * following rows, which are still where they were before the batch:
 *
 *	-	the rows that the core of the failed batch knows.  If such a row is dirty, the batch may have written
 *		it, so there may be no row at its TID;
 *	-	the rows that the batch has updated or deleted (StoreTable.left).
 *
 * If a row is missing that must exist, another process has written to the table, and the manager reads the
 * whole table.  It does the same if such a write was detected before (StoreTable.known is then false).
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/snapmgr.h"

#include "store/store.h"
#include "store/table.h"

/* --- rows that a batch updates or deletes --- */

void
le_store_begin_batch(void)
{
	le_slot_table.nleft = le_lease_table.nleft = le_queue_table.nleft = 0;
}

/* --- positions of the rows --- */

/* Compares two spots by TID.  Of two spots with the same TID, the spot where a row must exist comes first. */
static int
compare_spots(const void *a, const void *b)
{
	const LeSpot *sa = a, *sb = b;

	if (sa->locator != sb->locator)
		return sa->locator < sb->locator ? -1 : 1;
	return (int) sb->sure - (int) sa->sure;
}

LeSpot *
le_known_spots(const StoreTable *table, LeCore *core, uint32 *n)
{
	uint32 indexes = le_core_row_indexes(core, table->type);
	LeSpot *spots =
		MemoryContextAllocHuge(CurrentMemoryContext, ((Size) indexes + table->nleft) * sizeof(LeSpot));

	*n = 0;
	for (uint32 i = 0; i < indexes; i++)
	{
		LeRow *row = le_core_row_at(core, table->type, i);

		Assert(row == NULL || row->on_disk);
		if (row != NULL)
			spots[(*n)++] = (LeSpot){.locator = row->locator, .sure = !row->dirty, .row = row};
	}
	for (int i = 0; i < table->nleft; i++)
		spots[(*n)++] = (LeSpot){.locator = table->left[i], .sure = true};
	Assert(*n <= indexes + (uint32) table->nleft);
	qsort(spots, *n, sizeof(LeSpot), compare_spots);
	return spots;
}

/* --- reading --- */

void
le_rows_begin(LeRows *rows, StoreTable *table, LeCore *failed)
{
	LeRelFileNumber file = table->file;

	Assert(ActiveSnapshotSet());
	memset(rows, 0, sizeof(*rows));
	rows->table = table;
	rows->rel = le_table_open_to_load(table);

	/*
	 * take a new snapshot: an older one sees no rows if the table was rewritten during the wait for its lock
	 */
	PopActiveSnapshot();
	PushActiveSnapshot(GetTransactionSnapshot());
	if (table->file != file)
		table->known = false;
	rows->tuple = table_slot_create(rows->rel, NULL);
	if (failed != NULL && table->known)
	{
		rows->blocks = RelationGetNumberOfBlocks(rows->rel);
		rows->spots = le_known_spots(table, failed, &rows->nspots);
		return;
	}
	rows->scan = table_beginscan_strat(rows->rel, GetActiveSnapshot(), 0, NULL, true, true);
}

bool
le_rows_next(LeRows *rows)
{
	CHECK_FOR_INTERRUPTS();
	if (rows->scan != NULL)
		return table_scan_getnextslot(rows->scan, ForwardScanDirection, rows->tuple);
	while (rows->next < rows->nspots)
	{
		const LeSpot *spot = &rows->spots[rows->next++];
		ItemPointerData tid;

		Assert(rows->next == 1 || spot[-1].locator <= spot->locator);
		if (rows->next > 1 && spot->locator == spot[-1].locator)
		{
			Assert(spot[-1].sure); /* skip the second spot of a row that the batch has updated or deleted */
			continue;
		}
		le_table_tid(spot->locator, &tid);
		if (ItemPointerGetBlockNumber(&tid) < rows->blocks &&
			table_tuple_fetch_row_version(rows->rel, &tid, GetActiveSnapshot(), rows->tuple))
			return true;
		if (spot->sure)
		{
			rows->lost = true;
			return false;
		}
	}
	return false;
}

void
le_rows_taken(const LeRows *rows, LeLoadStatus status)
{
	Assert(!rows->lost);
	if (status == LE_LOAD_NO_MEMORY)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory"),
						errdetail("The locks of this database do not fit into memory.")));
	if (status == LE_LOAD_INVALID)
		le_store_invalid_row(rows->rel, rows->tuple);
}

bool
le_rows_end(LeRows *rows)
{
	Assert((rows->scan == NULL) != (rows->spots == NULL));
	Assert(!rows->lost || rows->scan == NULL);
	if (rows->scan != NULL)
		table_endscan(rows->scan);
	else
		pfree(rows->spots);
	ExecDropSingleTupleTableSlot(rows->tuple);
	table_close(rows->rel, NoLock);
	if (rows->lost)
		rows->table->known = false;
	return !rows->lost;
}
