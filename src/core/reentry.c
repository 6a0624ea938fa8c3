/*
 * core/reentry.c
 *		One more hold of a holder: which one a request re-enters, whether it may, and
 *		the effects on the holder.
 */
#include "core_internal.h"

/* Fills the parts of a reply that tell of a holder. */
void
le_reply_holder(LeReply *reply, const LeEntry *holder, LeTime now)
{
	reply->token = holder->token;
	le_reply_time(reply, holder, now);
	if (le_entry_lsn(holder) > reply->lsn)
		reply->lsn = le_entry_lsn(holder);
}

/* Replaces a holder's value.  An earlier change of this batch may still refer to the old one. */
void
le_holder_proclaim(LeCore *core, LeEntry *holder, const LeCommand *cmd, LeTime now)
{
	char *old = holder->value;

	assert(holder->state == LE_STATE_HELD && core->prealloc_value != NULL);
	le_role_add(core, holder->role, (LeUsage){.bytes = cmd->value.len});
	le_role_remove(core, holder->role, (LeUsage){.bytes = holder->value_len});
	holder->value = core->prealloc_value;
	holder->value_len = (uint16_t) cmd->value.len;
	core->prealloc_value = NULL;
	le_slot_dirty(core, holder->slot);
	le_change_add(core, holder, LE_HOW_PROCLAIMED, old, now);
}

/* May the role replace the holder's value by this one? */
LeStatus
le_holder_admits_value(const LeCore *core, const LeEntry *holder, LeText value)
{
	LeUsage more = {.bytes = value.len > holder->value_len ? value.len - holder->value_len : 0};

	return le_role_admits(core, holder->role, more);
}

/*
 * May the entry have one more hold?  While another hold may still roll back, the new one is a
 * record of its own, which counts against the role's limit, together with "taken".
 */
LeStatus
le_hold_check(const LeCore *core, const LeEntry *entry, LeUsage taken)
{
	if (entry->hold_count >= LE_MAX_HOLDS)
		return LE_LIMIT_HOLDS;
	return entry->uncommitted == NULL
			   ? LE_OK
			   : le_role_admits(core, entry->role, le_usage_sum(le_usage_of_hold(), taken));
}

/* May this request be one more hold of the holder? */
LeStatus
le_reentry_check(const LeCore *core, const LeEntry *holder, const LeCommand *cmd, const LeLease *lease,
				 LeUsage taken)
{
	LeStatus status = le_reentry_status(holder, cmd->mode, lease, cmd->ttl);

	if (status == LE_OK)
		status = le_holder_admits_value(core, holder, cmd->value);
	if (status == LE_OK)
		status = le_hold_check(core, holder, taken);
	return status;
}

/* Applies a re-entrant acquire that le_reentry_check() allows.  Must not fail: its hold is reserved. */
void
le_reentry_apply(LeCore *core, LeEntry *holder, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	if (le_entry_reenter(core, holder, cmd->ttl, now))
		le_uncommitted_take(core, holder, cmd, reply);
	if (cmd->value.data != NULL && !le_text_equal(le_text(holder->value, holder->value_len), cmd->value))
		le_holder_proclaim(core, holder, cmd, now);
	core->stats.grants++;
	le_reply_holder(reply, holder, now);
	assert(holder->hold_count > 0 && holder->state == LE_STATE_HELD);
	reply->reentrant = true;
	reply->shared_owner = le_owner_is_shared(holder, cmd->session);
	reply->wrote |= le_entry_is_dirty(holder);
}

/* Is this a holder without a named owner that the request may re-enter? */
static bool
is_unnamed_holder(const LeEntry *holder, const LeLock *lock, const LeCommand *cmd)
{
	return holder->lock == lock && holder->state == LE_STATE_HELD && !holder->evicted &&
		   holder->owner == NULL && holder->role == cmd->role && !le_entry_is_draining(holder);
}

/* Returns the holder that this very transaction has acquired; walks as le_held_by_session(). */
static LeEntry *
held_by_transaction(const LeLock *lock, const LeSession *session, const LeCommand *cmd)
{
	const LeLink *link = session->uncommitted.next;

	for (LeSlot *slot = lock->slots; slot != NULL && link != &session->uncommitted;
		 slot = slot->next, link = link->next)
	{
		LeEntry *entry = le_container(link, LeUncommitted, session_link)->entry;
		LeEntry *holder = le_slot_holder(slot);

		if (is_unnamed_holder(entry, lock, cmd))
			return entry;
		if (holder != NULL && is_unnamed_holder(holder, lock, cmd) && le_has_hold_of(holder, cmd->session))
			return holder;
	}
	return NULL;
}

/*
 * Returns the holder that this request re-enters: that of the same named owner; if it names none,
 * of the same named lease; if neither, the one whose token it gives (cmd->reenter), or that of
 * this very transaction.  Each permit is an entry of its own.
 */
LeEntry *
le_reentry_find(const LeCore *core, const LeLock *lock, const LeSession *session, const LeCommand *cmd,
				const LeLease *lease)
{
	LeEntry *holder;

	if (cmd->enqueue || cmd->mode == LE_MODE_PERMIT || lock->held == 0)
		return NULL;
	holder = le_lock_owned(core, lock, cmd->role, cmd->owner, lease, cmd->session);
	if (holder != NULL || cmd->owner.data != NULL)
		return holder;
	holder = cmd->reenter != 0
				 ? le_core_find_entry(core, cmd->kind, le_text(lock->name, lock->name_len), cmd->reenter)
				 : NULL;
	if (holder != NULL && holder->session == cmd->session && is_unnamed_holder(holder, lock, cmd))
		return holder;
	return held_by_transaction(lock, session, cmd);
}

/*
 * Returns the holder that a waiter has joined before a reload: it was granted as one more hold of
 * its owner's holder, and only the reply was missing.  While it waited, its session had no hold
 * of that holder, unless that had been the session's own queue place, which has one from the
 * beginning.
 */
LeEntry *
le_reentry_joined(const LeCore *core, const LeLock *lock, const LeCommand *cmd, const LeLease *lease)
{
	LeEntry *holder = lock->held > 0 && cmd->mode != LE_MODE_PERMIT
						  ? le_lock_owned(core, lock, cmd->role, cmd->owner, lease, cmd->session)
						  : NULL;

	if (holder == NULL || !le_has_hold_of(holder, cmd->session))
		return NULL;
	return holder->session == cmd->session && holder->hold_count < 2 ? NULL : holder;
}
