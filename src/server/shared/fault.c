/*
 * shared/fault.c
 *		Carries out the action of a fault point that a process reaches, see shared/fault.h.
 *
 * A table in shared memory has an entry for each point that was passed or set since the server started; a
 * server crash empties the table.  The functions that control this table are not part of the extension: a
 * test creates them, which only a superuser can do.
 *
 *	le_fault_set(point text, action text, ms int, skip int, times int, pid int)
 *		action: sleep (for ms), error, fatal, kill, wait (until released).
 *		The first "skip" hits do nothing, then "times" hits (0: all) act, only in
 *		process pid (0: any).  Counters start at 0 again.
 *	le_fault_release(point text)
 *		Releases the process that waits at the point, and disarms the point.
 *	le_fault_hits(point text) bigint
 *		Number of hits since the point was set; if it was not set, the hits of all processes.
 *	le_fault_waiting(point text) int
 *		Pid of a process that waits at the point; 0: none.
 *	le_fault_clear()
 *		Disarms all points and releases their waiters.
 *	le_fault_forget_standbys()
 *		Restores the state of a starting server, in which the checkpointer has not
 *		published yet whether there are synchronous standbys.  It publishes this
 *		again when it next reads its configuration.
 */
#include "postgres.h"

#ifdef LE_FAULTS

#include <signal.h>

#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/procsignal.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/builtins.h"
#include "utils/wait_event.h"

#include "core/check.h"
#include "shared/compat.h"
#include "shared/fault.h"
#include "shared/shmem.h"

#define MAX_POINTS 128
#define MAX_NAME   64
#define POLL_MS    2

typedef enum LeFaultAction
{
	LE_FAULT_NONE = 0,
	LE_FAULT_SLEEP,
	LE_FAULT_ERROR,
	LE_FAULT_FATAL,
	LE_FAULT_KILL,
	LE_FAULT_WAIT
} LeFaultAction;

static const char *const actions[] = {"none", "sleep", "error", "fatal", "kill", "wait"};

typedef struct LeFaultEntry
{
	char name[MAX_NAME]; /* empty = this entry and all later entries are unused */
	LeFaultAction action;
	int ms;
	int skip;
	int times; /* number of hits that carry out the action; 0 = unlimited */
	int acted;
	int pid;           /* pid of the process whose hits count; 0 = any process */
	int64 hits;        /* number of hits by the processes that pid selects */
	uint32 generation; /* incremented to release waiters: waits with an older value end */
	int waiting;       /* pid of a waiting process; 0 = none */
} LeFaultEntry;

typedef struct LeFaultTable
{
	slock_t lock;
	LeFaultEntry entries[MAX_POINTS];
} LeFaultTable;

static LeFaultTable *table = NULL;

LE_FUNCTION(le_fault_set);
LE_FUNCTION(le_fault_release);
LE_FUNCTION(le_fault_hits);
LE_FUNCTION(le_fault_waiting);
LE_FUNCTION(le_fault_clear);
LE_FUNCTION(le_fault_forget_standbys);

Size
le_fault_size(void)
{
	return MAXALIGN(sizeof(LeFaultTable));
}

void
le_fault_init(void *memory, bool found)
{
	table = memory;
	if (found)
		return;
	memset(table, 0, sizeof(LeFaultTable));
	SpinLockInit(&table->lock);
}

/* Finds or creates the entry of a point.  Returns NULL if the table is full.  The caller holds the lock. */
static LeFaultEntry *
find_entry(const char *name)
{
	for (int i = 0; i < MAX_POINTS; i++)
	{
		LeFaultEntry *entry = &table->entries[i];

		if (entry->name[0] == '\0')
			strlcpy(entry->name, name, MAX_NAME);
		if (strcmp(entry->name, name) == 0)
			return entry;
	}
	return NULL;
}

/* --- reaching a point --- */

/* Sleeps for this time, even if a signal arrives. */
static void
sleep_for(int ms)
{
	LeTime end = le_clock() + ms * LE_MS;

	for (LeTime now; (now = le_clock()) < end;)
		pg_usleep(end - now);
}

/*
 * Waits until the point is released.  A request to exit also ends the wait, even while interrupts are held
 * off, so that the process can reach code that handles the request.
 */
static void
wait_for_release(LeFaultEntry *entry, uint32 generation)
{
	bool over = false;

	while (!over && !ProcDiePending && !ShutdownRequestPending)
	{
		SpinLockAcquire(&table->lock);
		over = entry->generation != generation;
		if (!over)
			entry->waiting = MyProcPid;
		SpinLockRelease(&table->lock);
		(void) WaitLatch(NULL, WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, POLL_MS, PG_WAIT_EXTENSION);
		if (InterruptHoldoffCount > 0 || CritSectionCount > 0)
			continue;
		if (QueryCancelPending)
			break;
		if (ProcSignalBarrierPending)
			ProcessProcSignalBarrier();
	}
	SpinLockAcquire(&table->lock);
	if (entry->waiting == MyProcPid)
		entry->waiting = 0;
	SpinLockRelease(&table->lock);
}

void
le_fault_check(const LeCore *core)
{
	static LeTime next_at = 0;
	LeTime start = le_clock(), end;

	if (start < next_at)
		return;
	le_core_check(core);
	end = le_clock();
	next_at = end + 4 * (end - start);
}

void
le_fault_point(const char *name, bool can_fail)
{
	LeFaultEntry *entry;
	LeFaultAction action = LE_FAULT_NONE;
	uint32 generation = 0;
	int ms = 0;

	if (table == NULL)
		return;
	/* 1. check whether the point is armed for this process and this hit */
	SpinLockAcquire(&table->lock);
	entry = find_entry(name);
	if (entry != NULL && (entry->pid == 0 || entry->pid == MyProcPid))
	{
		entry->hits++;
		if (entry->action != LE_FAULT_NONE && entry->hits > entry->skip &&
			(entry->times == 0 || entry->acted < entry->times))
		{
			entry->acted++;
			action = entry->action;
			ms = entry->ms;
			generation = entry->generation;
		}
	}
	SpinLockRelease(&table->lock);

	/* 2. carry out its action */
	switch (action)
	{
		case LE_FAULT_NONE:
			break;
		case LE_FAULT_SLEEP:
			sleep_for(ms);
			break;
		case LE_FAULT_WAIT:
			wait_for_release(entry, generation);
			if (can_fail)
				CHECK_FOR_INTERRUPTS();
			break;
		case LE_FAULT_KILL:
			(void) kill(MyProcPid, SIGKILL);
			pg_usleep(10 * USECS_PER_SEC);
			break;
		case LE_FAULT_ERROR:
		case LE_FAULT_FATAL:
			if (can_fail)
				ereport(action == LE_FAULT_FATAL ? FATAL : ERROR,
						(errcode(ERRCODE_INTERNAL_ERROR), errmsg("fault at \"%s\"", name)));
			break;
	}
}

/* --- controls --- */

static LeFaultAction
action_of(const char *name)
{
	for (int i = 0; i < lengthof(actions); i++)
	{
		if (strcmp(actions[i], name) == 0)
			return (LeFaultAction) i;
	}
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("unknown action \"%s\"", name)));
}

/* Disarms the point, resets its counters, and releases its waiter. */
static void
reset_entry(LeFaultEntry *entry)
{
	entry->action = LE_FAULT_NONE;
	entry->ms = entry->skip = entry->times = entry->acted = entry->pid = 0;
	entry->hits = 0;
	entry->generation++;
}

/*
 * Returns the entry of the point that the first argument names, with the lock held.  The caller must release
 * the lock.
 */
static LeFaultEntry *
locked_entry(FunctionCallInfo fcinfo)
{
	char *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	LeFaultEntry *entry;

	if (!superuser())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("must be superuser to use fault points")));
	if (table == NULL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("lock_election is not in shared_preload_libraries")));
	if (strlen(name) >= MAX_NAME || name[0] == '\0')
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("invalid name of a fault point: \"%s\"", name)));
	SpinLockAcquire(&table->lock);
	entry = find_entry(name);
	if (entry == NULL)
	{
		SpinLockRelease(&table->lock);
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED), errmsg("too many fault points")));
	}
	return entry;
}

/* Implements le_fault_set(point, action, ms, skip, times, pid). */
Datum
le_fault_set(PG_FUNCTION_ARGS)
{
	LeFaultAction action = action_of(text_to_cstring(PG_GETARG_TEXT_PP(1)));
	LeFaultEntry *entry = locked_entry(fcinfo);

	reset_entry(entry);
	entry->action = action;
	entry->ms = PG_GETARG_INT32(2);
	entry->skip = PG_GETARG_INT32(3);
	entry->times = PG_GETARG_INT32(4);
	entry->pid = PG_GETARG_INT32(5);
	SpinLockRelease(&table->lock);
	PG_RETURN_VOID();
}

/* Implements le_fault_release(point). */
Datum
le_fault_release(PG_FUNCTION_ARGS)
{
	LeFaultEntry *entry = locked_entry(fcinfo);

	entry->action = LE_FAULT_NONE;
	entry->generation++;
	SpinLockRelease(&table->lock);
	PG_RETURN_VOID();
}

/* Implements le_fault_hits(point). */
Datum
le_fault_hits(PG_FUNCTION_ARGS)
{
	LeFaultEntry *entry = locked_entry(fcinfo);
	int64 hits = entry->hits;

	SpinLockRelease(&table->lock);
	PG_RETURN_INT64(hits);
}

/* Implements le_fault_waiting(point). */
Datum
le_fault_waiting(PG_FUNCTION_ARGS)
{
	LeFaultEntry *entry = locked_entry(fcinfo);
	int pid = entry->waiting;

	SpinLockRelease(&table->lock);
	PG_RETURN_INT32(pid);
}

/* Implements le_fault_clear(). */
Datum
le_fault_clear(PG_FUNCTION_ARGS)
{
	if (!superuser() || table == NULL)
		PG_RETURN_VOID();
	SpinLockAcquire(&table->lock);
	for (int i = 0; i < MAX_POINTS; i++)
		reset_entry(&table->entries[i]);
	SpinLockRelease(&table->lock);
	PG_RETURN_VOID();
}

/* Implements le_fault_forget_standbys(). */
Datum
le_fault_forget_standbys(PG_FUNCTION_ARGS)
{
	if (!superuser())
		PG_RETURN_VOID();
	LWLockAcquire(SyncRepLock, LW_EXCLUSIVE);
	((volatile uint8 *) WalSndCtl)[LE_SYNC_STANDBYS] = 0;
	LWLockRelease(SyncRepLock);
	PG_RETURN_VOID();
}

#endif /* LE_FAULTS */
