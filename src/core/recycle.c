/*
 * core/recycle.c
 *		Recycles rows: gives the row of an unused lock to another lock.
 *
 * If very many names are each used only once, it is less work to update an idle row for the
 * next name than to insert one row and delete another, and the table stays small.  If a few
 * names are used again and again, each of them should keep its row: then the key does not
 * change, and updates are HOT.
 *
 * Therefore the row that has been idle longest is recycled, and only after it was idle for
 * a while.  The rows are in a ring, in the order in which they became idle.  When a row
 * reaches the front of the ring while it is in use, it is removed; if it was used and is
 * idle again (LeRow.reused), it is moved to the end.  If the slot was freed meanwhile and
 * its memory is used for another slot, the state of the new slot decides.
 *
 * A row that becomes idle in the batch that needs a row is recycled at once, which takes
 * one write instead of two.  The names that lost their rows in this way are remembered.  If
 * such a name is soon used again, it keeps its next row (LeRow.kept).
 */
#include "lock.h"
#include "recycle.h"
#include "state.h"

/* Maximum number of rows of the ring that a search for an idle row examines. */
#define MAX_TRIES 8

/* Adds a slot's row, which becomes idle now, to the ring. */
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
 * Returns whether this row can be given to another lock.  The row of an election cannot, because it
 * contains the number of the last change.
 */
static bool
may_recycle(const LeSlot *slot)
{
	return slot->row.on_disk && le_slot_holder(slot) == NULL && !slot->drop &&
		   slot->lock->kind == LE_KIND_LOCK && slot->lock->closed_until == 0;
}

/*
 * Returns the next slot in the list of dirty slots, from *next on, that became free in this batch
 * and whose row can be recycled; NULL = none.
 */
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

/* Returns the slot whose row has been idle longest; NULL = no row has been idle for long enough. */
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
 * Moves the row of slot "from" to slot "to".  If the lock of "from" is unused and this was its last
 * row, the lock is freed at the end of the batch.
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

	/* rows that are still free become idle now */
	for (LeSlot *slot = core->dirty_slots; slot != NULL; slot = slot->dirty_next)
	{
		if (le_slot_holder(slot) == NULL && slot->row.on_disk && !slot->drop && !slot->row.later)
			add_idle(idle, slot, now);
	}
}
