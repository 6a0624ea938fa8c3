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

/* The check has found it a holder: this is the fence of that name now. */
extern void le_fence_note(LeKind kind, LeText name, int64 token);

/*
 * Does this transaction hold, at this moment, the fence of that name?  Token
 * 0: that of any holder.
 */
extern bool le_fence_is_mine(LeKind kind, LeText name, int64 token);

/* Ends of (sub)transactions, told by backend/xact.c after their locks are gone. */
extern void le_fence_sub_committed(SubTransactionId subxact, SubTransactionId parent);
extern void le_fence_sub_aborted(SubTransactionId subxact);
extern void le_fence_top_ended(void);

#endif /* LE_SESSION_FENCE_H */
