/*
 * core/endings.h
 *		Records how the last LE_ENDINGS tokens and leases ended.  For the core alone.
 */
#ifndef LE_ENDINGS_H
#define LE_ENDINGS_H

#include "objects.h"

/* Records how this token or lease ended, so that replies to later requests can report it. */
extern void le_note_ending(LeCore *core, int64_t token, uint32_t role, LeEnd how, LeTime now);
/* Sets reply->ending if it is recorded how the command's token or lease ended, for the same role. */
extern void le_reply_ending(const LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply);

#endif /* LE_ENDINGS_H */
