/*
 * manager/manager.c
 *		Runs the manager of one database: start, main loop, and exits.
 *
 * manager/manager.h lists the other files and their purposes.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timeout.h"

#include "manager/answer.h"
#include "manager/batch.h"
#include "manager/chores.h"
#include "manager/hints.h"
#include "manager/leave.h"
#include "manager/manager.h"
#include "manager/reload.h"
#include "manager/replay.h"
#include "manager/state.h"
#include "shared/compat.h"
#include "shared/fault.h"
#include "shared/settings.h"
#include "shared/sleep.h"
#include "shared/worker.h"

/* Maximum duration of a sleep of a manager that has nothing to do. */
#define LONGEST_SLEEP (3600 * LE_SECOND)

static LeDatabase *my_db = NULL;
static LeDbExit leaving_with = LE_EXIT_ERROR;

/*
 * Pins settings, so that ALTER DATABASE and ALTER ROLE do not change them for the manager. lock_timeout
 * limits how long an ACCESS EXCLUSIVE lock of another session can block all requests: after that time they
 * fail with SQLSTATE 55P03.
 */
static void
pin_settings(void)
{
	static const LeSetting settings[] = {
		{"lock_timeout", "200ms"},
		{"statement_timeout", "0"},
		{"idle_in_transaction_session_timeout", "0"},
		{"default_transaction_isolation", "read committed"},
		{"default_transaction_read_only", "off"},
		{"default_transaction_deferrable", "off"},
		{"synchronous_commit", "local"},
		{"search_path", "pg_catalog"},
		{"row_security", "on"},
		{"default_tablespace", ""},
		{"max_parallel_maintenance_workers", "0"},
		{"transaction_timeout", "0"},
	};

	le_worker_pin(settings, lengthof(settings));
}

/*
 * Marks the database entry as having no manager.  Must not fail, because no other process does this when the
 * manager exits.
 */
static void
manager_exit(int code, Datum arg)
{
	LE_FAULT_NOFAIL("manager-exit");
	le_hints_leave();
	LWLockAcquire(le_shared->lock, LW_EXCLUSIVE);
	/* a restarted launcher may have given the entry to another worker */
	if (my_db->worker_pid == MyProcPid)
		le_database_stopped(my_db, leaving_with);
	LWLockRelease(le_shared->lock);
	le_wake_launcher();
}

/*
 * Registers this process in the database entry that the launcher has prepared for it.  Exits if there is no
 * such entry.
 */
static void
take_entry(Oid dboid)
{
	LeDatabase *db;

	LWLockAcquire(le_shared->lock, LW_EXCLUSIVE);
	db = le_database_find(dboid, false);
	if (db != NULL && db->state == LE_DB_STARTING && db->worker_pid == 0)
	{
		le_database_enter(db);
		my_db = db;
	}
	LWLockRelease(le_shared->lock);
	if (my_db == NULL)
		proc_exit(0);
	before_shmem_exit(manager_exit, (Datum) 0);
}

static void
leave(LeDbExit how)
{
	leaving_with = how;
	proc_exit(0);
}

/*
 * Exits because the extension was dropped, with a status that keeps the launcher from starting another
 * manager.
 */
static void
leave_for_good(void)
{
	le_leave_dropped();
	leave(LE_EXIT_NO_EXTENSION);
}

/*
 * Sleeps until the time of "wakeup", or until another process wakes up the manager. nap: sleep for at most
 * LE_NAP, after which the manager checks for work without being woken up.
 */
static void
sleep_until(Wakeup wakeup, bool nap)
{
	LeTime at_most = Min(wakeup.at - le_clock(), LONGEST_SLEEP);

	if (nap)
	{
		le_sleep(Min(at_most, LE_NAP));
		return;
	}
	elog(DEBUG5, "lock_election manager sleeps for " INT64_FORMAT " us at most: then comes %s", at_most,
		 wakeup.why);
	pg_atomic_write_u32(&my_db->asleep, 1);

	/* an atomic operation alone is not a full barrier on every platform, see le_ring_softly() */
	pg_memory_barrier();
	if (pg_atomic_read_u32(&my_db->stack) == 0)
		le_sleep(at_most);
	pg_atomic_write_u32(&my_db->asleep, 0);
}

/*
 * Waits until lock_election.min_batch_interval has passed since the last batch, to limit the rate of
 * transaction ids.
 */
static void
keep_interval(LeTime last_batch)
{
	LeTime rest = last_batch + (LeTime) le_min_batch_interval_ms * LE_MS - le_clock();

	if (rest > 0)
		(void) WaitLatch(NULL, WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, (long) ((rest + LE_MS - 1) / LE_MS),
						 le_wait_event(LE_WAIT_INTERVAL));
}

/*
 * Handles SIGINT: cancels the statement if lock_timeout has sent the signal.  Ignores query cancels, which
 * must not fail a batch.  Must not fail, because it is a signal handler.
 */
static void
handle_sigint(SIGNAL_ARGS)
{
	if (get_timeout_indicator(LOCK_TIMEOUT, false))
		StatementCancelHandler(LE_SIGNAL_PASS);
}

/* Reloads the configuration, or exits, between two batches. slept_until: see le_batch_check_stall(). */
static void
handle_signals(uint32 *procs, LeTime slept_until)
{
	CHECK_FOR_INTERRUPTS();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
		pin_settings();
	}
	if (ShutdownRequestPending || my_db->leave)
	{
		le_leave_in_order(procs, slept_until);
		leave(LE_EXIT_NONE);
	}
}

/*
 * Exits if the extension was dropped, and perhaps created again, or if a restore has raised its incarnation.
 * A new manager is started if needed.  Before it exits, this manager grants nothing more, but writes the
 * releases that got a reply.
 */
static void
recheck_extension(uint32 *procs)
{
	bool found, ours;

	if (pg_atomic_exchange_u32(&my_db->recheck, 0) == 0)
		return;
	StartTransactionCommand();
	found = le_store_find();
	ours = found && le_store_is_claimed();
	CommitTransactionCommand();
	if (ours)
		le_leave_serving_nobody(procs);
	if (!found)
		leave_for_good();
	leave(LE_EXIT_NONE);
}

/*
 * Runs the manager's loop: does chores, then runs a batch if a mailbox has rung or anything is due,
 * otherwise sleeps.
 */
static void
serve(void)
{
	/* not in the current memory context, because a batch resets that context when it begins */
	uint32 *procs = MemoryContextAlloc(TopMemoryContext, le_shared->max_sessions * sizeof(uint32));
	LeTime slept_until = 0, last_batch = 0;
	bool all = true; /* in the first batch, also serve mailboxes that rang before the start */
	bool nap = true; /* nap after a batch, because le_ring_softly() may not have woken up the manager */

	for (;;)
	{
		int n;
		Wakeup wakeup, chores = {LE_NEVER, "nothing"};

		/* handle signals, and do chores */
		Assert(pg_atomic_read_u32(&my_db->asleep) == 0);
		le_sleep_reset();
		handle_signals(procs, slept_until);
		recheck_extension(procs);
		wake_earlier(&chores, le_hints_tend(), "a notifier");
		if (le_mgr.outage.since == 0)
		{
			wake_earlier(&chores, le_history_tend(), "the history");
			wake_earlier(&chores, le_shrink_tend(), "a look at the tables");
			wake_earlier(&chores, le_life_tend(), "the uptime");
		}
		keep_interval(last_batch);

		/* run a batch, if there is work */
		n = le_take_stack(my_db, procs);
		if (all)
			n = le_mailboxes_with_work(procs);
		all = false;
		le_batch_check_stall(slept_until, procs, n);
		wakeup = le_batch_next_wakeup();
		if (n > 0 || wakeup.at <= le_clock())
		{
			last_batch = le_clock();
			LE_FAULT("manager-took");
			le_serve(procs, n);
			if (le_mgr.core_state == CORE_DROPPED)
				leave_for_good();
			slept_until = 0;
			nap = true;
			continue;
		}

		/* sleep, because there is nothing to do */
		wake_earlier(&wakeup, chores.at, chores.why);
		slept_until = wakeup.at;
		sleep_until(wakeup, nap);
		nap = false;
	}
}

void
le_manager_main(Datum arg)
{
	Oid dboid = DatumGetObjectId(arg);
	bool given_up;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGINT, handle_sigint);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	LE_FAULT("manager-before-entry");
	take_entry(dboid);
	le_wait_events_init(LE_WAIT_MANAGER);
	le_worker_name_context();
	BackgroundWorkerInitializeConnectionByOid(dboid, InvalidOid, 0);
	pin_settings();
	if (my_db->leave)
		leave(LE_EXIT_NONE);

	LE_FAULT("manager-start");
	pg_atomic_write_u32(&my_db->recheck, 0);
	pg_atomic_write_u32(&my_db->asleep, 0); /* the previous manager may have failed while it slept */
	le_state_init(my_db);
	pg_atomic_write_u32(&my_db->loading, 1);
	if (!le_load_first())
		leave(LE_EXIT_NO_EXTENSION);

	Assert(le_mgr.core_state == CORE_LOADED);
	LE_FAULT("manager-loaded");

	/* from here on, SIGTERM makes the manager finish its work before it exits */
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	LWLockAcquire(le_shared->lock, LW_EXCLUSIVE);
	given_up = my_db->worker_pid != MyProcPid;
	if (!given_up)
		le_database_running(my_db);
	LWLockRelease(le_shared->lock);
	if (given_up)
		leave(LE_EXIT_NONE);
	le_wake_launcher();
	pgstat_report_activity(STATE_IDLE, NULL);
	ereport(LOG, (errmsg("lock_election manager started")));
	serve();
}
