/*
 * backend/session_fence.h
 *		Takes fences.  A transaction takes a fence to keep the manager from replacing a holder.
 */
#ifndef LE_SESSION_FENCE_H
#define LE_SESSION_FENCE_H

#include "shared/fence_lock.h"

/*
 * Takes the fence of a token, and keeps it until the end of the transaction.  Meanwhile the manager neither
 * ends nor replaces this holder.  The caller must check afterwards that the token is still a holder: before
 * that check the fence guarantees nothing.
 */
extern void le_fence_take(int64 token);

/* Records, for fence_guard(), that this token holds this name.  The manager must have confirmed it. */
extern void le_fence_note(LeKind kind, LeText name, int64 token);

/* Returns whether this transaction now holds a fence of this name.  token 0: the fence of any holder. */
extern bool le_fence_is_mine(LeKind kind, LeText name, int64 token);

/*
 * Forget the fences of a (sub)transaction.  Called by backend/xact.c when its PostgreSQL locks are released.
 * Must not fail.
 */
extern void le_fence_sub_aborted(SubTransactionId subxact);
extern void le_fence_top_ended(void);

#endif /* LE_SESSION_FENCE_H */
