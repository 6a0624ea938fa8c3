/*
 * shared/flush_delay.h
 *		Group commit: how long a flusher delays its flush, so that more sessions
 *		share it.
 *
 * PostgreSQL has commit_delay and commit_siblings for this; here both are measured.  After a flush, all
 * sessions that it served, its group, continue at once.  The first of them to return would begin the next
 * flush, and the others would just miss it and wait for two flushes.  So a flusher waits for the others:
 *
 *	1.	le_flush_learn(), after a flush: the group expected next is the union of the last two groups, because
 *		sessions that missed the last flush are in this one.  Its size is the sum of both groups less the
 *		sessions that are in both.  The duration of a flush is smoothed over eight flushes.
 *	2.	le_flush_delay(), before a flush: sleeps until as many sessions wait as are expected, but at most for
 *		a part of the duration of a flush (LE_FLUSH_DELAY_PART), and not at all if the last flush ended longer
 *		ago than a flush takes.
 *	3.	A delay that did not bring all of them was in vain: there are more than the processors can serve in
 *		that time, or they wait for something else.  Then one flush is not delayed; after the next vain delay
 *		three flushes, then seven, and so on up to LONGEST_BACKOFF.
 *
 * Only time depends on this.  For a moment there can be two flushers, which both write here: the figures are
 * then a little off.
 */
#ifndef LE_FLUSH_DELAY_H
#define LE_FLUSH_DELAY_H

#include "core/core.h"

/*
 * A flusher waits for others for at most 1 / LE_FLUSH_DELAY_PART of the duration of a flush; 1000000: not at
 * all.
 */
#ifndef LE_FLUSH_DELAY_PART
#define LE_FLUSH_DELAY_PART 2
#endif
#if LE_FLUSH_DELAY_PART < 1
#error "LE_FLUSH_DELAY_PART is a part: 1 or more"
#endif

/* Returns whether as many sessions wait for a flush as are expected. */
extern bool le_flush_group_is_there(void);

/* Step 2.  me: proc number + 1 of the flusher, which is this process. */
extern void le_flush_delay(uint32 me);

/* Step 1.  procs: the n processes that the flush served. */
extern void le_flush_learn(LeTime took_us, const uint32 *procs, int n);

#endif /* LE_FLUSH_DELAY_H */
