/*
 * manager/apply.h
 *		Applies one command in a batch.
 */
#ifndef LE_MANAGER_APPLY_H
#define LE_MANAGER_APPLY_H

#include "manager/state.h"

/*
 * Applies a command that has at most one name.  If a renewal needs a write and the batch has not locked the
 * tables yet, locks them now.  If that is not possible, the renewal writes nothing and is valid for a shorter
 * time.
 */
extern void le_apply_one(Batch *batch, const LeCommand *cmd, LeReply *reply);

#endif /* LE_MANAGER_APPLY_H */
