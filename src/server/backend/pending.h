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
extern void le_pending_add(int64 token, LeKind kind, LeText name, LeTime hold_for_us, uint32 holds,
						   bool unnamed);
/*
 * Asynchronous releases: COMMIT does not wait for them.  The transaction has no others, and ends with this
 * statement; le_pending_is_free().  After le_pending_begin_async() a manager that leaves waits for the post
 * at the end of this transaction (LeMailbox.releasing); false: none runs.  le_pending_cancel_async(): there
 * are none after all.
 *
 * holds: how many; LE_PENDING_ALL: all.  lease: that of the client which releases, or 0.
 */
#define LE_PENDING_ALL PG_UINT32_MAX
extern bool le_pending_begin_async(void);
extern void le_pending_cancel_async(void);
extern void le_pending_add_async(int64 token, LeKind kind, LeText name, uint32 holds, int64 lease);
/* No release is pending, and nothing of an earlier commit is left in the mailbox. */
extern bool le_pending_is_free(void);
/* How many holds of this token and name are to be released. */
extern int64 le_pending_count(int64 token, LeText name);
/* The token of this connection's own pending release of a name; 0: none. */
extern int64 le_pending_own(LeKind kind, LeText name);
/* The lock was acquired again: withdraw the pending releases of this token and name. */
extern void le_pending_cancel(int64 token, LeText name);
/* The same for all names of a command, which answered this token. */
extern void le_pending_cancel_all(const LeCommand *cmd, int64 token);

/* --- ends of (sub)transactions, from backend/xact.c --- */

/* The subtransaction's releases are taken back, and those of subtransactions within it.  May not fail. */
extern void le_pending_sub_aborted(SubTransactionId subxact);

/* Before the commit: get the memory that the releases need, and the mailbox.  This one may fail. */
extern void le_pending_prepare(void);

/*
 * The transaction is over, and its locks are released.  After a commit the
 * manager gets the releases.  Unless its only one is asynchronous, the call returns
 * when the manager has applied them, or warns that it has not.  Returns the LSN that
 * the commit has still to wait for; 0: none.  May not fail, nor be interrupted: the
 * transaction is committed.
 */
extern uint64_t le_pending_top_ended(bool is_commit);

#endif /* LE_PENDING_H */
