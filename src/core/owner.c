/*
 * core/owner.c
 *		The holders with a named owner, by lock, role and owner: a lock may have
 *		very many, and each acquire asks whether it is one more hold of one.
 *
 * A lapsed entry is nobody's: it leaves this hash.
 */
#include "internal.h"

#define FIRST_BUCKETS 256

static LeLink *
bucket_of(const LeCore *core, const LeLock *lock, uint32_t role, LeText owner)
{
	uint64_t hash = le_hash_name(core, lock->kind, owner) + lock->hash + le_hash_id(role);

	return &core->owner_hash[hash & (core->owner_buckets - 1)];
}

static LeLink *
bucket_of_entry(const LeCore *core, const LeEntry *entry)
{
	return bucket_of(core, entry->lock, entry->role, le_text(entry->owner, entry->owner_len));
}

/* As the other hashes; waiters that are granted may fill it beyond its size. */
bool
le_owners_reserve(LeCore *core)
{
	uint32_t n = core->owner_buckets ? core->owner_buckets * 2 : FIRST_BUCKETS;
	uint32_t old_n = core->owner_buckets;
	LeLink *old = core->owner_hash;
	LeLink *t;

	if (old_n != 0 && core->owner_count < old_n)
		return true;
	t = core->env.alloc(core->env.arg, n * sizeof(LeLink));
	if (t == NULL)
		return false;
	for (uint32_t i = 0; i < n; i++)
		le_link_init(&t[i]);
	core->owner_hash = t;
	core->owner_buckets = n;
	for (uint32_t i = 0; i < old_n; i++)
	{
		le_link_foreach(link, next, &old[i])
		{
			LeEntry *entry = le_container(link, LeEntry, owner_link);

			le_unlink(link);
			le_link_before(bucket_of_entry(core, entry), link);
		}
	}
	if (old != NULL)
		core->env.free(core->env.arg, old);
	return true;
}

/* It has become a holder. */
void
le_owner_add(LeCore *core, LeEntry *entry)
{
	assert(entry->state == LE_STATE_HELD);
	if (entry->owner == NULL)
		return;
	le_link_before(bucket_of_entry(core, entry), &entry->owner_link);
	core->owner_count++;
}

/* It ends, or lapses. */
void
le_owner_remove(LeCore *core, LeEntry *entry)
{
	assert(entry->state == LE_STATE_HELD);
	if (entry->owner == NULL)
		return;
	le_unlink(&entry->owner_link);
	core->owner_count--;
}

/* Bound to another connection: it would end under the newcomer when that one ends. */
static bool
is_foreign(const LeEntry *holder, uint64_t session)
{
	return holder->ttl == LE_TTL_BOUND && holder->lease == NULL && holder->session != session;
}

/* It is the lease's own: where there is an owner as well, it is that one's. */
static bool
is_of_lease(const LeEntry *entry, const LeLease *lease)
{
	return entry->state == LE_STATE_HELD && entry->lease == lease && entry->owner == NULL;
}

/* The owner's holder on this lease, NULL: on none; else one that it has otherwise. */
static LeEntry *
find_of_owner(const LeCore *core, const LeLock *lock, uint32_t role, LeText owner, const LeLease *lease,
			  uint64_t session)
{
	LeEntry *otherwise = NULL;

	le_link_foreach(link, next, bucket_of(core, lock, role, owner))
	{
		LeEntry *holder = le_container(link, LeEntry, owner_link);

		if (holder->lock != lock || holder->role != role || is_foreign(holder, session) ||
			le_entry_is_ending(holder) || !le_text_equal(le_text(holder->owner, holder->owner_len), owner))
			continue;
		if (le_entry_named_lease(holder) == lease)
			return holder;
		if (otherwise == NULL)
			otherwise = holder;
	}
	return otherwise;
}

/* Has a named owner, without a lease, acquired this by another connection than this one? */
bool
le_owner_is_shared(const LeEntry *holder, uint64_t session)
{
	return holder->owner != NULL && le_entry_named_lease(holder) == NULL && holder->session != session;
}

/*
 * The holder that a request of this session would be one more hold of.  It is
 * the owner that asks, if one is named, else the named lease.
 */
LeEntry *
le_lock_owned(const LeCore *core, const LeLock *lock, uint32_t role, LeText owner, const LeLease *lease,
			  uint64_t session)
{
	const LeLink *link;

	if (owner.data != NULL)
		return find_of_owner(core, lock, role, owner, lease, session);
	if (lease == NULL)
		return NULL;

	/* to the end of the shorter list: both may be very long */
	link = lease->entries.next;
	for (LeSlot *slot = lock->slots; slot != NULL && link != &lease->entries;
		 slot = slot->next, link = link->next)
	{
		LeEntry *holder = le_slot_holder(slot), *entry = le_container(link, LeEntry, lease_link);

		if (holder != NULL && is_of_lease(holder, lease))
			return holder;
		if (entry->lock == lock && is_of_lease(entry, lease))
			return entry;
	}
	return NULL;
}
