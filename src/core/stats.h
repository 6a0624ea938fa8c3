/*
 * core/stats.h
 *		Counts waits, holds and terms.
 */
#ifndef LE_STATS_H
#define LE_STATS_H

#include "objects.h"

extern const LeTime le_duration_bounds[LE_DURATION_BOUNDS];

/* Return the number of entries that have a slot, and of entries that are queued. */
extern uint64_t le_core_held(const LeCore *core);
extern uint64_t le_core_queued(const LeCore *core);
/*
 * le_core_oldest_wait() returns when the entry that has waited longest for a lock entered its queue;
 * LE_NEVER = no entry waits.  Elections do not count.  After a load, places count as older than blocked
 * calls, regardless of their times. le_core_stats() returns the counters.
 */
extern LeTime le_core_oldest_wait(const LeCore *core);
extern const LeStats *le_core_stats(const LeCore *core);

/* --- for the core alone --- */

/* Counts the wait of a queued entry that is about to be granted or to end. */
extern void le_count_wait(LeCore *core, const LeEntry *entry, bool granted, LeTime now);
/* Counts the hold of a holder that is about to end or lapse. */
extern void le_count_hold(LeCore *core, const LeEntry *entry, LeTime now);

#endif /* LE_STATS_H */
