/*
 * manager/deadlock.h
 *		Cycles of connections that wait for each other.
 */
#ifndef LE_DEADLOCK_H
#define LE_DEADLOCK_H

#include "lib/stringinfo.h"

#include "shared/shmem.h"

/*
 * In the manager: is the request that this proc waits for part of a deadlock?
 * Returns the proc that is to give up, -1: no.  The cycle is put into detail.
 */
extern int le_deadlock_find(const LeCore *core, uint32 proc, StringInfo detail);

#endif /* LE_DEADLOCK_H */
