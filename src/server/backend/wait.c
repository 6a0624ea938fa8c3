/*
 * backend/wait.c
 *		Limits all waits of a call: for its mailbox, for its earlier requests, or for a reply.
 *
 * These functions do not rely on a working manager.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/lwlock.h"
#include "storage/proc.h"

#include "backend/client.h"
#include "backend/wait.h"
#include "shared/compat.h"
#include "shared/sleep.h"

/*
 * Maximum time to wait for a manager to start, unless the caller specifies a shorter wait.  Even a call that
 * must not wait allows MIN_PATIENCE, because a manager restarts in less time than that.
 */
#define PATIENCE     (5 * LE_SECOND)
#define MIN_PATIENCE (1 * LE_SECOND)

/* Time between two checks of the client's socket during a wait. */
#define CLIENT_PERIOD (1 * LE_SECOND)

/* Time between two checks for a manager, if none is running. */
#define ABSENT_PERIOD (10 * LE_MS)

/*
 * Period at which a wait checks its condition by itself, although the manager wakes up nearly all waiters:
 * POLL_PERIOD at first, later 1 / POLL_PART of the time waited.  The period grows because thousands of
 * sessions may wait for a manager that is stopped or loading.
 */
#define POLL_PERIOD (10 * LE_MS)
#define POLL_PART   8

static LeTime
poll_period(const LeWait *wait, LeTime now)
{
	return Max(POLL_PERIOD, (now - wait->began_at) / POLL_PART);
}

void
le_wait_begin(LeWait *wait, LeTime at_most_us, bool for_lock)
{
	LeTime now = le_clock(), timeout_us = (LeTime) LockTimeout * LE_MS;

	wait->began_at = now;
	wait->limit_at = at_most_us < 0 || at_most_us > LE_NEVER / 2 ? LE_NEVER : now + at_most_us;
	wait->next_look_at = now + CLIENT_PERIOD;
	wait->absent_at = 0;
	wait->absent_us = 0;
	wait->patience_us = at_most_us < 0 ? PATIENCE : Min(PATIENCE, Max(at_most_us, MIN_PATIENCE));

	/* a call that does not wait for holders still needs time for the manager's reply */
	if (!for_lock)
		timeout_us = Max(timeout_us, LE_TAKE_GRACE);
	Assert(wait->patience_us >= MIN_PATIENCE && wait->patience_us <= PATIENCE && wait->limit_at >= now);
	wait->lock_timeout_at = LockTimeout > 0 ? now + timeout_us : LE_NEVER;
}

bool
le_wait_is_over(const LeWait *wait, LeTime now, LeTime grace_us)
{
	return wait->limit_at != LE_NEVER && now - wait->limit_at >= grace_us;
}

void
le_want_manager(LeDatabase *db)
{
	Assert(!LWLockHeldByMe(le_shared->lock));
	if (pg_atomic_read_u32(&db->running) != 0)
		return;
	LWLockAcquire(le_shared->lock, LW_EXCLUSIVE);
	if (db->state == LE_DB_IDLE || db->state == LE_DB_STARTING)
		le_database_want(db);
	LWLockRelease(le_shared->lock);
	le_wake_launcher();
}

/*
 * Raises error 57P03, with the cause that the database entry shows.  patience_us: limit of the wait, for the
 * message.
 */
static void
raise_no_manager(LeTime patience_us)
{
	const char *name = get_database_name(MyDatabaseId);
	bool launcher, loading = false;
	int reserved_by = 0;
	LeDbExit why = LE_EXIT_NONE;
	LeDatabase *db;

	/* 1. read the database's entry */
	LWLockAcquire(le_shared->lock, LW_SHARED);
	launcher = le_shared->launcher_pid != 0;
	db = le_database_find(MyDatabaseId, false);
	if (db != NULL)
	{
		loading = pg_atomic_read_u32(&db->loading) != 0;
		reserved_by = db->reserved_by;
		why = db->exit;
	}
	LWLockRelease(le_shared->lock);

	/* 2. report the first cause that applies */
	ereport(
		ERROR,
		(errcode(ERRCODE_CANNOT_CONNECT_NOW),
		 errmsg("the lock_election manager of database \"%s\" is not running", name),
		 loading ? errdetail("It is still loading the locks of this database.")
		 : reserved_by != 0
			 ? errdetail("Process %d needs the database for a command such as DROP DATABASE.", reserved_by)
		 : !launcher ? errdetail("The lock_election launcher, which starts it, is not running.")
		 : why == LE_EXIT_NO_WORKER
			 ? errdetail("No background worker is free for it: max_worker_processes is %d.",
						 max_worker_processes)
			 : errdetail("It did not start within %.1f seconds.", (double) patience_us / LE_SECOND),
		 loading || reserved_by != 0 ? errhint("Try again later.")
		 : why == LE_EXIT_NO_WORKER
			 ? errhint("Raise max_worker_processes and restart the server.")
			 : errhint("See the server log.  The launcher and each manager need one of "
					   "max_worker_processes (%d).",
					   max_worker_processes)));
}

void
le_raise_if_no_manager(const LeWait *wait)
{
	LeDatabase *db;

	LWLockAcquire(le_shared->lock, LW_SHARED);
	db = le_database_find(MyDatabaseId, false);
	LWLockRelease(le_shared->lock);
	if (db == NULL || pg_atomic_read_u32(&db->running) == 0)
		raise_no_manager(wait->patience_us);
}

/*
 * Counts the time without a manager, and raises 57P03 when it reaches wait->patience_us.  Time in which a
 * manager loads does not count, because the database may have very many locks, and all their waiters need
 * that manager.
 */
static void
check_manager(LeWait *wait, LeDatabase *db, LeTime now)
{
	if (pg_atomic_read_u32(&db->running) != 0)
	{
		wait->absent_at = wait->absent_us = 0;
		return;
	}
	if (pg_atomic_read_u32(&db->loading) != 0)
	{
		/* do not count the turn in which the load ends, either */
		wait->absent_at = 0;
		return;
	}
	le_want_manager(db);
	if (wait->absent_at != 0)
		wait->absent_us += now - wait->absent_at;
	wait->absent_at = now;
	Assert(wait->absent_us >= 0 && wait->absent_us <= now);
	if (wait->absent_us >= wait->patience_us)
		raise_no_manager(wait->patience_us);
}

void
le_wait_turn(LeWait *wait, LeDatabase *db, LeTime until)
{
	LeTime now = le_clock();

	/* the wait must be cancellable */
	Assert(!LWLockHeldByMe(le_shared->lock) && InterruptHoldoffCount == 0 && CritSectionCount == 0);

	/* 1. check lock_timeout without a signal, and raise the same error as ProcessInterrupts() */
	if (now >= wait->lock_timeout_at)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE), errmsg("canceling statement due to lock timeout")));

	/* 2. check the client */
	if (now >= wait->next_look_at)
	{
		le_client_look_in_wait();
		CHECK_FOR_INTERRUPTS();
		wait->next_look_at = now + CLIENT_PERIOD;
	}

	/* 3. check the manager */
	if (db != NULL)
		check_manager(wait, db, now);

	/* 4. sleep; afterwards the caller checks its condition */
	until = Min(until, Min(wait->next_look_at, wait->lock_timeout_at));
	if (db != NULL && pg_atomic_read_u32(&db->running) == 0)
	{
		bool loading = pg_atomic_read_u32(&db->loading) != 0;

		until = Min(until, now + (loading ? poll_period(wait, now) : ABSENT_PERIOD));
	}
	Assert(wait->next_look_at > now && until <= now + CLIENT_PERIOD);
	le_sleep(until - now);
	le_sleep_reset();
	CHECK_FOR_INTERRUPTS();
}

void
le_wait_poll(LeWait *wait, LeDatabase *db)
{
	LeTime now = le_clock();

	/* without a database entry, poll often, because no process is woken up when an entry becomes free */
	le_wait_turn(wait, db, now + (db != NULL ? poll_period(wait, now) : POLL_PERIOD));
}
