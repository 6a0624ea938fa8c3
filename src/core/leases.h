/*
 * core/leases.h
 *		Applies the commands of named leases, and ends leases with their entries.  For the core alone.
 */
#ifndef LE_LEASES_H
#define LE_LEASES_H

#include "objects.h"

/* End a lease, and handle its timer. */
extern void le_lease_end(LeCore *core, LeLease *lease, LeEnd how, LeTime now);
extern void le_lease_due(LeCore *core, LeLease *lease, LeTime now);

/* Apply the commands. */
extern void le_apply_grant_lease(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply);
extern void le_apply_lease(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply);

#endif /* LE_LEASES_H */
