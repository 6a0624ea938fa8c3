/*
 * core/view.c
 *		Lookups in a core, by hash or by index, and simple predicates on its state.
 */
#include "containers.h"
#include "state.h"
#include "view.h"

LeTime
le_entry_time_left(const LeEntry *entry, LeTime now)
{
	LeTime deadline = le_entry_deadline(entry);

	if (deadline == LE_NEVER)
		return LE_NEVER;
	return deadline > now ? deadline - now : 0;
}

/*
 * Puts the time left of an entry into the reply.  A bound entry has no time limit: it ends with its
 * connection, and therefore also when the server ends.
 */
void
le_reply_time(LeReply *reply, const LeEntry *entry, LeTime now)
{
	reply->valid_for = le_entry_time_left(entry, now);
	reply->bound = reply->valid_for == LE_NEVER;
}

/* Returns the LSN of the newest write that the entry or its time left depends on. */
uint64_t
le_entry_lsn(const LeEntry *entry)
{
	return entry->lease != NULL && entry->lease->lsn > entry->lsn ? entry->lease->lsn : entry->lsn;
}

LeLease *
le_entry_named_lease(const LeEntry *entry)
{
	return entry->lease != NULL && !entry->lease->for_group ? entry->lease : NULL;
}

bool
le_entry_counts_once(const LeEntry *entry)
{
	return le_entry_named_lease(entry) != NULL || entry->lock->kind == LE_KIND_ELECTION;
}

/*
 * Returns the number of holds of an entry.  Returns 1 for an entry that counts once, although
 * hold_count may be higher while one of the holds may roll back.
 */
uint32_t
le_entry_holds(const LeEntry *entry)
{
	return le_entry_counts_once(entry) ? 1 : entry->hold_count;
}

bool
le_core_is_full(const LeCore *core)
{
	return core->limits.work > 0 && core->work >= core->limits.work;
}

void
le_core_worked(LeCore *core, uint32_t work)
{
	core->work += work;
}

uint32_t
le_core_lock_indexes(const LeCore *core)
{
	return le_pool_indexes(&core->locks);
}

LeLock *
le_core_lock_at(const LeCore *core, uint32_t index)
{
	LeLock *lock;

	if (index >= le_pool_indexes(&core->locks))
		return NULL;
	lock = le_pool_at(&core->locks, index);
	return lock->name != NULL ? lock : NULL;
}

uint32_t
le_core_lease_indexes(const LeCore *core)
{
	return le_pool_indexes(&core->leases);
}

LeLease *
le_core_lease_at(const LeCore *core, uint32_t index)
{
	LeLease *lease;

	if (index >= le_pool_indexes(&core->leases))
		return NULL;
	lease = le_pool_at(&core->leases, index);
	return lease->id != 0 && !lease->ended && !lease->for_group ? lease : NULL;
}

void
le_core_raise_revision(LeCore *core, int64_t revision)
{
	if (revision > core->next_revision)
		core->next_revision = revision;
}

/* --- lookups by hash --- */

LeLock *
le_core_find_lock(const LeCore *core, LeKind kind, LeText name)
{
	uint32_t hash = (uint32_t) le_hash_name(core, kind, name);

	le_hash_foreach(link, core, LE_HASH_LOCKS, hash)
	{
		LeLock *lock = le_container(link, LeLock, hash_link);

		if (lock->hash == hash && lock->kind == kind &&
			le_text_equal(le_text(lock->name, lock->name_len), name))
			return lock;
	}
	return NULL;
}

LeEntry *
le_core_find_entry(const LeCore *core, LeKind kind, LeText name, int64_t token)
{
	uint32_t name_hash = (uint32_t) le_hash_name(core, kind, name);

	le_hash_foreach(link, core, LE_HASH_TOKENS, le_hash_token(token, name_hash))
	{
		LeEntry *entry = le_container(link, LeEntry, token_link);

		if (entry->token == token && entry->lock->kind == kind &&
			le_text_equal(le_text(entry->lock->name, entry->lock->name_len), name))
			return entry;
	}
	return NULL;
}

LeLease *
le_core_find_lease(const LeCore *core, int64_t id)
{
	le_hash_foreach(link, core, LE_HASH_LEASES, le_hash_id(id))
	{
		LeLease *lease = le_container(link, LeLease, hash_link);

		if (lease->id == id)
			return lease;
	}
	return NULL;
}

uint64_t
le_core_lock_count(const LeCore *core)
{
	return core->hashes[LE_HASH_LOCKS].count;
}
