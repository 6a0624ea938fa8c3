/*
 * manager/deadlock.h
 *		Cycles of connections that wait for each other.
 */
#ifndef LE_DEADLOCK_H
#define LE_DEADLOCK_H

#include "lib/stringinfo.h"

#include "shared/shmem.h"

/*
 * Is the request of this proc part of a deadlock?  Returns the proc that has to
 * give up; -1: no deadlock.  Appends the cycle to detail, a line for each edge.
 */
extern int le_deadlock_find(const LeCore *core, uint32 proc, StringInfo detail);

#endif /* LE_DEADLOCK_H */
