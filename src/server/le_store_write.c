/*
 * le_store_write.c
 *		Writing a batch: the rows of lock_election.slot.
 *
 * This is the hot path, and below the executor: no SQL text, no operators
 * looked up by name, no triggers (those refuse everybody else).
 *
 * - A row is found by the TID that the core keeps for its slot.  Only the
 *	 manager writes, so a TID stays right until the table is rewritten, which
 *	 le_store_open() notices by the table's file.
 *
 * - A row is inserted with the unique index checked: no fault of ours can ever
 *	 give one slot two rows.  An update leaves the key alone, so its new version
 *	 is entered without that check, which would have to look at every dead
 *	 version of the row while somebody holds an old snapshot.
 *
 * - An update by TID does not read the page the way a scan does, which is
 *	 where PostgreSQL removes dead versions on the fly.  So a page without room
 *	 is pruned here, and a busy row stays on its page with no new index entry.
 *
 * - A row fits into a page and no column can be toasted; the table has no
 *	 TOAST table.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/pg_am_d.h"
#include "executor/tuptable.h"
#include "nodes/execnodes.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

#include "le_fault.h"
#include "le_store_internal.h"

/* Room for REINDEX CONCURRENTLY, which has two at a time, and some more. */
#define MAX_INDEXES 8

/* Uncommitted holds that a row can tell; more count as committed at a load. */
#define MAX_PENDING 64

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
	TEXT_BUFFER(MAX_PENDING * sizeof(PendingHold)) pending;
} RowBuffer;

/* What le_store_open() has opened. */
typedef struct OpenStore
{
	Relation slot;
	TupleTableSlot *tuple;
	int nindexes;
	Relation indexes[MAX_INDEXES];
	IndexInfo *index_infos[MAX_INDEXES];
	CommandId cid;
} OpenStore;

static OpenStore store;
static RowBuffer row;

/* --- opening for a batch --- */

/* An index that an administrator has added is kept up if that is simple. */
void
le_store_check_index(Relation rel, Relation index, const IndexInfo *info)
{
	bool simple = index->rd_rel->relam == BTREE_AM_OID && info->ii_Expressions == NIL &&
				  info->ii_Predicate == NIL && info->ii_ExclusionOps == NULL;

	for (int i = 0; simple && i < info->ii_NumIndexAttrs; i++)
		simple = info->ii_IndexAttrNumbers[i] > 0;
	if (!simple)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("index \"%s\" of table \"%s.%s\" is not supported",
							   RelationGetRelationName(index), STORE_NAME, RelationGetRelationName(rel)),
						errdetail("Only B-tree indexes on plain columns are."), errhint("Drop the index.")));
}

/*
 * All of them, each time: REINDEX CONCURRENTLY replaces an index by another
 * one, and both have to be kept up for a while.
 */
static void
open_indexes(void)
{
	List *oids = RelationGetIndexList(store.slot);
	ListCell *cell;

	store.nindexes = 0;
	foreach (cell, oids)
	{
		Relation index = index_open(lfirst_oid(cell), RowExclusiveLock);
		IndexInfo *info = BuildIndexInfo(index);

		if (!info->ii_ReadyForInserts)
		{
			index_close(index, NoLock);
			continue;
		}
		le_store_check_index(store.slot, index, info);
		if (store.nindexes == MAX_INDEXES)
			ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
							errmsg("table \"%s.%s\" has too many indexes", STORE_NAME,
								   RelationGetRelationName(store.slot)),
							errhint("Drop those that the extension has not made.")));
		store.indexes[store.nindexes] = index;
		store.index_infos[store.nindexes++] = info;
	}
	list_free(oids);
	if (store.nindexes == 0)
		le_store_wrong_table(store.slot);
}

/*
 * Somebody who keeps a strong lock on the table makes this fail with 55P03:
 * the lock manager itself applies the caller's lock_timeout, to the table, to
 * its indexes, and to a row that somebody has locked.
 */
bool
le_store_open(void)
{
	Relation rel;

	if (!OidIsValid(le_store_tables.slot_oid) || le_store_tables.slot_file == InvalidOid)
		return false;
	rel = try_table_open(le_store_tables.slot_oid, RowExclusiveLock);
	if (rel == NULL)
		return false;
	if (le_relfilenumber(rel) != le_store_tables.slot_file ||
		RelationGetNamespace(rel) != le_store_tables.nspoid)
	{
		table_close(rel, RowExclusiveLock);
		return false;
	}
	le_store_check_slot_table(rel);
	if (!le_store_open_leases())
	{
		table_close(rel, RowExclusiveLock);
		return false;
	}
	if (!le_store_open_queue())
	{
		le_store_close_leases();
		table_close(rel, RowExclusiveLock);
		return false;
	}
	store.slot = rel;
	open_indexes();
	store.tuple = MakeSingleTupleTableSlot(RelationGetDescr(rel), &TTSOpsHeapTuple);
	return true;
}

/* The locks stay until the end of the transaction. */
void
le_store_close(void)
{
	ExecDropSingleTupleTableSlot(store.tuple);
	for (int i = 0; i < store.nindexes; i++)
		index_close(store.indexes[i], NoLock);
	table_close(store.slot, NoLock);
	le_store_close_leases();
	le_store_close_queue();
	store.tuple = NULL;
	store.slot = NULL;
	store.nindexes = 0;
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
	row.values[SLOT_KIND] = Int16GetDatum(lock->ns);
	set_text(SLOT_NAME, &row.name, lock->name, lock->name_len);
}

static void
form_pending(const LeEntry *entry)
{
	Size len = 0;

	for (const LeHold *hold = entry->holds; hold != NULL && len < sizeof(row.pending.data); hold = hold->next)
	{
		PendingHold pending = {hold->session, hold->xact, hold->subxact};

		memcpy(row.pending.data + len, &pending, sizeof(pending));
		len += sizeof(pending);
	}
	set_text(SLOT_PENDING, &row.pending, len > 0 ? row.pending.data : NULL, len);
}

static void
form_not_before(LeTime not_before, const Clock *clock)
{
	row.nulls[SLOT_NOT_BEFORE] = not_before <= clock->now;
	row.values[SLOT_NOT_BEFORE] = TimestampTzGetDatum(le_store_to_wall(clock, not_before));
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
	form_not_before(entry->lapsed ? entry->cool_until : 0, clock);
	set_text(SLOT_OWNER, &row.owner, entry->owner, entry->owner_len);
	set_text(SLOT_VALUE, &row.value, entry->value, entry->value_len);
	form_pending(entry);
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
	form_not_before(slot->lock->not_before, clock);
	row.nulls[SLOT_OWNER] = true;
	row.nulls[SLOT_VALUE] = true;
	row.nulls[SLOT_PENDING] = true;
}

static void
insert_index_entries(bool unchanged)
{
	for (int i = 0; i < store.nindexes; i++)
	{
		IndexInfo *info = store.index_infos[i];
		Datum values[INDEX_MAX_KEYS];
		bool nulls[INDEX_MAX_KEYS];

		for (int k = 0; k < info->ii_NumIndexAttrs; k++)
		{
			values[k] = row.values[info->ii_IndexAttrNumbers[k] - 1];
			nulls[k] = row.nulls[info->ii_IndexAttrNumbers[k] - 1];
		}
		index_insert(store.indexes[i], values, nulls, &store.tuple->tts_tid, store.slot,
					 info->ii_Unique && !unchanged ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO, unchanged, info);
	}
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
	if (le_update_needs_index(update_indexes))
		insert_index_entries(true);
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
	{
		table_tuple_insert(store.slot, store.tuple, store.cid, 0, NULL);
		insert_index_entries(false);
	}
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
