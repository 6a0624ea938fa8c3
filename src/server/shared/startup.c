/*
 * shared/startup.c
 *		Creates the shared memory when the server starts.
 */
#include "postgres.h"

#include "common/controldata_utils.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "shared/compat.h"
#include "shared/fault.h"
#include "shared/flush.h"
#include "shared/settings.h"
#include "shared/shmem.h"
#include "shared/sleep.h"
#include "shared/startup.h"

/*
 * Unit of the first generation, in microseconds.  Rows contain the number of the session that wrote them
 * last, possibly before a restart of the server.  So that no new session has such a number, the first
 * generation is the server's start time divided by this unit, and a proc number has less than one new session
 * per unit.
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
mailboxes_size(void)
{
	return MAXALIGN(mul_size(le_max_databases, mul_size(MaxBackends, sizeof(LeMailbox))));
}

/* Returns the size of all parts, which follow each other; the table of fault points is last. */
static Size
shared_size(void)
{
	Size size = add_size(MAXALIGN(sizeof(LeShared)), databases_size());

	size = add_size(size, processes_size());
	size = add_size(size, mailboxes_size());
	return add_size(size, LE_FAULT_SIZE());
}

static void
shmem_request(void)
{
	if (prev_shmem_request)
		prev_shmem_request();
	RequestAddinShmemSpace(shared_size());
	RequestNamedLWLockTranche("lock_election", 1);
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

/* Attaches to the shared memory of the library.  In the postmaster, also creates and initializes it. */
static void
shmem_startup(void)
{
	bool found;
	char *p;

	if (prev_shmem_startup)
		prev_shmem_startup();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	p = ShmemInitStruct("lock_election", shared_size(), &found);
	Assert(p == (char *) MAXALIGN(p));
	LE_FAULT_INIT(p + shared_size() - LE_FAULT_SIZE(), found);
	le_shared = (LeShared *) p;
	if (!found)
	{
		memset(p, 0, MAXALIGN(sizeof(LeShared)) + databases_size() + processes_size());

		/* 1. members of LeShared itself */
		le_shared->lock = &GetNamedLWLockTranche("lock_election")->lock;
		le_shared->boot = (uint64) GetCurrentTimestamp();
		if (!pg_strong_random(le_shared->channel_key, sizeof(le_shared->channel_key)))
			elog(ERROR, "could not generate a random key");
		le_shared->checkpoint_at = last_checkpoint();
		pg_atomic_init_u64(&le_shared->incarnation, 0);
		pg_atomic_init_u32(&le_shared->many_fences, 0);
		le_shared->max_sessions = MaxBackends;
		le_shared->max_databases = le_max_databases;
		le_shared->launcher_proc = -1;

		/* 2. the parts, in the order of shared_size() */
		p += MAXALIGN(sizeof(LeShared));
		le_shared->databases = (LeDatabase *) p;
		p += databases_size();
		le_shared->processes = (LeProcess *) p;
		p += processes_size();
		le_shared->mailboxes = (LeMailbox *) p;
		p += mailboxes_size();

		/* no part overlaps the next one */
		Assert((char *) (le_shared + 1) <= (char *) le_shared->databases);
		Assert((char *) (le_shared->databases + le_max_databases) <= (char *) le_shared->processes);
		Assert((char *) (le_shared->processes + MaxBackends) <= (char *) le_shared->mailboxes);
		Assert((char *) (le_shared->mailboxes + le_max_databases * MaxBackends) <= p);
		Assert(p + LE_FAULT_SIZE() == (char *) le_shared + shared_size());

		/* 3. the contents of the parts; mailboxes are initialized with their database entry */
		for (int i = 0; i < le_shared->max_databases; i++)
			le_database_init(&le_shared->databases[i]);
		for (int i = 0; i < le_shared->max_sessions; i++)
		{
			le_bell_init(&le_shared->processes[i].bell);
			le_shared->processes[i].generation = le_shared->boot / GENERATION_TIME;
		}
		le_flush_init();
	}
	LWLockRelease(AddinShmemInitLock);
}

void
le_startup_init_hooks(void)
{
	prev_shmem_request = shmem_request_hook;
	shmem_request_hook = shmem_request;
	prev_shmem_startup = shmem_startup_hook;
	shmem_startup_hook = shmem_startup;
}
