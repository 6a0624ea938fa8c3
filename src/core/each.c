/*
 * core/each.c
 *		Applies a command to each of several names separately: ACQUIRE without wait,
 *		RELEASE or CHECK.
 *
 * An error for one name is an error for the whole command.  Each name is examined before
 * anything changes, and the usage that earlier names would add to the role is counted.  If
 * there is an error, the command changes nothing, and its reply says which name was the
 * first with an error.  Otherwise each name gets the reply that a separate command would
 * get, in the order of the names.  The names are different locks, so none affects the reply
 * of another, with one exception: a queue place of several names ends as a whole, and each
 * of its names counts as released.
 */
#include "acquire.h"
#include "each.h"
#include "endings.h"
#include "reserve.h"
#include "role.h"
#include "sessions.h"
#include "state.h"
#include "token.h"
#include "view.h"

/* --- examine --- */

/*
 * Returns the error that le_apply_acquire() would return for this name if the earlier names were
 * acquired; LE_OK = no error.  Adds to *taken the usage that this name would add to the role: an entry
 * and its uncommitted hold.  If a grant opens a closed name whose time has passed but whose timer has
 * not fired yet, subtracts the usage of the closed name.
 */
static LeStatus
examine_acquire(const LeCore *core, const LeSession *session, const LeCommand *one, const LeLease *lease,
				LeTime now, LeUsage *taken)
{
	const LeLock *lock = le_core_find_lock(core, one->kind, one->name);
	LeDecision d = le_acquire_decide(core, session, lock, one, lease, *taken, now);
	bool recorded = d.way != LE_WAY_REFUSED;

	if (d.way == LE_WAY_GRANTED || d.way == LE_WAY_WAITS)
		*taken = le_usage_sum(*taken, le_usage_of_command(one));
	else if (recorded)
		recorded =
			d.entry->uncommitted != NULL || (d.way == LE_WAY_REENTERS && !le_entry_counts_once(d.entry));
	if (d.way == LE_WAY_GRANTED && lock != NULL && lock->closed_until != 0 && lock->closed_by == one->role)
		*taken = le_usage_less(*taken, le_usage_of_closed(lock->name_len));
	if (recorded)
		*taken = le_usage_sum(*taken, le_usage_of_hold());
	return d.status == LE_NOT_GRANTED || d.status == LE_QUEUED ? LE_OK : d.status;
}

/*
 * Returns the error of this command, and sets *which to the index of the name that caused it; LE_OK =
 * no error.  For RELEASE and CHECK, stores the result of a CHECK of each name in found.
 */
static LeStatus
examine(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *found, uint32_t *which)
{
	LeUsage taken = {0};
	LeSession *session = NULL;
	LeLease *lease = NULL;
	LeStatus status;

	*which = 0;
	if (cmd->type == LE_CMD_ACQUIRE)
	{
		session = le_session_touch(core, cmd->session, cmd->sessno, cmd->xact, now);
		status = le_acquire_lease(core, cmd, now, &lease);
		if (status != LE_OK)
			return status;
	}
	for (uint32_t i = 0; i < cmd->nnames; i++)
	{
		LeCommand one = le_command_for(cmd, i);

		*which = i;
		memset(&found[i], 0, sizeof(found[i]));
		if (cmd->type == LE_CMD_ACQUIRE)
			status = examine_acquire(core, session, &one, lease, now, &taken);
		else
		{
			/* a token of another role is an error, but a token that holds nothing is not an error */
			le_apply_check(core, &one, now, &found[i]);
			status = found[i].status == LE_DENIED ? LE_DENIED : LE_OK;
		}
		if (status != LE_OK)
			return status;
	}
	*which = 0;
	return LE_OK;
}

/* --- apply --- */

/* Releases one name. *found is the result of a CHECK before the command; it is replaced by the reply. */
static void
release(LeCore *core, const LeCommand *one, LeTime now, LeReply *found)
{
	LeReply reply = {.status = LE_OK};

	le_apply_release(core, one, now, &reply);

	/* the release of an earlier name has ended the whole place, which has several names */
	if (reply.status == LE_NOT_HELD && found->status == LE_QUEUED)
		found->status = LE_OK;
	else
		*found = reply;
}

/*
 * Merges the reply for one name into that for the whole command.
 *
 *	valid_for	the shortest time, because a caller that waits for a standby may lose that name first
 *	bound		all entries are bound, so that nothing has to be durable
 *	reentrant	all granted names were already held
 *	may_return	all released names may be held again after a crash
 */
static void
merge(LeReply *all, const LeReply *one)
{
	all->wrote |= one->wrote;
	all->counted |= one->counted;
	all->may_return &= one->may_return || !one->wrote;
	if (one->lsn > all->lsn)
		all->lsn = one->lsn;
	if (one->status != LE_OK && one->status != LE_QUEUED)
		return;
	all->bound &= one->bound;
	all->reentrant &= one->reentrant || one->status == LE_QUEUED;
	if (one->valid_for < all->valid_for)
		all->valid_for = one->valid_for;
}

void
le_core_apply_each(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *replies, LeReply *all)
{
	assert(cmd->each && cmd->nnames > 0 && cmd->nnames <= LE_MAX_NAMES);
	assert(cmd->type == LE_CMD_RELEASE || cmd->type == LE_CMD_CHECK ||
		   (cmd->type == LE_CMD_ACQUIRE && cmd->wait == 0 && cmd->revision == 0 &&
			cmd->mode != LE_MODE_PERMIT && cmd->kind == LE_KIND_LOCK));

	/* 1. find errors before anything changes */
	memset(all, 0, sizeof(*all));
	all->status = examine(core, cmd, now, replies, &all->which);
	if (all->status != LE_OK)
	{
		if (all->status == LE_NO_LEASE)
			le_reply_ending(core, cmd, now, all);
		le_prealloc_free(core);
		return;
	}

	/* 2. apply the command to each name */
	all->bound = all->reentrant = true;
	all->may_return = cmd->type == LE_CMD_RELEASE;
	all->valid_for = LE_NEVER;
	for (uint32_t i = 0; i < cmd->nnames; i++)
	{
		LeCommand one = le_command_for(cmd, i);
		LeReply *reply = &replies[i];

		if (cmd->type == LE_CMD_ACQUIRE)
			le_apply_acquire(core, &one, now, reply);
		else if (cmd->type == LE_CMD_RELEASE)
			release(core, &one, now, reply);
		assert(reply->status == LE_OK || reply->status == LE_QUEUED || reply->status == LE_NOT_GRANTED ||
			   reply->status == LE_NOT_HELD);
		merge(all, reply);
	}
	le_prealloc_free(core);
}
