/*
 * backend/extension.c
 *		Wakes up the launcher or the manager after CREATE EXTENSION or DROP EXTENSION has committed.
 *
 * "pending" records the work to do at the end of a transaction.  A transaction callback does that work: it
 * also runs after ERROR and FATAL, and at a commit it runs once other processes can see the transaction's
 * changes.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_extension.h"
#include "commands/extension.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"

#include "backend/extension.h"
#include "shared/compat.h"
#include "shared/shmem.h"
#include "shared/sleep.h"

#define LE_EXTENSION "lock_election"

LE_FUNCTION(le_floor_written);

static object_access_hook_type prev_object_access = NULL;

/* Work to do at the end of this transaction; InvalidSubTransactionId = none. */
static struct
{
	SubTransactionId created; /* first subtransaction that created the extension */
	SubTransactionId dropped; /* first subtransaction that dropped the extension or raised its incarnation */
} pending;

/*
 * Requests a manager if the transaction has created the extension.  If the transaction has dropped the
 * extension or raised its incarnation, makes a running manager check the extension again.  Must not fail,
 * because the transaction has ended.  Exception: raises an error before PREPARE.
 */
static void
at_transaction_end(XactEvent event, void *arg)
{
	bool created = pending.created != InvalidSubTransactionId;
	bool dropped = pending.dropped != InvalidSubTransactionId;
	LeDatabase *db;
	int manager_proc = -1;

	if (!created && !dropped)
		return;

	/* reject PREPARE: the session that commits the transaction later would not wake up any process */
	if (event == XACT_EVENT_PRE_PREPARE)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot PREPARE a transaction that has created, dropped or restored extension %s",
						LE_EXTENSION)));
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT)
		return;
	memset(&pending, 0, sizeof(pending));
	if (event != XACT_EVENT_COMMIT)
		return;

	LWLockAcquire(le_shared->lock, LW_EXCLUSIVE);
	db = le_database_find(MyDatabaseId, created);
	if (db != NULL && created)
		le_database_created(db);
	if (db != NULL && dropped)
	{
		pg_atomic_write_u32(&db->recheck, 1);
		manager_proc = db->manager_proc;
	}
	LWLockRelease(le_shared->lock);
	le_wake(manager_proc);
	if (created)
		le_wake_launcher();
}

/*
 * Forgets that this subtransaction or one nested in it, which has a higher number, has created or dropped the
 * extension.  Must not fail, because an abort is under way.
 */
static void
at_subtransaction_end(SubXactEvent event, SubTransactionId subid, SubTransactionId parent, void *arg)
{
	if (event != SUBXACT_EVENT_ABORT_SUB)
		return;
	if (pending.created >= subid)
		pending.created = InvalidSubTransactionId;
	if (pending.dropped >= subid)
		pending.dropped = InvalidSubTransactionId;
}

bool
le_created_in_this_transaction(void)
{
	return pending.created != InvalidSubTransactionId;
}

/* Records the current subtransaction in *first, unless an earlier one is already recorded. */
static void
note(SubTransactionId *first)
{
	if (*first == InvalidSubTransactionId)
		*first = GetCurrentSubTransactionId();
	Assert(*first >= TopSubTransactionId);
}

/*
 * Returns whether this extension is lock_election.  Uses SnapshotSelf, because the current command has just
 * created the extension's row.
 */
static bool
is_our_new_extension(Oid extension)
{
	Relation rel = table_open(ExtensionRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple tuple;
	bool ours = false;

	ScanKeyInit(&key, Anum_pg_extension_oid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(extension));
	scan = systable_beginscan(rel, ExtensionOidIndexId, true, SnapshotSelf, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		ours = strcmp(NameStr(((Form_pg_extension) GETSTRUCT(tuple))->extname), LE_EXTENSION) == 0;
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return ours;
}

/* Object access hook.  Records in "pending" that the extension is created or dropped. */
static void
le_object_access(ObjectAccessType access, Oid class_id, Oid object, int sub, void *arg)
{
	if (prev_object_access)
		prev_object_access(access, class_id, object, sub, arg);

	if (class_id != ExtensionRelationId || le_shared == NULL)
		return;
	if (access == OAT_POST_CREATE && is_our_new_extension(object))
		note(&pending.created);
	else if (access == OAT_DROP && object == get_extension_oid(LE_EXTENSION, true))
		note(&pending.dropped);
}

/*
 * Implements the trigger function lock_election.floor_written().  It runs when a restore has written the
 * incarnation of the dumped database: a running manager must then restart with a higher incarnation.
 */
PGDLLEXPORT Datum
le_floor_written(PG_FUNCTION_ARGS)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
						errmsg("function \"%s\" was not called by trigger manager", "floor_written")));
	note(&pending.dropped);
	return PointerGetDatum(NULL);
}

void
le_extension_init(void)
{
	prev_object_access = object_access_hook;
	object_access_hook = le_object_access;
	RegisterXactCallback(at_transaction_end, NULL);
	RegisterSubXactCallback(at_subtransaction_end, NULL);
}
