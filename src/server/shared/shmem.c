/*
 * shared/shmem.c
 *		Shared memory: its layout, the stacks of rung slots, and wake-ups.
 *
 * What is done with a request is not decided here: see backend/request.c for the
 * backend's side and manager/manager.c for the other.
 */
#include "postgres.h"

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#endif
#include <time.h>
#include <unistd.h>

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/pmsignal.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "shared/compat.h"
#include "shared/releases.h"
#include "shared/settings.h"
#include "shared/shmem.h"

/*
 * Beside its latch every process has a bell, for short sleeps.  To set a latch
 * takes a signal, and to sleep on one an epoll_wait() and a read(); a futex is
 * one system call each.  On two processors a hand-over took 104 us with it and
 * 112 us without, attempts were 4 % faster.
 */
enum
{
	BELL_QUIET = 0,
	BELL_DOZING, /* the process sleeps on its bell */
	BELL_RUNG
};

/* Longer sleeps use the latch from then on, which no signal can miss. */
#define LONGEST_DOZE (50 * LE_MS)

LeShared *le_shared = NULL;

static shmem_request_hook_type prev_shmem_request = NULL;
static shmem_startup_hook_type prev_shmem_startup = NULL;

static Size
databases_size(void)
{
	return MAXALIGN(mul_size(le_max_databases, sizeof(LeDatabase)));
}

static Size
shared_size(void)
{
	Size size = MAXALIGN(sizeof(LeShared));

	size = add_size(size, databases_size());
	return add_size(size, mul_size(MaxBackends, sizeof(LeRequestSlot)));
}

static void
shmem_request(void)
{
	if (prev_shmem_request)
		prev_shmem_request();
	RequestAddinShmemSpace(shared_size());
	RequestNamedLWLockTranche("lock_election", 1);
}

/* Everything in there is a counter. */
void
le_counters_reset(LeCounters *counters)
{
	pg_atomic_uint64 *counter = (pg_atomic_uint64 *) counters;

	for (; counter < (pg_atomic_uint64 *) (counters + 1); counter++)
		pg_atomic_init_u64(counter, 0);
	pg_atomic_write_u64(&counters->reset_at, GetCurrentTimestamp());
}

static void
database_init(LeDatabase *db)
{
	db->worker_proc = -1;
	db->notifier_pid = 0;
	db->notifier_proc = -1;
	pg_atomic_init_u64(&db->ring.pushed, 0);
	pg_atomic_init_u64(&db->ring.sent, 0);
	pg_atomic_init_u32(&db->stack, 0);
	pg_atomic_init_u32(&db->recheck, 0);
	pg_atomic_init_u32(&db->running, 0);
	pg_atomic_init_u32(&db->fences, 0);
	pg_atomic_init_u64(&db->revision, 0);
	pg_atomic_init_u64(&db->memory, 0);
	pg_atomic_init_u64(&db->locks, 0);
	le_counters_reset(&db->counters);
}

static void
slot_init(LeRequestSlot *slot)
{
	pg_atomic_init_u32(&slot->posted, 0);
	pg_atomic_init_u32(&slot->answered, 0);
	pg_atomic_init_u32(&slot->open_xact, 0);
	pg_atomic_init_u64(&slot->undo, 0);
	pg_atomic_init_u32(&slot->mail, 0);
	pg_atomic_init_u32(&slot->linked, 0);
	pg_atomic_init_u32(&slot->bell, BELL_QUIET);
	pg_atomic_init_u32(&slot->note, 0);
}

static void
shmem_startup(void)
{
	bool found;
	char *p;

	if (prev_shmem_startup)
		prev_shmem_startup();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	p = ShmemInitStruct("lock_election", shared_size(), &found);
	le_shared = (LeShared *) p;
	if (!found)
	{
		memset(p, 0, shared_size());
		le_shared->lock = &GetNamedLWLockTranche("lock_election")->lock;
		le_shared->boot = (uint64) GetCurrentTimestamp();
		pg_atomic_init_u64(&le_shared->incarnation, 0);
		le_shared->max_slots = MaxBackends;
		le_shared->max_databases = le_max_databases;
		le_shared->launcher_proc = -1;
		p += MAXALIGN(sizeof(LeShared));
		le_shared->databases = (LeDatabase *) p;
		p += databases_size();
		le_shared->slots = (LeRequestSlot *) p;
		for (int i = 0; i < le_shared->max_databases; i++)
			database_init(&le_shared->databases[i]);
		for (int i = 0; i < le_shared->max_slots; i++)
			slot_init(&le_shared->slots[i]);
	}
	LWLockRelease(AddinShmemInitLock);
}

void
le_shmem_init_hooks(void)
{
	prev_shmem_request = shmem_request_hook;
	shmem_request_hook = shmem_request;
	prev_shmem_startup = shmem_startup_hook;
	shmem_startup_hook = shmem_startup;
}

LeTime
le_clock(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (LeTime) ts.tv_sec * LE_SECOND + ts.tv_nsec / 1000;
}

/* More than what a busy machine puts between two looks at the clock. */
#define WALL_STEP (1 * LE_SECOND)

/*
 * Both clocks are slewed alike, so they keep their distance until the time of
 * day is set.
 */
TimestampTz
le_wall(LeTime now)
{
	static int64 distance = 0;
	int64 measured = GetCurrentTimestamp() - now;

	if (distance == 0 || measured - distance > WALL_STEP || distance - measured > WALL_STEP)
		distance = measured;
	return now + distance;
}

#ifdef __linux__
static void
futex(pg_atomic_uint32 *word, int op, uint32 value, const struct timespec *timeout)
{
	(void) syscall(SYS_futex, &word->value, op, value, timeout, NULL, 0);
}

/*
 * A signal ends it.  One that comes just before it is seen at the end, hence
 * the bound.
 */
static void
doze(pg_atomic_uint32 *bell, LeTime at_most)
{
	struct timespec timeout = {0, (long) at_most * 1000};
	uint32 state = BELL_QUIET;

	if (MyLatch->is_set || !pg_atomic_compare_exchange_u32(bell, &state, BELL_DOZING))
		return;
	pgstat_report_wait_start(PG_WAIT_EXTENSION);
	futex(bell, FUTEX_WAIT, BELL_DOZING, &timeout);
	pgstat_report_wait_end();
	state = BELL_DOZING;
	pg_atomic_compare_exchange_u32(bell, &state, BELL_QUIET);
}

static void
ring_bell(pg_atomic_uint32 *bell)
{
	futex(bell, FUTEX_WAKE, 1, NULL);
}
#else
/* Nobody dozes. */
static void
doze(pg_atomic_uint32 *bell, LeTime at_most)
{
}

static void
ring_bell(pg_atomic_uint32 *bell)
{
}
#endif

void
le_sleep_reset(void)
{
	ResetLatch(MyLatch);
	pg_atomic_exchange_u32(&le_shared->slots[le_my_proc()].bell, BELL_QUIET);
}

void
le_sleep(LeTime at_most)
{
	pg_atomic_uint32 *bell = &le_shared->slots[le_my_proc()].bell;
	LeTime start = le_clock(), rest;

	if (at_most <= 0)
		return;
	doze(bell, Min(at_most, LONGEST_DOZE));
	if (!PostmasterIsAlive())
		proc_exit(1);
	rest = start + at_most - le_clock();
	if (rest > 0 && pg_atomic_read_u32(bell) != BELL_RUNG)
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 (long) ((rest + LE_MS - 1) / LE_MS), PG_WAIT_EXTENSION);
}

void
le_wake(int proc)
{
	pg_atomic_uint32 *bell;

	if (proc < 0)
		return;
	bell = &le_shared->slots[proc].bell;
	if (pg_atomic_exchange_u32(bell, BELL_RUNG) == BELL_DOZING)
		ring_bell(bell);
	else
		SetLatch(&le_proc(proc)->procLatch);
}

void
le_wake_launcher(void)
{
	le_wake(le_shared->launcher_proc);
}

void
le_ring(LeRequestSlot *slot)
{
	LeDatabase *db = &le_shared->databases[slot->database];
	uint32 self = (uint32) (slot - le_shared->slots) + 1;
	uint32 head;

	if (pg_atomic_exchange_u32(&slot->linked, 1) != 0)
		return;
	head = pg_atomic_read_u32(&db->stack);
	do
	{
		slot->next = head;
	} while (!pg_atomic_compare_exchange_u32(&db->stack, &head, self));
	if (head == 0)
		le_wake(db->worker_proc);
}

/*
 * Take the whole stack, oldest first; returns how many proc numbers were put
 * into procs, which has room for all of them.
 */
int
le_take_stack(LeDatabase *db, uint32 *procs)
{
	uint32 link = pg_atomic_exchange_u32(&db->stack, 0);
	int n = 0;

	while (link != 0)
	{
		LeRequestSlot *slot = &le_shared->slots[link - 1];

		procs[n++] = link - 1;
		link = slot->next;

		/* from here on a ring links it again */
		pg_atomic_exchange_u32(&slot->linked, 0);
	}
	for (int i = 0; i < n / 2; i++)
	{
		uint32 swap = procs[i];

		procs[i] = procs[n - 1 - i];
		procs[n - 1 - i] = swap;
	}
	return n;
}

/* The slot has no owner any more, and nobody is to be told anything. */
void
le_slot_clear(LeRequestSlot *slot)
{
	if (pg_atomic_read_u32(&slot->mail) & LE_MAIL_RELEASED)
		le_releases_drop(&slot->releases);
	pg_atomic_write_u32(&slot->answered, pg_atomic_read_u32(&slot->posted));
	pg_atomic_write_u64(&slot->undo, 0);
	pg_atomic_write_u32(&slot->mail, 0);
	pg_atomic_write_u32(&slot->open_xact, 0);
	slot->revision = 0;
	pg_write_barrier();
	slot->session = 0;
}

/*
 * Nobody serves this database: unlink all its slots.  What is in them stays,
 * also the mail of sessions that have ended: a manager that starts looks at
 * every slot by itself.  Caller holds LeShared.lock exclusively and has seen,
 * or set, state IDLE.
 */
void
le_database_unlink_all(LeDatabase *db)
{
	uint32 link = pg_atomic_exchange_u32(&db->stack, 0);

	while (link != 0)
	{
		LeRequestSlot *slot = &le_shared->slots[link - 1];

		link = slot->next;
		pg_atomic_exchange_u32(&slot->linked, 0);
	}
}

/*
 * And nobody will: give the slots of ended sessions back.  There is nothing
 * left that their mail could be about.
 */
void
le_database_clear_slots(LeDatabase *db)
{
	le_database_unlink_all(db);
	for (int i = 0; i < le_shared->max_slots; i++)
	{
		LeRequestSlot *slot = &le_shared->slots[i];

		if (slot->session != 0 && &le_shared->databases[slot->database] == db &&
			(pg_atomic_read_u32(&slot->mail) & LE_MAIL_SESSION_END) != 0)
			le_slot_clear(slot);
	}
}

int
le_database_find(Oid dboid, bool create)
{
	int unused = -1;

	Assert(LWLockHeldByMe(le_shared->lock));
	for (int i = 0; i < le_shared->max_databases; i++)
	{
		LeDatabase *db = &le_shared->databases[i];

		if (db->state == LE_DB_FREE)
		{
			if (unused < 0)
				unused = i;
		}
		else if (db->dboid == dboid)
			return i;
	}
	if (!create || unused < 0)
		return -1;
	database_init(&le_shared->databases[unused]);
	le_shared->databases[unused].dboid = dboid;
	le_shared->databases[unused].state = LE_DB_IDLE;
	le_shared->databases[unused].exit = LE_EXIT_NONE;
	le_shared->databases[unused].wanted = false;
	le_shared->databases[unused].leave = false;
	le_shared->databases[unused].reserved_by = 0;
	le_shared->databases[unused].attached = 0;
	le_shared->databases[unused].worker_pid = 0;
	return unused;
}
