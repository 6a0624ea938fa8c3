/*
 * sql/sql_version.c
 *		Implements the SQL functions for optimistic locking with versions, either of keys or of the rows of a
 *		table.
 *
 * A key is stored in an ordinary row of a table, too, and the caller's transaction itself writes this row.  So
 * these functions need neither a manager nor shared_preload_libraries.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/rel.h"

#include "shared/compat.h"
#include "sql/sql_args.h"
#include "sql/sql.h"
#include "store/versioned.h"

LE_FUNCTION(le_compare_and_set);
LE_FUNCTION(le_read_versioned);
LE_FUNCTION(le_version_guard);
LE_FUNCTION(le_role_oid);

/* Approximate size of a row without its key and value, in bytes. */
#define ROW_OF_KEY 150

/* --- keys --- */

/* Implements lock_election.role_oid(role), for a generated column. */
Datum
le_role_oid(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	PG_RETURN_OID(get_role_oid(NameStr(*PG_GETARG_NAME(0)), true));
}

/*
 * Raises 42501 unless the caller may access the key.  Like a table, a key belongs to its creator.  Access
 * requires membership in that role, or in the predefined role "all_data".
 */
static void
check_key(LeText key, const LeVersioned *row, Oid all_data, const char *what)
{
	if (row->version == 0 || (OidIsValid(row->role) && has_privs_of_role(GetUserId(), row->role)) ||
		has_privs_of_role(GetUserId(), all_data))
		return;
	ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					errmsg("permission denied to %s key \"%.*s\"", what, (int) key.len, key.data),
					errdetail("It belongs to another role.")));
}

/*
 * Implements compare_and_set(key, expected_version, value).
 *
 * The caller has read the expected version before this statement, and versions only grow.  So if the
 * statement's snapshot has a different version, the call fails.  Otherwise another transaction may be writing
 * the row: the statement in step 3 waits for that transaction, and checks the version again.
 */
Datum
le_compare_and_set(PG_FUNCTION_ARGS)
{
	LeText key = le_arg_text(fcinfo, 0, "key", LE_MAX_NAME);
	int64 expected = le_arg_number(fcinfo, 1, "expected_version", 0, PG_INT64_MAX,
								   "It is a version, or 0 for a key that must not exist.");
	bool value_is_null = PG_ARGISNULL(2);
	Datum value = 0;
	LeVersioned row;
	int64 version, more;

	/* 1. check the arguments */
	le_arg_check_value(fcinfo, 2);
	if (!value_is_null)
		value = PG_GETARG_DATUM(2);
	PreventCommandDuringRecovery("compare_and_set()");
	PreventCommandIfReadOnly("compare_and_set()");

	/* 2. read the row as this statement sees it; check the rights, the version and the size limit */
	le_version_read(PG_GETARG_DATUM(0), &row);
	check_key(key, &row, ROLE_PG_WRITE_ALL_DATA, "write");
	if (row.version != expected)
		PG_RETURN_NULL();
	more = value_is_null ? 0 : (int64) (VARSIZE_ANY_EXHDR(DatumGetPointer(value)));
	if (expected == 0)
		le_version_check_size(GetUserId(), more + key.len + ROW_OF_KEY);
	else if (OidIsValid(row.role))
		le_version_check_size(
			row.role, more - (row.value_is_null ? 0 : (int64) VARSIZE_ANY_EXHDR(DatumGetPointer(row.value))));

	/* 3. write the row, unless another transaction has written it first */
	if (expected == 0)
		version = le_version_insert(PG_GETARG_DATUM(0), value, value_is_null, GetUserId());
	else
		version = le_version_update(PG_GETARG_DATUM(0), expected, value, value_is_null);
	if (version == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT64(version);
}

/* Implements read_versioned(key, OUT value, OUT version). */
Datum
le_read_versioned(PG_FUNCTION_ARGS)
{
	LeText key = le_arg_text(fcinfo, 0, "key", LE_MAX_NAME);
	LeVersioned row;
	LeTuple tuple = {0};

	le_version_read(PG_GETARG_DATUM(0), &row);
	check_key(key, &row, ROLE_PG_READ_ALL_DATA, "read");
	le_tuple_add_if(&tuple, !row.value_is_null, row.value);
	le_tuple_add(&tuple, Int64GetDatum(row.version));
	return le_tuple_datum(fcinfo, &tuple);
}

/* --- rows of a table --- */

/* Raises an error unless version_guard() is called as documented. */
static void
check_trigger(FunctionCallInfo fcinfo)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
						errmsg("function \"%s\" was not called by trigger manager", "version_guard")));
	if (!TRIGGER_FIRED_BEFORE(trigger->tg_event) || !TRIGGER_FIRED_FOR_ROW(trigger->tg_event) ||
		!TRIGGER_FIRED_BY_UPDATE(trigger->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("trigger \"%s\" must be fired BEFORE UPDATE FOR EACH ROW: it calls version_guard",
						trigger->tg_trigger->tgname)));
	if (trigger->tg_trigger->tgnargs > 1)
		ereport(
			ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("trigger \"%s\" must call version_guard with at most one argument, the name of a column",
					trigger->tg_trigger->tgname)));
}

/*
 * Returns the version column of the table that is written.  The column is looked up by name, because
 * partitions may number their columns differently.
 */
static Form_pg_attribute
version_column(const TriggerData *trigger)
{
	const char *name = trigger->tg_trigger->tgnargs == 1 ? trigger->tg_trigger->tgargs[0] : "version";
	const char *table = RelationGetRelationName(trigger->tg_relation);
	int number = SPI_fnumber(trigger->tg_relation->rd_att, name);
	Form_pg_attribute column;

	if (number <= 0) /* there is no such column, or it is a system column */
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of table \"%s\" does not exist", name, table),
				 errdetail("Trigger \"%s\" calls version_guard with it.", trigger->tg_trigger->tgname)));
	column = TupleDescAttr(trigger->tg_relation->rd_att, number - 1);
	if (column->atttypid != INT2OID && column->atttypid != INT4OID && column->atttypid != INT8OID)
		ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
						errmsg("column \"%s\" of table \"%s\" cannot be a version", name, table),
						errdetail("A version is a smallint, integer or bigint.")));
	if (column->attgenerated != '\0')
		ereport(ERROR, (errcode(ERRCODE_GENERATED_ALWAYS),
						errmsg("column \"%s\" of table \"%s\" cannot be a version", name, table),
						errdetail("It is a generated column.")));
	return column;
}

/* Returns the version of an old or new row.  Raises an error if it is null. */
static int64
row_version(const TriggerData *trigger, HeapTuple tuple, const FormData_pg_attribute *column)
{
	bool isnull;
	Datum version = le_getattr(tuple, column->attnum, trigger->tg_relation->rd_att, &isnull);

	if (isnull)
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
						errmsg("version \"%s\" of a row of table \"%s\" is null", NameStr(column->attname),
							   RelationGetRelationName(trigger->tg_relation)),
						tuple == trigger->tg_newtuple ? errhint("Set it to the version that was read.")
													  : errhint("Make the column NOT NULL DEFAULT 1.")));
	if (column->atttypid == INT2OID)
		return DatumGetInt16(version);
	return column->atttypid == INT4OID ? DatumGetInt32(version) : DatumGetInt64(version);
}

/* Returns the next version as a value of the column's type.  Raises an error if it is out of range. */
static Datum
next_version(int64 version, const FormData_pg_attribute *column)
{
	int64 max = column->atttypid == INT2OID   ? PG_INT16_MAX
				: column->atttypid == INT4OID ? PG_INT32_MAX
											  : PG_INT64_MAX;

	if (version >= max)
		ereport(ERROR, (errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
						errmsg("version \"%s\" is out of range", NameStr(column->attname))));
	version++;
	if (column->atttypid == INT2OID)
		return Int16GetDatum((int16) version);
	return column->atttypid == INT4OID ? Int32GetDatum((int32) version) : Int64GetDatum(version);
}

/*
 * Implements trigger function version_guard('column'), called BEFORE UPDATE of a row.
 *
 * Under READ COMMITTED, if the update had to wait for another transaction, the old row that this trigger gets
 * is the newest one, because PostgreSQL locks the row before it fires the trigger.
 */
Datum
le_version_guard(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	Form_pg_attribute column;
	int64 old_version;
	int64 new_version;
	int number;
	Datum next;
	bool isnull = false;

	/* 1. check that the old and the new row have the same version */
	check_trigger(fcinfo);
	column = version_column(trigger);
	old_version = row_version(trigger, trigger->tg_trigtuple, column);
	new_version = row_version(trigger, trigger->tg_newtuple, column);
	if (new_version != old_version)
		ereport(
			ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("row of table \"%s\" was changed since it was read",
					RelationGetRelationName(trigger->tg_relation)),
			 errdetail("It has version " INT64_FORMAT ", but the update expects " INT64_FORMAT ".",
					   old_version, new_version),
			 new_version < old_version
				 ? errhint("Read the row again, and repeat the transaction.")
				 : errhint("An update must contain the version that was read; the trigger increments it.")));

	/* 2. set the next version */
	number = column->attnum;
	next = next_version(old_version, column);
	return PointerGetDatum(heap_modify_tuple_by_cols(trigger->tg_newtuple, trigger->tg_relation->rd_att, 1,
													 &number, &next, &isnull));
}
