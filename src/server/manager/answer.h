/*
 * manager/answer.h
 *		Finds mailboxes with work, and replies to them.
 */
#ifndef LE_MANAGER_ANSWER_H
#define LE_MANAGER_ANSWER_H

#include "lib/stringinfo.h"

#include "manager/state.h"

/*
 * Stores in procs the proc numbers of all mailboxes of this database that have mail or a request without a
 * reply, even if they have not rung.  Returns their count.
 */
extern int le_mailboxes_with_work(uint32 *procs);

/* Returns whether the mailbox contains an asynchronous release. */
extern bool le_mailbox_has_async(uint32 proc);
/*
 * Schedules a check of all mailboxes after RETRY_AFTER, unless one is scheduled already.  Must not fail,
 * because it is called in error handlers.
 */
extern void le_mailboxes_retry_later(void);

/*
 * The functions below are called after a commit and in error handlers, so they allocate no memory and raise
 * no error.
 */

/*
 * Replies to the request with this number, if its session still waits for it. as_of: time, by le_clock(), at
 * which the durations in the reply begin.  Must not fail.
 */
extern void le_answer_request(uint32 proc, uint32 number, const LeReply *reply, LeTime as_of);

/*
 * Like le_answer_request(), but sends the reply after the commit of this batch, because the reply depends on
 * rows that the batch writes.  confirm: a standby must have received the commit, even if the request wrote
 * nothing.
 */
extern void le_answer_at_commit(Batch *batch, uint32 proc, uint32 number, const LeReply *reply, bool confirm);

/*
 * Replies QUEUED to an AWAIT whose wait was taken over by a newer AWAIT for the same place. by: the reply to
 * the newer AWAIT, which depends on the same row.
 */
extern void le_answer_displaced(Batch *batch, const LeReply *by);

/*
 * Replies NOT_GRANTED to the newest request of this proc, because its session no longer waits for it.  Must
 * not fail.
 */
extern void le_answer_withdrawn(uint32 proc);

/* Replies with an error to the newest request of this proc.  Must not fail. */
extern void le_answer_error(uint32 proc, int sqlstate, const char *message);

/*
 * Replies with a deadlock error to the victim of a deadlock. detail has one line for each process in the
 * cycle.  Must not fail.
 */
extern void le_answer_deadlock(uint32 proc, const StringInfoData *detail);

/* Replies with this error to the mailboxes of a failed batch.  Must not fail. */
extern void le_answer_failed(const uint32 *procs, int n, const ErrorData *error);
/* Like le_answer_failed(), for one mailbox.  Does nothing if its newest request has another number. */
extern void le_answer_failed_one(uint32 proc, uint32 number, const ErrorData *error);

/* Asserts that procs contains each mailbox at most once. */
#ifdef USE_ASSERT_CHECKING
extern void le_assert_procs(const uint32 *procs, int n);
#else
#define le_assert_procs(procs, n) ((void) 0)
#endif

/* Stores in the mailbox the number of locks that are bound to its session.  Must not fail. */
extern void le_publish_bound(LeMailbox *box);

/* Returns whether the session must wait for a standby before it returns this reply.  Must not fail. */
extern bool le_answer_needs_standby(const LeMailbox *box, const LeReply *reply);

/* Returns whether a session may return from this release before its WAL record is flushed.  Must not fail. */
extern bool le_answer_may_return(const LeReply *reply, bool durable_release, bool need_standby);

#endif /* LE_MANAGER_ANSWER_H */
