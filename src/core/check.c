/*
 * core/check.c
 *		Checks a core, for tests: see core/check.h.
 */
#include <stdio.h>
#include <stdlib.h>

#include "acquirer.h"
#include "check.h"
#include "containers.h"
#include "epoch.h"
#include "lock.h"
#include "news.h"
#include "role.h"
#include "saved.h"
#include "state.h"
#include "uncommitted.h"
#include "view.h"

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

/*
 * Checks that the timer fires at the earlier of these two moments or before, and that it is not armed
 * if both are LE_NEVER.
 */
static void
check_rings(const LeTimer *timer, LeTime at, LeTime or_at)
{
	if (or_at < at)
		at = or_at;
	CHECK(at == LE_NEVER ? timer->pos == 0 : timer->pos != 0 && timer->at <= at);
}

static const LeEntry *
find_in(const LeCore *core, const LeLock *lock, const LeEntry *entry)
{
	return le_core_find_entry(core, (LeKind) lock->kind, le_text(lock->name, lock->name_len), entry->token);
}

/* Checks that the lease of a holder is found by its id, and that its timer fires in time. */
static void
check_lease(const LeCore *core, const LeEntry *entry)
{
	const LeLease *lease = entry->lease;

	CHECK(!lease->ended && le_core_find_lease(core, lease->id) == lease);
	CHECK(!lease->for_group || lease->id == entry->token);
	check_timer(core, &lease->timer);
	if (lease->draining)
		CHECK(lease->timer.pos != 0); /* the timer fires to end the remaining entries */
	else
		check_rings(&lease->timer, lease->deadline, le_save_at(lease->ttl, lease->deadline, &lease->saved));
	CHECK(!entry->evicted || lease->evicted > 0);
}

/* Checks the holder of a slot: its links, holds, session and timer. */
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

	/* the holder's session and timer */
	CHECK(entry->waiter == NULL || entry->waiter->session == 0 || entry->waiter->answering);
	CHECK(entry->session == 0 || core->sessions[entry->sessno].id == entry->session);
	check_timer(core, &entry->timer);
	if (entry->state == LE_STATE_LAPSED)
	{
		CHECK(core->env.fenced != NULL && le_linked(&entry->lapsed_link) && !entry->evicted);
		return;
	}

	/* HELD: the holder's owner, lease and deadline */
	CHECK(entry->lease == NULL || entry->evicted == (entry->deadline != LE_NEVER));
	if (entry->evicted)
		CHECK(!le_entry_is_bound(entry) && entry->deadline != LE_NEVER &&
			  (entry->lease == NULL ||
			   (!entry->lease->for_group && entry->deadline <= entry->lease->deadline)));
	CHECK((entry->owner_link.back != NULL) == (entry->owner != NULL));
	CHECK(entry->owner == NULL || *entry->owner_link.back == &entry->owner_link.link);
	if (entry->lease != NULL)
		check_lease(core, entry);
	check_rings(&entry->timer, entry->deadline, le_entry_save_at(entry));
	if (entry->ttl == LE_TTL_BOUND && entry->lease == NULL)
		CHECK(entry->session != 0 && entry->deadline == LE_NEVER);
}

/* Returns whether this entry could be granted now if it were not in a group. */
static bool
is_ready(const LeEntry *entry)
{
	const LeLock *lock = entry->lock;

	return lock->queue.next == &entry->waiter->queue_link && le_lock_admits(lock, entry->mode, LE_NEVER) &&
		   (lock->closed_until == 0 || (lock->timer.pos == 0 && lock->closed_until != LE_NEVER));
}

/* Checks that the members of a group wait together, and that not all of them are ready. */
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

/* Checks that a queue is in the order of tokens, and that each entry in it has a reason to wait. */
static void
check_queue(const LeCore *core, const LeLock *lock)
{
	int64_t last = 0;
	uint32_t n = 0;

	for (const LeLink *link = lock->queue.next; link != &lock->queue; link = link->next)
	{
		const LeEntry *entry = le_queued(link);

		CHECK(entry->state == LE_STATE_QUEUED && entry->lock == lock && entry->waiter->entry == entry &&
			  !entry->evicted);
		CHECK(entry->token > last);
		CHECK(entry->place || entry->grouped || entry->waiter->session != 0);
		if (entry->grouped)
			check_group(entry);
		else
			CHECK(entry->waiter->group == NULL);
		CHECK(find_in(core, lock, entry) == entry);
		CHECK(le_linked(&entry->waiter->waits_link) == (lock->kind == LE_KIND_LOCK));
		check_timer(core, &entry->timer);
		check_rings(&entry->timer, entry->waiter->until, entry->deadline);
		last = entry->token;
		n++;
	}
	CHECK(n == lock->waiting);
}

/* Checks that a lock's slots, queue and state are consistent.  Returns the number of slots. */
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
		/* no lost wakeup: the first waiter cannot be granted, or settling continues with the next batch */
		const LeEntry *head = le_queued(lock->queue.next);

		CHECK(head->grouped || !is_ready(head) || lock->unsettled);
		if (lock->unsettled)
			CHECK(lock->timer.pos != 0);
		if (lock->closed_until != 0 && lock->held == 0 && !lock->unsettled)
			check_rings(&lock->timer, lock->closed_until, LE_NEVER);
	}
	return (uint32_t) slots;
}

/* Checks that the usage of all roles adds up to that of all objects. */
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

	/* add up the usage of entries, leases and closed names */
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

/* Checks that the news of each lease lists all its entries except lapsed ones, in order of their numbers. */
static void
check_news(const LeCore *core)
{
	le_hash_foreach_all(link, next, core, LE_HASH_LEASES)
	{
		const LeLease *lease = le_container(link, LeLease, hash_link);
		uint64_t number = 0;
		uint32_t listed = 0, there = 0, walked = 0;

		for (const LeEntry *entry = NULL; (entry = le_news_after(lease, 0, entry, &walked)) != NULL;)
		{
			CHECK(entry->news > number && entry->lease == lease && entry->state != LE_STATE_LAPSED);
			number = entry->news;
			listed++;
		}
		for (const LeLink *it = lease->entries.next; it != &lease->entries; it = it->next)
			there += le_container(it, LeEntry, lease_link)->state != LE_STATE_LAPSED;
		CHECK(listed == there && number <= lease->newest && lease->newest <= core->news);
		number = lease->forgotten;
		for (uint32_t i = 0; le_news_loss(lease, 0, i) != NULL; i++)
		{
			CHECK(le_news_loss(lease, 0, i)->number > number);
			number = le_news_loss(lease, 0, i)->number;
		}
		CHECK(number <= lease->newest && core->releaser == 0);
	}
}

/* Checks core->unmarked: the number of leases, own and named, whose rows were written in an earlier life. */
static void
check_unmarked(const LeCore *core)
{
	uint32_t unmarked = 0;

	le_hash_foreach_all(link, next, core, LE_HASH_TOKENS)
	{
		const LeEntry *entry = le_container(link, LeEntry, token_link);
		bool own = le_entry_has_own_time(entry) && !le_entry_is_bound(entry);

		if (entry->state == LE_STATE_LAPSED)
			continue;
		CHECK(own || (entry->saved.life == core->life->number && !entry->saved.raised));
		unmarked += entry->saved.life != core->life->number;
	}
	le_hash_foreach_all(link, next, core, LE_HASH_LEASES) unmarked +=
		le_container(link, LeLease, hash_link)->saved.life != core->life->number;
	CHECK(unmarked == core->unmarked);
}

/* Checks that each used object of a pool is in one of the core's lists. */
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

	/* check each lock, and add up the numbers of entries of all locks */
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
	check_unmarked(core);
	check_news(core);
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

	/* the heap has room for the timer of each lock, entry and lease */
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

/* --- replies --- */

static bool
has_done(const LeReply *reply)
{
	return reply->status == LE_OK || reply->status == LE_QUEUED || reply->status == LE_WAITING;
}

/* Returns whether the command refers to an entry or a group by its token. */
static bool
is_on_token(const LeCommand *cmd)
{
	return cmd->type == LE_CMD_AWAIT || cmd->type == LE_CMD_RENEW || cmd->type == LE_CMD_RELEASE ||
		   cmd->type == LE_CMD_CHECK || cmd->type == LE_CMD_PROCLAIM;
}

/* Checks that fields that do not apply to this reply are zero. */
static void
check_absent_parts(const LeCommand *cmd, const LeReply *reply)
{
	LeCommandType type = cmd->type;
	LeStatus status = reply->status;
	bool acquired = type == LE_CMD_ACQUIRE && has_done(reply);
	bool forces = type == LE_CMD_FORCE || type == LE_CMD_FORCE_ROLE || type == LE_CMD_EVICT;
	bool steps = forces || type == LE_CMD_SET_PERMITS || type == LE_CMD_REVOKE_LEASE || type == LE_CMD_UNDO ||
				 type == LE_CMD_SESSION_END;

	/* each of these fields may be set only in certain replies */
	CHECK((reply->lease != 0) == (type == LE_CMD_GRANT_LEASE && status == LE_OK));
	CHECK((reply->revision != 0) == (type == LE_CMD_ADVANCE));
	CHECK(forces || reply->ended == 0);
	CHECK((forces && type != LE_CMD_EVICT) || !reply->reopened);
	CHECK(steps || reply->next == 0);
	CHECK(type == LE_CMD_ACQUIRE || type == LE_CMD_SET_PERMITS || reply->permits == 0);
	CHECK(cmd->revision != 0 || (reply->position != 0) == (type == LE_CMD_ACQUIRE && status == LE_QUEUED));
	CHECK(reply->ending == LE_END_NONE ? reply->ending_ago == 0
									   : status == LE_LOST || status == LE_NOT_HELD || status == LE_NO_LEASE);
	CHECK(type == LE_CMD_ACQUIRE || type == LE_CMD_AWAIT || type == LE_CMD_CHECK || !reply->own_session);
	CHECK(cmd->nnames > 0 || reply->which == 0);
	CHECK((acquired && status == LE_OK) || (!reply->reentrant && !reply->shared_owner));
	CHECK(acquired || !reply->counted);
	CHECK(!reply->waited);
	CHECK(type == LE_CMD_RELEASE || type == LE_CMD_REVOKE_LEASE || !reply->may_return);
	CHECK((type == LE_CMD_AWAIT && status == LE_WAITING) || reply->displaced_session == 0);
	CHECK(reply->displaced_session != 0 || (reply->displaced_sessno == 0 && reply->displaced_request == 0));
	CHECK(type == LE_CMD_CHECK || reply->holds == 0);
	CHECK(type == LE_CMD_RENEW || type == LE_CMD_KEEP_ALIVE || reply->valid_least == 0);
	CHECK(type == LE_CMD_ACQUIRE || is_on_token(cmd) ||
		  (reply->token != 0) == (status == LE_HELD_BOUND && type == LE_CMD_EVICT));
	CHECK(type != LE_CMD_ACQUIRE || acquired || cmd->revision != 0 || reply->token == 0);
}

/* Returns whether the holder has a named owner and no named lease, and was acquired by another session. */
static bool
shares_owner(const LeEntry *holder, uint64_t session)
{
	return holder->owner != NULL && holder->session != session &&
		   (holder->lease == NULL || holder->lease->for_group);
}

/* Checks that only a reply that reports a new grant (told) contains the epoch of the lock's name. */
static void
check_epoch(const LeCore *core, const LeLock *lock, bool told, const LeReply *reply)
{
	if (!told || core->env.epochs == NULL)
		CHECK(reply->epoch == 0 && reply->epoch_is == 0);
	else
		CHECK(reply->epoch == lock->hash % LE_EPOCHS && reply->epoch_is == core->env.epochs[reply->epoch]);
}

/* Checks that a renewal is valid for the full TTL once it is flushed, unless nothing can be written. */
static void
check_validity(const LeCore *core, const LeReply *reply, const LeLease *lease, LeTime left, LeTime now)
{
	if (lease != NULL && le_lease_evicted_left(lease, now) < left)
		left = le_lease_evicted_left(lease, now);
	CHECK(reply->valid_for == left || (core->unwritable && reply->valid_for < left));
	CHECK(reply->valid_least >= 0 && reply->valid_least <= reply->valid_for);
}

/*
 * Checks the fields of a reply that depend on one of its entries. first: whether this is the entry of
 * the first name.
 */
static void
check_reply_of(const LeCore *core, const LeCommand *cmd, const LeEntry *entry, bool first,
			   const LeReply *reply, LeTime now)
{
	bool granted =
		cmd->type == LE_CMD_ACQUIRE && reply->status == LE_OK && !reply->reentrant && cmd->revision == 0;
	bool timed = cmd->type == LE_CMD_RENEW     ? reply->status == LE_OK
				 : cmd->type == LE_CMD_ACQUIRE ? reply->status != LE_WAITING
											   : cmd->type != LE_CMD_PROCLAIM;
	bool dirty = le_entry_is_dirty(entry);

	if (cmd->type == LE_CMD_RENEW && timed)
		check_validity(core, reply, entry->lease, le_entry_time_left(entry, now), now);
	else
		CHECK(reply->valid_for == (timed ? le_entry_time_left(entry, now) : 0));
	CHECK(reply->bound == (timed && reply->valid_for == LE_NEVER));

	/* lsn and wrote; for several names, AWAIT reports only those of the first entry */
	if (is_on_token(cmd))
		CHECK(!first || (reply->lsn == le_entry_lsn(entry) && reply->wrote == dirty));
	else if (reply->status != LE_WAITING)
		CHECK(reply->wrote || (reply->lsn >= le_entry_lsn(entry) && (!dirty || cmd->revision != 0)));

	/* the number of holds, and the owner */
	if (cmd->type == LE_CMD_CHECK)
		CHECK(reply->holds == le_entry_holds(entry));
	CHECK(reply->shared_owner == (reply->reentrant && shares_owner(entry, cmd->session)));
	CHECK(!reply->counted || cmd->nnames > 0 || le_has_hold_of(entry, cmd->session));
	CHECK(!granted || entry->state == LE_STATE_HELD);
	check_epoch(core, entry->lock, granted && cmd->nnames == 0, reply);
}

/* Checks the fields of a reply that depend on a lease. */
static void
check_reply_of_lease(const LeCore *core, const LeCommand *cmd, const LeReply *reply, LeTime now)
{
	const LeLease *lease =
		le_core_find_lease(core, cmd->type == LE_CMD_GRANT_LEASE ? reply->lease : cmd->lease);

	CHECK(lease != NULL);
	if (cmd->type == LE_CMD_KEEP_ALIVE)
		check_validity(core, reply, lease, lease->deadline - now, now);
	else
		CHECK(reply->valid_for == lease->deadline - now || (lease->deadline <= now && reply->valid_for == 0));
	CHECK(reply->wrote == lease->row.dirty && reply->lsn == lease->lsn && !reply->bound);
}

void
le_core_check_reply(const LeCore *core, const LeCommand *cmd, LeTime now, const LeReply *reply)
{
	bool in_lease = cmd->type == LE_CMD_GRANT_LEASE || cmd->type == LE_CMD_KEEP_ALIVE ||
					cmd->type == LE_CMD_LEASE_TTL || cmd->type == LE_CMD_LEASE_HOLDS;

	check_absent_parts(cmd, reply);
	if (!has_done(reply))
		return;
	if (in_lease)
	{
		check_reply_of_lease(core, cmd, reply, now);
		return;
	}
	/* first handle the commands after which there is no entry to check */
	if (cmd->type == LE_CMD_RELEASE)
		CHECK(reply->token != 0 && reply->wrote && reply->valid_for == 0 && reply->epoch_is == 0);
	else if (cmd->type != LE_CMD_ACQUIRE && !is_on_token(cmd))
	{
		CHECK(reply->valid_for == 0 && !reply->bound && reply->epoch_is == 0);
		if (cmd->type == LE_CMD_EVICT)
			CHECK(reply->wrote || reply->ended == 0);
		else
			CHECK(reply->wrote == (cmd->type == LE_CMD_FORCE
									   ? reply->ended > 0 || reply->reopened
									   : cmd->type == LE_CMD_FORCE_ROLE || cmd->type == LE_CMD_SET_PERMITS ||
											 cmd->type == LE_CMD_REVOKE_LEASE ||
											 cmd->type == LE_CMD_ADVANCE));
	}
	else
	{
		CHECK(reply->token != 0 &&
			  (cmd->type == LE_CMD_ACQUIRE || cmd->token == 0 || reply->token == cmd->token));
		for (uint32_t i = 0; i < le_command_names(cmd); i++)
		{
			const LeEntry *entry = le_core_find_entry(core, cmd->kind, le_command_name(cmd, i), reply->token);

			CHECK(entry != NULL);
			check_reply_of(core, cmd, entry, i == 0, reply, now);
		}
	}
}

void
le_core_check_answer(const LeCore *core, const LeEntry *entry, LeTime now, const LeReply *reply)
{
	const LeLock *lock = entry->lock;
	const LeEntry *holder = NULL;
	LeReply told;

	CHECK(reply->status == LE_OK || reply->ending == LE_END_NONE || reply->status == LE_LOST);
	CHECK(reply->wrote == (reply->status == LE_OK) && reply->bound == le_entry_is_bound(entry));
	CHECK(reply->lsn == entry->lsn);
	if (reply->status != LE_OK)
	{
		memset(&told, 0, sizeof(told));
		told.status = reply->status;
		told.bound = reply->bound;
		told.lsn = reply->lsn;
		told.token = reply->status == LE_QUEUED ? entry->token : 0;
		told.ending = reply->status == LE_LOST && entry->state == LE_STATE_ENDED ? entry->end : LE_END_NONE;
		CHECK(memcmp(&told, reply, sizeof(told)) == 0);
		return;
	}
	CHECK(reply->token != 0 && reply->ending == LE_END_NONE);
	holder = le_core_find_entry(core, (LeKind) lock->kind, le_text(lock->name, lock->name_len), reply->token);
	if (holder != NULL && le_entry_has_slot(holder))
	{
		LeTime left = le_entry_time_left(holder, now);

		/* a valid_for of 0 would mean that the reply contains no time */
		CHECK(reply->valid_for == (left > 0 ? left : 1));
	}
	else
		CHECK(reply->valid_for == (le_entry_is_bound(entry) ? LE_NEVER : entry->ttl));

	/* the request has its own entry, or became one more hold of another entry */
	CHECK((entry->end == LE_END_REPLACED) == (reply->token != entry->token));
	CHECK(reply->counted == (entry->hold_count > 0));
	if (holder != NULL && le_entry_has_slot(holder))
		CHECK(reply->shared_owner == shares_owner(holder, entry->session));
	check_epoch(core, lock, entry->state == LE_STATE_HELD, reply);
}
