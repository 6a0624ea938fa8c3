/*
 * backend/durability.c
 *		Makes a session wait until a reply is as durable as synchronous_commit requires.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "replication/syncrep.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "utils/elog.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/timeout.h"

#include "backend/durability.h"
#include "backend/session_mailbox.h"
#include "shared/compat.h"
#include "shared/fault.h"
#include "shared/flush.h"
#include "shared/settings.h"
#include "shared/shmem.h"

static volatile sig_atomic_t wait_over = false; /* the timeout of le_confirmed_by() has fired */

bool
le_needs_flush(void)
{
	return synchronous_commit > SYNCHRONOUS_COMMIT_OFF || le_min_durability > LE_DURABLE_OFF;
}

bool
le_needs_standby(void)
{
	return synchronous_commit > SYNCHRONOUS_COMMIT_LOCAL_FLUSH || le_min_durability == LE_DURABLE_REMOTE;
}

bool
le_release_waits(void)
{
	return le_durable_release || le_waits_for_standby(le_needs_standby());
}

static void
raise_no_standby(void)
{
	ereport(ERROR, (errcode(ERRCODE_CANNOT_CONNECT_NOW), errmsg("no synchronous standby is defined"),
					errdetail("lock_election.min_durability is set to remote, so nothing can be granted or "
							  "confirmed without one."),
					errhint("Set synchronous_standby_names, or have the cluster manager set it.")));
}

/*
 * Returns whether lock_election.min_durability = remote makes this command require a synchronous standby,
 * even if none is defined.  Commands that only release or read do not require one, because no work
 * relies on their result.
 */
static bool
must_have_standby(LeCommandType type)
{
	if (le_min_durability != LE_DURABLE_REMOTE)
		return false;
	switch (type)
	{
		case LE_CMD_ACQUIRE:
		case LE_CMD_AWAIT:
		case LE_CMD_RENEW:
		case LE_CMD_CHECK:
		case LE_CMD_PROCLAIM:
		case LE_CMD_GRANT_LEASE:
		case LE_CMD_KEEP_ALIVE:
		case LE_CMD_LEASE_HOLDS:
			return true;
		default:
			return false;
	}
}

void
le_check_standby_defined(LeCommandType type)
{
	if (must_have_standby(type) && (max_wal_senders == 0 || !le_sync_standbys_defined()))
		raise_no_standby();
}

/* Returns whether there are no synchronous standbys, and the current request does not require one. */
static bool
does_without_standby(void)
{
	return !le_sync_standbys_defined() &&
		   !(le_my_mailbox->type == LE_REQUEST_COMMAND && must_have_standby(le_my_mailbox->command.type));
}

/* Returns synchronous_commit, or the higher level that lock_election.min_durability requires. */
static int
commit_level(void)
{
	return le_min_durability == LE_DURABLE_REMOTE ? Max(synchronous_commit, SYNCHRONOUS_COMMIT_REMOTE_FLUSH)
												  : synchronous_commit;
}

/* Returns PostgreSQL's mode of waiting for standbys that corresponds to commit_level(). */
static int
sync_rep_mode(void)
{
	switch (commit_level())
	{
		case SYNCHRONOUS_COMMIT_REMOTE_WRITE:
			return SYNC_REP_WAIT_WRITE;
		case SYNCHRONOUS_COMMIT_REMOTE_FLUSH:
			return SYNC_REP_WAIT_FLUSH;
		case SYNCHRONOUS_COMMIT_REMOTE_APPLY:
			return SYNC_REP_WAIT_APPLY;
		default:
			return SYNC_REP_NO_WAIT;
	}
}

static bool
waits_for_none(int mode)
{
	return mode == SYNC_REP_NO_WAIT || max_wal_senders == 0 || does_without_standby();
}

/*
 * Waits for standbys with PostgreSQL's own function, at commit_level().  Records in the mailbox when the wait
 * began, for health().  Must not fail, because COMMIT calls it, too.
 */
static void
wait_at_level(XLogRecPtr lsn)
{
	int level = synchronous_commit;

	Assert(InterruptHoldoffCount > 0 && !XLogRecPtrIsInvalid(lsn));
	synchronous_commit = commit_level();
	le_my_mailbox->confirming_replay = synchronous_commit == SYNCHRONOUS_COMMIT_REMOTE_APPLY;
	pg_write_barrier();
	pg_atomic_write_u64(&le_my_mailbox->confirming_since, (uint64) le_clock());
	assign_synchronous_commit(synchronous_commit, NULL);
	SyncRepWaitForLSN(lsn, true);
	synchronous_commit = level;
	assign_synchronous_commit(level, NULL);
	pg_atomic_write_u64(&le_my_mailbox->confirming_since, 0);
}

/*
 * Waits like wait_at_level(), but suppresses PostgreSQL's warning about a cancelled wait, because the caller
 * reports the cancel itself.
 */
static void
wait_in_silence(XLogRecPtr lsn)
{
	int log_level = le_log_min_messages, client_level = client_min_messages;

	le_log_min_messages = ERROR;
	client_min_messages = ERROR;
	wait_at_level(lsn);
	le_log_min_messages = log_level;
	client_min_messages = client_level;
}

/*
 * Records a wait for standbys that was given up.  Without this record, health() would not notice that the
 * standbys confirm nothing if all clients have short timeouts.  If an older record is still unconfirmed,
 * keeps the older one.  Exception: a wait of another mode replaces a wait for replay, because health()
 * ignores waits for replay for most callers.
 */
static void
note_given_up(XLogRecPtr lsn, int mode, LeTime since)
{
	LeDatabase *db = le_my_database();
	uint32 noted;

	LWLockAcquire(SyncRepLock, LW_EXCLUSIVE);
	noted = pg_atomic_read_u32(&db->unconfirmed_mode);
	if (pg_atomic_read_u64(&db->unconfirmed_since) == 0 ||
		pg_atomic_read_u64(&db->unconfirmed_lsn) <= WalSndCtl->lsn[noted] ||
		(noted == SYNC_REP_WAIT_APPLY && mode != SYNC_REP_WAIT_APPLY))
	{
		pg_atomic_write_u64(&db->unconfirmed_since, 0);
		pg_write_barrier();
		pg_atomic_write_u64(&db->unconfirmed_lsn, lsn);
		pg_atomic_write_u32(&db->unconfirmed_mode, (uint32) mode);
		pg_write_barrier();
		pg_atomic_write_u64(&db->unconfirmed_since, (uint64) since);
	}
	LWLockRelease(SyncRepLock);
}

/*
 * Waits until the standbys have confirmed the LSN or the wait is cancelled.  Returns whether they have
 * confirmed it.
 */
static bool
wait_confirmed(XLogRecPtr lsn, int mode)
{
	LeTime since = le_clock();
	bool confirmed;

	wait_in_silence(lsn);
	LWLockAcquire(SyncRepLock, LW_SHARED);
	confirmed = lsn <= WalSndCtl->lsn[mode] || does_without_standby();
	LWLockRelease(SyncRepLock);
	if (!confirmed)
		note_given_up(lsn, mode, since);
	return confirmed;
}

/*
 * Returns the error detail for a cancelled wait for standbys.  It states the effect of the request on this
 * server.
 */
static int
unconfirmed_detail(void)
{
	switch (le_my_mailbox->command.type)
	{
		case LE_CMD_ACQUIRE:
			return errdetail(
				"It was granted locally, but might not have been replicated; it will be released.");
		case LE_CMD_RENEW:
		case LE_CMD_KEEP_ALIVE:
			return errdetail(
				"It was renewed locally, but the renewal might not have been replicated: do not rely on it.");
		case LE_CMD_RELEASE:
		case LE_CMD_FORCE:
		case LE_CMD_EVICT:
		case LE_CMD_PROCLAIM:
		case LE_CMD_SET_PERMITS:
		case LE_CMD_GRANT_LEASE:
		case LE_CMD_REVOKE_LEASE:
		case LE_CMD_ADVANCE:
			return errdetail("The request has taken effect locally, but might not have been replicated.");
		default:
			return errdetail("The state that this server reports might not have been replicated.");
	}
}

/*
 * Waits until the synchronous standbys have confirmed this LSN.  Raises an error if the wait is
 * cancelled; the rollback then releases an unconfirmed grant.
 */
static void
wait_for_standbys(XLogRecPtr lsn)
{
	int mode = sync_rep_mode();
	bool confirmed;

	if (waits_for_none(mode))
		return;

	/*
	 * 1. Wait.  PostgreSQL's wait requires that interrupts are held off, but a cancel still ends it.
	 * wait_confirmed() suppresses PostgreSQL's warning that the transaction has already committed locally,
	 * because that is only true at a commit.
	 */
	HOLD_INTERRUPTS();
	confirmed = wait_confirmed(lsn, mode);
	RESUME_INTERRUPTS();

	/* 2. check whether the wait was cancelled */
	CHECK_FOR_INTERRUPTS();
	if (confirmed)
		return;
	if (!le_sync_standbys_defined())
		raise_no_standby();
	ereport(ERROR, (errcode(ERRCODE_QUERY_CANCELED),
					errmsg("canceling wait for the replication of %s",
						   le_my_mailbox->command.kind == LE_KIND_ELECTION ? "an election" : "a lock"),
					unconfirmed_detail()));
}

/* Timeout handler.  Ends the wait for standbys as a cancel would. */
static void
end_wait(void)
{
	wait_over = true;
	InterruptPending = true;
	QueryCancelPending = true;
	SetLatch(MyLatch);
}

bool
le_confirmed_by(uint64_t lsn, LeTime until)
{
	static TimeoutId timeout = MAX_TIMEOUTS;
	int mode = sync_rep_mode();
	LeTime left = until - le_clock();
	bool confirmed;

	if (waits_for_none(mode))
		return true;
	if (timeout == MAX_TIMEOUTS)
		timeout = RegisterTimeout(USER_TIMEOUT, end_wait);
	HOLD_INTERRUPTS();
	wait_over = false;
	enable_timeout_after(timeout, (int) Max(1, Min(left / LE_MS, INT_MAX)));
	confirmed = wait_confirmed((XLogRecPtr) lsn, mode);
	disable_timeout(timeout, false);

	/*
	 * the cancel from end_wait() is still pending if the wait ended just before the timeout fired: clear it
	 */
	if (wait_over)
		QueryCancelPending = false;
	RESUME_INTERRUPTS();
	CHECK_FOR_INTERRUPTS();
	return confirmed;
}

bool
le_durable_in_time(const LeReply *reply)
{
	if (reply->lsn != 0 && le_needs_flush())
	{
		Assert(!LWLockHeldByMe(le_shared->lock) && CritSectionCount == 0);
		LE_FAULT("durable-before");
		if (le_renewal_is_raised(reply, le_needs_standby()))
			return true;
		Assert((XLogRecPtr) reply->lsn <= GetFlushRecPtr(NULL)); /* le_request() has waited for the flush */
		wait_for_standbys((XLogRecPtr) reply->lsn);
		LE_FAULT("durable-after");
	}
	return reply->valid_for == 0 || le_valid_for(reply) > 0;
}

LeTime
le_valid_for(const LeReply *reply)
{
	LeTime passed = le_clock() - le_my_mailbox->reply_as_of;

	Assert(reply->valid_for >= 0 && passed >= 0 && le_my_mailbox->reply_as_of > 0);
	if (reply->valid_for == LE_NEVER)
		return LE_NEVER;
	return Max(reply->valid_for - passed, 0);
}

void
le_wait_durable(const LeReply *reply, const char *what, LeText name)
{
	if (!le_durable_in_time(reply))
		ereport(ERROR,
				(errcode(MAKE_SQLSTATE('L', 'E', '0', '0', '1')),
				 errmsg("%s \"%.*s\" was lost while waiting for durability", what, (int) name.len, name.data),
				 errdetail("It expired before the flush completed or the standbys confirmed it.")));
}

/* --- called at a commit --- */

void
le_warn_committed(int sqlstate, const char *message, const char *detail, const char *hint)
{
	MemoryContext context = CurrentMemoryContext;
	uint32 interrupts = InterruptHoldoffCount;

	Assert(QueryCancelHoldoffCount == 0);
	PG_TRY();
	{
		ereport(WARNING,
				(errcode(sqlstate), errmsg("%s", message), detail != NULL ? errdetail("%s", detail) : 0,
				 hint != NULL ? errhint("%s", hint) : 0));
	}
	PG_CATCH();
	{
		/* restore the state that the error has changed, because the transaction has committed */
		InterruptHoldoffCount = interrupts;
		MemoryContextSwitchTo(context);
		FlushErrorState();
	}
	PG_END_TRY();
	Assert(InterruptHoldoffCount == interrupts && CurrentMemoryContext == context);
}

void
le_wait_durable_commit(uint64_t lsn)
{
	int mode = sync_rep_mode();

	Assert(lsn <= (uint64_t) GetXLogInsertRecPtr());
	if (lsn == 0 || !le_needs_flush())
		return;
	XLogFlush(lsn);
	Assert(lsn <= GetFlushRecPtr(NULL));
	if (waits_for_none(mode))
		return;
	if (!wait_confirmed(lsn, mode)) /* the caller already holds off interrupts */
		le_warn_committed(ProcDiePending ? ERRCODE_ADMIN_SHUTDOWN : ERRCODE_WARNING,
						  ProcDiePending
							  ? "canceling wait for synchronous replication and terminating connection"
							  : "canceling wait for synchronous replication due to user request",
						  "The transaction has already committed locally, but might not have been replicated "
						  "to the standby.",
						  NULL);
}
