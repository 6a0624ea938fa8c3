/*
 * core/reserve.c
 *		Memory is reserved before a command is applied.
 *
 * le_core_reserve() may fail, and has changed nothing then.  What le_core_apply() needs
 * is taken from what was reserved, so it cannot fail.
 */
#include "internal.h"

char *
le_spare_take(LeSpares *spares)
{
	assert(spares->taken < spares->n);
	return spares->items[spares->taken++];
}

static void
spares_free(LeCore *core, LeSpares *spares)
{
	while (spares->taken < spares->n)
		le_free_text(core, &spares->items[spares->taken++]);
	spares->n = spares->taken = 0;
}

void
le_spares_destroy(LeCore *core)
{
	spares_free(core, &core->spare_names);
	spares_free(core, &core->spare_owners);
	le_free_text(core, &core->spare_value);
	if (core->spare_acquirer != NULL)
		core->env.free(core->env.arg, core->spare_acquirer);
	core->spare_acquirer = NULL;
}

static bool
spare_text(LeCore *core, char **spare, LeText text)
{
	*spare = NULL;
	if (text.data == NULL)
		return true;
	*spare = core->env.alloc(core->env.arg, text.len > 0 ? text.len : 1);
	if (*spare != NULL && text.len > 0)
		memcpy(*spare, text.data, text.len);
	return *spare != NULL;
}

static bool
spares_room(LeCore *core, LeSpares *spares, uint32_t n)
{
	if (n <= spares->cap)
		return true;
	le_free_array(core, spares->items);
	spares->cap = 0;
	spares->items = core->env.alloc(core->env.arg, n * sizeof(char *));
	if (spares->items == NULL)
		return false;
	spares->cap = n;
	return true;
}

static bool
spares_add(LeCore *core, LeSpares *spares, LeText text)
{
	assert(spares->n < spares->cap);
	if (!spare_text(core, &spares->items[spares->n], text))
		return false;
	if (text.data != NULL)
		spares->n++;
	return true;
}

/* Names of locks that are to be made, and an owner for each entry. */
static bool
reserve_texts(LeCore *core, const LeCommand *cmd, uint32_t n)
{
	le_spares_destroy(core);
	if (!spares_room(core, &core->spare_names, n) || !spares_room(core, &core->spare_owners, n) ||
		!spare_text(core, &core->spare_value, cmd->value))
		return false;
	for (uint32_t i = 0; i < n; i++)
	{
		LeText name = cmd->nnames > 0 ? cmd->names[i] : cmd->name;

		if (!spares_add(core, &core->spare_owners, cmd->owner))
			return false;
		if (cmd->type == LE_CMD_ACQUIRE && le_core_find_lock(core, cmd->kind, name) == NULL &&
			!spares_add(core, &core->spare_names, name))
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
		   le_pool_reserve(core, &core->waiters, n) && le_pool_reserve(core, &core->holds, n) &&
		   le_pool_reserve(core, &core->slots, core->queued + n) &&
		   (cmd->nnames == 0 || le_pool_reserve(core, &core->groups, 1));
}
