/*
 * backend/pending.h
 *		Releases that wait for the commit of their transaction.
 */
#ifndef LE_PENDING_H
#define LE_PENDING_H

#include "core/command.h"

/* Longest wait of a commit for its releases to be applied. */
#define LE_RELEASE_TIMEOUT (5 * LE_SECOND)

/* Lists a release that takes effect at the commit. */
extern void le_pending_add(int64 token, LeKind kind, LeText name, LeTime hold_for_us, uint32 holds,
						   bool unnamed);
/*
 * Asynchronous releases: COMMIT does not wait for them.  The transaction has no other releases, and
 * ends with this statement; le_pending_is_free() holds.  After le_pending_begin_async() a manager
 * that exits waits until this transaction, at its end, has posted the releases
 * (LeMailbox.releasing); it returns false if no manager is running.  le_pending_cancel_async()
 * withdraws that: nothing will be released after all.
 *
 * holds: number of holds to release; LE_PENDING_ALL = all.  lease: lease of the client that
 * releases, or 0.
 */
#define LE_PENDING_ALL PG_UINT32_MAX
extern bool le_pending_begin_async(void);
extern void le_pending_cancel_async(void);
extern void le_pending_add_async(int64 token, LeKind kind, LeText name, uint32 holds, int64 lease);
/* Is no release pending, and nothing of an earlier commit left in the mailbox? */
extern bool le_pending_is_free(void);
/* Returns how many holds of this token and name are to be released. */
extern int64 le_pending_count(int64 token, LeText name);
/* Returns the token of this connection's own pending release of a name, or 0. */
extern int64 le_pending_own(LeKind kind, LeText name);
/* Withdraws the pending releases of this token and name, because the lock was acquired again. */
extern void le_pending_cancel(int64 token, LeText name);
/* Does the same for all names of a command whose reply had this token. */
extern void le_pending_cancel_all(const LeCommand *cmd, int64 token);

/* --- ends of (sub)transactions, from backend/xact.c --- */

/* Withdraws the releases of a subtransaction, and of those within it.  Must not fail. */
extern void le_pending_sub_aborted(SubTransactionId subxact);

/* Before the commit: gets the memory and the mailbox that the releases need.  May fail. */
extern void le_pending_prepare(void);

/*
 * Called when the transaction has ended and its PostgreSQL locks are released.  After a commit the
 * manager gets the releases; unless they are asynchronous, the call returns when the manager has
 * applied them, or warns that it has not.  Returns the LSN that the commit still has to wait for,
 * or 0.  Must neither fail nor be interrupted: the transaction is committed.
 */
extern uint64_t le_pending_top_ended(bool is_commit);

#endif /* LE_PENDING_H */
