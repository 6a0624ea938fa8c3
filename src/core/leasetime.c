/*
 * core/leasetime.c
 *		Starts, renews, extends and ends a single lease, without its entries.
 *
 * core/leases.c ends the entries of a lease.
 */
#include "containers.h"
#include "leasetime.h"
#include "role.h"
#include "saved.h"
#include "state.h"
#include "view.h"

void
le_lease_dirty(LeCore *core, LeLease *lease)
{
	if (lease->row.dirty)
		return;
	lease->row.dirty = true;
	lease->dirty_next = core->dirty_leases;
	core->dirty_leases = lease;
}

/* Arms the timer of a lease.  A timer that fires too early stays unchanged, as in le_entry_arm(). */
void
le_lease_arm(LeCore *core, LeLease *lease)
{
	LeTime at = le_save_at(lease->ttl, lease->deadline, &lease->saved);

	if (lease->deadline < at)
		at = lease->deadline;
	if (lease->timer.pos != 0 && at > lease->timer.at)
		return;
	le_timer_set(core, &lease->timer, at);
}

LeLease *
le_lease_new(LeCore *core, int64_t id, LeTime ttl, uint32_t role)
{
	LeLease *lease = le_pool_get(&core->leases);

	assert(id > 0 && ttl > 0 && le_core_find_lease(core, id) == NULL);
	lease->id = id;
	lease->ttl = ttl;
	lease->deadline = LE_NEVER;
	lease->saved.life = core->life->number;
	lease->role = role;
	lease->timer.type = LE_TIMER_LEASE;
	le_link_init(&lease->entries);
	le_link_init(&lease->news);
	le_hash_add(core, LE_HASH_LEASES, &lease->hash_link);
	return lease;
}

/* Starts a lease: its TTL begins now, and its row is written with the batch. */
void
le_lease_start(LeCore *core, LeLease *lease, LeTime now)
{
	assert(!lease->ended && !lease->draining && lease->ttl > 0);
	lease->deadline = le_add(now, lease->ttl);
	le_saved_set(core, &lease->saved, lease->ttl);
	le_lease_arm(core, lease);
	le_lease_dirty(core, lease);
}

/* Renews a lease: its TTL begins again.  Must not fail.  Limits do not apply. */
void
le_lease_renew(LeCore *core, LeLease *lease, LeTime now)
{
	assert(!lease->ended && !lease->draining);
	lease->deadline = le_add(now, lease->ttl);
	if (le_saved_renew(core, &lease->saved, lease->ttl, lease->row.dirty, lease->lsn))
		le_lease_dirty(core, lease);
	le_lease_arm(core, lease);
}

void
le_lease_set_ttl(LeCore *core, LeLease *lease, LeTime ttl)
{
	assert(ttl > 0 && ttl != lease->ttl && lease->for_group);
	lease->ttl = ttl;
	lease->saved.raised = true;
	le_lease_dirty(core, lease);
}

/*
 * Extends a group's lease to at least this TTL.  Keeps the timer, because the deadline never moves to
 * an earlier time.
 */
void
le_lease_extend(LeCore *core, LeLease *lease, LeTime ttl, LeTime now)
{
	assert(ttl > 0 && lease->for_group && !lease->ended);
	(void) le_extend(core, ttl, now, &lease->ttl, &lease->deadline, &lease->saved);
	le_lease_dirty(core, lease);
}

/* Ends a lease that has no entries; its row is deleted with the batch.  Must not fail. */
void
le_lease_close(LeCore *core, LeLease *lease, LeEnd how)
{
	assert(!lease->ended && le_link_empty(&lease->entries));
	lease->draining = true;
	lease->how = (uint8_t) how;
	lease->ended = true;
	le_saved_forget(core, &lease->saved);
	le_timer_clear(core, &lease->timer);
	le_hash_remove(core, LE_HASH_LEASES, &lease->hash_link);
	if (!lease->for_group)
		le_role_remove(core, lease->role, le_usage_of_lease(lease->owner_len));
	le_lease_dirty(core, lease);
}
