/*
 * core/entry.c
 *		How an entry enters a lock's queue, is granted, and ends, with the
 *		effects on its lock.
 */
#include "core_internal.h"

/* --- replies, and rows to write --- */

void
le_slot_dirty(LeCore *core, LeSlot *slot)
{
	assert(slot->lock != NULL);
	slot->row.later = slot->row.stale = false;
	if (slot->row.dirty)
		return;
	slot->row.dirty = true;
	slot->dirty_next = core->dirty_slots;
	core->dirty_slots = slot;
}

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

/* Gives this reply to the call that waits for the entry, if there is one.  It is sent with the batch. */
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

/* --- locks and slots --- */

/* Returns the lock of this name.  If there is none, creates it from reserved memory. */
LeLock *
le_lock_get(LeCore *core, LeKind kind, LeText name)
{
	LeLock *lock = le_core_find_lock(core, kind, name);

	if (lock != NULL)
		return lock;
	lock = le_pool_get(&core->locks);
	lock->hash = (uint32_t) le_hash_name(core, kind, name);
	lock->kind = (uint8_t) kind;
	lock->name = le_prealloc_take(&core->prealloc_names);
	lock->name_len = (uint16_t) name.len;
	lock->timer.type = LE_TIMER_LOCK;
	le_link_init(&lock->queue);
	assert(le_text_equal(le_text(lock->name, lock->name_len), name));
	le_hash_add(core, LE_HASH_LOCKS, &lock->hash_link);
	return lock;
}

void
le_slot_add_free(LeLock *lock, LeSlot *slot)
{
	assert(slot->lock == lock && !slot->free);
	slot->free = true;
	slot->free_next = lock->free_slots;
	lock->free_slots = slot;
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

void
le_lock_open(LeCore *core, LeLock *lock)
{
	if (lock->closed_until == 0)
		return;
	lock->closed_until = 0;
	le_role_remove(core, lock->closed_by, le_usage_of_closed(lock->name_len));
}

/*
 * Closes a lock.  If several holders close it until the same moment, the closed name counts for the
 * lowest role, so that their order does not matter.  The role has usage now, so no memory has to be
 * allocated for it.
 */
void
le_lock_close(LeCore *core, LeLock *lock, LeTime until, uint32_t role)
{
	if (until == 0 || until < lock->closed_until || (until == lock->closed_until && role >= lock->closed_by))
		return;
	le_lock_open(core, lock);
	assert(lock->closed_until == 0);
	lock->closed_until = until;
	lock->closed_by = role;
	le_role_add(core, role, le_usage_of_closed(lock->name_len));
}

/*
 * Modes that can be held together: [mode of the holders][mode of the next holder].
 *
 * A new mode requires changes in core/command.h (LeMode), core/view.h (LeEntry.mode
 * has two bits, whose four values are used), this table and its size in
 * core_internal.h; the uses of modes in acquire.c, owner.c, reentry.c, load.c,
 * group.c, each.c, check.c and manager/take.c; the texts in sql/sql_lock.c and
 * sql_views.c, with the COMMENTs of sql/lock_election--1.0.sql; le_how and request.c
 * of the client, lockctl's options; the requests of each library in clients, with
 * conformance/features.toml; the model and invariants.c in test/sim.
 */
const bool le_modes_compatible[LE_MODE_PERMIT + 1][LE_MODE_PERMIT + 1] = {
	[LE_MODE_EXCLUSIVE] = {false},
	[LE_MODE_SHARED] = {[LE_MODE_SHARED] = true},
	[LE_MODE_PERMIT] = {[LE_MODE_PERMIT] = true}, /* LeLock.permits limits their number */
};

/* Returns whether a request of this mode would be granted if it were first in the queue. */
bool
le_lock_admits(const LeLock *lock, LeMode mode, LeTime now)
{
	if (lock->closed_until > now)
		return false;
	if (mode == LE_MODE_PERMIT && lock->held >= lock->permits)
		return false;
	return lock->held == 0 || le_modes_compatible[lock->mode][mode];
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
	/* count the hold */
	if (!counted && le_entry_named_lease(holder) != NULL)
		return false;
	if (counted)
		holder->hold_count++;
	le_slot_dirty(core, holder->slot);

	/* the deadline never moves to an earlier time, so the timer fires early enough */
	if (holder->lease != NULL && holder->lease->for_group)
		le_lease_extend(core, holder->lease, ttl, now);
	else if (holder->lease == NULL && ttl != LE_TTL_BOUND)
	{
		if (le_extend(core, ttl, now, &holder->ttl, &holder->deadline, &holder->saved))
			le_epoch_raise(core, holder->lock->hash);
	}
	return counted;
}

/* States of a lock; each arms the lock's timer in its own way. */
typedef enum LockState
{
	LOCK_UNSETTLED, /* more can be granted in the next batch */
	LOCK_CLOSED,    /* no grant before closed_until */
	LOCK_IN_USE,    /* it has holders or waiters */
	LOCK_LINGERING, /* it is unused, and its rows stay for a while */
	LOCK_DOOMED     /* it is unused and has no rows: it is freed with the batch */
} LockState;

/* Returns the first state that applies to a lock. */
static LockState
lock_state(const LeLock *lock)
{
	if (lock->unsettled)
		return LOCK_UNSETTLED;
	if (lock->closed_until != 0)
		return LOCK_CLOSED;
	if (lock->held > 0 || lock->waiting > 0)
		return LOCK_IN_USE;
	for (const LeSlot *slot = lock->slots; slot != NULL && !lock->doomed; slot = slot->next)
	{
		if (slot->row.on_disk)
			return LOCK_LINGERING;
	}
	return LOCK_DOOMED;
}

/* Arms a lock's timer, or dooms the lock, by its state.  Must not fail: the timer is reserved. */
void
le_lock_arm(LeCore *core, LeLock *lock, LeTime now)
{
	LockState state = lock_state(lock);
	LeTime at = LE_NEVER;

	switch (state)
	{
		case LOCK_UNSETTLED:
			at = now;
			break;
		case LOCK_CLOSED:
			/* may be in the past: the timer then fires at once, and waiters are granted the lock */
			at = lock->closed_until;
			break;
		case LOCK_IN_USE:
			break;
		case LOCK_LINGERING:
			at = le_add(now, LE_LINGER);
			at = le_add(at, LE_LINGER_STEP - at % LE_LINGER_STEP);
			break;
		case LOCK_DOOMED:
			if (lock->doom_listed)
				break;
			lock->doom_listed = true;
			lock->doomed_next = core->doomed;
			core->doomed = lock;
			break;
	}
	lock->doomed = state == LOCK_DOOMED;
	le_timer_set(core, &lock->timer, at);
	assert(!lock->doomed || (lock->doom_listed && lock->held == 0 && lock->waiting == 0));
}

/* Frees the slot of a HELD or LAPSED entry.  The lock stays closed until closed_until. */
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
 * Ends an entry that no fence keeps.  It leaves its queue or slot, and all lists and indexes.
 * Afterwards it is ENDED, and is freed with the batch; the caller must settle its lock.  Must not
 * fail: only a change needs memory, and one is reserved for each candidate.
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

	/* the state, and how it ended */
	if (lock->kind == LE_KIND_ELECTION)
		core->candidates--;
	if (entry->state != LE_STATE_LAPSED && how != LE_END_REPLACED)
		le_note_ending(core, entry->token, entry->role, how, now);
	le_entry_set_state(entry, entry->state, LE_STATE_ENDED);
	entry->end = (uint8_t) how;

	/* lease, session, timer, indexes */
	le_entry_not_evicted(entry);
	le_unlink(&entry->lease_link);
	if (lease != NULL && lease->for_group && !lease->draining && le_link_empty(&lease->entries))
		le_lease_end(core, lease, how, now);
	if (entry->session != 0)
		core->sessions[entry->sessno].bound -= le_entry_is_bound(entry);
	le_unlink(&entry->session_link);
	le_timer_clear(core, &entry->timer);
	le_hash_remove(core, LE_HASH_TOKENS, &entry->token_link);
	le_role_remove(core, entry->role, usage_of(entry));
	core->work++;

	/* reply and statistics */
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

/* Gives the waiter's value to the holder, like a proclaim.  The old value is freed with the waiter. */
static void
join_value(LeCore *core, LeEntry *holder, LeEntry *head, LeTime now)
{
	char *value = holder->value;
	uint16_t value_len = holder->value_len;

	holder->value = head->value;
	holder->value_len = head->value_len;
	head->value = value;
	head->value_len = value_len;
	le_slot_dirty(core, holder->slot);
	if (!le_text_equal(le_text(holder->value, holder->value_len), le_text(value, value_len)))
		le_change_add(core, holder, LE_HOW_PROCLAIMED, NULL, now);
}

/*
 * If the first waiter has the same owner or lease as a holder, makes it one more hold of that
 * holder, or gives it the reason why not as a reply.  Returns whether the waiter left the queue.
 */
static bool
queue_head_joins(LeCore *core, LeLock *lock, LeEntry *head, LeTime now)
{
	LeEntry *holder;
	LeStatus status;

	/* find the holder */
	if (head->place || head->grouped || lock->permits > 0)
		return false;
	holder = le_lock_owned(core, lock, head->role, le_text(head->owner, head->owner_len), head->lease,
						   head->session);
	if (holder == NULL || le_entry_named_lease(holder) != head->lease)
		return false;

	/* add one more hold */
	status = le_reentry_status(holder, head->mode, head->lease, head->ttl);
	if (status == LE_OK && holder->hold_count >= LE_MAX_HOLDS)
		status = LE_LIMIT_HOLDS;
	if (status == LE_OK)
	{
		if (le_entry_reenter(core, holder, head->ttl, now))
			le_uncommitted_move(holder, head);
		else
			head->hold_count = 0; /* le_entry_answer() checks this */
		if (head->value != NULL)
			join_value(core, holder, head, now);
		core->stats.grants++;
		head->waiter->joined = le_owner_is_shared(holder, head->session);
	}

	/* give the waiter its reply, and end it */
	if (le_entry_lsn(holder) > head->lsn)
		head->lsn = le_entry_lsn(holder);
	le_answer(core, head, status, status == LE_OK ? holder->token : 0);
	le_count_wait(core, head, status == LE_OK, now);
	le_entry_finish(core, head, LE_END_REPLACED, 0, now);
	return true;
}

/*
 * Returns how the named lease of a waiting entry ends the entry; LE_END_NONE = the lease is valid.
 * A lease that has expired is itself ended after the requests of this batch.
 */
static LeEnd
end_by_lease(const LeCore *core, const LeEntry *entry, LeTime now)
{
	if (le_entry_named_lease(entry) == NULL)
		return LE_END_NONE;
	if (le_entry_is_draining(entry))
		return (LeEnd) entry->lease->how;
	return le_is_over(core, entry->lease->deadline, now) ? LE_END_EXPIRED : LE_END_NONE;
}

/*
 * Grants the lock from the head of the queue until a waiter cannot be granted.  Ends waiters whose
 * lease has ended.  A waiter with the owner of a holder becomes one more hold of that holder.
 */
static void
lock_settle(LeCore *core, LeLock *lock, LeTime now)
{
	lock->unsettled = false;
	while (lock->waiting > 0)
	{
		LeEntry *head = le_queued(lock->queue.next);
		LeEnd ending = end_by_lease(core, head, now);

		assert(head->state == LE_STATE_QUEUED && head->lock == lock);
		if (ending != LE_END_NONE)
		{
			le_entry_end_only(core, head, ending, 0, now);
			continue;
		}
		if ((head->owner != NULL || head->lease != NULL) && lock->held > 0 &&
			queue_head_joins(core, lock, head, now))
			continue;
		if (head->grouped ? !le_group_ready(head->waiter->group, now)
						  : !le_lock_admits(lock, head->mode, now))
			break;
		if (le_core_is_full(core))
		{
			/* leave the rest for the next batch */
			lock->unsettled = true;
			break;
		}
		if (head->grouped)
			le_group_grant(core, head->waiter->group, now);
		else
		{
			le_entry_grant(core, head, now);
			core->stats.handoffs++;
		}
	}
	if (lock->held == 0 && lock->waiting == 0)
		lock->permits = 0;
	le_lock_arm(core, lock, now);
}

/*
 * Grants all waiters that the order of the queue allows.  Every change to a lock ends with this
 * call.  Must not fail: each waiter has a slot reserved.
 *
 * A group that leaves its queues makes room in other locks, whose grants may do the same.  These
 * groups are kept in a list, because recursion could become as deep as there are sessions.
 */
void
le_lock_settle(LeCore *core, LeLock *lock, LeTime now)
{
	if (core->loading)
		return; /* some waiters are not enqueued yet */
	lock_settle(core, lock, now);
	while (core->to_settle != NULL)
	{
		LeGroup *group = core->to_settle;

		core->to_settle = group->settle_next;
		assert(group->members->state != LE_STATE_QUEUED);
		for (LeEntry *member = group->members; member != NULL; member = member->waiter->group_next)
			lock_settle(core, member->lock, now);
		le_pool_put(&core->groups, group);
	}
}

/* --- entries --- */

/* Changes an entry's state.  The entry must have left the old state's list, since links share memory. */
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

/* Creates a NEW entry with one hold.  Must not fail: the entry and copies of its texts are reserved. */
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

	/* texts */
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

	/* indexes, usage, lease, session */
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

/* Creates the waiter of a NEW entry that is going to wait.  Must not fail: the waiter is reserved. */
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
 * Arms the entry's timer for the next moment at which something is due.  If that moment is later
 * than before, the timer stays unchanged and is set again when it fires, so that a renewal does not
 * have to walk through the heap.
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
 * that is repeated after a reload may go before others.
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

	/* the entry */
	le_entry_set_state(entry, entry->state, LE_STATE_HELD);
	le_news_add(core, entry);
	entry->slot = slot;
	entry->acquired_at = now;
	le_saved_set(core, &entry->saved, entry->ttl);
	entry->deadline =
		(entry->lease != NULL || entry->ttl == LE_TTL_BOUND) ? LE_NEVER : le_add(now, entry->ttl);

	/* the lock, and the effects */
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

/* HELD -> LAPSED: the holder has ended, but keeps its slot while it is fenced.  Must not fail. */
void
le_entry_lapse(LeCore *core, LeEntry *entry, LeEnd how, LeTime closed_until, LeTime since)
{
	assert(how != LE_END_NONE || core->loading);
	le_count_hold(core, entry, since);
	le_owner_remove(core, entry);
	le_epoch_raise(core, entry->lock->hash);
	le_saved_forget(core, &entry->saved);
	le_entry_set_state(entry, LE_STATE_HELD, LE_STATE_LAPSED);
	le_entry_not_evicted(entry);
	entry->closed_until = closed_until;
	entry->lapsed_at = since;
	entry->end = (uint8_t) how;
	le_note_ending(core, entry->token, entry->role, how, since);
	le_news_end(core, entry, how);
	le_link_before(&core->lapsed, &entry->lapsed_link);
	core->work++;
}

/*
 * Ends one of several entries; the caller must call le_settle_ended() afterwards.  Must not fail.  A
 * holder that a transaction has fenced lapses and keeps its slot.  Once the fence has ended,
 * LE_CMD_FENCE_ENDED or the entry's timer ends it.
 */
void
le_entry_end_only(LeCore *core, LeEntry *entry, LeEnd how, LeTime closed_until, LeTime now)
{
	assert(entry->state != LE_STATE_NEW && entry->state != LE_STATE_ENDED);
	if (entry->state == LE_STATE_LAPSED && entry->closed_until > closed_until)
		closed_until = entry->closed_until;
	if (le_entry_has_slot(entry) && core->env.fenced != NULL && core->env.fenced(core->env.arg, entry->token))
	{
		/* without this write, a reload would bring the holder back */
		if (entry->state == LE_STATE_HELD)
		{
			le_entry_lapse(core, entry, how, closed_until, now);
			le_slot_dirty(core, entry->slot);
		}
		else if (closed_until > entry->closed_until)
		{
			entry->closed_until = closed_until;
			le_slot_dirty(core, entry->slot);
		}
		le_timer_set(core, &entry->timer, le_add(now, LE_FENCE_RETRY));
		return;
	}
	if (entry->state == LE_STATE_QUEUED && entry->grouped)
	{
		le_group_end(core, entry->waiter->group, how, now);
		return;
	}
	le_entry_finish(core, entry, how, closed_until, now);
}

/*
 * Settles the locks of all entries added to core->ended since "before".  Called after the last end,
 * so that no entry that is about to end is granted.  Must not fail.
 */
void
le_settle_ended(LeCore *core, const LeEntry *before, LeTime now)
{
	for (LeEntry *entry = core->ended; entry != before; entry = entry->ended_next)
		le_lock_settle(core, entry->lock, now);
}

/* Ends one entry and settles its lock.  Must not fail. */
void
le_entry_end(LeCore *core, LeEntry *entry, LeEnd how, LeTime closed_until, LeTime now)
{
	LeEntry *before = core->ended;

	le_entry_end_only(core, entry, how, closed_until, now);
	le_settle_ended(core, before, now);
}
