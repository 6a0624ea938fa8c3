/*
 * backend/session_fence.h
 *		Fences: a transaction holds a lock's holder in place.
 */
#ifndef LE_SESSION_FENCE_H
#define LE_SESSION_FENCE_H

#include "shared/fence_lock.h"

/*
 * Hold the fence of a token until the end of the transaction: while it is
 * held, the manager neither ends nor replaces this holder.  Check afterwards
 * that the token still is a holder: before that the fence means nothing.
 */
extern void le_fence_take(int64 token);

/* The check has found that the token holds this name: note it for fence_guard(). */
extern void le_fence_note(LeKind kind, LeText name, int64 token);

/* Does this transaction hold, at this moment, a fence of this name?  Token 0: of any holder. */
extern bool le_fence_is_mine(LeKind kind, LeText name, int64 token);

/* Ends of (sub)transactions, from backend/xact.c after their locks are gone.  May not fail. */
extern void le_fence_sub_aborted(SubTransactionId subxact);
extern void le_fence_top_ended(void);

#endif /* LE_SESSION_FENCE_H */
