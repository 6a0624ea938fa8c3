/*
 * portable.c
 *		Runs doctor's checks for the portable edition.
 */
#include <stdlib.h>
#include <string.h>

#include "doctor.h"
#include "memory.h"
#include "sql.h"

/*
 * Maximum idle time of a transaction that has acquired a lock or entered a queue.  Until the transaction
 * ends, no other one is granted the lock.
 */
#define STANDS_STILL "30 s"

/*
 * Maximum number of dead rows in a table; with more, calls become slow, because each call reads some of them
 */
#define DEAD_ROWS "20000"

/*
 * Ended holds and leases are reported if more than OVER_ROWS of them ended more than OVER_FOR ago; their rows
 * stay until their names are used again.
 */
#define OVER_FOR  "10 min"
#define OVER_ROWS 1000

/* Returns the number that follows the first occurrence of what in a text, or -1 if there is none. */
static long
number_after(const char *text, const char *what)
{
	const char *at = strstr(text, what);

	return at != NULL ? strtol(at + strlen(what), NULL, 10) : -1;
}

/* Compares the installed version with lockctl's version. */
static void
check_version(patient *p)
{
	static const char comment[] =
		"COMMENT ON SCHEMA _lock_election IS 'The portable edition of lock_election, version ";
	const char *text = lc_ask(p, "SELECT obj_description(oid, 'pg_namespace') FROM pg_catalog.pg_namespace "
								 "WHERE nspname = '_lock_election'");
	const char *place =
		lc_ask(p, "SELECT format('functions in schema %s, owned by role %s', quote_ident(f.nspname), "
				  "quote_ident(pg_get_userbyid(n.nspowner))) FROM pg_catalog.pg_namespace n JOIN "
				  "pg_catalog.pg_proc p ON p.proowner = n.nspowner AND p.proname = 'lease_holds' JOIN "
				  "pg_catalog.pg_namespace f ON f.oid = p.pronamespace WHERE n.nspname = '_lock_election'");
	long installed = number_after(text, "version "), ours = number_after(le_install_script(), comment);

	if (installed < 0)
		lc_find(p, ODD, "edition", "lockctl install, as its owner", "portable, of unknown version, %s",
				place);
	else if (installed < ours)
		lc_find(p, ODD, "edition", "lockctl install, as its owner",
				"portable, version %ld, and lockctl has %ld; %s", installed, ours, place);
	else if (installed > ours)
		lc_find(p, ODD, "edition", "install a newer lockctl",
				"portable, version %ld, and lockctl knows %ld; %s", installed, ours, place);
	else
		lc_find(p, GOOD, "edition", "", "portable, version %ld, %s", installed, place);
}

/* Checks the owner, which can read and write all locks, and the roles that can become the owner. */
static void
check_owner(patient *p)
{
	const char *super =
		lc_ask(p, "SELECT pg_get_userbyid(r.oid) FROM pg_catalog.pg_roles r JOIN pg_catalog.pg_namespace n "
				  "ON n.nspowner = r.oid WHERE n.nspname = '_lock_election' AND r.rolsuper");
	const char *members =
		lc_ask(p, "SELECT string_agg(quote_ident(r.rolname), ', ' ORDER BY r.rolname) FROM "
				  "pg_catalog.pg_roles r JOIN pg_catalog.pg_namespace n ON n.nspowner <> r.oid AND "
				  "pg_has_role(r.oid, n.nspowner, 'MEMBER') WHERE n.nspname = '_lock_election' AND NOT "
				  "r.rolsuper");

	if (super[0] != '\0')
		lc_find(p, ODD, "owner", "install it as an ordinary role, in a database that has no locks",
				"role %s is a superuser: all calls run with its rights", super);
	if (members[0] != '\0')
		lc_find(p, ODD, "owner", "REVOKE the owner's role from them",
				"members of the owner's role may change all locks: %s", members);
	if (super[0] == '\0' && members[0] == '\0')
		lc_find(p, GOOD, "owner", "", "an ordinary role, and no other one is a member of it");
}

/* Checks that SQL calls find the functions on search_path, and run in READ COMMITTED. */
static void
check_path(patient *p)
{
	const char *schema = lc_ask(p, LC_SCHEMA_SQL);
	const char *found = lc_ask(
		p, "SELECT n.nspname FROM pg_catalog.pg_namespace n JOIN pg_catalog.pg_proc f ON f.pronamespace = "
		   "n.oid AND f.proname = 'lease_holds' JOIN pg_catalog.pg_namespace i ON i.nspowner = f.proowner "
		   "AND i.nspname = '_lock_election' WHERE n.nspname = ANY (current_schemas(false))");
	const char *level = lc_ask(p, "SHOW default_transaction_isolation");
	const char *advice =
		lc_format("ALTER DATABASE .. SET search_path = .., %s, or write %s.acquire_lock(..)", schema, schema);

	if (found[0] == '\0')
		lc_find(p, ODD, "search_path", advice,
				"schema %s is not on it: libraries and lockctl find it, but SQL calls do not", schema);
	else
		lc_find(p, GOOD, "search_path", "", "has schema %s", schema);
	if (strcmp(level, "read committed") != 0)
		lc_find(p, ODD, "isolation",
				"ALTER DATABASE .. RESET default_transaction_isolation, or BEGIN ISOLATION LEVEL READ "
				"COMMITTED before a call",
				"transactions are %s by default: most SQL calls then fail, but not those of libraries",
				level);
}

/* Reports the longest idle transaction that has written holds or places. */
static void
check_transactions(patient *p)
{
	static const char query[] =
		"SELECT a.pid, format('process %s of role %s has been idle for %s in a transaction that has acquired "
		"or enqueued: no other session is granted these names', a.pid, quote_ident(a.usename), "
		"date_trunc('second', "
		"clock_timestamp() - a.state_change)) FROM pg_catalog.pg_stat_activity a WHERE a.datname = "
		"current_database() "
		"AND a.state LIKE 'idle in transaction%' AND a.state_change < clock_timestamp() - interval "
		"'" STANDS_STILL "' "
		"AND EXISTS (SELECT FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_class c ON c.oid = l.relation JOIN "
		"pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE l.pid = a.pid AND l.mode = "
		"'RowExclusiveLock' AND "
		"n.nspname = '_lock_election' AND c.relname IN ('hold', 'place')) ORDER BY a.state_change LIMIT 1";
	PGresult *result = lc_keep(PQexec(p->db, query));
	const char *all = lc_ask(p, "SELECT pg_has_role('pg_read_all_stats', 'USAGE')");

	/* report an idle transaction */
	if (PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) > 0)
		lc_find(p, ODD, "transactions",
				lc_format("SELECT pg_terminate_backend(%s), and see idle_in_transaction_session_timeout",
						  PQgetvalue(result, 0, 0)),
				"%s", PQgetvalue(result, 0, 1));
	/* report that there is no idle transaction, or that this role can see none */
	else if (all[0] == 't')
		lc_find(p, GOOD, "transactions", "", "none with locks has been idle for more than " STANDS_STILL);
	else
		lc_find(p, GOOD, "transactions", "",
				"none of %s with locks has been idle; only members of pg_read_all_stats can see others",
				PQuser(p->db));
}

/* Checks for dead rows (each renewal leaves one), and for ended holds and leases that no call has removed. */
static void
check_rows(patient *p)
{
	const char *autovacuum = lc_ask(p, "SHOW autovacuum");
	const char *dead = lc_ask(
		p,
		"SELECT format('%s rows of table _lock_election.%s are dead, and %s are live', n_dead_tup, relname, "
		"n_live_tup) FROM pg_catalog.pg_stat_all_tables WHERE schemaname = '_lock_election' AND n_dead_tup "
		"> " DEAD_ROWS " AND n_dead_tup > 4 * n_live_tup ORDER BY n_dead_tup DESC LIMIT 1");
	const char *over = lc_ask(
		p,
		"SELECT (SELECT count(*) FROM _lock_election.lease WHERE expires_at < now() - interval '" OVER_FOR
		"') + (SELECT count(*) FROM _lock_election.hold WHERE expires_at < now() - interval '" OVER_FOR "')");
	bool denied = p->denied;

	/* dead rows */
	if (strcmp(autovacuum, "on") != 0)
		lc_find(p, BAD, "autovacuum", "ALTER SYSTEM SET autovacuum = on, and pg_reload_conf()",
				"it is off: each renewal leaves a dead row, and calls become slower and slower");
	if (dead[0] != '\0')
		lc_find(p, ODD, "rows",
				"end old transactions and prepared transactions, and drop unused replication slots", "%s",
				dead);
	/* ended holds and leases */
	if (atol(over) > OVER_ROWS)
		lc_find(p, ODD, "rows",
				"SELECT lock_election.reap(), each minute by pg_cron or a job: docs/how-to/managed.md",
				"%s holds and leases ended more than " OVER_FOR " ago, and no call has removed them", over);
	else if (dead[0] == '\0')
		lc_find(p, GOOD, "rows", "",
				denied ? "few are dead; only their owner can see how many have ended"
					   : "few are dead, and few that have ended remain");
}

void
lc_check_portable(patient *p)
{
	check_version(p);
	check_owner(p);
	check_path(p);
	if (!p->primary)
		return;
	check_transactions(p);
	check_rows(p);
}
