/*
 * backend/snapshot.h
 *		Waiting without a snapshot, where that is provably safe.
 */
#ifndef LE_SNAPSHOT_H
#define LE_SNAPSHOT_H

#include "fmgr.h"

/*
 * Is this call all that its transaction consists of?  False where more may follow:
 * in a transaction block, in a pipeline, and in a process without a client.
 */
extern bool le_call_is_alone(FunctionCallInfo fcinfo);
/*
 * The same, or its rows are computed with by PostgreSQL's own immutable functions.  They may fail after the
 * call: for a call whose effects stay then.
 */
extern bool le_call_is_computed_with(FunctionCallInfo fcinfo);

/*
 * Give up the statement's snapshot for a wait, if the call is bare and
 * nothing else needs it.  After the wait, and also before anything that looks
 * at a catalog, call le_snapshot_take().  After an error the transaction is
 * aborted and nothing has to be done.
 */
extern bool le_snapshot_give_up(FunctionCallInfo fcinfo);
extern void le_snapshot_take(void);

/*
 * A lock was granted, after a wait that kept the snapshot or at once.  Does
 * the transaction go on to read with a snapshot that is older than that?
 */
extern bool le_snapshot_is_stale(FunctionCallInfo fcinfo, bool waited);

#endif /* LE_SNAPSHOT_H */
