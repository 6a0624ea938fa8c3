/*
 * core/changes.c
 *		Collects the changes of elections in a batch.  With the batch they are written to
 *		the history and announced to observers.
 *
 * The number of each change is a revision, so all changes of a database are in one order.
 * Values are not copied: a value belongs to the leader, or to the change that replaced it,
 * and exists until the batch is done.
 */
#include "changes.h"
#include "containers.h"
#include "state.h"

/*
 * Reserves changes for the batch: two for each candidate (its election and its end), two for a
 * candidate that this command may add, and one for a proclaim.
 */
bool
le_changes_reserve(LeCore *core)
{
	return le_pool_reserve(core, &core->change_pool, 2 * (core->candidates + 1) + 1);
}

/* Adds a change of this election to the batch.  Must not fail: le_changes_reserve() has reserved it. */
static LeChange *
change_new(LeCore *core, LeLock *lock, LeHow how, LeTime now)
{
	LeChange *change = le_pool_get(&core->change_pool);

	assert(lock->kind == LE_KIND_ELECTION);
	change->lock = lock;
	change->how = (uint8_t) how;
	change->number = core->next_revision++;
	change->at = now;
	if (!lock->doom_listed)
	{
		change->previous = lock->last_change;
		lock->last_change = change->number;
	}
	*core->changes_tail = change;
	core->changes_tail = &change->next;
	return change;
}

/* Adds a change about this leader. dropped: previous value, to be freed after the batch; NULL = none. */
void
le_change_add(LeCore *core, const LeEntry *entry, LeHow how, char *dropped, LeTime now)
{
	LeChange *change;

	assert(le_entry_has_slot(entry));
	if (entry->lock->kind != LE_KIND_ELECTION)
	{
		le_free_text(core, &dropped);
		return;
	}
	change = change_new(core, entry->lock, how, now);
	change->dropped = dropped;
	change->value = entry->value;
	change->value_len = entry->value_len;
	change->term = entry->token;
	change->role = entry->role;
	change->elected_at = entry->acquired_at;
	change->place = entry->place;
}

/* Returns the type of change that records this end of a term in the history. */
static LeHow
how_ended(LeEnd end)
{
	switch (end)
	{
		case LE_END_EXPIRED:
			return LE_HOW_EXPIRED;
		case LE_END_REVOKED:
			return LE_HOW_REVOKED;
		case LE_END_FORCED:
			return LE_HOW_FORCED;
		case LE_END_EVICTED:
			return LE_HOW_EVICTED;
		case LE_END_UNDONE:
			return LE_HOW_UNDONE;
		case LE_END_SESSION:
			return LE_HOW_DISCONNECTED;
		default:
			return LE_HOW_RESIGNED;
	}
}

void
le_change_ended(LeCore *core, const LeEntry *entry, LeEnd how, LeTime now)
{
	le_change_add(core, entry, how_ended(how), NULL, now);
}

/* Adds a change for the end of a leader whose row was loaded, but which is not a holder any more. */
void
le_change_lost(LeCore *core, LeLock *lock, const LeStoredEntry *row, LeEnd how, LeTime elected_at, LeTime now)
{
	LeChange *change;

	if (lock->kind != LE_KIND_ELECTION)
		return;
	if (how == LE_END_NONE)
		how = row->ttl == LE_TTL_BOUND ? LE_END_SESSION : LE_END_EXPIRED;
	change = change_new(core, lock, how_ended(how), now);
	assert(row->value.data == NULL || core->prealloc_value != NULL);
	change->dropped = core->prealloc_value;
	core->prealloc_value = NULL;
	change->value = change->dropped;
	change->value_len = (uint16_t) row->value.len;
	change->term = row->token;
	change->role = row->role;
	change->elected_at = elected_at;
}
