/*
 * core/force.h
 *		Applies commands of an administrator.  For the core alone.
 */
#ifndef LE_FORCE_H
#define LE_FORCE_H

#include "objects.h"

extern void le_apply_force(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply);
extern void le_apply_evict(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply);
extern void le_apply_set_permits(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply);
extern void le_apply_force_role(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply);

#endif /* LE_FORCE_H */
