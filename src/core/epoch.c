/*
 * core/epoch.c
 *		How others can tell that a lock is held no more: see core/epoch.h.
 */
#include "epoch.h"
#include "core_internal.h"

void
le_epoch_raise(LeCore *core, uint32_t hash)
{
	uint32_t *epochs = core->env.epochs;

	if (epochs != NULL && ++epochs[hash % LE_EPOCHS] == 0)
		epochs[hash % LE_EPOCHS] = 1;
}

void
le_epoch_reply(const LeCore *core, LeReply *reply, const LeEntry *entry)
{
	if (core->env.epochs == NULL || entry->state != LE_STATE_HELD)
		return;
	reply->epoch = entry->lock->hash % LE_EPOCHS;
	reply->epoch_is = core->env.epochs[reply->epoch];
	assert(reply->epoch_is != 0);
}
