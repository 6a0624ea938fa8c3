/*
 * manager/fence.h
 *		The manager ends fences that last too long.
 */
#ifndef LE_MANAGER_FENCE_H
#define LE_MANAGER_FENCE_H

#include "core/core.h"
#include "shared/fence.h"

/*
 * Terminate the connections that fence, for longer than
 * lock_election.fence_timeout, a holder that has ended.
 */
extern void le_fence_end_overdue(LeCore *core, LeTime now);

#endif /* LE_MANAGER_FENCE_H */
