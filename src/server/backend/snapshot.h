/*
 * backend/snapshot.h
 *		Lets a call wait without a snapshot, where that is provably safe.
 */
#ifndef LE_SNAPSHOT_H
#define LE_SNAPSHOT_H

#include "fmgr.h"

/*
 * Returns whether this call is the only action of its transaction.  Returns false where more may follow: in a
 * transaction block, in a pipeline, and in a process without a client.
 */
extern bool le_call_is_alone(FunctionCallInfo fcinfo);
/*
 * Returns the same as le_call_is_alone(), but also allows that the rows of the call are passed to
 * PostgreSQL's own immutable functions.  These may fail after the call, so this test is only for calls whose
 * effects survive an error.
 */
extern bool le_call_is_computed_with(FunctionCallInfo fcinfo);

/*
 * le_snapshot_give_up() gives up the statement's snapshot for a wait, if the statement consists only of this
 * call and nothing else needs the snapshot.  Returns whether it has given up the snapshot.  If so, the caller
 * must call le_snapshot_take() after the wait, before any access to a catalog.  It need not do so after an
 * error, because the transaction is then aborted.
 */
extern bool le_snapshot_give_up(FunctionCallInfo fcinfo);
extern void le_snapshot_take(void);

/*
 * Called after a lock was granted, at once or after a wait that kept the snapshot.  Returns whether the
 * transaction will still read with a snapshot that is older than the grant.
 */
extern bool le_snapshot_is_stale(FunctionCallInfo fcinfo, bool waited);

#endif /* LE_SNAPSHOT_H */
