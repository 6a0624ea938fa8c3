/*
 * core/check.c
 *		Every internal invariant of a core, for tests: aborts with a message.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core_internal.h"

#define CHECK(cond)                                                                                          \
	do                                                                                                       \
	{                                                                                                        \
		if (!(cond))                                                                                         \
		{                                                                                                    \
			fprintf(stderr, "%s:%d: invariant violated: %s\n", __FILE__, __LINE__, #cond);                   \
			abort();                                                                                         \
		}                                                                                                    \
	} while (0)

static void
check_timer(const LeCore *core, const LeTimer *timer)
{
	if (timer->pos == 0)
		return;
	CHECK(timer->pos <= core->heap.len);
	CHECK(core->heap.items[timer->pos - 1] == timer);
}

/* The heap has to ring no later than this. */
static void
check_rings(const LeTimer *timer, LeTime at)
{
	CHECK(at == LE_NEVER || (timer->pos != 0 && timer->at <= at));
}

static const LeEntry *
find_in(const LeCore *core, const LeLock *lock, const LeEntry *entry)
{
	return le_core_find_entry(core, (LeKind) lock->kind, le_text(lock->name, lock->name_len), entry->token);
}

/* The lease that a holder hangs on is found by its id, and its timer rings in time. */
static void
check_lease(const LeCore *core, const LeEntry *entry)
{
	const LeLease *lease = entry->lease;

	CHECK(!lease->ended && le_core_find_lease(core, lease->id) == lease);
	CHECK(!lease->for_group || lease->id == entry->token);
	check_timer(core, &lease->timer);
	if (lease->draining)
		CHECK(lease->timer.pos != 0); /* for the next step */
	else
		check_rings(&lease->timer, lease->deadline);
}

/* The holder of a slot: its links, its holds, its session, and its timer. */
static void
check_holder(const LeCore *core, const LeLock *lock, const LeSlot *slot)
{
	const LeEntry *entry = le_slot_holder(slot);

	CHECK(le_entry_has_slot(entry));
	CHECK(entry->slot == slot && entry->lock == lock);
	CHECK(entry->mode == lock->mode);
	CHECK(entry->hold_count > 0);
	CHECK(find_in(core, lock, entry) == entry);
	CHECK(entry->token < core->next_revision);
	if (entry->acquirer != NULL)
		CHECK(entry->acquirer->entries > 0 &&
			  le_acquirer_find(core, le_text(entry->acquirer->text, entry->acquirer->len)) ==
				  entry->acquirer);
	for (const LeUncommitted *hold = entry->uncommitted; hold != NULL; hold = hold->next)
	{
		CHECK(hold->entry == entry);
		CHECK(core->sessions[entry->sessno].id != 0 || hold->session != entry->session);
	}

	/* sessions and timers */
	CHECK(entry->waiter == NULL || entry->waiter->session == 0 || entry->waiter->answering);
	CHECK(entry->session == 0 || core->sessions[entry->sessno].id == entry->session);
	check_timer(core, &entry->timer);
	if (entry->state == LE_STATE_LAPSED)
	{
		CHECK(core->env.fenced != NULL && le_linked(&entry->lapsed_link));
		return;
	}

	/* of a HELD one: owner and lease */
	CHECK((entry->owner_link.back != NULL) == (entry->owner != NULL));
	CHECK(entry->owner == NULL || *entry->owner_link.back == &entry->owner_link.link);
	if (entry->lease != NULL)
		check_lease(core, entry);
	else
		check_rings(&entry->timer, entry->deadline);
	if (entry->ttl == LE_TTL_BOUND && entry->lease == NULL)
		CHECK(entry->session != 0 && entry->deadline == LE_NEVER);
}

/* Would this entry be granted now, were it not for its group? */
static bool
is_ready(const LeEntry *entry)
{
	const LeLock *lock = entry->lock;

	return lock->queue.next == &entry->waiter->queue_link && le_lock_admits(lock, entry->mode, LE_NEVER) &&
		   (lock->closed_until == 0 || (lock->timer.pos == 0 && lock->closed_until != LE_NEVER));
}

/* Members of a group wait together, and are granted as soon as all are ready. */
static void
check_group(const LeEntry *entry)
{
	bool ready = true, found = false, unsettled = false;

	for (const LeEntry *member = entry->waiter->group->members; member != NULL;
		 member = member->waiter->group_next)
	{
		CHECK(member->grouped && member->waiter->group == entry->waiter->group &&
			  member->token == entry->token);
		CHECK(member->state == LE_STATE_QUEUED);
		CHECK(member->place || (member->waiter->session != 0) == (member == entry->waiter->group->members));
		CHECK(member->waiter->session == 0 || member == entry->waiter->group->members);
		CHECK(member->place == entry->place && member->waiter->member > 0);
		ready &= is_ready(member);
		unsettled |= member->lock->unsettled;
		found |= member == entry;
	}
	CHECK(found && (!ready || unsettled));
}

/* A queue is in the order of tokens, and each of its entries waits for something. */
static void
check_queue(const LeCore *core, const LeLock *lock)
{
	int64_t last = 0;
	uint32_t n = 0;

	for (const LeLink *link = lock->queue.next; link != &lock->queue; link = link->next)
	{
		const LeEntry *entry = le_queued(link);

		CHECK(entry->state == LE_STATE_QUEUED && entry->lock == lock && entry->waiter->entry == entry);
		CHECK(entry->token > last);
		CHECK(entry->place || entry->grouped || entry->waiter->session != 0);
		if (entry->grouped)
			check_group(entry);
		else
			CHECK(entry->waiter->group == NULL);
		CHECK(find_in(core, lock, entry) == entry);
		CHECK(le_linked(&entry->waiter->waits_link) == (lock->kind == LE_KIND_LOCK));
		check_timer(core, &entry->timer);
		check_rings(&entry->timer, entry->waiter->until);
		last = entry->token;
		n++;
	}
	CHECK(n == lock->waiting);
}

/* A lock's slots, its queue and its state fit each other.  Returns how many slots. */
static uint32_t
check_lock(const LeCore *core, const LeLock *lock)
{
	int32_t held = 0, free_slots = 0, slots = 0;

	for (const LeSlot *slot = lock->slots; slot != NULL; slot = slot->next)
	{
		CHECK(slot->lock == lock);
		CHECK(slot->number >= 0 && slot->number < lock->next_number);
		slots++;
		if (le_slot_holder(slot) == NULL)
			continue;
		held++;
		check_holder(core, lock, slot);
	}
	for (const LeSlot *slot = lock->free_slots; slot != NULL; slot = slot->free_next)
	{
		CHECK(slot->free);
		free_slots++;
	}
	CHECK(held == lock->held);
	CHECK(free_slots + held == slots);

	/* mutual exclusion */
	CHECK(held <= 1 || le_modes_compatible[lock->mode][lock->mode]);
	CHECK((lock->mode == 0) == (held == 0));
	check_queue(core, lock);
	check_timer(core, &lock->timer);
	if (held == 0 && lock->waiting == 0)
		CHECK(lock->permits == 0 && (lock->timer.pos != 0 || lock->doomed));
	else
		CHECK(!lock->doomed);
	if (lock->waiting > 0)
	{
		/* no lost wake-up: the first cannot be granted, or is cooling */
		const LeEntry *head = le_queued(lock->queue.next);

		CHECK(head->grouped || !is_ready(head) || lock->unsettled);
		if (lock->unsettled)
			CHECK(lock->timer.pos != 0);
		if (lock->closed_until != 0 && lock->held == 0 && !lock->unsettled)
			check_rings(&lock->timer, lock->closed_until);
	}
	return (uint32_t) slots;
}

/* The usage of all roles adds up to all objects. */
static void
check_roles(const LeCore *core)
{
	LeUsage counted = {0}, there = {0};
	uint32_t roles = 0;

	le_hash_foreach_all(link, next, core, LE_HASH_ROLES)
	{
		const LeRole *role = le_container(link, LeRole, hash_link);

		CHECK(role->entries > 0 || role->leases > 0);
		roles++;
		counted = le_usage_sum(counted, (LeUsage){role->entries, role->leases, role->bytes});
	}
	CHECK(roles == core->roles.used);

	/* entries, leases, closed names */
	le_hash_foreach_all(link, next, core, LE_HASH_TOKENS)
	{
		const LeEntry *entry = le_container(link, LeEntry, token_link);

		there =
			le_usage_sum(there, le_usage_of_entry(entry->lock->name_len, entry->owner_len, entry->value_len));
		for (const LeUncommitted *hold = entry->uncommitted; hold != NULL; hold = hold->next)
			there = le_usage_sum(there, le_usage_of_hold());
	}
	le_hash_foreach_all(link, next, core, LE_HASH_LEASES)
	{
		const LeLease *lease = le_container(link, LeLease, hash_link);

		if (!lease->for_group)
			there = le_usage_sum(there, le_usage_of_lease(lease->owner_len));
	}
	le_hash_foreach_all(link, next, core, LE_HASH_LOCKS)
	{
		const LeLock *lock = le_container(link, LeLock, hash_link);

		if (lock->closed_until != 0)
			there = le_usage_sum(there, le_usage_of_closed(lock->name_len));
	}
	CHECK(counted.entries == there.entries && counted.leases == there.leases && counted.bytes == there.bytes);
}

/* Each object that a pool has given out is in one of the core's lists. */
static void
check_pools(const LeCore *core)
{
	uint32_t entries = core->hashes[LE_HASH_TOKENS].count, leases = core->hashes[LE_HASH_LEASES].count;
	uint32_t groups = 0, holds = 0, changes = 0;

	le_hash_foreach_all(link, next, core, LE_HASH_TOKENS)
	{
		const LeEntry *entry = le_container(link, LeEntry, token_link);

		groups += entry->state == LE_STATE_QUEUED && entry->grouped && entry->waiter->group->members == entry;
		for (const LeUncommitted *hold = entry->uncommitted; hold != NULL; hold = hold->next)
			holds++;
	}
	for (const LeEntry *entry = core->ended; entry != NULL; entry = entry->ended_next)
		entries++;
	for (const LeLease *lease = core->dirty_leases; lease != NULL; lease = lease->dirty_next)
		leases += lease->ended;
	for (const LeChange *change = core->changes; change != NULL; change = change->next)
		changes++;
	CHECK(entries == core->entries.used && holds == core->uncommitted.used && leases == core->leases.used);
	CHECK(groups == core->groups.used && changes == core->change_pool.used);
}

void
le_core_check(const LeCore *core)
{
	uint32_t locks = 0, tokens = 0, left = 0, candidates = 0, changes = 0, waits = 0, slots = 0;

	/* locks, and what they add up to */
	le_hash_foreach_all(link, next, core, LE_HASH_LOCKS)
	{
		const LeLock *lock = le_container(link, LeLock, hash_link);

		slots += check_lock(core, lock);
		tokens += (uint32_t) lock->held + lock->waiting;
		if (lock->kind == LE_KIND_LOCK)
			waits += lock->waiting;
		if (lock->kind == LE_KIND_ELECTION)
		{
			candidates += (uint32_t) lock->held + lock->waiting;
			changes += (uint32_t) lock->held + 2 * lock->waiting;
		}
		locks++;
	}
	CHECK(locks == core->hashes[LE_HASH_LOCKS].count && locks == core->locks.used);
	CHECK(tokens == core->hashes[LE_HASH_TOKENS].count);
	CHECK(slots == core->slots.used);
	for (const LeWaiter *waiter = core->left; waiter != NULL; waiter = waiter->left_next)
		left++;
	CHECK(core->waiters.used == core->queued + left);
	CHECK(core->slots.nfree >= core->queued);
	for (const LeLink *link = core->waits.next; link != &core->waits; link = link->next)
	{
		CHECK(le_container(link, LeWaiter, waits_link)->entry->state == LE_STATE_QUEUED && waits > 0);
		waits--;
	}
	CHECK(waits == 0);
	CHECK(candidates == core->candidates && changes <= core->change_pool.nfree);
	check_roles(core);
	check_pools(core);

	/* the heap, with room for the timer of each lock, entry and lease */
	CHECK(core->heap.cap >= core->locks.used + core->entries.used + core->leases.used);
	for (uint32_t i = 0; i < core->heap.len; i++)
	{
		const LeTimer *timer = core->heap.items[i];

		CHECK(timer->pos == i + 1);
		CHECK(i == 0 || core->heap.items[(i - 1) / 2]->at <= timer->at);
	}

	/* sessions */
	for (uint32_t i = 0; i < core->max_sessions; i++)
	{
		const LeSession *session = &core->sessions[i];
		uint32_t bound = 0;

		if (session->id == 0)
			CHECK(le_link_empty(&session->entries) && le_link_empty(&session->uncommitted) &&
				  session->waiting_on == NULL);
		for (const LeLink *link = session->entries.next; link != &session->entries; link = link->next)
			bound += le_entry_is_bound(le_container(link, LeEntry, session_link));
		CHECK(bound == session->bound);
		for (const LeLink *link = session->uncommitted.next; link != &session->uncommitted; link = link->next)
		{
			const LeUncommitted *hold = le_container(link, LeUncommitted, session_link);

			CHECK(hold->session == session->id && hold->xact == session->xact);
			CHECK(hold->entry->state == LE_STATE_QUEUED || le_entry_has_slot(hold->entry));
		}
	}
}
