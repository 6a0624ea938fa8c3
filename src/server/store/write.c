/*
 * store/write.c
 *		Writing a batch: the rows of lock_election.slot.
 *
 * This is the hot path, and below the executor: no SQL text, no operators
 * looked up by name, no triggers (those refuse everybody else).
 *
 * - A row is found by the TID that the core keeps for its slot.  Only the
 *	 manager writes, so a TID stays right until the table is rewritten, which
 *	 le_store_open() notices by the table's file.
 *
 * - The table has no index: nothing is searched in it.  So a row costs the same
 *	 whatever name it has, and the row of a lock that is free serves the next
 *	 one (see take_idle_row() in the core).  That no lock has two holders is
 *	 seen to by the core, by the lock that keeps the table to one manager (see
 *	 le_store_claim()), and by the check of whatever is loaded.
 *
 * - An update by TID does not read the page the way a scan does, which is
 *	 where PostgreSQL removes dead versions on the fly.  So a page without room
 *	 is pruned here, and a busy row stays on its page.
 *
 * - A row fits into a page and no column can be toasted; the table has no
 *	 TOAST table.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "executor/tuptable.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

#include "shared/fault.h"
#include "shared/shmem.h"
#include "store/internal.h"
#include "store/store.h"

/* Uncommitted holds that a row can tell; more count as committed at a load. */
#define MAX_UNCOMMITTED 64

#define TEXT_BUFFER(max)                                                                                     \
	struct                                                                                                   \
	{                                                                                                        \
		int32 vl_len_;                                                                                       \
		char data[max];                                                                                      \
	}

/* A row in the making; one at a time. */
typedef struct RowBuffer
{
	Datum values[SLOT_COLUMNS];
	bool nulls[SLOT_COLUMNS];
	TEXT_BUFFER(LE_MAX_NAME) name;
	TEXT_BUFFER(LE_MAX_OWNER) owner;
	TEXT_BUFFER(LE_MAX_VALUE) value;
	TEXT_BUFFER(MAX_UNCOMMITTED * sizeof(UncommittedHold)) uncommitted;
} RowBuffer;

/* What le_store_open() has opened. */
typedef struct OpenStore
{
	Relation slot;
	TupleTableSlot *tuple;
	CommandId cid;
} OpenStore;

static OpenStore store;
static RowBuffer row;

/* --- opening for a batch --- */

/*
 * Somebody who keeps a strong lock on the table makes this fail with 55P03:
 * the lock manager itself applies the caller's lock_timeout, to the table, and
 * to a row that somebody has locked.
 */
bool
le_store_open(LeCore *core)
{
	Relation rel;

	if (!OidIsValid(le_store_tables.slot_oid) || le_store_tables.slot_file == InvalidOid)
		return false;
	rel = le_store_open_loaded(le_store_tables.slot_oid, le_store_tables.slot_file);
	if (rel == NULL)
		return false;
	le_store_check_slot_table(rel);
	if (!le_store_open_leases(core) || !le_store_open_queue(core))
		return false;
	store.slot = rel;
	store.tuple = MakeSingleTupleTableSlot(RelationGetDescr(rel), &TTSOpsHeapTuple);
	return true;
}

/* The locks stay until the end of the transaction. */
void
le_store_close(void)
{
	ExecDropSingleTupleTableSlot(store.tuple);
	table_close(store.slot, NoLock);
	le_store_close_leases();
	le_store_close_queue();
	store.tuple = NULL;
	store.slot = NULL;
}

/* --- forming a row --- */

static void
set_text(int column, void *buffer, const char *data, Size len)
{
	row.nulls[column] = data == NULL;
	if (data == NULL)
		return;
	SET_VARSIZE(buffer, VARHDRSZ + len);
	if (data != VARDATA(buffer))
		memcpy(VARDATA(buffer), data, len);
	row.values[column] = PointerGetDatum(buffer);
}

/* --- writing --- */

static void
row_changed(const LeSlot *slot)
{
	ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("row of lock \"%.*s\" was changed by somebody else", (int) slot->lock->name_len,
						   slot->lock->name),
					errdetail("Table \"%s.%s\" is written by lock_election alone.", STORE_NAME,
							  RelationGetRelationName(store.slot))));
}

/* The columns that a free row has as well. */
static void
form_common(const LeSlot *slot)
{
	const LeLock *lock = slot->lock;

	Assert(lock->name_len > 0 && lock->name_len <= LE_MAX_NAME);
	row.values[SLOT_SLOT] = Int32GetDatum(slot->number);
	row.values[SLOT_KIND] = Int16GetDatum(lock->kind);
	set_text(SLOT_NAME, &row.name, lock->name, lock->name_len);
}

static void
form_uncommitted(const LeEntry *entry)
{
	Size len = 0;

	for (const LeHold *hold = entry->holds; hold != NULL && len < sizeof(row.uncommitted.data);
		 hold = hold->next)
	{
		UncommittedHold uncommitted = {hold->session, hold->xact, hold->subxact};

		memcpy(row.uncommitted.data + len, &uncommitted, sizeof(uncommitted));
		len += sizeof(uncommitted);
	}
	set_text(SLOT_UNCOMMITTED, &row.uncommitted, len > 0 ? row.uncommitted.data : NULL, len);
}

static void
form_not_before(LeTime closed_until, const Clock *clock)
{
	row.nulls[SLOT_CLOSED_UNTIL] = closed_until <= clock->now;
	row.values[SLOT_CLOSED_UNTIL] = TimestampTzGetDatum(le_store_to_wall(clock, closed_until));
}

static void
form_held(const LeSlot *slot, const Clock *clock)
{
	const LeEntry *entry = slot->holder;
	bool own = entry->lease == NULL && entry->ttl != LE_TTL_BOUND;

	Assert(entry->value_len <= LE_MAX_VALUE);
	form_common(slot);
	row.values[SLOT_TOKEN] = Int64GetDatum(entry->token);
	row.values[SLOT_ACQUIRED_AT] = TimestampTzGetDatum(le_store_to_wall(clock, entry->acquired_at));
	row.values[SLOT_TTL] = Int64GetDatum(entry->ttl);
	row.values[SLOT_TIME_LEFT] = Int64GetDatum(entry->lapsed ? -(int64) entry->end
											   : own         ? entry->saved_left
															 : 0);
	row.values[SLOT_LEASE] = Int64GetDatum(entry->lease ? entry->lease->id : 0);
	row.values[SLOT_SESSION] = Int64GetDatum((int64) entry->session);
	row.values[SLOT_ROLE] = ObjectIdGetDatum(entry->role);
	row.values[SLOT_HOLDS] = Int32GetDatum((int32) entry->hold_count);
	row.values[SLOT_PERMITS] = Int32GetDatum(slot->lock->permits);
	row.values[SLOT_MODE] = Int16GetDatum(entry->mode);
	form_not_before(entry->lapsed ? entry->closed_until : 0, clock);
	set_text(SLOT_OWNER, &row.owner, entry->owner, entry->owner_len);
	set_text(SLOT_VALUE, &row.value, entry->value, entry->value_len);
	form_uncommitted(entry);
}

static void
form_free(const LeSlot *slot, const Clock *clock)
{
	form_common(slot);
	row.values[SLOT_TOKEN] = Int64GetDatum(0);
	row.values[SLOT_ACQUIRED_AT] = TimestampTzGetDatum(clock->wall);
	row.values[SLOT_TTL] = Int64GetDatum(0);
	row.values[SLOT_TIME_LEFT] = Int64GetDatum(0);
	row.values[SLOT_LEASE] = Int64GetDatum(0);
	row.values[SLOT_SESSION] = Int64GetDatum(0);
	row.values[SLOT_ROLE] = ObjectIdGetDatum(InvalidOid);
	row.values[SLOT_HOLDS] = Int32GetDatum(0);
	row.values[SLOT_PERMITS] = Int32GetDatum(0);
	row.values[SLOT_MODE] = Int16GetDatum(0);
	form_not_before(slot->lock->closed_until, clock);
	row.nulls[SLOT_OWNER] = true;
	row.nulls[SLOT_VALUE] = true;
	row.nulls[SLOT_UNCOMMITTED] = true;
}

/*
 * The page is read without a lock, as heap_page_prune_opt() does; nobody but
 * us makes it fuller, and our own row does not go away.
 */
bool
le_store_prepare_page(Relation rel, const ItemPointerData *tid, Size len)
{
	Buffer buffer = ReadBuffer(rel, ItemPointerGetBlockNumber(tid));
	Page page = BufferGetPage(buffer);
	OffsetNumber offset = ItemPointerGetOffsetNumber(tid);
	bool there = !PageIsNew(page) && offset <= PageGetMaxOffsetNumber(page) &&
				 ItemIdIsNormal(PageGetItemId(page, offset));

	if (there && PageGetHeapFreeSpace(page) < MAXALIGN(len))
		heap_page_prune_opt(rel, buffer);
	ReleaseBuffer(buffer);
	return there;
}

static void
update_row(LeSlot *slot, Size len)
{
	ItemPointerData tid;
	TM_FailureData failure;
	LockTupleMode lockmode;
	LeUpdateIndexes update_indexes;

	le_store_unpack_tid(slot->row.locator, &tid);
	if (!le_store_prepare_page(store.slot, &tid, len) ||
		table_tuple_update(store.slot, &tid, store.tuple, store.cid, InvalidSnapshot, InvalidSnapshot, true,
						   &failure, &lockmode, &update_indexes) != TM_Ok)
		row_changed(slot);
}

/* Insert or update the row that has been formed. */
static void
put_row(LeSlot *slot)
{
	HeapTuple tuple = heap_form_tuple(RelationGetDescr(store.slot), row.values, row.nulls);
	Size len = tuple->t_len;

	ExecStoreHeapTuple(tuple, store.tuple, true);
	if (slot->row.on_disk)
		update_row(slot, len);
	else
		table_tuple_insert(store.slot, store.tuple, store.cid, 0, NULL);
	slot->row.locator = le_store_pack_tid(&store.tuple->tts_tid);
	slot->row.on_disk = true;
	ExecClearTuple(store.tuple);
}

static void
delete_row(LeSlot *slot)
{
	ItemPointerData tid;
	TM_FailureData failure;

	le_store_unpack_tid(slot->row.locator, &tid);
	if (!le_store_prepare_page(store.slot, &tid, 0) ||
		table_tuple_delete(store.slot, &tid, store.cid, InvalidSnapshot, InvalidSnapshot, true, &failure,
						   false) != TM_Ok)
		row_changed(slot);
	slot->row.on_disk = false;
	slot->row.locator = 0;
}

/* Returns whether there was anything to write. */
static bool
write_slot(LeSlot *slot, const Clock *clock)
{
	if (slot->holder != NULL)
	{
		form_held(slot, clock);
		put_row(slot);
		return true;
	}
	if (!slot->row.on_disk)
		return false;
	if (slot->drop)
		delete_row(slot);
	else
	{
		form_free(slot, clock);
		put_row(slot);
	}
	return true;
}

int
le_store_write(LeCore *core, LeTime now)
{
	Clock clock = {now, le_wall(now)};
	int rows = 0;

	Assert(store.slot != NULL);
	store.cid = GetCurrentCommandId(true);
	for (LeSlot *slot = le_core_dirty_slots(core); slot != NULL; slot = slot->dirty_next)
	{
		rows += write_slot(slot, &clock);
		LE_FAULT("store-row");
	}
	rows += le_store_write_leases(core, store.cid);
	LE_FAULT("store-slots-written");
	rows += le_store_write_places(core, &clock, store.cid);
	LE_FAULT("store-places-written");
	rows += le_store_write_changes(core, &clock);

	/* a second call in this transaction may write the same rows again */
	CommandCounterIncrement();
	return rows;
}
