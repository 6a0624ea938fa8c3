/*
 * core/pause.h
 *		Time that does not count, because nobody could renew a lease.
 *
 * The core's clock is the environment's clock less the time lost to pauses, so
 * that a pause moves all deadlines.  Two things are pauses:
 *
 *	-	The process did not run for more than LE_PAUSE: it was stopped, or the
 *		machine was suspended, or the disk did not respond.  If such pauses
 *		follow each other again and again, with less than LE_PAUSE between
 *		them, LE_PAUSE of each counts after the first few: otherwise no lease
 *		would ever end.
 *	-	Nothing could be read or written, and requests were refused meanwhile.
 */
#ifndef LE_PAUSE_H
#define LE_PAUSE_H

#include "core.h"

#define LE_PAUSE         (1 * LE_SECOND)
#define LE_PAUSES_IN_ROW 3

/* Times are on the environment's clock. */
typedef struct LePause
{
	LeTime lost;      /* time lost to pauses so far */
	LeTime seen_at;   /* when the process was last seen running */
	LeTime ended_at;  /* when the last pause ended */
	int in_row;       /* number of pauses in a row, up to that one */
	LeTime broken_at; /* since when no batch could be written; 0 = batches can be written */
	bool refused;     /* requests were refused since then */
} LePause;

extern void le_pause_init(LePause *pause, LeTime clock);

/* Returns the core's time. */
static inline LeTime
le_pause_time(const LePause *pause, LeTime clock)
{
	return clock - pause->lost;
}

/*
 * Returns since when a process that wakes up has not run.  It wanted to sleep until slept_until
 * (0 = it was busy). rang_at is the time of the first request that rang after it was last seen
 * running (LE_NEVER = none did).
 */
extern LeTime le_pause_since(const LePause *pause, LeTime slept_until, LeTime rang_at, LeTime clock);

/* The process runs again, and had not run since this moment.  Returns by how much deadlines move. */
extern LeTime le_pause_seen(LePause *pause, LeTime since, LeTime clock);

/* The batch that began when the process was last seen running could not be written. */
extern void le_pause_broken(LePause *pause);
/* The tables cannot be read, either: requests are refused. */
extern void le_pause_refused(LePause *pause);
/* All tables are read again.  Returns by how much all deadlines move. */
extern LeTime le_pause_mended(LePause *pause, LeTime clock);

#endif /* LE_PAUSE_H */
