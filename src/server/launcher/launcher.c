/*
 * launcher/launcher.c
 *		Starts the managers: one for every database with the extension.
 *
 * pg_extension is not a shared catalog, so the launcher cannot know which
 * databases have the extension.  It starts a manager to find out: a probe.
 * Where there is no extension the manager leaves at once; the launcher keeps
 * in mind that the database is settled and asks again only when a backend
 * wants a manager (LeDatabase.wanted).
 *
 * This file does not look into any database, and it knows nothing of locks.
 * What a manager does is in manager/manager.c.
 *
 * What the launcher does with an entry, apart from starting a worker in it (see
 * shared/database.h):
 *
 *	STARTING, RUNNING -> IDLE	the worker is gone and has not said so
 *	ask the worker to leave		a command has reserved the entry
 *								(launcher/commands.c), and the last client has
 *								left the database
 *	IDLE -> FREE				no session is attached, nobody wants or has
 *								reserved it, and no manager has run in it, nor
 *								have ended sessions left it anything; or its
 *								database is gone
 *
 * Everything else that it knows is its own and can be lost: a new launcher
 * adopts the workers that it finds in shared memory, and probes again.
 */
#include "postgres.h"

#include <signal.h>

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "replication/logicallauncher.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "tcop/tcopprot.h"
#include "utils/fmgroids.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/relcache.h"
#include "utils/wait_event.h"

#include "launcher/launcher.h"
#include "shared/compat.h"
#include "shared/fault.h"
#include "shared/settings.h"
#include "shared/shmem.h"
#include "shared/sleep.h"
#include "shared/worker.h"

/* A launcher that failed comes back after this many seconds. */
#define LE_LAUNCHER_RESTART 1

/*
 * pg_database is read whenever somebody wakes the launcher, which the commit
 * of every command that changes it does (launcher/commands.c).  The periodic scan
 * only makes up for a wake-up that met no launcher; a scan of a hundred
 * databases takes some 50 microseconds, and a caller waits for a manager for
 * at most 5 s, so that it should not be rarer than that.
 */
#define LE_SCAN_PERIOD (5 * LE_SECOND)

/* Wake-ups come in swarms while databases are probed. */
#define LE_SCAN_PERIOD_MIN (100 * LE_MS)

/*
 * Databases are probed one at a time, so that the probes of a big cluster
 * take one worker from max_worker_processes.  A probe older than
 * LE_PROBE_SLOW (the database is locked, or the disk is slow) does not keep
 * the others from being probed, but no more than LE_PROBES_MAX are under way.
 * A manager that is wanted, or has been there before, waits for nobody.
 */
#define LE_PROBE_SLOW (1 * LE_SECOND)
#define LE_PROBES_MAX 3

/* After an error */
#define LE_BACKOFF_MIN   (100 * LE_MS)
#define LE_BACKOFF_MAX   (10 * LE_SECOND)
#define LE_BACKOFF_RESET (60 * LE_SECOND)

/* A manager that left in peace is started at most ten times a second. */
#define LE_RESTART_PERIOD (100 * LE_MS)

/* A worker of an earlier launcher that has not begun in that time never will. */
#define LE_ADOPT_TIMEOUT (10 * LE_SECOND)

/* How soon the last client of a reserved database is missed */
#define LE_WATCH_PERIOD (20 * LE_MS)

/* The same complaint about max_worker_processes */
#define LE_COMPLAINT_PERIOD (60 * LE_SECOND)

/* datconnlimit of a database whose DROP was interrupted; 15.0 has no name for it */
#define LE_CONNLIMIT_INVALID (-2)

/* A database: its row of pg_database, and the launcher's memory of it. */
typedef struct LeTarget
{
	Oid dboid;          /* hash key */
	TransactionId xmin; /* of its pg_database row */
	NameData name;
	bool connectable;
	bool seen; /* by the scan that is under way */

	bool due;                       /* start it though nobody wants it: not probed
								 * yet, or it has a manager */
	bool ran;                       /* its manager has been RUNNING */
	bool entry_missed;              /* at the last try, and complained about max_databases */
	LeTime complain_at;             /* about max_worker_processes, not before */
	bool tracked;                   /* a worker was there at the last look */
	BackgroundWorkerHandle *handle; /* its worker; NULL: adopted, or none */
	LeTime started_at;
	LeTime retry_at; /* not before */
	LeTime backoff_us;
} LeTarget;

static HTAB *targets;
static Oid *scratch; /* le_max_databases long */
static LeTime scan_at;
static LeTime scanned_at;
static bool watching; /* for the last client of a reserved database */

static LeTarget *
find_target(Oid dboid)
{
	return (LeTarget *) hash_search(targets, &dboid, HASH_FIND, NULL);
}

/* --- pg_database -------------------------------------------------------- */

/* A row of pg_database. */
static void
note_database(HeapTuple tuple)
{
	Form_pg_database form = (Form_pg_database) GETSTRUCT(tuple);
	TransactionId xmin = HeapTupleHeaderGetRawXmin(tuple->t_data);
	bool found;
	LeTarget *target;

	target = (LeTarget *) hash_search(targets, &form->oid, HASH_ENTER, &found);
	if (!found)
	{
		memset((char *) target + sizeof(Oid), 0, sizeof(LeTarget) - sizeof(Oid));
		target->backoff_us = LE_BACKOFF_MIN;
	}
	target->seen = true;
	target->name = form->datname;

	/* also of a row that is not new: a DROP that is interrupted has changed it in place */
	target->connectable = form->datallowconn && form->datconnlimit != LE_CONNLIMIT_INVALID;

	/* A new row: another database, or one that may be connectable now. */
	if (!found || target->xmin != xmin)
	{
		target->xmin = xmin;
		if (!form->datistemplate)
			target->due = true;
	}
}

/*
 * Forget the databases that the scan has not found.  An entry is given back
 * only if it was there before the scan: a younger one may belong to a
 * database that is too young for the scan's snapshot.
 */
static void
sweep(const Oid *entries)
{
	HASH_SEQ_STATUS seq;
	LeTarget *target;

	hash_seq_init(&seq, targets);
	while ((target = (LeTarget *) hash_seq_search(&seq)) != NULL)
	{
		if (target->seen)
			continue;
		if (target->handle != NULL)
			pfree(target->handle);
		(void) hash_search(targets, &target->dboid, HASH_REMOVE, NULL);
	}

	LWLockAcquire(le_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < le_shared->max_databases; i++)
	{
		LeDatabase *db = &le_shared->databases[i];

		if (db->state == LE_DB_IDLE && db->dboid == entries[i] && db->reserved_by == 0 &&
			find_target(db->dboid) == NULL)
			le_database_free(db);
	}
	LWLockRelease(le_shared->lock);
}

/* Read pg_database: which databases are there, and could have a manager? */
static void
scan_databases(void)
{
	HASH_SEQ_STATUS seq;
	LeTarget *target;
	Relation rel;
	TableScanDesc scan;
	HeapTuple tuple;

	/* 1. the entries and databases that are known */
	LWLockAcquire(le_shared->lock, LW_SHARED);
	for (int i = 0; i < le_shared->max_databases; i++)
		scratch[i] = le_shared->databases[i].dboid;
	LWLockRelease(le_shared->lock);
	hash_seq_init(&seq, targets);
	while ((target = (LeTarget *) hash_seq_search(&seq)) != NULL)
		target->seen = false;

	/* 2. the rows of pg_database */
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	pgstat_report_activity(STATE_RUNNING, "looking for databases");

	rel = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(rel, 0, NULL);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
		note_database(tuple);
	table_endscan(scan);
	table_close(rel, AccessShareLock);

	CommitTransactionCommand();
	pgstat_report_stat(false);
	pgstat_report_activity(STATE_IDLE, NULL);

	/* 3. forget what is gone */
	Assert(hash_get_num_entries(targets) > 0); /* nobody can drop the database that he is in */
	sweep(scratch);
	scanned_at = le_clock();
	scan_at = scanned_at + LE_SCAN_PERIOD;
}

/* --- what has become of the workers ------------------------------------- */

/* Is the worker that the entry tells of gone? */
static bool
worker_is_dead(const LeTarget *target, const LeDatabase *db, LeTime now)
{
	pid_t pid;

	if (target->handle != NULL)
		return GetBackgroundWorkerPid(target->handle, &pid) == BGWH_STOPPED;

	/* An earlier launcher's, and its handle went with that one.  Once it has begun it says itself that it leaves. */
	return db->worker_pid == 0 && now - target->started_at > LE_ADOPT_TIMEOUT;
}

/* After an error: not before so long, which doubles each time. */
static void
back_off(LeTarget *target, LeTime now)
{
	Assert(target->backoff_us >= LE_BACKOFF_MIN && target->backoff_us <= LE_BACKOFF_MAX);
	target->retry_at = now + target->backoff_us;
	target->backoff_us = Min(target->backoff_us * 2, LE_BACKOFF_MAX);
	Assert(target->retry_at > now && target->backoff_us >= 2 * LE_BACKOFF_MIN);
}

/*
 * CountDBConnections() does not serve: it counts autovacuum workers, which
 * the commands that need a database for themselves send away.  A PGPROC that
 * is free keeps what its last process left in it, hence the second look.
 */
bool
le_client_connected(Oid dboid, int except_pid)
{
	for (uint32 i = 0; i < ProcGlobal->allProcCount; i++)
	{
		PGPROC *proc = le_proc(i);
		int pid = proc->pid;

		if (proc->databaseId == dboid && pid != except_pid && le_proc_is_client(proc) &&
			BackendPidGetProc(pid) == proc)
			return true;
	}
	return false;
}

/* Somebody waits for the database to be empty: see launcher/commands.c. */
static void
review_reservation(LeDatabase *db)
{
	/* The process that reserved it clears this itself, however it ends; do not trust that. */
	if (BackendPidGetProc(db->reserved_by) == NULL)
		le_database_reserve(db, 0);
	else if (db->state == LE_DB_IDLE || db->leave)
		return;
	else if (le_client_connected(db->dboid, db->reserved_by))
		watching = true;
	else
		le_database_ask_to_leave(db);
}

/* A worker has left: when does the next one start? */
static void
note_exit(LeTarget *target, LeDbExit why, LeTime now)
{
	Assert(target->tracked && target->started_at <= now);

	/* 1. forget the worker */
	target->tracked = false;
	if (target->handle != NULL)
		pfree(target->handle);
	target->handle = NULL;
	if (now - target->started_at >= LE_BACKOFF_RESET)
		target->backoff_us = LE_BACKOFF_MIN;

	/* 2. when to start the next one */
	switch (why)
	{
		case LE_EXIT_NO_EXTENSION:
			/* CREATE EXTENSION may want the next one right now; but only once */
			if (target->due)
				target->retry_at = now;
			else
				back_off(target, now);
			target->due = target->ran = false;
			break;
		case LE_EXIT_NONE:
			target->due = true;
			target->retry_at = target->started_at + LE_RESTART_PERIOD;
			break;
		case LE_EXIT_ERROR:
		case LE_EXIT_NO_WORKER:
			target->due = true;
			back_off(target, now);
			break;
	}
	Assert(target->due || !target->ran);
	Assert(target->retry_at <= now + LE_BACKOFF_MAX);
}

/* May a manager start now, and does anybody want one or has it been there before? */
static bool
may_start(const LeTarget *target, const LeDatabase *db, LeTime now)
{
	Assert(db->state == LE_DB_IDLE);
	return db->reserved_by == 0 && target->connectable && now >= target->retry_at &&
		   (db->wanted || (target->due && target->ran));
}

/* See what has happened in an entry.  True: the caller is to start a manager in it. */
static bool
review_entry(LeDatabase *db, LeTime now)
{
	LeTarget *target = find_target(db->dboid);

	Assert(LWLockHeldByMeInMode(le_shared->lock, LW_EXCLUSIVE) && db->state != LE_DB_FREE);

	/* 1. a command that has reserved the database */
	if (db->reserved_by != 0)
		review_reservation(db);

	/* 2. too new for the last scan, or on its way out: who made the entry wakes us, which leads to another scan */
	if (target == NULL)
		return false;

	/* 3. an entry has come free for it: no reason to wait any more */
	if (target->entry_missed)
		target->retry_at = now;

	/* 4. its worker */
	if (db->state != LE_DB_IDLE)
	{
		if (!target->tracked)
			target->started_at = now;
		target->tracked = true;
		if (db->state == LE_DB_RUNNING)
			target->due = target->ran = true;
		if (!worker_is_dead(target, db, now))
			return false;
		le_database_stopped(db, LE_EXIT_ERROR);
	}

	if (target->tracked)
		note_exit(target, db->exit, now);

	/* those that found no extension, or tables that whoever created it had locked, say nothing of it */
	if (db->created)
	{
		target->retry_at = now;
		target->backoff_us = LE_BACKOFF_MIN;
	}

	/* 5. start one, or give the entry back */
	if (may_start(target, db, now))
		return true;
	if (db->attached != 0 || db->reserved_by != 0 ||
		(target->connectable && (db->wanted || (target->due && target->ran))))
		return false;
	if (target->connectable && db->exit != LE_EXIT_NO_EXTENSION && le_database_has_mail(db))
	{
		/* of a manager that a launcher before this one has seen */
		le_database_want(db);
		return may_start(target, db, now);
	}
	le_database_free(db);
	return false;
}

/* --- starting ----------------------------------------------------------- */

/*
 * The database may have another name since the last scan.  From here on it
 * keeps this one until the worker leaves: ALTER DATABASE waits for that.  Not
 * from a cache: who has renamed it wakes us before it tells the caches.
 */
static void
read_name(LeTarget *target)
{
	Relation rel;
	SysScanDesc scan;
	ScanKeyData key;
	HeapTuple tuple;

	StartTransactionCommand();
	ScanKeyInit(&key, Anum_pg_database_oid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(target->dboid));
	rel = table_open(DatabaseRelationId, AccessShareLock);
	scan = systable_beginscan(rel, DatabaseOidIndexId, criticalSharedRelcachesBuilt, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		target->name = ((Form_pg_database) GETSTRUCT(tuple))->datname;
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	CommitTransactionCommand();
}

/* Say once in the log that all entries are in use. */
static void
complain_no_entry(LeTarget *target)
{
	if (target->entry_missed)
		return;
	target->entry_missed = true;
	ereport(LOG,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("lock_election cannot start a manager for database \"%s\"", NameStr(target->name)),
			 errdetail("All %d entries for databases are in use.", le_shared->max_databases),
			 errhint("If it has the extension, raise lock_election.max_databases and restart the server.")));
}

/* Say in the log that there is no worker, once in LE_COMPLAINT_PERIOD. */
static void
complain_no_worker(LeTarget *target, LeTime now)
{
	if (now < target->complain_at)
		return;
	target->complain_at = now + LE_COMPLAINT_PERIOD;
	ereport(
		LOG,
		(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
		 errmsg("could not register the lock_election manager of database \"%s\"", NameStr(target->name)),
		 errdetail("No background worker is free for it: max_worker_processes is %d.", max_worker_processes),
		 errhint("Raise max_worker_processes and restart the server.")));
}

/* Take the database's entry for a worker.  NULL: not now, and retry_at says when. */
static LeDatabase *
take_entry(LeTarget *target, LeTime now, bool *was_wanted)
{
	LeDatabase *db;
	bool taken = false;

	LWLockAcquire(le_shared->lock, LW_EXCLUSIVE);
	db = le_database_find(target->dboid, true);
	if (db != NULL && db->state == LE_DB_IDLE && db->reserved_by == 0)
	{
		taken = true;
		target->entry_missed = false;
		*was_wanted = db->wanted;
		le_database_starting(db);
	}
	LWLockRelease(le_shared->lock);

	if (db == NULL)
	{
		target->retry_at = now + LE_SCAN_PERIOD;
		complain_no_entry(target);
	}
	else if (!taken)
		target->retry_at = now + LE_RESTART_PERIOD;
	return taken ? db : NULL;
}

/*
 * A manager needs its worker more than hints do.  The hints wait, and a notifier
 * is started again a second later at the earliest: after the manager.
 */
static void
send_notifier_away(void)
{
	for (int i = 0; i < le_shared->max_databases; i++)
	{
		int pid = le_shared->databases[i].notifier_pid;

		/* the process is there: it clears this, under the lock, before it ends */
		if (pid != 0)
		{
			(void) kill(pid, SIGTERM);
			return;
		}
	}
}

/* Start a manager of this database, or note when to try again. */
static void
start_manager(LeTarget *target, LeTime now)
{
	bool was_wanted = false;
	LeDatabase *db;
	BackgroundWorker worker = {0};

	Assert(!target->tracked && target->handle == NULL);
	Assert(target->connectable && now >= target->retry_at);

	/* 1. take the entry */
	db = take_entry(target, now, &was_wanted);
	if (db == NULL)
		return;

	/* 2. register its worker; not under the lock: this may raise an error */
	target->started_at = now;
	LE_FAULT_NOFAIL("launcher-before-start");
	read_name(target);
	le_worker_init(&worker, "manager", "le_manager_main");
	worker.bgw_main_arg = ObjectIdGetDatum(target->dboid);
	worker.bgw_notify_pid = MyProcPid;
	snprintf(worker.bgw_name, sizeof(worker.bgw_name), "lock_election manager %s", NameStr(target->name));
	target->tracked = RegisterDynamicBackgroundWorker(&worker, &target->handle);
	LE_FAULT("launcher-started");
	Assert(!target->tracked || target->handle != NULL);
	if (target->tracked)
		return;

	/*
	 * 3. There is no worker for it: give the entry back.  Who has wanted a manager may be gone, and have
	 * left a release that is told.
	 */
	LWLockAcquire(le_shared->lock, LW_EXCLUSIVE);
	le_database_stopped(db, LE_EXIT_NO_WORKER);
	if (was_wanted)
		le_database_want(db);
	send_notifier_away();
	LWLockRelease(le_shared->lock);
	back_off(target, now);
	complain_no_worker(target, now);
}

/*
 * Look at all entries, and start the managers that are wanted or have been
 * there before.  Returns how many workers are starting.
 */
static int
serve_entries(LeTime now)
{
	int starting = 0;
	int chosen = 0;

	watching = false;
	LWLockAcquire(le_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < le_shared->max_databases; i++)
	{
		LeDatabase *db = &le_shared->databases[i];

		if (db->state == LE_DB_FREE)
			continue;
		if (review_entry(db, now))
			scratch[chosen++] = db->dboid;
		if (db->state == LE_DB_STARTING)
			starting++;
	}
	LWLockRelease(le_shared->lock);

	Assert(starting + chosen <= le_shared->max_databases);
	for (int i = 0; i < chosen; i++)
		start_manager(find_target(scratch[i]), now);
	return starting + chosen;
}

/*
 * When to look again, if nobody wakes us.  Also tells whether a young probe
 * is in the way of the next one.
 */
static LeTime
next_look(LeTime now, bool *probing)
{
	LeTime next = watching ? Min(scan_at, now + LE_WATCH_PERIOD) : scan_at;
	HASH_SEQ_STATUS seq;
	LeTarget *target;

	*probing = false;
	hash_seq_init(&seq, targets);
	while ((target = (LeTarget *) hash_seq_search(&seq)) != NULL)
	{
		if (target->tracked && !target->ran && now - target->started_at < LE_PROBE_SLOW)
		{
			*probing = true;
			next = Min(next, target->started_at + LE_PROBE_SLOW);
		}
		if (!target->tracked && target->connectable && target->retry_at > now)
			next = Min(next, target->retry_at);
	}
	Assert(next <= scan_at && scan_at <= scanned_at + LE_SCAN_PERIOD);
	return next;
}

/* A database that is to be probed now; NULL: none. */
static LeTarget *
next_due(LeTime now)
{
	HASH_SEQ_STATUS seq;
	LeTarget *target;

	hash_seq_init(&seq, targets);
	while ((target = (LeTarget *) hash_seq_search(&seq)) != NULL)
	{
		if (target->tracked || !target->connectable || !target->due || target->ran || now < target->retry_at)
			continue;
		hash_seq_term(&seq);
		return target;
	}
	return NULL;
}

/*
 * Probe the next database that is due, unless enough workers are starting.  A
 * database whose worker cannot be started is not due for a while.
 */
static void
probe(LeTime now, int starting)
{
	LeTarget *target = NULL;
	bool probing;

	(void) next_look(now, &probing);
	if (probing || starting >= LE_PROBES_MAX)
		return;

	while ((target == NULL || !target->tracked) && (target = next_due(now)) != NULL)
	{
		LE_FAULT("launcher-probe");
		start_manager(target, now);
	}
}

/* --- the worker --------------------------------------------------------- */

/* May not fail: the process exits. */
static void
launcher_exit(int code, Datum arg)
{
	LWLockAcquire(le_shared->lock, LW_EXCLUSIVE);
	le_shared->launcher_pid = 0;
	le_shared->launcher_proc = -1;
	LWLockRelease(le_shared->lock);
}

/* Sleep until the time comes or somebody wakes us. */
static void
launcher_wait(LeTime until_at)
{
	LeTime left_us = until_at - le_clock();
	long timeout_ms = (long) (Max(left_us, 0) / LE_MS + 1);
	int events;

	Assert(timeout_ms > 0 && timeout_ms <= LE_SCAN_PERIOD / LE_MS + 1);
	events = WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, timeout_ms,
					   le_wait_event(LE_WAIT_LAUNCHER));
	if (events & WL_LATCH_SET)
	{
		ResetLatch(MyLatch);
		scan_at = Min(scan_at, scanned_at + LE_SCAN_PERIOD_MIN);
	}
}

void
le_launcher_main(Datum arg)
{
	HASHCTL ctl = {0};

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGINT, PG_SIG_IGN); /* a cancel is meant for a query */
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	le_sleep_reset(); /* as le_attach() */
	le_wait_events_init(LE_WAIT_LAUNCHER);
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);

	/* 1. its own state; the handles that RegisterDynamicBackgroundWorker() makes live in the context */
	ctl.keysize = sizeof(Oid);
	ctl.entrysize = sizeof(LeTarget);
	ctl.hcxt = TopMemoryContext;
	targets = hash_create("lock_election databases", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	scratch = (Oid *) MemoryContextAllocZero(TopMemoryContext, sizeof(Oid) * le_shared->max_databases);
	MemoryContextSwitchTo(TopMemoryContext);

	/* 2. others can wake it from here on */
	before_shmem_exit(launcher_exit, (Datum) 0);
	LWLockAcquire(le_shared->lock, LW_EXCLUSIVE);
	Assert(le_shared->launcher_pid == 0 && le_shared->launcher_proc == -1);
	le_shared->launcher_pid = MyProcPid;
	le_shared->launcher_proc = le_my_proc();
	LWLockRelease(le_shared->lock);

	/* 3. look, start what is to be started, sleep */
	for (;;)
	{
		LeTime now;
		bool probing;

		/* as PostgreSQL's own launcher: no FATAL in the log, and the postmaster may start another one */
		if (ProcDiePending)
			proc_exit(1);
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}

		if (le_clock() >= scan_at)
		{
			scan_databases();
			LE_FAULT("launcher-scanned");
		}
		now = le_clock();
		probe(now, serve_entries(now));
		launcher_wait(next_look(now, &probing));
	}
}

/* The launcher, a manager for each database, a notifier; and another launcher is PostgreSQL's own. */
static void
check_worker_processes(void)
{
	int others = 2 + (max_logical_replication_workers > 0);
	int room = Max(0, max_worker_processes - others);

	if (room < le_max_databases)
		ereport(LOG, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					  errmsg("max_worker_processes (%d) has room for lock_election in %d databases, and "
							 "lock_election.max_databases is %d",
							 max_worker_processes, room, le_max_databases),
					  errhint("Raise max_worker_processes to %d or more, beside what parallel queries and "
							  "other extensions need.",
							  le_max_databases + others)));
}

void
le_launcher_register(void)
{
	BackgroundWorker worker = {0};

	if (!process_shared_preload_libraries_in_progress || IsBinaryUpgrade)
		return;
	check_worker_processes();

	le_worker_init(&worker, "launcher", "le_launcher_main");
	worker.bgw_restart_time = LE_LAUNCHER_RESTART;
	RegisterBackgroundWorker(&worker);
}
