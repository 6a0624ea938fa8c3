/*
 * views.c
 *		Shows locks, waiters, elections and the status.
 */
#include "commands.h"
#include "globals.h"
#include "memory.h"
#include "message.h"
#include "options.h"
#include "server.h"
#include "sql.h"

/*
 * Shows a view, or only the rows that have the given name.  JSON and CSV have all columns; a table has those
 * that fit on a screen.  Returns LC_EXIT_FAILED if there is no row with that name.
 */
static int
show(int argc, char **argv, const char *view, const char *columns, const char *key, const char *order)
{
	const char *name = lc_words(argc, argv, NULL, 1)[0], *where = "";
	bool all = lc_globals.output != LC_TABLE || lc_globals.verbosity == LC_VERBOSE;
	PGconn *db;
	int64_t rows;

	lc_choose_shard(&name, name != NULL);
	db = lc_connect(false);
	if (name != NULL)
		where = lc_format(" WHERE %s = %s", key, lc_literal(db, name));
	lc_schema(db);
	rows = lc_print(db, false, "SELECT %s FROM lock_election.%s%s ORDER BY %s", all ? "*" : columns, view,
					where, order);
	PQfinish(db);
	return name != NULL && rows == 0 ? LC_EXIT_FAILED : 0;
}

int
lc_locks(int argc, char **argv)
{
	return show(argc, argv, "locks",
				"kind, name, coalesce(mode, 'closed') AS mode, coalesce(owner, '') AS owner, token, "
				"date_trunc('second', acquired_at) AS "
				"acquired_at, "
				"date_trunc('milliseconds', coalesce(time_left, closed_until - clock_timestamp())) AS "
				"time_left, waiters, "
				"pid, connected, evicted",
				"name", "kind, name, slot");
}

int
lc_waiters(int argc, char **argv)
{
	return show(argc, argv, "waiters",
				"kind, name, queue_position AS position, mode, coalesce(owner, '') AS owner, "
				"date_trunc('second', waiting_since) AS waiting_since, pid, "
				"connected, blocked_by",
				"name", "kind, name, queue_position");
}

int
lc_elections(int argc, char **argv)
{
	return show(argc, argv, "elections",
				"election, candidate, term, date_trunc('second', elected_at) AS elected_at, "
				"date_trunc('milliseconds', valid_for) AS valid_for, waiting, evicted",
				"election", "election");
}

int
lc_show_status(int argc, char **argv)
{
	const char *query = "SELECT m.*, s.* FROM lock_election.manager m, lock_election.stat s";
	PGconn *db;

	lc_words(argc, argv, NULL, 0);
	db = lc_connect(false);
	lc_schema(db);
	/* choose the query for the edition */
	if (lc_is_portable(db))
		query =
			"SELECT h.sql_version AS edition, h.role, h.ok, h.problem, s.* FROM lock_election.health() h, "
			"(" LC_PORTABLE_STAT ") s";
	else if (PQntuples(lc_query(db, "SELECT FROM lock_election.manager")) == 0)
		lc_die(LC_EXIT_SERVER, "no manager runs for database \"%s\"; see lockctl doctor", PQdb(db));
	/* table output prints one line per column */
	if (lc_globals.output == LC_TABLE)
		lc_print(db, false,
				 "SELECT key AS name, value FROM json_each_text((SELECT row_to_json(q) FROM (%s) q))", query);
	else
		lc_print(db, true, "%s", query);
	PQfinish(db);
	return 0;
}
