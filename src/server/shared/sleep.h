/*
 * shared/sleep.h
 *		Lets a process sleep until another process wakes it up.
 *
 * Setting a latch costs a signal, and sleeping on a latch costs an epoll_wait() and a read().  So every
 * process also has a bell: a futex, which costs one system call on each side.  The sleeper:
 *
 *	1.	calls le_sleep_reset(): the latch is reset, the bell is QUIET.
 *	2.	checks the condition that it waits for.
 *	3.	calls le_sleep(): unless its latch is set or its bell has RUNG, it sets the bell from QUIET to DOZING
 *		and sleeps on it, for at most LE_WAKE_DOZE.  Then it sets the bell from DOZING to QUIET.
 *	4.	sleeps on its latch for the rest of the time, unless the bell has RUNG.  A signal that arrives just
 *		before a doze does not end the doze, so a doze must be short.
 *
 * The waker makes the condition true and calls le_wake(), which sets the bell to RUNG.  If the bell was
 * DOZING, the waker ends that doze; otherwise it sets the latch.  No wake-up is lost.  The sleeper notices a
 * wake-up before step 1 when it checks the condition in step 2, and a wake-up before step 3 when it reads the
 * bell.  A wake-up during the doze ends the doze, and a later wake-up finds a QUIET bell and sets the latch.
 *
 * A build without the bell (COPT=-DLE_WAKE_DOZE=0) completed 16 % fewer acquire/release pairs with 8 clients,
 * and 10 % fewer hand-offs of a contended lock, on two processors with flushes of 0.1 ms.
 */
#ifndef LE_SLEEP_H
#define LE_SLEEP_H

#include "core/command.h"
#include "shared/shmem.h"

#ifndef LE_WAKE_DOZE
#define LE_WAKE_DOZE (50 * LE_MS)
#endif

/* Initializes a bell.  Called while shared memory is created. */
extern void le_bell_init(pg_atomic_uint32 *bell);

/*
 * Wakes up the process with this proc number; -1 = none.  Must not fail, because it is called for mail and at
 * exit.
 */
extern void le_wake(int proc);
extern void le_wake_launcher(void);

/*
 * Step 1: resets the latch and the bell.  Must be called before the process checks the condition that it
 * waits for.
 */
extern void le_sleep_reset(void);

/*
 * Steps 3 and 4: sleeps.  Returns when the time has elapsed or the process was woken up, but possibly also
 * earlier without a reason.  Exits if the postmaster has died.
 */
extern void le_sleep(LeTime at_most_us);

/* Wait events, as pg_stat_activity shows them.  PostgreSQL 15 and 16 show "Extension" for all of them. */
typedef enum LeWaitEvent
{
	LE_WAIT_LOCK,     /* a session waits for its manager, usually to be granted a lock */
	LE_WAIT_COMMIT,   /* a session waits at its commit until the manager has applied its releases */
	LE_WAIT_MANAGER,  /* a manager has nothing to do */
	LE_WAIT_INTERVAL, /* a manager waits for lock_election.min_batch_interval */
	LE_WAIT_LAUNCHER, /* the launcher has nothing to do */
	LE_WAIT_NOTIFIER,
	LE_WAIT_DATABASE, /* a command such as DROP DATABASE waits for the workers of a database */
	LE_WAIT_EVENTS
} LeWaitEvent;

/*
 * Registers the wait events, and selects the one that le_sleep() reports.  Called before the first wait of a
 * process.
 */
extern void le_wait_events_init(LeWaitEvent sleep);
extern uint32 le_wait_event(LeWaitEvent event);

#endif /* LE_SLEEP_H */
