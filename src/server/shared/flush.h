/*
 * shared/flush.h
 *		Flushes the WAL for the replies that depend on it.
 *
 * The manager never waits for a flush, because it commits without one.  If a crash must not undo a reply, the
 * manager puts it into the mailbox without waking up the session:
 *
 *	1.	The manager records the LSN on which the reply depends, raises "wanted" to that LSN, and links the
 *		session's process into the stack of processes that wait for a flush.  The server has one stack,
 *		because it has one WAL.
 *	2.	At the end of the batch, unless a flush is under way, the manager names one of these processes the
 *		flusher, and wakes up only that process.
 *	3.	The flusher flushes the WAL up to "wanted".  It removes from the stack all processes whose LSN is now
 *		flushed, and wakes them up.  Some of them may have been linked during the flush.  If other processes
 *		remain, it first names one of them the next flusher; otherwise there is no flusher.
 *	4.	Only a process that is "present" can be named.  A process is present from the posting of its request
 *		until it has the reply or has given up waiting.  A process that leaves clears "present" before it
 *		checks whether it is the flusher.  A process that names a flusher checks afterwards whether that
 *		flusher is still present.  So at least one of the two notices the conflict, and names another flusher.
 *
 * All of this affects only latency, not correctness, because each session checks how far the WAL is flushed
 * before it uses its reply.  After LE_FLUSH_PATIENCE a session flushes by itself and replaces the flusher,
 * which may have been stopped.  The manager replaces the flusher as well, for sessions that have not noticed
 * their reply yet.
 *
 * shared/flush_delay.h describes how long a flusher waits for others before it flushes.
 *
 * A dedicated flusher process was not measurably faster.  It would use up one more of max_worker_processes,
 * and cost a single client one more process switch.
 */
#ifndef LE_FLUSH_H
#define LE_FLUSH_H

#include "access/xlogdefs.h"

#include "shared/settings.h"
#include "shared/shmem.h"

#define LE_FLUSH_PATIENCE (100 * LE_MS)

/*
 * Returns whether a renewal does not have to wait for the flush of the row that it wrote.  Its reply states
 * how long the lease is valid before and after that flush (core/life.h).  The session waits a while for a
 * flush by another process (the WAL writer or a flusher), but does not flush by itself, so that no renewal
 * depends on the disk.  A standby confirms only what is flushed, so if there is a standby to wait for, a
 * renewal waits like all other requests.
 */
static inline bool
le_renewal_is_raised(const LeReply *reply, bool need_standby)
{
	return reply->raised && !le_waits_for_standby(need_standby);
}

/* Initializes LeShared.flush.  Called while shared memory is created. */
extern void le_flush_init(void);

/* --- called by the manager --- */

/* Returns whether the WAL is flushed up to lsn. */
extern bool le_flush_done(XLogRecPtr lsn);
/* Step 1: requests a flush for this process.  Must not fail, because it runs after a commit. */
extern void le_flush_ask(uint32 proc, XLogRecPtr lsn);
/*
 * Step 2: names a flusher, and wakes it up.  Must not fail, because it runs after a commit and in error
 * handlers.
 */
extern void le_flush_start(void);

/* --- called by a session --- */

/* Allocates the memory that a flush needs, once per process, at a point where an error is allowed. */
extern void le_flush_attach(void);
/* Marks this process as present.  Called before a request is posted. */
extern void le_flush_enter(void);
/*
 * Called in each iteration of a wait for a reply.  If this process is the flusher, flushes for all waiting
 * processes; if another process is flushing the WAL, gives up at the time "until" (by le_clock(); LE_NEVER =
 * no limit).  A session that waits for a reply can be the flusher, because it may still be in the stack after
 * its previous request.
 */
extern void le_flush_turn(const LeMailbox *box, LeTime until);
/*
 * Waits until the WAL on which the reply depends is flushed.  Called when the reply has arrived.  Like a
 * commit, this wait cannot be interrupted.
 */
extern void le_flush_wait(const LeMailbox *box);
/*
 * Like le_flush_wait(), but waits for a flush by another process at most until the given time of le_clock().
 * A flush by this process may take longer.  Returns whether the WAL is flushed.
 */
extern bool le_flush_wait_until(const LeMailbox *box, LeTime until);
/*
 * Marks this process as no longer present.  Called when it has its reply, or no longer waits for it.  Must
 * not fail, because it is called at exit and after errors.
 */
extern void le_flush_leave(void);

#endif /* LE_FLUSH_H */
