/*
 * core/role.c
 *		Computes the usage of each role, which counts against the limits of the role.
 *
 * A role has a record only while it has any usage.
 */
#include "containers.h"
#include "role.h"
#include "state.h"

/* Returns the record of this role; NULL = it has no usage. */
static LeRole *
find_role(const LeCore *core, uint32_t id)
{
	le_hash_foreach(link, core, LE_HASH_ROLES, le_hash_id(id))
	{
		LeRole *role = le_container(link, LeRole, hash_link);

		if (role->id == id)
			return role;
	}
	return NULL;
}

/*
 * Approximate memory of an object's links in the hash tables and in the heap of timers.  The bytes of a
 * usage approximate the allocated memory; each entry is counted with a lock and a slot of its own.
 */
#define BYTES_IN_INDEXES 64

LeUsage
le_usage_of_entry(uint32_t name_len, uint32_t owner_len, uint32_t value_len)
{
	size_t bytes = sizeof(LeEntry) + sizeof(LeLock) + sizeof(LeSlot) + BYTES_IN_INDEXES;

	return (LeUsage){.entries = 1, .bytes = bytes + name_len + owner_len + value_len};
}

LeUsage
le_usage_of_lease(uint32_t owner_len)
{
	return (LeUsage){.leases = 1, .bytes = sizeof(LeLease) + BYTES_IN_INDEXES + owner_len};
}

LeUsage
le_usage_of_hold(void)
{
	return (LeUsage){.bytes = sizeof(LeUncommitted)};
}

LeUsage
le_usage_of_closed(uint32_t name_len)
{
	return (LeUsage){.entries = 1, .bytes = sizeof(LeLock) + sizeof(LeSlot) + BYTES_IN_INDEXES + name_len};
}

LeUsage
le_usage_sum(LeUsage a, LeUsage b)
{
	return (LeUsage){a.entries + b.entries, a.leases + b.leases, a.bytes + b.bytes};
}

LeUsage
le_usage_less(LeUsage a, LeUsage b)
{
	assert(a.entries >= b.entries && a.leases >= b.leases && a.bytes >= b.bytes);
	return (LeUsage){a.entries - b.entries, a.leases - b.leases, a.bytes - b.bytes};
}

/* Returns the usage of an ACQUIRE, which creates an entry for each of its names. */
LeUsage
le_usage_of_command(const LeCommand *cmd)
{
	LeUsage all = {0};

	for (uint32_t i = 0; i < le_command_names(cmd); i++)
		all =
			le_usage_sum(all, le_usage_of_entry(le_command_name(cmd, i).len, cmd->owner.len, cmd->value.len));
	return all;
}

void
le_role_add(LeCore *core, uint32_t id, LeUsage usage)
{
	LeRole *role = find_role(core, id);

	if (role == NULL)
	{
		role = le_pool_get(&core->roles);
		role->id = id;
		le_hash_add(core, LE_HASH_ROLES, &role->hash_link);
	}
	role->entries += usage.entries;
	role->leases += usage.leases;
	role->bytes += usage.bytes;
	assert(role->entries >= usage.entries && role->bytes >= usage.bytes);
}

void
le_role_remove(LeCore *core, uint32_t id, LeUsage usage)
{
	LeRole *role = find_role(core, id);

	assert(role != NULL && role->entries >= usage.entries && role->leases >= usage.leases &&
		   role->bytes >= usage.bytes);
	role->entries -= usage.entries;
	role->leases -= usage.leases;
	role->bytes -= usage.bytes;
	if (role->entries > 0 || role->leases > 0 || role->bytes > 0)
		return;
	le_hash_remove(core, LE_HASH_ROLES, &role->hash_link);
	le_pool_put(&core->roles, role);
}

static bool
is_above(int64_t limit, uint64_t now, uint64_t more)
{
	return more > 0 && limit > 0 && now + more > (uint64_t) limit;
}

LeStatus
le_role_admits(const LeCore *core, uint32_t id, LeUsage usage)
{
	const LeLimits *limits = &core->limits;
	const LeRole none = {0}, *role = find_role(core, id);

	if (role == NULL)
		role = &none;
	if (is_above(limits->locks_per_role, role->entries, usage.entries))
		return LE_LIMIT_LOCKS;
	if (is_above(limits->leases_per_role, role->leases, usage.leases))
		return LE_LIMIT_LEASES;
	return is_above(limits->bytes_per_role, role->bytes, usage.bytes) ? LE_LIMIT_BYTES : LE_OK;
}
