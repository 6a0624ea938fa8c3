/*
 * backend/snapshot.h
 *		Waiting without a snapshot, where that is provably safe.
 */
#ifndef LE_SNAPSHOT_H
#define LE_SNAPSHOT_H

#include "fmgr.h"

/*
 * Is this very call all that the client's statement consists of?  Then
 * nothing else of the statement can run after it.
 */
extern bool le_call_is_bare(FunctionCallInfo fcinfo);

/*
 * Give up the statement's snapshot for a wait, if the call is bare and
 * nothing else needs it.  After the wait, and also before anything that looks
 * at a catalog, call le_snapshot_take().  After an error the transaction is
 * aborted and nothing has to be done.
 */
extern bool le_snapshot_give_up(FunctionCallInfo fcinfo);
extern void le_snapshot_take(void);

/*
 * Does the statement go on to read with a snapshot that is older than this
 * moment?  To be asked after a wait that kept it.
 */
extern bool le_snapshot_is_stale(void);

#endif /* LE_SNAPSHOT_H */
