/*
 * core/reserve.c
 *		Reserves memory before a command is applied.
 *
 * le_core_reserve() may fail, and then changes nothing. le_core_apply() uses only memory
 * that was reserved, so it cannot fail.
 */
#include "acquirer.h"
#include "changes.h"
#include "containers.h"
#include "reserve.h"
#include "state.h"
#include "view.h"

char *
le_prealloc_take(LePrealloc *texts)
{
	assert(texts->taken < texts->n);
	return texts->items[texts->taken++];
}

static void
prealloc_free(LeCore *core, LePrealloc *texts)
{
	while (texts->taken < texts->n)
		le_free_text(core, &texts->items[texts->taken++]);
	texts->n = texts->taken = 0;
}

void
le_prealloc_free(LeCore *core)
{
	prealloc_free(core, &core->prealloc_names);
	prealloc_free(core, &core->prealloc_owners);
	le_free_text(core, &core->prealloc_value);
	if (core->prealloc_acquirer != NULL)
		core->env.free(core->env.arg, core->prealloc_acquirer);
	core->prealloc_acquirer = NULL;
}

static bool
prealloc_text(LeCore *core, char **copy, LeText text)
{
	if (text.data == NULL)
		return true;
	*copy = core->env.alloc(core->env.arg, text.len > 0 ? text.len : 1);
	if (*copy != NULL && text.len > 0)
		memcpy(*copy, text.data, text.len);
	return *copy != NULL;
}

/* Allocates an array for n copies of texts.  Returns false if out of memory. */
static bool
prealloc_room(LeCore *core, LePrealloc *texts, uint32_t n)
{
	if (n <= texts->cap)
		return true;
	le_free_array(core, texts->items);
	texts->cap = 0;
	texts->items = core->env.alloc(core->env.arg, n * sizeof(char *));
	if (texts->items == NULL)
		return false;
	texts->cap = n;
	return true;
}

static bool
prealloc_add(LeCore *core, LePrealloc *texts, LeText text)
{
	assert(texts->n < texts->cap);
	if (!prealloc_text(core, &texts->items[texts->n], text))
		return false;
	if (text.data != NULL)
		texts->n++;
	return true;
}

/* Reserves one more link in each hash table, and the timers of n more locks, n entries and a lease. */
static bool
reserve_indexes(LeCore *core, uint32_t n)
{
	return le_hashes_reserve(core) && le_pool_reserve(core, &core->roles, 1) &&
		   le_heap_reserve(core, core->entries.used + core->locks.used + core->leases.used + 2 * n + 1);
}

/* Reserves memory for a named lease. */
bool
le_reserve_lease(LeCore *core, LeText owner)
{
	le_prealloc_free(core);
	return prealloc_room(core, &core->prealloc_owners, 1) &&
		   prealloc_add(core, &core->prealloc_owners, owner) && reserve_indexes(core, 1) &&
		   le_pool_reserve(core, &core->leases, 1);
}

/*
 * Reserves memory for n entries of this kind, one for each name: a lock, an entry with its texts, a
 * waiter and a hold.  Also reserves a slot for each waiting entry, so that a grant allocates no memory.
 */
bool
le_reserve_entries(LeCore *core, LeKind kind, const LeText *names, uint32_t n, const LeEntrySpec *spec)
{
	assert(n > 0 && n <= LE_MAX_NAMES);
	le_prealloc_free(core);
	if (!prealloc_room(core, &core->prealloc_names, n) || !prealloc_room(core, &core->prealloc_owners, n) ||
		!prealloc_text(core, &core->prealloc_value, spec->value) ||
		!le_acquirers_reserve(core, spec->acquirer))
		return false;
	for (uint32_t i = 0; i < n; i++)
	{
		if (!prealloc_add(core, &core->prealloc_owners, spec->owner))
			return false;
		if (le_core_find_lock(core, kind, names[i]) == NULL &&
			!prealloc_add(core, &core->prealloc_names, names[i]))
			return false;
	}
	return (kind != LE_KIND_ELECTION || le_changes_reserve(core)) && reserve_indexes(core, n) &&
		   le_pool_reserve(core, &core->locks, n) && le_pool_reserve(core, &core->entries, n) &&
		   le_pool_reserve(core, &core->waiters, n) && le_pool_reserve(core, &core->uncommitted, n) &&
		   le_pool_reserve(core, &core->slots, core->queued + n);
}

bool
le_core_reserve(LeCore *core, const LeCommand *cmd)
{
	LeEntrySpec spec = {.owner = cmd->owner, .value = cmd->value, .acquirer = cmd->acquirer};

	switch (cmd->type)
	{
		case LE_CMD_ACQUIRE:
			if (cmd->nnames == 0)
				return le_reserve_entries(core, cmd->kind, &cmd->name, 1, &spec);
			return le_reserve_entries(core, cmd->kind, cmd->names, cmd->nnames, &spec) &&
				   le_pool_reserve(core, &core->leases, 1) && le_pool_reserve(core, &core->groups, 1);
		case LE_CMD_GRANT_LEASE:
			return le_reserve_lease(core, cmd->owner);
		default:
			le_prealloc_free(core);
			return prealloc_text(core, &core->prealloc_value, cmd->value) &&
				   (cmd->kind != LE_KIND_ELECTION || le_changes_reserve(core));
	}
}
