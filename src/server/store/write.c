/*
 * store/write.c
 *		Writing a batch: the rows of _lock_election.slot.
 *
 * The core says which slots are dirty; here it is decided which row each of
 * them is written to: its own, one that a lock left idle lends to it (see
 * store/lend.c), or a new one.  That no lock has two holders is seen to by the
 * core, and checked by PostgreSQL: the unique key (kind, name, slot).
 */
#include "postgres.h"

#include "access/xact.h"

#include "shared/fault.h"
#include "shared/shmem.h"
#include "store/internal.h"
#include "store/lend.h"
#include "store/store.h"

/* Uncommitted holds that a row can tell; more count as committed at a load. */
#define MAX_UNCOMMITTED 64

#define TEXT_BUFFER(max)                                                                                     \
	struct                                                                                                   \
	{                                                                                                        \
		int32 vl_len_;                                                                                       \
		char data[max];                                                                                      \
	}

/* A row in the making; one at a time. */
typedef struct RowBuffer
{
	Datum values[SLOT_COLUMNS];
	bool nulls[SLOT_COLUMNS];
	TEXT_BUFFER(LE_MAX_NAME) name;
	TEXT_BUFFER(LE_MAX_OWNER) owner;
	TEXT_BUFFER(LE_MAX_VALUE) value;
	TEXT_BUFFER(MAX_UNCOMMITTED * sizeof(UncommittedHold)) uncommitted;
	TEXT_BUFFER(LE_MAX_ACQUIRER) acquirer;
} RowBuffer;

static RowBuffer row;

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
		   open_table(&le_lease_table, le_core_dirty_leases(core) != NULL) &&
		   open_table(&le_queue_table, le_core_dirty_places(core) != NULL);
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
set_text(int column, void *buffer, const char *data, Size len)
{
	row.nulls[column] = data == NULL;
	if (data == NULL)
		return;
	SET_VARSIZE(buffer, VARHDRSZ + len);
	if (data != VARDATA(buffer))
		memcpy(VARDATA(buffer), data, len);
	row.values[column] = PointerGetDatum(buffer);
}

/* The columns that a free row has as well. */
static void
form_common(const LeSlot *slot)
{
	const LeLock *lock = slot->lock;

	Assert(lock->name_len > 0 && lock->name_len <= LE_MAX_NAME);
	row.values[SLOT_SLOT] = Int32GetDatum(slot->number);
	row.values[SLOT_KIND] = Int16GetDatum(lock->kind);
	set_text(SLOT_NAME, &row.name, lock->name, lock->name_len);
}

static void
form_uncommitted(const LeEntry *entry)
{
	Size len = 0;

	for (const LeHold *hold = entry->holds; hold != NULL && len < sizeof(row.uncommitted.data);
		 hold = hold->next)
	{
		UncommittedHold uncommitted = {hold->session, hold->xact, hold->subxact};

		memcpy(row.uncommitted.data + len, &uncommitted, sizeof(uncommitted));
		len += sizeof(uncommitted);
	}
	set_text(SLOT_UNCOMMITTED, &row.uncommitted, len > 0 ? row.uncommitted.data : NULL, len);
}

/* As of now, for renewals write nothing. */
static void
form_expiry(const LeEntry *entry, const Clock *clock)
{
	bool lapsed = entry->state == LE_STATE_LAPSED;
	LeTime at = lapsed ? entry->lapsed_at : entry->deadline;

	row.nulls[SLOT_EXPIRES_AT] = entry->lease != NULL && !lapsed;
	row.values[SLOT_EXPIRES_AT] = TimestampTzGetDatum(le_store_to_wall(clock, at));
}

static void
form_closed_until(LeTime closed_until, const Clock *clock)
{
	row.nulls[SLOT_CLOSED_UNTIL] = closed_until <= clock->now;
	row.values[SLOT_CLOSED_UNTIL] = TimestampTzGetDatum(le_store_to_wall(clock, closed_until));
}

static void
form_held(const LeSlot *slot, const Clock *clock)
{
	const LeEntry *entry = le_slot_holder(slot);
	bool lapsed = entry->state == LE_STATE_LAPSED;
	bool own = entry->lease == NULL && entry->ttl != LE_TTL_BOUND;

	Assert(entry->value_len <= LE_MAX_VALUE);
	form_common(slot);
	row.values[SLOT_TOKEN] = Int64GetDatum(entry->token);
	row.values[SLOT_ACQUIRED_AT] = TimestampTzGetDatum(le_store_to_wall(clock, entry->acquired_at));
	row.values[SLOT_TTL] = Int64GetDatum(entry->ttl);
	row.values[SLOT_TIME_LEFT] = Int64GetDatum(lapsed ? -(int64) entry->end : own ? entry->saved_left : 0);
	row.values[SLOT_LEASE] = Int64GetDatum(entry->lease ? entry->lease->id : 0);
	row.values[SLOT_SESSION] = Int64GetDatum((int64) entry->session);
	row.values[SLOT_ROLE] = ObjectIdGetDatum(entry->role);
	row.values[SLOT_HOLDS] = Int32GetDatum((int32) entry->hold_count);
	row.values[SLOT_PERMITS] = Int32GetDatum(slot->lock->permits);
	row.values[SLOT_MODE] = Int16GetDatum(entry->mode);
	form_expiry(entry, clock);
	form_closed_until(lapsed ? entry->closed_until : 0, clock);
	set_text(SLOT_OWNER, &row.owner, entry->owner, entry->owner_len);
	set_text(SLOT_VALUE, &row.value, entry->value, entry->value_len);
	form_uncommitted(entry);
	set_text(SLOT_ACQUIRER, &row.acquirer, entry->acquirer != NULL ? entry->acquirer->text : NULL,
			 entry->acquirer != NULL ? entry->acquirer->len : 0);
}

static void
form_free(const LeSlot *slot, const Clock *clock)
{
	form_common(slot);
	row.values[SLOT_TOKEN] = Int64GetDatum(0);
	row.values[SLOT_ACQUIRED_AT] = TimestampTzGetDatum(clock->wall);
	row.values[SLOT_TTL] = Int64GetDatum(0);
	row.values[SLOT_TIME_LEFT] = Int64GetDatum(0);
	row.values[SLOT_LEASE] = Int64GetDatum(0);
	row.values[SLOT_SESSION] = Int64GetDatum(0);
	row.values[SLOT_ROLE] =
		ObjectIdGetDatum(slot->lock->closed_until > clock->now ? slot->lock->closed_by : InvalidOid);
	row.values[SLOT_HOLDS] = Int32GetDatum(0);
	row.values[SLOT_PERMITS] = Int32GetDatum(0);
	row.values[SLOT_MODE] = Int16GetDatum(0);
	row.nulls[SLOT_EXPIRES_AT] = true;
	form_closed_until(slot->lock->closed_until, clock);
	row.nulls[SLOT_OWNER] = true;
	row.nulls[SLOT_VALUE] = true;
	row.nulls[SLOT_UNCOMMITTED] = true;
	row.nulls[SLOT_ACQUIRER] = true;
}

/* --- writing --- */

static void
row_changed(const LeSlot *slot)
{
	le_store_row_changed(&le_slot_table,
						 psprintf("lock \"%.*s\"", (int) slot->lock->name_len, slot->lock->name));
}

/* The row of this slot is written for that one from now on. */
static void
lend(LeCore *core, LeSlot *from, LeSlot *to, LeTime now)
{
	to->row.locator = from->row.locator;
	to->row.on_disk = true;
	le_core_row_lent(core, from, now);
}

static void
write_held(LeCore *core, LeSlot *slot, const Clock *clock)
{
	bool takes_key = !slot->row.on_disk;
	LeSlot *idle = takes_key ? le_lend_take(slot, clock->now) : NULL;

	if (idle != NULL)
		lend(core, idle, slot, clock->now);
	form_held(slot, clock);
	if (!le_table_put(&le_slot_table, &slot->row, row.values, row.nulls, takes_key))
		row_changed(slot);
}

static void
write_free(LeSlot *slot, const Clock *clock)
{
	bool done;

	if (slot->drop)
		done = le_table_delete(&le_slot_table, &slot->row);
	else
	{
		form_free(slot, clock);
		done = le_table_put(&le_slot_table, &slot->row, row.values, row.nulls, false);
		le_lend_add(slot, clock->now);
	}
	if (!done)
		row_changed(slot);
}

/*
 * First the slots that are held: a row is written once in a batch, also where
 * one that is free in this batch is lent.
 */
static int
write_slots(LeCore *core, const Clock *clock)
{
	int rows = 0;

	le_lend_begin(le_core_dirty_slots(core));
	for (LeSlot *slot = le_core_dirty_slots(core); slot != NULL; slot = slot->dirty_next)
	{
		if (le_slot_holder(slot) == NULL)
			continue;
		write_held(core, slot, clock);
		rows++;
		LE_FAULT("store-row");
	}
	for (LeSlot *slot = le_core_dirty_slots(core); slot != NULL; slot = slot->dirty_next)
	{
		if (le_slot_holder(slot) != NULL || !slot->row.on_disk)
			continue;
		write_free(slot, clock);
		rows++;
		LE_FAULT("store-row");
	}
	return rows;
}

int
le_store_write(LeCore *core, LeTime now)
{
	Clock clock = {now, le_wall(now)};
	int rows;

	rows = write_slots(core, &clock);
	rows += le_store_write_leases(core, &clock);
	LE_FAULT("store-slots-written");
	rows += le_store_write_places(core, &clock);
	LE_FAULT("store-places-written");
	rows += le_store_write_changes(core, &clock);

	/* a second call in this transaction may write the same rows again */
	CommandCounterIncrement();
	return rows;
}
