/*
 * core/load.c
 *		Building the state from what was stored, and checking it.
 */
#include <stdio.h>
#include <stdlib.h>

#include "internal.h"

/* A slot with the number that its row has. */
static LeSlot *
load_slot(LeCore *core, LeLock *lock, int32_t number, uint64_t locator)
{
	LeSlot *slot = le_pool_get(&core->slots);

	slot->lock = lock;
	slot->number = number;
	slot->row.locator = locator;
	slot->row.on_disk = true;
	slot->next = lock->slots;
	lock->slots = slot;
	if (number >= lock->next_number)
		lock->next_number = number + 1;
	return slot;
}

static void
load_holder(LeCore *core, LeLock *lock, LeSlot *slot, const LeLoad *load, LeLease *lease, LeTime now)
{
	LeEntry *entry = le_entry_new(core, lock, &load->cmd, lease, now);

	le_entry_set_state(entry, LE_STATE_NEW, LE_STATE_HELD);
	entry->slot = slot;
	entry->lsn = core->load_lsn;
	entry->hold_count = load->hold_count;
	entry->acquired_at = load->acquired_at;
	entry->saved_at = now;
	entry->saved_left = load->time_left;
	entry->deadline = (lease != NULL || entry->ttl == LE_TTL_BOUND) ? LE_NEVER : le_add(now, load->time_left);
	slot->holder = entry;
	lock->held++;
	lock->mode = entry->mode;
	if (load->cmd.mode == LE_MODE_PERMIT && load->cmd.permits > lock->permits)
		lock->permits = load->cmd.permits;
	if (load->lapsed)
	{
		entry->lapsed = true;
		entry->lapsed_at = now;
		entry->end = (uint8_t) load->end;
		entry->deadline = now;
		entry->closed_until = load->closed_until;
		le_link_before(&core->lapsed, &entry->queue_link);
	}
	else
		le_owner_add(core, entry);
	le_entry_arm(core, entry);
}

/* What a holder or a place hung on did not outlive the reload. */
static bool
load_is_orphan(const LeLoad *load, const LeLease *lease)
{
	if (load->lapsed)
		return false;
	if (load->cmd.lease != 0)
		return lease == NULL;
	return load->cmd.ttl == LE_TTL_BOUND && load->cmd.session == 0;
}

void
le_core_load_from(LeCore *core, uint64_t lsn)
{
	core->load_lsn = lsn;
}

bool
le_core_load_slot(LeCore *core, const LeLoad *load, LeTime now)
{
	LeCommand cmd = load->cmd;
	LeLease *lease = NULL;
	LeLock *lock;
	LeSlot *slot;

	core->loading = true;
	cmd.type = LE_CMD_ACQUIRE;
	if (!le_core_reserve(core, &cmd))
		return false;
	lock = le_lock_get(core, cmd.kind, cmd.name);
	slot = load_slot(core, lock, load->slot, load->locator);
	if (!load->lapsed && load->closed_until > lock->closed_until)
		lock->closed_until = load->closed_until;
	if (cmd.lease != 0)
		lease = le_core_find_lease(core, cmd.lease);
	if (lease != NULL && lease->id == cmd.token && !lease->for_group)
	{
		lease->for_group = true;
		le_role_remove(core, lease->role, 0, 1);
	}
	if (!load->held)
	{
		le_slot_add_free(lock, slot);
		if (load->dirty)
			le_slot_dirty(core, slot);
		if (load->dirty && cmd.token != 0)
			le_change_lost(core, lock, load, now);
	}
	else if (load_is_orphan(load, lease))
	{
		le_slot_add_free(lock, slot);
		le_slot_dirty(core, slot);
		le_change_lost(core, lock, load, now);
	}
	else
	{
		if (cmd.session != 0)
			le_session_touch(core, cmd.session, cmd.sessno, cmd.xact, now);
		load_holder(core, lock, slot, load, lease, now);
	}
	return true;
}

bool
le_core_load_place(LeCore *core, const LeLoad *load, LeTime now)
{
	LeCommand cmd = load->cmd;
	LeLease *lease = NULL;
	LeLock *lock;
	LeEntry *entry;

	core->loading = true;
	cmd.type = LE_CMD_ACQUIRE;
	if (!le_core_reserve(core, &cmd))
		return false;
	if (cmd.session != 0)
		le_session_touch(core, cmd.session, cmd.sessno, cmd.xact, now);
	if (cmd.lease != 0)
		lease = le_core_find_lease(core, cmd.lease);
	lock = le_lock_get(core, cmd.kind, cmd.name);
	if (cmd.mode == LE_MODE_PERMIT && lock->permits == 0)
		lock->permits = cmd.permits;
	entry = le_entry_new(core, lock, &cmd, lease, now);
	entry->place = true;
	entry->lsn = core->load_lsn;
	entry->since = load->acquired_at;
	entry->row.locator = load->locator;
	entry->row.on_disk = true;
	if (lease == NULL && cmd.ttl != LE_TTL_BOUND)
		entry->deadline = le_add(now, load->time_left);
	le_entry_queue(core, entry, now);
	if (load_is_orphan(load, lease))
		le_entry_end(core, entry, LE_END_SESSION, 0, now);
	return true;
}

bool
le_core_load_lease(LeCore *core, const LeCommand *cmd, LeTime time_left, uint64_t locator, LeTime now)
{
	LeCommand grant = *cmd;
	LeReply reply;
	LeLease *lease;

	core->loading = true;
	grant.type = LE_CMD_GRANT_LEASE;
	if (!le_core_reserve(core, &grant))
		return false;
	memset(&reply, 0, sizeof(reply));
	le_apply_grant_lease(core, &grant, now, &reply);
	lease = core->dirty_leases;
	core->dirty_leases = lease->dirty_next;
	lease->dirty_next = NULL;
	lease->row.dirty = false;
	lease->deadline = le_add(now, time_left);
	lease->saved_left = time_left;
	lease->lsn = core->load_lsn;
	lease->row.on_disk = true;
	lease->row.locator = locator;
	le_timer_clear(core, &lease->timer);
	if (time_left < 0)
		le_lease_end(core, lease, LE_END_EXPIRED, now);
	else
		le_lease_arm(core, lease);
	return true;
}

bool
le_core_load_hold(LeCore *core, const LeCommand *hold)
{
	LeEntry *entry = le_core_find_entry(core, hold->kind, hold->name, hold->token);

	if (entry == NULL)
		return true;
	if (!le_pool_reserve(core, &core->holds, 1))
		return false;
	le_session_touch(core, hold->session, hold->sessno, hold->xact, 0);
	le_entry_add_hold(core, entry, hold->session, hold->sessno, hold->xact, hold->subxact);
	return true;
}

/* What was left of these groups were lapsed holders, whose fences are gone. */
static void
end_empty_own_leases(LeCore *core, LeTime now)
{
	for (uint32_t place = 0; place < le_core_lease_indexes(core); place++)
	{
		LeLease *lease = le_pool_at(&core->leases, place);

		if (lease->for_group && !lease->ended && le_link_empty(&lease->entries))
			le_lease_end(core, lease, LE_END_RELEASED, now);
	}
}

void
le_core_load_done(LeCore *core, LeTime now)
{
	core->loading = false;
	core->row_kept = true;
	end_empty_own_leases(core, now);
	for (uint32_t place = 0; place < le_core_lock_indexes(core); place++)
	{
		LeLock *lock = le_core_lock_at(core, place);

		if (lock != NULL)
			le_lock_settle(core, lock, now);
	}
	core->row_kept = false;
}

/*
 * A promoted server does not know how often its predecessor has started since
 * its last word, and each of those starts may have taken the minutes of its
 * time, up to this one.  So it goes past the minutes as well, and far enough.
 */
int64_t
le_next_incarnation(const LeStart *start)
{
	int64_t known = start->stored > start->minutes ? start->stored : start->minutes;
	int64_t next = start->stored + 1;

	if (start->clean && !start->promoted && start->floor == 0)
		return start->stored;
	if (start->promoted)
		next = (known / 64 + 2) * 64;
	if (next < start->minutes)
		next = start->minutes;
	return next > start->floor ? next : start->floor;
}

/* --- checking --- */

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

static void
check_lease(const LeCore *core, const LeEntry *entry)
{
	const LeLease *lease = entry->lease;

	CHECK(!lease->ended && le_core_find_lease(core, lease->id) == lease);
	CHECK(!lease->for_group || lease->id == entry->token);
	check_timer(core, &lease->timer);
	check_rings(&lease->timer, lease->deadline);
}

static void
check_holder(const LeCore *core, const LeLock *lock, const LeSlot *slot)
{
	const LeEntry *entry = slot->holder;

	CHECK(entry->state == LE_STATE_HELD);
	CHECK(entry->slot == slot && entry->lock == lock);
	CHECK(entry->mode == lock->mode);
	CHECK(entry->hold_count > 0);
	CHECK(find_in(core, lock, entry) == entry);
	CHECK(entry->token < core->next_revision);
	for (const LeHold *hold = entry->holds; hold != NULL; hold = hold->next)
	{
		CHECK(hold->entry == entry);
		CHECK(core->sessions[entry->sessno].id != 0 || hold->session != entry->session);
	}
	CHECK(entry->waiter_session == 0 || entry->answering);
	CHECK(le_linked(&entry->queue_link) == (entry->lapsed || entry->owner != NULL));
	CHECK(entry->session == 0 || core->sessions[entry->sessno].id == entry->session);
	check_timer(core, &entry->timer);
	if (entry->lapsed)
		CHECK(core->env.fenced != NULL);
	else if (entry->lease != NULL)
		check_lease(core, entry);
	else
		check_rings(&entry->timer, entry->deadline);
	if (entry->ttl == LE_TTL_BOUND && entry->lease == NULL && !entry->lapsed)
		CHECK(entry->session != 0 && entry->deadline == LE_NEVER);
}

/* Would this entry be granted now, were it not for its group? */
static bool
is_ready(const LeEntry *entry)
{
	const LeLock *lock = entry->lock;

	return lock->queue.next == &entry->queue_link && le_lock_admits(lock, entry->mode, LE_NEVER) &&
		   (lock->closed_until == 0 || lock->timer.pos == 0);
}

static void
check_group(const LeEntry *entry)
{
	bool ready = true, found = false;

	for (const LeEntry *member = entry->group->members; member != NULL; member = member->group_next)
	{
		CHECK(member->grouped && member->group == entry->group && member->token == entry->token);
		CHECK(member->state == LE_STATE_QUEUED);
		CHECK((member->waiter_session != 0) == (member == entry->group->members));
		ready &= is_ready(member);
		found |= member == entry;
	}
	CHECK(found && !ready);
}

static void
check_queue(const LeCore *core, const LeLock *lock)
{
	int64_t last = 0;
	uint32_t n = 0;

	for (const LeLink *link = lock->queue.next; link != &lock->queue; link = link->next)
	{
		const LeEntry *entry = le_container(link, LeEntry, queue_link);

		CHECK(entry->state == LE_STATE_QUEUED && entry->lock == lock);
		CHECK(entry->token > last);
		CHECK(entry->place || entry->grouped || entry->waiter_session != 0);
		if (entry->grouped)
			check_group(entry);
		else
			CHECK(entry->slot == NULL);
		CHECK(find_in(core, lock, entry) == entry);
		check_timer(core, &entry->timer);
		check_rings(&entry->timer, entry->wait_until);
		last = entry->token;
		n++;
	}
	CHECK(n == lock->waiting);
}

static void
check_lock(const LeCore *core, const LeLock *lock)
{
	int32_t held = 0, free_slots = 0, slots = 0;

	for (const LeSlot *slot = lock->slots; slot != NULL; slot = slot->next)
	{
		CHECK(slot->lock == lock);
		CHECK(slot->number >= 0 && slot->number < lock->next_number);
		slots++;
		if (slot->holder == NULL)
			continue;
		held++;
		check_holder(core, lock, slot);
	}
	for (const LeSlot *slot = lock->free_slots; slot != NULL; slot = slot->free_next)
	{
		CHECK(slot->holder == NULL);
		free_slots++;
	}
	CHECK(held == lock->held);
	CHECK(free_slots + held == slots);

	/* mutual exclusion */
	CHECK(lock->mode != LE_MODE_EXCLUSIVE || held == 1);
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
		const LeEntry *head = le_container(lock->queue.next, LeEntry, queue_link);

		CHECK(head->grouped || !is_ready(head));
		if (lock->closed_until != 0 && lock->held == 0)
			check_rings(&lock->timer, lock->closed_until);
	}
}

static void
check_roles(const LeCore *core)
{
	uint32_t roles = 0, entries = 0, leases = 0, named = 0;

	for (uint32_t i = 0; i < core->role_buckets; i++)
	{
		for (const LeRole *role = core->role_hash[i]; role != NULL; role = role->hash_next)
		{
			CHECK(role->entries > 0 || role->leases > 0);
			roles++;
			entries += role->entries;
			leases += role->leases;
		}
	}
	CHECK(roles == core->roles.used);
	CHECK(entries == core->token_count);
	for (uint32_t i = 0; i < core->lease_buckets; i++)
	{
		for (const LeLease *lease = core->lease_hash[i]; lease != NULL; lease = lease->hash_next)
			named += !lease->for_group;
	}
	CHECK(leases == named);
}

void
le_core_check(const LeCore *core)
{
	uint32_t locks = 0, tokens = 0, candidates = 0, changes = 0;

	for (uint32_t i = 0; i < core->lock_buckets; i++)
	{
		for (const LeLock *lock = core->lock_hash[i]; lock != NULL; lock = lock->hash_next)
		{
			check_lock(core, lock);
			tokens += (uint32_t) lock->held + lock->waiting;
			if (lock->kind == LE_KIND_ELECTION)
			{
				candidates += (uint32_t) lock->held + lock->waiting;
				changes += (uint32_t) lock->held + 2 * lock->waiting;
			}
			locks++;
		}
	}
	CHECK(locks == core->lock_count && locks == core->locks.used);
	CHECK(tokens == core->token_count);
	CHECK(core->slots.nfree >= core->queued);
	CHECK(candidates == core->candidates && changes <= core->change_pool.nfree);
	check_roles(core);
	for (uint32_t i = 0; i < core->heap.len; i++)
	{
		const LeTimer *timer = core->heap.items[i];

		CHECK(timer->pos == i + 1);
		CHECK(i == 0 || core->heap.items[(i - 1) / 2]->at <= timer->at);
	}
	for (uint32_t i = 0; i < core->max_sessions; i++)
	{
		const LeSession *session = &core->sessions[i];

		if (session->id == 0)
			CHECK(le_link_empty(&session->entries) && le_link_empty(&session->holds) &&
				  session->waiting_on == NULL);
		for (const LeLink *link = session->holds.next; link != &session->holds; link = link->next)
		{
			const LeHold *hold = le_container(link, LeHold, session_link);

			CHECK(hold->session == session->id && hold->xact == session->xact);
			CHECK(hold->entry->state == LE_STATE_QUEUED || hold->entry->state == LE_STATE_HELD);
		}
	}
}
