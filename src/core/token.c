/*
 * core/token.c
 *		Applies commands on a token: renew, release, await, check and proclaim.
 */
#include "entry.h"
#include "epoch.h"
#include "later.h"
#include "leasetime.h"
#include "lock.h"
#include "reentry.h"
#include "saved.h"
#include "sessions.h"
#include "settle.h"
#include "state.h"
#include "together.h"
#include "token.h"
#include "view.h"

/*
 * Sets the writes on which a reply about this entry depends: those of its row and of its lease's row.
 * Either row may still have to be written with this batch.
 */
static void
reply_row(LeReply *reply, const LeEntry *entry)
{
	reply->lsn = le_entry_lsn(entry);
	reply->wrote = le_entry_is_dirty(entry);
}

/*
 * Returns the entry with this token if it has the command's name and belongs to the caller's role;
 * otherwise returns NULL and sets the reply's status.
 */
static LeEntry *
find_own(LeCore *core, const LeCommand *cmd, LeReply *reply)
{
	LeEntry *entry = le_core_find_entry(core, cmd->kind, cmd->name, cmd->token);

	reply->status = LE_NOT_HELD;
	if (entry == NULL || entry->state == LE_STATE_LAPSED || le_entry_is_draining(entry))
		return NULL;
	if (entry->state == LE_STATE_QUEUED && !entry->place)
		return NULL;
	if (entry->role != cmd->role)
	{
		reply->status = LE_DENIED;
		return NULL;
	}
	reply->status = LE_OK;
	reply->token = entry->token;
	reply_row(reply, entry);
	return entry;
}

/*
 * Returns true, and sets the reply, if the holder is evicted.  The reply is that the lock is lost,
 * although the evicted holder still has it.
 */
static bool
refuse_evicted(const LeEntry *entry, LeReply *reply, LeStatus status)
{
	if (!entry->evicted)
		return false;
	*reply = (LeReply){.status = status, .ending = LE_END_EVICTED};
	return true;
}

/*
 * RENEW by token: restarts the lease of a holder, with another TTL if one is given.  Returns QUEUED for
 * a place, which is renewed by AWAIT or with its named lease.
 *
 * Limits do not apply to renewals, so that a holder keeps its lock after the limits were lowered.
 * The reply gives the time that would be left after a crash.  If the TTL has changed, the reply
 * waits until the new TTL is durable.
 */
void
le_apply_renew(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	LeEntry *entry = find_own(core, cmd, reply);
	bool changed;

	if (entry == NULL || refuse_evicted(entry, reply, LE_NOT_HELD))
		return;
	if (entry->state == LE_STATE_QUEUED)
	{
		reply->status = LE_QUEUED;
		return;
	}

	/* only the holder's own lease, or that of its group, can get another TTL */
	if (cmd->ttl != 0 && (le_entry_named_lease(entry) != NULL || entry->ttl == LE_TTL_BOUND))
	{
		reply->status = LE_BAD_TTL;
		return;
	}
	changed = cmd->ttl != 0 && cmd->ttl != (entry->lease != NULL ? entry->lease->ttl : entry->ttl);
	if (changed && entry->lease != NULL)
		le_lease_set_ttl(core, entry->lease, cmd->ttl);
	else if (changed)
	{
		entry->ttl = cmd->ttl;
		le_epoch_raise(core, entry->lock->hash);
		entry->saved.raised = true;
		le_slot_dirty(core, entry->slot);
	}
	assert(entry->state == LE_STATE_HELD);
	le_entry_renew(core, entry, now);
	le_reply_time(reply, entry, now);
	if (!changed && entry->lease != NULL)
		le_reply_lease_validity(core, reply, entry->lease, now);
	else if (!changed && entry->ttl != LE_TTL_BOUND)
		le_reply_validity(core, reply, &entry->saved, entry->ttl);
	reply_row(reply, entry);
}

/*
 * RELEASE: releases some or all holds of the entry with this token or, without a token, of the
 * session's newest holder of the name.  The release of the last hold ends the entry; hold_for then
 * keeps the name closed.  A place leaves its queue.
 */
void
le_apply_release(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	LeCommand by_token = *cmd;
	LeEntry *entry;
	LeSlot *slot;
	LeTime closed_until = 0;
	uint32_t holds = cmd->holds > 0 ? cmd->holds : 1;
	bool later;

	if (cmd->session != 0)
		le_session_touch(core, cmd->session, cmd->sessno, cmd->xact, now);
	if (cmd->token == 0)
	{
		entry = le_newest_of_session(core, cmd);
		if (entry == NULL)
		{
			reply->status = LE_NOT_HELD;
			return;
		}
		by_token.token = entry->token;
	}
	entry = find_own(core, &by_token, reply);
	if (entry == NULL)
		return;
	reply->bound = le_entry_time_left(entry, now) == LE_NEVER;
	reply->wrote = true;
	/* a crash may undo the release only if the lock is free again soon, because the holder expires */
	reply->may_return = (entry->lease != NULL ? entry->lease->ttl : entry->ttl) <= LE_SAVE_INTERVAL;
	if (entry->state == LE_STATE_HELD && le_entry_holds(entry) > holds && !cmd->all_holds)
	{
		assert(entry->hold_count > holds);
		entry->hold_count -= holds;
		le_slot_dirty(core, entry->slot);
		return;
	}
	if (entry->state == LE_STATE_HELD && cmd->hold_for > 0)
		closed_until = le_add(entry->acquired_at, cmd->hold_for);
	if (closed_until <= now)
		closed_until = 0;
	else
	{
		/* the closed name must be durable, even if its holder was bound to a connection */
		reply->bound = false;
		reply->may_return = false;
	}
	slot = entry->slot;
	later = cmd->later && reply->may_return && slot != NULL && !slot->row.dirty;
	le_entry_end(core, entry, LE_END_RELEASED, closed_until, now);
	if (later)
		le_write_later(core, slot, by_token.token, now);
}

/*
 * Ends an earlier wait for a place.  Only the newest wait counts, because a client that lost its
 * connection may wait again before the server notices the loss.
 */
static void
displace_waiter(LeCore *core, LeEntry *entry, LeReply *reply)
{
	LeSession *session = &core->sessions[entry->waiter->sessno];

	if (entry->waiter->session == 0)
		return;
	assert(session->id == entry->waiter->session && session->waiting_on == entry);
	session->waiting_on = NULL;
	reply->displaced_session = entry->waiter->session;
	reply->displaced_sessno = entry->waiter->sessno;
	reply->displaced_request = entry->waiter->request;
}

/*
 * AWAIT: waits until a place is granted, and keeps the place alive during the wait.  Returns OK if the
 * token already holds the lock; WAITING, or QUEUED if the command does not wait; LOST if the token is
 * gone or evicted.
 */
void
le_apply_await(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	LeSession *session = le_session_touch(core, cmd->session, cmd->sessno, cmd->xact, now);
	LeEntry *entry = find_own(core, cmd, reply);

	if (entry == NULL)
	{
		if (reply->status == LE_NOT_HELD)
			reply->status = LE_LOST;
		return;
	}
	if (refuse_evicted(entry, reply, LE_LOST))
		return;
	le_entry_renew(core, entry, now);
	le_reply_time(reply, entry, now);
	reply_row(reply, entry);
	if (entry->state == LE_STATE_HELD)
		return;
	reply->status = LE_QUEUED;
	reply->own_session = le_held_by_session(core, entry->lock, cmd);
	entry = le_group_lead(entry);
	assert(entry->state == LE_STATE_QUEUED && entry->place);
	if (cmd->wait != 0 && !entry->waiter->answering)
	{
		displace_waiter(core, entry, reply);
		le_session_wait(session, entry, cmd, now);
		reply->status = LE_WAITING;
	}
	le_entry_arm(core, entry);
}

/*
 * CHECK: returns OK if this token is a holder, QUEUED if it is a place.  Token 0 = the session's newest
 * holder.
 */
void
le_apply_check(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	LeEntry *entry = cmd->token != 0 ? le_core_find_entry(core, cmd->kind, cmd->name, cmd->token)
									 : le_newest_of_session(core, cmd);

	reply->status = LE_NOT_HELD;
	if (entry == NULL || entry->state == LE_STATE_LAPSED || le_entry_is_draining(entry) ||
		(entry->state == LE_STATE_QUEUED && !entry->place))
		return;
	if (cmd->role != 0 && entry->role != cmd->role)
	{
		reply->status = LE_DENIED;
		return;
	}
	reply->status = entry->state == LE_STATE_HELD ? LE_OK : LE_QUEUED;
	reply->token = entry->token;
	le_reply_time(reply, entry, now);
	reply->holds = le_entry_holds(entry);
	reply->own_session =
		entry->state == LE_STATE_HELD && entry->owner == NULL && entry->session == cmd->session;
	reply_row(reply, entry);
}

/* PROCLAIM: replaces the value of a holder.  The role's limit applies only if the value grows. */
void
le_apply_proclaim(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	LeEntry *entry = find_own(core, cmd, reply);

	if (entry == NULL)
		return;
	if (entry->state != LE_STATE_HELD)
	{
		reply->status = LE_NOT_HELD;
		return;
	}
	reply->status = le_holder_admits_value(core, entry, cmd->value);
	if (reply->status != LE_OK)
		return;
	le_holder_proclaim(core, entry, cmd, now);
	reply->wrote = true;
}
