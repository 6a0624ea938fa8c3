/*
 * backend/session_mailbox.c
 *		Attaches a session to its mailbox in shared memory, and detaches it.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/proc.h"

#include "backend/client.h"
#include "backend/extension.h"
#include "backend/session_mailbox.h"
#include "backend/wait.h"
#include "shared/compat.h"
#include "shared/fault.h"
#include "shared/flush.h"
#include "shared/settings.h"
#include "shared/shmem.h"
#include "shared/sleep.h"

/* Maximum time to wait until another database frees its entry. */
#define ENTRY_TIMEOUT (5 * LE_SECOND)

/*
 * Period at which an exiting session checks whether its locks have ended.  The manager also wakes up the
 * session.
 */
#define END_PERIOD (10 * LE_MS)

/* Maximum time that an exiting session waits for the manager. */
#define LONGEST_EXIT (5 * LE_SECOND)

LeMailbox *le_my_mailbox = NULL;
static bool exit_registered = false;

LeDatabase *
le_my_database(void)
{
	return &le_shared->databases[le_my_mailbox->database];
}

/*
 * If this session has many bound locks, or acquires to be undone, waits until the manager has ended them.
 * Otherwise the next connection with the same mailbox would have to wait until then.  Must not fail, because
 * the process is exiting.
 */
static void
wait_for_end(LeMailbox *box, uint64 session)
{
	LeDatabase *db = &le_shared->databases[box->database];
	LeTime end_at = le_clock() + LONGEST_EXIT;

	if (pg_atomic_read_u32(&box->bound) < LE_FEW && pg_atomic_read_u64(&box->undo) == 0)
		return;
	while (le_clock() < end_at && pg_atomic_read_u32(&db->running) != 0)
	{
		le_sleep_reset();
		if (box->session != session)
			break;
		le_sleep(END_PERIOD);
	}
}

/*
 * Leaves the mailbox to the manager when the backend exits.  Runs after the backend's last transaction was
 * aborted and before its PGPROC is freed.  Must not fail, because it is an on_shmem_exit() callback.
 */
static void
session_exit(int code, Datum arg)
{
	LeMailbox *box = le_my_mailbox;
	uint64 session;

	if (box == NULL)
		return;
	Assert(box->session != 0 && le_mailbox_proc(box) == (uint32) le_my_proc());
	LE_FAULT_NOFAIL("session-end");
	le_my_mailbox = NULL;
	session = box->session;
	LWLockAcquire(le_shared->lock, LW_EXCLUSIVE);
	le_database_detach(box);
	LWLockRelease(le_shared->lock);
	if (proc_exit_inprogress)
		wait_for_end(box, session);
}

void
le_check_can_attach(void)
{
	if (le_shared == NULL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("lock_election is not in shared_preload_libraries"),
						errhint("Add this line to postgresql.conf and restart the server: "
								"shared_preload_libraries = 'lock_election'")));
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION), errmsg("cannot use locks during recovery"),
				 errhint("Connect to the primary server. On a standby only the views can be read.")));

	/* reject parallel workers, because a worker commits independently of the leader process */
	PreventCommandIfParallelMode("lock functions");
	if (le_created_in_this_transaction())
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("cannot use locks in the transaction that created extension lock_election"),
						errhint("Commit first.")));
}

static void
raise_no_entry(void)
{
	ereport(ERROR, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					errmsg("lock_election cannot serve more than %d databases", le_max_databases),
					errdetail("Database \"%s\" would exceed this limit.", get_database_name(MyDatabaseId)),
					errhint("Raise lock_election.max_databases and restart the server.")));
}

/*
 * Returns whether a database entry will probably be free soon.  An entry is occupied for a short time while
 * the launcher checks whether a database has the extension, or while a command needs a database without other
 * sessions.
 */
static bool
entry_will_be_free(void)
{
	for (int i = 0; i < le_shared->max_databases; i++)
	{
		LeDatabase *db = &le_shared->databases[i];

		if (db->attached == 0 && db->state != LE_DB_RUNNING)
			return true;
	}
	return false;
}

/*
 * Takes this backend's mailbox in its database's entry, if there is an entry and the mailbox is free.  The
 * mailbox is not free if the manager has not processed all mail of the previous session with this database
 * and proc number.  In that case this function rings, but only once (*rung), and under the lock, so that the
 * entry cannot be freed meanwhile.
 *
 * Returns the mailbox, or NULL.  Sets *db to the entry; NULL = there is none.  Sets *passing to true if there
 * is none, but one will probably be free soon; otherwise to false.
 */
static LeMailbox *
try_attach(LeDatabase **db, bool *passing, bool *rung)
{
	LeMailbox *box = NULL;

	LWLockAcquire(le_shared->lock, LW_EXCLUSIVE);
	*db = le_database_find(MyDatabaseId, true);
	*passing = *db == NULL && entry_will_be_free();
	if (*db != NULL)
	{
		LeMailbox *mine = le_mailbox(*db, le_my_proc());

		Assert(mine->database == (int) (*db - le_shared->databases));
		if (mine->session == 0)
		{
			box = mine;
			le_database_attach(*db);
		}
		else if (!*rung)
		{
			pg_atomic_fetch_and_u32(&mine->note, ~LE_NOTE_UNREAD);
			le_ring(mine);
			*rung = true;
		}
	}
	LWLockRelease(le_shared->lock);
	return box;
}

/* Raises the manager's error if the manager cannot process the previous session's mail now. */
static void
check_predecessor(LeMailbox *box)
{
	if (pg_atomic_read_u32(&box->note) & LE_NOTE_UNREAD)
	{
		pg_read_barrier();
		ereport(ERROR, (errcode(box->sqlstate), errmsg("%s", pstrdup(box->message))));
	}
}

/* Waits until the mailbox is free, and takes it.  Returns NULL if the caller's wait ended first. */
static LeMailbox *
wait_for_mailbox(LeWait *wait)
{
	LeTime started_at = le_clock();
	bool rung = false;

	for (;;)
	{
		LeDatabase *db;
		bool passing;
		LeMailbox *box = try_attach(&db, &passing, &rung);
		LeTime now;

		if (box != NULL)
			return box;
		now = le_clock();
		if (db == NULL && (!passing || now - started_at >= ENTRY_TIMEOUT))
			raise_no_entry();
		if (db != NULL)
		{
			LE_FAULT("attach-refused");
			check_predecessor(le_mailbox(db, le_my_proc()));
			if (le_wait_is_over(wait, now, LE_TAKE_GRACE))
				return NULL;
		}
		le_wait_poll(wait, db);
	}
}

LeWaitEnd
le_attach(LeWait *wait)
{
	LeProcess *me = &le_shared->processes[le_my_proc()];
	LeMailbox *box;

	if (le_my_mailbox != NULL)
		return LE_WAIT_DONE;

	/* 1. set up sleeping and flushing */
	le_wait_events_init(LE_WAIT_LOCK);

	/* reset the sleep state, because the previous process with this proc number may have died while it slept */
	le_sleep_reset();
	le_flush_attach();

	/* 2. take the mailbox, which its initialization or the manager has cleared */
	box = wait_for_mailbox(wait);
	if (box == NULL)
		return LE_WAIT_OVER;
	Assert(box->session == 0 && pg_atomic_read_u64(&box->undo) == 0 && pg_atomic_read_u32(&box->mail) == 0);
	Assert(pg_atomic_read_u32(&box->answered) == pg_atomic_read_u32(&box->posted) && box->revision == 0);
	Assert(pg_atomic_read_u32(&box->open_xact) == 0 && pg_atomic_read_u32(&box->releasing) == 0);
	Assert(pg_atomic_read_u64(&box->confirming_since) == 0);

	/* 3. write the session's number; from then on the mailbox belongs to this session */
	box->pid = MyProcPid;
	pg_atomic_write_u32(&box->bound, 0);
	me->generation++;
	pg_write_barrier();
	box->session = (me->generation << LE_PROC_BITS) | (uint32) le_my_proc();
	Assert(le_session_proc(box->session) == (uint32) le_my_proc() && box->session >> LE_PROC_BITS != 0);
	le_my_mailbox = box;
	if (!exit_registered)
	{
		on_shmem_exit(session_exit, (Datum) 0);
		exit_registered = true;
	}
	LE_FAULT("attach");
	return LE_WAIT_DONE;
}

void
le_session_reset(void)
{
	LeMailbox *box = le_my_mailbox;

	if (box == NULL)
		return;
	session_exit(0, (Datum) 0);
	le_client_hold(false, false);
	/* the next call takes the mailbox again, for a new session */
}

/* --- mail from this session --- */

/*
 * Replaces an undo that the manager has not read yet.  The new undo includes that one, because no acquire
 * begins while an undo is unread, and rollbacks proceed from inner to outer subtransactions.
 */
void
le_mail_undo(uint32 xact, uint32 first)
{
	uint64 mail = ((uint64) xact << 32) | first;
	uint64 unread PG_USED_FOR_ASSERTS_ONLY = pg_atomic_exchange_u64(&le_my_mailbox->undo, mail);

	Assert(xact != 0);
	Assert(unread == 0 || (unread >> 32 == xact && (uint32) unread >= first));
	le_ring(le_my_mailbox);
}

void
le_mail(uint32 flag)
{
	pg_atomic_fetch_or_u32(&le_my_mailbox->mail, flag);
	le_ring(le_my_mailbox);
}
