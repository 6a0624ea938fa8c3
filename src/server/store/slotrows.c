/*
 * store/slotrows.c
 *		The rows of _lock_election.slot: who holds what, and names that are closed.
 *
 * The core says which slots are dirty, and where the row of each is: its own,
 * one that was an idle lock's (see core/recycle.c), or none yet.  That no lock has
 * two holders is seen to by the core, and checked by PostgreSQL: the unique key
 * (kind, name, slot).
 */
#include "postgres.h"

#include "access/table.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

#include "core/effects.h"
#include "shared/fault.h"
#include "store/table.h"

/* --- forming a row --- */

static void
form_closed(Datum *values, bool *nulls, LeTime closed_until, const LeClock *clock)
{
	nulls[SLOT_CLOSED_UNTIL] = closed_until <= clock->now;
	values[SLOT_CLOSED_UNTIL] = TimestampTzGetDatum(le_store_to_wall(clock, closed_until));
}

/* The columns of a slot that somebody holds, or has held until a fence lets go of it. */
static void
form_held(Datum *values, bool *nulls, const LeEntry *entry, const LeClock *clock)
{
	bool lapsed = entry->state == LE_STATE_LAPSED;
	bool own = entry->lease == NULL && entry->ttl != LE_TTL_BOUND;
	LeTime expires_at = lapsed ? entry->lapsed_at : entry->deadline;

	Assert(lapsed || entry->state == LE_STATE_HELD);
	Assert(lapsed == (entry->end != LE_END_NONE));
	Assert(entry->token > 0 && entry->mode != 0);
	values[SLOT_TOKEN] = Int64GetDatum(entry->token);
	values[SLOT_ACQUIRED_AT] = TimestampTzGetDatum(le_store_to_wall(clock, entry->acquired_at));
	values[SLOT_TTL] = Int64GetDatum(entry->ttl);
	values[SLOT_TIME_LEFT] = Int64GetDatum(lapsed ? -(int64) entry->end : own ? entry->saved_left : 0);
	values[SLOT_LEASE] = Int64GetDatum(entry->lease ? entry->lease->id : 0);
	values[SLOT_SESSION] = Int64GetDatum((int64) entry->session);
	values[SLOT_ROLE] = ObjectIdGetDatum(entry->role);
	values[SLOT_HOLDS] = Int32GetDatum((int32) entry->hold_count);
	values[SLOT_PERMITS] = Int32GetDatum(entry->lock->permits);
	values[SLOT_MODE] = Int16GetDatum(entry->mode);

	/* the deadline as of now: a renewal writes nothing */
	nulls[SLOT_EXPIRES_AT] = entry->lease != NULL && !lapsed;
	values[SLOT_EXPIRES_AT] = TimestampTzGetDatum(le_store_to_wall(clock, expires_at));
	form_closed(values, nulls, lapsed ? entry->closed_until : 0, clock);
	le_store_set_texts(values, nulls, SLOT_NAME, entry);
}

/* The columns of a free slot: one that is not set is 0. */
static void
form_free(Datum *values, bool *nulls, const LeLock *lock, const LeClock *clock)
{
	values[SLOT_ACQUIRED_AT] = TimestampTzGetDatum(clock->wall);
	values[SLOT_ROLE] = ObjectIdGetDatum(lock->closed_until > clock->now ? lock->closed_by : InvalidOid);
	form_closed(values, nulls, lock->closed_until, clock);
	le_store_set_text(values, nulls, SLOT_NAME, lock->name, lock->name_len);
	nulls[SLOT_EXPIRES_AT] = nulls[SLOT_OWNER] = nulls[SLOT_VALUE] = nulls[SLOT_UNCOMMITTED] =
		nulls[SLOT_ACQUIRER] = true;
}

/* --- writing --- */

/* False: the row was changed by somebody else. */
static bool
put_slot(LeSlot *slot, const LeClock *clock)
{
	const LeEntry *holder = le_slot_holder(slot);
	Datum values[SLOT_COLUMNS] = {0};
	bool nulls[SLOT_COLUMNS] = {false};

	Assert(slot->row.dirty && slot->number >= 0);
	values[SLOT_SLOT] = Int32GetDatum(slot->number);
	values[SLOT_KIND] = Int16GetDatum(slot->lock->kind);
	if (holder != NULL)
		form_held(values, nulls, holder, clock);
	else
		form_free(values, nulls, slot->lock, clock);
	return le_table_put(&le_slot_table, &slot->row, values, nulls);
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
			done = put_slot(slot, clock);
		if (!done)
			le_store_row_changed(&le_slot_table,
								 psprintf("lock \"%.*s\"", (int) slot->lock->name_len, slot->lock->name));
		rows++;
		LE_FAULT("store-row");
	}
	return rows;
}

/* --- reading --- */

/* Read a row; texts point into it. */
static LeStoredEntry
read_slot(TupleTableSlot *tuple)
{
	const Datum *values = tuple->tts_values;
	LeStoredEntry row = {0};
	LeTime left;

	slot_getallattrs(tuple);
	row.locator = le_table_locator(&tuple->tts_tid);

	/* every slot */
	row.kind = (LeKind) DatumGetInt16(values[SLOT_KIND]);
	row.name = le_store_read_text(tuple, SLOT_NAME);
	row.slot = DatumGetInt32(values[SLOT_SLOT]);
	row.mode = (LeMode) DatumGetInt16(values[SLOT_MODE]);
	row.closed = !tuple->tts_isnull[SLOT_CLOSED_UNTIL];
	row.closed_until = row.closed ? DatumGetTimestampTz(values[SLOT_CLOSED_UNTIL]) : 0;
	row.since = DatumGetTimestampTz(values[SLOT_ACQUIRED_AT]); /* of a free one: when it was written */
	row.role = DatumGetObjectId(values[SLOT_ROLE]);
	if (row.mode == 0)
		return row;

	/* a holder */
	row.owner = le_store_read_text(tuple, SLOT_OWNER);
	row.value = le_store_read_text(tuple, SLOT_VALUE);
	row.session = (uint64) DatumGetInt64(values[SLOT_SESSION]);
	row.token = DatumGetInt64(values[SLOT_TOKEN]);
	row.lease = DatumGetInt64(values[SLOT_LEASE]);
	row.permits = DatumGetInt32(values[SLOT_PERMITS]);
	row.ttl = DatumGetInt64(values[SLOT_TTL]);
	row.has_expiry = !tuple->tts_isnull[SLOT_EXPIRES_AT];
	row.expires_at = row.has_expiry ? DatumGetTimestampTz(values[SLOT_EXPIRES_AT]) : 0;
	row.uncommitted = le_store_read_text(tuple, SLOT_UNCOMMITTED);
	row.acquirer = le_store_read_text(tuple, SLOT_ACQUIRER);
	row.holds = DatumGetInt32(values[SLOT_HOLDS]);
	left = DatumGetInt64(values[SLOT_TIME_LEFT]);

	/* of a holder that has ended, and is only fenced, the time left is negative: how it has ended */
	row.time_left = Max(left, 0);
	if (left < 0)
		row.end = left < -(LeTime) LE_END_REPLACED ? LE_END_REPLACED : (LeEnd) -left;
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

		/* nothing but a load sees what somebody else has written into the table */
		if (status == LE_LOADED_RIVAL)
			ereport(WARNING, (errcode(ERRCODE_DATA_CORRUPTED),
							  errmsg("\"%.*s\" has two holders in table \"_lock_election.slot\"",
									 (int) row.name.len, row.name.data),
							  errdetail("The newer one stays, " INT64_FORMAT ".", newest),
							  errhint("The table is written by lock_election alone.")));
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
	scan = table_beginscan(rel, GetActiveSnapshot(), 0, NULL);
	while (table_scan_getnextslot(scan, ForwardScanDirection, tuple))
	{
		LeStoredEntry row;

		CHECK_FOR_INTERRUPTS();
		row = read_slot(tuple);
		if (!le_stored_slot_valid(&row))
			le_store_invalid_row(rel, tuple);
		if (row.mode != 0 || (row.closed && row.closed_until > GetCurrentTimestamp()))
			callback(arg, &row);
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(tuple);
	table_close(rel, AccessShareLock);
}
