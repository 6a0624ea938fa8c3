/*
 * manager/sync.h
 *		Carries out lease_sync().
 */
#ifndef LE_MANAGER_SYNC_H
#define LE_MANAGER_SYNC_H

#include "manager/state.h"

/*
 * le_sync_renew() renews the lease of a lease_sync(), before anything expires. le_sync_take() carries out the
 * call, later in the batch.
 */
extern void le_sync_renew(Batch *batch, uint32 proc);
extern void le_sync_take(Batch *batch, uint32 proc);

#endif /* LE_MANAGER_SYNC_H */
