/*
 * core/group.c
 *		Several locks acquired at once: all of them or none.
 *
 * A request for several names is one entry in each of its locks, all with the
 * same revision.  It enters all queues at one moment, so that two such requests
 * are in the same order wherever they meet: neither can wait for the other in
 * one lock and be waited for in another.  It is granted when it is the first in
 * all of them; until then a lock of it may stay free, because nobody overtakes.
 *
 * What was granted is held as any other lock.  The entries share their token
 * and, unless they are bound to a connection or hang on a named lease, a lease
 * of their own: so renewing one of them renews all.
 *
 * core/together.c has what becomes of them while they wait.
 */
#include "core_internal.h"

/* --- acquire --- */

/* The same command for one of its names. */
static LeCommand
one_of(const LeCommand *cmd, uint32_t i)
{
	LeCommand one = *cmd;

	one.name = cmd->names[i];
	one.names = NULL;
	one.nnames = 0;
	return one;
}

/*
 * A waiter that comes back finds its grant stored already, as in
 * le_apply_acquire(); an administrator may have ended a part of it since.
 */
static bool
already_granted(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	uint32_t found = 0;

	for (uint32_t i = 0; i < cmd->nnames; i++)
	{
		LeEntry *entry = le_core_find_entry(core, cmd->kind, cmd->names[i], cmd->revision);

		if (entry == NULL)
			continue;
		le_acquire_entered(core, entry, cmd, now, reply);
		found += reply->status == LE_OK;
	}
	reply->status = found == cmd->nnames ? LE_OK : LE_LOST;
	return reply->counted;
}

/*
 * May this request enter all its locks?  Also counts the holders that it would be one
 * more hold of.
 */
static LeStatus
look_at_each(const LeCore *core, const LeSession *session, const LeCommand *cmd, const LeLease *lease,
			 uint32_t *again, LeReply *reply)
{
	int64_t token = 0;
	uint32_t first = 0, other = 0;

	*again = 0;
	for (uint32_t i = 0; i < cmd->nnames; i++)
	{
		const LeLock *lock = le_core_find_lock(core, cmd->kind, cmd->names[i]);
		LeEntry *holder = NULL;
		LeStatus status;

		reply->which = i;
		if (lock == NULL)
			continue;
		status = le_acquire_use(lock, cmd);
		if (status != LE_OK)
			return status;
		if (cmd->revision == 0)
		{
			LeCommand one = one_of(cmd, i);

			holder = le_reentry_find(core, lock, session, &one, lease);
		}
		if (holder == NULL)
			continue;
		if ((*again)++ == 0)
		{
			token = holder->token;
			first = i;
		}
		else if (holder->token != token && other == 0)
			other = i;
	}
	reply->which = *again == cmd->nnames ? other : first;
	return *again == 0 || (*again == cmd->nnames && other == 0) ? LE_OK : LE_BAD_GROUP;
}

/* It is one more hold of what it holds already. */
static void
acquire_again(LeCore *core, const LeSession *session, const LeCommand *cmd, const LeLease *lease, LeTime now,
			  LeReply *reply)
{
	for (int pass = 0; pass < 2; pass++)
	{
		for (uint32_t i = 0; i < cmd->nnames && reply->status == LE_OK; i++)
		{
			LeLock *lock = le_core_find_lock(core, cmd->kind, cmd->names[i]);
			LeCommand one = one_of(cmd, i);
			LeEntry *holder = le_reentry_find(core, lock, session, &one, lease);

			reply->which = i;
			if (pass == 0)
			{
				reply->status = le_reentry_status(holder, cmd->mode, lease, cmd->ttl);
				if (reply->status == LE_OK)
					reply->status = le_reentry_admits(core, holder, &one);
			}
			else
				le_reentry_apply(core, holder, &one, now, reply);
		}
	}
	if (reply->status == LE_OK)
		reply->which = 0;
}

/* Whether all are admitted at once; if not, may it wait? */
static bool
admitted(const LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	bool all = cmd->revision == 0;
	int64_t limit = cmd->revision == 0 ? core->limits.waiters_per_lock : 0;

	for (uint32_t i = 0; i < cmd->nnames; i++)
	{
		const LeLock *lock = le_core_find_lock(core, cmd->kind, cmd->names[i]);

		all &= le_acquire_admitted(lock, cmd, now);
		if (lock == NULL)
			continue;
		if (!reply->own_session && !cmd->enqueue && le_held_by_session(core, lock, cmd))
		{
			reply->own_session = true;
			if (reply->status == LE_OK)
				reply->which = i;
		}
		if (limit > 0 && lock->waiting >= limit && reply->status == LE_OK)
		{
			reply->status = LE_LIMIT_WAITERS;
			reply->which = i;
		}
	}
	if (all)
	{
		reply->status = LE_OK;
		reply->own_session = false;
		reply->which = 0;
	}
	else if (cmd->wait == 0 && !cmd->enqueue)
		reply->status = LE_NOT_GRANTED;
	if (reply->status == LE_OK && cmd->revision == 0)
		reply->status = le_role_admits(core, cmd->role, le_usage_of_command(cmd));
	return all;
}

/* An entry in each of the locks; returns the first. */
static LeEntry *
enter_all(LeCore *core, const LeCommand *cmd, LeLease *lease, LeTime now)
{
	int64_t token = cmd->revision != 0 ? cmd->revision : core->next_revision++;
	LeEntry *first = NULL, *last = NULL;

	if (lease == NULL && cmd->ttl != LE_TTL_BOUND)
	{
		lease = le_lease_new(core, token, cmd->ttl, cmd->role);
		lease->for_group = true;
	}
	for (uint32_t i = 0; i < cmd->nnames; i++)
	{
		LeCommand one = one_of(cmd, i);
		LeEntry *entry;

		one.token = token;
		entry = le_entry_new(core, le_lock_get(core, cmd->kind, cmd->names[i]), &one, lease);
		le_waiter_new(core, entry, cmd->since != 0 ? cmd->since : now);
		entry->grouped = true;
		entry->waiter->member = (uint16_t) (i + 1);
		entry->place = cmd->enqueue;
		le_uncommitted_add(core, entry, cmd->session, cmd->sessno, cmd->xact, cmd->subxact);
		if (first == NULL)
			first = entry;
		else
			last->waiter->group_next = entry;
		last = entry;
	}
	return first;
}

/* All of them enter their queues: as places, or with a call that waits. */
static void
queue_all(LeCore *core, LeSession *session, const LeCommand *cmd, LeEntry *first, LeTime now, LeReply *reply)
{
	LeGroup *group = le_pool_get(&core->groups);

	core->stats.waits++;
	group->members = first;
	reply->status = cmd->enqueue ? LE_QUEUED : LE_WAITING;
	if (!cmd->enqueue)
		le_session_wait(session, first, cmd, now);
	else if (first->lease != NULL && first->lease->for_group)
		le_lease_start(core, first->lease, now);
	for (LeEntry *member = first; member != NULL; member = member->waiter->group_next)
	{
		member->waiter->group = group;
		if (cmd->enqueue)
			le_place_dirty(core, member);
		le_entry_queue(core, member, now);
		if (cmd->enqueue && reply->position < member->lock->waiting)
			reply->position = member->lock->waiting;
	}
	if (cmd->enqueue)
	{
		le_reply_time(reply, first, now);
		reply->wrote = true;
	}
	if (cmd->revision != 0)
		le_lock_settle(core, first->lock, now);
}

/* Are all names held with this one's token, on this lease? */
static bool
holds_names(const LeCore *core, const LeEntry *first, const LeCommand *cmd, const LeLease *lease)
{
	for (uint32_t i = 0; i < cmd->nnames; i++)
	{
		const LeEntry *entry = le_core_find_entry(core, cmd->kind, cmd->names[i], first->token);

		if (entry == NULL || entry->state != LE_STATE_HELD || entry->lease != lease)
			return false;
	}
	return true;
}

/*
 * What this request waits for already on its named lease, or holds with one token:
 * that of the oldest such holders, since one lease may have several in a lock.
 */
static bool
entered_on_lease(const LeCore *core, const LeCommand *cmd, const LeLease *lease, int64_t *token)
{
	LeLock *lock = le_core_find_lock(core, cmd->kind, cmd->names[0]);
	const LeEntry *place = lock == NULL ? NULL : le_same_place(core, lock, lease, cmd);
	const LeLink *link = lease->entries.next;

	*token = place == NULL ? 0 : place->token;
	if (lock == NULL || place != NULL)
		return place != NULL;

	/* to the end of the shorter list: both may be very long */
	for (LeSlot *slot = lock->slots; slot != NULL && link != &lease->entries;
		 slot = slot->next, link = link->next)
	{
		const LeEntry *found[] = {le_slot_holder(slot), le_container(link, LeEntry, lease_link)};

		for (int i = 0; i < 2; i++)
		{
			const LeEntry *entry = found[i];

			if (entry != NULL && entry->lock == lock && (*token == 0 || entry->token < *token) &&
				le_text_equal(le_text(entry->owner, entry->owner_len), cmd->owner) &&
				holds_names(core, entry, cmd, lease))
				*token = entry->token;
		}
	}
	return *token != 0;
}

/* As le_apply_acquire() does on a named lease: it is the same request once more. */
static bool
enqueue_again(LeCore *core, const LeCommand *cmd, LeLease *lease, LeTime now, LeReply *reply)
{
	int64_t token;

	if (!cmd->enqueue || lease == NULL || cmd->revision != 0 || !entered_on_lease(core, cmd, lease, &token))
		return false;
	for (uint32_t i = 0; i < cmd->nnames; i++)
	{
		LeEntry *entry = le_core_find_entry(core, cmd->kind, cmd->names[i], token);

		reply->which = i;
		if (entry->state == LE_STATE_QUEUED)
		{
			reply->status = LE_QUEUED;
			continue;
		}
		reply->status = le_reentry_status(entry, cmd->mode, lease, cmd->ttl);
		if (reply->status != LE_OK)
			return true;
	}
	reply->which = 0;
	for (uint32_t i = 0; i < cmd->nnames; i++)
	{
		LeEntry *entry = le_core_find_entry(core, cmd->kind, cmd->names[i], token);
		LeCommand one = one_of(cmd, i);

		if (entry->state == LE_STATE_QUEUED)
			le_place_again(core, entry, &one, now, reply);
		else
			le_reentry_apply(core, entry, &one, now, reply);
	}
	return true;
}

/* ACQUIRE of several names: all of them or none. */
void
le_apply_acquire_group(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	LeSession *session = le_session_touch(core, cmd->session, cmd->sessno, cmd->xact, now);
	LeLease *lease;
	LeEntry *first;
	uint32_t again;
	bool all;

	assert(cmd->nnames <= LE_MAX_NAMES && cmd->mode != LE_MODE_PERMIT);
	reply->status = le_acquire_lease(core, cmd, now, &lease);
	if (reply->status != LE_OK || (cmd->revision != 0 && already_granted(core, cmd, now, reply)))
		return;
	if (enqueue_again(core, cmd, lease, now, reply))
		return;
	reply->status = look_at_each(core, session, cmd, lease, &again, reply);
	if (reply->status == LE_OK && again > 0)
		acquire_again(core, session, cmd, lease, now, reply);
	if (reply->status != LE_OK || again > 0)
		return;
	reply->which = 0;
	all = admitted(core, cmd, now, reply);
	if (reply->status != LE_OK)
		return;

	first = enter_all(core, cmd, lease, now);
	reply->token = first->token;
	reply->counted = true;
	if (!all)
	{
		queue_all(core, session, cmd, first, now, reply);
		return;
	}
	(void) le_group_grant_members(core, first, now);
	for (LeEntry *member = first; member != NULL; member = member->waiter->group_next)
		le_lock_timer(core, member->lock, now);
	le_reply_time(reply, first, now);
	reply->wrote = true;
}

/* --- await --- */

/*
 * All names have to be held, or to wait, with this token; one answer counts for
 * all of them.
 */
void
le_apply_await_group(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	LeCommand one = one_of(cmd, 0);

	for (uint32_t i = 0; i < cmd->nnames; i++)
	{
		const LeEntry *entry = le_core_find_entry(core, cmd->kind, cmd->names[i], cmd->token);

		reply->which = i;
		if (entry == NULL || entry->state == LE_STATE_LAPSED ||
			(entry->state == LE_STATE_QUEUED && !entry->place))
			reply->status = LE_LOST;
		else if (entry->role != cmd->role)
			reply->status = LE_DENIED;
		if (reply->status != LE_OK)
		{
			(void) le_session_touch(core, cmd->session, cmd->sessno, cmd->xact, now);
			return;
		}
	}
	reply->which = 0;
	le_apply_await(core, &one, now, reply);
}

/* --- release and check --- */

/* The place that all of these names belong to: they leave their queues together. */
static LeEntry *
find_place(const LeCore *core, const LeCommand *cmd)
{
	LeEntry *first = le_core_find_entry(core, cmd->kind, cmd->names[0], cmd->token);

	for (uint32_t i = 0; i < cmd->nnames; i++)
	{
		const LeEntry *entry = le_core_find_entry(core, cmd->kind, cmd->names[i], cmd->token);

		if (entry == NULL || entry->state != LE_STATE_QUEUED || !entry->grouped || !entry->place ||
			entry->role != cmd->role || entry->waiter->group != first->waiter->group)
			return NULL;
	}
	return first;
}

/*
 * The command on each of its names.  The first answer that is not yes counts;
 * of a release, the first that is an error.
 */
void
le_apply_each(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	if (cmd->type == LE_CMD_RELEASE && find_place(core, cmd) != NULL)
	{
		LeCommand one = one_of(cmd, 0);

		le_apply_release(core, &one, now, reply);
		return;
	}
	reply->valid_for = LE_NEVER;
	reply->bound = true;
	reply->own_session = true;
	reply->may_return = cmd->type == LE_CMD_RELEASE;
	for (uint32_t i = 0; i < cmd->nnames; i++)
	{
		LeCommand one = one_of(cmd, i);
		LeReply answer;

		memset(&answer, 0, sizeof(answer));
		if (cmd->type == LE_CMD_RELEASE)
			le_apply_release(core, &one, now, &answer);
		else
			le_apply_check(core, &one, now, &answer);
		if (answer.status != LE_OK &&
			(reply->status == LE_OK ||
			 (cmd->type == LE_CMD_RELEASE && answer.status == LE_DENIED && reply->status != LE_DENIED)))
		{
			reply->status = answer.status;
			reply->which = i;
		}
		reply->token = cmd->token;
		reply->own_session &= answer.own_session;
		reply->wrote |= answer.wrote;
		reply->may_return &= answer.may_return || !answer.wrote;
		if (answer.lsn > reply->lsn)
			reply->lsn = answer.lsn;
		if (answer.status == LE_OK || answer.status == LE_QUEUED)
			reply->bound &= answer.bound;
		if (answer.status != LE_OK)
			continue;
		if (answer.valid_for < reply->valid_for)
			reply->valid_for = answer.valid_for;
	}
}
