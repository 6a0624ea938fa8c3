/*
 * core/each.c
 *		Several names in one command, each for itself: ACQUIRE that does not wait,
 *		RELEASE and CHECK.
 *
 * All or nothing holds for errors alone.  Before anything is changed each name is
 * examined; if one of them would be an error, with what those before it take of the
 * role's limits, the command changes nothing, and its reply names the first one.
 * Else each name gets what a command of its own would get in this order.  Names are
 * different locks, so that none changes what another gets; but for a queue place of
 * several names, which ends as a whole: each of them is released.
 */
#include "core_internal.h"

/* --- examine --- */

/*
 * What le_apply_acquire() would make of this name after those before it.  *taken grows
 * by what the role would have more: an entry, and the record of its uncommitted hold; less the
 * closed name that a grant opens, where its time is over and the manager has not come to it.
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
 * The error that this command is, with which of its names; LE_OK: it is none.  found:
 * what a RELEASE or CHECK has found, for each name.
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
			/* a token of another role is an error; one that holds nothing is an answer */
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

/* found: what the name was before the command; then its answer. */
static void
release(LeCore *core, const LeCommand *one, LeTime now, LeReply *found)
{
	LeReply reply = {.status = LE_OK};

	le_apply_release(core, one, now, &reply);

	/* a place that has ended with a name before */
	if (reply.status == LE_NOT_HELD && found->status == LE_QUEUED)
		found->status = LE_OK;
	else
		*found = reply;
}

/*
 * The reply of the whole command rests on those of its names.
 *
 *	valid_for	the shortest: a caller that waits for a standby may lose that first
 *	bound		all that was granted is bound: then nothing of it has to last
 *	reentrant	nothing was granted that was not held before
 *	may_return	whatever was ended may come back after a crash
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

	/* 1. errors, before anything is changed */
	memset(all, 0, sizeof(*all));
	all->status = examine(core, cmd, now, replies, &all->which);
	if (all->status != LE_OK)
	{
		if (all->status == LE_NO_LEASE)
			le_reply_ending(core, cmd, now, all);
		le_prealloc_free(core);
		return;
	}

	/* 2. each name */
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
