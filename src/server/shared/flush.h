/*
 * shared/flush.h
 *		Flushing the WAL for the replies that rest on it.
 *
 * The manager never sleeps in a flush: it commits without one.  A reply that a crash must not take back is
 * then in its mailbox, and its session still sleeps:
 *
 *	1.	The manager notes the LSN that the reply rests on, raises "wanted" to it, and links the process into
 *		the stack of those that wait for a flush.  There is one stack for the server, as there is one WAL.
 *	2.	At the end of the batch, unless a flush is under way, the manager names one of them the flusher, and
 *		wakes up that one alone.
 *	3.	The flusher flushes the WAL up to "wanted".  It takes from the stack all processes for which this was
 *		enough, which includes some that came during the flush, and wakes them up.  If others are left, it
 *		first names one of them the next flusher; otherwise there is none.
 *	4.	Only a process that is "present" can be named: from the posting of its request until it has its reply,
 *		or has given up waiting.  A process that leaves first clears "present", and then looks whether it is
 *		the flusher; the process that names it first names it, and then looks whether it is present.  So one
 *		of the two notices, and names another one.
 *
 * Correctness does not depend on any of this, only time does: each session checks by itself how far the WAL
 * is flushed before it believes its reply.  After LE_FLUSH_PATIENCE it flushes by itself and replaces the
 * flusher, which may have been stopped; the manager does so as well, for sessions that do not know yet that
 * they have a reply.
 *
 * How long a flusher waits for others first is in shared/flush_delay.h.  If replies are read before their
 * flush, test/t/029_crash.t and 032_durable_answers.t fail.
 *
 * A dedicated flusher process was not measurably faster.  It would take one more of max_worker_processes, and
 * one more process switch for a single client.
 */
#ifndef LE_FLUSH_H
#define LE_FLUSH_H

#include "access/xlogdefs.h"

#include "shared/settings.h"
#include "shared/shmem.h"

#define LE_FLUSH_PATIENCE (100 * LE_MS)

/*
 * Returns whether a renewal need not wait for the flush of the row that it wrote.  Its reply says how long
 * the lease is valid before that flush and after it (core/life.h); its session waits a while for a flush that
 * others make, the WAL writer or a flusher, and makes none.  So no renewal depends on the disk.  But a
 * standby confirms nothing that is not flushed, so with a standby a renewal waits like all other requests.
 */
static inline bool
le_renewal_is_raised(const LeReply *reply, bool need_standby)
{
	return reply->raised && !le_waits_for_standby(need_standby);
}

/* Called while shared memory is created. */
extern void le_flush_init(void);

/* --- the manager's --- */

/* Returns whether the WAL is flushed up to lsn. */
extern bool le_flush_done(XLogRecPtr lsn);
/* Step 1.  Must not fail: it runs after a commit. */
extern void le_flush_ask(uint32 proc, XLogRecPtr lsn);
/* Step 2.  Must not fail: it runs after a commit, and in error handlers. */
extern void le_flush_start(void);

/* --- a session's --- */

/* Allocates memory, once per process, at a point where an error is allowed. */
extern void le_flush_attach(void);
/* Called before a request is posted: this process becomes present. */
extern void le_flush_enter(void);
/*
 * Called in each turn of a wait: if this process is the flusher, flushes for all.  until: by le_clock(), when
 * it gives up if another process is in a flush; LE_NEVER: it does not give up.  A session that has flushed
 * for itself may still be in the stack while it waits for its next reply.
 */
extern void le_flush_turn(const LeMailbox *box, LeTime until);
/*
 * Called once the reply is there: waits until the WAL that it rests on is flushed.  Like a commit, it cannot
 * be interrupted.
 */
extern void le_flush_wait(const LeMailbox *box);
/*
 * The same until a moment of le_clock(); returns whether the WAL is flushed.  It does not wait longer for a
 * flush of another process, but its own flush may take longer.
 */
extern bool le_flush_wait_until(const LeMailbox *box, LeTime until);
/* Called when this process has its reply, or waits no longer.  Must not fail: exits and errors call it. */
extern void le_flush_leave(void);

#endif /* LE_FLUSH_H */
