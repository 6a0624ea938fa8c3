/*
 * manager/answer.h
 *		Finds mailboxes with work, and replies to them.
 */
#ifndef LE_MANAGER_ANSWER_H
#define LE_MANAGER_ANSWER_H

#include "lib/stringinfo.h"

#include "manager/state.h"

/*
 * Puts into procs all mailboxes of this database that have a request or mail, even if they have not rung.
 * Returns their number.
 */
extern int le_mailboxes_with_work(uint32 *procs);

/* Returns whether the mailbox has an asynchronous release. */
extern bool le_mailbox_has_async(uint32 proc);
/*
 * Makes the manager check all mailboxes again after RETRY_AFTER.  Further calls before then do not delay that
 * check.  Must not fail, because an error is being handled.
 */
extern void le_mailboxes_retry_later(void);

/*
 * Functions that reply.  They are called after a commit and in error handlers, so none of them allocates
 * memory or raises an error.
 */

/*
 * Replies to the request with this number, if its session still waits for it. as_of: the moment, by
 * le_clock(), from which the time left in the reply counts.  Must not fail.
 */
extern void le_answer_request(uint32 proc, uint32 number, const LeReply *reply, LeTime as_of);

/*
 * Does the same at the commit of this batch, because the reply depends on rows that the batch writes.
 * confirm: a standby must have received it, even if the request wrote nothing.
 */
extern void le_answer_at_commit(Batch *batch, uint32 proc, uint32 number, const LeReply *reply, bool confirm);

/*
 * Replies QUEUED to an AWAIT whose wait was taken over by a newer AWAIT.  Both replies depend on the place's
 * row.
 */
extern void le_answer_displaced(Batch *batch, const LeReply *by);

/* Replies to the newest request of this proc, for which its session no longer waits.  Must not fail. */
extern void le_answer_withdrawn(uint32 proc);

/* Replies with an error to the newest request of this proc.  Must not fail. */
extern void le_answer_error(uint32 proc, int sqlstate, const char *message);

/*
 * Replies with a deadlock error to a process that waits for itself. detail has one line for each process in
 * the cycle.  Must not fail.
 */
extern void le_answer_deadlock(uint32 proc, const StringInfoData *detail);

/*
 * Replies with this error to the mailboxes of a failed batch.  Must not fail, because an error is being
 * handled.
 */
extern void le_answer_failed(const uint32 *procs, int n, const ErrorData *error);
/* Does the same for one mailbox, if its newest request is still the one with this number. */
extern void le_answer_failed_one(uint32 proc, uint32 number, const ErrorData *error);

/* Asserts that each of these mailboxes is listed once. */
#ifdef USE_ASSERT_CHECKING
extern void le_assert_procs(const uint32 *procs, int n);
#else
#define le_assert_procs(procs, n) ((void) 0)
#endif

/* Publishes in the mailbox how many locks are bound to its session.  Must not fail. */
extern void le_publish_bound(LeMailbox *box);

/* Returns whether this reply must wait for a standby.  Must not fail. */
extern bool le_answer_needs_standby(const LeMailbox *box, const LeReply *reply);

/* Returns whether this release may return before its WAL record is flushed.  Must not fail. */
extern bool le_answer_may_return(const LeReply *reply, bool durable_release, bool need_standby);

#endif /* LE_MANAGER_ANSWER_H */
