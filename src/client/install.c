/*
 * install.c
 *		Installs the portable edition, whose file the library carries.
 */
#include "internal.h"

/* sql/portable/lock_election.sql as an array of its lines, made by the build. */
static const char script[] =
#include "portable.inc"
	;

const char *
le_install_script(void)
{
	return script;
}

/* Runs a query of the application's connection that returns one text; "" where it is null.  To be freed. */
static char *
ask(PGconn *conn, const char *sql, int n, const char *const *values, le_error *why)
{
	PGresult *result = PQexecParams(conn, sql, n, NULL, values, NULL, NULL, 0);
	char *text = NULL;

	if (result == NULL)
		le_connection_error(conn, why);
	else if (PQresultStatus(result) != PGRES_TUPLES_OK)
		le_error_result(why, result);
	else
	{
		text = strdup(PQntuples(result) > 0 ? PQgetvalue(result, 0, 0) : "");
		if (text == NULL)
			le_no_memory(why);
	}
	PQclear(result);
	return text;
}

/* Runs statements without results. */
static bool
run(PGconn *conn, const char *sql, le_error *why)
{
	PGresult *result = PQexec(conn, sql);
	ExecStatusType status = PQresultStatus(result);
	bool done = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;

	if (result == NULL)
		le_connection_error(conn, why);
	else if (!done)
		le_error_result(why, result);
	PQclear(result);
	return done;
}

/* Each version has a comment of its own, which stands in the file as well. */
static bool
is_installed(PGconn *conn, le_error *why)
{
	char *comment =
		ask(conn,
			"SELECT pg_catalog.obj_description(n.oid, 'pg_namespace') FROM pg_catalog.pg_namespace n "
			"WHERE n.nspname OPERATOR(pg_catalog.=) '_lock_election'",
			0, NULL, why);
	bool found = comment != NULL && comment[0] != '\0' && strstr(script, comment) != NULL;

	free(comment);
	return found;
}

le_status
le_install(PGconn *yours, const char *schema, const char *grantee, le_error *error)
{
	const char *values[] = {schema != NULL ? schema : "", grantee != NULL ? grantee : ""};
	le_error why = {.status = LE_OK};
	bool done;

	le_must(le_check_pointer(yours, "yours", error));
	if (PQtransactionStatus(yours) == PQTRANS_INTRANS || PQtransactionStatus(yours) == PQTRANS_INERROR)
		return le_invalid(error, "yours has an open transaction: the installation is one of its own");
	if (is_installed(yours, &why) || why.status != LE_OK)
		return le_error_copy(error, &why);
	done = run(yours, "BEGIN ISOLATION LEVEL READ COMMITTED", &why);
	if (done)
	{
		free(ask(yours,
				 "SELECT pg_catalog.set_config('_lock_election.schema', $1, true),"
				 " pg_catalog.set_config('_lock_election.grant', $2, true)",
				 2, values, &why));
		done = why.status == LE_OK && run(yours, script, &why) && run(yours, "COMMIT", &why);
	}
	if (!done)
		PQclear(PQexec(yours, "ROLLBACK"));
	return le_error_copy(error, &why);
}
