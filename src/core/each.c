/*
 * core/each.c
 *		Several names in one command, each for itself: ACQUIRE that does not wait,
 *		RELEASE and CHECK.
 *
 * All or nothing holds for errors alone.  Before anything is changed each name is
 * examined; if one of them would be an error, or if all together exceed a limit of
 * the role, the command changes nothing, and its reply names the first one.  Else
 * each name gets what a command of its own would get at this moment: names are
 * different locks, so that none of them changes what was found for another.
 */
#include "core_internal.h"

/* The same command for one of its names. */
static LeCommand
one_of(const LeCommand *cmd, uint32_t i)
{
	LeCommand one = *cmd;
	int64_t token = cmd->tokens != NULL ? cmd->tokens[i] : 0;

	one.name = cmd->names[i];
	one.names = NULL;
	one.nnames = 0;
	one.each = false;
	one.tokens = NULL;
	if (cmd->type == LE_CMD_ACQUIRE)
		one.reenter = token;
	else
		one.token = token;
	return one;
}

/* --- examine --- */

/* One more hold of this holder: may it be, and what does the role have more by it? */
static LeStatus
examine_reentry(const LeEntry *holder, const LeCommand *one, const LeLease *lease, LeUsage *more)
{
	LeStatus status = le_reentry_status(holder, one->mode, lease, one->ttl);

	if (status == LE_OK && holder->uncommitted != NULL)
		more->bytes += le_usage_of_hold().bytes;
	return status;
}

/*
 * What le_apply_acquire() would make of this name, without doing it.  *more grows by
 * what the role would have more.  The order of the rules is that of
 * le_apply_acquire().
 */
static LeStatus
examine_acquire(const LeCore *core, const LeSession *session, const LeCommand *one, const LeLease *lease,
				LeTime now, LeUsage *more)
{
	const LeLock *lock = le_core_find_lock(core, one->kind, one->name);
	LeStatus status;

	if (lock != NULL)
	{
		const LeEntry *holder;

		/* 1. a name is used in one way at a time */
		status = le_acquire_use(lock, one);
		if (status != LE_OK)
			return status;

		/* 2. the same request once more on a named lease: its holder, or its place */
		if (one->enqueue && lease != NULL)
		{
			holder = le_lock_owned(core, lock, one->role, one->owner, lease, one->session);
			if (holder != NULL && holder->lease == lease)
				return examine_reentry(holder, one, lease, more);
			holder = le_same_place(core, lock, lease, one);
			if (holder != NULL)
			{
				if (holder->uncommitted != NULL)
					more->bytes += le_usage_of_hold().bytes;
				return LE_OK;
			}
		}

		/* 3. one more hold of what the caller holds */
		holder = le_reentry_find(core, lock, session, one, lease);
		if (holder != NULL)
			return examine_reentry(holder, one, lease, more);

		/* 4. not granted, or a place */
		if (!le_acquire_admitted(lock, one, now))
		{
			if (!one->enqueue)
				return LE_OK;
			if (core->limits.waiters_per_lock > 0 && lock->waiting >= core->limits.waiters_per_lock)
				return LE_LIMIT_WAITERS;
		}
	}
	more->entries++;
	more->bytes += le_usage_of_entry(one->name.len, one->owner.len, one->value.len).bytes;
	return LE_OK;
}

/* The error that this command is, with which of its names; LE_OK: it is none. */
static LeStatus
examine(LeCore *core, const LeCommand *cmd, LeTime now, uint32_t *which)
{
	LeUsage more = {0};
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
		LeCommand one = one_of(cmd, i);
		LeReply found = {0};

		*which = i;
		if (cmd->type == LE_CMD_ACQUIRE)
			status = examine_acquire(core, session, &one, lease, now, &more);
		else
		{
			/* a token of another role is an error; one that holds nothing is an answer */
			le_apply_check(core, &one, now, &found);
			status = found.status == LE_DENIED ? LE_DENIED : LE_OK;
		}
		if (status != LE_OK)
			return status;
	}
	*which = 0;
	return le_role_admits(core, cmd->role, more);
}

/* --- apply --- */

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
	all->status = examine(core, cmd, now, &all->which);
	if (all->status != LE_OK)
	{
		le_prealloc_free(core);
		return;
	}

	/* 2. each name */
	all->bound = all->reentrant = true;
	all->may_return = cmd->type == LE_CMD_RELEASE;
	all->valid_for = LE_NEVER;
	for (uint32_t i = 0; i < cmd->nnames; i++)
	{
		LeCommand one = one_of(cmd, i);
		LeReply *reply = &replies[i];

		memset(reply, 0, sizeof(*reply));
		if (cmd->type == LE_CMD_ACQUIRE)
			le_apply_acquire(core, &one, now, reply);
		else if (cmd->type == LE_CMD_RELEASE)
			le_apply_release(core, &one, now, reply);
		else
			le_apply_check(core, &one, now, reply);
		assert(reply->status == LE_OK || reply->status == LE_QUEUED || reply->status == LE_NOT_GRANTED ||
			   reply->status == LE_NOT_HELD);
		merge(all, reply);
	}
	le_prealloc_free(core);
}
