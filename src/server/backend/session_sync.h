/*
 * backend/session_sync.h
 *		Carries out lease_sync() in the backend.
 */
#ifndef LE_SESSION_SYNC_H
#define LE_SESSION_SYNC_H

#include "backend/sync_body.h"

/*
 * Makes a lease_sync() call.  A rollback of the transaction does not undo the call.  Raises an error if the
 * lease cannot be renewed.
 */
extern void le_sync(LeSync *sync);

#endif /* LE_SESSION_SYNC_H */
