/*
 * core/acquirer.c
 *		Stores the texts that describe the acquirers of entries, for views.
 *
 * Entries with the same text share one record, so that a session with very many locks has only one
 * record.
 */
#include "acquirer.h"
#include "containers.h"
#include "state.h"

/*
 * Returns the hash of a text.  It is seeded, because callers choose application names and could create
 * collisions.
 */
static uint32_t
hash_of(const LeCore *core, LeText text)
{
	return (uint32_t) le_hash_name(core, (LeKind) 0, text);
}

LeAcquirer *
le_acquirer_find(const LeCore *core, LeText text)
{
	uint32_t hash = hash_of(core, text);

	le_hash_foreach(link, core, LE_HASH_ACQUIRERS, hash)
	{
		LeAcquirer *acquirer = le_container(link, LeAcquirer, hash_link);

		if (acquirer->hash == hash && le_text_equal(le_text(acquirer->text, acquirer->len), text))
			return acquirer;
	}
	return NULL;
}

bool
le_acquirers_reserve(LeCore *core, LeText text)
{
	assert(core->prealloc_acquirer == NULL && text.len <= LE_MAX_ACQUIRER);
	if (text.data == NULL || le_acquirer_find(core, text) != NULL)
		return true;
	core->prealloc_acquirer = core->env.alloc(core->env.arg, sizeof(LeAcquirer) + text.len);
	return core->prealloc_acquirer != NULL;
}

LeAcquirer *
le_acquirer_get(LeCore *core, LeText text)
{
	LeAcquirer *acquirer = le_acquirer_find(core, text);

	if (acquirer == NULL)
	{
		acquirer = core->prealloc_acquirer;
		core->prealloc_acquirer = NULL;
		assert(acquirer != NULL && text.len <= LE_MAX_ACQUIRER);
		acquirer->hash = hash_of(core, text);
		acquirer->entries = 0;
		acquirer->len = (uint8_t) text.len;
		memcpy(acquirer->text, text.data, text.len);
		le_hash_add(core, LE_HASH_ACQUIRERS, &acquirer->hash_link);
	}
	acquirer->entries++;
	return acquirer;
}

void
le_acquirer_drop(LeCore *core, LeAcquirer *acquirer)
{
	assert(acquirer->entries > 0);
	if (--acquirer->entries > 0)
		return;
	le_hash_remove(core, LE_HASH_ACQUIRERS, &acquirer->hash_link);
	core->env.free(core->env.arg, acquirer);
}

void
le_acquirers_destroy(LeCore *core)
{
	le_hash_foreach_all(link, next, core, LE_HASH_ACQUIRERS)
		core->env.free(core->env.arg, le_container(link, LeAcquirer, hash_link));
}
