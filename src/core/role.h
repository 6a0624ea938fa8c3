/*
 * core/role.h
 *		Computes the usage of roles.  For the core alone.
 */
#ifndef LE_ROLE_H
#define LE_ROLE_H

#include "objects.h"

/* The usage that counts against a role's limits (LeLimits). */
typedef struct LeUsage
{
	uint32_t entries;
	uint32_t leases;
	size_t bytes;
} LeUsage;

extern void le_role_add(LeCore *core, uint32_t id, LeUsage usage);
extern void le_role_remove(LeCore *core, uint32_t id, LeUsage usage);
/* Returns LE_OK if the role's limits admit this additional usage, else the status of the exceeded limit. */
extern LeStatus le_role_admits(const LeCore *core, uint32_t id, LeUsage usage);

/*
 * Return the usage of an entry, a lease, an uncommitted hold, a closed name and an ACQUIRE, and the
 * sum and the difference of two usages.
 */
extern LeUsage le_usage_of_entry(uint32_t name_len, uint32_t owner_len, uint32_t value_len);
extern LeUsage le_usage_of_lease(uint32_t owner_len);
extern LeUsage le_usage_of_hold(void);
extern LeUsage le_usage_of_closed(uint32_t name_len);
extern LeUsage le_usage_of_command(const LeCommand *cmd);
extern LeUsage le_usage_sum(LeUsage a, LeUsage b);
extern LeUsage le_usage_less(LeUsage a, LeUsage b);

#endif /* LE_ROLE_H */
