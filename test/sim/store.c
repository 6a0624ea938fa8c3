/*
 * store.c
 *		Stable storage: takes what a batch has left dirty, as the server's
 *		store does, and builds a core from it again.
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
	return i + 1;
}

static void
table_delete(Table *t, uint64_t locator)
{
	memset(table_row(t, locator), 0, t->size);
	t->free_rows[t->nfree++] = (uint32_t) (locator - 1);
	t->used--;
}

static void
table_free(Table *t)
{
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
		table_init(&w->standby.tables[i], sizes[i]);
	}
}

void
store_free(World *w)
{
	for (int i = 0; i < TABLES; i++)
	{
		table_free(&w->tables[i]);
		table_free(&w->standby.tables[i]);
	}
}

const void *
store_row(World *w, int table, uint64_t locator)
{
	ENSURE(w, locator >= 1 && locator <= w->tables[table].len);
	return (const char *) w->tables[table].rows + w->tables[table].size * (locator - 1);
}

/* All tables, row by row at the same places. */
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
	}
}

/* --- writing --- */

static void
fill_row(SlotRow *row, const LeEntry *entry)
{
	row->mode = entry->mode;
	row->lapsed = entry->lapsed;
	row->end = entry->end;
	row->owner = sim_text_id(entry->owner);
	row->value = sim_text_id(entry->value);
	row->permits = entry->lock->permits;
	row->token = entry->token;
	row->lease = entry->lease != NULL ? entry->lease->id : 0;
	row->ttl = entry->ttl;
	row->time_left = entry->saved_left;
	row->acquired_at = entry->acquired_at;
	row->session = entry->session;
	row->sessno = entry->sessno;
	row->role = entry->role;
	row->hold_count = entry->hold_count;
}

static void
write_slot(World *w, LeSlot *slot)
{
	LeLock *lock = slot->lock;
	SlotRow *row;

	if (slot->holder == NULL && !slot->row.on_disk)
		return;
	if (slot->holder == NULL && slot->drop)
	{
		table_delete(&w->tables[TABLE_SLOTS], slot->row.locator);
		slot->row.on_disk = false;
		return;
	}
	if (!slot->row.on_disk)
		slot->row.locator = table_insert(&w->tables[TABLE_SLOTS]);
	slot->row.on_disk = true;
	row = table_row(&w->tables[TABLE_SLOTS], slot->row.locator);
	memset(row, 0, sizeof(*row));
	row->used = true;
	if (w->conf.broken == BROKEN_ROW && rng_chance(&w->rng, 20))
		return;
	row->kind = lock->kind;
	row->name = sim_text_id(lock->name);
	row->number = slot->number;
	row->held = slot->holder != NULL;
	row->closed_until = !row->held             ? lock->closed_until
						: slot->holder->lapsed ? slot->holder->closed_until
											   : 0;
	if (row->held)
		fill_row(row, slot->holder);
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
	row->time_left = lease->saved_left;
	row->role = lease->role;
}

static void
write_place(World *w, LeEntry *entry)
{
	SlotRow *row;

	if (entry->state != LE_STATE_QUEUED)
	{
		if (entry->row.on_disk)
			table_delete(&w->tables[TABLE_PLACES], entry->row.locator);
		entry->row.on_disk = false;
		return;
	}
	if (!entry->row.on_disk)
		entry->row.locator = table_insert(&w->tables[TABLE_PLACES]);
	entry->row.on_disk = true;
	row = table_row(&w->tables[TABLE_PLACES], entry->row.locator);
	memset(row, 0, sizeof(*row));
	row->used = true;
	row->kind = entry->lock->kind;
	row->name = sim_text_id(entry->lock->name);
	row->member = entry->member;
	fill_row(row, entry);
}

static LeSlot *
idle_slot(World *w)
{
	for (uint32_t i = 0; i < le_core_lock_indexes(w->core); i++)
	{
		LeLock *lock = le_core_lock_at(w->core, i);

		if (lock == NULL || lock->kind != LE_KIND_LOCK || lock->closed_until != 0)
			continue;
		for (LeSlot *slot = lock->slots; slot != NULL; slot = slot->next)
		{
			if (slot->holder == NULL && slot->row.on_disk && !slot->drop)
				return slot;
		}
	}
	return NULL;
}

/* A slot without a row takes the one of a lock that nobody uses. */
static void
take_idle_row(World *w, LeSlot *slot)
{
	LeSlot *idle = slot->holder != NULL && !slot->row.on_disk ? idle_slot(w) : NULL;

	if (idle == NULL)
		return;
	slot->row.locator = idle->row.locator;
	slot->row.on_disk = true;
	le_core_row_lent(w->core, idle, w->now);
}

void
store_write(World *w)
{
	for (LeSlot *slot = le_core_dirty_slots(w->core); slot != NULL; slot = slot->dirty_next)
		take_idle_row(w, slot);
	for (LeSlot *slot = le_core_dirty_slots(w->core); slot != NULL; slot = slot->dirty_next)
		write_slot(w, slot);
	for (LeLease *lease = le_core_dirty_leases(w->core); lease != NULL; lease = lease->dirty_next)
		write_lease(w, lease);
	for (LeEntry *entry = le_core_dirty_places(w->core); entry != NULL; entry = entry->dirty_next)
		write_place(w, entry);
}

/* --- loading --- */

static LeTime
restored(LeTime ttl, LeTime time_left)
{
	return ttl > LE_SAVE_INTERVAL ? time_left : ttl;
}

/* What is bound to a connection that is gone is not loaded; this is what the server's store does. */
static void
load_unbound(const World *w, LeLoad *load)
{
	LeTime grace = w->conf.limits.expiry_grace;

	if (!load->held || load->lapsed || load->cmd.ttl != LE_TTL_BOUND || load->cmd.lease != 0 ||
		load->cmd.session != 0)
		return;
	load->held = false;
	load->dirty = true;
	load->end = LE_END_SESSION;
	if (grace > 0)
		load->closed_until = w->now + grace;
}

static void
load_row(World *w, const SlotRow *row, uint64_t locator, bool place)
{
	LeLoad load;
	const Durable *d = &w->durable[row->sessno];

	memset(&load, 0, sizeof(load));
	load.cmd.kind = (LeKind) row->kind;
	load.cmd.name = sim_name(row->name);
	load.slot = row->number;
	load.closed_until = row->closed_until;
	load.locator = locator;
	if (row->held || place)
	{
		load.held = row->held;
		load.lapsed = row->lapsed;
		load.end = row->lapsed ? (LeEnd) row->end : LE_END_NONE;
		load.cmd.mode = (LeMode) row->mode;
		load.cmd.permits = row->permits;
		load.cmd.token = row->token;
		load.cmd.ttl = row->ttl;
		load.cmd.lease = row->lease;
		load.cmd.owner = sim_owner(row->owner);
		load.cmd.value = sim_value(row->value);
		load.cmd.role = row->role;
		if (row->session != 0 && row->session == d->id)
		{
			load.cmd.session = row->session;
			load.cmd.sessno = row->sessno;
		}
		load.hold_count = row->hold_count;
		load.member = row->member;
		load.acquired_at = row->acquired_at;
		load.time_left = place ? row->ttl : restored(row->ttl, row->time_left);
		load_unbound(w, &load);
	}
	ENSURE(w, place ? le_core_load_place(w->core, &load, w->now) : le_core_load_slot(w->core, &load, w->now));
}

static void
load_leases(World *w)
{
	for (uint32_t i = 1; i <= w->tables[TABLE_LEASES].len; i++)
	{
		const LeaseRow *row = table_row(&w->tables[TABLE_LEASES], i);
		LeCommand cmd;

		if (!row->used)
			continue;
		memset(&cmd, 0, sizeof(cmd));
		cmd.token = row->id;
		cmd.ttl = row->ttl;
		cmd.role = row->role;
		ENSURE(w, le_core_load_lease(w->core, &cmd, restored(row->ttl, row->time_left), i, w->now));
	}
}

static void
load_slots(World *w)
{
	Table *t = &w->tables[TABLE_SLOTS];

	for (uint32_t i = 1; i <= t->len; i++)
	{
		const SlotRow *row = table_row(t, i);

		if (row->used)
			load_row(w, row, i, false);
	}
}

static int
by_token(const void *a, const void *b)
{
	const SlotRow *x = *(SlotRow *const *) a, *y = *(SlotRow *const *) b;

	return (x->token > y->token) - (x->token < y->token);
}

/* In the order of their tokens. */
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
		load_row(w, rows[i], (uint64_t) (rows[i] - (SlotRow *) t->rows) + 1, true);
	free(rows);
}

static void
load_hold(World *w, const Durable *d, uint32_t sessno, const Hold *hold)
{
	LeCommand cmd;

	memset(&cmd, 0, sizeof(cmd));
	cmd.kind = (LeKind) hold->kind;
	cmd.name = sim_name(hold->name);
	cmd.token = hold->token;
	cmd.session = d->id;
	cmd.sessno = sessno;
	cmd.xact = d->xact;
	cmd.subxact = hold->subxact;
	ENSURE(w, le_core_load_hold(w->core, &cmd));
}

/* All that can be read; the waiters are not back yet. */
void
store_load(World *w)
{
	load_leases(w);
	load_slots(w);
	load_places(w);
	for (uint32_t i = 0; i < w->conf.sessions; i++)
	{
		const Durable *d = &w->durable[i];

		for (int h = 0; h < d->nholds; h++)
			load_hold(w, d, i, &d->holds[h]);
	}
}
