/*
 * core/endings.h
 *		Records how the newest tokens and leases ended.  For the core alone.
 */
#ifndef LE_ENDINGS_H
#define LE_ENDINGS_H

#include "objects.h"

/* Records how this token or lease ended, for later requests that refer to it. */
extern void le_note_ending(LeCore *core, int64_t token, uint32_t role, LeEnd how, LeTime now);
/* Reports how the command's token or lease ended, if that is recorded and the role is the same. */
extern void le_reply_ending(const LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply);

#endif /* LE_ENDINGS_H */
