/*
 * core/each.h
 *		Applies a command to each of several names separately.
 */
#ifndef LE_EACH_H
#define LE_EACH_H

#include "objects.h"

/*
 * Applies a command whose flag "each" is set.  le_core_reserve() must have been called before. replies must
 * have room for one reply per name. *all gets the merged reply.  If *all is an error, nothing was changed,
 * all->which is the name that caused it, and replies are not set.  Otherwise *all is LE_OK, and the status of
 * each reply is LE_OK, LE_QUEUED, LE_NOT_GRANTED or LE_NOT_HELD.  Must not fail, like le_core_apply().
 */
extern void le_core_apply_each(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *replies,
							   LeReply *all);

#endif /* LE_EACH_H */
