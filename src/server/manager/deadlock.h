/*
 * manager/deadlock.h
 *		Finds cycles of connections that wait for each other.
 */
#ifndef LE_MANAGER_DEADLOCK_H
#define LE_MANAGER_DEADLOCK_H

#include "core/core.h"

/* Records that this process requests a search for deadlocks. */
extern void le_deadlock_ask(uint32 proc);

/* Returns the time, by le_clock(), of the next search for deadlocks; LE_NEVER if no process has asked. */
extern LeTime le_deadlock_next_search(void);

/*
 * Searches for deadlocks, starting at all processes that have asked.  One process of each cycle gets an
 * error, see le_answer_deadlock().
 */
extern void le_deadlock_search(const LeCore *core);

#endif /* LE_MANAGER_DEADLOCK_H */
