/*
 * core/effects.c
 *		Returns the rows to write and the replies to send with a batch, and finishes the batch.
 */
#include "containers.h"
#include "effects.h"
#include "entry.h"
#include "epoch.h"
#include "later.h"
#include "state.h"
#include "view.h"

LeSlot *
le_next_dirty_slot(const LeCore *core, const LeSlot *after)
{
	LeSlot *slot = after == NULL ? core->dirty_slots : after->dirty_next;

	assert(after == NULL || after->row.dirty);
	while (slot != NULL && slot->row.later)
		slot = slot->dirty_next;
	return slot;
}

LeLease *
le_next_dirty_lease(const LeCore *core, const LeLease *after)
{
	assert(after == NULL || after->row.dirty);
	return after == NULL ? core->dirty_leases : after->dirty_next;
}

LeEntry *
le_next_dirty_place(const LeCore *core, const LeEntry *after)
{
	assert(after == NULL || after->waiter->row.dirty);
	return after == NULL ? core->dirty_places : after->waiter->dirty_next;
}

LeChange *
le_next_change(const LeCore *core, const LeChange *after)
{
	return after == NULL ? core->changes : after->next;
}

LeEntry *
le_next_answer(const LeCore *core, const LeEntry *after)
{
	assert(after == NULL || after->waiter->answering);
	return after == NULL ? core->answers : after->waiter->answer_next;
}

/*
 * Returns how long a granted waiter holds the lock.  If the waiter became one more hold of another
 * holder, that holder's lease may expire before the waiter's TTL.  If the holder has ended in this
 * batch, returns the full TTL.  If the batch took longer than the time left, returns one microsecond,
 * because 0 means that the reply has no time.
 */
static LeTime
granted_for(const LeCore *core, const LeEntry *entry, LeTime now)
{
	const LeLock *lock = entry->lock;
	const LeEntry *holder = entry;

	if (!le_entry_has_slot(entry))
		holder = le_core_find_entry(core, (LeKind) lock->kind, le_text(lock->name, lock->name_len),
									entry->waiter->answer_token);
	if (holder != NULL && le_entry_has_slot(holder))
	{
		LeTime left = le_entry_time_left(holder, now);

		return left > 0 ? left : 1;
	}
	return entry->ttl == LE_TTL_BOUND ? LE_NEVER : entry->ttl;
}

void
le_entry_answer(const LeCore *core, const LeEntry *entry, LeTime now, LeReply *reply)
{
	assert(entry->waiter != NULL && entry->waiter->answering);
	memset(reply, 0, sizeof(*reply));
	reply->status = (LeStatus) entry->waiter->answer;
	reply->token = entry->waiter->answer_token;
	reply->wrote = reply->status == LE_OK;
	reply->counted = reply->status == LE_OK && entry->hold_count > 0;
	reply->lsn = entry->lsn;
	if (reply->status == LE_OK)
	{
		reply->valid_for = granted_for(core, entry, now);
		le_epoch_reply(core, reply, entry);
	}
	reply->bound = entry->ttl == LE_TTL_BOUND;
	reply->shared_owner = entry->waiter->joined;
	if (reply->status == LE_LOST && entry->state == LE_STATE_ENDED)
		reply->ending = entry->end;
}

/* Frees a lock that was doomed and was not used again in the batch. */
static void
lock_free(LeCore *core, LeLock *lock)
{
	assert(lock->doomed && !lock->doom_listed);
	assert(lock->held == 0 && lock->waiting == 0 && lock->closed_until == 0);
	for (LeSlot *slot = lock->slots, *next; slot != NULL; slot = next)
	{
		next = slot->next;
		le_pool_put(&core->slots, slot);
	}
	le_timer_clear(core, &lock->timer);
	le_hash_remove(core, LE_HASH_LOCKS, &lock->hash_link);
	le_free_text(core, &lock->name);
	le_pool_put(&core->locks, lock);
}

/*
 * Finishes the batch for waiters: clears the lists of dirty places and of replies, and frees the
 * waiters that left their queues.
 */
static void
waiters_done(LeCore *core, uint64_t lsn)
{
	for (LeEntry *entry = core->dirty_places, *next; entry != NULL; entry = next)
	{
		next = entry->waiter->dirty_next;
		assert(entry->waiter->row.dirty);
		entry->waiter->dirty_next = NULL;
		entry->waiter->row.dirty = false;
		if (entry->state == LE_STATE_QUEUED)
			entry->lsn = lsn;
	}
	core->dirty_places = NULL;

	/* clear the list of replies */
	for (LeEntry *entry = core->answers, *next; entry != NULL; entry = next)
	{
		next = entry->waiter->answer_next;
		assert(entry->waiter->answering);
		entry->waiter->answer_next = NULL;
		entry->waiter->answering = false;
		entry->waiter->session = 0;
	}
	core->answers = NULL;
	core->answers_tail = &core->answers;

	/* free the waiters that left their queues */
	for (LeWaiter *waiter = core->left, *next; waiter != NULL; waiter = next)
	{
		next = waiter->left_next;
		assert(waiter->entry->waiter == waiter && !le_linked(&waiter->queue_link) && !waiter->answering);
		waiter->entry->waiter = NULL;
		le_pool_put(&core->waiters, waiter);
	}
	core->left = NULL;
}

void
le_core_batch_done(LeCore *core, uint64_t lsn)
{
	LeSlot *later = NULL;

	core->batches++;

	for (LeSlot *slot = core->dirty_slots, *next; slot != NULL; slot = next)
	{
		next = slot->dirty_next;
		assert(slot->row.dirty);
		slot->dirty_next = NULL;
		if (slot->row.later && slot->row.on_disk)
		{
			slot->dirty_next = later;
			later = slot;
			continue;
		}
		slot->row.later = false;
		slot->row.dirty = slot->row.recycled = false;
		if (le_slot_holder(slot) != NULL)
			le_slot_holder(slot)->lsn = lsn;
	}
	core->dirty_slots = later;
	le_later_batch_done(core, later != NULL);

	/* finish the dirty leases, and free those that have ended */
	for (LeLease *lease = core->dirty_leases, *next; lease != NULL; lease = next)
	{
		next = lease->dirty_next;
		assert(lease->row.dirty);
		lease->dirty_next = NULL;
		lease->row.dirty = false;
		lease->lsn = lsn;
		if (lease->ended)
		{
			assert(le_link_empty(&lease->entries) && lease->timer.pos == 0);
			if (lsn > core->lease_ended_lsn)
				core->lease_ended_lsn = lsn;
			le_free_text(core, &lease->owner);
			le_pool_put(&core->leases, lease);
		}
	}
	core->dirty_leases = NULL;

	waiters_done(core, lsn);

	/* free the changes of elections */
	for (LeChange *change = core->changes, *next; change != NULL; change = next)
	{
		next = change->next;
		le_free_text(core, &change->dropped);
		le_pool_put(&core->change_pool, change);
	}
	core->changes = NULL;
	core->changes_tail = &core->changes;

	core->work = 0;
	assert(core->to_settle == NULL);

	/* free ended entries and unused locks */
	for (LeEntry *entry = core->ended, *next; entry != NULL; entry = next)
	{
		next = entry->ended_next;
		assert(entry->state == LE_STATE_ENDED && entry->waiter == NULL && entry->timer.pos == 0);
		le_entry_free(core, entry);
	}
	core->ended = NULL;

	for (LeLock *lock = core->doomed, *next; lock != NULL; lock = next)
	{
		next = lock->doomed_next;
		assert(lock->doom_listed);
		lock->doomed_next = NULL;
		lock->doom_listed = false;
		if (lock->doomed)
			lock_free(core, lock);
	}
	core->doomed = NULL;
}

/* --- rows by index --- */

static LePool *
row_pool(LeCore *core, LeRowType type)
{
	return type == LE_ROW_SLOT ? &core->slots : type == LE_ROW_LEASE ? &core->leases : &core->waiters;
}

uint32_t
le_core_row_indexes(const LeCore *core, LeRowType type)
{
	return le_pool_indexes(row_pool((LeCore *) core, type));
}

/*
 * Returns the row at this index, or NULL if it is not on disk.  A free object is zeroed, so its on_disk
 * is false.
 */
LeRow *
le_core_row_at(LeCore *core, LeRowType type, uint32_t index)
{
	void *object = le_pool_at(row_pool(core, type), index);
	LeRow *row = type == LE_ROW_SLOT    ? &((LeSlot *) object)->row
				 : type == LE_ROW_LEASE ? &((LeLease *) object)->row
										: &((LeWaiter *) object)->row;

	return row->on_disk ? row : NULL;
}
