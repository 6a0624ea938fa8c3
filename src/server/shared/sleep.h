/*
 * shared/sleep.h
 *		How a process sleeps, and how others wake it.
 *
 * To set a latch takes a signal, and to sleep on one an epoll_wait() and a
 * read().  So every process has a bell beside its latch: a futex, one system call
 * for each side.  The sleeper:
 *
 *	1.	le_sleep_reset(): the latch is reset, the bell is QUIET.
 *	2.	It looks at what it waits for.
 *	3.	le_sleep(): unless its latch is set or its bell has RUNG, it sets the bell
 *		from QUIET to DOZING and sleeps on it, for LE_WAKE_DOZE at most.  Then it
 *		sets the bell from DOZING to QUIET.
 *	4.	If the bell has not RUNG and there is time left, it sleeps on its latch
 *		until then.  A signal that comes just before a doze does not end it, so
 *		that only short sleeps may be dozes.
 *
 * The waker stores what the sleeper waits for, and calls le_wake(): the bell
 * becomes RUNG.  If it was DOZING, the waker ends that sleep; otherwise it sets
 * the latch.  No wake-up is lost: one before step 1 is seen by step 2, one
 * before step 3 by its look at the bell, one during a doze ends it, and a later
 * one meets a QUIET bell and sets the latch.
 *
 * To measure what the bell brings, build without it: COPT=-DLE_WAKE_DOZE=0.  On two
 * processors, with flushes of 0.1 ms, that made 16 % fewer pairs with 8 clients and
 * 10 % fewer hand-offs of a hot lock.
 */
#ifndef LE_SLEEP_H
#define LE_SLEEP_H

#include "core/command.h"
#include "shared/shmem.h"

#ifndef LE_WAKE_DOZE
#define LE_WAKE_DOZE (50 * LE_MS)
#endif

/* While shared memory is made. */
extern void le_bell_init(pg_atomic_uint32 *bell);

/* Wake a process by its proc number; -1: nobody.  May not fail: mail and exits wake as well. */
extern void le_wake(int proc);
extern void le_wake_launcher(void);

/* Before the look at what is waited for. */
extern void le_sleep_reset(void);

/*
 * Sleep.  Returns when the time is over, or before that for any reason or none.
 * Exits if the postmaster is gone.
 */
extern void le_sleep(LeTime at_most_us);

/*
 * What a process waits for, as pg_stat_activity shows it.  PostgreSQL 15 and 16
 * have one word for all of them, Extension.
 */
typedef enum LeWaitEvent
{
	LE_WAIT_LOCK,     /* a session, for its manager: mostly, until it is granted a lock */
	LE_WAIT_COMMIT,   /* ... at its commit, until its releases are made */
	LE_WAIT_MANAGER,  /* a manager that has nothing to do */
	LE_WAIT_INTERVAL, /* ... or keeps to lock_election.min_batch_interval */
	LE_WAIT_LAUNCHER, /* the launcher, the same */
	LE_WAIT_NOTIFIER,
	LE_WAIT_DATABASE, /* a command such as DROP DATABASE, for the workers of that */
	LE_WAIT_EVENTS
} LeWaitEvent;

/* Before the first wait of a process: it is one that le_sleep() shows as this. */
extern void le_wait_events_init(LeWaitEvent sleep);
extern uint32 le_wait_event(LeWaitEvent event);

#endif /* LE_SLEEP_H */
