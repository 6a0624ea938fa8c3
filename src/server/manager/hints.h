/*
 * manager/hints.h
 *		Adds hints, for the notifier.
 */
#ifndef LE_MANAGER_HINTS_H
#define LE_MANAGER_HINTS_H

#include "access/xlogdefs.h"

#include "core/core.h"

/*
 * Adds hints to the ring for the grants and changes of a committed batch. lsn: end of its commit record.
 * Must not fail or wait, because a hint must not delay a reply.
 */
extern void le_hints_of_batch(LeCore *core, XLogRecPtr lsn);

/*
 * Starts a notifier if there is something to send and no notifier runs.  Returns when to call it again, by
 * le_clock().
 */
extern LeTime le_hints_tend(void);

/* Ends the manager's notifier.  Must not fail, because the process is exiting. */
extern void le_hints_leave(void);

#endif /* LE_MANAGER_HINTS_H */
