/*
 * core/uncommitted.h
 *		Records the holds of transactions that may still roll back.  For the core alone.
 */
#ifndef LE_UNCOMMITTED_H
#define LE_UNCOMMITTED_H

#include "objects.h"

extern void le_uncommitted_add(LeCore *core, LeEntry *entry, uint64_t session, uint32_t sessno, uint32_t xact,
							   uint32_t subxact);
extern void le_uncommitted_take(LeCore *core, LeEntry *entry, const LeCommand *cmd, LeReply *reply);
extern void le_uncommitted_remove(LeCore *core, LeUncommitted *hold);
extern void le_uncommitted_move(LeEntry *to, LeEntry *from);
extern bool le_has_hold_of(const LeEntry *entry, uint64_t session);

#endif /* LE_UNCOMMITTED_H */
