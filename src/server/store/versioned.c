/*
 * store/versioned.c
 *		Reads and writes _lock_election.versioned.
 *
 * Unlike the manager's tables, this table is read and written by the caller's transaction, and must behave
 * like any table at the transaction's isolation level: wait for the writer of a row, then check the row's
 * newest version (READ COMMITTED) or raise 40001, and take part in the checks of SERIALIZABLE.  The executor
 * does all this, so this file runs SQL statements through SPI.
 *
 * The statements run as the bootstrap superuser, as the manager does, because no other role may access the
 * table.  The callers of these functions check who may access a key.  All names in the statements are
 * qualified, and the types of the arguments are given as OIDs, so that no search_path, temporary table or
 * operator of a caller can change their meaning.
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"

#include "shared/settings.h"
#include "store/versioned.h"

#define MAX_ARGS 3
/* Bytes that a session may write before it computes the total size of its role's keys again. */
#define COUNT_EVERY (1024 * INT64CONST(1024))

typedef struct Statement
{
	const char *sql;
	int result; /* expected result code of SPI */
	int nargs;
	Oid types[MAX_ARGS];
	SPIPlanPtr plan;
} Statement;

static Statement read_key = {"SELECT v.version, v.role, v.value, v.role_oid FROM _lock_election.versioned v "
							 "WHERE v.key OPERATOR(pg_catalog.=) $1",
							 SPI_OK_SELECT,
							 1,
							 {TEXTOID}};

static Statement insert_key = {
	"INSERT INTO _lock_election.versioned AS v (key, value, role, version) VALUES ($1, $2, $3, 1)"
	" ON CONFLICT (key) DO NOTHING RETURNING v.version",
	SPI_OK_INSERT_RETURNING,
	3,
	{TEXTOID, TEXTOID, NAMEOID}};

static Statement update_key = {
	"UPDATE _lock_election.versioned v SET value = $2, version = v.version OPERATOR(pg_catalog.+) 1"
	" WHERE v.key OPERATOR(pg_catalog.=) $1 AND v.version OPERATOR(pg_catalog.=) $3 RETURNING v.version",
	SPI_OK_UPDATE_RETURNING,
	3,
	{TEXTOID, TEXTOID, INT8OID}};

static Statement table_size = {
	"SELECT pg_catalog.pg_relation_size('_lock_election.versioned'::pg_catalog.regclass)",
	SPI_OK_SELECT,
	0,
	{0}};

static Statement role_size = {
	"SELECT COALESCE(pg_catalog.sum(pg_catalog.octet_length(v.key) OPERATOR(pg_catalog.+)"
	" COALESCE(pg_catalog.octet_length(v.value), 0) OPERATOR(pg_catalog.+) 150), 0)::pg_catalog.int8"
	" FROM _lock_election.versioned v WHERE v.role_oid OPERATOR(pg_catalog.=) $1",
	SPI_OK_SELECT,
	1,
	{OIDOID}};

/*
 * Runs a statement.  Returns whether it returned a row, and leaves SPI connected, so that the caller can read
 * the row.  After an error, the end of the (sub)transaction restores the caller's identity.
 */
static bool
run(Statement *statement, Datum *values, const char *nulls)
{
	Oid role;
	int security;
	int result;

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to SPI");
	GetUserIdAndSecContext(&role, &security);
	SetUserIdAndSecContext(BOOTSTRAP_SUPERUSERID, security | SECURITY_LOCAL_USERID_CHANGE);
	if (statement->plan == NULL)
	{
		SPIPlanPtr plan = SPI_prepare(statement->sql, statement->nargs, statement->types);

		if (plan == NULL || SPI_keepplan(plan) != 0)
			elog(ERROR, "could not prepare a statement: %s", SPI_result_code_string(SPI_result));
		statement->plan = plan;
	}
	result = SPI_execute_plan(statement->plan, values, nulls, false, 0);
	SetUserIdAndSecContext(role, security);
	if (result != statement->result)
		elog(ERROR, "could not execute a statement: %s", SPI_result_code_string(result));
	Assert(SPI_processed <= 1); /* the result is a size, or the single row of a key */
	return SPI_processed > 0;
}

static Datum
column(int number, bool *isnull)
{
	return SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, number, isnull);
}

void
le_version_read(Datum key, LeVersioned *row)
{
	bool isnull;

	memset(row, 0, sizeof(*row));
	row->value_is_null = true;
	if (run(&read_key, &key, NULL))
	{
		row->version = DatumGetInt64(column(1, &isnull));
		row->role = get_role_oid(NameStr(*DatumGetName(column(2, &isnull))), true);
		if (row->role != DatumGetObjectId(column(4, &isnull)))
			row->role = InvalidOid; /* the owner was dropped, and a newer role has its name */
		row->value = column(3, &row->value_is_null);
		if (!row->value_is_null)
			row->value = SPI_datumTransfer(row->value, false, -1);
	}
	SPI_finish();
}

/* Runs a statement that returns one row with a number, and returns that number.  Finishes SPI. */
static int64
one_number(Statement *statement, Datum *values)
{
	int64 number;
	bool isnull;

	if (!run(statement, values, NULL))
		elog(ERROR, "a sum has no row");
	number = DatumGetInt64(column(1, &isnull));
	SPI_finish();
	return number;
}

void
le_version_check_size(Oid role, int64 more)
{
	static Oid counted = InvalidOid;
	static int64 room = 0; /* bytes that may be written before the size is computed again */
	int64 limit = le_max_keys_per_role_mb * LE_MB, used;
	Datum value = ObjectIdGetDatum(role);

	if (limit == 0 || more <= 0)
		return;
	if (counted != role || room < more)
	{
		/* compute the size of the role's keys only if the size of the whole table exceeds the limit */
		used = one_number(&table_size, NULL);
		if (used + more > limit)
			used = one_number(&role_size, &value);
		if (used + more > limit)
			ereport(ERROR,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("the keys of role \"%s\" take too much room in this database",
							GetUserNameFromId(role, false)),
					 errhint("See lock_election.max_keys_per_role (%d MB).", le_max_keys_per_role_mb)));
		counted = role;
		room = Min(COUNT_EVERY, limit - used);
	}
	Assert(counted == role);
	room -= more;
}

static int64
write_key(Statement *statement, Datum *values, bool value_is_null)
{
	int64 version = 0;
	bool isnull;

	if (run(statement, values, value_is_null ? " n " : NULL))
		version = DatumGetInt64(column(1, &isnull));
	SPI_finish();
	return version;
}

int64
le_version_insert(Datum key, Datum value, bool value_is_null, Oid role)
{
	int64 version;
	NameData name;
	Datum values[MAX_ARGS] = {key, value, NameGetDatum(&name)};

	Assert(OidIsValid(role));
	namestrcpy(&name, GetUserNameFromId(role, false));
	version = write_key(&insert_key, values, value_is_null);
	Assert(version == 0 || version == 1);
	return version;
}

int64
le_version_update(Datum key, int64 expected, Datum value, bool value_is_null)
{
	Datum values[MAX_ARGS] = {key, value, Int64GetDatum(expected)};
	int64 version = write_key(&update_key, values, value_is_null);

	Assert(version == 0 || version == expected + 1);
	return version;
}
