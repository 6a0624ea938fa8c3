/*
 * sql.h
 *		Connects to the server, runs queries, and prints their results.
 */
#ifndef SQL_H
#define SQL_H

#include <stdbool.h>
#include <stdint.h>

#include "lock_election.h"

/* Connects, or ends the program.  If primary is set, skips standbys. */
extern PGconn *lc_connect(bool primary);
/* Connects to a primary or standby, within this number of seconds; the caller checks the status. */
extern PGconn *lc_connect_any(const char *application_name, const char *seconds);
/* Returns in one line, without passwords, why a connection failed.  Sets *status. */
extern char *lc_why_not(const PGconn *db, le_status *status);
/*
 * Returns the quoted schema of the extension's functions.  Ends the program if the extension is not
 * installed.
 */
extern const char *lc_schema(PGconn *db);
/*
 * Queries for the OID and the quoted name of that schema.  lc_take_schema() stores the name.  Long-running
 * commands query it again, because the schema may be renamed.
 */
#define LC_SCHEMA_OID_SQL                                                                                    \
	"SELECT COALESCE((SELECT e.extnamespace FROM pg_catalog.pg_extension e WHERE e.extname "                 \
	"OPERATOR(pg_catalog.=) 'lock_election'), (SELECT p.pronamespace FROM pg_catalog.pg_proc p JOIN "        \
	"pg_catalog.pg_namespace i ON i.nspname OPERATOR(pg_catalog.=) '_lock_election' AND i.nspowner "         \
	"OPERATOR(pg_catalog.=) p.proowner WHERE p.proname OPERATOR(pg_catalog.=) 'lease_holds' LIMIT 1))"
#define LC_SCHEMA_SQL                                                                                        \
	"SELECT pg_catalog.quote_ident(n.nspname) FROM pg_catalog.pg_namespace n WHERE n.oid "                   \
	"OPERATOR(pg_catalog.=) (" LC_SCHEMA_OID_SQL ")"
extern bool lc_take_schema(const PGresult *result);
/*
 * Query that returns a row if the portable edition is installed: it looks for a table that the C edition
 * lacks.
 */
#define LC_PORTABLE_SQL                                                                                      \
	"SELECT true FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) " \
	"c.relnamespace WHERE n.nspname OPERATOR(pg_catalog.=) '_lock_election' AND c.relname "                  \
	"OPERATOR(pg_catalog.=) 'edition'"
extern bool lc_is_portable(PGconn *db);
/*
 * Query for the counters of the portable edition, in one row.  The counters are table statistics, so they
 * include changes that were rolled back, and count all renewals of one lease_sync() as one.
 */
#define LC_PORTABLE_STAT                                                                                     \
	"SELECT l.held, w.waiting, w.oldest_wait, t.grants, t.releases, t.renewals, t.waits, t.dead_rows, "      \
	"t.tables FROM (SELECT count(*) FILTER (WHERE mode IS NOT NULL) AS held FROM lock_election.locks) l, "   \
	"(SELECT count(*) AS waiting, min(waiting_since) FILTER (WHERE kind = 'lock') AS oldest_wait FROM "      \
	"lock_election.waiters) w, (SELECT sum(n_tup_ins) FILTER (WHERE relname = 'hold') AS grants, "           \
	"sum(n_tup_del) FILTER (WHERE relname = 'hold') AS releases, sum(n_tup_upd) FILTER (WHERE relname = "    \
	"'lease') AS renewals, sum(n_tup_ins) FILTER (WHERE relname = 'place') AS waits, sum(n_dead_tup) AS "    \
	"dead_rows, sum(pg_total_relation_size(relid))::bigint AS tables FROM pg_catalog.pg_stat_all_tables "    \
	"WHERE schemaname = '_lock_election') t"
/* Returns a text as an SQL literal. */
extern char *lc_literal(PGconn *db, const char *text);
/* Reads all results of the statement that was sent, and returns the first one; NULL if there is none. */
extern PGresult *lc_result(PGconn *db);
/* Runs a query, and ends the program if it fails. */
extern PGresult *lc_query(PGconn *db, const char *format, ...) __attribute__((format(printf, 2, 3)));
/*
 * Runs a statement, and cancels it if a signal arrives.  Returns NULL if it was
 * canceled.  Sets *signo to the signal, or to 0 if there was none.
 */
extern PGresult *lc_query_signals(PGconn *db, const char *query, int *signo);
/*
 * Prints the rows of a query, and returns their number.  The server formats JSON and CSV.  If "one" is set,
 * JSON output is a single object instead of an array.
 */
extern int64_t lc_print(PGconn *db, bool one, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Returns the number of terminal columns that a text occupies. */
extern int lc_width(const char *text);
/* Returns the exit code for a status of the library. */
extern int lc_exit_code(le_status status);

#endif /* SQL_H */
