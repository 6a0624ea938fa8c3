/*
 * install.c
 *		Installs or upgrades the portable edition, whose script is in the library.
 */
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "message.h"
#include "options.h"
#include "sql.h"

typedef struct install_options
{
	const char *schema, *grantee;
	bool print;
} install_options;

/* Parses and checks the arguments. */
static install_options
parse(int argc, char **argv)
{
	install_options o = {0};
	const lc_option options[] = {
		{"schema", 0, LC_TEXT, &o.schema, 0, 0},
		{"grant", 0, LC_TEXT, &o.grantee, 0, 0},
		{"print", 0, LC_FLAG, &o.print, 0, 0},
		{0},
	};

	lc_words(argc, argv, options, 0);
	if ((o.schema != NULL && o.schema[0] == '\0') || (o.grantee != NULL && o.grantee[0] == '\0'))
		lc_usage("the name of a schema or role is empty");
	if (o.print && (o.schema != NULL || o.grantee != NULL))
		lc_usage("--print cannot be used with --schema or --grant: set them in psql, see lockctl(1)");
	return o;
}

/* Returns the version of the portable edition in the database, or "" if it is not installed. */
static const char *
version(PGconn *db)
{
	PGresult *result = lc_query(
		db,
		"SELECT pg_catalog.substring(pg_catalog.obj_description(n.oid, 'pg_namespace'), 'version ([0-9]+)') "
		"FROM pg_catalog.pg_namespace n WHERE n.nspname OPERATOR(pg_catalog.=) '_lock_election'");

	return PQntuples(result) > 0 ? PQgetvalue(result, 0, 0) : "";
}

/*
 * Prints how to add the schema to search_path, unless it is there already.  SQL calls without a schema name
 * find the functions only on search_path.
 */
static void
tell_path(PGconn *db, const char *schema)
{
	PGresult *result = lc_query(
		db,
		"SELECT (SELECT n.nspname FROM pg_catalog.pg_namespace n WHERE n.oid OPERATOR(pg_catalog.=) "
		"%s::pg_catalog.regnamespace) OPERATOR(pg_catalog.=) ANY (pg_catalog.current_schemas(false)), "
		"pg_catalog.quote_ident(pg_catalog.current_database()), "
		"pg_catalog.current_setting('search_path'), "
		"(SELECT pg_catalog.pg_has_role(d.datdba, 'USAGE') FROM pg_catalog.pg_database d "
		"WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())",
		lc_literal(db, schema));

	if (PQgetvalue(result, 0, 0)[0] != 't')
		lc_notice("libraries and lockctl find that schema; for calls in SQL %s: ALTER DATABASE %s SET "
				  "search_path = %s, %s",
				  PQgetvalue(result, 0, 3)[0] == 't' ? "type" : "the owner of the database types",
				  PQgetvalue(result, 0, 1), PQgetvalue(result, 0, 2), schema);
}

int
lc_install(int argc, char **argv)
{
	install_options o = parse(argc, argv);
	const char *before, *after;
	PGconn *db;
	le_status status;
	le_error error;

	if (o.print)
	{
		fputs(le_install_script(), stdout);
		lc_flush();
		return 0;
	}
	/* install */
	db = lc_connect(true);
	before = version(db);
	status = le_install(db, o.schema, o.grantee, &error);
	if (status != LE_OK)
		lc_die(lc_exit_code(status), "%s", error.message);
	/* report the result */
	after = version(db);
	lc_notice("the portable edition, version %s, %s database \"%s\", its functions in schema %s", after,
			  strcmp(before, after) == 0 ? "was there already, in"
			  : before[0] == '\0'        ? "is installed in"
										 : "has replaced an older one in",
			  PQdb(db), lc_schema(db));
	tell_path(db, lc_schema(db));
	PQfinish(db);
	return 0;
}
