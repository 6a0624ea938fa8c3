/*
 * manager/reload.h
 *		Builds the core from the tables.
 */
#ifndef LE_MANAGER_RELOAD_H
#define LE_MANAGER_RELOAD_H

#include "core/core.h"

/*
 * Loads the state for the first time.  Returns false if the extension is not installed in this database.  May
 * raise an error, which ends the worker; then another worker is started.
 */
extern bool le_load_first(void);

/*
 * Returns whether this transaction of a session is still open, or has rolled back but its UNDO mail is not
 * applied yet.
 */
extern bool le_load_uncommitted(void *arg, uint64 session, uint32 xact);

/* Sets the limits of a core from the current settings. work: LeLimits.work. */
extern void le_load_limits(LeCore *core, int work);

/*
 * Loads the state again after a failed batch.  Each lease keeps the remaining time that it had when the batch
 * failed.  If the load fails, returns false and sets *error.
 */
extern bool le_load_again(ErrorData **error);

#endif /* LE_MANAGER_RELOAD_H */
