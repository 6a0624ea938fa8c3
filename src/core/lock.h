/*
 * core/lock.h
 *		Functions for locks and their slots.  For the core alone.
 */
#ifndef LE_LOCK_H
#define LE_LOCK_H

#include "objects.h"

extern LeLock *le_lock_get(LeCore *core, LeKind kind, LeText name);

extern const bool le_modes_compatible[LE_MODE_PERMIT + 1][LE_MODE_PERMIT + 1];
extern bool le_lock_admits(const LeLock *lock, LeMode mode, LeTime now);
extern void le_lock_arm(LeCore *core, LeLock *lock, LeTime now);

/* Closes the lock until this moment; 0 = do not close it. role: role of the holder whose end closes it. */
extern void le_lock_close(LeCore *core, LeLock *lock, LeTime until, uint32_t role);
extern void le_lock_open(LeCore *core, LeLock *lock);

/* Adds a slot to the free slots of its lock. */
extern void le_slot_add_free(LeLock *lock, LeSlot *slot);
/* Marks the row of a slot to be written with the batch. */
extern void le_slot_dirty(LeCore *core, LeSlot *slot);

#endif /* LE_LOCK_H */
