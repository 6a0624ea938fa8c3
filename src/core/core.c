/*
 * core/core.c
 *		Creates and destroys cores, dispatches commands, and handles timers.
 */
#include "acquire.h"
#include "acquirer.h"
#include "containers.h"
#include "core.h"
#include "endings.h"
#include "entry.h"
#include "epoch.h"
#include "force.h"
#include "group.h"
#include "leases.h"
#include "lock.h"
#include "reserve.h"
#include "saved.h"
#include "sessions.h"
#include "settle.h"
#include "state.h"
#include "token.h"
#include "view.h"

/* --- life --- */

/* The LeLife of a new core, until a load sets another one. */
static const LeLife first_life = {.nstarts = 1};

LeCore *
le_core_create(const LeEnv *env, uint32_t max_sessions, int64_t next_revision)
{
	LeCore *core = env->alloc(env->arg, sizeof(LeCore));

	if (core == NULL)
		return NULL;
	memset(core, 0, sizeof(*core));
	assert(max_sessions > 0 && next_revision > 0);
	core->env = *env;
	core->next_revision = next_revision;
	core->max_sessions = max_sessions;
	core->horizon = LE_NEVER;
	core->life = &first_life;

	/* create the sessions */
	core->sessions = env->alloc(env->arg, max_sessions * sizeof(LeSession));
	if (core->sessions == NULL)
	{
		env->free(env->arg, core);
		return NULL;
	}
	memset(core->sessions, 0, max_sessions * sizeof(LeSession));
	for (uint32_t i = 0; i < max_sessions; i++)
	{
		le_link_init(&core->sessions[i].entries);
		le_link_init(&core->sessions[i].uncommitted);
	}

	/* initialize pools, lists and epochs */
	le_pool_init(&core->locks, sizeof(LeLock));
	le_pool_init(&core->slots, sizeof(LeSlot));
	le_pool_init(&core->entries, sizeof(LeEntry));
	le_pool_init(&core->waiters, sizeof(LeWaiter));
	le_pool_init(&core->uncommitted, sizeof(LeUncommitted));
	le_pool_init(&core->leases, sizeof(LeLease));
	le_pool_init(&core->groups, sizeof(LeGroup));
	le_pool_init(&core->change_pool, sizeof(LeChange));
	le_pool_init(&core->roles, sizeof(LeRole));
	le_link_init(&core->lapsed);
	le_link_init(&core->waits);
	core->answers_tail = &core->answers;
	core->changes_tail = &core->changes;
	le_epoch_raise_all(core);
	return core;
}

void
le_core_destroy(LeCore *core)
{
	LeEnv env = core->env;

	/* free the texts, which are not in pools */
	for (LeChange *change = core->changes; change != NULL; change = change->next)
		le_free_text(core, &change->dropped);
	le_hash_foreach_all(link, next, core, LE_HASH_TOKENS)
	{
		LeEntry *entry = le_container(link, LeEntry, token_link);

		le_free_text(core, &entry->owner);
		le_free_text(core, &entry->value);
	}
	for (LeEntry *entry = core->ended, *next; entry != NULL; entry = next)
	{
		next = entry->ended_next;
		le_entry_free(core, entry);
	}
	le_hash_foreach_all(link, next, core, LE_HASH_LOCKS)
		le_free_text(core, &le_container(link, LeLock, hash_link)->name);
	le_hash_foreach_all(link, next, core, LE_HASH_LEASES)
		le_free_text(core, &le_container(link, LeLease, hash_link)->owner);
	for (LeLease *lease = core->dirty_leases; lease != NULL; lease = lease->dirty_next)
	{
		if (lease->ended)
			le_free_text(core, &lease->owner);
	}

	/* free everything else */
	le_prealloc_free(core);
	le_acquirers_destroy(core);
	le_hashes_destroy(core);
	le_pool_destroy(core, &core->locks);
	le_pool_destroy(core, &core->slots);
	le_pool_destroy(core, &core->entries);
	le_pool_destroy(core, &core->waiters);
	le_pool_destroy(core, &core->uncommitted);
	le_pool_destroy(core, &core->leases);
	le_pool_destroy(core, &core->groups);
	le_pool_destroy(core, &core->change_pool);
	le_free_array(core, core->prealloc_names.items);
	le_free_array(core, core->prealloc_owners.items);
	le_pool_destroy(core, &core->roles);
	le_free_array(core, core->heap.items);
	le_free_array(core, core->sessions);
	env.free(env.arg, core);
}

void
le_core_set_horizon(LeCore *core, LeTime horizon)
{
	core->horizon = horizon;
}

void
le_core_set_uptime(LeCore *core, LeTime uptime)
{
	if (uptime > core->uptime)
		core->uptime = uptime;
}

void
le_core_set_writable(LeCore *core, bool writable)
{
	core->unwritable = !writable;
}

void
le_core_set_limits(LeCore *core, const LeLimits *limits)
{
	core->limits = *limits;
}

int64_t
le_core_next_revision(const LeCore *core)
{
	return core->next_revision;
}

/* --- dispatch of commands --- */

/* Applies a command.  Must not fail. */
typedef void LeApply(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply);

static void
apply_advance(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	(void) now;
	le_core_raise_revision(core, cmd->revision);
	reply->revision = core->next_revision;
	reply->wrote = true;
}

/* FENCE_ENDED: ends all lapsed holders that are no longer fenced. */
static void
apply_fence_ended(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	LeEntry *before = core->ended;

	(void) cmd, (void) reply;
	le_link_foreach(link, next, &core->lapsed)
	{
		LeEntry *entry = le_container(link, LeEntry, lapsed_link);

		le_entry_end_only(core, entry, (LeEnd) entry->end, entry->closed_until, now);
	}
	le_settle_ended(core, before, now);
}

/* For each command with at most one name, the function that applies it. */
static LeApply *const apply_one[] = {
	[LE_CMD_ACQUIRE] = le_apply_acquire,
	[LE_CMD_AWAIT] = le_apply_await,
	[LE_CMD_RENEW] = le_apply_renew,
	[LE_CMD_RELEASE] = le_apply_release,
	[LE_CMD_CHECK] = le_apply_check,
	[LE_CMD_FORCE] = le_apply_force,
	[LE_CMD_EVICT] = le_apply_evict,
	[LE_CMD_PROCLAIM] = le_apply_proclaim,
	[LE_CMD_SET_PERMITS] = le_apply_set_permits,
	[LE_CMD_GRANT_LEASE] = le_apply_grant_lease,
	[LE_CMD_KEEP_ALIVE] = le_apply_lease,
	[LE_CMD_REVOKE_LEASE] = le_apply_lease,
	[LE_CMD_LEASE_TTL] = le_apply_lease,
	[LE_CMD_LEASE_HOLDS] = le_apply_lease,
	[LE_CMD_FORCE_ROLE] = le_apply_force_role,
	[LE_CMD_ADVANCE] = apply_advance,
	[LE_CMD_UNDO] = le_apply_undo,
	[LE_CMD_SESSION_END] = le_apply_session_end,
	[LE_CMD_FENCE_ENDED] = apply_fence_ended,
};

/*
 * Applies any command, except those with "each", and frees reserved memory that was not used.  Must not
 * fail.
 */
void
le_core_apply(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	LeApply *apply = apply_one[cmd->type];

	if (cmd->nnames > 0)
		apply = cmd->type == LE_CMD_ACQUIRE ? le_apply_acquire_group : le_apply_await_group;
	assert(!cmd->each && cmd->nnames <= LE_MAX_NAMES);
	assert(cmd->nnames == 0 || cmd->type == LE_CMD_ACQUIRE || cmd->type == LE_CMD_AWAIT);
	memset(reply, 0, sizeof(*reply));
	core->releaser = cmd->type == LE_CMD_RELEASE ? cmd->lease : 0;
	apply(core, cmd, now, reply);
	core->releaser = 0;
	if (reply->status == LE_LOST || reply->status == LE_NOT_HELD || reply->status == LE_NO_LEASE)
		le_reply_ending(core, cmd, now, reply);
	le_prealloc_free(core);
	assert(core->to_settle == NULL && core->prealloc_value == NULL && core->prealloc_acquirer == NULL);
}

/* --- timers --- */

/* Reasons why an entry's timer fires. */
typedef enum Due
{
	DUE_NOTHING, /* the deadline has moved since the timer was set */
	DUE_FENCE,   /* LAPSED: check the fence again */
	DUE_TIMEOUT, /* the wait of a call has timed out */
	DUE_ANSWER,  /* the wait of a call for a place has timed out; the place stays */
	DUE_EXPIRY,  /* its lease has expired */
	DUE_KEEP,    /* its lease has expired, but a call that waits for the place keeps it alive */
	DUE_SAVE     /* the time left must be saved */
} Due;

/* Returns the first reason why an entry's timer fires now. */
static Due
what_is_due(const LeCore *core, const LeEntry *entry, LeTime now)
{
	if (entry->state == LE_STATE_LAPSED)
		return DUE_FENCE;
	if (entry->state == LE_STATE_QUEUED && entry->waiter->until <= now)
		return entry->place ? DUE_ANSWER : DUE_TIMEOUT;
	if (le_is_over(core, entry->deadline, now))
		return entry->state == LE_STATE_QUEUED && entry->waiter->session != 0 && !entry->waiter->answering
				   ? DUE_KEEP
				   : DUE_EXPIRY;
	return le_entry_save_at(entry) <= now ? DUE_SAVE : DUE_NOTHING;
}

/* Handles an entry's timer: ends the entry, or does what is due and arms the timer again. */
static void
entry_due(LeCore *core, LeEntry *entry, LeTime now)
{
	LeTime closed_until = 0;

	switch (what_is_due(core, entry, now))
	{
		case DUE_NOTHING:
			break;
		case DUE_FENCE:
			le_entry_end(core, entry, (LeEnd) entry->end, entry->closed_until, now);
			return;
		case DUE_TIMEOUT:
			le_entry_end(core, entry, LE_END_TIMEOUT, 0, now);
			return;
		case DUE_ANSWER:
			entry->waiter->until = LE_NEVER;
			if (le_entry_named_lease(entry) == NULL)
				le_entry_renew(core, entry, now);
			le_answer(core, entry, LE_QUEUED, entry->token);
			break;
		case DUE_EXPIRY:
			if (entry->state == LE_STATE_HELD && core->limits.expiry_grace > 0)
				closed_until = le_add(now, core->limits.expiry_grace);
			le_entry_end(core, entry, le_end_by_time(entry), closed_until, now);
			return;
		case DUE_KEEP:
			le_entry_renew(core, entry, now);
			break;
		case DUE_SAVE:
			le_saved_set(core, &entry->saved, entry->deadline - now);
			le_entry_row_dirty(core, entry);
			break;
	}
	/* arm the timer for the next event */
	le_timer_clear(core, &entry->timer);
	le_entry_arm(core, entry);
}

/* Marks the rows of an unused lock for deletion.  Returns false if some rows are left for the next batch. */
static bool
drop_rows(LeCore *core, LeLock *lock)
{
	for (LeSlot *slot = lock->slots; slot != NULL; slot = slot->next)
	{
		if (slot->drop && !slot->row.on_disk)
			continue;
		if (le_core_is_full(core))
			return false;
		slot->drop = true;
		le_slot_dirty(core, slot);
		core->work++;
	}
	return true;
}

/* Handles a lock's timer: opens its name, deletes its rows, or grants the lock to more waiters. */
static void
lock_due(LeCore *core, LeLock *lock, LeTime now)
{
	le_timer_clear(core, &lock->timer);
	if (lock->held == 0 && lock->waiting == 0 && lock->closed_until == 0)
	{
		/* the rows of the unused lock have lingered long enough */
		if (!drop_rows(core, lock))
		{
			le_timer_set(core, &lock->timer, now);
			return;
		}
		lock->doomed = true;
		assert(lock->waiting == 0 && lock->held == 0);
	}
	else if (lock->closed_until <= now)
		le_lock_open(core, lock);
	le_lock_settle(core, lock, now);
}

int
le_core_expire(LeCore *core, LeTime now, int max)
{
	LeTime due = core->horizon < now ? core->horizon : now;
	int n = 0;

	core->work = 0; /* the work of the batch's requests does not count here */
	while (n < max && !le_core_is_full(core) && core->heap.len > 0 && core->heap.items[0]->at <= due)
	{
		LeTimer *timer = core->heap.items[0];

		n++;
		switch ((LeTimerType) timer->type)
		{
			case LE_TIMER_ENTRY:
				entry_due(core, le_container(timer, LeEntry, timer), now);
				break;
			case LE_TIMER_LOCK:
				lock_due(core, le_container(timer, LeLock, timer), now);
				break;
			case LE_TIMER_LEASE:
				le_lease_due(core, le_container(timer, LeLease, timer), now);
				break;
		}
	}
	return n;
}

LeTime
le_core_next_deadline(const LeCore *core)
{
	return core->heap.len > 0 ? core->heap.items[0]->at : LE_NEVER;
}

LeEntry *
le_core_overdue(LeCore *core, LeTime timeout, LeTime now)
{
	LeEntry *entry;

	if (le_link_empty(&core->lapsed))
		return NULL;

	/* the list is in order of lapsed_at */
	entry = le_container(core->lapsed.next, LeEntry, lapsed_link);
	assert(entry->state == LE_STATE_LAPSED);
	if (le_add(entry->lapsed_at, timeout) > now)
		return NULL;
	entry->lapsed_at = now;
	le_unlink(&entry->lapsed_link);
	le_link_before(&core->lapsed, &entry->lapsed_link);
	return entry;
}
