/*
 * core/acquire.c
 *		ACQUIRE of one name.
 */
#include "core_internal.h"

/* A name is used in one way at a time. */
LeStatus
le_acquire_use(const LeLock *lock, const LeCommand *cmd)
{
	if (lock->held == 0 && lock->waiting == 0)
		return LE_OK;
	if ((lock->permits > 0) != (cmd->mode == LE_MODE_PERMIT))
		return LE_BAD_MODE;

	/* the number may have been changed while a waiter of old was queued */
	if (cmd->mode == LE_MODE_PERMIT && lock->permits != cmd->permits && cmd->revision == 0)
		return LE_BAD_PERMITS;
	return LE_OK;
}

/*
 * A waiter that comes back after a reload finds its request stored already: it
 * had been written when the manager ended, and only the answer was missing.
 * Its hold may have been loaded with the row; other sessions of the same owner
 * may have uncommitted holds of their own.
 */
void
le_acquire_entered(LeCore *core, LeEntry *entry, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	if (!le_has_hold_of(entry, cmd->session))
		le_uncommitted_add(core, entry, cmd->session, cmd->sessno, cmd->xact, cmd->subxact);
	reply->status = entry->state == LE_STATE_LAPSED ? LE_LOST
					: entry->state == LE_STATE_HELD ? LE_OK
													: LE_QUEUED;
	reply->counted = true;
	le_reply_holder(reply, entry, now);
}

/* May this request have its slot now, if nobody waits before it? */
bool
le_acquire_admitted(const LeLock *lock, const LeCommand *cmd, LeTime now)
{
	if (lock == NULL)
		return true;
	if (lock->waiting > 0)
		return false;
	if (cmd->mode == LE_MODE_PERMIT && lock->permits == 0)
		return lock->closed_until <= now;
	return le_lock_admits(lock, cmd->mode, now);
}

/* The request becomes a holder, if it is admitted, or enters the queue. */
static void
enter(LeCore *core, LeSession *session, const LeCommand *cmd, LeLease *lease, bool admitted, LeTime now,
	  LeReply *reply)
{
	LeLock *lock = le_lock_get(core, cmd->kind, cmd->name);
	LeEntry *entry;

	if (cmd->mode == LE_MODE_PERMIT && lock->permits == 0)
		lock->permits = cmd->permits;
	entry = le_entry_new(core, lock, cmd, lease);
	entry->place = cmd->enqueue;
	le_uncommitted_add(core, entry, cmd->session, cmd->sessno, cmd->xact, cmd->subxact);
	reply->token = entry->token;
	reply->counted = true;
	if (admitted)
	{
		le_entry_grant(core, entry, now);
		le_lock_timer(core, lock, now);
		le_reply_time(reply, entry, now);
		le_epoch_reply(core, reply, entry);
		reply->wrote = true;
		return;
	}
	core->stats.waits++;
	le_waiter_new(core, entry, cmd->since != 0 ? cmd->since : now);
	if (cmd->enqueue)
	{
		if (lease == NULL && cmd->ttl != LE_TTL_BOUND)
			entry->deadline = le_add(now, cmd->ttl);
		le_place_dirty(core, entry);
		reply->status = LE_QUEUED;
		reply->position = lock->waiting + 1;
		le_reply_time(reply, entry, now);
		reply->wrote = true;
	}
	else
	{
		le_session_wait(session, entry, cmd, now);
		reply->status = LE_WAITING;
	}
	le_entry_queue(core, entry, now);
	if (cmd->revision != 0)
		le_lock_settle(core, lock, now);
}

/*
 * The named lease that a request is to hang on, NULL if it names none.  That of
 * a waiter that comes back was there once, and ends in its turn.
 */
LeStatus
le_acquire_lease(const LeCore *core, const LeCommand *cmd, LeTime now, LeLease **lease)
{
	*lease = NULL;
	if (cmd->lease == 0)
		return LE_OK;
	*lease = le_core_find_lease(core, cmd->lease);
	if (*lease == NULL || (*lease)->for_group || (*lease)->ending)
		return cmd->revision != 0 ? LE_LOST : LE_NO_LEASE;

	/* what has waited before may find its lease overdue: it ends with this batch */
	if (cmd->revision == 0 && le_is_over(core, (*lease)->deadline, now))
		return LE_NO_LEASE;
	return (*lease)->role != cmd->role ? LE_DENIED : LE_OK;
}

/* The same lease asks for the same thing once more; two owners on one lease are two. */
static bool
is_same_place(const LeCore *core, const LeEntry *entry, const LeLock *lock, const LeLease *lease,
			  const LeCommand *cmd)
{
	return entry->lock == lock && entry->lease == lease && entry->state == LE_STATE_QUEUED && entry->place &&
		   entry->grouped == (cmd->nnames > 0) && entry->mode == cmd->mode &&
		   le_text_equal(le_text(entry->owner, entry->owner_len), cmd->owner) &&
		   le_text_equal(le_text(entry->value, entry->value_len), cmd->value) &&
		   (cmd->nnames == 0 || le_group_has_names(core, entry, cmd));
}

/* The place that this request has taken in this lock already, on its named lease. */
LeEntry *
le_same_place(const LeCore *core, const LeLock *lock, const LeLease *lease, const LeCommand *cmd)
{
	const LeLink *link = lock->queue.next, *other = lease->entries.next;

	/* to the end of the shorter list: both may be very long */
	for (; link != &lock->queue && other != &lease->entries; link = link->next, other = other->next)
	{
		LeEntry *queued = le_queued(link);
		LeEntry *leased = le_container(other, LeEntry, lease_link);

		if (is_same_place(core, queued, lock, lease, cmd))
			return queued;
		if (is_same_place(core, leased, lock, lease, cmd))
			return leased;
	}
	return NULL;
}

/* It must not go with an earlier request that may still roll back. */
void
le_place_again(LeCore *core, LeEntry *entry, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	uint32_t position = 1;

	if (entry->uncommitted != NULL)
	{
		entry->hold_count++;
		reply->counted = true;
		le_uncommitted_add(core, entry, cmd->session, cmd->sessno, cmd->xact, cmd->subxact);
		le_place_dirty(core, entry);
		reply->wrote = true;
	}
	for (const LeLink *link = entry->lock->queue.next; link != &entry->waiter->queue_link; link = link->next)
		position++;
	if (position > reply->position)
		reply->position = position;
	le_reply_holder(reply, entry, now);
}

/*
 * On a named lease a place is taken once, and what is held already is held: a
 * client that does not know what became of its request sends it again.
 */
static bool
enqueue_again(LeCore *core, LeLock *lock, LeLease *lease, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	LeEntry *entry = le_lock_owned(core, lock, cmd->role, cmd->owner, lease, cmd->session);

	if (entry != NULL && entry->lease == lease)
	{
		reply->status = le_reentry_status(entry, cmd->mode, lease, cmd->ttl);
		if (reply->status == LE_OK)
			le_reentry_apply(core, entry, cmd, now, reply);
		return true;
	}
	entry = le_same_place(core, lock, lease, cmd);
	if (entry == NULL)
		return false;
	reply->status = LE_QUEUED;
	le_place_again(core, entry, cmd, now, reply);
	return true;
}

/* A new request, or a waiter that comes back after a reload. */
void
le_apply_acquire(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	LeSession *session = le_session_touch(core, cmd->session, cmd->sessno, cmd->xact, now);
	LeLease *lease;
	LeLock *lock;
	LeEntry *entry;
	bool admitted;

	reply->status = le_acquire_lease(core, cmd, now, &lease);
	if (reply->status != LE_OK)
		return;
	if (cmd->revision != 0)
	{
		entry = le_core_find_entry(core, cmd->kind, cmd->name, cmd->revision);
		lock = le_core_find_lock(core, cmd->kind, cmd->name);
		if (entry == NULL && lock != NULL && !cmd->enqueue)
			entry = le_reentry_joined(core, lock, cmd, lease);
		if (entry != NULL)
		{
			le_acquire_entered(core, entry, cmd, now, reply);
			return;
		}
	}
	lock = le_core_find_lock(core, cmd->kind, cmd->name);
	if (lock != NULL)
	{
		reply->status = le_acquire_use(lock, cmd);
		reply->permits = lock->permits;
		if (reply->status != LE_OK)
			return;
		if (cmd->enqueue && lease != NULL && cmd->mode != LE_MODE_PERMIT && cmd->revision == 0 &&
			enqueue_again(core, lock, lease, cmd, now, reply))
			return;
		entry = cmd->revision != 0 ? NULL : le_reentry_find(core, lock, session, cmd, lease);
		if (entry != NULL)
		{
			reply->status = le_reentry_status(entry, cmd->mode, lease, cmd->ttl);
			if (reply->status == LE_OK)
				reply->status = le_reentry_admits(core, entry, cmd);
			if (reply->status == LE_OK)
				le_reentry_apply(core, entry, cmd, now, reply);
			return;
		}
	}

	/* a waiter of old goes to its place, and is granted from there */
	admitted = cmd->revision == 0 && le_acquire_admitted(lock, cmd, now);
	if (!admitted && !cmd->enqueue)
	{
		reply->own_session = lock != NULL && le_held_by_session(core, lock, cmd);
		if (cmd->wait == 0)
		{
			reply->status = LE_NOT_GRANTED;
			return;
		}
		if (cmd->reenter != 0)
		{
			reply->status = LE_LOST;
			return;
		}
	}
	if (!admitted && core->limits.waiters_per_lock > 0 && cmd->revision == 0 &&
		lock->waiting >= core->limits.waiters_per_lock)
	{
		reply->status = LE_LIMIT_WAITERS;
		return;
	}
	if (cmd->revision == 0)
		reply->status = le_role_admits(core, cmd->role, le_usage_of_command(cmd));
	if (reply->status != LE_OK)
		return;

	enter(core, session, cmd, lease, admitted, now, reply);
}
