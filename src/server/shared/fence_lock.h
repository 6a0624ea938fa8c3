/*
 * shared/fence_lock.h
 *		The lock that a fence is, and who holds it.
 */
#ifndef LE_FENCE_LOCK_H
#define LE_FENCE_LOCK_H

#include "nodes/pg_list.h"
#include "storage/lock.h"

#include "core/command.h"

/* The lock of a token's fence: shared by the transactions that fence. */
extern LOCKTAG le_fence_tag(int64 token);

/* The token whose fence this lock is, in this database; 0: it is no fence. */
extern int64 le_fence_token(const LOCKTAG *tag);

/* Does anybody hold this token's fence? */
extern bool le_fence_held(int64 token);

/*
 * The process ids of the transactions that hold the fence.  Sends each of them this
 * signal, 0: none.  None can be gone before that, so no other process is hit.
 */
extern List *le_fence_pids(int64 token, int signo);

#endif /* LE_FENCE_LOCK_H */
