/*
 * shared/fence_lock.h
 *		Finds the PostgreSQL lock that implements a fence, and the holders of this lock.
 */
#ifndef LE_FENCE_LOCK_H
#define LE_FENCE_LOCK_H

#include "nodes/pg_list.h"
#include "storage/lock.h"

#include "core/command.h"

/*
 * Returns the tag of the PostgreSQL lock that is the fence of a token.  Transactions that fence the token
 * hold this lock in share mode.
 */
extern LOCKTAG le_fence_tag(int64 token);

/* Returns the token whose fence is this lock, or 0 if the lock is not a fence of this database. */
extern int64 le_fence_token(const LOCKTAG *tag);

/* Returns whether any transaction holds this token's fence. */
extern bool le_fence_held(int64 token);

/*
 * Returns the process ids of the transactions that hold the fence, and sends a signal to each of them (signo
 * 0 = no signal).  The signal cannot hit a later process with the same id.
 */
extern List *le_fence_pids(int64 token, int signo);

#endif /* LE_FENCE_LOCK_H */
