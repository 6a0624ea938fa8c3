/*
 * store.c
 *		Stable storage: stores the dirty rows of a batch, and returns them, as the
 *		server's store does.
 */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

static void
table_init(Table *t, size_t size)
{
	memset(t, 0, sizeof(*t));
	t->size = size;
}

static void *
table_row(Table *t, uint64_t locator)
{
	return (char *) t->rows + t->size * (locator - 1);
}

/* The rows of slots and places each have an array of holds. */
static void
forget_holds(Table *t, void *row)
{
	if (t->size == sizeof(SlotRow))
		free(((SlotRow *) row)->uncommitted);
}

static LeStoredHold *
copy_holds(const LeStoredHold *holds, uint32_t n)
{
	LeStoredHold *copy = n > 0 ? malloc(n * sizeof(LeStoredHold)) : NULL;

	if (n > 0 && copy == NULL)
		abort();
	if (n > 0)
		memcpy(copy, holds, n * sizeof(LeStoredHold));
	return copy;
}

static uint64_t
table_insert(Table *t)
{
	uint32_t i;

	t->used++;
	if (t->nfree > 0)
		return t->free_rows[--t->nfree] + 1;
	if (t->len == t->cap)
	{
		t->cap = t->cap ? t->cap * 2 : 256;
		t->rows = realloc(t->rows, t->cap * t->size);
		t->free_rows = realloc(t->free_rows, t->cap * sizeof(uint32_t));
		if (t->rows == NULL || t->free_rows == NULL)
			abort();
	}
	i = t->len++;
	memset(table_row(t, i + 1), 0, t->size);
	return i + 1;
}

static void
table_delete(Table *t, uint64_t locator)
{
	forget_holds(t, table_row(t, locator));
	memset(table_row(t, locator), 0, t->size);
	t->free_rows[t->nfree++] = (uint32_t) (locator - 1);
	t->used--;
}

static void
table_free(Table *t)
{
	for (uint32_t i = 1; i <= t->len; i++)
		forget_holds(t, table_row(t, i));
	free(t->rows);
	free(t->free_rows);
}

void
store_init(World *w)
{
	static const size_t sizes[TABLES] = {sizeof(SlotRow), sizeof(LeaseRow), sizeof(SlotRow)};

	for (int i = 0; i < TABLES; i++)
	{
		table_init(&w->tables[i], sizes[i]);
		for (int k = 0; k < DISKS; k++)
			table_init(&w->disks[k].tables[i], sizes[i]);
	}
}

void
store_free(World *w)
{
	for (int i = 0; i < TABLES; i++)
	{
		table_free(&w->tables[i]);
		for (int k = 0; k < DISKS; k++)
			table_free(&w->disks[k].tables[i]);
	}
}

const void *
store_row(World *w, int table, uint64_t locator)
{
	ENSURE(w, locator >= 1 && locator <= w->tables[table].len);
	return (const char *) w->tables[table].rows + w->tables[table].size * (locator - 1);
}

/* Copies all tables, row by row, to the same positions. */
void
store_copy(Table *to, const Table *from)
{
	for (int i = 0; i < TABLES; i++)
	{
		table_free(&to[i]);
		to[i] = from[i];
		if (from[i].cap == 0)
			continue;
		to[i].rows = malloc(from[i].cap * from[i].size);
		to[i].free_rows = malloc(from[i].cap * sizeof(uint32_t));
		if (to[i].rows == NULL || to[i].free_rows == NULL)
			abort();
		memcpy(to[i].rows, from[i].rows, from[i].len * from[i].size);
		memcpy(to[i].free_rows, from[i].free_rows, from[i].nfree * sizeof(uint32_t));
		if (from[i].size != sizeof(SlotRow))
			continue;
		for (uint32_t r = 1; r <= to[i].len; r++)
		{
			SlotRow *row = table_row(&to[i], r);

			row->uncommitted = copy_holds(row->uncommitted, row->nuncommitted);
		}
	}
}

/* --- writing --- */

static void
fill_holds(SlotRow *row, const LeEntry *entry)
{
	uint32_t n = 0;

	for (const LeUncommitted *hold = entry->uncommitted; hold != NULL; hold = hold->next)
		n++;
	row->uncommitted = n > 0 ? malloc(n * sizeof(LeStoredHold)) : NULL;
	if (n > 0 && row->uncommitted == NULL)
		abort();
	for (const LeUncommitted *hold = entry->uncommitted; hold != NULL; hold = hold->next)
		row->uncommitted[row->nuncommitted++] = (LeStoredHold){hold->session, hold->xact, hold->subxact};
}

static void
fill_row(const World *w, SlotRow *row, const LeEntry *entry)
{
	row->mode = entry->mode;
	row->end = entry->state == LE_STATE_LAPSED ? entry->end : LE_END_NONE;
	row->owner = sim_text_id(entry->owner);
	row->value = sim_text_id(entry->value);
	row->permits = entry->lock->permits;
	row->token = entry->token;
	row->lease = entry->lease != NULL ? entry->lease->id : 0;
	row->ttl = entry->ttl;
	row->time_left = 0;
	row->evicted = entry->evicted;
	if (entry->state != LE_STATE_LAPSED && le_entry_has_own_time(entry) && entry->ttl != LE_TTL_BOUND)
	{
		LeSaved saved = le_core_saved(w->core, &entry->saved, entry->ttl);

		row->time_left = saved.left;
		row->life = saved.life;
	}
	row->acquired_at = le_entry_has_slot(entry) ? entry->acquired_at : entry->waiter->since;
	row->session = entry->session;
	row->role = entry->role;
	row->hold_count = entry->hold_count;
	fill_holds(row, entry);
}

static void
write_slot(World *w, LeSlot *slot)
{
	LeLock *lock = slot->lock;
	SlotRow *row;

	if (le_slot_holder(slot) == NULL && !slot->row.on_disk)
		return;
	if (le_slot_holder(slot) == NULL && slot->drop)
	{
		table_delete(&w->tables[TABLE_SLOTS], slot->row.locator);
		slot->row.on_disk = false;
		return;
	}
	if (!slot->row.on_disk)
		slot->row.locator = table_insert(&w->tables[TABLE_SLOTS]);
	slot->row.on_disk = true;
	row = table_row(&w->tables[TABLE_SLOTS], slot->row.locator);
	forget_holds(&w->tables[TABLE_SLOTS], row);
	memset(row, 0, sizeof(*row));
	row->used = true;
	if (w->conf.broken == BROKEN_ROW && rng_chance(&w->rng, 20))
		return;
	row->kind = lock->kind;
	row->name = sim_text_id(lock->name);
	row->number = slot->number;
	row->held = le_slot_holder(slot) != NULL;
	row->closed_until = !row->held                                       ? lock->closed_until
						: le_slot_holder(slot)->state == LE_STATE_LAPSED ? le_slot_holder(slot)->closed_until
																		 : 0;
	if (row->closed_until != 0)
		row->role = lock->closed_by;
	if (row->held)
		fill_row(w, row, le_slot_holder(slot));
}

static void
write_lease(World *w, LeLease *lease)
{
	LeaseRow *row;

	if (lease->ended)
	{
		if (lease->row.on_disk)
			table_delete(&w->tables[TABLE_LEASES], lease->row.locator);
		lease->row.on_disk = false;
		return;
	}
	if (!lease->row.on_disk)
		lease->row.locator = table_insert(&w->tables[TABLE_LEASES]);
	lease->row.on_disk = true;
	row = table_row(&w->tables[TABLE_LEASES], lease->row.locator);
	row->used = true;
	row->id = lease->id;
	row->ttl = lease->ttl;
	row->time_left = le_core_saved(w->core, &lease->saved, lease->ttl).left;
	row->life = le_core_saved(w->core, &lease->saved, lease->ttl).life;
	row->role = lease->role;
}

static void
write_place(World *w, LeEntry *entry)
{
	SlotRow *row;

	if (entry->state != LE_STATE_QUEUED)
	{
		if (entry->waiter->row.on_disk)
			table_delete(&w->tables[TABLE_PLACES], entry->waiter->row.locator);
		entry->waiter->row.on_disk = false;
		return;
	}
	if (!entry->waiter->row.on_disk)
		entry->waiter->row.locator = table_insert(&w->tables[TABLE_PLACES]);
	entry->waiter->row.on_disk = true;
	row = table_row(&w->tables[TABLE_PLACES], entry->waiter->row.locator);
	forget_holds(&w->tables[TABLE_PLACES], row);
	memset(row, 0, sizeof(*row));
	row->used = true;
	row->kind = entry->lock->kind;
	row->name = sim_text_id(entry->lock->name);
	row->member = entry->waiter->member;
	fill_row(w, row, entry);
}

/* Returns the slot of a lock whose release is written later (core/later.c); NULL if there is none. */
static LeSlot *
later_slot(const World *w, int kind, int name)
{
	const LeLock *lock = le_core_find_lock(w->core, (LeKind) kind, sim_name(name));

	return lock != NULL && lock->slots != NULL && lock->slots->row.later && lock->slots->row.on_disk
			   ? lock->slots
			   : NULL;
}

/* Returns whether this row shows a held lock whose release is to be written later. */
bool
store_is_later(const World *w, const SlotRow *row)
{
	return row->held && later_slot(w, row->kind, row->name) != NULL;
}

/* Writes the releases that a manager writes before it exits.  The current batch is not stored. */
void
store_write_later(World *w)
{
	for (int name = 0; name < w->conf.names; name++)
	{
		LeSlot *slot = later_slot(w, LE_KIND_LOCK, name);

		if (slot != NULL)
			write_slot(w, slot);
	}
}

void
store_write(World *w)
{
	if (!rng_chance(&w->rng, w->conf.later_mille))
		le_core_write_now(w->core);
	le_core_recycle_rows(w->core, w->now);
	for (LeSlot *slot = NULL; (slot = le_next_dirty_slot(w->core, slot)) != NULL;)
		write_slot(w, slot);
	for (LeLease *lease = NULL; (lease = le_next_dirty_lease(w->core, lease)) != NULL;)
		write_lease(w, lease);
	for (LeEntry *entry = NULL; (entry = le_next_dirty_place(w->core, entry)) != NULL;)
		write_place(w, entry);
}

/* --- loading --- */

/* The wall clock at time 0 of the world. */
#define WALL (INT64_C(800000000) * LE_SECOND)

static bool
alive(void *arg, uint64_t session, uint32_t *sessno)
{
	const World *w = arg;

	*sessno = (uint32_t) (session % SESSION_CLIENTS);
	return w->durable[*sessno].id == session;
}

static bool
uncommitted(void *arg, uint64_t session, uint32_t xact)
{
	const World *w = arg;
	const Durable *d = &w->durable[session % SESSION_CLIENTS];

	return d->id == session && d->xact == xact;
}

static void
load_leases(World *w)
{
	for (uint32_t i = 1; i <= w->tables[TABLE_LEASES].len; i++)
	{
		const LeaseRow *row = table_row(&w->tables[TABLE_LEASES], i);
		LeStoredLease stored = {.id = row->id,
								.ttl = row->ttl,
								.time_left = row->time_left,
								.life = row->life,
								.role = row->role,
								.locator = i};

		if (row->used)
			ENSURE(w, le_core_load_lease(w->core, &stored) == LE_LOADED);
	}
}

static LeStoredEntry
stored_entry(const SlotRow *row, uint64_t locator)
{
	return (LeStoredEntry){
		.kind = (LeKind) row->kind,
		.name = sim_name(row->name),
		.slot = row->number,
		.closed_until = row->closed_until != 0 ? row->closed_until + WALL : 0,
		.mode = (LeMode) row->mode,
		.owner = row->mode != 0 ? sim_owner(row->owner) : (LeText){NULL, 0},
		.value = row->mode != 0 ? sim_value(row->value) : (LeText){NULL, 0},
		.role = row->role,
		.session = row->session,
		.token = row->token,
		.lease = row->lease,
		.permits = row->permits,
		.member = row->member,
		.ttl = row->ttl,
		.since = row->acquired_at + WALL,
		.uncommitted = {(const char *) row->uncommitted, row->nuncommitted * (uint32_t) sizeof(LeStoredHold)},
		.holds = (int32_t) row->hold_count,
		.time_left = row->mode != 0 && row->time_left > 0 ? row->time_left : 0,
		.life = row->life,
		.end = (LeEnd) row->end,
		.evicted = row->evicted,
		.locator = locator};
}

static void
load_slots(World *w)
{
	Table *t = &w->tables[TABLE_SLOTS];

	for (uint32_t i = 1; i <= t->len; i++)
	{
		const SlotRow *row = table_row(t, i);
		LeStoredEntry stored = stored_entry(row, i);
		int64_t newest;

		if (row->used)
			ENSURE(w, le_core_load_slot(w->core, &stored, &newest) == LE_LOADED);
	}
}

static int
by_token(const void *a, const void *b)
{
	const SlotRow *x = *(SlotRow *const *) a, *y = *(SlotRow *const *) b;

	return (x->token > y->token) - (x->token < y->token);
}

/* Loads the places in the order of their tokens. */
static void
load_places(World *w)
{
	Table *t = &w->tables[TABLE_PLACES];
	SlotRow **rows = malloc((t->used + 1) * sizeof(SlotRow *));
	uint32_t n = 0;

	if (rows == NULL)
		abort();
	for (uint32_t i = 1; i <= t->len; i++)
	{
		SlotRow *row = table_row(t, i);

		if (row->used)
			rows[n++] = row;
	}
	qsort(rows, n, sizeof(SlotRow *), by_token);
	for (uint32_t i = 0; i < n; i++)
	{
		LeStoredEntry stored = stored_entry(rows[i], (uint64_t) (rows[i] - (SlotRow *) t->rows) + 1);

		ENSURE(w, le_core_load_place(w->core, &stored) == LE_LOADED);
	}
	free(rows);
}

/* Loads everything that is stored; the waiters have not returned yet. */
void
store_load(World *w, LeCore *failed)
{
	LeLoadEnv env = {.arg = w,
					 .clock = {w->now, w->now + WALL},
					 .lsn = w->lsn,
					 .life = &w->life,
					 .failed = failed,
					 .alive = alive,
					 .uncommitted = uncommitted};

	le_core_load_begin(w->core, &env);
	load_leases(w);
	load_slots(w);
	load_places(w);
}
