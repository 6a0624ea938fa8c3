/*
 * core/stats.h
 *		The statistics of a core: numbers of grants and ends, and histograms of
 *		durations.
 */
#ifndef LE_STATS_H
#define LE_STATS_H

#include "command.h"

/* Histograms of durations.  Election candidates can wait for days, so only waits for locks are counted. */
typedef enum LeDurationType
{
	LE_DURATION_WAIT,           /* from entering a queue to the grant */
	LE_DURATION_FRUITLESS_WAIT, /* from entering a queue to any other end */
	LE_DURATION_HOLD,           /* how long locks and permits were held, from grant to end */
	LE_DURATION_TERM,           /* how long leaders led, from election to end */
	LE_DURATION_TYPES
} LeDurationType;

#define LE_DURATION_BOUNDS 18
extern const LeTime le_duration_bounds[LE_DURATION_BOUNDS];

typedef struct LeDurations
{
	int64_t n[LE_DURATION_BOUNDS + 1]; /* number of durations up to this bound and above the previous one;
									    * last element: above all bounds */
	int64_t count;                     /* number of all durations */
	LeTime sum;
} LeDurations;

typedef struct LeStats
{
	int64_t grants;
	int64_t waits;    /* acquires that were queued */
	int64_t handoffs; /* grants to waiters */
	int64_t expiries;
	int64_t timeouts;
	int64_t undone;
	int64_t elected; /* terms that began */
	LeDurations durations[LE_DURATION_TYPES];
} LeStats;

#endif /* LE_STATS_H */
