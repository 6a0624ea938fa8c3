/*
 * manager/hints.h
 *		The manager's side of the hints for clients that wait outside of the
 *		server.
 */
#ifndef LE_HINTS_H
#define LE_HINTS_H

#include "access/xlogdefs.h"

#include "core/core.h"
#include "shared/shmem.h"

/* Once, when the manager starts. */
extern void le_hints_init(LeDatabase *db);

/*
 * The batch is committed, with the end of its record at this LSN: announce what it
 * granted.  Never fails or waits.
 */
extern void le_hints_of_batch(LeCore *core, XLogRecPtr lsn);

/*
 * Start a notifier if there is something to send and none runs.  Returns when to
 * look again, by le_clock().
 */
extern LeTime le_hints_tend(void);

/* The manager leaves: end its notifier. */
extern void le_hints_leave(void);

#endif /* LE_HINTS_H */
