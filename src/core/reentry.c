/*
 * core/reentry.c
 *		Re-entry: finds the holder that a request re-enters, checks whether this is allowed,
 *		and adds one more hold.
 */
#include "changes.h"
#include "entry.h"
#include "lock.h"
#include "owner.h"
#include "reentry.h"
#include "role.h"
#include "state.h"
#include "uncommitted.h"
#include "view.h"

/* Sets the token, the time left and the LSN of a holder in the reply. */
void
le_reply_holder(LeReply *reply, const LeEntry *holder, LeTime now)
{
	reply->token = holder->token;
	le_reply_time(reply, holder, now);
	if (le_entry_lsn(holder) > reply->lsn)
		reply->lsn = le_entry_lsn(holder);
}

/* Replaces a holder's value.  Changes may refer to the old value, so it is freed at the end of the batch. */
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

/* Returns LE_OK if the role's limits allow this value for the holder, else an error. */
LeStatus
le_holder_admits_value(const LeCore *core, const LeEntry *holder, LeText value)
{
	LeUsage more = {.bytes = value.len > holder->value_len ? value.len - holder->value_len : 0};

	return le_role_admits(core, holder->role, more);
}

/*
 * Returns LE_OK if the entry may have one more hold, else an error.  While another hold may still
 * roll back, the new hold needs a record of its own.  That record counts against the role's limit,
 * in addition to the usage "taken".
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

/* Returns LE_OK if this request may be one more hold of the holder, else an error. */
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

/* Applies a re-entry that le_reentry_check() allows.  Must not fail: memory for its hold is reserved. */
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

/* Returns whether this is a holder without a named owner that the request may re-enter. */
static bool
is_unnamed_holder(const LeEntry *holder, const LeLock *lock, const LeCommand *cmd)
{
	return holder->lock == lock && holder->state == LE_STATE_HELD && !holder->evicted &&
		   holder->owner == NULL && holder->role == cmd->role && !le_entry_is_draining(holder);
}

/*
 * Returns the holder without a named owner that this transaction acquired; NULL = none.  Walks two
 * lists in parallel, like le_held_by_session().
 */
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
 * Returns the holder that this request re-enters; NULL = none.  A request with a named owner re-enters
 * only a holder of that owner.  Any other request re-enters a holder of its named lease; if there is
 * none, the holder whose token it specifies (cmd->reenter), or else a holder that this transaction
 * acquired.  A permit is never re-entered.
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
 * Returns the holder that a waiter joined before a reload; NULL = none.  Joined means that the waiter
 * was granted as one more hold of its owner's holder, and that only the reply was missing.
 * Recognizes such a holder by an uncommitted hold of the waiter's session.  If the same session
 * acquired the holder itself, for example as a queue place, the holder must have a second hold.
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
