/*
 * core/life.h
 *		How long managers have run, and how that shortens leases that are not
 *		renewed.
 *
 * Deadlines are kept in memory only.  When a manager starts, it knows only the row of
 * each lease, so the lease begins again.  If managers were restarted more often than
 * leases expire, the lease of a dead client would never expire.  Therefore rows are
 * marked with a life, and the time for which managers have run is recorded:
 *
 *	1.	A *life* is the time from the start of a manager to its end.  Its number is the
 *		sum of the recorded times of all earlier lives, in ticks.  Each life counts for
 *		at least one tick.
 *	2.	A row about a lease has the number of the life in which it was written
 *		(LeSaved.life): at the end of that life, the lease had the time left that is in
 *		the row.
 *	3.	The first renewal of a lease in a life writes its row, with the full TTL and the
 *		number of this life, if the row has an older number.  All other renewals write
 *		nothing.
 *	4.	While there is a lease whose row has an older number, the environment records
 *		every LE_LIFE_RECORD how long this life has lasted.  The time of outages, in
 *		which nothing could be written, does not count.
 *	5.	The next manager subtracts from each lease the recorded time of the lives that
 *		began after that of its row.
 *
 * Therefore a lease that is not renewed expires after managers have run for at most twice
 * its TTL: less than one TTL in the life of its last renewal, and one TTL in later lives.
 * Up to LE_LIFE_LEAST of each life may be missing, because it may not have been recorded.
 * A lease that is renewed keeps its TTL.  After each renewal, le_crash_left() returns how
 * much time the lease would have left if the server crashed at that moment.
 */
#ifndef LE_LIFE_H
#define LE_LIFE_H

#include <stdint.h>

#include "command.h"

/* The unit of recorded time.  Each life counts for at least one tick. */
#define LE_LIFE_TICK (1 * LE_MS)
/* Interval at which the uptime is recorded while any lease has a row from an earlier life. */
#define LE_LIFE_RECORD (500 * LE_MS)
/*
 * A life with less recorded time is not kept in LeLife.starts, so that it alone does not shorten any
 * lease.
 */
#define LE_LIFE_LEAST (1 * LE_SECOND)

/*
 * Number of lives that are kept.  Their starts are at least LE_LIFE_LEAST apart, so this number is
 * enough for all lives that began within the last LE_SAVE_INTERVAL of recorded time, plus a third.
 * A lease whose row is older has expired, or its row was due to be written again (le_save_at()).
 */
#define LE_LIFE_STARTS 400

typedef struct LeLife
{
	uint32_t number;                 /* number of this life: recorded ticks of all lives before it */
	uint32_t uptime;                 /* recorded ticks of this life so far */
	uint32_t nstarts;                /* number of lives in starts */
	uint32_t starts[LE_LIFE_STARTS]; /* numbers of the newest lives, ascending; this life is the last */
} LeLife;

/*
 * Begins the life of a starting manager.  On entry, *life is the record of the previous life; all
 * zeroes = there was none.
 */
extern void le_life_begin(LeLife *life);

/* Returns the recorded time of the lives that began after the one with this number. */
extern LeTime le_life_since(const LeLife *life, uint32_t number);

#endif /* LE_LIFE_H */
