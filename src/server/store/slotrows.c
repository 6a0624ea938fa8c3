/*
 * store/slotrows.c
 *		Writes and loads the rows of _lock_election.slot, which contain holders and closed names.
 *
 * The core records which slots are dirty, and where the row of each slot is.  A slot may have its own row,
 * take over the row of an idle lock (see core/recycle.c), or have no row yet.  The core ensures that no slot
 * has two holders; PostgreSQL also checks this, with the unique key (kind, name, slot).
 */
#include "postgres.h"

#include "access/table.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

#include "core/effects.h"
#include "shared/fault.h"
#include "store/store.h"
#include "store/table.h"

/* --- writing --- */

/* Returns the time of day until which a name is closed, or 0 if it is open. */
static int64
closed_until(LeTime until, const LeClock *clock)
{
	return until > clock->now ? le_store_to_wall(clock, until) : 0;
}

/*
 * Returns the row of a slot.  The slot may be free or held, or a fence may keep it after its holder has
 * ended.
 */
static LeStoredEntry
row_of(const LeCore *core, const LeSlot *slot, const LeClock *clock)
{
	const LeEntry *holder = le_slot_holder(slot);
	const LeLock *lock = slot->lock;
	LeStoredEntry row = {.kind = (LeKind) lock->kind, .name = {lock->name, lock->name_len}};

	if (holder == NULL)
	{
		row.since = clock->wall; /* the time at which the row was written */
		row.closed_until = closed_until(lock->closed_until, clock);
		row.role = row.closed_until != 0 ? lock->closed_by : InvalidOid;
	}
	else
	{
		row = le_store_entry(core, holder);
		row.since = le_store_to_wall(clock, holder->acquired_at);
		Assert(holder->state == LE_STATE_HELD || holder->end != LE_END_NONE);
		if (holder->state == LE_STATE_LAPSED)
		{
			row.time_left = -(LeTime) holder->end;
			row.expires_at = le_store_to_wall(clock, holder->lapsed_at);
			row.closed_until = closed_until(holder->closed_until, clock);
		}
		else if (le_entry_has_own_time(holder))
		{
			/* the current deadline, although later renewals do not update the row */
			row.expires_at = le_store_to_wall(clock, holder->deadline);
		}
	}
	row.slot = slot->number;
	return row;
}

int
le_store_write_slots(LeCore *core, const LeClock *clock)
{
	int rows = 0;

	for (LeSlot *slot = NULL; (slot = le_next_dirty_slot(core, slot)) != NULL;)
	{
		bool done;

		if (le_slot_holder(slot) == NULL && !slot->row.on_disk)
			continue;
		if (le_slot_holder(slot) == NULL && slot->drop)
			done = le_table_delete(&le_slot_table, &slot->row);
		else
		{
			LeStoredEntry row = row_of(core, slot, clock);

			Assert(slot->row.dirty && slot->number >= 0);
			done = le_table_put(&le_slot_table, &slot->row, &row);
		}
		if (!done)
			le_store_row_changed(&le_slot_table,
								 psprintf("lock \"%.*s\"", (int) slot->lock->name_len, slot->lock->name));
		rows++;
		LE_FAULT("store-row");
	}
	return rows;
}

/* --- reading --- */

/* Reads a row.  Texts point into the row. */
static LeStoredEntry
read_slot(TupleTableSlot *tuple)
{
	LeStoredEntry row = {.locator = le_table_locator(&tuple->tts_tid)};

	le_table_read(&le_slot_table, tuple, &row);

	/*
	 * a negative time_left means that the holder has ended and is only fenced; it encodes how the holder
	 * ended
	 */
	if (row.time_left < 0)
	{
		row.end = row.time_left < -(LeTime) LE_END_REPLACED ? LE_END_REPLACED : (LeEnd) -row.time_left;
		row.time_left = 0;
	}
	return row;
}

/* --- loading --- */

bool
le_store_load_slots(LeCore *core, LeCore *failed)
{
	LeRows rows;

	le_rows_begin(&rows, &le_slot_table, failed);
	while (le_rows_next(&rows))
	{
		LeStoredEntry row = read_slot(rows.tuple);
		int64 newest;
		LeLoadStatus status = le_core_load_slot(core, &row, &newest);

		/* another process has written to the table; only a load detects this */
		if (status == LE_LOADED_RIVAL)
			ereport(WARNING, (errcode(ERRCODE_DATA_CORRUPTED),
							  errmsg("\"%.*s\" has two holders in table \"_lock_election.slot\"",
									 (int) row.name.len, row.name.data),
							  errdetail("The newer one is kept, " INT64_FORMAT ".", newest),
							  errhint("The table is written only by lock_election.")));
		le_rows_taken(&rows, status);
	}
	return le_rows_end(&rows);
}

void
le_store_scan(void (*callback)(void *arg, const LeStoredEntry *row), void *arg)
{
	Relation rel;
	TupleTableSlot *tuple;
	TableScanDesc scan;

	if (!le_store_find())
		return;
	rel = le_table_open_to_read(&le_slot_table, AccessShareLock);
	tuple = table_slot_create(rel, NULL);
	scan = table_beginscan_strat(rel, GetActiveSnapshot(), 0, NULL, true, true);
	while (table_scan_getnextslot(scan, ForwardScanDirection, tuple))
	{
		LeStoredEntry row;

		row = read_slot(tuple);
		if (!le_stored_slot_valid(&row))
			le_store_invalid_row(rel, tuple);
		if (row.mode != 0 || row.closed_until > GetCurrentTimestamp())
			callback(arg, &row);
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(tuple);
	table_close(rel, AccessShareLock);
}
