/*
 * core/recycle.c
 *		Recycling of rows: the row of an unused lock is used for another lock.
 *
 * Where very many names come and go, updating an idle row for the next name is
 * less work than inserting one row and deleting another, and the table stays
 * small.  Where few names come back again and again, each keeps a row of its
 * own: its key does not change, and its updates are HOT.
 *
 * So the row that has been idle longest is recycled, and only after a while.  The
 * rows are in a ring, in the order in which they became idle.  A row that is
 * in use when its turn comes drops out; one that was used and is idle again
 * (LeRow.reused) goes back to the end.  A slot may have been freed, and its memory
 * used for another slot: then the state of that slot decides.
 *
 * A row that becomes idle in this very batch is handed over at once: one write
 * instead of two.  The names that have lost their rows in this way are
 * remembered, and one that comes back soon keeps its next row (LeRow.kept).
 */
#include "core_internal.h"

/* Maximum number of idle rows examined to find one. */
#define MAX_TRIES 8

/* Adds a slot's row, which is idle from now on. */
static void
add_idle(LeIdleRows *idle, LeSlot *slot, LeTime now)
{
	uint32_t end = (idle->first + idle->n) % LE_MAX_IDLE;

	assert(le_slot_holder(slot) == NULL && slot->row.on_disk);
	slot->row.reused = slot->row.listed;
	if (slot->row.listed || idle->n == LE_MAX_IDLE)
		return;
	slot->row.listed = true;
	idle->ring[end].slot = slot;
	idle->ring[end].since = now;
	idle->n++;
	assert(idle->n <= LE_MAX_IDLE);
}

/*
 * Can this row be given to another lock?  Not that of an election, which has the number of its
 * last change.
 */
static bool
may_recycle(const LeSlot *slot)
{
	return slot->row.on_disk && le_slot_holder(slot) == NULL && !slot->drop &&
		   slot->lock->kind == LE_KIND_LOCK && slot->lock->closed_until == 0;
}

/* Returns a slot that has become free in this batch, from the dirty ones at *next on; NULL = none is left. */
static LeSlot *
take_fresh(LeIdleRows *idle, LeSlot **next)
{
	while (*next != NULL)
	{
		LeSlot *slot = *next;

		*next = slot->dirty_next;
		if (may_recycle(slot) && !slot->row.kept)
		{
			idle->lost[slot->lock->hash % LE_MAX_LOST] = slot->lock->hash;
			return slot;
		}
	}
	return NULL;
}

/* Returns the slot whose row has been idle longest; NULL = none for long enough. */
static LeSlot *
take_idle(LeIdleRows *idle, LeTime now)
{
	for (int tries = 0; tries < MAX_TRIES && idle->n > 0; tries++)
	{
		LeSlot *slot = idle->ring[idle->first].slot;

		if (now - idle->ring[idle->first].since < LE_IDLE_BEFORE_RECYCLED)
			return NULL;
		idle->first = (idle->first + 1) % LE_MAX_IDLE;
		idle->n--;
		slot->row.listed = false;
		if (!may_recycle(slot))
			continue;
		if (!slot->row.reused)
			return slot;
		add_idle(idle, slot, now);
	}
	return NULL;
}

/*
 * Moves the row of "from" to "to".  The lock of "from" is freed with the batch if that was its
 * last row and it is unused.
 */
static void
recycle(LeCore *core, LeSlot *from, LeSlot *to, LeTime now)
{
	assert(may_recycle(from) && !to->row.on_disk);
	to->row.locator = from->row.locator;
	to->row.on_disk = true;
	to->row.recycled = true;
	from->row.on_disk = false;
	assert(from != to && to->row.dirty && !may_recycle(from));
	le_lock_arm(core, from->lock, now);
}

void
le_core_recycle_rows(LeCore *core, LeTime now)
{
	LeIdleRows *idle = &core->idle;
	LeSlot *next_fresh = core->dirty_slots;

	for (LeSlot *slot = core->dirty_slots; slot != NULL; slot = slot->dirty_next)
	{
		LeSlot *from;

		if (le_slot_holder(slot) == NULL || slot->row.on_disk)
			continue;
		from = take_fresh(idle, &next_fresh);
		slot->row.kept = idle->lost[slot->lock->hash % LE_MAX_LOST] == slot->lock->hash;
		if (from == NULL)
			from = take_idle(idle, now);
		if (from != NULL)
			recycle(core, from, slot, now);
	}

	/* rows that are still free become idle */
	for (LeSlot *slot = core->dirty_slots; slot != NULL; slot = slot->dirty_next)
	{
		if (le_slot_holder(slot) == NULL && slot->row.on_disk && !slot->drop && !slot->row.later)
			add_idle(idle, slot, now);
	}
}
