/*
 * store/store.c
 *		Which tables they are, the small ones among them, and who may write.
 *
 * The store is the durable record of the locks, and the only code that
 * touches the tables: store/table.c writes a row, store/write.c the rows of
 * slots, store/slotrows.c reads them.  It decides nothing: the core says what has
 * changed, and that is written.  It neither starts nor commits transactions,
 * and it remembers nothing that a rollback could make wrong: after one, the
 * caller throws the core with all its locators away and loads anew.
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
#include "storage/lock.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "store/table.h"

/* --- the tables --- */

static const Oid slot_types[SLOT_COLUMNS] = {INT8OID, TIMESTAMPTZOID, INT8OID,        INT8OID,        INT8OID,
											 INT8OID, OIDOID,         INT4OID,        INT4OID,        INT4OID,
											 INT2OID, INT2OID,        TIMESTAMPTZOID, TIMESTAMPTZOID, TEXTOID,
											 TEXTOID, TEXTOID,        BYTEAOID,       TEXTOID};

static const Oid lease_types[LEASE_COLUMNS] = {INT8OID, INT8OID, INT8OID, TIMESTAMPTZOID, OIDOID, TEXTOID};

static const Oid queue_types[QUEUE_COLUMNS] = {INT8OID, TIMESTAMPTZOID, INT8OID,  INT8OID, INT8OID, OIDOID,
											   INT4OID, INT4OID,        INT2OID,  INT2OID, INT2OID, TEXTOID,
											   TEXTOID, TEXTOID,        BYTEAOID, TEXTOID};

static const Oid history_types[HISTORY_COLUMNS] = {INT8OID, INT8OID, TIMESTAMPTZOID, TIMESTAMPTZOID,
												   OIDOID,  INT2OID, TEXTOID,        TEXTOID};

static const AttrNumber slot_key[] = {SLOT_KIND + 1, SLOT_NAME + 1, SLOT_SLOT + 1};
static const AttrNumber lease_key[] = {LEASE_ID + 1};
static const AttrNumber queue_key[] = {QUEUE_TOKEN + 1, QUEUE_MEMBER + 1};
static const AttrNumber history_key[] = {HISTORY_ELECTION + 1, HISTORY_CHANGE + 1};

/* The columns of _lock_election.meta, in their order. */
enum
{
	META_DATABASE,
	META_INCARNATION,
	META_TAKEN_AT,
	META_TIMELINE,
	META_BOOT,
	META_COLUMNS
};

static const Oid meta_types[META_COLUMNS] = {OIDOID, INT8OID, TIMESTAMPTZOID, INT8OID, INT8OID};
static const Oid floor_types[] = {INT8OID};

#define TABLE(table_name, prefix)                                                                            \
	{                                                                                                        \
		.name = table_name, .types = prefix##_types, .columns = lengthof(prefix##_types),                    \
		.least = lengthof(prefix##_types)                                                                    \
	}
#define TABLE_WITH_KEY(table_name, prefix, columns_1_0, ...)                                                 \
	{                                                                                                        \
		.name = table_name, .types = prefix##_types, .columns = lengthof(prefix##_types),                    \
		.least = columns_1_0, .key = prefix##_key, .nkey = lengthof(prefix##_key), __VA_ARGS__               \
	}

StoreTable le_slot_table = TABLE_WITH_KEY("slot", slot, SLOT_COLUMNS_1_0, .type = LE_ROW_SLOT);
StoreTable le_lease_table = TABLE_WITH_KEY("lease", lease, LEASE_COLUMNS_1_0, .type = LE_ROW_LEASE);
StoreTable le_queue_table = TABLE_WITH_KEY("queue", queue, QUEUE_COLUMNS_1_0, .type = LE_ROW_PLACE);
StoreTable le_history_table = TABLE_WITH_KEY("history", history, HISTORY_COLUMNS_1_0, );
static StoreTable meta_table = TABLE("meta", meta);
static StoreTable floor_table = TABLE("incarnation_floor", floor);

static StoreTable *const tables[] = {&le_slot_table,    &le_lease_table, &le_queue_table,
									 &le_history_table, &meta_table,     &floor_table};

Oid le_store_schema;

LE_FUNCTION(le_refuse_write);

/* --- finding the tables --- */

bool
le_store_find(void)
{
	Oid extension = get_extension_oid(STORE_EXTENSION, true);
	bool all = true;

	le_store_schema = get_namespace_oid(STORE_SCHEMA, true);
	for (int i = 0; i < lengthof(tables); i++)
	{
		Oid oid = OidIsValid(extension) && OidIsValid(le_store_schema)
					  ? get_relname_relid(tables[i]->name, le_store_schema)
					  : InvalidOid;

		/* a table of that name that is not the extension's */
		if (OidIsValid(oid) && getExtensionOfObject(RelationRelationId, oid) != extension)
			oid = InvalidOid;
		tables[i]->oid = oid;
		all = all && OidIsValid(oid);
	}
	return all;
}

/*
 * Two managers would undo each other's work row by row, until the unique key
 * ends it.  This lock keeps the second one away for as long as this process
 * lives: an abort leaves it alone, as it is of the method of advisory locks.
 */
void
le_store_claim(void)
{
	static Oid claimed = InvalidOid;
	LOCKTAG tag;

	if (claimed == le_slot_table.oid)
		return;
	Assert(OidIsValid(le_slot_table.oid) && ActiveSnapshotSet());
	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, RelationRelationId, le_slot_table.oid, 0);
	tag.locktag_lockmethodid = USER_LOCKMETHOD;
	(void) LockAcquire(&tag, ExclusiveLock, true, false);
	claimed = le_slot_table.oid;

	/* see what another manager has written while this one waited */
	PopActiveSnapshot();
	PushActiveSnapshot(GetTransactionSnapshot());
}

/* --- the small tables --- */

/*
 * Tables without an index, which are written when a manager takes an incarnation
 * only.  A snapshot of its own lets a scan see what this transaction wrote.
 */
typedef struct SmallTable
{
	const StoreTable *table;
	Relation rel;
	Snapshot snapshot;
	TupleTableSlot *tuple;
	TableScanDesc scan;
} SmallTable;

static void
small_open(SmallTable *small, StoreTable *table, LOCKMODE lockmode)
{
	Assert(table->nkey == 0 && OidIsValid(table->oid));
	small->table = table;
	small->rel = le_table_open_to_read(table, lockmode);
	if (small->rel->rd_rel->relhasindex)
		le_table_wrong(small->rel);
	small->snapshot = RegisterSnapshot(GetLatestSnapshot());
	small->tuple = table_slot_create(small->rel, NULL);
	small->scan = table_beginscan(small->rel, small->snapshot, 0, NULL);
}

static bool
small_next(SmallTable *table)
{
	if (!table_scan_getnextslot(table->scan, ForwardScanDirection, table->tuple))
		return false;
	slot_getallattrs(table->tuple);
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

/* Put these values in the place of the first row; delete all others. */
static void
small_write(SmallTable *table, const Datum *values)
{
	TupleTableSlot *tuple = MakeSingleTupleTableSlot(RelationGetDescr(table->rel), &TTSOpsVirtual);
	LeUpdateIndexes update_indexes;
	bool found = false;

	for (int i = 0; i < RelationGetDescr(table->rel)->natts; i++)
	{
		tuple->tts_isnull[i] = i >= table->table->columns;
		if (!tuple->tts_isnull[i])
			tuple->tts_values[i] = values[i];
	}
	ExecStoreVirtualTuple(tuple);
	while (small_next(table))
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

	memset(meta, 0, sizeof(*meta));
	small_open(&table, &meta_table, AccessShareLock);
	if (small_next(&table))
	{
		const Datum *values = table.tuple->tts_values;

		meta->database = DatumGetObjectId(values[META_DATABASE]);
		meta->incarnation = DatumGetInt64(values[META_INCARNATION]);
		meta->taken_at = DatumGetTimestampTz(values[META_TAKEN_AT]);
		meta->timeline = (uint32) DatumGetInt64(values[META_TIMELINE]);
		meta->boot = (uint64) DatumGetInt64(values[META_BOOT]);
	}
	small_close(&table);

	small_open(&table, &floor_table, AccessShareLock);
	while (small_next(&table))
		meta->floor = Max(meta->floor, DatumGetInt64(table.tuple->tts_values[0]));
	small_close(&table);
}

/*
 * The floor is what pg_dump carries: one row, the current incarnation.  A higher
 * one has been restored since the manager read it, and stays: the manager has been
 * told to start again above it.
 */
static void
write_floor(int64 incarnation)
{
	SmallTable table;
	Datum value = Int64GetDatum(incarnation);
	int64 highest = 0;
	int rows = 0;

	small_open(&table, &floor_table, RowExclusiveLock);
	while (small_next(&table))
	{
		highest = Max(highest, DatumGetInt64(table.tuple->tts_values[0]));
		rows++;
	}
	if (highest < incarnation || (highest == incarnation && rows > 1))
	{
		table_rescan(table.scan, NULL);
		small_write(&table, &value);
	}
	small_close(&table);
}

void
le_store_write_meta(const LeMeta *meta)
{
	SmallTable table;
	Datum values[META_COLUMNS];

	Assert(OidIsValid(meta->database) && meta->incarnation > 0);
	values[META_DATABASE] = ObjectIdGetDatum(meta->database);
	values[META_INCARNATION] = Int64GetDatum(meta->incarnation);
	values[META_TAKEN_AT] = TimestampTzGetDatum(meta->taken_at);
	values[META_TIMELINE] = Int64GetDatum((int64) meta->timeline);
	values[META_BOOT] = Int64GetDatum((int64) meta->boot);
	small_open(&table, &meta_table, RowExclusiveLock);
	small_write(&table, values);
	small_close(&table);
	write_floor(meta->incarnation);
}

/* --- everybody else --- */

/*
 * lock_election.refuse_write(), the trigger of the tables above.  A publication
 * FOR ALL TABLES has them as well; what a subscription brings is passed over,
 * as an error would end the replication of all other tables.
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
			 errmsg("table \"%s\" is written by lock_election alone",
					RelationGetRelationName(trigger->tg_relation)),
			 errhint("Use the functions of the extension, such as release_lock() or force_release_lock().")));
	PG_RETURN_NULL();
}
