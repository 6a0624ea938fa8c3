/*
 * backend/session_sync.h
 *		The backend's side of lease_sync().
 */
#ifndef LE_SESSION_SYNC_H
#define LE_SESSION_SYNC_H

#include "backend/sync_body.h"

/*
 * Carries out a call.  The transaction's rollback undoes nothing of it.  Raises an error if the
 * lease cannot be renewed.
 */
extern void le_sync(LeSync *sync);

#endif /* LE_SESSION_SYNC_H */
