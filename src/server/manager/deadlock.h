/*
 * manager/deadlock.h
 *		Cycles of connections that wait for each other.
 */
#ifndef LE_DEADLOCK_H
#define LE_DEADLOCK_H

#include "lib/stringinfo.h"

#include "core/core.h"
#include "shared/shmem.h"

/* In the manager: this process asks whether it waits for itself. */
extern void le_deadlock_ask(uint32 proc);

/* When to search for all who have asked; LE_NEVER: nobody has. */
extern LeTime le_deadlock_next_search(void);

/* This process is to give up: detail has a line for each of the cycle. */
typedef void (*LeDeadlockCallback)(uint32 proc, const StringInfoData *detail);

/* Search for them; the processes of cycles that are told here have given up by then. */
extern void le_deadlock_search(const LeCore *core, LeDeadlockCallback give_up);

#endif /* LE_DEADLOCK_H */
