/*
 * backend/session_fence.h
 *		Fences, by which a transaction keeps a holder in place.
 */
#ifndef LE_SESSION_FENCE_H
#define LE_SESSION_FENCE_H

#include "shared/fence_lock.h"

/*
 * Holds the fence of a token until the end of the transaction.  While it is held, the manager
 * neither ends nor replaces this holder.  The caller must check afterwards that the token still is
 * a holder: until then the fence means nothing.
 */
extern void le_fence_take(int64 token);

/* Notes for fence_guard() that the check has found this token to hold this name. */
extern void le_fence_note(LeKind kind, LeText name, int64 token);

/* Does this transaction hold a fence of this name at this moment?  Token 0: of any holder. */
extern bool le_fence_is_mine(LeKind kind, LeText name, int64 token);

/*
 * Called at the ends of (sub)transactions by backend/xact.c, after their locks are released.  Must
 * not fail.
 */
extern void le_fence_sub_aborted(SubTransactionId subxact);
extern void le_fence_top_ended(void);

#endif /* LE_SESSION_FENCE_H */
