/*
 * core/lock.h
 *		Locks and their slots.  For the core alone.
 */
#ifndef LE_LOCK_H
#define LE_LOCK_H

#include "objects.h"

extern LeLock *le_lock_get(LeCore *core, LeKind kind, LeText name);

extern const bool le_modes_compatible[LE_MODE_PERMIT + 1][LE_MODE_PERMIT + 1];
extern bool le_lock_admits(const LeLock *lock, LeMode mode, LeTime now);
extern void le_lock_arm(LeCore *core, LeLock *lock, LeTime now);

/* Closes the lock until this moment; 0 = does nothing. role: the role of the holder that has ended. */
extern void le_lock_close(LeCore *core, LeLock *lock, LeTime until, uint32_t role);
extern void le_lock_open(LeCore *core, LeLock *lock);

/* Makes a slot free. */
extern void le_slot_add_free(LeLock *lock, LeSlot *slot);
/* Marks the row of a slot to be written with the batch. */
extern void le_slot_dirty(LeCore *core, LeSlot *slot);

#endif /* LE_LOCK_H */
