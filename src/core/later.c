/*
 * core/later.c
 *		Postpones writing the rows of released locks.
 *
 * A release that a crash may undo need not be written with its batch.  If another lock soon
 * needs a row, it gets the row of the released lock (core/recycle.c); if the same lock is
 * acquired again, its row is written for the next holder.  In both cases there is one write
 * instead of two.  The environment has the remaining rows written after a few milliseconds
 * (le_core_later_since()).
 *
 * Until then the row shows the lock as held, so after a crash the lock is held again.
 * After a failed batch, the core is discarded, but the lock must not be held again, because
 * the client got the reply to its release.  Therefore such releases are recorded here, by
 * token and name, and a load treats their rows as free.  Tokens are not used twice, so a
 * release may stay recorded after its row has been written.
 *
 * Only the release of a lock with a single slot is written later, because the row of a new
 * holder could otherwise be written beside the old row.
 */
#include <stdlib.h>

#include "containers.h"
#include "later.h"
#include "state.h"

/*
 * Returns the record of a release.  The record includes the name, because several names with one
 * token are released one by one.
 */
static LeReleased
released(const LeCore *core, LeKind kind, LeText name, int64_t token)
{
	return (LeReleased){.token = token, .name_hash = le_hash_name(core, kind, name)};
}

void
le_write_later(LeCore *core, LeSlot *slot, int64_t token, LeTime now)
{
	LeLater *later = &core->later;
	const LeLock *lock = slot->lock;

	if (le_slot_holder(slot) != NULL || !slot->row.on_disk || !slot->row.dirty || slot->drop ||
		slot->next != NULL || lock->slots != slot || lock->kind != LE_KIND_LOCK || lock->closed_until != 0 ||
		later->n == LE_MAX_LATER)
		return;
	if (later->n == 0)
		later->since = now;
	later->items[later->n++] = released(core, LE_KIND_LOCK, le_text(lock->name, lock->name_len), token);
	slot->row.later = true;
	assert(later->answered < later->n && later->since <= now);
}

static int
compare(const void *a, const void *b)
{
	const LeReleased *x = a, *y = b;

	if (x->token != y->token)
		return x->token < y->token ? -1 : 1;
	return (x->name_hash > y->name_hash) - (x->name_hash < y->name_hash);
}

void
le_later_sort(LeCore *core)
{
	qsort(core->later.items, core->later.answered, sizeof(LeReleased), compare);
}

bool
le_was_released(const LeCore *failed, const LeStoredEntry *row)
{
	LeReleased key;

	if (failed == NULL || failed->later.answered == 0)
		return false;
	key = released(failed, row->kind, row->name, row->token);
	return bsearch(&key, failed->later.items, failed->later.answered, sizeof(key), compare) != NULL;
}

void
le_later_go_on(LeCore *core, const LeStoredEntry *row)
{
	LeLater *later = &core->later;

	if (!le_was_released(core->load.failed, row))
		return;
	assert(core->loading && later->n == later->answered && later->n < LE_MAX_LATER);
	later->since = core->load.clock.now;
	later->items[later->n++] = released(core, row->kind, row->name, row->token);
	later->answered = later->n;
}

LeTime
le_core_later_since(const LeCore *core)
{
	return core->later.n > 0 ? core->later.since : LE_NEVER;
}

void
le_core_write_now(LeCore *core)
{
	for (LeSlot *slot = core->dirty_slots; slot != NULL; slot = slot->dirty_next)
		slot->row.later = false;
}

void
le_later_batch_done(LeCore *core, bool any_left)
{
	if (!any_left)
		core->later.n = 0;
	core->later.answered = core->later.n;
}
