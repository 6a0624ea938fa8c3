/*
 * core/settle.c
 *		Grants locks to waiters, and ends entries, with the effects on other entries.
 *
 * core/entry.c changes a single entry.  The functions in this file also end the rest of a
 * waiting group, let a fenced holder lapse, and then grant the lock to waiters.
 */
#include "changes.h"
#include "containers.h"
#include "entry.h"
#include "lock.h"
#include "owner.h"
#include "settle.h"
#include "state.h"
#include "stats.h"
#include "together.h"
#include "uncommitted.h"
#include "view.h"

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
 * If a holder has the same owner or lease as the first waiter, turns the waiter into one more hold of
 * that holder, or replies with the error that prevents this.  Returns whether the waiter left the queue.
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
			head->hold_count = 0; /* le_entry_answer() then sets "counted" to false */
		if (head->value != NULL)
			join_value(core, holder, head, now);
		core->stats.grants++;
		head->waiter->joined = le_owner_is_shared(holder, head->session);
	}

	/* reply to the waiter, and end it */
	if (le_entry_lsn(holder) > head->lsn)
		head->lsn = le_entry_lsn(holder);
	le_answer(core, head, status, status == LE_OK ? holder->token : 0);
	le_count_wait(core, head, status == LE_OK, now);
	le_entry_finish(core, head, LE_END_REPLACED, 0, now);
	return true;
}

/*
 * Returns why a waiting entry must end because of its named lease: the lease has ended or expired;
 * LE_END_NONE = the lease is valid.  An expired lease itself is ended after the requests of this
 * batch.
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
			/* the next batch continues with the other waiters */
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
 * Grants all waiters that the order of the queue allows.  Must be called after every change to a lock.
 * Must not fail: each waiter has a slot reserved.
 *
 * When a group leaves its queues, waiters behind it in other locks may be granted, among them other
 * groups.  Such groups are kept in a list, because recursion could become as deep as the number of
 * sessions.
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

/*
 * Ends an entry without settling its lock; the caller must call le_settle_ended() afterwards.  Must not
 * fail.  A holder that a transaction has fenced lapses and keeps its slot.  Once the fence has ended,
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
		/* without this write, a reload would restore the holder as HELD */
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
 * Settles the locks of all entries added to core->ended since "before".  Must be called after the last
 * end, so that no entry that is about to end is granted.  Must not fail.
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
