/*
 * manager/txn.h
 *		Begins, commits and rolls back the transactions of the manager.
 */
#ifndef LE_MANAGER_TXN_H
#define LE_MANAGER_TXN_H

#include "access/xlogdefs.h"

#include "manager/state.h"

/*
 * le_txn_begin() begins a transaction. le_txn_commit() commits it, with or without a flush, and returns the
 * end of its WAL record.
 */
extern void le_txn_begin(void);
extern XLogRecPtr le_txn_commit(bool flush);
/*
 * Locks the tables, so that other sessions' locks cannot block or delay the writes of this batch.  Does not
 * wait: returns false if another session has locked one of the tables, or waits for such a lock.
 */
extern bool le_txn_lock_tables(Batch *batch);
/*
 * Logs the current error if "log" is set, and rolls back.  Called in PG_CATCH, inside or outside of a
 * transaction.  Returns a copy of the error, in the batch's memory context.
 */
extern ErrorData *le_txn_failed(bool log);
/*
 * Writes a WAL record that has no effect, and returns its LSN, which is after everything that was written
 * before.  Must not fail, because it runs after a commit.
 */
extern XLogRecPtr le_txn_log_nothing(void);

/*
 * Runs work() in a transaction, which work() commits.  Must not fail, because it serves no request: an error
 * in work() is logged and rolled back.
 */
extern void le_txn_chore(void (*work)(void));

#endif /* LE_MANAGER_TXN_H */
