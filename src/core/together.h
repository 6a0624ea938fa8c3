/*
 * core/together.h
 *		Grants and ends groups: entries of several names that wait together.  For the core alone.
 */
#ifndef LE_TOGETHER_H
#define LE_TOGETHER_H

#include "objects.h"

/* Return whether a waiting group can be granted, grant it, and end it. */
extern bool le_group_ready(LeGroup *group, LeTime now);
extern void le_group_grant(LeCore *core, LeGroup *group, LeTime now);
extern uint32_t le_group_grant_members(LeCore *core, LeEntry *first, LeTime now);
extern void le_group_end(LeCore *core, LeGroup *group, LeEnd how, LeTime now);
extern LeEntry *le_group_lead(LeEntry *entry);
extern bool le_group_has_names(const LeCore *core, const LeEntry *entry, const LeCommand *cmd);
extern void le_group_load(LeCore *core, LeEntry *entry);

#endif /* LE_TOGETHER_H */
