/*
 * store/lend.c
 *		Rows of locks that nobody uses, to be written anew for others.
 *
 * Where very many names come and go, to write an idle row for the next name is
 * less work than to insert one row and delete another, and the table stays
 * small.  Where few names come back again and again, each keeps a row of its
 * own: its key does not change, and its updates are HOT.
 *
 * So the row that has been idle longest is lent, and only after a while.  The
 * rows stand in a ring, in the order in which they became idle.  A row that is
 * in use when its turn comes drops out; one that was used and is idle once more
 * (LeRow.reused) goes back to the end.  A slot can have gone, and its memory
 * serve another slot: then that one's state decides.
 *
 * A row that becomes idle in the very batch is handed over at once: one write
 * instead of two.  The names that have lost their rows in this way are
 * remembered, and one that comes back soon keeps its next row (LeRow.kept).
 */
#include "store/lend.h"

/* For one row so many are looked at. */
#define MAX_TRIES 8

/* So many names that have lost their rows are remembered, by their hashes. */
#define MAX_LOST 8192

static struct
{
	struct
	{
		LeSlot *slot;
		LeTime since;
	} rows[LE_MAX_IDLE];
	uint32_t first;
	uint32_t n;
} ring;

static uint32_t lost[MAX_LOST];
static LeSlot *dirty; /* of this batch, from the next to be looked at */

void
le_lend_reset(void)
{
	ring.n = 0;
}

void
le_lend_begin(LeSlot *dirty_slots)
{
	dirty = dirty_slots;
}

void
le_lend_add(LeSlot *slot, LeTime now)
{
	uint32_t end = (ring.first + ring.n) % LE_MAX_IDLE;

	slot->row.reused = slot->row.listed;
	if (slot->row.listed || ring.n == LE_MAX_IDLE)
		return;
	slot->row.listed = true;
	ring.rows[end].slot = slot;
	ring.rows[end].since = now;
	ring.n++;
}

/* An election keeps its row, and with it the number of its last change. */
static bool
may_lend(const LeSlot *slot)
{
	return slot->row.on_disk && le_slot_holder(slot) == NULL && !slot->drop &&
		   slot->lock->kind == LE_KIND_LOCK && slot->lock->closed_until == 0;
}

/* One that has become free in this batch. */
static LeSlot *
take_fresh(void)
{
	while (dirty != NULL)
	{
		LeSlot *slot = dirty;

		dirty = slot->dirty_next;
		if (le_slot_holder(slot) == NULL && !slot->row.kept && may_lend(slot))
		{
			lost[slot->lock->hash % MAX_LOST] = slot->lock->hash;
			return slot;
		}
	}
	return NULL;
}

static LeSlot *
take_idle(LeTime now)
{
	for (int tries = 0; tries < MAX_TRIES && ring.n > 0; tries++)
	{
		LeSlot *slot = ring.rows[ring.first].slot;

		if (now - ring.rows[ring.first].since < LE_IDLE_BEFORE_LENT)
			return NULL;
		ring.first = (ring.first + 1) % LE_MAX_IDLE;
		ring.n--;
		slot->row.listed = false;
		if (!may_lend(slot))
			continue;
		if (!slot->row.reused)
			return slot;
		le_lend_add(slot, now);
	}
	return NULL;
}

LeSlot *
le_lend_take(LeSlot *to, LeTime now)
{
	LeSlot *fresh = take_fresh();

	to->row.kept = lost[to->lock->hash % MAX_LOST] == to->lock->hash;
	return fresh != NULL ? fresh : take_idle(now);
}
