/*
 * manager/hints.h
 *		The manager's side of the hints for clients that wait outside of the
 *		server.
 */
#ifndef LE_HINTS_H
#define LE_HINTS_H

#include "shared/shmem.h"

extern void le_hints_init(LeDatabase *db);

/* The batch is committed: announce what it granted.  Never fails or waits. */
extern void le_hints_of_batch(LeCore *core);

/*
 * See to it that a notifier runs if there is something to send.  Returns when
 * to look again, as le_clock() tells.
 */
extern LeTime le_hints_tend(void);

/* The manager leaves, and so does its notifier. */
extern void le_hints_leave(void);

#endif /* LE_HINTS_H */
