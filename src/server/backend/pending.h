/*
 * backend/pending.h
 *		Keeps the releases of a transaction until its commit.
 */
#ifndef LE_PENDING_H
#define LE_PENDING_H

#include "core/command.h"

/*
 * Adds a release that takes effect at the commit.  unnamed: the holder is this connection, without a named
 * owner.
 */
extern void le_pending_add(int64 token, LeKind kind, LeText name, LeTime hold_for_us, uint32 holds,
						   bool unnamed);
/*
 * Functions for asynchronous releases, for which COMMIT does not wait.  The caller must ensure that the
 * transaction has no other releases and ends with this statement, and that le_pending_is_free() returns true.
 * le_pending_begin_async() makes an exiting manager wait until this transaction has posted its releases at
 * its end (LeMailbox.releasing).  It returns false if no manager is running.  If there is nothing to release,
 * le_pending_cancel_async() undoes le_pending_begin_async().
 *
 * holds: number of holds to release; LE_PENDING_ALL = all.  lease: lease of the releasing client, or 0.
 */
#define LE_PENDING_ALL PG_UINT32_MAX
extern bool le_pending_begin_async(void);
extern void le_pending_cancel_async(void);
extern void le_pending_add_async(int64 token, LeKind kind, LeText name, uint32 holds, int64 lease);
/*
 * Returns whether no release is pending, and the manager has processed everything that this session has sent.
 */
extern bool le_pending_is_free(void);
/* Returns the number of holds of this token and name that have a pending release. */
extern int64 le_pending_count(int64 token, LeText name);
/*
 * Looks for pending releases of this name whose holder is this connection, without a named owner.  Returns
 * the token of the newest such release; 0 = none.
 */
extern int64 le_pending_own(LeKind kind, LeText name);
/* Withdraws the pending releases of this token and name, because the lock was acquired again. */
extern void le_pending_cancel(int64 token, LeText name);
/*
 * Withdraws the pending releases of this token for all names of cmd.  The manager has replied to cmd with
 * this token.
 */
extern void le_pending_cancel_all(const LeCommand *cmd, int64 token);

/* --- called by backend/xact.c at the end of (sub)transactions --- */

/* Withdraws the releases of an aborted subtransaction and of those nested in it.  Must not fail. */
extern void le_pending_sub_aborted(SubTransactionId subxact);

/*
 * Prepares the releases before the commit: allocates memory, and waits until the mailbox has room for them.
 * May fail.
 */
extern void le_pending_prepare(void);

/*
 * Mails the releases to the manager if the transaction has committed.  Unless they are asynchronous, waits
 * until the manager has applied them, or warns that it has not.  Called when the transaction has ended and
 * its PostgreSQL locks are released.  Returns the LSN that must still become durable, or 0.  Must neither
 * fail nor be interrupted, because the transaction has committed.
 */
extern uint64_t le_pending_top_ended(bool is_commit);

#endif /* LE_PENDING_H */
