/*
 * core/pause.h
 *		Measures the time that does not count against leases, because no client could renew them.
 *
 * The core's clock is the environment's clock minus the time lost to pauses, so
 * that each pause moves all deadlines.  There are two kinds of pause:
 *
 *	-	The process did not run for more than LE_PAUSE: it was stopped, or the
 *		machine was suspended, or the disk did not respond.  If such pauses keep
 *		recurring with less than LE_PAUSE between them, the first
 *		LE_PAUSES_IN_ROW of them do not count against leases, but LE_PAUSE of each
 *		further pause does.  Otherwise no lease would ever expire.
 *	-	Nothing could be read or written, and requests were refused meanwhile.
 */
#ifndef LE_PAUSE_H
#define LE_PAUSE_H

#include "command.h"

#define LE_PAUSE         (1 * LE_SECOND)
#define LE_PAUSES_IN_ROW 3

/* Times are on the environment's clock, in microseconds. */
typedef struct LePause
{
	LeTime lost;      /* time lost to pauses so far, microseconds */
	LeTime seen_at;   /* when the process was last seen running */
	LeTime ended_at;  /* when the last pause ended */
	int in_row;       /* number of pauses in a row, up to and including the last one */
	LeTime broken_at; /* when writing began to fail; 0 = batches can be written */
	bool refused;     /* requests were refused since broken_at */
} LePause;

extern void le_pause_init(LePause *pause, LeTime clock);

/* Returns the time on the core's clock. */
static inline LeTime
le_pause_time(const LePause *pause, LeTime clock)
{
	return clock - pause->lost;
}

/*
 * Returns the time since which a process that wakes up has not run.  The process intended to sleep
 * until slept_until; 0 = it did not sleep. rang_at is the time of the first request that tried to wake
 * it up after seen_at; LE_NEVER = there was none.
 */
extern LeTime le_pause_since(const LePause *pause, LeTime slept_until, LeTime rang_at, LeTime clock);

/*
 * Records that the process runs again after it has not run since this moment.  Returns the duration by
 * which all deadlines move.
 */
extern LeTime le_pause_seen(LePause *pause, LeTime since, LeTime clock);

/* Records that the batch that began at seen_at could not be written. */
extern void le_pause_broken(LePause *pause);
/* Records that the tables cannot be read, and that requests are therefore refused. */
extern void le_pause_refused(LePause *pause);
/* Records that all tables have been read again.  Returns the duration by which all deadlines move. */
extern LeTime le_pause_mended(LePause *pause, LeTime clock);

#endif /* LE_PAUSE_H */
