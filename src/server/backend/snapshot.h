/*
 * backend/snapshot.h
 *		Lets a call wait without a snapshot, where that is provably safe.
 */
#ifndef LE_SNAPSHOT_H
#define LE_SNAPSHOT_H

#include "fmgr.h"

/*
 * Returns whether this call is the only thing that its transaction does.  Returns false where more may
 * follow: in a transaction block, in a pipeline, and in a process without a client.
 */
extern bool le_call_is_alone(FunctionCallInfo fcinfo);
/*
 * Like le_call_is_alone(), but the rows that the call returns may also be passed to PostgreSQL's own
 * immutable functions.  These may fail after the call, so this is only for calls whose effects survive an
 * error.
 */
extern bool le_call_is_computed_with(FunctionCallInfo fcinfo);

/*
 * Gives up the statement's snapshot for a wait, if the statement consists only of this call and nothing else
 * needs the snapshot.  Returns whether it has done so.  The caller must then call le_snapshot_take() after
 * the wait, before any access to a catalog.  After an error that is not necessary, because the transaction is
 * aborted.
 */
extern bool le_snapshot_give_up(FunctionCallInfo fcinfo);
extern void le_snapshot_take(void);

/*
 * Called after a lock was granted, at once or after a wait that kept the snapshot.  Returns whether the
 * transaction will still read with a snapshot that is older than the grant.
 */
extern bool le_snapshot_is_stale(FunctionCallInfo fcinfo, bool waited);

#endif /* LE_SNAPSHOT_H */
