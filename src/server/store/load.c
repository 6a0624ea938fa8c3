/*
 * store/load.c
 *		Reading the rows of lock_election.slot: into an empty core when a
 *		manager starts or has lost a batch, or for a look at what is stored.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "shared/compat.h"
#include "shared/settings.h"
#include "shared/shmem.h"
#include "store/internal.h"
#include "store/lend.h"
#include "store/store.h"

/* A row as it was read; the texts lie in the page. */
typedef struct StoredRow
{
	LeStoredSlot slot; /* mode 0: free */
	LeTime ttl;
	LeTime time_left;
	uint64 session;
	int32 permits;
	bool has_not_before;
	TimestampTz closed_until;
	LeText uncommitted;
} StoredRow;

/* --- reading --- */

LeText
le_store_read_text(TupleTableSlot *tuple, int column)
{
	LeText text = {NULL, 0};

	if (!tuple->tts_isnull[column])
	{
		struct varlena *datum = PG_DETOAST_DATUM_PACKED(tuple->tts_values[column]);

		text.data = VARDATA_ANY(datum);
		text.len = VARSIZE_ANY_EXHDR(datum);
	}
	return text;
}

static void
invalid_row(TupleTableSlot *tuple)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("invalid row (%u,%u) in table \"%s.%s\"", ItemPointerGetBlockNumber(&tuple->tts_tid),
					ItemPointerGetOffsetNumber(&tuple->tts_tid), STORE_NAME, "slot")));
}

/* The core takes what it gets; whoever wrote this may not have been us. */
static bool
row_is_valid(const StoredRow *stored)
{
	const LeStoredSlot *slot = &stored->slot;

	if (slot->name.len < 1 || slot->name.len > LE_MAX_NAME || slot->owner.len > LE_MAX_OWNER ||
		slot->value.len > LE_MAX_VALUE || (slot->kind != LE_KIND_LOCK && slot->kind != LE_KIND_ELECTION) ||
		slot->slot < 0 || slot->slot == PG_INT32_MAX)
		return false;
	if (slot->mode == 0)
		return true;
	return slot->mode <= LE_MODE_PERMIT && slot->token > 0 && slot->holds > 0 &&
		   (stored->ttl > 0 || stored->ttl == LE_TTL_BOUND) && stored->time_left >= -(int64) LE_END_SESSION &&
		   (slot->mode != LE_MODE_PERMIT || stored->permits > 0) &&
		   stored->uncommitted.len % sizeof(UncommittedHold) == 0;
}

static void
read_row(TupleTableSlot *tuple, StoredRow *stored)
{
	const Datum *values = tuple->tts_values;

	slot_getallattrs(tuple);
	stored->slot.kind = (LeKind) DatumGetInt16(values[SLOT_KIND]);
	stored->slot.name = le_store_read_text(tuple, SLOT_NAME);
	stored->slot.slot = DatumGetInt32(values[SLOT_SLOT]);
	stored->slot.mode = (LeMode) DatumGetInt16(values[SLOT_MODE]);
	stored->slot.owner = le_store_read_text(tuple, SLOT_OWNER);
	stored->slot.value = le_store_read_text(tuple, SLOT_VALUE);
	stored->slot.role = DatumGetObjectId(values[SLOT_ROLE]);
	stored->slot.token = DatumGetInt64(values[SLOT_TOKEN]);
	stored->slot.lease = DatumGetInt64(values[SLOT_LEASE]);
	stored->slot.holds = DatumGetInt32(values[SLOT_HOLDS]);
	stored->slot.acquired_at = DatumGetTimestampTz(values[SLOT_ACQUIRED_AT]);
	stored->ttl = DatumGetInt64(values[SLOT_TTL]);
	stored->time_left = DatumGetInt64(values[SLOT_TIME_LEFT]);
	stored->slot.lapsed = stored->time_left < 0;
	stored->session = (uint64) DatumGetInt64(values[SLOT_SESSION]);
	stored->permits = DatumGetInt32(values[SLOT_PERMITS]);
	stored->has_not_before = !tuple->tts_isnull[SLOT_CLOSED_UNTIL];
	stored->closed_until = stored->has_not_before ? DatumGetTimestampTz(values[SLOT_CLOSED_UNTIL]) : 0;
	stored->uncommitted = le_store_read_text(tuple, SLOT_UNCOMMITTED);
	if (!row_is_valid(stored))
		invalid_row(tuple);
}

/* --- loading --- */

typedef struct Loader
{
	LeCore *core;
	const LeLoadHooks *hooks;
	Clock clock;
	int64 highest; /* token */
	OpenHolds holds;
} Loader;

static void
load_failed(void)
{
	ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory"),
					errdetail("The locks of this database do not fit into memory.")));
}

void
le_store_collect_holds(OpenHolds *holds, const LeLoadHooks *hooks, const LeCommand *of, LeText uncommitted)
{
	for (uint32 at = 0; at < uncommitted.len; at += sizeof(UncommittedHold))
	{
		UncommittedHold hold;
		LeCommand *item;

		memcpy(&hold, uncommitted.data + at, sizeof(hold));
		if (!hooks->alive(hold.session) || !hooks->uncommitted(hold.session, hold.xact))
			continue;
		if (holds->n == holds->max)
		{
			holds->max = Max(64, holds->max * 2);
			holds->items = holds->items == NULL ? palloc_array(LeCommand, holds->max)
												: repalloc_array(holds->items, LeCommand, holds->max);
		}
		item = &holds->items[holds->n++];
		*item = (LeCommand){.kind = of->kind,
							.name = {pnstrdup(of->name.data, of->name.len), of->name.len},
							.token = of->token,
							.session = hold.session,
							.sessno = le_session_proc(hold.session),
							.xact = hold.xact,
							.subxact = hold.subxact};
	}
}

/*
 * Up to LE_SAVE_INTERVAL a lease starts again with its full TTL, for its
 * renewals write nothing; a longer one with the time left that was saved.
 */
static LeTime
time_left(const Loader *loader, const StoredRow *stored)
{
	LeTime left;

	if (loader->hooks->time_left != NULL && loader->hooks->time_left(stored->slot.token, stored->ttl, &left))
		return left;
	if (stored->ttl <= LE_SAVE_INTERVAL)
		return stored->ttl;
	return Min(Max(stored->time_left, 0), stored->ttl);
}

/* A holder that has ended stays for as long as it is fenced. */
static void
load_ended(const Loader *loader, int64 token, LeEnd how, LeLoad *load)
{
	load->end = how;
	load->lapsed = loader->hooks->fenced != NULL && loader->hooks->fenced(token);
	load->held = load->lapsed;
}

static void
load_holder(Loader *loader, const StoredRow *stored, LeLoad *load)
{
	const LeStoredSlot *slot = &stored->slot;

	load->cmd.mode = slot->mode;
	load->cmd.permits = stored->permits;
	load->cmd.ttl = stored->ttl;
	load->cmd.token = slot->token;
	load->cmd.lease = slot->lease;
	load->cmd.owner = slot->owner;
	load->cmd.value = slot->value;
	load->cmd.role = slot->role;
	load->hold_count = (uint32) slot->holds;
	load->acquired_at = le_store_from_wall(&loader->clock, slot->acquired_at);
	load->time_left = time_left(loader, stored);
	if (stored->session != 0 && loader->hooks->alive(stored->session))
	{
		load->cmd.session = stored->session;
		load->cmd.sessno = le_session_proc(stored->session);
	}
	load->held = !loader->hooks->drop_all;
	if (load->held && slot->lapsed)
		load_ended(loader, slot->token, (LeEnd) -stored->time_left, load);
	else if (load->held && stored->ttl == LE_TTL_BOUND && slot->lease == 0 && load->cmd.session == 0)
	{
		load_ended(loader, slot->token, LE_END_SESSION, load);
		if (!load->held && le_expiry_grace > 0)
			load->closed_until = loader->clock.now + le_expiry_grace * LE_MS;
	}
	load->dirty = !load->held;
	if (load->held && !load->lapsed)
		le_store_collect_holds(&loader->holds, loader->hooks, &load->cmd, stored->uncommitted);
}

/*
 * Two holders where there can be one: somebody else has written into the
 * table, and nothing but a load would see that.  The newer one stays.
 */
static bool
excluded(const Loader *loader, const LeStoredSlot *slot)
{
	LeCommand force = {.type = LE_CMD_FORCE, .kind = slot->kind, .name = slot->name, .any_role = true};
	LeLock *lock = le_core_find_lock(loader->core, slot->kind, slot->name);
	int64 newest = 0;
	LeReply reply;

	if (lock == NULL || lock->held == 0 ||
		(lock->mode != LE_MODE_EXCLUSIVE && slot->mode != LE_MODE_EXCLUSIVE))
		return false;
	for (const LeSlot *other = lock->slots; other != NULL; other = other->next)
	{
		if (other->holder != NULL)
			newest = Max(newest, other->holder->token);
	}
	ereport(WARNING, (errcode(ERRCODE_DATA_CORRUPTED),
					  errmsg("\"%.*s\" has two holders in table \"%s.%s\"", (int) slot->name.len,
							 slot->name.data, STORE_NAME, "slot"),
					  errdetail("The newer one stays, " INT64_FORMAT ".", Max(newest, slot->token)),
					  errhint("The table is written by lock_election alone.")));
	if (slot->token > newest)
		le_core_apply(loader->core, &force, loader->clock.now, &reply);
	return lock->held > 0; /* also where it is fenced */
}

static void
load_not_before(const Loader *loader, TimestampTz stored, LeLoad *load)
{
	LeTime closed_until = le_store_from_wall(&loader->clock, stored);

	if (closed_until <= loader->clock.now)
		return;
	if (loader->hooks->drop_all)
		load->dirty = true;
	else
		load->closed_until = closed_until;
}

static void
load_row(Loader *loader, TupleTableSlot *tuple)
{
	StoredRow stored;
	LeLoad load = {0};

	read_row(tuple, &stored);
	load.locator = le_table_locator(&tuple->tts_tid);
	load.cmd.kind = stored.slot.kind;
	load.cmd.name = stored.slot.name;
	load.slot = stored.slot.slot;
	if (stored.has_not_before)
		load_not_before(loader, stored.closed_until, &load);
	if (stored.slot.mode != 0)
	{
		if (le_core_find_entry(loader->core, stored.slot.kind, stored.slot.name, stored.slot.token) != NULL)
			invalid_row(tuple);
		load_holder(loader, &stored, &load);
		if (load.held && excluded(loader, &stored.slot))
		{
			load.held = load.lapsed = false;
			load.dirty = true;
			load.end = LE_END_FORCED;
		}
	}
	if (stored.slot.token > loader->highest)
		loader->highest = stored.slot.token;
	if (!le_core_load_slot(loader->core, &load, loader->clock.now))
		load_failed();
}

/*
 * Uncommitted holds come last.  A session has one open transaction at most,
 * but the rows do not say which; loading another slot of the session after
 * its holds would look like its next transaction, and forget them.
 */
static void
load_holds(const Loader *loader)
{
	for (int i = 0; i < loader->holds.n; i++)
	{
		if (!le_core_load_hold(loader->core, &loader->holds.items[i]))
			load_failed();
	}
}

int64
le_store_load(LeCore *core, const LeLoadHooks *hooks, LeTime now)
{
	Loader loader = {core, hooks, {now, le_wall(now)}};
	Relation rel = le_table_open_to_load(&le_slot_table);
	TupleTableSlot *tuple;
	TableScanDesc scan;
	int64 places;

	le_lend_reset();
	/* first what the others hang on */
	loader.highest = le_store_load_leases(core, hooks, now);
	tuple = table_slot_create(rel, NULL);
	scan = table_beginscan(rel, GetActiveSnapshot(), 0, NULL);
	while (table_scan_getnextslot(scan, ForwardScanDirection, tuple))
	{
		CHECK_FOR_INTERRUPTS();
		load_row(&loader, tuple);
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(tuple);
	table_close(rel, NoLock);
	places = le_store_load_places(core, hooks, &loader.clock, &loader.holds);
	load_holds(&loader);
	if (loader.holds.items != NULL)
		pfree(loader.holds.items);
	return Max(loader.highest, places);
}

void
le_store_scan(void (*callback)(void *arg, const LeStoredSlot *slot), void *arg)
{
	Relation rel;
	TupleTableSlot *tuple;
	TableScanDesc scan;

	if (!le_store_find())
		return;
	rel = le_table_open_to_read(&le_slot_table, AccessShareLock);
	tuple = table_slot_create(rel, NULL);
	scan = table_beginscan(rel, GetActiveSnapshot(), 0, NULL);
	while (table_scan_getnextslot(scan, ForwardScanDirection, tuple))
	{
		StoredRow stored;

		CHECK_FOR_INTERRUPTS();
		read_row(tuple, &stored);
		if (stored.slot.mode != 0)
			callback(arg, &stored.slot);
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(tuple);
	table_close(rel, AccessShareLock);
}
