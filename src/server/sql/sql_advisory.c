/*
 * sql/sql_advisory.c
 *		Implements the SQL functions for locks of PostgreSQL's own lock manager, by name.
 *
 * These are advisory locks like those of pg_advisory_lock(), but with a separate key space, so that they
 * never conflict with keys that the application uses.  They need neither shared memory nor a manager, so they
 * work without shared_preload_libraries, and on a standby if lock_election.advisory_on_standby is set.
 */
#include "postgres.h"

#include <limits.h>

#include "access/xlog.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/wait_event.h"

#include "shared/compat.h"
#include "shared/settings.h"
#include "sql/sql_args.h"

LE_FUNCTION(le_advisory_acquire);
LE_FUNCTION(le_advisory_release);

/*
 * The objsubid that pg_locks shows for these locks.  pg_advisory_lock() uses 1 for one 64-bit key and 2 for
 * two 32-bit keys.  Fences are not advisory locks but use LOCKTAG_USERLOCK.
 */
#define ADVISORY_SPACE 0x4C45 /* 19525, "LE" */

/*
 * Returns the tag of the lock with this name.  Its key is hashtextextended(name COLLATE "C", 0), so that SQL
 * can compute it.
 */
static LOCKTAG
advisory_tag(LeText name)
{
	uint64 key = hash_bytes_extended((const unsigned char *) name.data, (int) name.len, 0);
	LOCKTAG tag;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, (uint32) (key >> 32), (uint32) key, ADVISORY_SPACE);
	return tag;
}

static LOCKMODE
shared_arg(FunctionCallInfo fcinfo, int number)
{
	return !PG_ARGISNULL(number) && PG_GETARG_BOOL(number) ? ShareLock : ExclusiveLock;
}

/*
 * Returns the lock_timeout to use for this wait, in milliseconds.  Returns 0 if the wait has no limit, or if
 * the caller's own lock_timeout ends it first.
 */
static int
wait_timeout_ms(LeTime wait_us)
{
	int timeout_ms;

	if (wait_us > (LeTime) INT_MAX * LE_MS)
		return 0;
	timeout_ms = (int) ((wait_us + LE_MS - 1) / LE_MS);
	return LockTimeout == 0 || timeout_ms <= LockTimeout ? timeout_ms : 0;
}

/*
 * Waits in PostgreSQL's queue for at most timeout_ms; 0 = no limit.  The deadlock detector, timeouts and
 * cancels end the wait as usual.  The caller must not hold this lock in this mode yet.  Returns whether the
 * lock is held.
 *
 * To limit the wait, this function changes LockTimeout, the variable of the setting lock_timeout.  PostgreSQL
 * reads it only when it begins to sleep.  This function catches the error without a subtransaction, because
 * only the wait in the lock manager can be incomplete, and LockErrorCleanup() ends that wait.
 *
 * A timeout or a cancel may arrive together with the grant.  Then the interrupt may be pending when
 * LockAcquire() returns, and would interrupt the caller's next action.  Or LockAcquire() raises an error
 * although the lock is held, and a session-level lock would never be released.  So interrupts are handled
 * here: after a timeout, a held lock is kept; after any other error, it is released.
 */
static bool
wait_for_lock(const LOCKTAG *tag, LOCKMODE mode, bool session, int timeout_ms)
{
	MemoryContext context = CurrentMemoryContext;
	int user_timeout = LockTimeout;
	volatile bool held = true;

	/* 1. wait */
	PG_TRY();
	{
		if (timeout_ms > 0)
			LockTimeout = timeout_ms;
		(void) LockAcquire(tag, mode, session, false);
		CHECK_FOR_INTERRUPTS();
	}

	/* 2. after an error, keep the lock if the error was a timeout, otherwise release it */
	PG_CATCH();
	{
		LockTimeout = user_timeout;
		LockErrorCleanup();
		held = le_lock_held_by_me(tag, mode);
		if (timeout_ms == 0 || geterrcode() != ERRCODE_LOCK_NOT_AVAILABLE)
		{
			if (held)
				(void) LockRelease(tag, mode, session);
			PG_RE_THROW();
		}
		MemoryContextSwitchTo(context);
		FlushErrorState();
		pgstat_report_wait_end();
	}
	PG_END_TRY();
	LockTimeout = user_timeout;
	Assert(held == le_lock_held_by_me(tag, mode));
	return held;
}

/*
 * Raises an error on a standby, unless the setting allows these locks there.  A lock on a standby does not
 * exclude sessions on the primary: behind a proxy that sends SELECT to any server, two clients could hold the
 * same lock without noticing.
 */
static void
check_server(void)
{
	if (RecoveryInProgress() && !le_advisory_on_standby)
		ereport(ERROR, (errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
						errmsg("cannot use advisory locks during recovery"),
						errdetail("A lock on this standby would not exclude sessions on the primary."),
						errhint("Connect to the primary, or set lock_election.advisory_on_standby.")));
}

/* Implements advisory_acquire(name, wait, shared, scope). */
Datum
le_advisory_acquire(PG_FUNCTION_ARGS)
{
	LOCKTAG tag = advisory_tag(le_arg_name(fcinfo, LE_KIND_LOCK));
	LeTime wait_us = le_arg_wait(fcinfo, 1);
	LOCKMODE mode = shared_arg(fcinfo, 2);
	bool session = le_arg_is_first(fcinfo, 3, "scope", "session", "transaction");

	check_server();
	if (LockAcquire(&tag, mode, session, true) != LOCKACQUIRE_NOT_AVAIL)
		PG_RETURN_BOOL(true);
	if (wait_us == 0)
		PG_RETURN_BOOL(false);
	PG_RETURN_BOOL(wait_for_lock(&tag, mode, session, wait_timeout_ms(wait_us)));
}

/* Implements advisory_release(name, shared). */
Datum
le_advisory_release(PG_FUNCTION_ARGS)
{
	LOCKTAG tag = advisory_tag(le_arg_name(fcinfo, LE_KIND_LOCK));

	PG_RETURN_BOOL(LockRelease(&tag, shared_arg(fcinfo, 1), true));
}
