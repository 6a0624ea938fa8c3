/*
 * launcher/launcher.c
 *		The launcher: starts a manager for every database that has the extension.
 *
 * pg_extension is not a shared catalog, so the launcher cannot see which databases have the extension.  To
 * find out, it starts a manager in the database, which is called a probe.  If the extension is not installed,
 * the manager exits at once.  The launcher remembers that, and starts another manager only when a backend
 * needs one (LeDatabase.wanted).
 *
 * The launcher does not read the tables of databases, and does not deal with locks.  manager/manager.c
 * describes the managers.
 *
 * Besides starting a worker in an entry (see shared/database.h), the launcher does the following:
 *
 *	STARTING, RUNNING -> IDLE	the worker has died without changing the state
 *	ask the worker to leave		a command has reserved the entry
 *								(launcher/commands.c), and the last client has
 *								left the database
 *	IDLE -> FREE				no session is attached, the entry is neither
 *								wanted nor reserved, no manager has been RUNNING
 *								in it, and no ended session has left mail in it;
 *								or its database was dropped
 *
 * The launcher's other state is private and may be lost: a new launcher adopts the workers that it finds in
 * shared memory, and probes again.
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

/* Seconds after which PostgreSQL restarts a launcher that has failed. */
#define LE_LAUNCHER_RESTART 1

/*
 * Maximum time between two scans of pg_database.  The commit of a command that changes pg_database also
 * causes a scan, because it wakes up the launcher (launcher/commands.c).  So the periodic scan only matters
 * if no launcher was running at the commit.  A scan of a hundred databases takes about 50 microseconds.  The
 * period is not longer than 5 s, because a caller waits that long for a manager.
 */
#define LE_SCAN_PERIOD (5 * LE_SECOND)

/* Minimum time between two scans; probes cause many wake-ups. */
#define LE_SCAN_PERIOD_MIN (100 * LE_MS)

/*
 * Databases are probed one at a time, so that the probes of a big cluster use only one of
 * max_worker_processes.  A probe that takes longer than LE_PROBE_SLOW, because its database is locked or the
 * disk is slow, does not delay the next one, unless LE_PROBES_MAX workers are starting.  A manager that is
 * wanted or has run before is started at once.
 */
#define LE_PROBE_SLOW (1 * LE_SECOND)
#define LE_PROBES_MAX 3

/*
 * Delay of the next start after an error.  The delay doubles with each error, and is reset when a worker has
 * lived for LE_BACKOFF_RESET.
 */
#define LE_BACKOFF_MIN   (100 * LE_MS)
#define LE_BACKOFF_MAX   (10 * LE_SECOND)
#define LE_BACKOFF_RESET (60 * LE_SECOND)

/* Minimum time between two starts of a manager that left without an error. */
#define LE_RESTART_PERIOD (100 * LE_MS)

/*
 * Time after which a worker that an earlier launcher has registered is considered dead if it has not started.
 */
#define LE_ADOPT_TIMEOUT (10 * LE_SECOND)

/* Interval at which the launcher checks whether the last client has left a reserved database. */
#define LE_WATCH_PERIOD (20 * LE_MS)

/* Minimum time between two log messages about max_worker_processes. */
#define LE_COMPLAINT_PERIOD (60 * LE_SECOND)

/* datconnlimit of a database whose DROP was interrupted; 15.0 has no symbol for it */
#define LE_CONNLIMIT_INVALID (-2)

/* A database: data from its row in pg_database, and the state that the launcher keeps for it. */
typedef struct LeTarget
{
	Oid dboid;          /* hash key */
	TransactionId xmin; /* xmin of the database's row in pg_database */
	NameData name;
	bool connectable;
	bool seen; /* the current scan has found the database */

	bool due;                       /* start a manager, as a probe or a replacement, even if none is wanted */
	bool ran;                       /* a manager of the database has been RUNNING */
	bool entry_missed;              /* the last start of a manager found no free entry, and logged this */
	LeTime complain_at;             /* earliest time of the next message about max_worker_processes */
	bool tracked;                   /* the database had a worker at the last check */
	BackgroundWorkerHandle *handle; /* handle of the worker; NULL: no worker, or an adopted one */
	LeTime started_at;
	LeTime retry_at; /* earliest time of the next start of a manager */
	LeTime backoff_us;
} LeTarget;

static HTAB *targets;
static Oid *scratch; /* temporary list of OIDs, le_max_databases elements */
static LeTime scan_at;
static LeTime scanned_at;
static bool watching; /* a reserved database still has clients */

static LeTarget *
find_target(Oid dboid)
{
	return (LeTarget *) hash_search(targets, &dboid, HASH_FIND, NULL);
}

/* --- pg_database -------------------------------------------------------- */

/* Updates the launcher's state from a row of pg_database. */
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

	/* update this even for the same row version, because an interrupted DROP changes the row in place */
	target->connectable = form->datallowconn && form->datconnlimit != LE_CONNLIMIT_INVALID;

	/* a new row version: a new database, or one that may have become connectable */
	if (!found || target->xmin != xmin)
	{
		target->xmin = xmin;
		if (!form->datistemplate)
			target->due = true;
	}
}

/*
 * Forgets the databases that the scan has not found.  Frees an entry only if it existed before the scan: the
 * scan's snapshot may lack the database of a newer entry.
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

/* Reads pg_database to find the databases that could have a manager. */
static void
scan_databases(void)
{
	HASH_SEQ_STATUS seq;
	LeTarget *target;
	Relation rel;
	TableScanDesc scan;
	HeapTuple tuple;

	/* 1. note the entries and databases known so far */
	LWLockAcquire(le_shared->lock, LW_SHARED);
	for (int i = 0; i < le_shared->max_databases; i++)
		scratch[i] = le_shared->databases[i].dboid;
	LWLockRelease(le_shared->lock);
	hash_seq_init(&seq, targets);
	while ((target = (LeTarget *) hash_seq_search(&seq)) != NULL)
		target->seen = false;

	/* 2. scan pg_database */
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

	/* 3. forget databases that no longer exist */
	Assert(hash_get_num_entries(targets) > 0); /* pg_database is never empty */
	sweep(scratch);
	scanned_at = le_clock();
	scan_at = scanned_at + LE_SCAN_PERIOD;
}

/* --- exits of workers --------------------------------------------------- */

/* Returns whether the worker of the entry has died. */
static bool
worker_is_dead(const LeTarget *target, const LeDatabase *db, LeTime now)
{
	pid_t pid;

	if (target->handle != NULL)
		return GetBackgroundWorkerPid(target->handle, &pid) == BGWH_STOPPED;

	/*
	 * The handle is lost, because an earlier launcher has started the worker.  A worker that has started
	 * reports its own exit.
	 */
	return db->worker_pid == 0 && now - target->started_at > LE_ADOPT_TIMEOUT;
}

/* Delays the next start after an error.  Doubles the delay each time. */
static void
back_off(LeTarget *target, LeTime now)
{
	Assert(target->backoff_us >= LE_BACKOFF_MIN && target->backoff_us <= LE_BACKOFF_MAX);
	target->retry_at = now + target->backoff_us;
	target->backoff_us = Min(target->backoff_us * 2, LE_BACKOFF_MAX);
	Assert(target->retry_at > now && target->backoff_us >= 2 * LE_BACKOFF_MIN);
}

/*
 * Searches all PGPROCs.  CountDBConnections() would also count autovacuum workers, which commands such as
 * DROP DATABASE terminate.  Looks up the pid as well, because a free PGPROC still has the data of its last
 * process.
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

/*
 * Handles the reservation of a command that waits until the database has no sessions, see
 * launcher/commands.c.
 */
static void
review_reservation(LeDatabase *db)
{
	/* Clear the reservation of a process that has exited without clearing it. */
	if (BackendPidGetProc(db->reserved_by) == NULL)
		le_database_reserve(db, 0);
	else if (db->state == LE_DB_IDLE || db->leave)
		return;
	else if (le_client_connected(db->dboid, db->reserved_by))
		watching = true;
	else
		le_database_ask_to_leave(db);
}

/* Records that a worker has exited, and decides when the next one starts. */
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

	/* 2. decide when to start the next one */
	switch (why)
	{
		case LE_EXIT_NO_EXTENSION:
			/* start at once after the first such exit, because CREATE EXTENSION may need a manager */
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

/* Returns whether a manager may start now and is wanted or has run before. */
static bool
may_start(const LeTarget *target, const LeDatabase *db, LeTime now)
{
	Assert(db->state == LE_DB_IDLE);
	return db->reserved_by == 0 && target->connectable && now >= target->retry_at &&
		   (db->wanted || (target->due && target->ran));
}

/* Reviews the state of an entry.  Returns true if the caller must start a manager in it. */
static bool
review_entry(LeDatabase *db, LeTime now)
{
	LeTarget *target = find_target(db->dboid);

	Assert(LWLockHeldByMeInMode(le_shared->lock, LW_EXCLUSIVE) && db->state != LE_DB_FREE);

	/* 1. handle a command that has reserved the database */
	if (db->reserved_by != 0)
		review_reservation(db);

	/*
	 * 2. Ignore a database that the last scan has not found, because it is too new or is being dropped.  The
	 * creator of a new entry wakes up the launcher, which then scans again.
	 */
	if (target == NULL)
		return false;

	/* 3. if the last start failed because no entry was free, retry at once: there is an entry now */
	if (target->entry_missed)
		target->retry_at = now;

	/* 4. check its worker */
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

	/* ignore exits before CREATE EXTENSION, and exits because its transaction still locked the tables */
	if (db->created)
	{
		target->retry_at = now;
		target->backoff_us = LE_BACKOFF_MIN;
	}

	/* 5. start a worker, or free the entry */
	if (may_start(target, db, now))
		return true;
	if (db->attached != 0 || db->reserved_by != 0 ||
		(target->connectable && (db->wanted || (target->due && target->ran))))
		return false;
	if (target->connectable && db->exit != LE_EXIT_NO_EXTENSION && le_database_has_mail(db))
	{
		/* an ended session has left mail, and this launcher has started no manager to apply it */
		le_database_want(db);
		return may_start(target, db, now);
	}
	le_database_free(db);
	return false;
}

/* --- starts of managers ------------------------------------------------- */

/*
 * Reads the current name of the database.  The name cannot change any more until the worker leaves, because
 * ALTER DATABASE waits for that.  Does not use the system cache: the session that renames the database wakes
 * up the launcher before it invalidates the caches.
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

/* Logs, once, that all entries are in use. */
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

/* Logs that no worker is free, at most once per LE_COMPLAINT_PERIOD. */
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

/*
 * Takes the database's entry for a worker.  If that is not possible now, returns NULL, and sets retry_at to
 * the time of the next attempt.
 */
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
 * Terminates a notifier, because a manager needs its worker slot more urgently.  The hints stay in the ring.
 * A new notifier is started a second later at the earliest, when the manager has already started.
 */
static void
send_notifier_away(void)
{
	for (int i = 0; i < le_shared->max_databases; i++)
	{
		int pid = le_shared->databases[i].notifier_pid;

		/* the process still exists, because it clears this pid under the lock before it ends */
		if (pid != 0)
		{
			(void) kill(pid, SIGTERM);
			return;
		}
	}
}

/* Starts a manager for this database, or sets the time of the next attempt. */
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

	/* 2. register its worker without holding the lock, because this may raise an error */
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
	 * 3. No worker is free: set the entry back to IDLE.  Keep the request for a manager: the session that
	 * requested the manager may have ended, and may have left mail with a release.
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
 * Reviews all entries, and starts managers that are wanted or have run before.  Returns the number of workers
 * that are starting.
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
 * Returns the time at which the launcher must check again if nothing wakes it up.  Sets *probing if a probe
 * that started recently delays the next one.
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

/* Returns a database that must be probed now, or NULL if there is none. */
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
 * Probes the next database that is due, unless a probe is running or enough workers are starting.  If its
 * worker cannot be started, tries the next database.
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

/* Unregisters the launcher.  Must not fail: the process is exiting. */
static void
launcher_exit(int code, Datum arg)
{
	LWLockAcquire(le_shared->lock, LW_EXCLUSIVE);
	le_shared->launcher_pid = 0;
	le_shared->launcher_proc = -1;
	LWLockRelease(le_shared->lock);
}

/* Sleeps until this time, or until the launcher is woken up. */
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
	pqsignal(SIGINT, PG_SIG_IGN); /* ignore cancels, which are meant for queries */
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	le_sleep_reset(); /* the previous process with this proc number may have died while sleeping */
	le_wait_events_init(LE_WAIT_LAUNCHER);
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);

	/*
	 * 1. create private state; RegisterDynamicBackgroundWorker() allocates its handles in this memory context
	 */
	ctl.keysize = sizeof(Oid);
	ctl.entrysize = sizeof(LeTarget);
	ctl.hcxt = TopMemoryContext;
	targets = hash_create("lock_election databases", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	scratch = (Oid *) MemoryContextAllocZero(TopMemoryContext, sizeof(Oid) * le_shared->max_databases);
	MemoryContextSwitchTo(TopMemoryContext);

	/* 2. register the launcher, so that other processes can wake it up */
	before_shmem_exit(launcher_exit, (Datum) 0);
	LWLockAcquire(le_shared->lock, LW_EXCLUSIVE);
	Assert(le_shared->launcher_pid == 0 && le_shared->launcher_proc == -1);
	le_shared->launcher_pid = MyProcPid;
	le_shared->launcher_proc = le_my_proc();
	LWLockRelease(le_shared->lock);

	/* 3. loop: scan, start workers, sleep */
	for (;;)
	{
		LeTime now;
		bool probing;

		/*
		 * Exit like PostgreSQL's own launcher, without a FATAL in the log, so that the postmaster may restart
		 * this process.
		 */
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

/*
 * Logs a message if there are too few workers for the launcher, a notifier, and a manager for each database.
 * PostgreSQL's own launcher of logical replication needs one more worker.
 */
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
					  errhint("Raise max_worker_processes to %d or more, in addition to what parallel "
							  "queries and other extensions need.",
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
