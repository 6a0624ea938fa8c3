/*
 * look.h
 *		The manager fills the pages of the live state.
 */
#ifndef LE_MANAGER_LOOK_H
#define LE_MANAGER_LOOK_H

#include "shared/look.h"

/*
 * Fill a page, and move the cursor to where the next one begins.  With a name,
 * only that lock's items.
 */
extern uint32 le_look_fill(const LeCore *core, const LeCommand *cmd, LeLookCursor *cursor, char *page,
						   uint32 size, LeTime now);

/*
 * Who leads an election: a CHECK of his term, and so answered with its batch.
 * The reply's count tells since when (TimestampTz) he leads; his text, as it
 * is at that moment, follows the election's name in the payload, from where the
 * request can be read again.
 */
extern void le_look_find_leader(const LeCore *core, LeCommand *cmd);
extern void le_look_put_leader(const LeCore *core, const LeCommand *cmd, LeRequestSlot *slot, LeReply *reply,
							   LeTime now);

extern uint32 le_look_fill_leases(const LeCore *core, int64 *cursor, char *page, uint32 size, LeTime now);

#endif /* LE_MANAGER_LOOK_H */
