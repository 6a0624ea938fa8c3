/*
 * store/slotrows.c
 *		Reading the rows of _lock_election.slot: for a manager that starts or has
 *		lost a batch, or for a look at what is stored.  What they mean is for
 *		the core to say.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "shared/compat.h"
#include "store/internal.h"
#include "store/store.h"

/* --- reading --- */

/* The time left of a holder that has ended, and is only fenced, is negative: how it has. */
static void
read_time_left(LeTime stored, LeStoredEntry *row)
{
	if (stored >= 0)
		row->time_left = stored;
	else
		row->end = stored < -(LeTime) LE_END_REPLACED ? LE_END_REPLACED : (LeEnd) -stored;
}

static LeStoredEntry
read_slot(TupleTableSlot *tuple)
{
	const Datum *values = tuple->tts_values;
	LeStoredEntry row = {0};

	slot_getallattrs(tuple);
	row.locator = le_table_locator(&tuple->tts_tid);
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
	read_time_left(DatumGetInt64(values[SLOT_TIME_LEFT]), &row);
	return row;
}

/* --- loading --- */

static bool
load_slots(const LeRowReader *reader, LeCore *failed)
{
	LeRows rows;

	le_rows_begin(&rows, &le_slot_table, failed);
	while (le_rows_next(&rows))
	{
		LeStoredEntry row = read_slot(rows.tuple);

		if (!reader->slot(reader->arg, &row))
			le_store_invalid_row(rows.rel, rows.tuple);
	}
	return le_rows_end(&rows);
}

bool
le_store_load(const LeRowReader *reader, LeCore *failed)
{
	if (!le_store_load_leases(reader, failed) || !load_slots(reader, failed) ||
		!le_store_load_places(reader, failed))
		return false;

	/* nothing can fail any more */
	le_lease_table.known = le_slot_table.known = le_queue_table.known = true;
	return true;
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
