/*
 * core/acquirer.c
 *		Who has acquired: texts that are kept with entries for people who look.
 *
 * A session that holds very many locks has one record, which its entries
 * share: records with the same text are the same.
 */
#include "internal.h"

/* Application names come from callers, who must not be able to make them collide. */
static uint32_t
hash_of(const LeCore *core, LeText text)
{
	return (uint32_t) le_hash_name(core, (LeKind) 0, text);
}

LeAcquirer *
le_acquirer_find(const LeCore *core, LeText text)
{
	uint32_t hash = hash_of(core, text);
	LeAcquirer *acquirer =
		core->acquirer_buckets > 0 ? core->acquirer_hash[hash & (core->acquirer_buckets - 1)] : NULL;

	while (acquirer != NULL &&
		   (acquirer->hash != hash || !le_text_equal(le_text(acquirer->text, acquirer->len), text)))
		acquirer = acquirer->hash_next;
	return acquirer;
}

bool
le_acquirers_reserve(LeCore *core, LeText text)
{
	assert(core->spare_acquirer == NULL && text.len <= LE_MAX_ACQUIRER);
	if (text.data == NULL || le_acquirer_find(core, text) != NULL)
		return true;
	if (!le_acquirer_hash_reserve(core))
		return false;
	core->spare_acquirer = core->env.alloc(core->env.arg, sizeof(LeAcquirer) + text.len);
	return core->spare_acquirer != NULL;
}

LeAcquirer *
le_acquirer_get(LeCore *core, LeText text)
{
	LeAcquirer *acquirer = le_acquirer_find(core, text), **bucket;

	if (acquirer == NULL)
	{
		acquirer = core->spare_acquirer;
		core->spare_acquirer = NULL;
		assert(acquirer != NULL);
		acquirer->hash = hash_of(core, text);
		acquirer->entries = 0;
		acquirer->len = (uint8_t) text.len;
		memcpy(acquirer->text, text.data, text.len);
		bucket = &core->acquirer_hash[acquirer->hash & (core->acquirer_buckets - 1)];
		acquirer->hash_next = *bucket;
		*bucket = acquirer;
		core->acquirer_count++;
	}
	acquirer->entries++;
	return acquirer;
}

void
le_acquirer_drop(LeCore *core, LeAcquirer *acquirer)
{
	LeAcquirer **at;

	assert(acquirer->entries > 0);
	if (--acquirer->entries > 0)
		return;
	at = &core->acquirer_hash[acquirer->hash & (core->acquirer_buckets - 1)];
	while (*at != acquirer)
		at = &(*at)->hash_next;
	*at = acquirer->hash_next;
	core->acquirer_count--;
	core->env.free(core->env.arg, acquirer);
}

void
le_acquirers_destroy(LeCore *core)
{
	for (uint32_t i = 0; i < core->acquirer_buckets; i++)
	{
		for (LeAcquirer *acquirer = core->acquirer_hash[i], *next; acquirer != NULL; acquirer = next)
		{
			next = acquirer->hash_next;
			core->env.free(core->env.arg, acquirer);
		}
	}
	if (core->acquirer_hash != NULL)
		core->env.free(core->env.arg, core->acquirer_hash);
}
