/*
 * core/uncommitted.c
 *		Records the holds of transactions that may still roll back.  The record of a hold
 *		is in a list of its entry and in a list of its session.  Once the transaction has
 *		committed, the hold is only counted (LeEntry.hold_count).
 */
#include "containers.h"
#include "role.h"
#include "state.h"
#include "uncommitted.h"

/*
 * Link a hold to its entry, and unlink it.  Neither function walks the list, because an entry may have
 * very many holds.
 */
static void
uncommitted_link(LeEntry *entry, LeUncommitted *hold)
{
	hold->entry = entry;
	hold->next = entry->uncommitted;
	hold->link = &entry->uncommitted;
	if (hold->next != NULL)
		hold->next->link = &hold->next;
	entry->uncommitted = hold;
}

static void
uncommitted_unlink(LeUncommitted *hold)
{
	assert(*hold->link == hold);
	*hold->link = hold->next;
	if (hold->next != NULL)
		hold->next->link = hold->link;
}

/* Adds a hold that the session took in this (sub)transaction.  Must not fail: memory for its record is reserved. */
void
le_uncommitted_add(LeCore *core, LeEntry *entry, uint64_t session, uint32_t sessno, uint32_t xact,
				   uint32_t subxact)
{
	LeUncommitted *hold = le_pool_get(&core->uncommitted);

	assert(core->sessions[sessno].id == session);
	hold->session = session;
	hold->xact = xact;
	hold->subxact = subxact;
	le_role_add(core, entry->role, le_usage_of_hold());
	uncommitted_link(entry, hold);
	le_link_before(&core->sessions[sessno].uncommitted, &hold->session_link);
}

/*
 * Adds the hold of a command.  If the command cannot be undone, does nothing: its hold counts as committed.
 */
void
le_uncommitted_take(LeCore *core, LeEntry *entry, const LeCommand *cmd, LeReply *reply)
{
	if (cmd->subxact == 0)
		return;
	reply->counted = true;
	le_uncommitted_add(core, entry, cmd->session, cmd->sessno, cmd->xact, cmd->subxact);
}

/* Removes the record of a hold that was committed or has ended. */
void
le_uncommitted_remove(LeCore *core, LeUncommitted *hold)
{
	le_role_remove(core, hold->entry->role, le_usage_of_hold());
	uncommitted_unlink(hold);
	le_unlink(&hold->session_link);
	le_pool_put(&core->uncommitted, hold);
}

/* Moves the uncommitted holds of one entry to another. */
void
le_uncommitted_move(LeEntry *to, LeEntry *from)
{
	assert(to != from && to->role == from->role);
	while (from->uncommitted != NULL)
	{
		LeUncommitted *hold = from->uncommitted;

		uncommitted_unlink(hold);
		uncommitted_link(to, hold);
	}
}

/* Returns whether the entry has an uncommitted hold of this session. */
bool
le_has_hold_of(const LeEntry *entry, uint64_t session)
{
	for (const LeUncommitted *hold = entry->uncommitted; hold != NULL; hold = hold->next)
	{
		if (hold->session == session)
			return true;
	}
	return false;
}
