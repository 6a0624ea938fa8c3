/*
 * manager/leave.h
 *		Does the work that remains before the manager exits.
 */
#ifndef LE_MANAGER_LEAVE_H
#define LE_MANAGER_LEAVE_H

#include "core/command.h"

/*
 * Ends every wait with an error because the extension was dropped.  Must not fail, because the waiters would
 * otherwise never be woken up.
 */
extern void le_leave_dropped(void);

/*
 * Applies and writes all asynchronous releases before the manager exits. slept_until: see
 * le_batch_check_stall().
 */
extern void le_leave_in_order(uint32 *procs, LeTime slept_until);

/*
 * Writes the releases that got a reply but are not written yet.  Takes no more requests, because all tokens
 * of the next manager must be higher than those of this one.  If the write fails, each released lock stays
 * held until its TTL ends.
 */
extern void le_leave_serving_nobody(uint32 *procs);

#endif /* LE_MANAGER_LEAVE_H */
