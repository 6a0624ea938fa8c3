/*
 * backend/session_sync.h
 *		The backend's side of lease_sync().
 */
#ifndef LE_SESSION_SYNC_H
#define LE_SESSION_SYNC_H

#include "backend/sync_body.h"

/*
 * Carry a call out.  The transaction is none that could undo it: nothing of it is undone.  Errors: what
 * keeps the lease from being renewed.
 */
extern void le_sync(LeSync *sync);

#endif /* LE_SESSION_SYNC_H */
