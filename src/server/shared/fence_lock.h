/*
 * shared/fence_lock.h
 *		The lock of PostgreSQL that a fence consists of, and its holders.
 */
#ifndef LE_FENCE_LOCK_H
#define LE_FENCE_LOCK_H

#include "nodes/pg_list.h"
#include "storage/lock.h"

#include "core/command.h"

/* Returns the lock of a token's fence: the transactions that fence hold it in share mode. */
extern LOCKTAG le_fence_tag(int64 token);

/* Returns the token whose fence this lock is, in this database; 0 if it is no fence. */
extern int64 le_fence_token(const LOCKTAG *tag);

/* Returns whether any transaction holds this token's fence. */
extern bool le_fence_held(int64 token);

/*
 * Returns the process ids of the transactions that hold the fence, and sends each of them this signal (0:
 * none).  A process cannot end before it gets the signal, so no other process is hit.
 */
extern List *le_fence_pids(int64 token, int signo);

#endif /* LE_FENCE_LOCK_H */
