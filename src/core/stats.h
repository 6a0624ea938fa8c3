/*
 * core/stats.h
 *		What a core counts: grants, ends, and how long things took.
 */
#ifndef LE_STATS_H
#define LE_STATS_H

#include "command.h"

/*
 * Histograms of how long things took.  Candidates of elections stand by for
 * days, so only waits for locks are counted.
 */
typedef enum LeDurationType
{
	LE_DURATION_WAIT,           /* from entering a queue to the grant */
	LE_DURATION_FRUITLESS_WAIT, /* to any other end */
	LE_DURATION_HOLD,           /* of a lock or permit, from the grant to the end */
	LE_DURATION_TERM,           /* of a leader, the same */
	LE_DURATION_TYPES
} LeDurationType;

#define LE_DURATION_BOUNDS 18
extern const LeTime le_duration_bounds[LE_DURATION_BOUNDS];

typedef struct LeDurations
{
	int64_t n[LE_DURATION_BOUNDS + 1]; /* at most that bound, and more than the one before; last: longer */
	int64_t count;                     /* all */
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
