/*
 * core/life.h
 *		How long managers have run, and what that takes off leases that nobody
 *		renews.
 *
 * Deadlines live in memory.  A manager that starts knows of each lease only what
 * its row says, so a lease begins again, and if managers end more often than
 * leases do, the lease of a dead client would never end.  So rows are marked, and
 * the time for which managers have run is recorded:
 *
 *	1.	A *life* is the time from the start of a manager to its end.  Its number is
 *		the sum of what was recorded of all earlier lives, in ticks; at least one tick
 *		for each.
 *	2.	A row that tells of a lease has the number of the life in which it was
 *		written (LeSaved.life): at the end of that life, the lease has as much time
 *		left as the row says.
 *	3.	The first renewal in a life of a lease whose row has an older number writes
 *		the row, with the full TTL and the number of this life.  All other renewals
 *		write nothing.
 *	4.	While there is a lease whose row has an older number, the environment
 *		records every LE_LIFE_RECORD for how long this life has lasted.  Time in
 *		which nothing could be written does not count.
 *	5.	The next manager takes off each lease what was recorded of the lives that
 *		are younger than its row.
 *
 * So a lease that nobody renews ends after at most twice its TTL of time in which a
 * manager ran: less than the TTL in the life of the last renewal, and the TTL after
 * that; LE_LIFE_LEAST of each life excepted, which may not be recorded.  A lease that is
 * renewed keeps its TTL.  And with each renewal, le_crash_left() tells how much of it
 * would be left if the server crashed right then.
 *
 * Plain C11, as all of the core.
 */
#ifndef LE_LIFE_H
#define LE_LIFE_H

#include <stdint.h>

#include "command.h"

/* The unit of recorded time; no life is as short. */
#define LE_LIFE_TICK (1 * LE_MS)
/* How often the uptime is recorded, while any lease needs that. */
#define LE_LIFE_RECORD (500 * LE_MS)
/* A life of which less was recorded takes nothing off. */
#define LE_LIFE_LEAST (1 * LE_SECOND)

/*
 * Lives that count are LE_LIFE_LEAST apart at least.  These are enough for all that have begun within
 * LE_SAVE_INTERVAL of recorded time, and for a third as much beside: the lease of a row that is older
 * has ended, or the row was to be written anew (le_save_at()).
 */
#define LE_LIFE_STARTS 400

typedef struct LeLife
{
	uint32_t number;                 /* of this life: ticks recorded of all lives before it */
	uint32_t uptime;                 /* of this life: ticks recorded so far */
	uint32_t nstarts;                /* number of lives in starts */
	uint32_t starts[LE_LIFE_STARTS]; /* numbers of the newest lives, rising; this one is the last */
} LeLife;

/*
 * The life of a manager that starts, from the record of the last one; all zeroes: there was
 * none.
 */
extern void le_life_begin(LeLife *life);

/* What was recorded of the lives that are younger than the one with this number. */
extern LeTime le_life_since(const LeLife *life, uint32_t number);

#endif /* LE_LIFE_H */
