/*
 * backend/snapshot.h
 *		Waiting without a snapshot, where that is provably safe.
 */
#ifndef LE_SNAPSHOT_H
#define LE_SNAPSHOT_H

#include "fmgr.h"

/*
 * Is this call the only thing that its transaction does?  False where more may follow: in a
 * transaction block, in a pipeline, and in a process without a client.
 */
extern bool le_call_is_alone(FunctionCallInfo fcinfo);
/*
 * The same, but its rows may also be passed through PostgreSQL's own immutable functions.  These
 * may fail after the call, so this is only for calls whose effects survive an error.
 */
extern bool le_call_is_computed_with(FunctionCallInfo fcinfo);

/*
 * Gives up the statement's snapshot for a wait, if the statement is nothing but this call and
 * nothing else needs the snapshot.  Returns whether it did.  After the wait, and before anything
 * that looks at a catalog, call le_snapshot_take().  After an error nothing has to be done: the
 * transaction is aborted.
 */
extern bool le_snapshot_give_up(FunctionCallInfo fcinfo);
extern void le_snapshot_take(void);

/*
 * Called when a lock was granted, at once or after a wait that kept the snapshot.  Will the
 * transaction go on to read with a snapshot that is older than the grant?
 */
extern bool le_snapshot_is_stale(FunctionCallInfo fcinfo, bool waited);

#endif /* LE_SNAPSHOT_H */
