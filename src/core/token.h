/*
 * core/token.h
 *		Applies commands on a token.  For the core alone.
 */
#ifndef LE_TOKEN_H
#define LE_TOKEN_H

#include "objects.h"

extern void le_apply_await(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply);
extern void le_apply_renew(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply);
extern void le_apply_release(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply);
extern void le_apply_check(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply);
extern void le_apply_proclaim(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply);

#endif /* LE_TOKEN_H */
