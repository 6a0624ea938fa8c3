/*
 * core/acquire.c
 *		Applies ACQUIRE of one name: a new request, or one that is repeated after a reload.
 */
#include "acquire.h"
#include "entry.h"
#include "epoch.h"
#include "lock.h"
#include "owner.h"
#include "reentry.h"
#include "role.h"
#include "saved.h"
#include "sessions.h"
#include "settle.h"
#include "state.h"
#include "together.h"
#include "uncommitted.h"
#include "view.h"

/* --- rules --- */

/*
 * Checks that the request and the lock's holders and waiters agree: either all of them use permits,
 * with the same number of permits, or none of them does.
 */
LeStatus
le_acquire_use(const LeLock *lock, const LeCommand *cmd)
{
	if (lock->held == 0 && lock->waiting == 0)
		return LE_OK;
	if ((lock->permits > 0) != (cmd->mode == LE_MODE_PERMIT))
		return LE_BAD_MODE;

	/* a repeated request may have an old number of permits, because the number changed during its wait */
	if (cmd->mode == LE_MODE_PERMIT && lock->permits != cmd->permits && cmd->revision == 0)
		return LE_BAD_PERMITS;
	return LE_OK;
}

/*
 * Finds the named lease of a request.  Sets *lease to NULL if the request has none.
 *
 * For a new request, returns NO_LEASE if the lease is gone, or has expired and ends with this batch.
 * For a request that is repeated after a reload, returns LOST if the lease is gone; if the lease has
 * expired, the end of the lease will also end the request.  Returns DENIED if the lease belongs to
 * another role.
 */
LeStatus
le_acquire_lease(const LeCore *core, const LeCommand *cmd, LeTime now, LeLease **lease)
{
	bool comes_back = cmd->revision != 0;

	*lease = NULL;
	if (cmd->lease == 0)
		return LE_OK;
	*lease = le_core_find_lease(core, cmd->lease);
	if (*lease == NULL || (*lease)->for_group || (*lease)->draining)
		return comes_back ? LE_LOST : LE_NO_LEASE;
	if (!comes_back && le_is_over(core, (*lease)->deadline, now))
		return LE_NO_LEASE;
	return (*lease)->role != cmd->role ? LE_DENIED : LE_OK;
}

/*
 * Returns whether a new request can be granted now.  Returns false while any entry waits, to keep the
 * order of arrival.
 */
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

/* --- a new entry --- */

/*
 * Returns the properties of the entry that a command creates.  A repeated request keeps its old
 * revision as its token.
 */
LeEntrySpec
le_acquire_spec(LeCore *core, const LeCommand *cmd, LeLease *lease)
{
	return (LeEntrySpec){.mode = cmd->mode,
						 .place = cmd->enqueue,
						 .ttl = cmd->ttl,
						 .token = cmd->revision != 0 ? cmd->revision : core->next_revision++,
						 .lease = lease,
						 .owner = cmd->owner,
						 .value = cmd->value,
						 .acquirer = cmd->acquirer,
						 .role = cmd->role,
						 .session = cmd->session,
						 .sessno = cmd->sessno};
}

/* Creates a NEW entry with an uncommitted hold for a request, and its lock if there is none. */
static LeEntry *
new_request(LeCore *core, const LeCommand *cmd, LeLease *lease, LeReply *reply)
{
	LeLock *lock = le_lock_get(core, cmd->kind, cmd->name);
	LeEntrySpec spec = le_acquire_spec(core, cmd, lease);
	LeEntry *entry = le_entry_new(core, lock, &spec);

	if (cmd->mode == LE_MODE_PERMIT && lock->permits == 0)
		lock->permits = cmd->permits;
	le_uncommitted_take(core, entry, cmd, reply);
	reply->token = entry->token;
	return entry;
}

/*
 * Enqueues a request: as a place, whose reply is sent with this batch, or as a blocked call of its
 * session.
 */
static void
enqueue(LeCore *core, LeSession *session, const LeCommand *cmd, LeEntry *entry, LeTime now, LeReply *reply)
{
	assert(entry->state == LE_STATE_NEW && entry->place == cmd->enqueue);
	core->stats.waits++;
	le_waiter_new(core, entry, cmd->since != 0 ? cmd->since : now);
	entry->waiter->tells = cmd->tells_lease ? LE_TELLS_LEASE : LE_TELLS_NAME;
	if (cmd->enqueue)
	{
		if (entry->lease == NULL && cmd->ttl != LE_TTL_BOUND)
		{
			entry->deadline = le_add(now, cmd->ttl);
			le_saved_set(core, &entry->saved, cmd->ttl);
		}
		le_place_dirty(core, entry);
		reply->status = LE_QUEUED;
		reply->position = entry->lock->waiting + 1;
		le_reply_time(reply, entry, now);
		reply->wrote = true;
	}
	else
	{
		le_session_wait(session, entry, cmd, now);
		reply->status = LE_WAITING;
	}
	le_entry_queue(core, entry, now);
	assert(entry->state == LE_STATE_QUEUED && entry->lock->waiting > 0);
	assert(!cmd->enqueue || reply->position > 0);
}

/* --- a repeated request for a place --- */

/* Returns whether this entry is the place that the command requests.  Each owner has its own place. */
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

/* Returns the place that an earlier copy of this request got on its named lease; NULL = none. */
LeEntry *
le_same_place(const LeCore *core, const LeLock *lock, const LeLease *lease, const LeCommand *cmd)
{
	const LeLink *link = lock->queue.next, *other = lease->entries.next;

	/* walk both lists in parallel until the shorter one ends, because each of them may be very long */
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

/*
 * Replies to a repeated request for a place with the position of the place.  While the earlier copy of
 * the request is uncommitted, the repeated one gets its own hold, so that a rollback of the earlier
 * copy does not end the place.
 */
void
le_place_again(LeCore *core, LeEntry *entry, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	uint32_t position = 1;

	assert(entry->place && entry->state == LE_STATE_QUEUED);
	if (entry->uncommitted != NULL)
	{
		entry->hold_count++;
		le_uncommitted_take(core, entry, cmd, reply);
		le_place_dirty(core, entry);
	}
	reply->wrote |= le_entry_is_dirty(entry);
	for (const LeLink *link = entry->lock->queue.next; link != &entry->waiter->queue_link; link = link->next)
		position++;
	if (position > reply->position)
		reply->position = position;
	le_reply_holder(reply, entry, now);
}

/* --- a request that is repeated after a reload --- */

/*
 * Replies to a repeated request whose entry is stored: the manager wrote the entry before it exited, so
 * only the reply was lost.  The hold of this request may have been loaded with the row, and must not be
 * counted twice.  The same owner may have uncommitted holds of other sessions, which stay as they are.
 */
void
le_requeue_stored(LeCore *core, LeEntry *entry, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	assert(cmd->revision != 0);
	if (!le_has_hold_of(entry, cmd->session))
		le_uncommitted_add(core, entry, cmd->session, cmd->sessno, cmd->xact, cmd->subxact);
	reply->status = entry->state == LE_STATE_LAPSED ? LE_LOST
					: entry->state == LE_STATE_HELD ? LE_OK
													: LE_QUEUED;
	reply->counted = true;
	le_reply_holder(reply, entry, now);
}

/*
 * Applies a request that a waiter has posted again after a reload, with its old revision.
 *
 * Follows the first of these rules that applies:
 *
 *	1.	Its named lease is gone or belongs to another role: LOST, DENIED.
 *	2.	Its entry is stored: the missing reply is sent.
 *	3.	Only one of the lock and the request uses permits: BAD_MODE.
 *	4.	It is not allowed to wait: NOT_GRANTED, LOST.
 *	5.	It returns to its position in the queue and keeps the time at which it began to wait:
 *		QUEUED, WAITING.  Limits do not apply.  If the lock admits it, it is granted from
 *		the queue.
 */
static void
requeue(LeCore *core, LeSession *session, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	LeLock *lock = le_core_find_lock(core, cmd->kind, cmd->name);
	LeEntry *entry = le_core_find_entry(core, cmd->kind, cmd->name, cmd->revision);
	LeLease *lease;

	/* 1. find the named lease */
	reply->status = le_acquire_lease(core, cmd, now, &lease);
	if (reply->status != LE_OK)
		return;

	/* 2. reply to a request whose entry is stored */
	if (entry == NULL && lock != NULL && !cmd->enqueue)
		entry = le_reentry_joined(core, lock, cmd, lease);
	if (entry != NULL)
	{
		le_requeue_stored(core, entry, cmd, now, reply);
		return;
	}

	/* 3. check that the lock and the request agree about permits */
	if (lock != NULL)
	{
		reply->status = le_acquire_use(lock, cmd);
		if (reply->status != LE_OK)
			return;
	}

	/* 4. fail if the request is not allowed to wait */
	if (!cmd->enqueue)
	{
		reply->own_session = lock != NULL && le_held_by_session(core, lock, cmd);
		if (cmd->wait == 0 || cmd->reenter != 0)
		{
			reply->status = cmd->wait == 0 ? LE_NOT_GRANTED : LE_LOST;
			return;
		}
	}
	/* 5. enqueue the request again */
	entry = new_request(core, cmd, lease, reply);
	enqueue(core, session, cmd, entry, now, reply);
	le_lock_settle(core, entry->lock, now);
}

/* --- a new request --- */

/*
 * Decides the outcome of a new request for one name, without changing anything.  Follows the first of
 * these rules that applies:
 *
 *	1.	Only one of the lock and the request uses permits, or their numbers of permits differ: BAD_MODE,
 *		BAD_PERMITS.
 *	2.	An earlier copy of this request got a place on the same named lease, but its reply was lost: the
 *		request gets that place or, if it has been granted since, the holder.
 *	3.	The owner, the lease or the transaction already holds the lock: one more hold,
 *		or BAD_UPGRADE, BAD_TTL or a limit of the role.
 *	4.	It is not admitted, and not allowed to wait: NOT_GRANTED; LOST if it names a holder to
 *		re-enter, because that holder is gone.
 *	5.	The queue is full, or the role has reached a limit: a LIMIT status.
 *	6.	It is admitted, or it waits at the end of the queue.
 *
 * taken: usage that earlier names of the same command add to the role.
 */
LeDecision
le_acquire_decide(const LeCore *core, const LeSession *session, const LeLock *lock, const LeCommand *cmd,
				  const LeLease *lease, LeUsage taken, LeTime now)
{
	LeDecision d = {.way = LE_WAY_REFUSED};

	if (lock != NULL)
	{
		/* 1. check that the lock and the request agree about permits */
		d.status = le_acquire_use(lock, cmd);
		if (d.status != LE_OK)
			return d;

		/* 2. find the place or holder of an earlier copy of this request */
		if (cmd->enqueue && lease != NULL && cmd->mode != LE_MODE_PERMIT)
		{
			LeEntry *entry = le_lock_owned(core, lock, cmd->role, cmd->owner, lease, cmd->session);

			d.entry = entry != NULL && entry->lease == lease ? entry : NULL;
			entry = d.entry == NULL ? le_same_place(core, lock, lease, cmd) : NULL;
			if (entry != NULL)
			{
				d.status = le_hold_check(core, entry, taken);
				return d.status != LE_OK
						   ? d
						   : (LeDecision){.way = LE_WAY_PLACE, .status = LE_QUEUED, .entry = entry};
			}
		}

		/* 3. find a holder that the request re-enters */
		if (d.entry == NULL)
			d.entry = le_reentry_find(core, lock, session, cmd, lease);
		if (d.entry != NULL)
		{
			d.status = le_reentry_check(core, d.entry, cmd, lease, taken);
			d.way = d.status == LE_OK ? LE_WAY_REENTERS : LE_WAY_REFUSED;
			return d;
		}
	}

	/* 4. fail if the request is not allowed to wait */
	d.blocked = !le_acquire_admitted(lock, cmd, now);
	assert(!d.blocked || lock != NULL);
	if (d.blocked && !cmd->enqueue && (cmd->wait == 0 || cmd->reenter != 0))
	{
		d.status = cmd->wait == 0 ? LE_NOT_GRANTED : LE_LOST;
		return d;
	}

	/* 5. check the limits */
	if (d.blocked && core->limits.waiters_per_lock > 0 && lock->waiting >= core->limits.waiters_per_lock)
		d.status = LE_LIMIT_WAITERS;
	else
		d.status = le_role_admits(core, cmd->role, le_usage_sum(le_usage_of_command(cmd), taken));

	/* 6. grant the lock, or wait */
	if (d.status == LE_OK)
		d.way = d.blocked ? LE_WAY_WAITS : LE_WAY_GRANTED;
	return d;
}

/*
 * Applies ACQUIRE of one name: a call that may wait, or a request for a place ("enqueue").
 *
 * NO_LEASE, DENIED: the named lease is gone or belongs to another role.  Otherwise the reply is that
 * of le_acquire_decide(). own_session is set if a call was not admitted and its session itself has
 * a slot of the lock.  If the request is granted or waits, there is an entry with the reply's token
 * and an uncommitted hold (counted).
 *
 * Must not fail: le_core_reserve() has allocated the lock, the entry, its waiter and its hold.
 */
void
le_apply_acquire(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	LeSession *session = le_session_touch(core, cmd->session, cmd->sessno, cmd->xact, now);
	LeLease *lease;
	LeLock *lock;
	LeEntry *entry;
	LeDecision d;

	assert(cmd->nnames == 0 && reply->status == LE_OK);
	if (cmd->revision != 0)
	{
		requeue(core, session, cmd, now, reply);
		return;
	}
	reply->status = le_acquire_lease(core, cmd, now, &lease);
	if (reply->status != LE_OK)
		return;

	/* decide */
	lock = le_core_find_lock(core, cmd->kind, cmd->name);
	d = le_acquire_decide(core, session, lock, cmd, lease, (LeUsage){0}, now);
	reply->status = d.status;
	reply->permits = lock != NULL ? lock->permits : 0;
	reply->own_session = d.blocked && !cmd->enqueue && le_held_by_session(core, lock, cmd);

	/* apply */
	switch (d.way)
	{
		case LE_WAY_REFUSED:
			break;
		case LE_WAY_REENTERS:
			le_reentry_apply(core, d.entry, cmd, now, reply);
			break;
		case LE_WAY_PLACE:
			le_place_again(core, d.entry, cmd, now, reply);
			break;
		case LE_WAY_WAITS:
			entry = new_request(core, cmd, lease, reply);
			enqueue(core, session, cmd, entry, now, reply);
			break;
		case LE_WAY_GRANTED:
			entry = new_request(core, cmd, lease, reply);
			le_entry_grant(core, entry, now);
			le_lock_arm(core, entry->lock, now);
			le_reply_time(reply, entry, now);
			le_epoch_reply(core, reply, entry);
			reply->wrote = true;
			assert(entry->state == LE_STATE_HELD && reply->status == LE_OK);
			break;
	}
}
