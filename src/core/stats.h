/*
 * core/stats.h
 *		The statistics of a core: grants, ends, and how long things took.
 */
#ifndef LE_STATS_H
#define LE_STATS_H

#include "command.h"

/*
 * Histograms of how long things took.  Candidates of elections wait for days, so only waits for
 * locks are counted.
 */
typedef enum LeDurationType
{
	LE_DURATION_WAIT,           /* from entering a queue to the grant */
	LE_DURATION_FRUITLESS_WAIT, /* from entering a queue to any other end */
	LE_DURATION_HOLD,           /* of a lock or permit, from the grant to the end */
	LE_DURATION_TERM,           /* the same of a leader */
	LE_DURATION_TYPES
} LeDurationType;

#define LE_DURATION_BOUNDS 18
extern const LeTime le_duration_bounds[LE_DURATION_BOUNDS];

typedef struct LeDurations
{
	int64_t n[LE_DURATION_BOUNDS + 1]; /* up to this bound, and above the one before; last: above all
									    * bounds */
	int64_t count;                     /* of all durations */
	LeTime sum;
} LeDurations;

typedef struct LeStats
{
	int64_t grants;
	int64_t waits;    /* acquires that had to queue */
	int64_t handoffs; /* grants to a waiter */
	int64_t expiries;
	int64_t timeouts;
	int64_t undone;
	int64_t elected; /* terms that have begun */
	LeDurations durations[LE_DURATION_TYPES];
} LeStats;

#endif /* LE_STATS_H */
