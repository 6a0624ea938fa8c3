/*
 * store/store.c
 *		Defines the tables, reads and writes the small tables, and prevents other processes from writing.
 *
 * store/table.c writes one row, store/slotrows.c and its siblings write and read the rows of one table, and
 * store/write.c calls them for a batch.  The columns of all these tables are listed below.  The store makes
 * no decisions: it writes the rows that the core has marked as dirty.  It neither starts nor commits
 * transactions.  Its state stays correct after a rollback, because the caller then discards the core with all
 * its locators and loads the tables again.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type_d.h"
#include "commands/extension.h"
#include "commands/trigger.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "replication/logicalworker.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "store/store.h"
#include "store/table.h"

/* --- the tables --- */

#define COLUMN(row, field, type)                                                                             \
	{                                                                                                        \
		type, offsetof(row, field), sizeof(((row *) NULL)->field)                                            \
	}

static const StoreColumn slot_columns[] = {
	COLUMN(LeStoredEntry, token, INT8OID),
	COLUMN(LeStoredEntry, since, TIMESTAMPTZOID),
	COLUMN(LeStoredEntry, ttl, INT8OID),
	COLUMN(LeStoredEntry, time_left, INT8OID),
	COLUMN(LeStoredEntry, lease, INT8OID),
	COLUMN(LeStoredEntry, session, INT8OID),
	COLUMN(LeStoredEntry, role, OIDOID),
	COLUMN(LeStoredEntry, slot, INT4OID),
	COLUMN(LeStoredEntry, holds, INT4OID),
	COLUMN(LeStoredEntry, permits, INT4OID),
	COLUMN(LeStoredEntry, life, INT4OID),
	COLUMN(LeStoredEntry, kind, INT2OID),
	COLUMN(LeStoredEntry, mode, INT2OID),
	COLUMN(LeStoredEntry, expires_at, TIMESTAMPTZOID),
	COLUMN(LeStoredEntry, closed_until, TIMESTAMPTZOID),
	COLUMN(LeStoredEntry, name, TEXTOID),
	COLUMN(LeStoredEntry, owner, TEXTOID),
	COLUMN(LeStoredEntry, value, TEXTOID),
	COLUMN(LeStoredEntry, uncommitted, BYTEAOID),
	COLUMN(LeStoredEntry, acquirer, TEXTOID),
	COLUMN(LeStoredEntry, evicted, BOOLOID),
};

static const StoreColumn lease_columns[] = {
	COLUMN(LeStoredLease, id, INT8OID),        COLUMN(LeStoredLease, ttl, INT8OID),
	COLUMN(LeStoredLease, time_left, INT8OID), COLUMN(LeStoredLease, expires_at, TIMESTAMPTZOID),
	COLUMN(LeStoredLease, role, OIDOID),       COLUMN(LeStoredLease, life, INT4OID),
	COLUMN(LeStoredLease, owner, TEXTOID),
};

static const StoreColumn queue_columns[] = {
	COLUMN(LeStoredEntry, token, INT8OID),        COLUMN(LeStoredEntry, since, TIMESTAMPTZOID),
	COLUMN(LeStoredEntry, ttl, INT8OID),          COLUMN(LeStoredEntry, time_left, INT8OID),
	COLUMN(LeStoredEntry, lease, INT8OID),        COLUMN(LeStoredEntry, session, INT8OID),
	COLUMN(LeStoredEntry, role, OIDOID),          COLUMN(LeStoredEntry, permits, INT4OID),
	COLUMN(LeStoredEntry, holds, INT4OID),        COLUMN(LeStoredEntry, life, INT4OID),
	COLUMN(LeStoredEntry, member, INT2OID),       COLUMN(LeStoredEntry, kind, INT2OID),
	COLUMN(LeStoredEntry, mode, INT2OID),         COLUMN(LeStoredEntry, name, TEXTOID),
	COLUMN(LeStoredEntry, owner, TEXTOID),        COLUMN(LeStoredEntry, value, TEXTOID),
	COLUMN(LeStoredEntry, uncommitted, BYTEAOID), COLUMN(LeStoredEntry, acquirer, TEXTOID),
};

static const StoreColumn history_columns[] = {
	COLUMN(LeStoredChange, number, INT8OID),
	COLUMN(LeStoredChange, term, INT8OID),
	COLUMN(LeStoredChange, elected_at, TIMESTAMPTZOID),
	COLUMN(LeStoredChange, at, TIMESTAMPTZOID),
	COLUMN(LeStoredChange, role, OIDOID),
	COLUMN(LeStoredChange, how, INT2OID),
	COLUMN(LeStoredChange, election, TEXTOID),
	COLUMN(LeStoredChange, candidate, TEXTOID),
};

static const StoreColumn meta_columns[] = {
	COLUMN(LeMeta, database, OIDOID),
	COLUMN(LeMeta, incarnation, INT8OID),
	COLUMN(LeMeta, taken_at, TIMESTAMPTZOID),
	COLUMN(LeMeta, timeline, INT8OID),
	COLUMN(LeMeta, boot, INT8OID),
	COLUMN(LeMeta, life, INT8OID),
	COLUMN(LeMeta, uptime, INT8OID),
	COLUMN(LeMeta, lives, BYTEAOID),
};

static const StoreColumn floor_columns[] = {COLUMN(LeMeta, floor, INT8OID)};

/* The columns of each unique key, counted from 1. */
static const AttrNumber slot_key[] = {12, 16, 8}; /* kind, name, slot */
static const AttrNumber lease_key[] = {1};        /* id */
static const AttrNumber queue_key[] = {1, 11};    /* token, member */
static const AttrNumber history_key[] = {7, 1};   /* election, number */

#define TABLE(table_name, prefix, columns_1_0, ...)                                                          \
	{                                                                                                        \
		.name = table_name, .column = prefix##_columns, .columns = lengthof(prefix##_columns),               \
		.least = columns_1_0, __VA_ARGS__                                                                    \
	}
#define KEY(prefix) .key = prefix##_key, .nkey = lengthof(prefix##_key)

StoreTable le_slot_table = TABLE("slot", slot, 21, KEY(slot), .type = LE_ROW_SLOT);
StoreTable le_lease_table = TABLE("lease", lease, 7, KEY(lease), .type = LE_ROW_LEASE);
StoreTable le_queue_table = TABLE("queue", queue, 18, KEY(queue), .type = LE_ROW_PLACE);
StoreTable le_history_table = TABLE("history", history, 8, KEY(history));
static StoreTable meta_table = TABLE("meta", meta, 8, );
static StoreTable floor_table = TABLE("incarnation_floor", floor, 1, );

static StoreTable *const tables[] = {&le_slot_table,    &le_lease_table, &le_queue_table,
									 &le_history_table, &meta_table,     &floor_table};

Oid le_store_schema;

LE_FUNCTION(le_refuse_write);

/* --- finding the tables --- */

bool
le_store_find(void)
{
	Oid extension = get_extension_oid(STORE_EXTENSION, true);
	bool all = OidIsValid(extension);

	le_store_schema = get_namespace_oid(STORE_SCHEMA, true);
	for (int i = 0; i < lengthof(tables); i++)
	{
		/* the table may not exist, or may not belong to the extension */
		tables[i]->oid = get_relname_relid(tables[i]->name, le_store_schema);
		all = all && getExtensionOfObject(RelationRelationId, tables[i]->oid) == extension;
	}

	/* use all of the tables or none */
	for (int i = 0; !all && i < lengthof(tables); i++)
		tables[i]->oid = InvalidOid;
	return all;
}

bool
le_store_has_table(Oid table)
{
	for (int i = 0; i < lengthof(tables); i++)
	{
		if (tables[i]->oid == table)
			return OidIsValid(table);
	}
	return false;
}

bool
le_store_lock(void)
{
	return ConditionalLockRelationOid(le_slot_table.oid, RowExclusiveLock) &&
		   ConditionalLockRelationOid(le_lease_table.oid, RowExclusiveLock) &&
		   ConditionalLockRelationOid(le_queue_table.oid, RowExclusiveLock);
}

/* OID of table "slot" when this process claimed the tables; InvalidOid = not claimed. */
static Oid claimed = InvalidOid;

/*
 * Takes a lock that prevents a second manager from writing for as long as this process lives.  Without this
 * lock, two managers would undo each other's work row by row, until the unique key stopped them.  An abort
 * does not release the lock, because it is a session-level lock of the advisory lock method.
 */
void
le_store_claim(void)
{
	LOCKTAG tag;

	Assert(claimed == InvalidOid);
	Assert(OidIsValid(le_slot_table.oid) && ActiveSnapshotSet());
	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, RelationRelationId, le_slot_table.oid, 0);
	tag.locktag_lockmethodid = USER_LOCKMETHOD;
	(void) LockAcquire(&tag, ExclusiveLock, true, false);
	claimed = le_slot_table.oid;

	/* take a new snapshot, to include the rows that another manager has written during the wait */
	PopActiveSnapshot();
	PushActiveSnapshot(GetTransactionSnapshot());
}

bool
le_store_is_claimed(void)
{
	Assert(OidIsValid(le_slot_table.oid));
	return claimed == le_slot_table.oid;
}

/* --- the small tables --- */

/*
 * A table that is small and has no index, and a scan of this table.  The scan has its own snapshot, which
 * includes rows that this transaction has written.
 */
typedef struct SmallTable
{
	const StoreTable *table;
	Relation rel;
	Snapshot snapshot;
	TupleTableSlot *tuple;
	TableScanDesc scan;
} SmallTable;

/*
 * Opens a small table and begins a scan of it.  Raises an error if the table has an index, because
 * small_write() would not maintain it.
 */
static void
small_open(SmallTable *small, StoreTable *table, LOCKMODE lockmode)
{
	Assert(table->nkey == 0 && OidIsValid(table->oid));
	small->table = table;
	small->rel = le_table_open_to_read(table, lockmode);
	if (lockmode != AccessShareLock)
		le_make_visibility_map(small->rel);
	if (RelationGetIndexList(small->rel) != NIL) /* not relhasindex, which stays set after a DROP INDEX */
		le_table_wrong(small->rel);
	small->snapshot = RegisterSnapshot(GetLatestSnapshot());
	small->tuple = table_slot_create(small->rel, NULL);
	small->scan = table_beginscan_strat(small->rel, small->snapshot, 0, NULL, true, true);
}

/* Reads the columns of the next row into their fields.  Returns false after the last row. */
static bool
small_next(SmallTable *small, LeMeta *fields)
{
	if (!table_scan_getnextslot(small->scan, ForwardScanDirection, small->tuple))
		return false;
	le_table_read(small->table, small->tuple, fields);
	return true;
}

static void
small_close(SmallTable *table)
{
	table_endscan(table->scan);
	ExecDropSingleTupleTableSlot(table->tuple);
	UnregisterSnapshot(table->snapshot);
	table_close(table->rel, NoLock);
}

/* Replaces the first row with these fields, and deletes all other rows. */
static void
small_write(SmallTable *table, const LeMeta *fields)
{
	TupleTableSlot *tuple = MakeSingleTupleTableSlot(RelationGetDescr(table->rel), &TTSOpsVirtual);
	LeUpdateIndexes update_indexes;
	LeMeta row;
	bool found = false;

	ExecStoreAllNullTuple(tuple);
	le_table_form(table->table, fields, tuple->tts_values, tuple->tts_isnull);
	table_rescan(table->scan, NULL);
	while (small_next(table, &row))
	{
		ItemPointerData tid = table->tuple->tts_tid;

		if (found)
			simple_table_tuple_delete(table->rel, &tid, table->snapshot);
		else
			simple_table_tuple_update(table->rel, &tid, tuple, table->snapshot, &update_indexes);
		found = true;
	}
	if (!found)
		simple_table_tuple_insert(table->rel, tuple);
	ExecDropSingleTupleTableSlot(tuple);
	CommandCounterIncrement();
}

void
le_store_read_meta(LeMeta *meta)
{
	SmallTable table;
	LeMeta row = {0};

	memset(meta, 0, sizeof(*meta));
	small_open(&table, &meta_table, AccessShareLock);
	(void) small_next(&table, meta);
	if (meta->lives.len > 0)
		meta->lives.data = memcpy(palloc(meta->lives.len), meta->lives.data, meta->lives.len);
	small_close(&table);

	small_open(&table, &floor_table, AccessShareLock);
	while (small_next(&table, &row))
		meta->floor = Max(meta->floor, row.floor);
	small_close(&table);
}

/*
 * Writes the current incarnation to table incarnation_floor, for pg_dump.  Keeps a higher floor: a restore
 * has written it since the manager read the floor, and the manager will restart with an incarnation above it.
 */
static void
write_floor(int64 incarnation)
{
	SmallTable table;
	LeMeta row = {0}, floor = {.floor = incarnation};
	int64 highest = 0;

	small_open(&table, &floor_table, RowExclusiveLock);
	while (small_next(&table, &row))
		highest = Max(highest, row.floor);
	if (highest <= incarnation)
		small_write(&table, &floor);
	small_close(&table);
}

#ifdef USE_ASSERT_CHECKING
/* Asserts that the next manager will read the values that were written. */
static void
assert_meta(const LeMeta *meta)
{
	LeMeta stored;

	le_store_read_meta(&stored);
	Assert(stored.database == meta->database && stored.timeline == meta->timeline);
	Assert(stored.incarnation == meta->incarnation && stored.taken_at == meta->taken_at);
	Assert(stored.boot == meta->boot);
	Assert(stored.life == meta->life && stored.uptime == meta->uptime);
	Assert(stored.lives.len == meta->lives.len &&
		   memcmp(stored.lives.data, meta->lives.data, stored.lives.len) == 0);
	Assert(stored.floor >= meta->incarnation);
}
#else
#define assert_meta(meta) ((void) 0)
#endif

static void
write_meta_row(const LeMeta *meta)
{
	SmallTable table;

	Assert(OidIsValid(meta->database) && meta->incarnation > 0 && meta->lives.len > 0);
	small_open(&table, &meta_table, RowExclusiveLock);
	small_write(&table, meta);
	small_close(&table);
}

void
le_store_write_meta(const LeMeta *meta)
{
	write_meta_row(meta);
	write_floor(meta->incarnation);
	assert_meta(meta);
}

bool
le_store_write_life(const LeMeta *meta)
{
	if (!ConditionalLockRelationOid(meta_table.oid, RowExclusiveLock))
		return false;
	write_meta_row(meta);
	assert_meta(meta);
	return true;
}

/* --- writes by other processes --- */

/*
 * Implements the trigger function lock_election.refuse_write(), which rejects other writers of the tables
 * above.  A publication FOR ALL TABLES includes these tables.  Changes from a subscription are silently
 * ignored, because an error would stop the replication of all other tables.
 */
PGDLLEXPORT Datum
le_refuse_write(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
						errmsg("function \"%s\" was not called by trigger manager", "refuse_write")));
	if (IsLogicalWorker())
		return PointerGetDatum(NULL);
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("table \"%s\" is written only by lock_election",
					RelationGetRelationName(trigger->tg_relation)),
			 errhint("Use the functions of the extension, such as release_lock() or force_release_lock().")));
	PG_RETURN_NULL();
}
