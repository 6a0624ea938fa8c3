/*
 * shared/flush_delay.h
 *		Group commit: delays a flush, so that more sessions share it.
 *
 * PostgreSQL has the settings commit_delay and commit_siblings for this; lock_election measures both values
 * instead.  All sessions that a flush has served (its group) continue at the same time.  Without a delay, the
 * first of them that sends its next request would begin the next flush; the others would be a moment too late
 * for it, and would wait for two flushes.  So a flusher waits for the others:
 *
 *	1.	le_flush_learn(), after a flush: the next group is expected to be the union of the last two groups,
 *		because sessions that missed the previous flush are in this one.  Its size is the sum of both sizes
 *		minus the number of sessions in both.  The duration of a flush is smoothed over eight flushes.
 *	2.	le_flush_delay(), before a flush: sleeps until as many sessions wait as are expected, but at most for
 *		a fraction of the duration of a flush (LE_FLUSH_DELAY_PART), and not at all if more time than a flush
 *		takes has passed since the last flush.
 *	3.	A delay is useless if it ends before all expected sessions wait: there are more sessions than the
 *		processors can serve in that time, or the sessions wait for something else.  The next flush is then
 *		not delayed.  If the delay after that is useless as well, the next three flushes are not delayed, then
 *		seven, and so on up to LONGEST_BACKOFF.
 *
 * Measured with flushes of 1 ms: 64% more acquires and releases per second with 2 clients, 39% more with 8, and
 * no difference with 32, or with flushes of 0.06 ms.
 *
 * This affects only latency.  For a moment there can be two flushers, which both update these values; the
 * values are then slightly wrong.
 */
#ifndef LE_FLUSH_DELAY_H
#define LE_FLUSH_DELAY_H

#include "core/core.h"

/* Limits the delay to 1 / LE_FLUSH_DELAY_PART of the duration of a flush; 1000000 = no delay. */
#ifndef LE_FLUSH_DELAY_PART
#define LE_FLUSH_DELAY_PART 2
#endif
#if LE_FLUSH_DELAY_PART < 1
#error "LE_FLUSH_DELAY_PART is a part: 1 or more"
#endif

/* Returns whether as many sessions are waiting for a flush as are expected. */
extern bool le_flush_group_is_there(void);

/* Step 2: delays a flush. me: proc number + 1 of this process, which is the flusher. */
extern void le_flush_delay(uint32 me);

/* Step 1: records a flush. procs: the n processes that the flush served. */
extern void le_flush_learn(LeTime took_us, const uint32 *procs, int n);

#endif /* LE_FLUSH_DELAY_H */
