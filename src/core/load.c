/*
 * core/load.c
 *		Builds the state of a core from stored rows.  Decides which holders continue and for
 *		how long, and which of two conflicting holders stays.
 */
#include "changes.h"
#include "containers.h"
#include "entry.h"
#include "later.h"
#include "leases.h"
#include "leasetime.h"
#include "life.h"
#include "load.h"
#include "lock.h"
#include "news.h"
#include "owner.h"
#include "reserve.h"
#include "role.h"
#include "saved.h"
#include "sessions.h"
#include "settle.h"
#include "state.h"
#include "together.h"
#include "uncommitted.h"
#include "view.h"

/* The decision about the holder or queue place in a row. */
typedef struct Verdict
{
	bool stays; /* the holder stays in its slot, HELD or LAPSED */
	bool ended; /* the holder or place has ended; a holder that stays is LAPSED */
	LeEnd how;  /* how the holder or place ended; LE_END_NONE = not known */
	LeTime closed_until;
	LeLease *lease;
	uint64_t session; /* session that made the request; 0 = not connected */
	uint32_t sessno;
} Verdict;

/* The deadline of a lease, and the time left that its row records. */
typedef struct Times
{
	LeTime deadline;
	LeSaved saved;
} Times;

/* The times of a lease in the failed core. */
typedef struct Known
{
	LeTime ttl; /* 0 = the failed core has no such lease */
	LeTime deadline;
	const LeSaved *saved; /* time left in its row; NULL = no longer known */
} Known;

/* --- rows --- */

static LeTime
from_wall(const LeClock *clock, int64_t wall)
{
	if (wall == INT64_MAX)
		return LE_NEVER;
	if (wall == INT64_MIN)
		return 0;
	return clock->now + (wall - clock->wall);
}

/* Returns when a row's holder acquired the lock: at most now, even if the wall clock was set back. */
static LeTime
held_since(const LeCore *core, const LeStoredEntry *row)
{
	LeTime since = from_wall(&core->load.clock, row->since);

	return since < core->load.clock.now ? since : core->load.clock.now;
}

static bool
name_is_valid(const LeStoredEntry *row)
{
	return row->name.len >= 1 && row->name.len <= LE_MAX_NAME &&
		   (row->kind == LE_KIND_LOCK || row->kind == LE_KIND_ELECTION);
}

/* Returns whether the fields that rows of slots and of places share are valid. */
static bool
request_is_valid(const LeStoredEntry *row)
{
	return row->token > 0 && row->mode >= LE_MODE_EXCLUSIVE && row->mode <= LE_MODE_PERMIT &&
		   (row->mode != LE_MODE_PERMIT || row->permits > 0) && (row->ttl > 0 || row->ttl == LE_TTL_BOUND) &&
		   row->owner.len <= LE_MAX_OWNER && row->value.len <= LE_MAX_VALUE &&
		   row->acquirer.len <= LE_MAX_ACQUIRER && row->uncommitted.len % sizeof(LeStoredHold) == 0;
}

bool
le_stored_slot_valid(const LeStoredEntry *row)
{
	if (!name_is_valid(row) || row->slot < 0 || row->slot == INT32_MAX)
		return false;
	return row->mode == 0 || (request_is_valid(row) && row->holds > 0 && row->time_left >= 0 &&
							  row->end <= LE_END_SESSION && !(row->evicted && row->ttl == LE_TTL_BOUND));
}

/* --- time --- */

/*
 * Computes the deadline of a lease from its row: the time left at the end of the life in which the row
 * was written, minus the duration of the lives since then.  After a failed batch the lease keeps the
 * deadline of the failed core, unless that batch changed the TTL, because the new TTL was not written.
 * A raise (LeSaved) that was written but is not flushed yet remains a raise.
 */
static Times
times_of(const LeCore *core, LeTime ttl, LeTime left, uint32_t life, Known failed)
{
	LeTime gone = le_life_since(core->life, life);
	LeTime begins = left < ttl ? left : ttl;
	Times times = {.saved = {.left = begins, .life = life}};

	begins = begins > gone ? begins - gone : 1;
	times.deadline = failed.ttl == ttl ? failed.deadline : le_add(core->load.clock.now, begins);
	if (failed.ttl == ttl && failed.saved != NULL && failed.saved->raised && left >= ttl &&
		life == core->life->number)
		times.saved = *failed.saved;
	return times;
}

static const LeEntry *
find_failed(const LeCore *core, const LeStoredEntry *row)
{
	return core->load.failed != NULL ? le_core_find_entry(core->load.failed, row->kind, row->name, row->token)
									 : NULL;
}

/*
 * Sets the deadline and the saved time of a holder or a place. failed: the same entry in the failed
 * core, or NULL.
 */
static void
load_times(LeCore *core, LeEntry *entry, const LeStoredEntry *row, const LeEntry *failed)
{
	Known known = {0};
	Times times;

	if (!le_entry_has_own_time(entry) || row->ttl == LE_TTL_BOUND)
		return;
	if (failed != NULL && failed->deadline != LE_NEVER)
		known =
			(Known){failed->ttl, failed->deadline, failed->state != LE_STATE_LAPSED ? &failed->saved : NULL};
	times = times_of(core, row->ttl, row->time_left, row->life, known);
	entry->deadline = times.deadline;
	if (entry->lease != NULL && entry->lease->deadline < entry->deadline)
		entry->deadline = entry->lease->deadline; /* an evicted holder must not outlive its named lease, whose
												   * row may be older */
	le_saved_load(core, &entry->saved, times.saved);
}

/*
 * Puts entries and leases that ended in the failed batch back into the hashes of the failed core, so
 * that lookups find them: their ends were not written and therefore do not count.  Afterwards the
 * failed core can be used only for lookups.
 */
static void
find_ended_again(LeCore *failed)
{
	for (LeEntry **p = &failed->ended; *p != NULL;)
	{
		LeEntry *entry = *p;
		const LeLock *lock = entry->lock;

		if (le_core_find_entry(failed, (LeKind) lock->kind, le_text(lock->name, lock->name_len),
							   entry->token) != NULL)
		{
			p = &entry->ended_next;
			continue;
		}
		*p = entry->ended_next;
		le_hash_add(failed, LE_HASH_TOKENS, &entry->token_link);
	}
	for (LeLease *lease = failed->dirty_leases; lease != NULL; lease = lease->dirty_next)
	{
		if (lease->ended && le_core_find_lease(failed, lease->id) == NULL)
			le_hash_add(failed, LE_HASH_LEASES, &lease->hash_link);
	}
}

void
le_core_load_begin(LeCore *core, const LeLoadEnv *env)
{
	assert(!core->loading && core->hashes[LE_HASH_LOCKS].count == 0 &&
		   core->hashes[LE_HASH_LEASES].count == 0);
	core->load = *env;
	if (env->life != NULL)
		core->life = env->life;
	core->lease_ended_lsn = env->lsn;
	core->loading = true;
	le_news_load_begin(core);
	if (env->failed != NULL)
	{
		find_ended_again(env->failed);
		le_later_sort(env->failed);
	}
}

/* --- leases --- */

LeLoadStatus
le_core_load_lease(LeCore *core, const LeStoredLease *row)
{
	Times times;
	const LeLease *failed = core->load.failed != NULL ? le_core_find_lease(core->load.failed, row->id) : NULL;
	Known known = {0};
	LeLease *lease;

	if (row->id <= 0 || row->ttl <= 0 || row->owner.len > LE_MAX_OWNER ||
		le_core_find_lease(core, row->id) != NULL)
		return LE_LOAD_INVALID;
	if (!le_reserve_lease(core, row->owner))
		return LE_LOAD_NO_MEMORY;
	if (failed != NULL)
		known = (Known){failed->ttl, failed->deadline, &failed->saved};
	times = times_of(core, row->ttl, row->time_left, row->life, known);

	/* create the lease */
	lease = le_lease_new(core, row->id, row->ttl, row->role);
	le_role_add(core, row->role, le_usage_of_lease(row->owner.len));
	if (row->owner.data != NULL)
	{
		lease->owner = le_prealloc_take(&core->prealloc_owners);
		lease->owner_len = (uint8_t) row->owner.len;
	}
	lease->row.locator = row->locator;
	lease->row.on_disk = true;
	lease->lsn = core->load.lsn;
	le_news_load_lease(core, lease, failed);

	/* set the lease's deadline and its saved time */
	lease->deadline = times.deadline;
	le_saved_load(core, &lease->saved, times.saved);
	le_core_raise_revision(core, row->id + 1);
	if (core->load.copied)
		le_lease_end(core, lease, LE_END_EXPIRED, core->load.clock.now);
	else
		le_lease_arm(core, lease);
	return LE_LOADED;
}

/* --- which rows are still valid --- */

/* Determines the session and the lease of a row, and whether the row's holder or place has ended. */
static void
look_at_life(const LeCore *core, const LeStoredEntry *row, Verdict *verdict)
{
	if (row->session != 0 && core->load.alive(core->load.arg, row->session, &verdict->sessno))
		verdict->session = row->session;
	if (row->lease != 0)
		verdict->lease = le_core_find_lease(core, row->lease);
	if (row->end != LE_END_NONE)
	{
		verdict->ended = true;
		verdict->how = row->end;
	}
	else if (core->load.copied || (row->lease != 0 && verdict->lease == NULL))
		verdict->ended = true;
	else if (row->lease == 0 && row->ttl == LE_TTL_BOUND && verdict->session == 0)
	{
		verdict->ended = true;
		verdict->how = LE_END_SESSION;
	}
}

/*
 * Decides whether a row's holder stays.  A holder that has ended stays while it is fenced.  In a copy
 * of a database no holder counts as fenced, because fences exist only in the original database.
 */
static Verdict
judge_holder(const LeCore *core, const LeStoredEntry *row)
{
	Verdict verdict = {0};
	LeTime now = core->load.clock.now;

	/* a released holder stays ended: its token was not fenced at the release, and cannot be fenced later */
	if (le_was_released(core->load.failed, row))
		return (Verdict){.ended = true, .how = LE_END_RELEASED};
	look_at_life(core, row, &verdict);
	if (verdict.how == LE_END_SESSION && row->end == LE_END_NONE && core->limits.expiry_grace > 0)
		verdict.closed_until = le_add(now, core->limits.expiry_grace);
	verdict.stays = !verdict.ended || (!core->load.copied && core->env.fenced != NULL &&
									   core->env.fenced(core->env.arg, row->token));
	return verdict;
}

/*
 * Decides between two incompatible holders; another program must have written one of their rows.  The
 * newer holder stays, unless the older one is fenced.  Returns the token of the holder that stays.
 */
static int64_t
settle_rivals(LeCore *core, LeLock *lock, const LeStoredEntry *row, Verdict *verdict)
{
	int64_t newest = 0;

	for (const LeSlot *slot = lock->slots; slot != NULL; slot = slot->next)
	{
		if (le_slot_holder(slot) != NULL && le_slot_holder(slot)->token > newest)
			newest = le_slot_holder(slot)->token;
	}
	for (LeSlot *slot = lock->slots; slot != NULL && row->token > newest; slot = slot->next)
	{
		if (le_slot_holder(slot) != NULL)
			le_entry_end(core, le_slot_holder(slot), LE_END_FORCED, 0, core->load.clock.now);
	}
	if (lock->held == 0)
		return row->token;
	verdict->stays = false;
	verdict->ended = true;
	verdict->how = LE_END_FORCED;
	return newest;
}

/* --- slots --- */

/* Returns the properties of a row's entry. */
static LeEntrySpec
spec_of(const LeStoredEntry *row, const Verdict *verdict)
{
	return (LeEntrySpec){.mode = row->mode,
						 .ttl = row->ttl,
						 .token = row->token,
						 .lease = verdict->lease,
						 .owner = row->owner,
						 .value = row->value,
						 .acquirer = row->acquirer,
						 .role = row->role,
						 .session = verdict->session,
						 .sessno = verdict->sessno};
}

/* Creates a slot with the number that its row has. */
static LeSlot *
load_slot(LeCore *core, LeLock *lock, const LeStoredEntry *row)
{
	LeSlot *slot = le_pool_get(&core->slots);

	assert(core->loading && row->slot >= 0);
	slot->lock = lock;
	slot->number = row->slot;
	slot->row.locator = row->locator;
	slot->row.on_disk = true;
	slot->next = lock->slots;
	lock->slots = slot;
	if (row->slot >= lock->next_number)
		lock->next_number = row->slot + 1;
	return slot;
}

/*
 * Records that a session is connected.  Its transaction is not known, because no command of the session
 * has arrived yet.
 */
static void
session_is_there(LeCore *core, uint64_t id, uint32_t sessno)
{
	LeSession *session = &core->sessions[sessno];

	assert(sessno < core->max_sessions && (session->id == 0 || session->id == id));
	session->id = id;
}

/* Loads the uncommitted holds of transactions that may still roll back.  Returns false if out of memory. */
static bool
load_holds(LeCore *core, LeEntry *entry, LeText uncommitted)
{
	for (uint32_t at = 0; at < uncommitted.len; at += sizeof(LeStoredHold))
	{
		LeStoredHold hold;
		uint32_t sessno;

		memcpy(&hold, uncommitted.data + at, sizeof(hold));
		if (!core->load.alive(core->load.arg, hold.session, &sessno) ||
			!core->load.uncommitted(core->load.arg, hold.session, hold.xact))
			continue;
		if (!le_pool_reserve(core, &core->uncommitted, 1))
			return false;
		(void) le_session_touch(core, hold.session, sessno, hold.xact, core->load.clock.now);
		le_uncommitted_add(core, entry, hold.session, sessno, hold.xact, hold.subxact);
	}
	return true;
}

/* Marks the lease as belonging to a group, so that it does not count against the role's limits. */
static void
lease_is_of_group(LeCore *core, LeLease *lease, int64_t token)
{
	if (lease == NULL || lease->id != token || lease->for_group)
		return;
	lease->for_group = true;
	le_role_remove(core, lease->role, le_usage_of_lease(lease->owner_len));
}

/*
 * Returns when a holder lapsed: the time that the failed core recorded, even if the holder has
 * ended there; if it recorded none, now.
 */
static LeTime
lapsed_since(const LeCore *core, const LeStoredEntry *row, const LeEntry *failed)
{
	bool known = failed != NULL && (failed->state == LE_STATE_LAPSED ||
									(failed->state == LE_STATE_ENDED && row->end != LE_END_NONE));

	return known ? failed->lapsed_at : core->load.clock.now;
}

/* Creates a slot's holder: HELD, or LAPSED if it has ended but is fenced.  Returns false if out of memory. */
static bool
load_holder(LeCore *core, LeSlot *slot, const LeStoredEntry *row, const Verdict *verdict)
{
	LeLock *lock = slot->lock;
	LeEntrySpec spec = spec_of(row, verdict);
	const LeEntry *failed = find_failed(core, row);
	LeEntry *entry = le_entry_new(core, lock, &spec);

	assert(!slot->free && slot->holder == NULL);
	le_entry_set_state(entry, LE_STATE_NEW, LE_STATE_HELD);
	le_owner_add(core, entry);
	entry->slot = slot;
	entry->evicted = row->evicted;
	if (entry->lease != NULL)
		entry->lease->evicted += row->evicted;
	entry->hold_count = (uint32_t) row->holds;
	entry->acquired_at = held_since(core, row);
	entry->lsn = core->load.lsn;

	/* fill the slot, and update the lock */
	slot->holder = entry;
	lock->held++;
	lock->mode = entry->mode;
	if (row->mode == LE_MODE_PERMIT && row->permits > lock->permits)
		lock->permits = row->permits;

	/* set the holder's deadline, or let it lapse, and load its uncommitted holds */
	load_times(core, entry, row, failed);
	if (verdict->ended)
	{
		le_entry_lapse(core, entry, verdict->how, verdict->closed_until, lapsed_since(core, row, failed));
		le_timer_set(core, &entry->timer, core->load.clock.now);
		return true;
	}
	le_entry_arm(core, entry);
	return load_holds(core, entry, row->uncommitted);
}

/* Loads a slot without a holder, for a free row or one whose holder has ended. */
static void
load_free(LeCore *core, LeSlot *slot, const LeStoredEntry *row, const Verdict *verdict)
{
	le_slot_add_free(slot->lock, slot);
	if (row->mode == 0)
		return;
	le_slot_dirty(core, slot);
	le_later_go_on(core, row);
	le_change_lost(core, slot->lock, row, verdict->how, held_since(core, row), core->load.clock.now);
}

/*
 * Returns the later of "otherwise" and the time until which a row closes its name, or will close it
 * after the end of a lapsed holder.  If the wall clock was set back, limits the row's time to the
 * duration that was left when the row was written.
 */
static LeTime
closed_until(const LeCore *core, const LeStoredEntry *row, LeTime otherwise)
{
	LeTime until = row->closed_until != 0 ? from_wall(&core->load.clock, row->closed_until) : 0;

	/* the column "since" may be -infinity, from which no duration can be computed */
	if (until != 0 && until != LE_NEVER && row->since != INT64_MIN)
	{
		LeTime left = row->closed_until > row->since ? row->closed_until - row->since : 0;
		LeTime most = le_add(core->load.clock.now, left);

		until = until < most ? until : most;
	}
	if (until <= core->load.clock.now || core->load.copied)
		until = 0;
	return until > otherwise ? until : otherwise;
}

/* Reserves memory for a row and its uncommitted holds, so that the row is loaded as a whole or not at all. */
static bool
reserve_row(LeCore *core, const LeStoredEntry *row)
{
	LeEntrySpec spec = {.owner = row->owner, .value = row->value, .acquirer = row->acquirer};
	uint32_t holds = row->uncommitted.len / (uint32_t) sizeof(LeStoredHold);

	return le_reserve_entries(core, row->kind, &row->name, 1, &spec) &&
		   le_pool_reserve(core, &core->uncommitted, holds + 1);
}

LeLoadStatus
le_core_load_slot(LeCore *core, const LeStoredEntry *row, int64_t *newest)
{
	LeLock *lock = le_core_find_lock(core, row->kind, row->name);
	Verdict verdict = {0};
	LeSlot *slot;
	bool rival;

	if (!le_stored_slot_valid(row) ||
		(row->mode != 0 && le_core_find_entry(core, row->kind, row->name, row->token) != NULL))
		return LE_LOAD_INVALID;

	/* decide whether the row's holder stays */
	if (row->mode != 0)
		verdict = judge_holder(core, row);
	verdict.closed_until = closed_until(core, row, verdict.closed_until);
	rival = verdict.stays && lock != NULL && lock->held > 0 && !le_modes_compatible[lock->mode][row->mode];
	if (rival)
		*newest = settle_rivals(core, lock, row, &verdict);
	if (!reserve_row(core, row))
		return LE_LOAD_NO_MEMORY;

	/* create the lock, its slot and its holder */
	lock = le_lock_get(core, row->kind, row->name);
	slot = load_slot(core, lock, row);
	le_core_raise_revision(core, row->token + 1);
	lease_is_of_group(core, verdict.lease, row->token);
	assert(verdict.stays || verdict.ended || row->mode == 0);
	if (!verdict.stays)
	{
		le_lock_close(core, lock, verdict.closed_until, row->role);
		load_free(core, slot, row, &verdict);
	}
	else
	{
		if (verdict.session != 0)
			session_is_there(core, verdict.session, verdict.sessno);
		if (!load_holder(core, slot, row, &verdict))
			return LE_LOAD_NO_MEMORY;
	}
	if (row->closed_until != 0 && core->load.copied)
		le_slot_dirty(core, slot);
	return rival ? LE_LOADED_RIVAL : LE_LOADED;
}

/* --- places --- */

LeLoadStatus
le_core_load_place(LeCore *core, const LeStoredEntry *row)
{
	LeTime now = core->load.clock.now;
	Verdict verdict = {0};
	LeEntrySpec spec;
	LeLock *lock;
	LeEntry *entry;

	/* check the row, its lease and its connection */
	if (!name_is_valid(row) || !request_is_valid(row) || row->holds <= 0 || row->member > LE_MAX_NAMES ||
		le_core_find_entry(core, row->kind, row->name, row->token) != NULL)
		return LE_LOAD_INVALID;
	look_at_life(core, row, &verdict);
	if (!reserve_row(core, row) || (row->member > 0 && !le_pool_reserve(core, &core->groups, 1)))
	{
		/* if one of several names cannot be loaded, all of them are lost */
		if (row->member > 0 && core->loaded_group != NULL && core->loaded_group->members->token == row->token)
		{
			le_group_end(core, core->loaded_group, LE_END_SESSION, now);
			core->loaded_group = NULL;
		}
		return LE_LOAD_NO_MEMORY;
	}
	if (verdict.session != 0)
		session_is_there(core, verdict.session, verdict.sessno);
	lock = le_lock_get(core, row->kind, row->name);
	if (row->mode == LE_MODE_PERMIT && lock->permits == 0)
		lock->permits = row->permits;
	le_core_raise_revision(core, row->token + 1);
	lease_is_of_group(core, verdict.lease, row->token);
	spec = spec_of(row, &verdict);
	spec.place = true;
	entry = le_entry_new(core, lock, &spec);
	entry->hold_count = (uint32_t) row->holds;
	entry->lsn = core->load.lsn;
	le_waiter_new(core, entry, now);
	entry->waiter->tells = LE_TELLS_BOTH;
	entry->waiter->since = from_wall(&core->load.clock, row->since);
	if (entry->waiter->since > now)
		entry->waiter->since = now;
	entry->waiter->row.locator = row->locator;
	entry->waiter->row.on_disk = true;
	load_times(core, entry, row, find_failed(core, row));
	if (verdict.ended)
	{
		/* if the place has several names, all its entries have ended, so each can be ended separately */
		le_entry_queue(core, entry, now);
		le_entry_end(core, entry, LE_END_SESSION, 0, now);
		return LE_LOADED;
	}
	entry->waiter->member = row->member;
	if (row->member > 0)
		le_group_load(core, entry);
	le_entry_queue(core, entry, now);
	return load_holds(core, entry, row->uncommitted) ? LE_LOADED : LE_LOAD_NO_MEMORY;
}

/* --- end of the load --- */

void
le_core_load_done(LeCore *core, LeTime now)
{
	assert(core->loading);
	core->loading = false;
	core->loaded_group = NULL;

	/* end leases of groups whose last lapsed holders are not fenced any more */
	for (uint32_t i = 0; i < le_core_lease_indexes(core); i++)
	{
		LeLease *lease = le_pool_at(&core->leases, i);

		if (lease->for_group && !lease->ended && le_link_empty(&lease->entries))
			le_lease_end(core, lease, LE_END_RELEASED, now);
	}
	for (uint32_t i = 0; i < le_core_lock_indexes(core); i++)
	{
		LeLock *lock = le_core_lock_at(core, i);

		if (lock != NULL)
			le_lock_settle(core, lock, now);
	}
}
