/*
 * shared/sleep.h
 *		How a process sleeps, and how others wake it up.
 *
 * Setting a latch takes a signal, and sleeping on one takes an epoll_wait() and a read().  So every process
 * has a bell beside its latch: a futex, with one system call on each side.  The sleeper:
 *
 *	1.	calls le_sleep_reset(): the latch is reset, the bell is QUIET.
 *	2.	checks the condition that it waits for.
 *	3.	calls le_sleep(): unless its latch is set or its bell has RUNG, it sets the bell from QUIET to DOZING
 *		and sleeps on it, for at most LE_WAKE_DOZE.  Then it sets the bell from DOZING to QUIET.
 *	4.	If the bell has not RUNG and there is time left, it sleeps on its latch until then.  A signal that
 *		arrives just before a doze does not end it, so only short sleeps may be dozes.
 *
 * The waker makes the condition true, and calls le_wake(): the bell becomes RUNG.  If it was DOZING, the
 * waker ends that sleep; otherwise it sets the latch.  No wake-up is lost: one before step 1 is noticed in
 * step 2, one before step 3 when it reads the bell, one during a doze ends the doze, and a later one finds a
 * QUIET bell and sets the latch.
 *
 * To measure the effect of the bell, build without it: COPT=-DLE_WAKE_DOZE=0.  On two processors, with
 * flushes of 0.1 ms, that gave 16 % fewer pairs with 8 clients and 10 % fewer hand-offs of a hot lock.
 */
#ifndef LE_SLEEP_H
#define LE_SLEEP_H

#include "core/command.h"
#include "shared/shmem.h"

#ifndef LE_WAKE_DOZE
#define LE_WAKE_DOZE (50 * LE_MS)
#endif

/* Called while shared memory is created. */
extern void le_bell_init(pg_atomic_uint32 *bell);

/* Wakes up a process by its proc number; -1: none.  Must not fail: mail and exits call it. */
extern void le_wake(int proc);
extern void le_wake_launcher(void);

/* Step 1, before the process checks the condition that it waits for. */
extern void le_sleep_reset(void);

/*
 * Steps 3 and 4.  Returns when the time is over, or earlier for any reason or none.  Exits if the postmaster
 * is gone.
 */
extern void le_sleep(LeTime at_most_us);

/* Wait events, as pg_stat_activity shows them.  PostgreSQL 15 and 16 show all of them as Extension. */
typedef enum LeWaitEvent
{
	LE_WAIT_LOCK,     /* a session waits for its manager, mostly until it is granted a lock */
	LE_WAIT_COMMIT,   /* a session waits at its commit until its releases are applied */
	LE_WAIT_MANAGER,  /* a manager has nothing to do */
	LE_WAIT_INTERVAL, /* a manager waits for lock_election.min_batch_interval */
	LE_WAIT_LAUNCHER, /* the launcher has nothing to do */
	LE_WAIT_NOTIFIER,
	LE_WAIT_DATABASE, /* a command such as DROP DATABASE waits for the workers of a database */
	LE_WAIT_EVENTS
} LeWaitEvent;

/* Called before the first wait of a process: le_sleep() shows this event. */
extern void le_wait_events_init(LeWaitEvent sleep);
extern uint32 le_wait_event(LeWaitEvent event);

#endif /* LE_SLEEP_H */
