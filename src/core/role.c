/*
 * core/role.c
 *		How much each role has: what it may have is limited.
 *
 * A role is there for as long as it has anything.
 */
#include "internal.h"

static LeRole **
find_role(const LeCore *core, uint32_t id)
{
	LeRole **p = &core->role_hash[le_hash_id(id) & (core->role_buckets - 1)];

	while (*p != NULL && (*p)->id != id)
		p = &(*p)->hash_next;
	return p;
}

void
le_role_add(LeCore *core, uint32_t id, uint32_t entries, uint32_t leases)
{
	LeRole **p = find_role(core, id);

	if (*p == NULL)
	{
		*p = le_pool_get(&core->roles);
		(*p)->id = id;
	}
	(*p)->entries += entries;
	(*p)->leases += leases;
}

void
le_role_remove(LeCore *core, uint32_t id, uint32_t entries, uint32_t leases)
{
	LeRole **p = find_role(core, id);
	LeRole *role = *p;

	assert(role != NULL && role->entries >= entries && role->leases >= leases);
	role->entries -= entries;
	role->leases -= leases;
	if (role->entries > 0 || role->leases > 0)
		return;
	*p = role->hash_next;
	le_pool_put(&core->roles, role);
}

/* May this role have so many more entries, or leases? */
bool
le_role_admits(const LeCore *core, uint32_t id, uint32_t entries, uint32_t leases)
{
	const LeLimits *limits = &core->limits;
	const LeRole *role = *find_role(core, id);
	int64_t entries_then = (int64_t) entries + (role != NULL ? role->entries : 0);
	int64_t leases_then = (int64_t) leases + (role != NULL ? role->leases : 0);

	return (entries == 0 || limits->locks_per_role == 0 || entries_then <= limits->locks_per_role) &&
		   (leases == 0 || limits->leases_per_role == 0 || leases_then <= limits->leases_per_role);
}
