/*
 * core/leasetime.h
 *		Starts, renews, extends and ends a single lease, without its entries.  For the core alone.
 */
#ifndef LE_LEASETIME_H
#define LE_LEASETIME_H

#include "objects.h"

/* Create a lease, then start it. */
extern LeLease *le_lease_new(LeCore *core, int64_t id, LeTime ttl, uint32_t role);
extern void le_lease_start(LeCore *core, LeLease *lease, LeTime now);

/* Renew a lease, mark its row as dirty, arm its timer, and end it when it has no entries. */
extern void le_lease_renew(LeCore *core, LeLease *lease, LeTime now);
extern void le_lease_dirty(LeCore *core, LeLease *lease);
extern void le_lease_arm(LeCore *core, LeLease *lease);
extern void le_lease_close(LeCore *core, LeLease *lease, LeEnd how);

/* Change the TTL of a lease that belongs to a single group; le_lease_extend() never shortens it. */
extern void le_lease_set_ttl(LeCore *core, LeLease *lease, LeTime ttl);
extern void le_lease_extend(LeCore *core, LeLease *lease, LeTime ttl, LeTime now);

#endif /* LE_LEASETIME_H */
