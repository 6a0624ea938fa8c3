/*
 * core/together.c
 *		Grants and ends groups.  The entries of a group have different names; they wait
 *		together, and are granted or ended together.
 *
 * core/group.c has the commands that create groups.
 */
#include "containers.h"
#include "entry.h"
#include "leasetime.h"
#include "lock.h"
#include "state.h"
#include "together.h"
#include "view.h"

/*
 * Returns the first entry of the group in which this entry waits, or the entry itself if it is in no group.
 */
LeEntry *
le_group_lead(LeEntry *entry)
{
	return entry->state == LE_STATE_QUEUED && entry->grouped ? entry->waiter->group->members : entry;
}

static bool
member_ready(const LeEntry *member, LeTime now)
{
	const LeLock *lock = member->lock;

	return lock->queue.next == &member->waiter->queue_link &&
		   le_lock_admits(lock, (LeMode) member->mode, now);
}

/*
 * Returns whether each member is the first of its queue and admitted.  Checks first the member that
 * was not ready at the last check, because it is usually still not ready.
 */
bool
le_group_ready(LeGroup *group, LeTime now)
{
	if (group->blocked != NULL && !member_ready(group->blocked, now))
		return false;
	for (LeEntry *member = group->members; member != NULL; member = member->waiter->group_next)
	{
		if (!member_ready(member, now))
		{
			group->blocked = member;
			return false;
		}
	}
	return true;
}

/* Adds a group to core->to_settle: its members have left their queues, so their locks must be settled. */
static void
group_settle_later(LeCore *core, LeGroup *group)
{
	assert(group->members->state != LE_STATE_QUEUED);
	group->settle_next = core->to_settle;
	core->to_settle = group;
}

/* Grants the group led by this entry.  Returns the number of new holders. */
uint32_t
le_group_grant_members(LeCore *core, LeEntry *first, LeTime now)
{
	uint32_t n = 0;

	if (first->lease != NULL && first->lease->for_group)
		le_lease_start(core, first->lease, now);
	for (LeEntry *member = first; member != NULL; member = member->waiter->group_next, n++)
	{
		assert(member->grouped && member->token == first->token);
		le_entry_grant(core, member, now);
	}
	return n;
}

void
le_group_grant(LeCore *core, LeGroup *group, LeTime now)
{
	core->stats.handoffs += le_group_grant_members(core, group->members, now);
	group_settle_later(core, group);
}

void
le_group_end(LeCore *core, LeGroup *group, LeEnd how, LeTime now)
{
	for (LeEntry *member = group->members; member != NULL; member = member->waiter->group_next)
	{
		assert(member->state == LE_STATE_QUEUED && member->waiter->group == group);
		member->waiter->group = NULL;
		le_entry_finish(core, member, how, 0, now);
	}
	group_settle_later(core, group);
}

/*
 * Adds a loaded entry to its group.  The entries of one place with several names are loaded directly
 * one after the other, in any order.  Must not fail: memory for a group is reserved.
 */
void
le_group_load(LeCore *core, LeEntry *entry)
{
	LeGroup *group = core->loaded_group;

	if (group == NULL || group->members->token != entry->token)
	{
		group = le_pool_get(&core->groups);
		core->loaded_group = group;
	}
	assert(entry->waiter->member > 0 && entry->place);
	entry->grouped = true;
	entry->waiter->group = group;
	if (group->members == NULL || entry->waiter->member < group->members->waiter->member)
	{
		entry->waiter->group_next = group->members;
		group->members = entry;
		return;
	}
	entry->waiter->group_next = group->members->waiter->group_next;
	group->members->waiter->group_next = entry;
}

/*
 * Returns whether this entry's group waits for exactly the command's names, in the same order.  The
 * order matters because the grant is announced on the channel of the first name.
 */
bool
le_group_has_names(const LeCore *core, const LeEntry *entry, const LeCommand *cmd)
{
	uint32_t n = 0;

	for (const LeEntry *member = entry->waiter->group->members; member != NULL;
		 member = member->waiter->group_next)
		n++;
	if (n != cmd->nnames)
		return false;
	for (uint32_t i = 0; i < n; i++)
	{
		const LeEntry *member = le_core_find_entry(core, cmd->kind, cmd->names[i], entry->token);

		if (member == NULL || member->waiter->group != entry->waiter->group ||
			member->waiter->member != i + 1)
			return false;
	}
	return true;
}
