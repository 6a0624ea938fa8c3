/*
 * shared/shmem.c
 *		Shared memory: its layout, the stacks of rung slots, and clocks.
 *
 * The protocol is told in shared/shmem.h.  The backend's side is backend/request.c,
 * the manager's is manager/take.c and manager/batch.c.
 */
#include "postgres.h"

#include <time.h>

#include "common/controldata_utils.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "shared/compat.h"
#include "shared/flush.h"
#include "shared/releases.h"
#include "shared/settings.h"
#include "shared/shmem.h"
#include "shared/wake.h"

/*
 * A row keeps the session that wrote it last, and the server may have been
 * restarted since.  So sessions are numbered from the time of the start, in this
 * unit of microseconds, in which a process number has less than one session: none
 * has the number of one of an earlier life.
 */
#define GENERATION_TIME 1024

LeShared *le_shared = NULL;

static shmem_request_hook_type prev_shmem_request = NULL;
static shmem_startup_hook_type prev_shmem_startup = NULL;

static Size
databases_size(void)
{
	return MAXALIGN(mul_size(le_max_databases, sizeof(LeDatabase)));
}

static Size
processes_size(void)
{
	return MAXALIGN(mul_size(MaxBackends, sizeof(LeProcess)));
}

static Size
shared_size(void)
{
	Size size = MAXALIGN(sizeof(LeShared));

	size = add_size(size, databases_size());
	size = add_size(size, processes_size());
	return add_size(size, mul_size(le_max_databases, mul_size(MaxBackends, sizeof(LeRequestSlot))));
}

static void
shmem_request(void)
{
	if (prev_shmem_request)
		prev_shmem_request();
	RequestAddinShmemSpace(shared_size());
	RequestNamedLWLockTranche("lock_election", 1);
}

static void
slot_init(LeRequestSlot *slot)
{
	pg_atomic_init_u32(&slot->posted, 0);
	pg_atomic_init_u32(&slot->answered, 0);
	pg_atomic_init_u32(&slot->aside, 0);
	pg_atomic_init_u32(&slot->open_xact, 0);
	pg_atomic_init_u64(&slot->undo, 0);
	pg_atomic_init_u32(&slot->mail, 0);
	pg_atomic_init_u32(&slot->releasing, 0);
	pg_atomic_init_u32(&slot->linked, 0);
	pg_atomic_init_u32(&slot->note, 0);
	pg_atomic_init_u32(&slot->bound, 0);
	pg_atomic_init_u64(&slot->confirming_since, 0);
}

/* Until then they take no memory: the system gives a page when it is written to. */
void
le_slots_init(LeDatabase *db)
{
	if (db->has_slots)
		return;
	memset(le_slot(db, 0), 0, le_shared->max_slots * sizeof(LeRequestSlot));
	for (int i = 0; i < le_shared->max_slots; i++)
	{
		slot_init(le_slot(db, i));
		le_slot(db, i)->database = (int) (db - le_shared->databases);
	}
	db->has_slots = true;
}

static TimestampTz
last_checkpoint(void)
{
	bool ok;
	ControlFileData *control = get_controlfile(DataDir, &ok);
	TimestampTz at = ok ? time_t_to_timestamptz(control->checkPointCopy.time) : 0;

	pfree(control);
	return at;
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
		memset(p, 0, MAXALIGN(sizeof(LeShared)) + databases_size() + processes_size());
		le_shared->lock = &GetNamedLWLockTranche("lock_election")->lock;
		le_shared->boot = (uint64) GetCurrentTimestamp();
		le_shared->checkpoint_at = last_checkpoint();
		pg_atomic_init_u64(&le_shared->incarnation, 0);
		le_shared->max_slots = MaxBackends;
		le_shared->max_databases = le_max_databases;
		le_shared->launcher_proc = -1;
		p += MAXALIGN(sizeof(LeShared));
		le_shared->databases = (LeDatabase *) p;
		p += databases_size();
		le_shared->processes = (LeProcess *) p;
		p += processes_size();
		le_shared->slots = (LeRequestSlot *) p;
		for (int i = 0; i < le_shared->max_databases; i++)
			le_database_init(&le_shared->databases[i]);
		for (int i = 0; i < le_shared->max_slots; i++)
		{
			le_bell_init(&le_shared->processes[i].bell);
			le_shared->processes[i].generation = le_shared->boot / GENERATION_TIME;
		}
		le_flush_init();
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

/* More time than a busy machine lets pass between two looks at the clocks. */
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

/*
 * Link it, unless it is.  Returns whether there is nobody on the stack for whom the
 * manager was woken, also not this one.
 */
static bool
link_slot(LeRequestSlot *slot, bool rung)
{
	LeDatabase *db = &le_shared->databases[slot->database];
	uint32 self = le_slot_proc(slot) + 1;
	uint32 head, unrung;

	if (pg_atomic_exchange_u32(&slot->linked, 1) != 0)
		return rung && (pg_atomic_fetch_and_u32(&db->stack, ~LE_STACK_UNRUNG) & LE_STACK_UNRUNG) != 0;
	head = pg_atomic_read_u32(&db->stack);
	do
	{
		slot->next = head & ~LE_STACK_UNRUNG;
		unrung = head == 0 ? LE_STACK_UNRUNG : head & LE_STACK_UNRUNG;
	} while (!pg_atomic_compare_exchange_u32(&db->stack, &head, rung ? self : self | unrung));
	return unrung != 0;
}

void
le_ring(LeRequestSlot *slot)
{
	if (link_slot(slot, true))
		le_wake(le_shared->databases[slot->database].worker_proc);
}

void
le_ring_softly(LeRequestSlot *slot)
{
	LeDatabase *db = &le_shared->databases[slot->database];

	if (!link_slot(slot, false))
		return;

	/* the manager sets asleep before it looks at the stack: one of the two sees the other */
	pg_memory_barrier();
	if (pg_atomic_read_u32(&db->asleep) != 0 || pg_atomic_read_u64(&db->queued) != 0)
		le_ring(slot);
}

int
le_take_stack(LeDatabase *db, uint32 *procs)
{
	uint32 link = pg_atomic_exchange_u32(&db->stack, 0) & ~LE_STACK_UNRUNG;
	int n = 0;

	while (link != 0)
	{
		LeRequestSlot *slot = le_slot(db, link - 1);

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
