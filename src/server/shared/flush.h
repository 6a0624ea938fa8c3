/*
 * shared/flush.h
 *		Who flushes the WAL for the answers that rest on it.
 *
 * The manager never sleeps in a flush: it commits without one.  An answer that a
 * crash must not take back is then in its mailbox, and its session still sleeps:
 *
 *	1.	The manager notes the LSN that the answer rests on, raises "wanted" to it, and
 *		links the process into the stack of those that wait for a flush.  There is
 *		one stack for the server, as there is one WAL.
 *	2.	At the end of the batch, unless a flush is under way, the manager names one of
 *		them the flusher, and wakes that one alone.
 *	3.	The flusher flushes the WAL up to "wanted".  It takes from the stack those that
 *		this was enough for, which may have come during the flush, and wakes them.
 *		If others are left, it first names one of them the next flusher; else there
 *		is none.
 *	4.	Only a process that is there can be named: it is "present" from the posting of
 *		its request until it has its answer, or has given up waiting.  Then it first
 *		says that it is not present, and then looks whether it is the flusher;
 *		the process that names it does the opposite.  So one of the two sees it,
 *		and names another.
 *
 * Nothing but time rests on this: each session looks itself how far the WAL is
 * flushed before it believes its answer.  After LE_FLUSH_PATIENCE it flushes
 * itself and relieves the flusher, which may be stopped; the manager does that as
 * well, for those that do not know that they have an answer.
 *
 * How long a flusher waits for others first is in shared/flush_delay.h.  Answers
 * before their flush fail test/t/029_crash.t and 032_durable_answers.t.
 *
 * A process of its own that flushes was not faster beyond the noise of the
 * measurements.  It would take one more of max_worker_processes, and one more
 * switch of processes for a single client.
 */
#ifndef LE_FLUSH_H
#define LE_FLUSH_H

#include "access/xlogdefs.h"

#include "shared/settings.h"
#include "shared/shmem.h"

#define LE_FLUSH_PATIENCE (100 * LE_MS)

/*
 * A renewal never depends on the disk.  One that has written its row says for how long the lease is
 * valid once that is flushed, and before (core/life.h): its session waits a while for a flush that
 * others make, the WAL writer or a flusher, and makes none.  A standby confirms nothing that is not
 * flushed, so with one it waits as all others.
 */
static inline bool
le_renewal_is_raised(const LeReply *reply, bool need_standby)
{
	return reply->raised && !le_waits_for_standby(need_standby);
}

/* While shared memory is made. */
extern void le_flush_init(void);

/* --- the manager's --- */

/* Is the WAL flushed that far? */
extern bool le_flush_done(XLogRecPtr lsn);
/* Step 1.  May not fail: answers ask for a flush. */
extern void le_flush_ask(uint32 proc, XLogRecPtr lsn);
/* Step 2.  May not fail: it runs after a commit, and in handlers of errors. */
extern void le_flush_start(void);

/* --- a session's --- */

/* Once, while an error is possible. */
extern void le_flush_attach(void);
/* Before a request is posted: this process is present. */
extern void le_flush_enter(void);
/*
 * In each turn of its wait: flush for all, if it is named the flusher; but not if another process is in a flush
 * until then, a moment of le_clock(), or LE_NEVER.  A session
 * that has flushed for itself may still be in the stack while it waits for its next
 * answer.
 */
extern void le_flush_turn(const LeMailbox *box, LeTime until);
/* The answer is there: wait until it is flushed.  Like a commit, it cannot be interrupted. */
extern void le_flush_wait(const LeMailbox *box);
/*
 * The same until this moment of le_clock(); returns whether it is flushed.  It waits for no flush that another
 * process makes, but its own may take longer.
 */
extern bool le_flush_wait_until(const LeMailbox *box, LeTime until);
/* This process has its answer, or waits no longer.  May not fail: called by exits and errors. */
extern void le_flush_leave(void);

#endif /* LE_FLUSH_H */
