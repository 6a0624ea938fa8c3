/*
 * shared/flush.c
 *		Who flushes the WAL for the answers that rest on it: see shared/flush.h.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "shared/compat.h"
#include "shared/fault.h"
#include "shared/flush.h"
#include "shared/shmem.h"
#include "shared/sleep.h"

/* How many are looked at to find one that is present. */
#define LOOK_AT 16
/* More does not count as what a flush takes. */
#define LONGEST_FLUSH (10 * LE_MS)
/* Flushes that are not delayed at most, after one was in vain. */
#define LONGEST_BACKOFF 63

static uint32 *taken = NULL; /* procs that this process flushes for */

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
	pg_atomic_init_u32(&flush()->gathering, 0);
	pg_atomic_init_u32(&flush()->took_us, 0);
	pg_atomic_init_u32(&flush()->last, 0);
	pg_atomic_init_u32(&flush()->expected, 0);
	pg_atomic_init_u32(&flush()->skip, 0);
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

static void
push(uint32 proc)
{
	LeProcess *p = process(proc);
	uint32 head;

	if (pg_atomic_exchange_u32(&p->flush_linked, 1) != 0)
		return;
	pg_atomic_fetch_add_u32(&flush()->waiting, 1);
	head = pg_atomic_read_u32(&flush()->stack);
	do
	{
		p->flush_next = head;
	} while (!pg_atomic_compare_exchange_u32(&flush()->stack, &head, proc + 1));
}

/* From here on it can be linked again.  Returns the link to the next. */
static uint32
unlinked(int proc)
{
	uint32 next = process(proc)->flush_next;

	pg_atomic_fetch_sub_u32(&flush()->waiting, 1);
	pg_atomic_exchange_u32(&process(proc)->flush_linked, 0);
	return next;
}

static int
take(uint32 *procs)
{
	uint32 link = pg_atomic_exchange_u32(&flush()->stack, 0);
	int n = 0;

	while (link != 0)
	{
		procs[n] = link - 1;
		link = unlinked((int) procs[n++]);
	}
	return n;
}

/* One that waits for a flush, and is there to make it; -1: none. */
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

/* Nobody waits any more. */
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

/* This process leads no longer: somebody who waits does, or nobody. */
static void
pass_on(uint32 me)
{
	for (;;)
	{
		int next;

		if (pg_atomic_read_u32(&flush()->stack) == 0)
		{
			if (!change_flusher(me, 0))
				return; /* it was relieved */
			pg_memory_barrier();
			if (pg_atomic_read_u32(&flush()->stack) == 0 || !change_flusher(0, me))
				return;
		}
		next = candidate();
		if (next < 0)
		{
			forget_all();
			continue;
		}
		if (!change_flusher(me, (uint32) next + 1))
			return;
		pg_memory_barrier();
		if (pg_atomic_read_u32(&process(next)->present) == 0 && change_flusher((uint32) next + 1, me))
			continue;
		le_wake(next);
		return;
	}
}

/* All that are expected are in the stack. */
static bool
all_are_there(void)
{
	return pg_atomic_read_u32(&flush()->waiting) >= pg_atomic_read_u32(&flush()->expected);
}

/*
 * Those that are on their way come soon after the last flush.  If not all of them
 * do (there are more than the processors can serve meanwhile, or they wait for
 * something else), the next flushes are not delayed.
 */
static void
gather(uint32 me)
{
	uint32 took_us = pg_atomic_read_u32(&flush()->took_us), skip = pg_atomic_read_u32(&flush()->skip);
	uint32 backoff = pg_atomic_read_u32(&flush()->backoff);
	LeTime now, end;

	if (LE_FLUSH_GATHER == 0 || all_are_there())
		return;
	now = le_clock();
	end = Min(now + took_us / Max(LE_FLUSH_GATHER, 1),
			  (LeTime) pg_atomic_read_u64(&flush()->ended_at) + took_us);
	if (end <= now)
		return;
	if (skip > 0)
	{
		pg_atomic_write_u32(&flush()->skip, skip - 1);
		return;
	}
	pg_atomic_exchange_u32(&flush()->gathering, me);
	for (; now < end; now = le_clock())
	{
		le_sleep_reset();
		if (all_are_there())
			break;
		le_sleep(end - now);
	}
	pg_atomic_write_u32(&flush()->gathering, 0);
	backoff = all_are_there() ? 0 : Min(backoff * 2 + 1, LONGEST_BACKOFF);
	pg_atomic_write_u32(&flush()->backoff, backoff);
	pg_atomic_write_u32(&flush()->skip, backoff);
}

/* Takes those that the WAL is flushed for; the others stay. */
static int
take_flushed(void)
{
	XLogRecPtr flushed = GetFlushRecPtr(NULL);
	int all = take(taken), n = 0;

	for (int i = 0; i < all; i++)
	{
		if ((XLogRecPtr) process(taken[i])->flush_lsn <= flushed)
			taken[n++] = taken[i];
		else
			push(taken[i]);
	}
	return n;
}

/* A flush took that long, and was for these n: what to expect of the next one. */
static void
learn(LeTime time, int n)
{
	uint32 round = pg_atomic_fetch_add_u32(&flush()->rounds, 1),
		   took_us = pg_atomic_read_u32(&flush()->took_us);
	uint32 in_both = 0;

	for (int i = 0; i < n; i++)
	{
		in_both += process(taken[i])->flush_round == round;
		process(taken[i])->flush_round = round + 1;
	}
	pg_atomic_write_u32(&flush()->expected, pg_atomic_read_u32(&flush()->last) + n - in_both);
	pg_atomic_write_u32(&flush()->last, n);
	pg_atomic_write_u64(&flush()->ended_at, (uint64) le_clock());
	pg_atomic_write_u32(&flush()->took_us, (uint32) ((took_us * 7 + Min(time, LONGEST_FLUSH)) / 8));
}

static void
flush_for_all(const LeMailbox *box, uint32 me)
{
	LeTime start;
	int n;

	LE_FAULT_NOFAIL("flush-before");
	gather(me);
	start = le_clock();
	XLogFlush((XLogRecPtr) pg_atomic_read_u64(&flush()->wanted));
	LE_FAULT_NOFAIL("flush-done");
	n = take_flushed();
	learn(le_clock() - start, n);
	pg_atomic_fetch_add_u64(&le_shared->databases[box->database].counters.flushes, 1);
	pass_on(me);
	LE_FAULT_NOFAIL("flush-passed-on");
	for (int i = 0; i < n; i++)
	{
		if (taken[i] + 1 != me)
			le_wake((int) taken[i]);
	}
}

/* --- the manager --- */

bool
le_flush_done(XLogRecPtr lsn)
{
	static XLogRecPtr flushed = 0;

	if (lsn > flushed)
		flushed = GetFlushRecPtr(NULL);
	return lsn <= flushed;
}

/* Several managers raise it. */
static void
want(XLogRecPtr lsn)
{
	uint64 wanted = pg_atomic_read_u64(&flush()->wanted);

	while (wanted < lsn && !pg_atomic_compare_exchange_u64(&flush()->wanted, &wanted, lsn))
		;
}

void
le_flush_ask(uint32 proc, XLogRecPtr lsn)
{
	process(proc)->flush_lsn = lsn;
	want(lsn);
	push(proc);
}

/* A flusher that has not come round for long is stopped, or its disk is: then another one hurts nobody. */
static bool
is_stuck(uint32 flusher)
{
	static uint32 seen_flusher = 0, seen_rounds = 0;
	static LeTime since = 0;
	uint32 rounds = pg_atomic_read_u32(&flush()->rounds);

	if (flusher != seen_flusher || rounds != seen_rounds)
	{
		seen_flusher = flusher;
		seen_rounds = rounds;
		since = le_clock();
	}
	return le_clock() - since > LE_FLUSH_PATIENCE;
}

void
le_flush_start(void)
{
	uint32 me = (uint32) le_my_proc() + 1, flusher, gathering;

	pg_memory_barrier();
	if (pg_atomic_read_u32(&flush()->stack) == 0)
		return;
	gathering = pg_atomic_read_u32(&flush()->gathering);
	if (gathering != 0 && all_are_there())
		le_wake((int) gathering - 1);
	flusher = pg_atomic_read_u32(&flush()->flusher);
	if ((flusher == 0 || is_stuck(flusher)) && change_flusher(flusher, me))
		pass_on(me);
}

/* --- a session --- */

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
le_flush_turn(const LeMailbox *box)
{
	uint32 me = (uint32) le_my_proc() + 1;

	if (pg_atomic_read_u32(&flush()->flusher) == me)
		flush_for_all(box, me);
}

void
le_flush_wait(const LeMailbox *box)
{
	XLogRecPtr lsn = (XLogRecPtr) box->reply.lsn;
	uint32 me = (uint32) le_my_proc() + 1, flusher = pg_atomic_read_u32(&flush()->flusher);
	LeTime give_up = 0, now;

	while (lsn > GetFlushRecPtr(NULL))
	{
		if (pg_atomic_read_u32(&flush()->flusher) == me)
		{
			flush_for_all(box, me);
			return;
		}
		now = le_clock();
		if (give_up == 0)
			give_up = now + LE_FLUSH_PATIENCE;
		if (now >= give_up || pg_atomic_read_u32(&process(me - 1)->flush_linked) == 0)
		{
			XLogFlush(lsn);
			if (now >= give_up && flusher != 0 && change_flusher(flusher, me))
				flush_for_all(box, me);
			return;
		}
		le_sleep_reset();
		if (lsn > GetFlushRecPtr(NULL) && pg_atomic_read_u32(&flush()->flusher) != me)
			le_sleep(give_up - now);
	}
}

void
le_flush_leave(void)
{
	uint32 me = (uint32) le_my_proc() + 1;

	if (pg_atomic_exchange_u32(&process(me - 1)->present, 0) != 0 &&
		pg_atomic_read_u32(&flush()->flusher) == me)
		pass_on(me);
}
