/*
 * core/settle.h
 *		Grants locks to waiters, and ends entries, with the effects on other entries.  For the core alone.
 */
#ifndef LE_SETTLE_H
#define LE_SETTLE_H

#include "objects.h"

/*
 * None of these functions can fail.  A fenced holder lapses instead of ending. le_entry_end_only()
 * does not settle the lock; the caller must call le_settle_ended() after the last end.
 */
extern void le_entry_end(LeCore *core, LeEntry *entry, LeEnd how, LeTime closed_until, LeTime now);
extern void le_entry_end_only(LeCore *core, LeEntry *entry, LeEnd how, LeTime closed_until, LeTime now);
extern void le_settle_ended(LeCore *core, const LeEntry *before, LeTime now);
extern void le_lock_settle(LeCore *core, LeLock *lock, LeTime now);

#endif /* LE_SETTLE_H */
