/*
 * invariants.c
 *		Invariants of the core's locks at the end of every batch, checked from
 *		outside, without the model.
 *
 * Where each promise of the contract is checked:
 *
 *	M	at most N holders of N slots, and no other holder beside an exclusive
 *		one: le_core_check() and check_admitted() here; the model at grants.
 *		Intervals by the clocks of clients are not checked here.
 *	T	tokens grow, also across restarts and promotions: check_tokens() in
 *		batch.c, against all tokens that clients have ever seen; history.c.
 *	Q	grants in the order of revisions: le_core_check() checks the order of
 *		queues and their heads; whether a grant overtakes, only the model checks.
 *	R	earlier calls have lower revisions: only the model, whose counter has to
 *		agree with every reply.
 *	W	no waiter that could be granted: check_group(); no waiting entry without
 *		a waiting session, and vice versa: check_waiters().
 *	D	every holder is stored correctly: check_rows(); that it exists after a
 *		restart: the model, compared after each.
 *	E	if the epoch is still that of a grant, the grant is held: check_epochs().
 *	L	nothing ends early (world.c checks a microsecond before each deadline)
 *		or late (nothing is due after batch_expire()); how long leases last, only
 *		the model checks.
 *	G	nothing is left behind: check_rows() and check_leases() count the rows;
 *		check_undone() and check_forced() search for entries that a rollback or
 *		FORCE_ROLE should have ended; world_end() lets all clients leave, and
 *		searches for remaining entries.
 *	H	the changes of an election follow on each other: history.c.
 */
#include <stdlib.h>

#include "sim.h"

#define EPOCHS_CHECKED 32 /* of the newest grants that somebody knows */

typedef struct Live
{
	const LeEntry **entries;
	size_t n, max;
} Live;

static void
add_live(Live *live, const LeEntry *entry)
{
	if (live->n == live->max)
	{
		live->max = live->max ? live->max * 2 : 256;
		live->entries = realloc(live->entries, live->max * sizeof(*live->entries));
		if (live->entries == NULL)
			abort();
	}
	live->entries[live->n++] = entry;
}

static void
find_live(World *w, Live *live)
{
	for (uint32_t place = 0; place < le_core_lock_indexes(w->core); place++)
	{
		LeLock *lock = le_core_lock_at(w->core, place);

		if (lock == NULL)
			continue;
		for (const LeSlot *slot = lock->slots; slot != NULL; slot = slot->next)
		{
			if (le_slot_holder(slot) != NULL)
				add_live(live, le_slot_holder(slot));
		}
		for (const LeLink *link = lock->queue.next; link != &lock->queue; link = link->next)
			add_live(live, le_queued(link));
	}
}

static int
by_token_and_lock(const void *a, const void *b)
{
	const LeEntry *x = *(LeEntry *const *) a, *y = *(LeEntry *const *) b;

	return x->token != y->token ? (x->token < y->token ? -1 : 1) : (x->lock > y->lock) - (x->lock < y->lock);
}

/* Returns whether the entry is first in its queue, and its lock admits it. */
static bool
could_be_granted(const World *w, const LeEntry *entry)
{
	const LeLock *lock = entry->lock;

	if (lock->queue.next != &entry->waiter->queue_link || lock->closed_until > w->expired || lock->unsettled)
		return false;
	if (entry->mode == LE_MODE_PERMIT)
		return lock->held < lock->permits;
	return lock->held == 0 || (entry->mode == LE_MODE_SHARED && lock->mode == LE_MODE_SHARED);
}

/* Checks the entries of one token: all wait or all hold, and a waiting token cannot be granted. */
static void
check_group(World *w, const LeEntry *const *members, size_t n)
{
	bool ready = true;

	for (size_t i = 0; i < n; i++)
	{
		ENSURE(w, le_entry_has_slot(members[i]) == le_entry_has_slot(members[0]));
		ENSURE(w, i == 0 || members[i]->lock != members[i - 1]->lock);
		ready = ready && members[i]->state == LE_STATE_QUEUED && could_be_granted(w, members[i]);
	}
	if (ready)
		sim_fail(w, "token %lld waits, and could be granted", (long long) members[0]->token);
}

/* Checks that a holder is alone in its lock, or is compatible with the others. */
static void
check_admitted(World *w, const LeEntry *entry)
{
	const LeLock *lock = entry->lock;
	int32_t holders = 0;

	for (const LeSlot *slot = lock->slots; slot != NULL; slot = slot->next)
	{
		if (le_slot_holder(slot) == NULL)
			continue;
		holders++;
		ENSURE(w, le_slot_holder(slot)->mode == entry->mode);
	}
	ENSURE(w, entry->mode != LE_MODE_EXCLUSIVE || holders == 1);
}

/* Checks that each holder and each place has its row, and that there are no other rows. */
static void
check_rows(World *w, const Live *live)
{
	uint32_t held = 0, places = 0, rows = 0;

	for (size_t i = 0; i < live->n; i++)
	{
		const LeEntry *entry = live->entries[i];
		bool holds = le_entry_has_slot(entry);
		const LeRow *at;
		const SlotRow *row;

		if (!holds && !entry->place)
			continue;
		at = holds ? &entry->slot->row : &entry->waiter->row;
		ENSURE(w, at->on_disk);
		row = store_row(w, holds ? TABLE_SLOTS : TABLE_PLACES, at->locator);
		ENSURE(w, row->used && row->token == entry->token && row->kind == entry->lock->kind &&
					  row->name == sim_text_id(entry->lock->name) && row->mode == entry->mode);
		ENSURE(w, !holds || (row->held && (row->end != LE_END_NONE) == (entry->state == LE_STATE_LAPSED) &&
							 row->hold_count == entry->hold_count));
		if (holds)
			check_admitted(w, entry);
		held += holds;
		places += !holds;
	}
	for (uint32_t i = 1; i <= w->tables[TABLE_SLOTS].len; i++)
	{
		const SlotRow *row = store_row(w, TABLE_SLOTS, i);

		rows += row->held && !store_is_later(w, row);
	}
	ENSURE(w, held == rows && places == w->tables[TABLE_PLACES].used);
}

/* Checks that a grant whose epoch is unchanged is held. */
static void
check_epochs(World *w, const Live *live)
{
	for (uint32_t i = 0; i < w->nknown && i < EPOCHS_CHECKED; i++)
	{
		const Known *known = &w->known[(w->nknown - 1 - i) % KNOWN];
		bool found = false;

		if (known->epoch_is == 0 || w->epochs[known->epoch] != known->epoch_is)
			continue;
		for (size_t j = 0; j < live->n && !found; j++)
			found = live->entries[j]->token == known->token && live->entries[j]->state == LE_STATE_HELD;
		if (!found)
			sim_fail(w, "the epoch of %lld is that of its grant, and it is not held",
					 (long long) known->token);
	}
}

/*
 * Checks the number of lease rows: one for each named lease, and one for each
 * group with its own lease, which lives as long as one of its members.
 */
static void
check_leases(World *w, const Live *live)
{
	uint32_t n = 0;
	int64_t last = 0;

	for (uint32_t place = 0; place < le_core_lease_indexes(w->core); place++)
		n += le_core_lease_at(w->core, place) != NULL;
	for (size_t i = 0; i < live->n; i++)
	{
		const LeEntry *entry = live->entries[i];

		if (entry->lease == NULL || !entry->lease->for_group)
			continue;
		ENSURE(w, entry->lease->id == entry->token);
		n += (le_entry_has_slot(entry) || entry->place) && entry->token != last;
		last = entry->token;
	}
	ENSURE(w, n == w->tables[TABLE_LEASES].used);
}

/* Checks that each waiting session has a waiting entry, and vice versa: no reply is lost. */
static void
check_waiters(World *w)
{
	for (uint32_t i = 0; i < w->conf.sessions; i++)
	{
		const Durable *d = &w->durable[i];
		const LeEntry *entry = d->id != 0 ? le_core_waiting_on(w->core, d->id, i) : NULL;

		if (d->waiting && (entry == NULL || entry->waiter->request != d->cmd.request))
			sim_fail(w, "session %llu waits, and will not be told", (unsigned long long) d->id);
		ENSURE(w, d->waiting || entry == NULL);
	}
}

/* Checks that this command has undone everything, except entries that a fence keeps. */
void
check_undone(World *w, const LeCommand *cmd)
{
	Live live = {NULL, 0, 0};

	find_live(w, &live);
	for (size_t i = 0; i < live.n; i++)
	{
		if (live.entries[i]->state == LE_STATE_LAPSED)
			continue;
		for (const LeUncommitted *hold = live.entries[i]->uncommitted; hold != NULL; hold = hold->next)
			ENSURE(w,
				   hold->session != cmd->session || hold->xact != cmd->xact || hold->subxact < cmd->subxact);
	}
	free(live.entries);
}

/*
 * Checks that nothing is left of the role's entries from before FORCE_ROLE, except entries that a fence
 * keeps.
 */
void
check_forced(World *w, const LeCommand *cmd, int64_t before)
{
	Live live = {NULL, 0, 0};

	find_live(w, &live);
	for (size_t i = 0; i < live.n; i++)
		ENSURE(w, live.entries[i]->state == LE_STATE_LAPSED || live.entries[i]->role != cmd->role ||
					  live.entries[i]->token >= before);
	free(live.entries);
	for (uint32_t i = 0; i < le_core_lease_indexes(w->core); i++)
	{
		const LeLease *lease = le_core_lease_at(w->core, i);

		ENSURE(w, lease == NULL || lease->draining || lease->role != cmd->role || lease->id >= before);
	}
}

void
check_invariants(World *w)
{
	Live live = {NULL, 0, 0};
	size_t from = 0;

	find_live(w, &live);
	if (live.n > 0)
		qsort(live.entries, live.n, sizeof(*live.entries), by_token_and_lock);
	for (size_t i = 1; i <= live.n; i++)
	{
		if (i < live.n && live.entries[i]->token == live.entries[from]->token)
			continue;
		check_group(w, &live.entries[from], i - from);
		from = i;
	}
	check_rows(w, &live);
	check_leases(w, &live);
	check_waiters(w);
	check_epochs(w, &live);
	free(live.entries);
}
