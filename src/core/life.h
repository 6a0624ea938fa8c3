/*
 * core/life.h
 *		How long managers have run, and how that shortens leases that nobody
 *		renews.
 *
 * Deadlines live in memory.  A manager that starts knows of each lease only what
 * its row says, so the lease begins again.  If managers ended more often than
 * leases do, the lease of a dead client would never end.  So rows are marked, and
 * the time for which managers have run is recorded:
 *
 *	1.	A *life* is the time from the start of a manager to its end.  Its number is
 *		the sum of what was recorded of all earlier lives, in ticks; at least one tick
 *		for each.
 *	2.	A row about a lease has the number of the life in which it was written
 *		(LeSaved.life): at the end of that life, the lease has as much time left
 *		as the row says.
 *	3.	If the row of a lease has an older number, the first renewal in a life writes
 *		the row, with the full TTL and the number of this life.  All other renewals
 *		write nothing.
 *	4.	While there is a lease whose row has an older number, the environment
 *		records every LE_LIFE_RECORD how long this life has lasted.  Time in
 *		which nothing could be written does not count.
 *	5.	The next manager subtracts from each lease the recorded time of the lives
 *		that are younger than its row.
 *
 * So a lease that nobody renews ends after managers have run for at most twice its
 * TTL: less than the TTL in the life of the last renewal, and the TTL after that.
 * Up to LE_LIFE_LEAST of each life does not count, as it may go unrecorded.  A lease
 * that is renewed keeps its TTL.  For each renewal, le_crash_left() returns how much of
 * the lease would be left if the server crashed right then.
 *
 * Plain C11, like all of the core.
 */
#ifndef LE_LIFE_H
#define LE_LIFE_H

#include <stdint.h>

#include "command.h"

/* The unit of recorded time; each life counts for at least one. */
#define LE_LIFE_TICK (1 * LE_MS)
/* How often the uptime is recorded, while any lease needs that. */
#define LE_LIFE_RECORD (500 * LE_MS)
/* A life with less recorded time is not kept in LeLife.starts: on its own it shortens no lease. */
#define LE_LIFE_LEAST (1 * LE_SECOND)

/*
 * Number of lives that are kept.  They are at least LE_LIFE_LEAST apart, so these are enough for
 * all that have begun within LE_SAVE_INTERVAL of recorded time, and for a third more: the lease
 * of an older row has ended, or its row was due to be written again (le_save_at()).
 */
#define LE_LIFE_STARTS 400

typedef struct LeLife
{
	uint32_t number;                 /* of this life: ticks recorded of all lives before it */
	uint32_t uptime;                 /* of this life: ticks recorded so far */
	uint32_t nstarts;                /* number of lives in starts */
	uint32_t starts[LE_LIFE_STARTS]; /* numbers of the newest lives, rising; this one is the last */
} LeLife;

/* Begins the life of a manager that starts, from the record of the last one; all zeroes = there was none. */
extern void le_life_begin(LeLife *life);

/* Returns the recorded time of the lives that are younger than the one with this number. */
extern LeTime le_life_since(const LeLife *life, uint32_t number);

#endif /* LE_LIFE_H */
