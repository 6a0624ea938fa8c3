/*
 * core/load.c
 *		Building the state from what was stored.
 */
#include "internal.h"

/* A slot with the number that its row has. */
static LeSlot *
load_slot(LeCore *core, LeLock *lock, int32_t number, uint64_t locator)
{
	LeSlot *slot = le_pool_get(&core->slots);

	slot->lock = lock;
	slot->number = number;
	slot->row.locator = locator;
	slot->row.on_disk = true;
	slot->next = lock->slots;
	lock->slots = slot;
	if (number >= lock->next_number)
		lock->next_number = number + 1;
	return slot;
}

static void
load_holder(LeCore *core, LeLock *lock, LeSlot *slot, const LeLoad *load, LeLease *lease, LeTime now)
{
	LeEntry *entry = le_entry_new(core, lock, &load->cmd, lease, now);

	le_entry_set_state(entry, LE_STATE_NEW, LE_STATE_HELD);
	entry->slot = slot;
	entry->hold_count = load->hold_count;
	entry->acquired_at = load->acquired_at;
	entry->saved_at = now;
	entry->saved_left = load->time_left;
	entry->deadline = (lease != NULL || entry->ttl == LE_TTL_BOUND) ? LE_NEVER : le_add(now, load->time_left);
	slot->holder = entry;
	lock->held++;
	lock->mode = entry->mode;
	if (load->cmd.mode == LE_MODE_PERMIT && load->cmd.permits > lock->permits)
		lock->permits = load->cmd.permits;
	if (load->lapsed)
	{
		entry->lapsed = true;
		entry->lapsed_at = now;
		entry->end = (uint8_t) load->end;
		entry->deadline = now;
		entry->closed_until = load->closed_until;
		le_link_before(&core->lapsed, &entry->queue_link);
	}
	else
		le_owner_add(core, entry);
	le_entry_arm(core, entry);
}

/* What a holder or a place hung on did not outlive the reload. */
static bool
load_is_orphan(const LeLoad *load, const LeLease *lease)
{
	if (load->lapsed)
		return false;
	if (load->cmd.lease != 0)
		return lease == NULL;
	return load->cmd.ttl == LE_TTL_BOUND && load->cmd.session == 0;
}

bool
le_core_load_slot(LeCore *core, const LeLoad *load, LeTime now)
{
	LeCommand cmd = load->cmd;
	LeLease *lease = NULL;
	LeLock *lock;
	LeSlot *slot;

	core->loading = true;
	cmd.type = LE_CMD_ACQUIRE;
	if (!le_core_reserve(core, &cmd))
		return false;
	lock = le_lock_get(core, cmd.kind, cmd.name);
	slot = load_slot(core, lock, load->slot, load->locator);
	if (!load->lapsed && load->closed_until > lock->closed_until)
		lock->closed_until = load->closed_until;
	if (cmd.lease != 0)
		lease = le_core_find_lease(core, cmd.lease);
	if (lease != NULL)
		le_lease_is_for_group(core, lease, cmd.token);
	if (!load->held)
	{
		le_slot_add_free(lock, slot);
		if (load->dirty)
			le_slot_dirty(core, slot);
		if (load->dirty && cmd.token != 0)
			le_change_lost(core, lock, load, now);
	}
	else if (load_is_orphan(load, lease))
	{
		le_slot_add_free(lock, slot);
		le_slot_dirty(core, slot);
		le_change_lost(core, lock, load, now);
	}
	else
	{
		if (cmd.session != 0)
			le_session_touch(core, cmd.session, cmd.sessno, cmd.xact, now);
		load_holder(core, lock, slot, load, lease, now);
	}
	return true;
}

bool
le_core_load_place(LeCore *core, const LeLoad *load, LeTime now)
{
	LeCommand cmd = load->cmd;
	LeLease *lease = NULL;
	LeLock *lock;
	LeEntry *entry;

	core->loading = true;
	cmd.type = LE_CMD_ACQUIRE;
	if (!le_core_reserve(core, &cmd) || (load->member > 0 && !le_pool_reserve(core, &core->groups, 1)))
		return false;
	if (cmd.session != 0)
		le_session_touch(core, cmd.session, cmd.sessno, cmd.xact, now);
	if (cmd.lease != 0)
		lease = le_core_find_lease(core, cmd.lease);
	lock = le_lock_get(core, cmd.kind, cmd.name);
	if (cmd.mode == LE_MODE_PERMIT && lock->permits == 0)
		lock->permits = cmd.permits;
	if (lease != NULL && load->member > 0)
		le_lease_is_for_group(core, lease, cmd.token);
	entry = le_entry_new(core, lock, &cmd, lease, now);
	entry->place = true;
	entry->hold_count = load->hold_count > 0 ? load->hold_count : 1;
	entry->since = load->acquired_at;
	entry->row.locator = load->locator;
	entry->row.on_disk = true;
	if (lease == NULL && cmd.ttl != LE_TTL_BOUND)
		entry->deadline = le_add(now, load->time_left);
	if (load_is_orphan(load, lease))
	{
		/* so is each of several names: they end one by one */
		le_entry_queue(core, entry, now);
		le_entry_end(core, entry, LE_END_SESSION, 0, now);
		return true;
	}
	entry->member = load->member;
	if (load->member > 0)
		le_group_load(core, entry);
	le_entry_queue(core, entry, now);
	return true;
}

bool
le_core_load_lease(LeCore *core, const LeCommand *cmd, LeTime time_left, uint64_t locator, LeTime now)
{
	LeCommand grant = *cmd;
	LeReply reply;
	LeLease *lease;

	core->loading = true;
	grant.type = LE_CMD_GRANT_LEASE;
	if (!le_core_reserve(core, &grant))
		return false;
	memset(&reply, 0, sizeof(reply));
	le_apply_grant_lease(core, &grant, now, &reply);
	lease = core->dirty_leases;
	core->dirty_leases = lease->dirty_next;
	lease->dirty_next = NULL;
	lease->row.dirty = false;
	lease->deadline = le_add(now, time_left);
	lease->saved_left = time_left;
	lease->row.on_disk = true;
	lease->row.locator = locator;
	le_timer_clear(core, &lease->timer);
	if (time_left < 0)
		le_lease_end(core, lease, LE_END_EXPIRED, now);
	else
		le_lease_arm(core, lease);
	return true;
}

bool
le_core_load_hold(LeCore *core, const LeCommand *hold)
{
	LeEntry *entry = le_core_find_entry(core, hold->kind, hold->name, hold->token);

	if (entry == NULL)
		return true;
	if (!le_pool_reserve(core, &core->holds, 1))
		return false;
	le_session_touch(core, hold->session, hold->sessno, hold->xact, 0);
	le_entry_add_hold(core, entry, hold->session, hold->sessno, hold->xact, hold->subxact);
	return true;
}

/* What was left of these groups were lapsed holders, whose fences are gone. */
static void
end_empty_own_leases(LeCore *core, LeTime now)
{
	for (uint32_t place = 0; place < le_core_lease_indexes(core); place++)
	{
		LeLease *lease = le_pool_at(&core->leases, place);

		if (lease->for_group && !lease->ended && le_link_empty(&lease->entries))
			le_lease_end(core, lease, LE_END_RELEASED, now);
	}
}

void
le_core_load_done(LeCore *core, LeTime now)
{
	core->loading = false;
	core->loaded_group = NULL;
	end_empty_own_leases(core, now);
	for (uint32_t place = 0; place < le_core_lock_indexes(core); place++)
	{
		LeLock *lock = le_core_lock_at(core, place);

		if (lock != NULL)
			le_lock_settle(core, lock, now);
	}
}
