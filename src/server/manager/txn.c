/*
 * manager/txn.c
 *		Begins, commits and rolls back the transactions of batches and chores.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "catalog/pg_control.h"
#include "pgstat.h"
#include "storage/lwlock.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "manager/state.h"
#include "manager/txn.h"

void
le_txn_begin(void)
{
	Assert(!IsTransactionState());
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
}

bool
le_txn_lock_tables(Batch *batch)
{
	Assert(!batch->locked);
	if (!batch->begun)
		le_txn_begin();
	batch->begun = true;
	batch->locked = le_store_lock();
	le_core_set_writable(le_mgr.core, batch->locked);
	return batch->locked;
}

/*
 * Commits the transaction.  A batch commits without a flush: when its replies are given, its commit record is
 * only in the WAL buffers.  A session whose reply depends on that record (LeReply.lsn) waits for the flush of
 * that record before its statement returns, unless its synchronous_commit is off, see shared/flush.h.  So no
 * client sees a grant that a crash can undo, and one flush serves many batches.  The manager itself flushes
 * only a new incarnation, for which no session waits, and which must be on disk before a token uses it.
 * test/t/029_crash.t fails if a reply does not wait for its flush, and 021_tables.t fails if it does not wait
 * for the commit.
 */
XLogRecPtr
le_txn_commit(bool flush)
{
	Assert(IsTransactionState() && ActiveSnapshotSet());
	PopActiveSnapshot();

	/* set only the variable; the setting stays "local", so that the commit does not wait for a standby */
	synchronous_commit = flush ? SYNCHRONOUS_COMMIT_LOCAL_FLUSH : SYNCHRONOUS_COMMIT_OFF;
	CommitTransactionCommand();
	synchronous_commit = SYNCHRONOUS_COMMIT_LOCAL_FLUSH;
	Assert(!IsTransactionState());
	MemoryContextSwitchTo(le_mgr.batch_context);
	return XactLastCommitEnd;
}

/*
 * Writes a record for callers whose request wrote nothing (a renewal, is_held(), a lock that is already
 * held), so that they can wait until a standby has the record.  So a primary that is cut off from its
 * synchronous standbys confirms nothing.
 */
XLogRecPtr
le_txn_log_nothing(void)
{
	uint32 nothing = 0;

	XLogBeginInsert();
	XLogRegisterData((char *) &nothing, sizeof(nothing));
	return XLogInsert(RM_XLOG_ID, XLOG_NOOP);
}

ErrorData *
le_txn_failed(bool log)
{
	ErrorData *error;

	/*
	 * Call LWLockReleaseAll() first: outside of a transaction, neither an abort nor an error in this function
	 * would release LWLocks.
	 */
	LWLockReleaseAll();
	MemoryContextSwitchTo(le_mgr.batch_context);
	error = CopyErrorData();
	if (log)
		EmitErrorReport();
	FlushErrorState();
	AbortCurrentTransaction();
	MemoryContextSwitchTo(le_mgr.batch_context);
	return error;
}

void
le_txn_chore(void (*work)(void))
{
	Assert(!IsTransactionState());
	PG_TRY();
	{
		MemoryContextReset(le_mgr.batch_context);
		MemoryContextSwitchTo(le_mgr.batch_context);
		le_txn_begin();
		if (le_store_find() && le_store_is_claimed())
			work();
		else
			(void) le_txn_commit(false);
		pgstat_report_stat(false);
	}
	PG_CATCH();
	{
		(void) le_txn_failed(true);
	}
	PG_END_TRY();
	Assert(!IsTransactionState());
}
