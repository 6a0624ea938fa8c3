/*
 * store/table.c
 *		Opens a table of the store, and writes its rows.
 *
 * This is the hot path, and works below the executor: without SQL text, without looking up operators by name,
 * and without triggers (which only reject other writers).
 *
 *	-	PostgreSQL checks that the key is unique whenever a row gets a key: by an insert, or by an update of a
 *		row that had another key.  An update that keeps the key is HOT, or enters its new version in the index
 *		without a check, because a check would have to step over all dead versions with that key.
 *	-	PostgreSQL prunes dead versions during a scan, but not during an update by TID.  So this file prunes a
 *		page that has no room for the new version, and a row that is often updated stays on its page.
 *	-	A row always fits into a page, and no column can be toasted, so no table has a TOAST table.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/index.h"
#include "catalog/pg_collation_d.h"
#include "catalog/pg_opfamily_d.h"
#include "catalog/pg_type_d.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "shared/library_version.h"
#include "store/table.h"

/* --- shape --- */

void
le_table_wrong(Relation rel)
{
	const char *advice = le_version_advice();

	ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("table \"%s.%s\" has been altered", STORE_SCHEMA, RelationGetRelationName(rel)),
					advice != NULL
						? errhint("%s", advice)
						: errhint("Undo the change, or drop and create extension \"%s\".", STORE_EXTENSION)));
}

/*
 * Raises an error unless the table has exactly the expected shape, because rows are written below the
 * executor.  A table from another version's SQL script may have fewer or more columns, see
 * shared/library_version.h.
 */
static void
check_columns(const StoreTable *table, Relation rel)
{
	TupleDesc desc = RelationGetDescr(rel);

	/* a crash would empty an unlogged table, so that all locks would be free */
	if (rel->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT)
		le_table_wrong(rel);

	if (desc->natts < table->least)
		le_table_wrong(rel);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, i);

		if (i < table->columns ? column->atttypid != table->column[i].type
							   : column->attnotnull || column->attisdropped)
			le_table_wrong(rel);
	}
}

/*
 * Returns whether this column of the index is the corresponding column of the key, compared bytewise with
 * PostgreSQL's own operators.
 */
static bool
is_key_column(const StoreTable *table, Relation index, int i)
{
	bool is_text = table->column[table->key[i] - 1].type == TEXTOID;

	return index->rd_index->indkey.values[i] == table->key[i] &&
		   index->rd_opfamily[i] == (is_text ? TEXT_BTREE_FAM_OID : INTEGER_BTREE_FAM_OID) &&
		   index->rd_indcollation[i] == (is_text ? C_COLLATION_OID : InvalidOid);
}

/*
 * Returns whether this is the index of the key, or the copy of that index that REINDEX CONCURRENTLY builds.
 */
static bool
is_key(const StoreTable *table, Relation index)
{
	if (!index->rd_index->indisunique || !index->rd_index->indimmediate ||
		index->rd_index->indnatts != table->nkey || index->rd_index->indnkeyatts != table->nkey ||
		RelationGetIndexPredicate(index) != NIL)
		return false;
	for (int i = 0; i < table->nkey; i++)
	{
		if (!is_key_column(table, index, i))
			return false;
	}
	return true;
}

/*
 * Opens the indexes of the key.  Called only when the batch inserts its first key, because many batches
 * insert no key.
 */
static void
open_indexes(StoreTable *table)
{
	Relation rel = table->rel;
	bool complete = false;
	ListCell *cell;

	Assert(table->nindexes == 0 && table->nkey > 0 && table->nkey <= MAX_KEY_COLUMNS);
	foreach (cell, RelationGetIndexList(rel))
	{
		Relation index = index_open(lfirst_oid(cell), RowExclusiveLock);

		if (table->nindexes == MAX_KEY_INDEXES || !is_key(table, index))
			le_table_wrong(rel);
		if (!index->rd_index->indisready)
		{
			index_close(index, NoLock);
			continue;
		}
		complete = complete || index->rd_index->indisvalid;
		table->infos[table->nindexes] = BuildIndexInfo(index);
		table->indexes[table->nindexes++] = index;
	}
	if (!complete)
		le_table_wrong(rel);
	Assert(table->nindexes > 0);
}

/* --- opening --- */

Relation
le_table_open_to_read(const StoreTable *table, LOCKMODE lockmode)
{
	Relation rel = table_open(table->oid, lockmode);

	check_columns(table, rel);
	return rel;
}

Relation
le_table_open_to_load(StoreTable *table)
{
	Relation rel = le_table_open_to_read(table, RowExclusiveLock);

	le_make_visibility_map(rel);
	table->file = le_relfilenumber(rel);
	return rel;
}

static void
open_to_write(StoreTable *table, Relation rel)
{
	check_columns(table, rel);
	Assert(table->columns >= table->least);
	table->rel = rel;
	table->nindexes = 0;
	table->tuple = MakeSingleTupleTableSlot(RelationGetDescr(rel), &TTSOpsHeapTuple);
}

void
le_table_open(StoreTable *table)
{
	open_to_write(table, table_open(table->oid, RowExclusiveLock));
}

/*
 * Raises 55P03 if another process keeps a conflicting lock: PostgreSQL applies the caller's lock_timeout to
 * the wait for the table, and later also to a wait for a locked row.
 */
bool
le_table_open_loaded(StoreTable *table)
{
	Relation rel = try_table_open(table->oid, RowExclusiveLock);

	if (rel == NULL)
		return false;
	if (le_relfilenumber(rel) != table->file || RelationGetNamespace(rel) != le_store_schema)
	{
		table_close(rel, NoLock);
		return false;
	}
	open_to_write(table, rel);
	return true;
}

/* Closes the table and its indexes, but keeps their locks until the end of the transaction. */
void
le_table_close(StoreTable *table)
{
	if (table->rel == NULL)
		return;
	ExecDropSingleTupleTableSlot(table->tuple);
	for (int i = 0; i < table->nindexes; i++)
		index_close(table->indexes[i], NoLock);
	table_close(table->rel, NoLock);
	table->rel = NULL;
}

/* --- the key --- */

/*
 * Finds another row that has this key, and returns the bigint in its first column, for example a token.
 * Returns 0 if there is no such row.
 */
static int64
find_key_row(StoreTable *table, Relation index, const Datum *keys)
{
	ScanKeyData scankeys[MAX_KEY_COLUMNS];
	SnapshotData dirty;
	SysScanDesc scan;
	HeapTuple tuple;
	int64 first = 0;

	for (int i = 0; i < table->nkey; i++)
	{
		Oid type = index->rd_opcintype[i];
		Oid equal = get_opfamily_member(index->rd_opfamily[i], type, type, BTEqualStrategyNumber);

		ScanKeyInit(&scankeys[i], table->key[i], BTEqualStrategyNumber, get_opcode(equal), keys[i]);
	}

	/* use a dirty snapshot, to see rows of uncommitted transactions; skip the row that was just written */
	InitDirtySnapshot(dirty);
	scan = systable_beginscan(table->rel, RelationGetRelid(index), true, &dirty, table->nkey, scankeys);
	while (first == 0 && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		bool isnull;

		if (!ItemPointerEquals(&tuple->t_self, &table->tuple->tts_tid))
			first = DatumGetInt64(le_getattr(tuple, 1, RelationGetDescr(table->rel), &isnull));
	}
	systable_endscan(scan);
	return first;
}

/*
 * Checks again whether another row has this key: PostgreSQL waits for the writer of that row, and raises an
 * error if the row still exists.  That error does not include the tokens, so this function logs them.
 */
static void
check_again(StoreTable *table, int i, Datum *keys, bool *nulls, Datum first)
{
	int64 holds = find_key_row(table, table->indexes[i], keys);

	Assert(i < table->nindexes);
	ereport(LOG, (errmsg("table \"%s.%s\": " INT64_FORMAT " has this key, " INT64_FORMAT " was to be written",
						 STORE_SCHEMA, table->name, holds, DatumGetInt64(first))));
	table->known = false;
	(void) index_insert(table->indexes[i], keys, nulls, &table->tuple->tts_tid, table->rel,
						UNIQUE_CHECK_EXISTING, false, table->infos[i]);
}

/*
 * Inserts the key of the row that was just written into the indexes.  takes_key: the row did not have this
 * key before, so the indexes must check that the key is unique.
 */
static void
enter_key(StoreTable *table, const Datum *values, bool takes_key)
{
	Datum keys[MAX_KEY_COLUMNS];
	bool nulls[MAX_KEY_COLUMNS] = {false};

	if (table->nindexes == 0)
		open_indexes(table);
	for (int i = 0; i < table->nkey; i++)
		keys[i] = values[table->key[i] - 1];
	for (int i = 0; i < table->nindexes; i++)
	{
		bool unique;

		unique =
			index_insert(table->indexes[i], keys, nulls, &table->tuple->tts_tid, table->rel,
						 takes_key ? UNIQUE_CHECK_PARTIAL : UNIQUE_CHECK_NO, !takes_key, table->infos[i]);
		if (takes_key && !unique)
			check_again(table, i, keys, nulls, values[0]);
	}
}

/* --- rows --- */

/*
 * Command id of all writes of a batch.  A batch can be a single command, because it does not read the rows
 * that it writes.
 */
#define BATCH_COMMAND FirstCommandId

/*
 * Prepares a page for an update or delete by TID.  Returns whether the row exists, and prunes the page if
 * there is no room for a new version of this length.  Reads the page without a lock, as heap_page_prune_opt()
 * does.  This is safe because only the manager adds rows to the page, and no other process removes the
 * manager's row.
 */
static bool
prepare_page(Relation rel, const ItemPointerData *tid, Size len)
{
	Buffer buffer = ReadBuffer(rel, ItemPointerGetBlockNumber(tid));
	Page page = BufferGetPage(buffer);
	OffsetNumber offset = ItemPointerGetOffsetNumber(tid);
	bool there = offset <= PageGetMaxOffsetNumber(page) && ItemIdIsNormal(PageGetItemId(page, offset));

	if (there && PageGetHeapFreeSpace(page) < MAXALIGN(len))
		le_prune_page(rel, buffer);
	ReleaseBuffer(buffer);
	return there;
}

/* Records the position of a row that is about to be updated or deleted, see store/readback.c. */
static void
note_left_spot(StoreTable *table, const LeRow *row)
{
	Assert(row->on_disk && table->nleft <= table->max_left);
	if (table->nleft == table->max_left)
	{
		int max = Max(table->max_left * 2, 1024);

		if (table->left == NULL)
			table->left = MemoryContextAlloc(TopMemoryContext, max * sizeof(uint64));
		else
			table->left = repalloc_huge(table->left, max * sizeof(uint64));
		table->max_left = max;
	}
	table->left[table->nleft++] = row->locator;
}

/* Updates a row.  Returns false if another process has changed it. */
static bool
update(StoreTable *table, const LeRow *row, Size len, LeUpdateIndexes *update_indexes)
{
	ItemPointerData tid;
	TM_FailureData failure;
	LockTupleMode lockmode;

	le_table_tid(row->locator, &tid);
	note_left_spot(table, row);
	return prepare_page(table->rel, &tid, len) &&
		   le_tuple_update(table->rel, &tid, table->tuple, BATCH_COMMAND, &failure, &lockmode,
						   update_indexes) == TM_Ok;
}

bool
le_table_put(StoreTable *table, LeRow *row, const void *fields)
{
	TupleDesc desc = RelationGetDescr(table->rel);
	Datum values[MAX_COLUMNS];
	bool nulls[MAX_COLUMNS];
	LeWideRow wide;
	HeapTuple tuple;
	Size len;
	LeUpdateIndexes update_indexes;

	/* 1. form the tuple */
	Assert(table->columns <= MAX_COLUMNS);
	le_table_form(table, fields, values, nulls);
	wide = le_widen_row(desc->natts, table->columns, values, nulls);
	tuple = heap_form_tuple(desc, wide.values, wide.nulls);
	len = tuple->t_len;
	Assert(table->rel != NULL && (row->on_disk || !row->recycled));
	ExecStoreHeapTuple(tuple, table->tuple, true);

	/* 2. insert or update the row, and insert its key into the indexes if needed */
	if (!row->on_disk)
	{
		table_tuple_insert(table->rel, table->tuple, BATCH_COMMAND, 0, NULL);
		enter_key(table, values, true);
	}
	else
	{
		if (!update(table, row, len, &update_indexes))
			return false;
		if (row->recycled || le_updates_keys(update_indexes))
			enter_key(table, values, row->recycled);
	}

	/* 3. record the position of the row */
	row->locator = le_table_locator(&table->tuple->tts_tid);
	row->on_disk = true;
	Assert(ItemPointerIsValid(&table->tuple->tts_tid));
	ExecClearTuple(table->tuple);
	return true;
}

bool
le_table_delete(StoreTable *table, LeRow *row)
{
	ItemPointerData tid;
	TM_FailureData failure;

	Assert(table->rel != NULL && row->on_disk);
	le_table_tid(row->locator, &tid);
	note_left_spot(table, row);
	if (!prepare_page(table->rel, &tid, 0) ||
		le_tuple_delete(table->rel, &tid, BATCH_COMMAND, &failure) != TM_Ok)
		return false;
	row->on_disk = false;
	row->locator = 0;
	return true;
}

void
le_store_row_changed(StoreTable *table, const char *whose)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("row of %s was changed by another program", whose),
			 errdetail("Table \"%s.%s\" is written only by lock_election.", STORE_SCHEMA, table->name)));
}

void
le_store_invalid_row(Relation rel, const TupleTableSlot *tuple)
{
	ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED), errmsg("invalid row (%u,%u) in table \"%s.%s\"",
															ItemPointerGetBlockNumber(&tuple->tts_tid),
															ItemPointerGetOffsetNumber(&tuple->tts_tid),
															STORE_SCHEMA, RelationGetRelationName(rel))));
}

/* --- the fields of a row --- */

/* Maximum number of uncommitted holds that a row can store; a load treats all further holds as committed. */
#define MAX_UNCOMMITTED 64

/* Returns the value of a numeric field of two, four or eight bytes. */
static int64
get_number(const StoreColumn *column, const void *field)
{
	if (column->size == sizeof(uint16))
		return *(const uint16 *) field;
	if (column->size == sizeof(int64))
		return *(const int64 *) field;
	return *(const uint32 *) field; /* an unsigned field and its column have the same 32 bits */
}

static void
set_number(const StoreColumn *column, void *field, int64 number)
{
	if (column->size == sizeof(uint16))
		*(uint16 *) field = (uint16) number;
	else if (column->size == sizeof(int64))
		*(int64 *) field = number;
	else
		*(uint32 *) field = (uint32) number;
}

void
le_table_form(const StoreTable *table, const void *fields, Datum *values, bool *nulls)
{
	for (int i = 0; i < table->columns; i++)
	{
		const StoreColumn *column = &table->column[i];
		const void *field = (const char *) fields + column->at;
		const LeText *text = field;

		nulls[i] = false;
		switch (column->type)
		{
			case TEXTOID:
			case BYTEAOID:
				nulls[i] = text->data == NULL;
				values[i] =
					nulls[i] ? 0 : PointerGetDatum(cstring_to_text_with_len(text->data, (int) text->len));
				break;
			case BOOLOID:
				values[i] = BoolGetDatum(*(const bool *) field);
				break;
			case INT2OID:
				values[i] = Int16GetDatum((int16) get_number(column, field));
				break;
			case INT4OID:
				values[i] = Int32GetDatum((int32) get_number(column, field));
				break;
			case OIDOID:
				values[i] = ObjectIdGetDatum((Oid) get_number(column, field));
				break;
			default: /* bigint or timestamptz; a time of 0 means NULL */
				values[i] = Int64GetDatum(get_number(column, field));
				nulls[i] = column->type == TIMESTAMPTZOID && get_number(column, field) == 0;
		}
	}
}

void
le_table_read(const StoreTable *table, TupleTableSlot *tuple, void *fields)
{
	slot_getallattrs(tuple);
	for (int i = 0; i < Min(table->columns, tuple->tts_tupleDescriptor->natts); i++)
	{
		const StoreColumn *column = &table->column[i];
		void *field = (char *) fields + column->at;
		Datum value = tuple->tts_values[i];
		struct varlena *text;

		if (tuple->tts_isnull[i])
			continue;
		switch (column->type)
		{
			case TEXTOID:
			case BYTEAOID:
				text = PG_DETOAST_DATUM_PACKED(value);
				*(LeText *) field = (LeText){VARDATA_ANY(text), VARSIZE_ANY_EXHDR(text)};
				break;
			case BOOLOID:
				*(bool *) field = DatumGetBool(value);
				break;
			case INT2OID:
				set_number(column, field, DatumGetInt16(value));
				break;
			case INT4OID:
				set_number(column, field, DatumGetInt32(value));
				break;
			case OIDOID:
				set_number(column, field, DatumGetObjectId(value));
				break;
			default: /* bigint or timestamptz */
				set_number(column, field, DatumGetInt64(value));
		}
	}
}

LeStoredEntry
le_store_entry(const LeCore *core, const LeEntry *entry)
{
	static LeStoredHold uncommitted[MAX_UNCOMMITTED];
	const LeLock *lock = entry->lock;
	const LeAcquirer *acquirer = entry->acquirer;
	LeSaved saved = {0};
	uint32 n = 0;

	if (entry->state != LE_STATE_LAPSED && le_entry_has_own_time(entry) && entry->ttl != LE_TTL_BOUND)
		saved = le_core_saved(core, &entry->saved, entry->ttl);

	/* list the uncommitted holds */
	for (const LeUncommitted *hold = entry->uncommitted; hold != NULL && n < MAX_UNCOMMITTED;
		 hold = hold->next)
		uncommitted[n++] = (LeStoredHold){hold->session, hold->xact, hold->subxact};
	Assert(entry->token > 0 && entry->mode != 0 && n <= entry->hold_count);
	Assert(lock->name_len > 0 && lock->name_len <= LE_MAX_NAME && entry->value_len <= LE_MAX_VALUE);
	return (LeStoredEntry){
		.kind = (LeKind) lock->kind,
		.name = {lock->name, lock->name_len},
		.mode = (LeMode) entry->mode,
		.owner = {entry->owner, entry->owner_len},
		.value = {entry->value, entry->value_len},
		.session = entry->session,
		.token = entry->token,
		.lease = entry->lease != NULL ? entry->lease->id : 0,
		.permits = lock->permits,
		.ttl = entry->ttl,
		.time_left = saved.left,
		.life = saved.life,
		.acquirer = {acquirer != NULL ? acquirer->text : NULL, acquirer != NULL ? acquirer->len : 0},
		.uncommitted = {n > 0 ? (const char *) uncommitted : NULL, n * (uint32) sizeof(LeStoredHold)},
		.role = entry->role,
		.holds = (int32) entry->hold_count,
		.evicted = entry->evicted};
}
