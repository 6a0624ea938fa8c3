/*
 * store/store.c
 *		Which tables they are, the small ones among them, and who may write.
 *
 * The store is the durable record of the locks, and the only code that
 * touches the tables: store/write.c writes the rows of slots,
 * store/load.c reads them.  It decides nothing: the core says what has
 * changed, and that is written.  It neither starts nor commits transactions,
 * and it remembers nothing that a rollback could make wrong: after one, the
 * caller throws the core with all its locators away and loads anew.
 */
#include "postgres.h"

#include "access/htup_details.h"
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

#include "shared/compat.h"
#include "store/internal.h"
#include "store/store.h"

static const Oid slot_types[SLOT_COLUMNS] = {
	INT8OID, TIMESTAMPTZOID, INT8OID, INT8OID,        INT8OID, INT8OID, OIDOID,  INT4OID, INT4OID,
	INT4OID, INT2OID,        INT2OID, TIMESTAMPTZOID, TEXTOID, TEXTOID, TEXTOID, BYTEAOID};

static const Oid lease_types[LEASE_COLUMNS] = {INT8OID, INT8OID, INT8OID, OIDOID, TEXTOID};

static const Oid queue_types[QUEUE_COLUMNS] = {INT8OID, TIMESTAMPTZOID, INT8OID, INT8OID, INT8OID,
											   OIDOID,  INT4OID,        INT2OID, INT2OID, TEXTOID,
											   TEXTOID, TEXTOID,        BYTEAOID};

/* The columns of lock_election.meta, in their order. */
enum
{
	META_DATABASE,
	META_INCARNATION,
	META_TAKEN_AT,
	META_TIMELINE,
	META_BOOT,
	META_COLUMNS
};

StoreTables le_store_tables;

LE_FUNCTION(le_refuse_write);

/* --- finding the tables --- */

static Oid
find_table(Oid nspoid, const char *name, Oid extension)
{
	Oid oid = get_relname_relid(name, nspoid);

	if (OidIsValid(oid) && getExtensionOfObject(RelationRelationId, oid) != extension)
		return InvalidOid;
	return oid;
}

bool
le_store_find(void)
{
	Oid extension = get_extension_oid(STORE_NAME, true);
	Oid nspoid = get_namespace_oid(STORE_NAME, true);

	le_store_tables.slot_oid = InvalidOid;
	le_store_tables.lease_oid = InvalidOid;
	le_store_tables.queue_oid = InvalidOid;
	le_store_tables.history_oid = InvalidOid;
	le_store_tables.meta_oid = InvalidOid;
	le_store_tables.floor_oid = InvalidOid;
	if (!OidIsValid(extension) || !OidIsValid(nspoid))
		return false;
	le_store_tables.nspoid = nspoid;
	le_store_tables.slot_oid = find_table(nspoid, "slot", extension);
	le_store_tables.lease_oid = find_table(nspoid, "lease", extension);
	le_store_tables.queue_oid = find_table(nspoid, "queue", extension);
	le_store_tables.history_oid = find_table(nspoid, "history", extension);
	le_store_tables.meta_oid = find_table(nspoid, "meta", extension);
	le_store_tables.floor_oid = find_table(nspoid, "incarnation_floor", extension);
	return OidIsValid(le_store_tables.slot_oid) && OidIsValid(le_store_tables.lease_oid) &&
		   OidIsValid(le_store_tables.queue_oid) && OidIsValid(le_store_tables.history_oid) &&
		   OidIsValid(le_store_tables.meta_oid) && OidIsValid(le_store_tables.floor_oid);
}

void
le_store_wrong_table(Relation rel)
{
	ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("table \"%s.%s\" has been altered", STORE_NAME, RelationGetRelationName(rel)),
					errhint("Undo the change, or drop and create extension \"%s\".", STORE_NAME)));
}

static bool
has_index(Relation rel)
{
	List *indexes;
	bool any;

	/* after its last index was dropped this stays set until VACUUM */
	if (!rel->rd_rel->relhasindex)
		return false;
	indexes = RelationGetIndexList(rel);
	any = indexes != NIL;
	list_free(indexes);
	return any;
}

/* What is written below the executor has to have exactly this shape. */
void
le_store_check_shape(Relation rel, const Oid *types, int columns)
{
	TupleDesc desc = RelationGetDescr(rel);

	if (desc->natts != columns)
		le_store_wrong_table(rel);
	for (int i = 0; i < columns; i++)
	{
		if (TupleDescAttr(desc, i)->atttypid != types[i])
			le_store_wrong_table(rel);
	}
}

/* And no index, which would have to be kept up. */
static void
check_table(Relation rel, const Oid *types, int columns)
{
	le_store_check_shape(rel, types, columns);
	if (has_index(rel))
		le_store_wrong_table(rel);
}

void
le_store_check_slot_table(Relation rel)
{
	check_table(rel, slot_types, SLOT_COLUMNS);
}

void
le_store_check_lease_table(Relation rel)
{
	check_table(rel, lease_types, LEASE_COLUMNS);
}

void
le_store_check_queue_table(Relation rel)
{
	check_table(rel, queue_types, QUEUE_COLUMNS);
}

Relation
le_store_open_loaded(Oid oid, LeRelFileNumber file)
{
	Relation rel = try_table_open(oid, RowExclusiveLock);

	if (rel != NULL && (le_relfilenumber(rel) != file || RelationGetNamespace(rel) != le_store_tables.nspoid))
	{
		table_close(rel, NoLock);
		rel = NULL;
	}
	return rel;
}

/*
 * There is no unique key that would keep two managers from writing the same
 * lock twice.  This lock does, for as long as this process lives: an abort
 * leaves it alone, as it is of the method of advisory locks.
 */
void
le_store_claim(void)
{
	static Oid claimed = InvalidOid;
	LOCKTAG tag;

	if (claimed == le_store_tables.slot_oid)
		return;
	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, RelationRelationId, le_store_tables.slot_oid, 0);
	tag.locktag_lockmethodid = USER_LOCKMETHOD;
	(void) LockAcquire(&tag, ExclusiveLock, true, false);
	claimed = le_store_tables.slot_oid;

	/* what another one has written while we waited is to be seen */
	PopActiveSnapshot();
	PushActiveSnapshot(GetTransactionSnapshot());
}

/* --- the small tables --- */

/*
 * They have no index, and are written when a manager takes an incarnation
 * only.  A snapshot of its own lets a scan see what this transaction wrote.
 */
typedef struct SmallTable
{
	Relation rel;
	Snapshot snapshot;
	TupleTableSlot *tuple;
	TableScanDesc scan;
} SmallTable;

static void
small_open(SmallTable *table, Oid oid, LOCKMODE lockmode, int columns)
{
	table->rel = table_open(oid, lockmode);
	if (RelationGetDescr(table->rel)->natts != columns || has_index(table->rel))
		le_store_wrong_table(table->rel);
	table->snapshot = RegisterSnapshot(GetLatestSnapshot());
	table->tuple = table_slot_create(table->rel, NULL);
	table->scan = table_beginscan(table->rel, table->snapshot, 0, NULL);
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
		tuple->tts_values[i] = values[i];
		tuple->tts_isnull[i] = false;
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
	small_open(&table, le_store_tables.meta_oid, AccessShareLock, META_COLUMNS);
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

	small_open(&table, le_store_tables.floor_oid, AccessShareLock, 1);
	while (small_next(&table))
		meta->floor = Max(meta->floor, DatumGetInt64(table.tuple->tts_values[0]));
	small_close(&table);
}

/* The floor is what pg_dump carries: one row, the current incarnation. */
static void
write_floor(int64 incarnation)
{
	SmallTable table;
	Datum value = Int64GetDatum(incarnation);
	bool same = false;
	int rows = 0;

	small_open(&table, le_store_tables.floor_oid, RowExclusiveLock, 1);
	while (small_next(&table))
	{
		same = DatumGetInt64(table.tuple->tts_values[0]) == incarnation;
		rows++;
	}
	if (rows != 1 || !same)
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

	values[META_DATABASE] = ObjectIdGetDatum(meta->database);
	values[META_INCARNATION] = Int64GetDatum(meta->incarnation);
	values[META_TAKEN_AT] = TimestampTzGetDatum(meta->taken_at);
	values[META_TIMELINE] = Int64GetDatum((int64) meta->timeline);
	values[META_BOOT] = Int64GetDatum((int64) meta->boot);
	small_open(&table, le_store_tables.meta_oid, RowExclusiveLock, META_COLUMNS);
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
