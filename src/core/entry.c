/*
 * core/entry.c
 *		The life of one entry: how it is created, queued, granted and renewed, and how
 *		it lapses and ends.
 *
 * core/settle.c handles the effects on other entries.
 */
#include "acquirer.h"
#include "changes.h"
#include "containers.h"
#include "endings.h"
#include "entry.h"
#include "epoch.h"
#include "leasetime.h"
#include "lock.h"
#include "news.h"
#include "owner.h"
#include "reserve.h"
#include "role.h"
#include "saved.h"
#include "state.h"
#include "stats.h"
#include "uncommitted.h"
#include "view.h"

void
le_place_dirty(LeCore *core, LeEntry *entry)
{
	LeWaiter *waiter = entry->waiter;

	assert(entry->place && waiter->entry == entry);
	if (waiter->row.dirty)
		return;
	waiter->row.dirty = true;
	waiter->dirty_next = core->dirty_places;
	core->dirty_places = entry;
}

/* Sets the reply of the call that waits for the entry, if there is one.  The reply is sent with the batch. */
void
le_answer(LeCore *core, LeEntry *entry, LeStatus status, int64_t token)
{
	LeWaiter *waiter = entry->waiter;
	LeSession *session;

	if (waiter == NULL || waiter->session == 0 || waiter->answering)
		return;
	assert(status == LE_OK || token == 0 || status == LE_QUEUED);
	assert(waiter->answer_next == NULL);
	waiter->answer = (uint8_t) status;
	waiter->answer_token = token;
	waiter->answering = true;
	*core->answers_tail = entry;
	core->answers_tail = &waiter->answer_next;

	session = &core->sessions[waiter->sessno];
	if (session->waiting_on == entry)
		session->waiting_on = NULL;
}

static LeUsage
usage_of(const LeEntry *entry)
{
	return le_usage_of_entry(entry->lock->name_len, entry->owner_len, entry->value_len);
}

/*
 * Adds one more hold to this holder.  Returns whether the caller must record the hold as
 * uncommitted.  A hold on a named lease, or of an election, is counted only while an earlier one may
 * still roll back, because a rollback of the earlier hold must not end the new one.
 */
bool
le_entry_reenter(LeCore *core, LeEntry *holder, LeTime ttl, LeTime now)
{
	bool counted = !le_entry_counts_once(holder) || holder->uncommitted != NULL;

	assert(holder->state == LE_STATE_HELD && !holder->evicted && !le_entry_is_draining(holder));
	/* add the hold */
	if (!counted && le_entry_named_lease(holder) != NULL)
		return false;
	if (counted)
		holder->hold_count++;
	le_slot_dirty(core, holder->slot);

	/* keep the timer, because the deadline never moves to an earlier time */
	if (holder->lease != NULL && holder->lease->for_group)
		le_lease_extend(core, holder->lease, ttl, now);
	else if (holder->lease == NULL && ttl != LE_TTL_BOUND)
	{
		if (le_extend(core, ttl, now, &holder->ttl, &holder->deadline, &holder->saved))
			le_epoch_raise(core, holder->lock->hash);
	}
	return counted;
}

/* Clears the evicted flag of an entry that ends or lapses, so that its lease no longer counts it. */
static void
not_evicted(LeEntry *entry)
{
	if (entry->lease != NULL)
		entry->lease->evicted -= entry->evicted;
	entry->evicted = false;
}

/* Frees the slot of a HELD or LAPSED entry, and closes the lock until closed_until. */
static void
entry_leave_slot(LeCore *core, LeEntry *entry, LeTime closed_until, LeTime now)
{
	LeSlot *slot = entry->slot;
	LeLock *lock = entry->lock;

	assert(le_entry_has_slot(entry) && le_slot_holder(slot) == entry && lock->held > 0);
	if (entry->state == LE_STATE_LAPSED)
		le_unlink(&entry->lapsed_link);
	else
	{
		le_owner_remove(core, entry);
		le_epoch_raise(core, lock->hash);
	}
	entry->slot = NULL;
	le_slot_add_free(lock, slot);
	le_slot_dirty(core, slot);
	lock->held--;
	if (lock->held == 0)
		lock->mode = 0;
	/* closed_until may have passed, because a fence may have kept the entry for a long time */
	if (closed_until > now)
		le_lock_close(core, lock, closed_until, entry->role);
}

/* Removes a waiter from its queue.  Its reply is sent, and its row is deleted, with the batch. */
static void
leave_queue(LeCore *core, LeEntry *entry)
{
	LeWaiter *waiter = entry->waiter;

	assert(waiter->entry == entry);
	waiter->left_next = core->left;
	core->left = waiter;
	if (entry->state != LE_STATE_QUEUED)
		return; /* a member of a group that is granted at once has not been queued */
	assert(entry->lock->waiting > 0 && core->queued > 0 && le_linked(&waiter->queue_link));
	le_unlink(&waiter->queue_link);
	le_unlink(&waiter->waits_link);
	entry->lock->waiting--;
	core->queued--;
	if (entry->place)
		le_place_dirty(core, entry);
}

/*
 * Ends an entry that is not fenced.  Removes it from its queue or slot, and from all lists and indexes.
 * Afterwards the entry is ENDED; it is freed at the end of the batch.  The caller must settle the lock.
 * Must not fail: only a change of an election needs memory, which is reserved for each candidate.
 */
void
le_entry_finish(LeCore *core, LeEntry *entry, LeEnd how, LeTime closed_until, LeTime now)
{
	LeLock *lock = entry->lock;
	LeLease *lease = entry->lease;
	bool lost = entry->place || how == LE_END_EXPIRED || how == LE_END_REVOKED || how == LE_END_FORCED;

	assert(entry->state == LE_STATE_QUEUED || le_entry_has_slot(entry));
	le_news_end(core, entry, how);
	if (entry->state != LE_STATE_LAPSED)
		le_saved_forget(core, &entry->saved);
	while (entry->uncommitted != NULL)
		le_uncommitted_remove(core, entry->uncommitted);
	if (entry->state == LE_STATE_QUEUED)
	{
		if (how != LE_END_REPLACED)
			le_count_wait(core, entry, false, now);
		leave_queue(core, entry);
	}
	else
	{
		if (entry->state == LE_STATE_HELD)
			le_count_hold(core, entry, now);
		if (lock->kind == LE_KIND_ELECTION)
			le_change_ended(core, entry, how, now);
		entry_leave_slot(core, entry, closed_until, now);
	}

	/* set the state, and record how the entry ended */
	if (lock->kind == LE_KIND_ELECTION)
		core->candidates--;
	if (entry->state != LE_STATE_LAPSED && how != LE_END_REPLACED)
		le_note_ending(core, entry->token, entry->role, how, now);
	le_entry_set_state(entry, entry->state, LE_STATE_ENDED);
	entry->end = (uint8_t) how;

	/* remove the entry from its lease, session, timer and indexes */
	not_evicted(entry);
	le_unlink(&entry->lease_link);
	if (lease != NULL && lease->for_group && !lease->draining && le_link_empty(&lease->entries))
		le_lease_close(core, lease, how);
	if (entry->session != 0)
		core->sessions[entry->sessno].bound -= le_entry_is_bound(entry);
	le_unlink(&entry->session_link);
	le_timer_clear(core, &entry->timer);
	le_hash_remove(core, LE_HASH_TOKENS, &entry->token_link);
	le_role_remove(core, entry->role, usage_of(entry));
	core->work++;

	/* reply to the entry's waiter, and count the end of the entry */
	le_answer(core, entry, lost ? LE_LOST : LE_NOT_GRANTED, 0);
	assert(entry->timer.pos == 0 && entry->slot == NULL && !le_linked(&entry->session_link));
	entry->ended_next = core->ended;
	core->ended = entry;

	if (how == LE_END_EXPIRED)
		core->stats.expiries++;
	else if (how == LE_END_TIMEOUT)
		core->stats.timeouts++;
	else if (how == LE_END_UNDONE)
		core->stats.undone++;
}

/* Changes an entry's state.  The entry must not be in a list of the old state, because links share memory. */
void
le_entry_set_state(LeEntry *entry, LeState from, LeState to)
{
	assert(entry->state == from);
	assert((from == LE_STATE_NEW && (to == LE_STATE_QUEUED || to == LE_STATE_HELD)) ||
		   (from == LE_STATE_QUEUED && (to == LE_STATE_HELD || to == LE_STATE_ENDED)) ||
		   (from == LE_STATE_HELD && (to == LE_STATE_LAPSED || to == LE_STATE_ENDED)) ||
		   (from == LE_STATE_LAPSED && to == LE_STATE_ENDED));
	assert((from != LE_STATE_QUEUED || !le_linked(&entry->waiter->queue_link)) &&
		   (from != LE_STATE_HELD || entry->owner_link.back == NULL) &&
		   (from != LE_STATE_LAPSED || !le_linked(&entry->lapsed_link)));
	entry->state = (uint8_t) to;
}

/* Creates a NEW entry with one hold.  Must not fail: memory for the entry and its texts is reserved. */
LeEntry *
le_entry_new(LeCore *core, LeLock *lock, const LeEntrySpec *spec)
{
	LeEntry *entry = le_pool_get(&core->entries);

	assert(spec->token > 0 && le_core_find_entry(core, (LeKind) lock->kind,
												 le_text(lock->name, lock->name_len), spec->token) == NULL);
	entry->lock = lock;
	entry->token = spec->token;
	entry->mode = (uint8_t) spec->mode;
	entry->place = spec->place;
	entry->ttl = spec->lease != NULL ? spec->lease->ttl : spec->ttl;
	entry->deadline = LE_NEVER;
	entry->saved.life = core->life->number;
	entry->role = spec->role;
	entry->hold_count = 1;
	entry->timer.type = LE_TIMER_ENTRY;

	/* move the preallocated texts into the entry */
	if (spec->owner.data != NULL)
	{
		entry->owner = le_prealloc_take(&core->prealloc_owners);
		entry->owner_len = (uint8_t) spec->owner.len;
	}
	if (spec->value.data != NULL)
	{
		entry->value = core->prealloc_value;
		entry->value_len = (uint16_t) spec->value.len;
		core->prealloc_value = NULL;
	}
	if (spec->acquirer.data != NULL)
		entry->acquirer = le_acquirer_get(core, spec->acquirer);

	/* add the entry to indexes, usage, lease and session */
	le_hash_add(core, LE_HASH_TOKENS, &entry->token_link);
	if (lock->kind == LE_KIND_ELECTION)
		core->candidates++;
	le_role_add(core, entry->role, usage_of(entry));
	core->work++;
	if (spec->lease != NULL)
	{
		entry->lease = spec->lease;
		le_link_before(&spec->lease->entries, &entry->lease_link);
		le_news_add(core, entry);
	}
	if (spec->session != 0)
	{
		entry->session = spec->session;
		entry->sessno = spec->sessno;
		core->sessions[spec->sessno].bound += le_entry_is_bound(entry);
		le_link_before(&core->sessions[spec->sessno].entries, &entry->session_link);
	}
	return entry;
}

/* Creates the waiter of a NEW entry that is going to wait.  Must not fail: memory for it is reserved. */
void
le_waiter_new(LeCore *core, LeEntry *entry, LeTime since)
{
	LeWaiter *waiter = le_pool_get(&core->waiters);

	assert(entry->state == LE_STATE_NEW && entry->waiter == NULL);
	waiter->entry = entry;
	waiter->since = since;
	waiter->until = LE_NEVER;
	entry->waiter = waiter;
}

/*
 * Arms the entry's timer for the next moment at which something is due.  If that moment is later than
 * before, the timer stays unchanged and is set again when it fires, so that a renewal does not have to
 * move the timer in the heap.
 */
void
le_entry_arm(LeCore *core, LeEntry *entry)
{
	LeTime at = entry->deadline;
	LeTime save_at = le_entry_save_at(entry);

	assert(entry->state == LE_STATE_HELD || entry->state == LE_STATE_QUEUED);
	if (save_at < at)
		at = save_at;
	if (entry->state == LE_STATE_QUEUED && entry->waiter->until < at)
		at = entry->waiter->until;
	if (entry->timer.pos != 0 && at != LE_NEVER && at > entry->timer.at)
		return;
	le_timer_set(core, &entry->timer, at);
}

void
le_entry_row_dirty(LeCore *core, LeEntry *entry)
{
	if (entry->state == LE_STATE_HELD)
		le_slot_dirty(core, entry->slot);
	else
		le_place_dirty(core, entry);
}

/* Renews a holder or a place: its TTL begins again. */
void
le_entry_renew(LeCore *core, LeEntry *entry, LeTime now)
{
	assert((entry->state == LE_STATE_HELD || entry->state == LE_STATE_QUEUED) && !entry->evicted);
	if (entry->lease != NULL)
	{
		le_lease_renew(core, entry->lease, now);
		return;
	}
	if (entry->ttl == LE_TTL_BOUND)
		return;
	entry->deadline = le_add(now, entry->ttl);
	if (le_saved_renew(core, &entry->saved, entry->ttl, le_entry_row(entry)->dirty, entry->lsn))
		le_entry_row_dirty(core, entry);
	le_entry_arm(core, entry);
}

/*
 * Adds a NEW entry to the queue in the order of revisions.  A new request goes to the end; a request
 * that is repeated after a reload may be inserted before others.
 */
void
le_entry_queue(LeCore *core, LeEntry *entry, LeTime now)
{
	LeLock *lock = entry->lock;
	LeLink *next = &lock->queue;

	while (next->prev != &lock->queue && le_queued(next->prev)->token > entry->token)
		next = next->prev;
	le_entry_set_state(entry, LE_STATE_NEW, LE_STATE_QUEUED);
	assert(next->prev == &lock->queue || le_queued(next->prev)->token < entry->token);
	le_link_before(next, &entry->waiter->queue_link);
	if (lock->kind == LE_KIND_LOCK)
		le_link_before(&core->waits, &entry->waiter->waits_link);
	lock->waiting++;
	core->queued++;
	le_entry_arm(core, entry);
	le_lock_arm(core, lock, now);
}

/* Returns a slot for one more holder: a free slot, which has a row, or a new one. */
static LeSlot *
slot_take(LeCore *core, LeLock *lock)
{
	LeSlot *slot = lock->free_slots;

	if (slot != NULL)
	{
		assert(slot->free && slot->lock == lock);
		lock->free_slots = slot->free_next;
		slot->holder = NULL;
		slot->free = false;
		slot->drop = false;
		return slot;
	}
	slot = le_pool_get(&core->slots);
	slot->lock = lock;
	slot->number = lock->next_number++;
	slot->next = lock->slots;
	lock->slots = slot;
	return slot;
}

/*
 * Grants an entry a slot of its lock.  The entry is HELD afterwards, its lease begins, and its
 * waiter gets a reply with the batch.  Must not fail: each waiting entry has a slot reserved.
 */
void
le_entry_grant(LeCore *core, LeEntry *entry, LeTime now)
{
	LeLock *lock = entry->lock;
	LeSlot *slot = slot_take(core, lock);

	assert(entry->state == LE_STATE_NEW || entry->state == LE_STATE_QUEUED);
	assert(le_lock_admits(lock, entry->mode, now));
	if (entry->state == LE_STATE_QUEUED)
		le_count_wait(core, entry, true, now);
	if (entry->waiter != NULL)
		leave_queue(core, entry);

	/* make the entry a holder */
	le_entry_set_state(entry, entry->state, LE_STATE_HELD);
	le_news_add(core, entry);
	entry->slot = slot;
	entry->acquired_at = now;
	le_saved_set(core, &entry->saved, entry->ttl);
	entry->deadline =
		(entry->lease != NULL || entry->ttl == LE_TTL_BOUND) ? LE_NEVER : le_add(now, entry->ttl);

	/* fill the slot, and record the effects */
	slot->holder = entry;
	lock->held++;
	lock->mode = entry->mode;
	le_lock_open(core, lock);
	core->work++;
	le_owner_add(core, entry);
	le_slot_dirty(core, slot);
	le_entry_arm(core, entry);
	if (lock->kind == LE_KIND_ELECTION)
	{
		le_change_add(core, entry, LE_HOW_ELECTED, NULL, now);
		core->stats.elected++;
	}
	core->stats.grants++;
	le_answer(core, entry, LE_OK, entry->token);
	assert(le_slot_holder(entry->slot) == entry && slot->row.dirty && lock->closed_until == 0);
}

/*
 * Changes a fenced holder from HELD to LAPSED: it has ended, but keeps its slot until the fence ends.
 * Must not fail.
 */
void
le_entry_lapse(LeCore *core, LeEntry *entry, LeEnd how, LeTime closed_until, LeTime since)
{
	assert(how != LE_END_NONE || core->loading);
	le_count_hold(core, entry, since);
	le_owner_remove(core, entry);
	le_epoch_raise(core, entry->lock->hash);
	le_saved_forget(core, &entry->saved);
	le_entry_set_state(entry, LE_STATE_HELD, LE_STATE_LAPSED);
	not_evicted(entry);
	entry->closed_until = closed_until;
	entry->lapsed_at = since;
	entry->end = (uint8_t) how;
	le_note_ending(core, entry->token, entry->role, how, since);
	le_news_end(core, entry, how);
	le_link_before(&core->lapsed, &entry->lapsed_link);
	core->work++;
}

void
le_entry_free(LeCore *core, LeEntry *entry)
{
	le_free_text(core, &entry->owner);
	le_free_text(core, &entry->value);
	if (entry->acquirer != NULL)
		le_acquirer_drop(core, entry->acquirer);
	le_pool_put(&core->entries, entry);
}
