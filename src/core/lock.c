/*
 * core/lock.c
 *		Creates, closes and opens locks, decides which requests a lock admits, and arms the timers of locks.
 */
#include "containers.h"
#include "lock.h"
#include "reserve.h"
#include "role.h"
#include "state.h"
#include "view.h"

void
le_slot_dirty(LeCore *core, LeSlot *slot)
{
	assert(slot->lock != NULL);
	slot->row.later = slot->row.stale = false;
	if (slot->row.dirty)
		return;
	slot->row.dirty = true;
	slot->dirty_next = core->dirty_slots;
	core->dirty_slots = slot;
}

/* Returns the lock of this name.  If there is none, creates it from reserved memory. */
LeLock *
le_lock_get(LeCore *core, LeKind kind, LeText name)
{
	LeLock *lock = le_core_find_lock(core, kind, name);

	if (lock != NULL)
		return lock;
	lock = le_pool_get(&core->locks);
	lock->hash = (uint32_t) le_hash_name(core, kind, name);
	lock->kind = (uint8_t) kind;
	lock->name = le_prealloc_take(&core->prealloc_names);
	lock->name_len = (uint16_t) name.len;
	lock->timer.type = LE_TIMER_LOCK;
	le_link_init(&lock->queue);
	assert(le_text_equal(le_text(lock->name, lock->name_len), name));
	le_hash_add(core, LE_HASH_LOCKS, &lock->hash_link);
	return lock;
}

void
le_slot_add_free(LeLock *lock, LeSlot *slot)
{
	assert(slot->lock == lock && !slot->free);
	slot->free = true;
	slot->free_next = lock->free_slots;
	lock->free_slots = slot;
}

void
le_lock_open(LeCore *core, LeLock *lock)
{
	if (lock->closed_until == 0)
		return;
	lock->closed_until = 0;
	le_role_remove(core, lock->closed_by, le_usage_of_closed(lock->name_len));
}

/*
 * Closes a lock until this time, unless it is already closed for longer.  If several holders close it
 * until the same time, the closed name counts against the role with the lowest OID, so that the result
 * does not depend on their order.  Allocates no memory, because the role has a record of its usage
 * already.
 */
void
le_lock_close(LeCore *core, LeLock *lock, LeTime until, uint32_t role)
{
	if (until == 0 || until < lock->closed_until || (until == lock->closed_until && role >= lock->closed_by))
		return;
	le_lock_open(core, lock);
	assert(lock->closed_until == 0);
	lock->closed_until = until;
	lock->closed_by = role;
	le_role_add(core, role, le_usage_of_closed(lock->name_len));
}

/*
 * Modes that can be held together: [mode of the holders][mode of the next holder].
 *
 * A new mode requires changes in core/command.h (LeMode), core/objects.h (LeEntry.mode
 * has two bits, whose four values are used), this table and its size in
 * core/lock.h; the uses of modes in acquire.c, owner.c, reentry.c, load.c,
 * group.c, each.c, check.c and manager/take.c; the texts in sql/sql_lock.c and
 * sql_views.c, with the COMMENTs of sql/lock_election--1.0.sql; le_how and request.c
 * of the client, lockctl's options; the requests of each library in clients, with
 * conformance/features.toml; the model and invariants.c in test/sim.
 */
const bool le_modes_compatible[LE_MODE_PERMIT + 1][LE_MODE_PERMIT + 1] = {
	[LE_MODE_EXCLUSIVE] = {false},
	[LE_MODE_SHARED] = {[LE_MODE_SHARED] = true},
	[LE_MODE_PERMIT] = {[LE_MODE_PERMIT] = true}, /* LeLock.permits limits their number */
};

/* Returns whether a request of this mode would be granted if it were first in the queue. */
bool
le_lock_admits(const LeLock *lock, LeMode mode, LeTime now)
{
	if (lock->closed_until > now)
		return false;
	if (mode == LE_MODE_PERMIT && lock->held >= lock->permits)
		return false;
	return lock->held == 0 || le_modes_compatible[lock->mode][mode];
}

/* The states of a lock, which determine how its timer is armed. */
typedef enum LockState
{
	LOCK_UNSETTLED, /* more waiters can be granted in the next batch */
	LOCK_CLOSED,    /* no grant before closed_until */
	LOCK_IN_USE,    /* it has holders or waiters */
	LOCK_LINGERING, /* it is unused, but its rows are kept for a while */
	LOCK_DOOMED     /* it is unused and has no rows: it is freed at the end of the batch */
} LockState;

/* Returns the first state that applies to a lock. */
static LockState
lock_state(const LeLock *lock)
{
	if (lock->unsettled)
		return LOCK_UNSETTLED;
	if (lock->closed_until != 0)
		return LOCK_CLOSED;
	if (lock->held > 0 || lock->waiting > 0)
		return LOCK_IN_USE;
	for (const LeSlot *slot = lock->slots; slot != NULL && !lock->doomed; slot = slot->next)
	{
		if (slot->row.on_disk)
			return LOCK_LINGERING;
	}
	return LOCK_DOOMED;
}

/*
 * Arms a lock's timer according to its state, or marks the lock to be freed at the end of the batch
 * (doomed).  Must not fail.
 */
void
le_lock_arm(LeCore *core, LeLock *lock, LeTime now)
{
	LockState state = lock_state(lock);
	LeTime at = LE_NEVER;

	switch (state)
	{
		case LOCK_UNSETTLED:
			at = now;
			break;
		case LOCK_CLOSED:
			/* if closed_until is in the past, the timer fires at once, and waiters are granted the lock */
			at = lock->closed_until;
			break;
		case LOCK_IN_USE:
			break;
		case LOCK_LINGERING:
			at = le_add(now, LE_LINGER);
			at = le_add(at, LE_LINGER_STEP - at % LE_LINGER_STEP);
			break;
		case LOCK_DOOMED:
			if (lock->doom_listed)
				break;
			lock->doom_listed = true;
			lock->doomed_next = core->doomed;
			core->doomed = lock;
			break;
	}
	lock->doomed = state == LOCK_DOOMED;
	le_timer_set(core, &lock->timer, at);
	assert(!lock->doomed || (lock->doom_listed && lock->held == 0 && lock->waiting == 0));
}
