/*
 * backend/session.c
 *		A session's slot in shared memory: taking it, giving it back, waiting
 *		for a manager; and the client's socket.
 */
#include "postgres.h"

#include <netinet/tcp.h>

#include "access/xlog.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/wait_event.h"

#include "backend/extension.h"
#include "backend/session.h"
#include "shared/compat.h"
#include "shared/fault.h"
#include "shared/settings.h"
#include "shared/shmem.h"
#include "shared/wake.h"

/*
 * Keepalive probes: a silent host is noticed in 4 + 3 * 2 = 10 s.  No probe is
 * sent while something is unacknowledged, such as the grant for which it has
 * waited: that may take as long.
 */
#define KEEPALIVE_IDLE     4
#define KEEPALIVE_INTERVAL 2
#define KEEPALIVE_COUNT    3
#define USER_TIMEOUT_MS    10000

LeRequestSlot *le_my_slot = NULL;
static bool exit_registered = false;
static bool client_watched = false; /* for a wait */
static bool client_held = false;    /* for a connection-bound lock */

LeDatabase *
le_my_database(void)
{
	return &le_shared->databases[le_my_slot->database];
}

/* --- the client's socket --- */

static void
set_keepalives(bool on)
{
	if (MyProcPort == NULL)
		return;
	(void) pq_setkeepalivesidle(on ? KEEPALIVE_IDLE : tcp_keepalives_idle, MyProcPort);
	(void) pq_setkeepalivesinterval(on ? KEEPALIVE_INTERVAL : tcp_keepalives_interval, MyProcPort);
	(void) pq_setkeepalivescount(on ? KEEPALIVE_COUNT : tcp_keepalives_count, MyProcPort);
#ifdef TCP_USER_TIMEOUT
	(void) pq_settcpusertimeout(on ? USER_TIMEOUT_MS : tcp_user_timeout, MyProcPort);
#endif
}

static void
watch_client(bool wait, bool hold)
{
	bool was = client_watched || client_held;

	client_watched = wait;
	client_held = hold;
	if (was != (wait || hold))
		set_keepalives(wait || hold);
}

void
le_watch_client(bool hold)
{
	watch_client(client_watched, hold);
}

void
le_unwatch_client(void)
{
	watch_client(false, client_held);
}

bool
le_client_is_watched(void)
{
	return client_watched;
}

/* Is the client still there?  The check does not read, so it loses nothing. */
void
le_look_at_client(void)
{
	if (MyProcPort != NULL && !pq_check_connection())
	{
		ClientConnectionLost = true;
		InterruptPending = true;
	}
}

/* In a wait: a host that falls silent is noticed as well. */
void
le_watch_client_in_wait(void)
{
	if (MyProcPort != NULL)
		watch_client(true, client_held);
	le_look_at_client();
}

/* --- sessions --- */

/*
 * The backend exits.  This comes after its last transaction was aborted and
 * before its PGPROC goes.
 */
static void
session_exit(int code, Datum arg)
{
	LeRequestSlot *slot = le_my_slot;

	if (slot == NULL)
		return;
	LE_FAULT_NOFAIL("session-end");
	le_my_slot = NULL;
	LWLockAcquire(le_shared->lock, LW_EXCLUSIVE);
	le_database_detach(slot);
	LWLockRelease(le_shared->lock);
}

static void
no_manager(LeTime patience)
{
	ereport(ERROR, (errcode(ERRCODE_CANNOT_CONNECT_NOW),
					errmsg("the lock_election manager of database \"%s\" is not running",
						   get_database_name(MyDatabaseId)),
					errdetail("It did not start within %.1f seconds.", (double) patience / LE_SECOND),
					errhint("See the server log; max_worker_processes may be too low.")));
}

/* Ask for a manager if there is none. */
void
le_want_manager(LeDatabase *db)
{
	if (pg_atomic_read_u32(&db->running) != 0)
		return;
	LWLockAcquire(le_shared->lock, LW_EXCLUSIVE);
	if (db->state == LE_DB_IDLE || db->state == LE_DB_STARTING)
		le_database_want(db);
	LWLockRelease(le_shared->lock);
	le_wake_launcher();
}

/*
 * One turn of a wait.  Returns after the latch was set or the time ran out;
 * *down_since keeps track of how long there has been no manager.
 */
void
le_wait_turn(LeDatabase *db, long timeout_ms, LeTime *down_since, LeTime patience)
{
	if (pg_atomic_read_u32(&db->running) != 0)
		*down_since = 0;
	else
	{
		LeTime now = le_clock();

		le_want_manager(db);
		if (*down_since == 0)
			*down_since = now;
		else if (now - *down_since >= patience)
			no_manager(patience);
		timeout_ms = Min(timeout_ms, 10);
	}
	le_sleep(timeout_ms * LE_MS);
	le_sleep_reset();
	CHECK_FOR_INTERRUPTS();
}

static void
check_can_attach(void)
{
	if (le_shared == NULL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("lock_election is not in shared_preload_libraries"),
						errhint("Add this line to postgresql.conf and restart the server: "
								"shared_preload_libraries = 'lock_election'")));
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION), errmsg("cannot use locks during recovery"),
				 errhint("Locks live on the primary server; the views can be read on a standby.")));

	/* a worker's transaction commits by itself, whatever becomes of ours */
	PreventCommandIfParallelMode("lock functions");
	if (le_created_in_this_transaction())
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("cannot use locks in the transaction that created extension lock_election"),
						errhint("Commit first.")));
}

/* Still to be cleared up after the backend that had it before, or in its manager's stack. */
static bool
slot_in_use(LeRequestSlot *slot)
{
	return slot->session != 0 || pg_atomic_read_u32(&slot->linked) != 0;
}

/*
 * While it is linked it belongs to that manager, which may have cleared it
 * before it came to the link, and would take our request for one of its own
 * database.  If there is no manager to clear it, it is not waited for longer
 * than a caller waits for its own.
 */
static void
wait_for_slot(LeRequestSlot *slot)
{
	LeDatabase *db = &le_shared->databases[slot->database];
	LeTime give_up = le_clock() + LE_MANAGER_START_TIMEOUT, down_since = 0;

	while (slot_in_use(slot))
	{
		LWLockAcquire(le_shared->lock, LW_EXCLUSIVE);
		if (db->state == LE_DB_FREE || (db->state == LE_DB_IDLE && le_clock() >= give_up))
			le_database_clear_slots(db);
		LWLockRelease(le_shared->lock);
		if (!slot_in_use(slot))
			break;
		le_wait_turn(db, 10, &down_since, 2 * LE_MANAGER_START_TIMEOUT);
	}
	pg_read_barrier();
}

/*
 * Take part in this database's entry.  NULL: all are in use; not only by the
 * launcher, which looks whether a database has the extension, or by a command
 * that needs a database for itself.
 */
static LeDatabase *
attach_database(void)
{
	LeTime give_up = le_clock() + LE_MANAGER_START_TIMEOUT;

	for (;;)
	{
		bool passing = false;
		LeDatabase *mine;

		LWLockAcquire(le_shared->lock, LW_EXCLUSIVE);
		mine = le_database_attach(MyDatabaseId);
		for (int i = 0; i < le_shared->max_databases; i++)
		{
			LeDatabase *db = &le_shared->databases[i];

			passing |= db->attached == 0 && db->state != LE_DB_RUNNING;
		}
		LWLockRelease(le_shared->lock);
		if (mine != NULL || !passing || le_clock() >= give_up)
			return mine;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 10, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

void
le_attach(void)
{
	LeRequestSlot *slot;
	LeDatabase *database;

	check_can_attach();
	if (le_my_slot != NULL)
		return;
	slot = &le_shared->slots[le_my_proc()];

	/* whoever had this number before may have died asleep */
	le_sleep_reset();
	wait_for_slot(slot);
	LE_FAULT("attach");

	database = attach_database();
	if (database == NULL)
		ereport(ERROR, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
						errmsg("lock_election serves no more than %d databases", le_max_databases),
						errhint("Raise lock_election.max_databases and restart the server.")));

	slot->database = (int) (database - le_shared->databases);
	slot->pid = MyProcPid;
	slot->generation++;
	pg_atomic_write_u32(&slot->open_xact, 0);
	pg_atomic_write_u64(&slot->undo, 0);
	pg_atomic_write_u32(&slot->mail, 0);
	pg_write_barrier();
	slot->session = ((uint64) slot->generation << LE_PROC_BITS) | (uint32) le_my_proc();
	le_my_slot = slot;
	if (!exit_registered)
	{
		on_shmem_exit(session_exit, (Datum) 0);
		exit_registered = true;
	}
}

void
le_session_reset(void)
{
	LeRequestSlot *slot = le_my_slot;

	if (slot == NULL)
		return;
	watch_client(false, false);
	session_exit(0, (Datum) 0);
	/* the next call attaches anew, under another session's name */
}
