/*
 * store/write.c
 *		Writing a batch: the rows of _lock_election.slot.
 *
 * The core says which slots are dirty, and where the row of each is: its own,
 * one that was an idle lock's (see core/recycle.c), or none yet.  That no lock has
 * two holders is seen to by the core, and checked by PostgreSQL: the unique key
 * (kind, name, slot).
 */
#include "postgres.h"

#include "utils/builtins.h"

#include "shared/fault.h"
#include "shared/shmem.h"
#include "store/internal.h"
#include "store/store.h"

/* --- opening for a batch --- */

/* Those that are to be written. */
static bool
open_table(StoreTable *table, bool needed)
{
	return !needed || le_table_open_loaded(table);
}

static void
close_table(StoreTable *table)
{
	if (table->rel != NULL)
		le_table_close(table);
}

bool
le_store_open(LeCore *core)
{
	le_slot_table.rel = le_lease_table.rel = le_queue_table.rel = NULL;
	return open_table(&le_slot_table, true) &&
		   open_table(&le_lease_table, le_next_dirty_lease(core, NULL) != NULL) &&
		   open_table(&le_queue_table, le_next_dirty_place(core, NULL) != NULL);
}

void
le_store_close(void)
{
	close_table(&le_slot_table);
	close_table(&le_lease_table);
	close_table(&le_queue_table);
}

/* --- forming a row --- */

static void
form_closed(Datum *values, bool *nulls, LeTime closed_until, const LeClock *clock)
{
	nulls[SLOT_CLOSED_UNTIL] = closed_until <= clock->now;
	values[SLOT_CLOSED_UNTIL] = TimestampTzGetDatum(le_store_to_wall(clock, closed_until));
}

static void
form_held(Datum *values, bool *nulls, const LeEntry *entry, const LeClock *clock)
{
	bool lapsed = entry->state == LE_STATE_LAPSED;
	bool own = entry->lease == NULL && entry->ttl != LE_TTL_BOUND;
	LeTime expires_at = lapsed ? entry->lapsed_at : entry->deadline;

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

	/* as of now, for renewals write nothing */
	nulls[SLOT_EXPIRES_AT] = entry->lease != NULL && !lapsed;
	values[SLOT_EXPIRES_AT] = TimestampTzGetDatum(le_store_to_wall(clock, expires_at));
	form_closed(values, nulls, lapsed ? entry->closed_until : 0, clock);
	le_store_set_texts(values, nulls, SLOT_NAME, entry);
}

/* What is not set is 0. */
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

static bool
put_slot(LeSlot *slot, const LeClock *clock)
{
	const LeEntry *holder = le_slot_holder(slot);
	Datum values[SLOT_COLUMNS] = {0};
	bool nulls[SLOT_COLUMNS] = {false};

	values[SLOT_SLOT] = Int32GetDatum(slot->number);
	values[SLOT_KIND] = Int16GetDatum(slot->lock->kind);
	if (holder != NULL)
		form_held(values, nulls, holder, clock);
	else
		form_free(values, nulls, slot->lock, clock);
	return le_table_put(&le_slot_table, &slot->row, values, nulls);
}

static int
write_slots(LeCore *core, const LeClock *clock)
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

int
le_store_write(LeCore *core, LeTime now)
{
	LeClock clock = {now, le_wall(now)};
	int rows;

	rows = write_slots(core, &clock);
	rows += le_store_write_leases(core, &clock);
	LE_FAULT("store-slots-written");
	rows += le_store_write_places(core, &clock);
	LE_FAULT("store-places-written");
	rows += le_store_write_changes(core, &clock);
	return rows;
}
