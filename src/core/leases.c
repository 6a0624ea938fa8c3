/*
 * core/leases.c
 *		Applies the commands of named leases.  With a named lease a client keeps any
 *		number of entries alive with one call.
 */
#include "containers.h"
#include "endings.h"
#include "leases.h"
#include "leasetime.h"
#include "reserve.h"
#include "role.h"
#include "saved.h"
#include "settle.h"
#include "state.h"
#include "together.h"
#include "view.h"

/* GRANT_LEASE: creates a named lease, which counts against its role's limit. */
void
le_apply_grant_lease(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	LeLease *lease;

	reply->status = le_role_admits(core, cmd->role, le_usage_of_lease(cmd->owner.len));
	if (reply->status != LE_OK)
		return;
	lease = le_lease_new(core, core->next_revision++, cmd->ttl, cmd->role);
	le_role_add(core, lease->role, le_usage_of_lease(cmd->owner.len));
	if (cmd->owner.data != NULL)
	{
		lease->owner = le_prealloc_take(&core->prealloc_owners);
		lease->owner_len = (uint8_t) cmd->owner.len;
	}
	le_lease_start(core, lease, now);
	lease->granted_here = true;
	assert(lease->row.dirty && lease->timer.pos != 0);
	reply->lease = lease->id;
	reply->valid_for = lease->ttl;
	reply->wrote = true;
}

/*
 * Ends a lease and all its entries.  If there are very many entries, some are left for the next
 * batch.  Until then the lease is draining, and commands with the token of one of its entries do
 * not find the entry.  Must not fail.
 */
void
le_lease_end(LeCore *core, LeLease *lease, LeEnd how, LeTime now)
{
	LeTime closed_until = 0;
	LeEntry *before = core->ended;

	/* if the lease is already draining, its remaining entries end for the original reason */
	assert(!lease->ended);
	if (lease->draining)
		how = (LeEnd) lease->how;
	else if (!lease->for_group)
		le_note_ending(core, lease->id, lease->role, how, now);
	lease->draining = true;
	lease->how = (uint8_t) how;
	if (how == LE_END_EXPIRED && core->limits.expiry_grace > 0)
		closed_until = le_add(now, core->limits.expiry_grace);
	while (!le_link_empty(&lease->entries) && (lease->for_group || !le_core_is_full(core)))
	{
		LeEntry *entry = le_container(lease->entries.next, LeEntry, lease_link);

		/* detach the entry from the lease, because an entry that lapses outlives the lease */
		le_unlink(&entry->lease_link);
		le_unlink(&entry->news_link);
		entry->lease = NULL;
		le_entry_end_only(core, entry, how == LE_END_EXPIRED ? le_end_by_time(entry) : how, closed_until,
						  now);
	}
	if (!le_link_empty(&lease->entries))
		le_timer_set(core, &lease->timer, now);
	else
		le_lease_close(core, lease, how);
	le_settle_ended(core, before, now);
}

/* Returns whether a call waits for the place of a group with this lease, and so keeps the lease alive. */
static bool
is_awaited(const LeLease *lease)
{
	LeEntry *entry;

	if (!lease->for_group || le_link_empty(&lease->entries))
		return false;
	entry = le_container(lease->entries.next, LeEntry, lease_link);
	if (entry->state != LE_STATE_QUEUED)
		return false;
	entry = le_group_lead(entry);
	return entry->waiter->session != 0 && !entry->waiter->answering;
}

void
le_lease_due(LeCore *core, LeLease *lease, LeTime now)
{
	assert(!lease->ended);
	if (!lease->draining && le_is_over(core, lease->deadline, now) && is_awaited(lease))
		le_lease_renew(core, lease, now);
	if (lease->draining || le_is_over(core, lease->deadline, now))
	{
		le_lease_end(core, lease, LE_END_EXPIRED, now);
		return;
	}
	if (le_save_at(lease->ttl, lease->deadline, &lease->saved) <= now)
	{
		le_saved_set(core, &lease->saved, lease->deadline - now);
		le_lease_dirty(core, lease);
	}
	le_timer_clear(core, &lease->timer);
	le_lease_arm(core, lease);
}

/*
 * Applies KEEP_ALIVE, REVOKE_LEASE, LEASE_TTL and LEASE_HOLDS.  Limits do not apply to KEEP_ALIVE, as
 * in le_apply_renew().
 */
void
le_apply_lease(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	LeLease *lease = le_core_find_lease(core, cmd->lease);

	if (lease == NULL || lease->for_group || (lease->draining && cmd->type != LE_CMD_REVOKE_LEASE))
	{
		reply->status = LE_NO_LEASE;
		if (cmd->type != LE_CMD_REVOKE_LEASE || cmd->from == 0)
			return;

		/* the lease ended between two steps; the reply depends on the write of its end */
		reply->lsn = core->lease_ended_lsn;
		for (lease = core->dirty_leases; lease != NULL; lease = lease->dirty_next)
			reply->wrote |= lease->ended && lease->id == cmd->lease;
		return;
	}
	if (lease->role != cmd->role)
	{
		reply->status = LE_DENIED;
		return;
	}
	reply->lsn = lease->lsn;
	if (cmd->type == LE_CMD_REVOKE_LEASE)
	{
		reply->may_return = lease->ttl <= LE_SAVE_INTERVAL;
		le_lease_end(core, lease, LE_END_REVOKED, now);
		reply->next = !lease->ended;
		reply->wrote = true;
		return;
	}

	/* KEEP_ALIVE, LEASE_TTL, LEASE_HOLDS */
	reply->valid_for = lease->deadline > now ? lease->deadline - now : 0;
	if (cmd->type == LE_CMD_KEEP_ALIVE)
	{
		le_lease_renew(core, lease, now);
		le_reply_lease_validity(core, reply, lease, now);
	}
	reply->wrote = lease->row.dirty;
}
