/*
 * manager/outage.c
 *		Handles outages: times in which nothing can be written, for whatever reason.
 *
 * A batch that writes first locks its tables, without waiting.  If another session has locked them, or waits
 * for such a lock, nothing of the batch is applied, and the core is unchanged.  If a batch gets no
 * transaction id, the core must be loaded again, after which it agrees with the tables.  In both cases the
 * core can still be read, and leases can be renewed.  (A full disk is no outage, because writes that need no
 * room succeed.  A locked row is no outage, and neither is a locked history table, because only changes of
 * elections need that table: see replay.c.)  During an outage:
 *
 *	1.	Requests that need not write (renewals, checks, fences, pages of views) are served, if their replies
 *		depend on nothing unwritten (looks.c).
 *	2.	All other requests wait in their mailboxes for WRITE_LIMIT, and then fail with the error.  Mail stays
 *		in the mailbox, and is never lost.
 *	3.	Nothing expires, and nothing is granted.
 *	4.	Batches are retried: very soon if a failure costs nothing, after a second or more if it requires a
 *		load.  Before such a retry, the row of table meta is written as a test, so that most failures cost
 *		nothing.
 *	5.	Calls whose own wait has timed out get their replies.  The next batch that can be written ends these
 *		waits in the core (le_outage_end_waits()).
 *
 * Deadlines do not move, because clients can renew during the outage.  Everything that was due meanwhile
 * expires with the first batch that can be written, after all renewals that have arrived by then.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/timestamp.h"

#include "manager/answer.h"
#include "manager/outage.h"
#include "manager/state.h"
#include "manager/txn.h"

/* Time for which a request that must write waits for the end of an outage. */
#define WRITE_LIMIT (200 * LE_MS)

/*
 * Pauses between two tries: while tables are locked (LOCKED_*), and after a failed batch (FAILED_*), where
 * the pause doubles with each failure.
 */
#define LOCKED_PAUSE (20 * LE_MS)
#define LOCKED_LONG  (100 * LE_MS) /* used once the tables have been locked for a second */
#define FAILED_PAUSE (1 * LE_SECOND)
#define FAILED_MOST  (8 * LE_SECOND)

/* Time between two searches for the process that has locked the tables. */
#define LOOK_FOR_BLOCKER (1 * LE_SECOND)

static ErrorData reason; /* error that caused the outage */
static char reason_text[LE_MESSAGE_SIZE];
static LeTime looked_at;

/* Time of the last failed batch, by le_clock(), and the pause after that batch. */
static LeTime failed_at;
static LeTime failed_pause = FAILED_PAUSE;
static bool waits_ended; /* calls got replies during the outage, but still wait in the core */

/* --- reports for health() --- */

/*
 * Returns the pid of a process that has locked one of the extension's tables against writes, or waits for
 * such a lock; 0 = none.
 */
static int
find_blocker(void)
{
	LockData *locks = GetLockStatusData();
	int pid = 0;

	for (int i = 0; i < locks->nelements && pid == 0; i++)
	{
		const LockInstanceData *lock = &locks->locks[i];
		LOCKMASK conflicts = LOCKBIT_ON(ShareLock) | LOCKBIT_ON(ShareRowExclusiveLock) |
							 LOCKBIT_ON(ExclusiveLock) | LOCKBIT_ON(AccessExclusiveLock);

		if (lock->locktag.locktag_type != LOCKTAG_RELATION || lock->locktag.locktag_field1 != MyDatabaseId ||
			!le_store_has_table(lock->locktag.locktag_field2))
			continue;
		if ((lock->holdMask & conflicts) != 0 || (LOCKBIT_ON(lock->waitLockMode) & conflicts) != 0)
			pid = lock->pid;
	}
	return pid;
}

/* Publishes the pid of a process that has locked the tables.  Errors are logged. */
static void
publish_blocker(void)
{
	PG_TRY();
	{
		pg_atomic_write_u32(&le_mgr.db->outage_pid, (uint32) find_blocker());
	}
	PG_CATCH();
	{
		(void) le_txn_failed(true);
	}
	PG_END_TRY();
}

/* Publishes the outage and its cause for health(). */
static void
publish(void)
{
	LeDatabase *db = le_mgr.db;
	LeTime now = le_clock();

	if (le_mgr.outage.since == 0)
	{
		pg_atomic_write_u64(&db->outage_since, 0);
		return;
	}
	if (le_mgr.outage.failed)
		pg_atomic_write_u64(&db->outage_failed_at, (uint64) now);
	pg_atomic_write_u32(&db->outage_sqlstate, (uint32) reason.sqlerrcode);
	if (reason.sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
		pg_atomic_write_u32(&db->outage_pid, 0);
	else if (now - looked_at >= LOOK_FOR_BLOCKER)
	{
		looked_at = now;
		publish_blocker();
	}
	pg_write_barrier();
	pg_atomic_write_u64(&db->outage_since, (uint64) (GetCurrentTimestamp() - (now - le_mgr.outage.since)));
}

/* --- beginning and end --- */

/* Begins an outage, unless one has begun already, and sets its reason. */
static void
begin(int sqlstate, const char *message)
{
	if (le_mgr.outage.since == 0)
	{
		le_mgr.outage.since = le_clock();
		le_mgr.outage.core_since = core_now();
		looked_at = 0;
	}
	reason.sqlerrcode = sqlstate;
	strlcpy(reason_text, message, sizeof(reason_text));
	reason.message = reason_text;
}

void
le_outage_locked(const ErrorData *error)
{
	if (error != NULL && error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
		begin(error->sqlerrcode, error->message);
	else
		begin(ERRCODE_LOCK_NOT_AVAILABLE,
			  "the tables of extension lock_election are locked by another session");
	le_mgr.outage.try_at =
		le_clock() + (le_clock() - le_mgr.outage.since < LE_SECOND ? LOCKED_PAUSE : LOCKED_LONG);
	publish();
}

void
le_outage_failed(const ErrorData *error)
{
	LeTime now = le_clock();

	/*
	 * A long pause stays long when an outage ends, because a small write may have ended the outage although
	 * larger writes still fail.
	 */
	failed_pause = now - failed_at < 2 * FAILED_MOST ? Min(2 * failed_pause, FAILED_MOST) : FAILED_PAUSE;
	failed_at = now;
	begin(error->sqlerrcode, error->message);
	le_mgr.outage.failed = true;
	le_mgr.outage.try_at = now + failed_pause;
	publish();
}

void
le_outage_over(void)
{
	if (le_mgr.outage.since == 0)
		return;

	/* do not count the outage as run time, so that it shortens no lease, see core/life.h */
	le_mgr.life_began += core_now() - le_mgr.outage.core_since;
	memset(&le_mgr.outage, 0, sizeof(le_mgr.outage));
	publish();
}

/* --- retries --- */

/* Writes the row of table meta, which is the cheapest write with the same requirements as all others. */
static void
write_meta(void)
{
	bool written = le_store_write_life(&le_mgr.meta);

	(void) le_txn_commit(false);
	if (written)
		le_outage_over();
}

bool
le_outage_allows_batch(void)
{
	LeTime now = le_clock();

	if (le_mgr.outage.since == 0 || !le_mgr.outage.failed)
		return true;
	if (now < le_mgr.outage.try_at)
		return false;
	le_mgr.outage.try_at = now + FAILED_PAUSE;
	le_txn_chore(write_meta);
	if (le_mgr.outage.since == 0)
		return true;
	failed_at = le_clock();
	publish();
	return false;
}

bool
le_outage_explains(const ErrorData *error, bool has_xid)
{
	return error->sqlerrcode == ERRCODE_PROGRAM_LIMIT_EXCEEDED && !has_xid;
}

void
le_outage_note(const ErrorData *error)
{
	pg_atomic_write_u32(&le_mgr.db->outage_pid, 0);
	if (error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)
		publish_blocker();

	/* ignore a locked row, which blocks only the requests that need that row */
	if (error->sqlerrcode != ERRCODE_DISK_FULL && error->sqlerrcode != ERRCODE_IO_ERROR &&
		pg_atomic_read_u32(&le_mgr.db->outage_pid) == 0)
		return;
	pg_atomic_write_u32(&le_mgr.db->outage_sqlstate, (uint32) error->sqlerrcode);
	pg_write_barrier();
	pg_atomic_write_u64(&le_mgr.db->outage_failed_at, (uint64) le_clock());
}

/* --- requests in an outage --- */

bool
le_request_looks(const LeMailbox *box)
{
	const LeCommand *cmd = &box->command;

	if (box->type == LE_REQUEST_SYNC)
		return box->sync_items == 0;
	if (box->type != LE_REQUEST_COMMAND)
		return true;
	switch (cmd->type)
	{
		case LE_CMD_CHECK:
		case LE_CMD_KEEP_ALIVE:
		case LE_CMD_LEASE_TTL:
		case LE_CMD_LEASE_HOLDS:
			return true;
		case LE_CMD_RENEW:
			return cmd->ttl == 0;
		default:
			return false;
	}
}

void
le_outage_refuse(const Batch *batch)
{
	LeTime now = le_clock();

	for (int i = 0; i < batch->n; i++)
	{
		uint32 proc = batch->procs[i], number = le_mgr.looked[proc];
		LeMailbox *box = mailbox_of(proc);
		LeTime waits_since = le_mgr.outage.since;

		/* posted_at belongs to request "number" only until that request has a reply */
		if (pg_atomic_read_u32(&box->answered) != number)
			waits_since = Max(waits_since, box->posted_at);
		if (le_mgr.outage.failed || now - waits_since >= WRITE_LIMIT)
			le_answer_failed_one(proc, number, &reason);
	}

	/* requests that still wait, and mail, are served by the next retry */
	le_mgr.retry_at = le_mgr.outage.try_at;
}

void
le_outage_withdraw(uint32 proc)
{
	le_answer_withdrawn(proc);
	waits_ended = true;
}

void
le_outage_end_calls(void)
{
	LeTime now = le_clock();
	XLogRecPtr confirmed = 0;

	for (int i = 0; i < le_shared->max_sessions; i++)
	{
		LeMailbox *box = mailbox_of(i);
		LeReply reply = {.status = LE_NOT_GRANTED};

		if (box->session == 0 || box->revision == 0 || box->type != LE_REQUEST_COMMAND ||
			box->command.wait <= 0 || now - box->posted_at < box->command.wait)
			continue;
		if (box->command.type == LE_CMD_AWAIT)
			reply = (LeReply){.status = LE_QUEUED, .token = box->command.token};

		/* let the session wait until the standby has received a new record, and so also the place's row */
		if (le_answer_needs_standby(box, &reply))
			reply.lsn = confirmed = confirmed != 0 ? confirmed : le_txn_log_nothing();
		le_answer_request(i, pg_atomic_read_u32(&box->posted), &reply, now);
		waits_ended = true;
	}
}

void
le_outage_end_waits(LeTime now)
{
	if (!waits_ended)
		return;
	waits_ended = false;
	for (int i = 0; i < le_shared->max_sessions; i++)
	{
		LeMailbox *box = mailbox_of(i);
		const LeEntry *entry = box->session != 0 ? le_core_waiting_on(le_mgr.core, box->session, i) : NULL;

		/* the session of the entry has got its reply, or waits for another request */
		if (entry != NULL &&
			(!is_unanswered(box) || entry->waiter->request != pg_atomic_read_u32(&box->posted)))
			le_core_stop_waiting(le_mgr.core, box->session, i, now);
	}
}
