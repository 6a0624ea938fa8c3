/*
 * core/force.c
 *		Applies commands of an administrator: they end or evict the holders of a name,
 *		change its number of permits, or end everything that a role has.
 *
 * Each command may affect very many objects, so it works in steps: its reply says where to
 * continue.
 */
#include "containers.h"
#include "entry.h"
#include "force.h"
#include "leases.h"
#include "lock.h"
#include "news.h"
#include "saved.h"
#include "settle.h"
#include "state.h"
#include "view.h"

/* Maximum number of entries, leases or locks that a step examines. */
#define LOOKS_A_STEP 20000

/* Returns whether the command lists this role as one that the caller may manage. */
static bool
manages(const LeCommand *cmd, uint32_t role)
{
	for (size_t at = 0; at + sizeof(role) <= cmd->value.len; at += sizeof(role))
	{
		if (memcmp(cmd->value.data + at, &role, sizeof(role)) == 0)
			return true;
	}
	return false;
}

/* Returns whether this command applies to holders and closed names of this role. */
static bool
forces(const LeCommand *cmd, uint32_t role)
{
	return cmd->any_role || cmd->role == role || manages(cmd, role);
}

/* --- forcing the release of a name --- */

/* Opens a name that is closed now, or would be closed when the fence of a lapsed holder ends. */
static void
reopen(LeCore *core, LeLock *lock, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	bool closed = lock->closed_until > now && forces(cmd, lock->closed_by);

	for (LeSlot *slot = lock->slots; slot != NULL; slot = slot->next)
	{
		LeEntry *holder = le_slot_holder(slot);

		if (holder == NULL && closed && slot->row.on_disk)
			le_slot_dirty(core, slot);
		if (holder == NULL || holder->state != LE_STATE_LAPSED || holder->closed_until <= now ||
			!forces(cmd, holder->role))
			continue;
		holder->closed_until = 0;
		le_slot_dirty(core, slot);
		reply->reopened = true;
	}
	if (closed)
	{
		le_lock_open(core, lock);
		reply->reopened = true;
	}
}

/*
 * FORCE: ends all holders of a name, in steps, and opens the name.  Holders that were granted the
 * lock after the first step stay.
 */
void
le_apply_force(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	LeLock *lock = le_core_find_lock(core, cmd->kind, cmd->name);
	LeTime granted_by = cmd->from != 0 ? cmd->from : now;
	LeEntry *before = core->ended;

	if (lock == NULL)
		return;
	for (LeSlot *slot = lock->slots; slot != NULL; slot = slot->next)
	{
		LeEntry *holder = le_slot_holder(slot);

		if (holder == NULL || holder->state == LE_STATE_LAPSED || holder->acquired_at > granted_by ||
			!forces(cmd, holder->role))
			continue;
		if (le_core_is_full(core))
		{
			reply->next = granted_by > 0 ? granted_by : 1;
			break;
		}
		assert(holder->state == LE_STATE_HELD && holder->lock == lock);
		le_entry_end_only(core, holder, LE_END_FORCED, 0, now);
		reply->ended++;
	}

	/* open the name, and grant the lock to waiters */
	reopen(core, lock, cmd, now, reply);
	le_settle_ended(core, before, now);
	if (reply->reopened)
		le_lock_settle(core, lock, now);
	reply->wrote = reply->ended > 0 || reply->reopened;
}

/* --- eviction --- */

/* Returns whether EVICT applies to this holder. */
static bool
evicts(const LeCommand *cmd, const LeEntry *holder, LeTime granted_by)
{
	return holder != NULL && holder->state == LE_STATE_HELD && holder->acquired_at <= granted_by &&
		   !le_entry_is_draining(holder) && (cmd->any_role || manages(cmd, holder->role));
}

/* Evicts a holder: it keeps its current deadline, and is not renewed any more. */
static void
evict_entry(LeCore *core, LeEntry *holder, LeTime now)
{
	assert(holder->state == LE_STATE_HELD && !holder->evicted && !le_entry_is_bound(holder));
	if (holder->lease != NULL)
	{
		holder->ttl = holder->lease->ttl;
		holder->deadline = holder->lease->deadline;
	}
	holder->evicted = true;
	le_news_add(core, holder);
	le_saved_fix(core, &holder->saved, holder->deadline > now ? holder->deadline - now : 0);
	le_slot_dirty(core, holder->slot);
	le_entry_arm(core, holder);
	core->work++;
}

/*
 * Evicts a holder and, if its lease belongs to a group, the whole group.  A holder on a named lease
 * stays in the list of the lease, so that it also ends with the lease.  The names of a group with a
 * lease of its own are evicted together, because the client renews all of them by renewing any one.
 */
static void
evict(LeCore *core, LeEntry *holder, LeTime now)
{
	LeLease *lease = holder->lease;

	if (lease == NULL || !lease->for_group)
	{
		evict_entry(core, holder, now);
		if (lease != NULL)
			lease->evicted++;
		return;
	}
	le_link_foreach(link, next, &lease->entries)
	{
		LeEntry *member = le_container(link, LeEntry, lease_link);

		if (member->state != LE_STATE_HELD)
			continue;
		evict_entry(core, member, now);
		le_unlink(&member->lease_link);
		le_unlink(&member->news_link);
		member->lease = NULL;
	}
	if (le_link_empty(&lease->entries))
		le_lease_end(core, lease, LE_END_EVICTED, now);
	assert(holder->evicted && holder->lease == NULL);
}

/*
 * EVICT: stops the renewals of a name's holders.  Each holder stays until its client releases it, or
 * until the deadline that the client last received; then the lock is granted to the next waiter.  Works
 * in steps, like FORCE.
 *
 * Replies HELD_BOUND, and evicts no holder, if one of them has no deadline.  No holder becomes bound
 * between two steps.
 */
void
le_apply_evict(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	LeLock *lock = le_core_find_lock(core, cmd->kind, cmd->name);
	LeTime granted_by = cmd->from != 0 ? cmd->from : now;

	for (LeSlot *slot = lock != NULL ? lock->slots : NULL; slot != NULL; slot = slot->next)
	{
		const LeEntry *holder = le_slot_holder(slot);

		if (!evicts(cmd, holder, granted_by) || !le_entry_is_bound(holder))
			continue;
		reply->status = LE_HELD_BOUND;
		reply->token = holder->token;
		return;
	}
	for (LeSlot *slot = lock != NULL ? lock->slots : NULL; slot != NULL; slot = slot->next)
	{
		LeEntry *holder = le_slot_holder(slot);

		if (!evicts(cmd, holder, granted_by))
			continue;
		if (holder->evicted)
		{
			/* already evicted, perhaps by a call whose write is not flushed yet */
			reply->wrote |= slot->row.dirty;
			if (holder->lsn > reply->lsn)
				reply->lsn = holder->lsn;
			continue;
		}
		if (le_core_is_full(core))
		{
			reply->next = granted_by > 0 ? granted_by : 1;
			break;
		}
		evict(core, holder, now);
		reply->ended++;
	}
	reply->wrote |= reply->ended > 0;
}

/* --- permits --- */

/* Returns whether the caller may manage the roles of all holders and of the closed name. */
static bool
may_set_permits(const LeLock *lock, const LeCommand *cmd, LeTime now)
{
	if (cmd->any_role)
		return true;
	for (LeSlot *slot = lock->slots; slot != NULL; slot = slot->next)
	{
		if (le_slot_holder(slot) != NULL && !manages(cmd, le_slot_holder(slot)->role))
			return false;
	}
	return lock->closed_until <= now || manages(cmd, lock->closed_by);
}

/*
 * SET_PERMITS of a name in use.  Additional permits are granted at once; if the number is lowered, the
 * current holders stay until they end.  The rows of holders are written in steps (LeReply.next).
 * Returns DENIED if another role has acquired the name since the caller checked its rights.
 */
void
le_apply_set_permits(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	LeLock *lock = le_core_find_lock(core, cmd->kind, cmd->name);

	reply->status = LE_NOT_HELD;
	if (lock == NULL || (lock->held == 0 && lock->waiting == 0))
		return;
	reply->status = LE_BAD_MODE;
	if (lock->permits == 0)
		return;
	reply->status = LE_DENIED;
	if (!may_set_permits(lock, cmd, now))
		return;
	reply->status = LE_OK;
	reply->permits = lock->permits;
	lock->permits = cmd->permits;

	/* mark the rows in the first step, so that later steps find those that are left */
	for (LeSlot *slot = lock->slots; slot != NULL && cmd->from == 0; slot = slot->next)
		slot->row.stale = le_slot_holder(slot) != NULL;
	for (LeSlot *slot = lock->slots; slot != NULL; slot = slot->next)
	{
		if (!slot->row.stale || le_slot_holder(slot) == NULL)
			continue;
		if (le_core_is_full(core))
		{
			reply->next = 1;
			break;
		}
		le_slot_dirty(core, slot);
		core->work++;
	}
	reply->wrote = true;
	le_lock_settle(core, lock, now);
}

/* --- a role --- */

/*
 * The phases of FORCE_ROLE, one for each kind of object.  Waits are ended first, because otherwise the
 * end of a holder would grant the lock to the next waiter of the same role.
 */
typedef enum ForcePhase
{
	FORCE_WAITS,
	FORCE_LEASES,
	FORCE_HOLDERS,
	FORCE_CLOSED,
	FORCE_PHASES
} ForcePhase;

/* Ends the role's object at this index of the phase's pool.  Returns false if a part of it is left. */
static bool
force_at(LeCore *core, const LeCommand *cmd, ForcePhase phase, uint32_t index, LeTime now, LeReply *reply)
{
	uint32_t role = cmd->role;
	LeState state = phase == FORCE_WAITS ? LE_STATE_QUEUED : LE_STATE_HELD;
	LeEntry *entry;
	LeLease *lease;
	LeLock *lock;

	switch (phase)
	{
		case FORCE_WAITS:
		case FORCE_HOLDERS:
			entry = le_pool_at(&core->entries, index);
			if (entry->role != role)
				return true;
			if (entry->state == state)
			{
				le_entry_end_only(core, entry, LE_END_FORCED, 0, now);
				reply->ended++;
			}
			else if (phase == FORCE_HOLDERS && entry->state == LE_STATE_LAPSED && entry->closed_until > now)
			{
				/* the name must not be closed when the fence ends */
				entry->closed_until = 0;
				le_slot_dirty(core, entry->slot);
				core->work++;
				reply->ended++;
				reply->reopened = true;
			}
			return true;
		case FORCE_LEASES:
			lease = le_core_lease_at(core, index);
			if (lease == NULL || lease->role != role)
				return true;
			reply->ended += !lease->draining;
			le_lease_end(core, lease, LE_END_FORCED, now);
			return lease->ended;
		case FORCE_CLOSED:
			lock = le_core_lock_at(core, index);
			if (lock == NULL || lock->closed_until == 0 || lock->closed_by != role)
				return true;
			reply->ended += lock->closed_until > now;
			reopen(core, lock, cmd, now, reply);
			le_lock_open(core, lock);
			le_lock_settle(core, lock, now);
			core->work++;
			return true;
		case FORCE_PHASES:
			break;
	}
	return true;
}

/*
 * The position at which FORCE_ROLE continues, in cmd->from and reply->next: 1 + core << 34 + phase
 * << 32 + index.  An index is valid only in the core that it comes from.  If the core was loaded
 * again between two steps, its entries have other indexes, so the command begins again.
 */
#define PHASE_SHIFT 32
#define CORE_SHIFT  34
#define CORE_BITS   28

static int64_t
core_number(const LeCore *core)
{
	return (int64_t) (le_hash_name(core, LE_KIND_LOCK, le_text(NULL, 0)) & ((UINT64_C(1) << CORE_BITS) - 1));
}

/* FORCE_ROLE: ends all waits, leases, holders and closed names of a role, in steps. */
void
le_apply_force_role(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	int64_t at = cmd->from > 0 ? cmd->from - 1 : 0, number = core_number(core);
	bool begins = at >> CORE_SHIFT != number;
	uint32_t index = begins ? 0 : (uint32_t) at, looks = 0;
	ForcePhase phase = begins ? FORCE_WAITS : (ForcePhase) ((at >> PHASE_SHIFT) % FORCE_PHASES);
	LeEntry *before = core->ended;

	assert(phase < FORCE_PHASES);
	for (; phase < FORCE_PHASES; phase++, index = 0)
	{
		const LePool *pool = phase == FORCE_LEASES   ? &core->leases
							 : phase == FORCE_CLOSED ? &core->locks
													 : &core->entries;

		for (; index < le_pool_indexes(pool); index++)
		{
			if (looks++ == LOOKS_A_STEP || le_core_is_full(core) ||
				!force_at(core, cmd, phase, index, now, reply))
			{
				reply->next = 1 + (number << CORE_SHIFT) + ((int64_t) phase << PHASE_SHIFT) + index;
				break;
			}
		}
		if (reply->next != 0)
			break;
	}
	le_settle_ended(core, before, now);
	reply->wrote = true;
}
