/*
 * shared/flush.c
 *		Flushes the WAL for the replies that depend on it, see shared/flush.h.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/lwlock.h"
#include "utils/memutils.h"

#include "shared/compat.h"
#include "shared/fault.h"
#include "shared/flush.h"
#include "shared/flush_delay.h"
#include "shared/shmem.h"
#include "shared/sleep.h"

/* Microseconds between two checks of whether the flush of another process has ended. */
#define LOOK_AT_LOG 200

/* Maximum number of processes that a search for a present process checks. */
#define LOOK_AT 16

static uint32 *taken = NULL; /* proc numbers that the last flush by this process served */

static LeFlush *
flush(void)
{
	return &le_shared->flush;
}

static LeProcess *
process(uint32 proc)
{
	return &le_shared->processes[proc];
}

void
le_flush_init(void)
{
	pg_atomic_init_u32(&flush()->stack, 0);
	pg_atomic_init_u32(&flush()->waiting, 0);
	pg_atomic_init_u32(&flush()->flusher, 0);
	pg_atomic_init_u32(&flush()->delaying, 0);
	pg_atomic_init_u32(&flush()->took_us, 0);
	pg_atomic_init_u32(&flush()->last_group, 0);
	pg_atomic_init_u32(&flush()->expected, 0);
	pg_atomic_init_u32(&flush()->undelayed, 0);
	pg_atomic_init_u32(&flush()->backoff, 0);
	pg_atomic_init_u64(&flush()->ended_at, 0);
	pg_atomic_init_u32(&flush()->rounds, 0);
	pg_atomic_init_u64(&flush()->wanted, 0);
	for (int i = 0; i < le_shared->max_sessions; i++)
	{
		pg_atomic_init_u32(&process(i)->flush_linked, 0);
		pg_atomic_init_u32(&process(i)->present, 0);
	}
}

/* --- the stack --- */

/* Links a process into the stack, unless it is already linked. */
static void
push(uint32 proc)
{
	LeProcess *p = process(proc);
	uint32 head;

	Assert(proc < (uint32) le_shared->max_sessions);

	if (pg_atomic_exchange_u32(&p->flush_linked, 1) != 0)
		return;
	pg_atomic_fetch_add_u32(&flush()->waiting, 1);
	head = pg_atomic_read_u32(&flush()->stack);
	do
	{
		p->flush_next = head;
	} while (!pg_atomic_compare_exchange_u32(&flush()->stack, &head, proc + 1));
}

/*
 * Marks a process that was taken from the stack as unlinked, so that it can be linked again.  Returns its
 * link to the next process.
 */
static uint32
unlinked(int proc)
{
	uint32 next = process(proc)->flush_next;
	uint32 waiting PG_USED_FOR_ASSERTS_ONLY = pg_atomic_fetch_sub_u32(&flush()->waiting, 1);
	uint32 linked PG_USED_FOR_ASSERTS_ONLY = pg_atomic_exchange_u32(&process(proc)->flush_linked, 0);

	Assert(waiting > 0 && waiting <= (uint32) le_shared->max_sessions && linked == 1);
	Assert(next <= (uint32) le_shared->max_sessions);
	return next;
}

/* Returns a process that waits for a flush and is present, so that it can be the flusher; -1 = none. */
static int
candidate(void)
{
	uint32 link = pg_atomic_read_u32(&flush()->stack);

	for (int i = 0; i < LOOK_AT && link != 0; i++)
	{
		LeProcess *p = process(link - 1);

		if (pg_atomic_read_u32(&p->present) != 0)
			return (int) link - 1;
		link = p->flush_next;
	}
	return -1;
}

/* --- the flusher --- */

static bool
change_flusher(uint32 from, uint32 to)
{
	return pg_atomic_compare_exchange_u32(&flush()->flusher, &from, to);
}

/*
 * Empties the stack and wakes up its processes, in case some of them still wait.  The caller has found no
 * process in the stack that is present.
 */
static void
forget_all(void)
{
	uint32 link = pg_atomic_exchange_u32(&flush()->stack, 0);

	while (link != 0)
	{
		int proc = (int) link - 1;

		link = unlinked(proc);
		le_wake(proc);
	}
}

/*
 * Stops being the flusher: names another waiting process the flusher, or none if no process waits.  Must not
 * fail: it runs after a flush or because of an error, and other processes wait for it.
 */
static void
pass_on(uint32 me)
{
	Assert(me == (uint32) le_my_proc() + 1);
	for (;;)
	{
		int next;

		/* 1. if no process waits, there is no flusher any more */
		if (pg_atomic_read_u32(&flush()->stack) == 0)
		{
			if (!change_flusher(me, 0))
				return; /* another process has replaced this one */
			pg_memory_barrier();
			if (pg_atomic_read_u32(&flush()->stack) == 0 || !change_flusher(0, me))
				return;
		}

		/* 2. find the next flusher */
		next = candidate();
		if (next < 0)
		{
			forget_all();
			continue;
		}

		/* 3. name it, unless another process has replaced this one; retry if the next flusher has left */
		if (!change_flusher(me, (uint32) next + 1))
			return;
		pg_memory_barrier();
		if (pg_atomic_read_u32(&process(next)->present) == 0 && change_flusher((uint32) next + 1, me))
			continue;
		le_wake(next);
		return;
	}
}

/*
 * Takes the processes whose LSN is flushed from the stack, and stores them in "taken".  Returns their number.
 */
static int
take_flushed(void)
{
	XLogRecPtr flushed = GetFlushRecPtr(NULL);
	uint32 link = pg_atomic_exchange_u32(&flush()->stack, 0);
	int n = 0;

	while (link != 0)
	{
		uint32 proc = link - 1;

		link = unlinked((int) proc);
		Assert(n < le_shared->max_sessions);
		if ((XLogRecPtr) process(proc)->flush_lsn <= flushed)
			taken[n++] = proc;
		else
			push(proc);
	}
	return n;
}

/*
 * Flushes up to lsn.  While another process holds the WAL write lock, retries, but returns false at the time
 * "until": the disk may have stopped, and to wait for that process would be to wait for the disk.
 */
static bool
flush_by(XLogRecPtr lsn, LeTime until)
{
	while (!le_flush_done(lsn))
	{
		if (until == LE_NEVER || LWLockConditionalAcquire(WALWriteLock, LW_EXCLUSIVE))
		{
			if (until != LE_NEVER)
				LWLockRelease(WALWriteLock);
			XLogFlush(lsn);
			break;
		}
		if (le_clock() >= until)
			return false;
		pg_usleep(LOOK_AT_LOG);
	}
	return true;
}

/*
 * Step 3 of shared/flush.h: this process, which is the flusher, flushes for all waiting processes and names
 * the next flusher.  If a flush by another process has not ended by the time "until" (LE_NEVER = no limit),
 * this process gives up, and marks itself as not present.
 */
static void
flush_for_all(const LeMailbox *box, uint32 me, LeTime until)
{
	XLogRecPtr wanted;
	LeTime started_at;
	int n;

	Assert(taken != NULL && me == (uint32) le_my_proc() + 1);
	LE_FAULT_NOFAIL("flush-before");

	/* 1. flush, after a delay */
	le_flush_delay(me);
	started_at = le_clock();
	wanted = (XLogRecPtr) pg_atomic_read_u64(&flush()->wanted);
	if (!flush_by(wanted, until))
	{
		pg_atomic_write_u32(&process(me - 1)->present, 0);
		pass_on(me);
		return;
	}
	Assert(wanted <= GetFlushRecPtr(NULL));
	LE_FAULT_NOFAIL("flush-done");

	/* 2. name the next flusher, then wake up the processes that were served */
	n = take_flushed();
	le_flush_learn(le_clock() - started_at, taken, n);
	pg_atomic_fetch_add_u64(&le_shared->databases[box->database].counters.flushes, 1);
	pass_on(me);
	LE_FAULT_NOFAIL("flush-passed-on");
	for (int i = 0; i < n; i++)
	{
		if (taken[i] + 1 != me)
			le_wake((int) taken[i]);
	}
}

/* --- called by the manager --- */

bool
le_flush_done(XLogRecPtr lsn)
{
	return lsn <= GetFlushRecPtr(NULL);
}

void
le_flush_ask(uint32 proc, XLogRecPtr lsn)
{
	uint64 wanted = pg_atomic_read_u64(&flush()->wanted);

	Assert(!XLogRecPtrIsInvalid(lsn));
	process(proc)->flush_lsn = lsn;

	/* raise "wanted"; other managers may raise it at the same time */
	while (wanted < lsn && !pg_atomic_compare_exchange_u64(&flush()->wanted, &wanted, lsn))
		;
	Assert(pg_atomic_read_u64(&flush()->wanted) >= lsn);
	push(proc);
}

/*
 * Returns whether there was no flush for LE_FLUSH_PATIENCE.  In that case the flusher or its disk has
 * stopped, and a second flusher does no harm.
 */
static bool
is_stuck(uint32 flusher)
{
	static uint32 seen_flusher = 0, seen_rounds = 0;
	static LeTime since_at = 0;
	uint32 rounds = pg_atomic_read_u32(&flush()->rounds);

	if (flusher != seen_flusher || rounds != seen_rounds)
	{
		seen_flusher = flusher;
		seen_rounds = rounds;
		since_at = le_clock();
	}
	Assert(since_at > 0 && flusher != 0);
	return le_clock() - since_at > LE_FLUSH_PATIENCE;
}

void
le_flush_start(void)
{
	uint32 me = (uint32) le_my_proc() + 1, flusher, delaying;

	pg_memory_barrier();
	if (pg_atomic_read_u32(&flush()->stack) == 0)
		return;
	delaying = pg_atomic_read_u32(&flush()->delaying);
	if (delaying != 0 && le_flush_group_is_there())
		le_wake((int) delaying - 1);
	flusher = pg_atomic_read_u32(&flush()->flusher);
	if ((flusher == 0 || is_stuck(flusher)) && change_flusher(flusher, me))
		pass_on(me);
}

/* --- called by a session --- */

void
le_flush_attach(void)
{
	if (taken == NULL)
		taken = MemoryContextAlloc(TopMemoryContext, le_shared->max_sessions * sizeof(uint32));
}

void
le_flush_enter(void)
{
	pg_atomic_write_u32(&process(le_my_proc())->present, 1);
}

void
le_flush_turn(const LeMailbox *box, LeTime until)
{
	uint32 me = (uint32) le_my_proc() + 1;

	if (pg_atomic_read_u32(&flush()->flusher) == me)
		flush_for_all(box, me, until);
}

/*
 * Sleeps until the WAL is flushed up to the reply's LSN.  Flushes for all waiting processes if this process
 * is named the flusher.  If this process is no longer in the stack, no other process would wake it up, so it
 * flushes by itself.  After LE_FLUSH_PATIENCE it also flushes by itself, and replaces the flusher.
 */
void
le_flush_wait(const LeMailbox *box)
{
	XLogRecPtr lsn = (XLogRecPtr) box->reply.lsn;
	uint32 me = (uint32) le_my_proc() + 1, flusher = pg_atomic_read_u32(&flush()->flusher);
	LeTime give_up_at = 0, now;

	while (lsn > GetFlushRecPtr(NULL))
	{
		if (pg_atomic_read_u32(&flush()->flusher) == me)
		{
			/*
			 * If this process was named the flusher before "wanted" was raised for this reply, "wanted" may
			 * be lower than lsn, so flush up to lsn as well.
			 */
			flush_for_all(box, me, LE_NEVER);
			XLogFlush(lsn);
			return;
		}
		now = le_clock();
		if (give_up_at == 0)
			give_up_at = now + LE_FLUSH_PATIENCE;
		Assert(give_up_at - now <= LE_FLUSH_PATIENCE);
		if (now >= give_up_at || pg_atomic_read_u32(&process(me - 1)->flush_linked) == 0)
		{
			XLogFlush(lsn);
			if (now >= give_up_at && flusher != 0 && change_flusher(flusher, me))
				flush_for_all(box, me, LE_NEVER);
			return;
		}
		le_sleep_reset();
		if (lsn > GetFlushRecPtr(NULL) && pg_atomic_read_u32(&flush()->flusher) != me)
			le_sleep(give_up_at - now);
	}
}

bool
le_flush_wait_until(const LeMailbox *box, LeTime until)
{
	XLogRecPtr lsn = (XLogRecPtr) box->reply.lsn;
	uint32 me = (uint32) le_my_proc() + 1;

	while (lsn > GetFlushRecPtr(NULL))
	{
		LeTime now = le_clock();

		if (now >= until)
			return false;
		if (pg_atomic_read_u32(&flush()->flusher) == me)
			flush_for_all(box, me, until);
		else if (pg_atomic_read_u32(&process(me - 1)->flush_linked) == 0)
			return flush_by(lsn, until);
		le_sleep_reset();
		if (lsn > GetFlushRecPtr(NULL) && pg_atomic_read_u32(&flush()->flusher) != me)
			le_sleep(Min(until - now, LE_FLUSH_PATIENCE));
	}
	return true;
}

void
le_flush_leave(void)
{
	uint32 me = (uint32) le_my_proc() + 1;

	/* step 4 of shared/flush.h: first the exchange, then the check */
	if (pg_atomic_exchange_u32(&process(me - 1)->present, 0) != 0 &&
		pg_atomic_read_u32(&flush()->flusher) == me)
		pass_on(me);
}
