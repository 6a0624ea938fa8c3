/*
 * backend/pending.h
 *		Releases that wait for the commit of their transaction.
 */
#ifndef LE_PENDING_H
#define LE_PENDING_H

#include "core/command.h"

/* A commit does not wait longer than this for its releases to be applied. */
#define LE_RELEASE_TIMEOUT (5 * LE_SECOND)

/* A release that happens at commit. */
extern void le_pending_add(int64 token, LeKind kind, LeText name, LeTime hold_for, uint32 holds,
						   bool unnamed);
/* The same of a lock that the session knows to be held, as the only one: its commit does not wait for it. */
extern void le_pending_add_async(int64 token, LeKind kind, LeText name);
/* There is none, and nothing of an earlier commit is left in the mailbox. */
extern bool le_pending_is_free(void);
/* How many holds of this token and name are to be released. */
extern int64 le_pending_count(int64 token, LeText name);
/* May there be any of this token, whatever its name? */
extern bool le_pending_any(int64 token);
/* The token of this connection's own pending release of a name; 0: none. */
extern int64 le_pending_own(LeKind kind, LeText name);
/* The lock was acquired again: withdraw the pending releases of this token and name. */
extern void le_pending_cancel(int64 token, LeText name);

/* --- ends, told by backend/xact.c --- */

/* Its releases stand and fall with the parent's from now on. */
extern void le_pending_sub_committed(SubTransactionId subxact, SubTransactionId parent);

/* Its releases are taken back, and those of subtransactions within it. */
extern void le_pending_sub_aborted(SubTransactionId subxact);

/* Before the commit: get the memory that the releases need, and the mailbox.  May fail. */
extern void le_pending_prepare(void);

/*
 * The transaction is over, and its locks are released.  After a commit the
 * manager gets the releases; unless they are known, the call returns when it has
 * applied them, or warns that it has not.  Never fails, cannot be interrupted.
 */
extern void le_pending_top_ended(bool is_commit);

#endif /* LE_PENDING_H */
