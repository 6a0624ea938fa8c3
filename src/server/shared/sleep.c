/*
 * shared/sleep.c
 *		Lets a process sleep until another process wakes it up, see shared/sleep.h.
 */
#include "postgres.h"

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "miscadmin.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/pmsignal.h"
#include "utils/wait_event.h"

#include "shared/compat.h"
#include "shared/sleep.h"

enum
{
	BELL_QUIET = 0,
	BELL_DOZING, /* the process sleeps on its bell */
	BELL_RUNG
};

static pg_atomic_uint32 *
bell_of(int proc)
{
	Assert(proc >= 0 && proc < le_shared->max_sessions);
	return &le_shared->processes[proc].bell;
}

/* --- wait events --- */

static const char *const event_names[LE_WAIT_EVENTS] = {
	"LockElectionLock",     "LockElectionCommit",   "LockElectionManager", "LockElectionInterval",
	"LockElectionLauncher", "LockElectionNotifier", "LockElectionDatabase"};

static uint32 events[LE_WAIT_EVENTS];
static LeWaitEvent sleep_event = LE_WAIT_LOCK;

void
le_wait_events_init(LeWaitEvent sleep)
{
	sleep_event = sleep;
	for (int i = 0; i < LE_WAIT_EVENTS; i++)
		events[i] = le_new_wait_event(event_names[i]);
}

uint32
le_wait_event(LeWaitEvent event)
{
	Assert(events[event] != 0);
	return events[event];
}

/* --- sleeping --- */

void
le_bell_init(pg_atomic_uint32 *bell)
{
	pg_atomic_init_u32(bell, BELL_QUIET);
}

#ifdef __linux__
static void
futex(pg_atomic_uint32 *word, int op, uint32 value, const struct timespec *timeout)
{
	(void) syscall(SYS_futex, &word->value, op, value, timeout, NULL, 0);
}

/* Step 3 of shared/sleep.h: sleeps on the bell, unless the bell has rung or the latch is set. */
static void
doze(pg_atomic_uint32 *bell, LeTime at_most_us)
{
	struct timespec timeout = {0, (long) at_most_us * 1000};
	uint32 state = BELL_QUIET;

	if (at_most_us <= 0 || MyLatch->is_set || !pg_atomic_compare_exchange_u32(bell, &state, BELL_DOZING))
		return;
	pgstat_report_wait_start(le_wait_event(sleep_event));
	futex(bell, FUTEX_WAIT, BELL_DOZING, &timeout);
	pgstat_report_wait_end();
	state = BELL_DOZING;
	pg_atomic_compare_exchange_u32(bell, &state, BELL_QUIET);
	Assert(pg_atomic_read_u32(bell) != BELL_DOZING);
}

static void
end_doze(pg_atomic_uint32 *bell)
{
	futex(bell, FUTEX_WAKE, 1, NULL);
}
#else
/* On systems without futexes, a process sleeps only on its latch. */
static void
doze(pg_atomic_uint32 *bell, LeTime at_most_us)
{
}

static void
end_doze(pg_atomic_uint32 *bell)
{
}
#endif

void
le_sleep_reset(void)
{
	ResetLatch(MyLatch);
	pg_atomic_exchange_u32(bell_of(le_my_proc()), BELL_QUIET);
}

void
le_sleep(LeTime at_most_us)
{
	pg_atomic_uint32 *bell = bell_of(le_my_proc());
	LeTime start = le_clock(), left_us;

	if (at_most_us <= 0)
		return;
	doze(bell, Min(at_most_us, LE_WAKE_DOZE));
	if (!PostmasterIsAlive())
		proc_exit(1);
	left_us = start + at_most_us - le_clock();
	Assert(left_us <= at_most_us);
	if (left_us > 0 && pg_atomic_read_u32(bell) != BELL_RUNG)
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 (long) ((left_us + LE_MS - 1) / LE_MS), le_wait_event(sleep_event));
}

void
le_wake(int proc)
{
	pg_atomic_uint32 *bell;

	if (proc < 0)
		return;
	bell = bell_of(proc);
	if (pg_atomic_exchange_u32(bell, BELL_RUNG) == BELL_DOZING)
		end_doze(bell);
	else
		SetLatch(&le_proc(proc)->procLatch);
}

void
le_wake_launcher(void)
{
	le_wake(le_shared->launcher_proc);
}
