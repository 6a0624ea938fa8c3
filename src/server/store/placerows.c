/*
 * store/placerows.c
 *		Writes and loads the rows of queue places.
 *
 * A place has a row from the time when it enters the queue until it ends or is granted.  If it is granted,
 * the same transaction writes the row of its slot.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/snapmgr.h"

#include "store/table.h"

/* --- writing --- */

/* Writes the row of a place.  Returns false if another process has changed the row. */
static bool
put_place(const LeCore *core, LeEntry *entry, const LeClock *clock)
{
	LeStoredEntry row = le_store_entry(core, entry);

	Assert(entry->waiter->since != 0);
	row.since = le_store_to_wall(clock, entry->waiter->since);
	row.member = entry->waiter->member;
	return le_table_put(&le_queue_table, &entry->waiter->row, &row);
}

int
le_store_write_places(LeCore *core, const LeClock *clock)
{
	int rows = 0;

	for (LeEntry *entry = NULL; (entry = le_next_dirty_place(core, entry)) != NULL;)
	{
		bool queued = entry->state == LE_STATE_QUEUED;

		if (!queued && !entry->waiter->row.on_disk)
			continue;
		/* a queued place that already has a row is written again because it got another hold */
		if (!(queued ? put_place(core, entry, clock) : le_table_delete(&le_queue_table, &entry->waiter->row)))
			le_store_row_changed(&le_queue_table, psprintf("queue place " INT64_FORMAT, entry->token));
		rows++;
	}
	return rows;
}

/* --- loading --- */

/* The token of a place, and the TID of the row of that place. */
typedef struct Place
{
	int64 token;
	ItemPointerData tid;
} Place;

static int
compare_token(const void *a, const void *b)
{
	int64 ta = ((const Place *) a)->token, tb = ((const Place *) b)->token;

	return (ta > tb) - (ta < tb);
}

/* Loads all places in the order of their tokens, which is the order of a queue. */
bool
le_store_load_places(LeCore *core, LeCore *failed)
{
	LeRows rows;
	StringInfoData found;
	Place *places;
	int n;

	/* find the rows of all places */
	initStringInfo(&found);
	le_rows_begin(&rows, &le_queue_table, failed);
	while (le_rows_next(&rows))
	{
		bool isnull;
		Place place = {.token = DatumGetInt64(slot_getattr(rows.tuple, le_queue_table.key[0], &isnull)),
					   .tid = rows.tuple->tts_tid};

		appendBinaryStringInfo(&found, (const char *) &place, sizeof(place));
	}
	n = found.len / (int) sizeof(Place);
	places = (Place *) found.data;
	qsort(places, n, sizeof(Place), compare_token);

	/* load the places, unless a row was missing: the caller then reads all rows again */
	for (int i = 0; i < n && !rows.lost; i++)
	{
		LeStoredEntry place = {0};

		Assert(i == 0 || places[i - 1].token <= places[i].token);
		CHECK_FOR_INTERRUPTS();
		if (!table_tuple_fetch_row_version(rows.rel, &places[i].tid, GetActiveSnapshot(), rows.tuple))
			elog(ERROR, "a row of table \"%s.%s\" has gone", STORE_SCHEMA, RelationGetRelationName(rows.rel));
		le_table_read(&le_queue_table, rows.tuple, &place);
		place.locator = le_table_locator(&rows.tuple->tts_tid);
		le_rows_taken(&rows, le_core_load_place(core, &place));
	}
	return le_rows_end(&rows);
}
