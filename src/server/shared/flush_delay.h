/*
 * shared/flush_delay.h
 *		Group commit: how long a flusher delays its flush, so that more sessions
 *		share it.
 *
 * PostgreSQL has commit_delay and commit_siblings for this; here both are measured.
 * After a flush all sessions that it was for, its group, go on at once.  The first
 * of them to come back would begin the next flush, and the others would just miss it
 * and wait for two.  So a flusher waits for the others:
 *
 *	1.	le_flush_learn(), after a flush: the group that is expected next is the union
 *		of the last two groups, because those that have missed the last flush are
 *		in this one.  Its size is that of both groups less those that are in both.
 *		What a flush takes is smoothed over eight of them.
 *	2.	le_flush_delay(), before a flush: sleeps until as many sessions wait as are
 *		expected.  At most for a part of what a flush takes (LE_FLUSH_DELAY_PART),
 *		and not at all once the last flush is longer ago than a flush takes.
 *	3.	A delay that did not bring them all was in vain: there are more than the
 *		processors can serve meanwhile, or they wait for something else.  Then one
 *		flush is not delayed; after the next vain delay three, then seven, and so
 *		on up to LONGEST_BACKOFF.
 *
 * Only time rests on this.  Two flushers at a time, which can be for a moment, may
 * both write here: the figures are then a little off.
 */
#ifndef LE_FLUSH_DELAY_H
#define LE_FLUSH_DELAY_H

#include "core/core.h"

/* A flusher waits for others for one part in so many of what a flush takes; a million: not at all. */
#ifndef LE_FLUSH_DELAY_PART
#define LE_FLUSH_DELAY_PART 2
#endif
#if LE_FLUSH_DELAY_PART < 1
#error "LE_FLUSH_DELAY_PART is a part: 1 or more"
#endif

/* Do as many wait for a flush as are expected? */
extern bool le_flush_group_is_there(void);

/* Step 2, by the flusher: its proc number + 1. */
extern void le_flush_delay(uint32 me);

/* Step 1: a flush has taken so long, and was for these n processes. */
extern void le_flush_learn(LeTime took_us, const uint32 *procs, int n);

#endif /* LE_FLUSH_DELAY_H */
