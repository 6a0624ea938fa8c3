/*
 * core/epoch.c
 *		Maintains the counters by which a session can check that its lock is still held: see core/epoch.h.
 */
#include "epoch.h"
#include "state.h"

static void
raise_word(LeCore *core, uint32_t i)
{
	uint32_t *epochs = core->env.epochs;

	if (epochs != NULL && ++epochs[i] == 0)
		epochs[i] = 1;
}

void
le_epoch_raise(LeCore *core, uint32_t hash)
{
	raise_word(core, hash % LE_EPOCHS);
}

void
le_epoch_raise_losses(LeCore *core)
{
	raise_word(core, LE_EPOCH_LOSSES);
}

void
le_epoch_raise_all(LeCore *core)
{
	for (uint32_t i = 0; i < LE_EPOCH_WORDS; i++)
		raise_word(core, i);
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
