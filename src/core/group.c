/*
 * core/group.c
 *		Acquires several locks at once: all of them or none.
 *
 * A request for several names has one entry in each of its locks, all with the same
 * revision.  It enters all queues in one step, so two such requests are in the same order
 * in every queue that they share, and cannot block each other.  The request is granted when
 * it is the first in all its queues.  Until then some of its locks may stay free, because
 * waiters are not overtaken.
 *
 * Once granted, the names are held like any other lock.  The entries share a token.  Unless
 * they are bound to a connection or on a named lease, they also share a lease that belongs
 * to the group, so that renewing one of them renews all.
 *
 * core/together.c has the functions for waiting groups.
 */
#include "acquire.h"
#include "containers.h"
#include "entry.h"
#include "group.h"
#include "leasetime.h"
#include "lock.h"
#include "reentry.h"
#include "role.h"
#include "sessions.h"
#include "settle.h"
#include "state.h"
#include "together.h"
#include "token.h"
#include "uncommitted.h"
#include "view.h"

/* --- acquire --- */

/*
 * Replies to a request that is repeated after a reload if its grant is stored.  The reply is LOST if
 * the holders of some names have ended since then, for example because an administrator ended them.
 * Returns whether any of the entries was found.
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
		le_requeue_stored(core, entry, cmd, now, reply);
		found += reply->status == LE_OK;
	}
	reply->status = found == cmd->nnames ? LE_OK : LE_LOST;
	return reply->counted;
}

/* The result of examining all names of a request before it enters any lock. */
typedef struct Survey
{
	LeStatus status;                /* OK = no name prevents the request */
	uint32_t which;                 /* if not OK: index of the name that prevents it */
	uint32_t found;                 /* number of names that the owner already holds or waits for: 0, or all */
	LeEntry *entries[LE_MAX_NAMES]; /* the entries found, by index of their name */
} Survey;

/*
 * Examines all names before anything changes.  Sets survey->status to BAD_MODE if a name is used with
 * permits, and to BAD_GROUP if the owner already holds only some of the names, or all of them with
 * different tokens.
 *
 * token: the token of an earlier copy of this request; 0 = none.  If there is an earlier copy, modes
 * are not checked, because this request gets the reply of that copy.
 */
static void
survey_names(const LeCore *core, const LeSession *session, const LeCommand *cmd, const LeLease *lease,
			 int64_t token, Survey *survey)
{
	uint32_t first = 0, other = 0; /* index of the first name with an entry, and of the first name whose entry
								    * has a different token */

	survey->status = LE_OK;
	survey->found = 0;
	for (uint32_t i = 0; i < cmd->nnames; i++)
	{
		const LeLock *lock = le_core_find_lock(core, cmd->kind, cmd->names[i]);
		LeEntry *entry = NULL;

		survey->which = i;
		if (lock != NULL && token == 0)
			survey->status = le_acquire_use(lock, cmd);
		if (survey->status != LE_OK)
			return;
		if (token != 0)
			entry = le_core_find_entry(core, cmd->kind, cmd->names[i], token);
		else if (lock != NULL && cmd->revision == 0)
			entry = le_reentry_find(core, lock, session, cmd, lease);
		if (entry == NULL)
			continue;
		survey->entries[i] = entry;
		if (survey->found++ == 0)
			first = i;
		else if (entry->token != survey->entries[first]->token && other == 0)
			other = i;
	}

	/* fail if entries were found for only some of the names, or with different tokens */
	survey->which = survey->found < cmd->nnames ? first : other;
	if (survey->found > 0 && (survey->found < cmd->nnames || other != 0))
		survey->status = LE_BAD_GROUP;
}

/* Adds one more hold to the entry of each name, or to none if any check fails. */
static void
enter_again(LeCore *core, LeEntry **entries, const LeCommand *cmd, const LeLease *lease, LeTime now,
			LeReply *reply)
{
	LeUsage taken = {0};

	for (uint32_t i = 0; i < cmd->nnames; i++)
	{
		reply->which = i;
		reply->status = entries[i]->state == LE_STATE_QUEUED
							? le_hold_check(core, entries[i], taken)
							: le_reentry_check(core, entries[i], cmd, lease, taken);
		if (reply->status != LE_OK)
			return;
		if (entries[i]->uncommitted != NULL)
			taken = le_usage_sum(taken, le_usage_of_hold());
	}
	reply->which = 0;
	for (uint32_t i = 0; i < cmd->nnames; i++)
	{
		if (entries[i]->state == LE_STATE_QUEUED)
		{
			reply->status = LE_QUEUED;
			le_place_again(core, entries[i], cmd, now, reply);
		}
		else
			le_reentry_apply(core, entries[i], cmd, now, reply);
	}
}

/*
 * Returns whether the request is admitted in all its locks at once.  Returns false for a request that
 * is repeated after a reload, because it is granted from its queues.
 */
static bool
all_admitted(const LeCore *core, const LeCommand *cmd, LeTime now)
{
	for (uint32_t i = 0; i < cmd->nnames; i++)
	{
		if (!le_acquire_admitted(le_core_find_lock(core, cmd->kind, cmd->names[i]), cmd, now))
			return false;
	}
	return cmd->revision == 0;
}

/*
 * Returns OK if the request may wait, else NOT_GRANTED or LIMIT_WAITERS.  Sets reply->which to the
 * first name whose queue is full, or else to the first lock of which the requesting session itself
 * has a slot (own_session).
 */
static LeStatus
check_wait(const LeCore *core, const LeCommand *cmd, LeReply *reply)
{
	int64_t limit = cmd->revision == 0 ? core->limits.waiters_per_lock : 0;
	bool full = false;

	for (uint32_t i = 0; i < cmd->nnames; i++)
	{
		const LeLock *lock = le_core_find_lock(core, cmd->kind, cmd->names[i]);

		if (lock == NULL)
			continue;
		if (!reply->own_session && !cmd->enqueue && le_held_by_session(core, lock, cmd))
		{
			reply->own_session = true;
			reply->which = full ? reply->which : i;
		}
		if (!full && limit > 0 && lock->waiting >= limit)
		{
			full = true;
			reply->which = i;
		}
	}
	if (cmd->wait == 0 && !cmd->enqueue)
		return LE_NOT_GRANTED;
	return full ? LE_LIMIT_WAITERS : LE_OK;
}

/* Creates an entry in each of the locks.  Returns the first entry. */
static LeEntry *
enter_all(LeCore *core, const LeCommand *cmd, LeLease *lease, LeTime now, LeReply *reply)
{
	LeEntrySpec spec = le_acquire_spec(core, cmd, lease);
	LeEntry *first = NULL, *last = NULL;

	if (lease == NULL && cmd->ttl != LE_TTL_BOUND)
	{
		spec.lease = le_lease_new(core, spec.token, cmd->ttl, cmd->role);
		spec.lease->for_group = true;
	}
	for (uint32_t i = 0; i < cmd->nnames; i++)
	{
		LeEntry *entry = le_entry_new(core, le_lock_get(core, cmd->kind, cmd->names[i]), &spec);

		le_waiter_new(core, entry, cmd->since != 0 ? cmd->since : now);
		entry->waiter->tells = cmd->tells_lease ? LE_TELLS_LEASE : LE_TELLS_NAME;
		entry->grouped = true;
		entry->waiter->member = (uint16_t) (i + 1);
		le_uncommitted_take(core, entry, cmd, reply);
		if (first == NULL)
			first = entry;
		else
			last->waiter->group_next = entry;
		last = entry;
	}
	return first;
}

/* Adds all entries to their queues, as places or for a blocked call. */
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

/* Returns whether all names are held with the token of this entry, on this lease. */
static bool
holds_names(const LeCore *core, const LeEntry *first, const LeCommand *cmd, const LeLease *lease)
{
	for (uint32_t i = 0; i < cmd->nnames; i++)
	{
		const LeEntry *entry = le_core_find_entry(core, cmd->kind, cmd->names[i], first->token);

		if (entry == NULL || entry->state != LE_STATE_HELD || entry->evicted || entry->lease != lease)
			return false;
	}
	return true;
}

/*
 * Returns the token that an earlier copy of this request has on its named lease, as a place or as
 * holders.  If the lease has several such holders in a lock, returns the oldest token.  Returns 0
 * if there is no earlier copy.
 */
static int64_t
entered_on_lease(const LeCore *core, const LeCommand *cmd, const LeLease *lease)
{
	LeLock *lock = le_core_find_lock(core, cmd->kind, cmd->names[0]);
	const LeEntry *place = lock == NULL ? NULL : le_same_place(core, lock, lease, cmd);
	const LeLink *link = lease->entries.next;
	int64_t token = 0;

	if (lock == NULL || place != NULL)
		return place != NULL ? place->token : 0;

	/* walk both lists in parallel until the shorter one ends, because each of them may be very long */
	for (LeSlot *slot = lock->slots; slot != NULL && link != &lease->entries;
		 slot = slot->next, link = link->next)
	{
		const LeEntry *found[] = {le_slot_holder(slot), le_container(link, LeEntry, lease_link)};

		for (int i = 0; i < 2; i++)
		{
			const LeEntry *entry = found[i];

			if (entry != NULL && entry->lock == lock && (token == 0 || entry->token < token) &&
				le_text_equal(le_text(entry->owner, entry->owner_len), cmd->owner) &&
				holds_names(core, entry, cmd, lease))
				token = entry->token;
		}
	}
	return token;
}

/*
 * ACQUIRE of several names: all of them or none.
 *
 * The rules are those of le_apply_acquire().  Each rule is applied to all names before the next rule.
 * reply->which is the index of the name that determined the reply.  Nothing changes until the limits
 * have been checked.  Then an entry is created for each name, all with one token: either all hold, or
 * all wait as a group.
 *
 * Must not fail: le_core_reserve() has allocated the memory for each name, for the group and for
 * its lease.
 */
void
le_apply_acquire_group(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	LeSession *session = le_session_touch(core, cmd->session, cmd->sessno, cmd->xact, now);
	int64_t token = 0;
	Survey survey;
	LeLease *lease;
	LeEntry *first;
	bool all;

	assert(cmd->mode != LE_MODE_PERMIT && reply->status == LE_OK);

	/* find the lease, and an earlier copy of the request */
	reply->status = le_acquire_lease(core, cmd, now, &lease);
	if (reply->status != LE_OK || (cmd->revision != 0 && already_granted(core, cmd, now, reply)))
		return;
	if (cmd->enqueue && lease != NULL && cmd->revision == 0)
		token = entered_on_lease(core, cmd, lease);

	/* check the modes of the names, and re-enter the holders if the owner already holds the names */
	survey_names(core, session, cmd, lease, token, &survey);
	reply->status = survey.status;
	reply->which = survey.which;
	if (survey.status == LE_OK && survey.found > 0)
		enter_again(core, survey.entries, cmd, lease, now, reply);
	if (survey.status != LE_OK || survey.found > 0)
		return;

	/* check whether the request may wait, and the limits */
	all = all_admitted(core, cmd, now);
	if (!all)
		reply->status = check_wait(core, cmd, reply);
	if (reply->status == LE_OK && cmd->revision == 0)
		reply->status = le_role_admits(core, cmd->role, le_usage_of_command(cmd));
	if (reply->status != LE_OK)
		return;

	/* create the entries, and grant or enqueue them */
	first = enter_all(core, cmd, lease, now, reply);
	reply->token = first->token;
	if (!all)
	{
		queue_all(core, session, cmd, first, now, reply);
		return;
	}
	(void) le_group_grant_members(core, first, now);
	for (LeEntry *member = first; member != NULL; member = member->waiter->group_next)
		le_lock_arm(core, member->lock, now);
	le_reply_time(reply, first, now);
	reply->wrote = true;
	assert(first->state == LE_STATE_HELD && reply->status == LE_OK);
}

/* --- await --- */

/* AWAIT of several names: each must be held, or be a place, with this token.  There is one reply for all. */
void
le_apply_await_group(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	LeCommand one = le_command_for(cmd, 0);

	for (uint32_t i = 0; i < cmd->nnames; i++)
	{
		const LeEntry *entry = le_core_find_entry(core, cmd->kind, cmd->names[i], cmd->token);

		reply->which = i;
		if (entry == NULL || entry->state == LE_STATE_LAPSED ||
			(entry->state == LE_STATE_QUEUED && !entry->place))
			reply->status = LE_LOST;
		else if (entry->role != cmd->role)
			reply->status = LE_DENIED;
		else if (entry->evicted)
			reply->status = LE_LOST;
		if (reply->status != LE_OK)
		{
			(void) le_session_touch(core, cmd->session, cmd->sessno, cmd->xact, now);
			return;
		}
	}
	reply->which = 0;
	le_apply_await(core, &one, now, reply);
}
