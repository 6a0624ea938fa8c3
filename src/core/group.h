/*
 * core/group.h
 *		Applies commands that acquire several locks at once, or wait for them.  For the core alone.
 */
#ifndef LE_GROUP_H
#define LE_GROUP_H

#include "objects.h"

extern void le_apply_acquire_group(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply);
extern void le_apply_await_group(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply);

#endif /* LE_GROUP_H */
