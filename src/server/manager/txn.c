/*
 * manager/txn.c
 *		Transactions of the manager: of batches, and of chores between them.
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

#include "manager/manager.h"

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
 * The rule for flushes.  A batch is committed without one: when its replies are given, its commit record is
 * only in the WAL buffers.  A session whose reply rests on it (LeReply.lsn) has the WAL flushed that far
 * before its statement returns, unless its synchronous_commit is off; see shared/flush.h.  So no client sees
 * a grant that a crash takes back, and one flush serves many batches.  The manager itself flushes only what
 * no session waits for: the incarnation, which is on disk before a token uses it.  test/t/029_crash.t fails
 * if a reply does not wait for its flush, and 021_tables.t if it does not wait for the commit.
 */
XLogRecPtr
le_txn_commit(bool flush)
{
	Assert(IsTransactionState() && ActiveSnapshotSet());
	PopActiveSnapshot();

	/* set only the variable: the setting stays "local", which keeps the commit from waiting for a standby */
	synchronous_commit = flush ? SYNCHRONOUS_COMMIT_LOCAL_FLUSH : SYNCHRONOUS_COMMIT_OFF;
	CommitTransactionCommand();
	synchronous_commit = SYNCHRONOUS_COMMIT_LOCAL_FLUSH;
	Assert(!IsTransactionState());
	MemoryContextSwitchTo(le_mgr.batch_context);
	return XactLastCommitEnd;
}

/*
 * Write a record for callers whose request wrote nothing (a renewal, is_held(), a lock that is held already),
 * so that they can wait for it: a primary that is cut off from its synchronous standbys confirms nothing.
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

	/* First of all: outside of a transaction an abort releases no LWLocks, nor would an error in here. */
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
