/*
 * core/owner.c
 *		Finds the holders with a named owner in a hash table, by lock, role and owner.  A
 *		lock may have very many such holders, and each acquire searches for one to
 *		re-enter.
 *
 * A lapsed entry has no owner any more, so it is not in this table.
 */
#include "containers.h"
#include "owner.h"
#include "state.h"
#include "view.h"

/* Adds an entry that has become a holder. */
void
le_owner_add(LeCore *core, LeEntry *entry)
{
	assert(entry->state == LE_STATE_HELD);
	if (entry->owner != NULL)
		le_hash_add(core, LE_HASH_OWNERS, &entry->owner_link.link);
}

/* Removes a holder that ends or lapses. */
void
le_owner_remove(LeCore *core, LeEntry *entry)
{
	assert(entry->state == LE_STATE_HELD);
	if (entry->owner != NULL)
		le_hash_remove(core, LE_HASH_OWNERS, &entry->owner_link.link);
}

/* Returns whether the lease itself owns this holder: the holder is on the lease and has no named owner. */
static bool
is_of_lease(const LeEntry *entry, const LeLease *lease)
{
	return entry->state == LE_STATE_HELD && !entry->evicted && entry->lease == lease && entry->owner == NULL;
}

/*
 * Returns the owner's holder on this named lease; lease NULL = the holder that is on no named lease.
 * If there is no such holder, returns any other holder of the owner.
 */
static LeEntry *
find_of_owner(const LeCore *core, const LeLock *lock, uint32_t role, LeText owner, const LeLease *lease,
			  uint64_t session)
{
	LeEntry *otherwise = NULL;

	le_hash_foreach(link, core, LE_HASH_OWNERS, le_owner_hash(core, lock, role, owner))
	{
		LeEntry *holder = le_container(link, LeEntry, owner_link.link);

		/* skip a holder that is bound to another connection, because it ends with that connection */
		if (holder->ttl == LE_TTL_BOUND && holder->lease == NULL && holder->session != session)
			continue;
		if (holder->lock != lock || holder->role != role || holder->evicted || le_entry_is_draining(holder) ||
			!le_text_equal(le_text(holder->owner, holder->owner_len), owner))
			continue;
		if (le_entry_named_lease(holder) == lease)
			return holder;
		if (otherwise == NULL)
			otherwise = holder;
	}
	return otherwise;
}

/* Returns whether the holder has a named owner and no named lease, and was acquired by another session. */
bool
le_owner_is_shared(const LeEntry *holder, uint64_t session)
{
	return holder->owner != NULL && le_entry_named_lease(holder) == NULL && holder->session != session;
}

/*
 * Returns the holder that a request of this session re-enters by its named owner, or, if it names
 * no owner, by its named lease; NULL = none.  An evicted holder is not re-entered: a new request
 * waits for its end.
 */
LeEntry *
le_lock_owned(const LeCore *core, const LeLock *lock, uint32_t role, LeText owner, const LeLease *lease,
			  uint64_t session)
{
	const LeLink *link;

	assert(lease == NULL || !lease->for_group || !lease->ended);
	if (owner.data != NULL)
		return find_of_owner(core, lock, role, owner, lease, session);
	if (lease == NULL)
		return NULL;

	/* walk both lists in parallel until the shorter one ends, because each of them may be very long */
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

/* Returns LE_OK if a request of this kind may be one more hold of this holder, else an error. */
LeStatus
le_reentry_status(const LeEntry *holder, LeMode mode, const LeLease *lease, LeTime ttl)
{
	assert(holder->state == LE_STATE_HELD && mode != LE_MODE_PERMIT);
	if (holder->mode == LE_MODE_SHARED && mode == LE_MODE_EXCLUSIVE)
		return LE_BAD_UPGRADE;
	if (le_entry_named_lease(holder) != lease)
		return LE_BAD_TTL;
	if (lease == NULL && (holder->ttl == LE_TTL_BOUND) != (ttl == LE_TTL_BOUND))
		return LE_BAD_TTL;
	return LE_OK;
}
