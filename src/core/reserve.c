/*
 * core/reserve.c
 *		Memory is reserved before a command is applied.
 *
 * le_core_reserve() may fail, and has changed nothing then.  What le_core_apply() needs
 * is taken from what was reserved, so it cannot fail.
 */
#include "core_internal.h"

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
	*copy = NULL;
	if (text.data == NULL)
		return true;
	*copy = core->env.alloc(core->env.arg, text.len > 0 ? text.len : 1);
	if (*copy != NULL && text.len > 0)
		memcpy(*copy, text.data, text.len);
	return *copy != NULL;
}

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

/* Names of locks that are to be made, and an owner for each entry. */
static bool
reserve_texts(LeCore *core, const LeCommand *cmd, uint32_t n)
{
	le_prealloc_free(core);
	if (!prealloc_room(core, &core->prealloc_names, n) || !prealloc_room(core, &core->prealloc_owners, n) ||
		!prealloc_text(core, &core->prealloc_value, cmd->value))
		return false;
	for (uint32_t i = 0; i < n; i++)
	{
		LeText name = cmd->nnames > 0 ? cmd->names[i] : cmd->name;

		if (!prealloc_add(core, &core->prealloc_owners, cmd->owner))
			return false;
		if (cmd->type == LE_CMD_ACQUIRE && le_core_find_lock(core, cmd->kind, name) == NULL &&
			!prealloc_add(core, &core->prealloc_names, name))
			return false;
	}
	return true;
}

bool
le_core_reserve(LeCore *core, const LeCommand *cmd)
{
	uint32_t n = cmd->nnames > 0 ? cmd->nnames : 1;

	if (!reserve_texts(core, cmd, n))
		return false;
	if (cmd->kind == LE_KIND_ELECTION && !le_changes_reserve(core))
		return false;
	if (cmd->type != LE_CMD_ACQUIRE && cmd->type != LE_CMD_GRANT_LEASE)
		return true;

	/* each lock, entry and lease has one timer, and this may add these */
	if (!le_hashes_reserve(core) || !le_acquirers_reserve(core, cmd->acquirer) ||
		!le_pool_reserve(core, &core->roles, 1) ||
		!le_heap_reserve(core, core->entries.used + core->locks.used + core->leases.used + 2 * n + 1))
		return false;
	if ((cmd->type == LE_CMD_GRANT_LEASE || cmd->nnames > 0) && !le_pool_reserve(core, &core->leases, 1))
		return false;
	if (cmd->type == LE_CMD_GRANT_LEASE)
		return true;

	/* every one that waits may be granted a slot without another reserve */
	return le_pool_reserve(core, &core->locks, n) && le_pool_reserve(core, &core->entries, n) &&
		   le_pool_reserve(core, &core->waiters, n) && le_pool_reserve(core, &core->uncommitted, n) &&
		   le_pool_reserve(core, &core->slots, core->queued + n) &&
		   (cmd->nnames == 0 || le_pool_reserve(core, &core->groups, 1));
}
