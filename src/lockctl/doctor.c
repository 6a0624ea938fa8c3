/*
 * doctor.c
 *		Checks for problems, and prints the commands that solve them.
 */
#include "doctor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "commands.h"
#include "globals.h"
#include "memory.h"
#include "message.h"
#include "options.h"
#include "sql.h"

/* Time limit for a query that lists the waiters, because a manager that hangs would never reply */
#define VIEW_TIMEOUT "5 s"

/* Waits for a lock are reported if they have lasted this long, which is the default TTL */
#define LONG_WAIT "30 s"

/* Pattern of names that are printed; other names could be harmful in a shell or a terminal */
#define PLAIN_NAME "^[[:alnum:]_][[:alnum:] ._:/@-]*$"

/*
 * Maximum clock difference in seconds that is not reported.  A larger one makes displayed times misleading,
 * but no lock depends on it.
 */
#define CLOCK_SECONDS 5.0

#define GRANT_VIEWS                                                                                          \
	"GRANT USAGE ON SCHEMA lock_election, SELECT ON its views and EXECUTE ON its FUNCTIONS to the role: "    \
	"docs/operation/shared-server.md has the list"

/*
 * Connects, and finds out the server's role, edition and version.  Returns
 * false if there is no connection.
 */
static bool
connect(patient *p)
{
	le_status status;

	/* connect */
	p->db = lc_connect_any("lockctl doctor", "5");
	if (PQstatus(p->db) != CONNECTION_OK)
	{
		lc_find(p, BAD, "connection",
				"set -h, -p, -U, -d or PGHOST, PGPORT, PGUSER, PGDATABASE, and look at the server's log",
				"%s", lc_why_not(p->db, &status));
		return false;
	}
	/* find out the server's role, the edition, and the version */
	p->primary = strcmp(lc_ask(p, "SELECT pg_is_in_recovery()"), "f") == 0;
	lc_find(p, GOOD, "connection", "", "database \"%s\" on %s, port %s, as %s", PQdb(p->db), PQhost(p->db),
			PQport(p->db), PQuser(p->db));
	p->portable = lc_ask(p, LC_PORTABLE_SQL)[0] != '\0';
	if (PQserverVersion(p->db) < 150000 && !p->portable)
		lc_find(p, BAD, "server", "upgrade the server", "version %s; 15 or newer is needed",
				PQparameterStatus(p->db, "server_version"));
	else
		lc_find(p, GOOD, "server", "", "version %s, a %s", PQparameterStatus(p->db, "server_version"),
				p->primary ? "primary" : "standby");
	return true;
}

/* Returns whether the server can reply to queries about locks. */
static bool
answers(const patient *p)
{
	return p->portable || (p->installed && p->preloaded);
}

/* --- library and extension --- */

/* Checks that the library is loaded; sets preloaded. */
static void
check_preload(patient *p)
{
	const char *databases = lc_ask(p, "SELECT current_setting('lock_election.max_databases', true)");
	const char *list = lc_ask(p, "SELECT setting FROM pg_settings WHERE name = 'shared_preload_libraries'");

	p->preloaded = databases[0] != '\0';
	if (p->preloaded)
		lc_find(p, GOOD, "preload", "", "shared_preload_libraries has lock_election");
	else if (strstr(list, "lock_election") != NULL)
		lc_find(p, BAD, "preload", "restart the server",
				"lock_election is in shared_preload_libraries, but was not loaded");
	else
		lc_find(p, BAD, "preload",
				"ALTER SYSTEM SET shared_preload_libraries = 'lock_election' (after the existing entries), "
				"and restart the server",
				"lock_election is not in shared_preload_libraries%s%s", list[0] != '\0' ? ": " : "", list);
}

/* Checks that the extension is installed, and that its versions match; sets installed. */
static void
check_extension(patient *p)
{
	const char *installed = lc_ask(p, "SELECT extversion FROM pg_extension WHERE extname = 'lock_election'");
	const char *available =
		lc_ask(p, "SELECT default_version FROM pg_available_extensions WHERE name = 'lock_election'");
	const char *library = lc_ask(p, "SELECT current_setting('lock_election.version', true)");
	const char *functions;

	/* compare the versions of the extension, its files, and the loaded library */
	p->installed = installed[0] != '\0';
	if (!p->installed && available[0] == '\0')
		lc_find(p, BAD, "extension",
				"install the package postgresql-NN-lock-election on the server's machine; or lockctl "
				"install for the portable edition",
				"the server does not have its files");
	else if (!p->installed)
		lc_find(p, BAD, "extension",
				"CREATE EXTENSION lock_election, as a superuser; or lockctl install for the portable edition",
				"not installed in database \"%s\"", PQdb(p->db));
	else if (library[0] != '\0' && available[0] != '\0' && strcmp(library, available) != 0)
		lc_find(p, ODD, "extension", "restart the server; then call lockctl doctor again",
				"version %s; the server has the files of %s, and still runs the library of %s", installed,
				available, library);
	else if (available[0] != '\0' && strverscmp(installed, available) > 0)
		lc_find(p, ODD, "extension",
				"install the newer package on the server's machine, and restart the server",
				"version %s; the server has the files of %s, which are older", installed, available);
	else if (available[0] != '\0' && strcmp(installed, available) != 0)
		lc_find(p, ODD, "extension", "ALTER EXTENSION lock_election UPDATE",
				"version %s; the server has the files of %s", installed, available);
	else
		lc_find(p, GOOD, "extension", "", "version %s", installed);
	/* check the functions that this lockctl needs */
	functions =
		lc_ask(p, "SELECT count(DISTINCT p.proname) FROM pg_proc p JOIN pg_extension e ON "
				  "e.extnamespace = p.pronamespace "
				  "WHERE e.extname = 'lock_election' AND p.proname IN ('enqueue_lock', 'enqueue_locks', "
				  "'enqueue_permit')");
	if (p->installed && atoi(functions) < 3)
		lc_find(p, BAD, "client",
				"sudo make install, restart the server, and ALTER EXTENSION lock_election UPDATE",
				"the extension is too old for lockctl %s: permits and several locks do not work",
				le_version());
	else
		lc_find(p, GOOD, "client", "", "lockctl %s", le_version());
}

/* --- processes --- */

/* Checks that a manager is running, and that worker processes are available. */
static void
check_manager(patient *p)
{
	const char *manager, *workers, *used;
	bool denied;

	if (!p->installed || !p->preloaded)
		return;
	/* query the server */
	manager = lc_ask(p, "SELECT format('process %s since %s, %s', pid, date_trunc('second', started), "
						"pg_size_pretty(memory)) FROM lock_election.manager");
	denied = p->denied;
	workers = lc_ask(p, "SELECT current_setting('max_worker_processes')");
	/* only members of pg_read_all_stats can see the types of other roles' processes */
	used =
		lc_ask(p, "SELECT CASE WHEN pg_has_role('pg_read_all_stats', 'USAGE') THEN count(*)::text ELSE 'an "
				  "unknown number' END FROM pg_stat_activity WHERE backend_type NOT IN ('client backend', "
				  "'autovacuum launcher', "
				  "'autovacuum worker', 'background writer', 'checkpointer', 'walwriter', 'walsender', "
				  "'walreceiver', 'startup', "
				  "'archiver', 'logger', 'walsummarizer', 'slotsync worker', 'io worker')");
	if (!p->primary)
		lc_find(p, GOOD, "manager", "", "none on a standby: locks are taken on the primary");
	else if (denied)
		lc_find(p, ODD, "manager", GRANT_VIEWS, "%s may not look at view lock_election.manager",
				PQuser(p->db));
	else if (manager[0] == '\0')
		lc_find(
			p, BAD, "manager",
			"ALTER SYSTEM SET max_worker_processes = 16 or lock_election.max_databases higher, and restart; "
			"then look at the server's log",
			"none runs for database \"%s\"; %s of %s worker processes are used", PQdb(p->db), used, workers);
	else
		lc_find(p, GOOD, "manager", "", "%s", manager);
	/* check the worker processes */
	if (atoi(workers) - atoi(used) < 1)
		lc_find(p, ODD, "workers", "ALTER SYSTEM SET max_worker_processes = 16, and restart the server",
				"%s of %s worker processes are used: none is left for one more database", used, workers);
	else
		lc_find(p, GOOD, "workers", "", "%s of %s worker processes are used", used, workers);
}

/* Returns whether an interval that the server has printed is NULL ("") or zero. */
static bool
is_zero(const char *interval)
{
	return interval[0] == '\0' || strcmp(interval, "00:00:00") == 0;
}

/* Reports why this server does not grant locks, and for how long requests have waited, if known. */
static void
tell_problem(patient *p, const PGresult *result)
{
	const char *request = PQgetvalue(result, 0, 2), *standby = PQgetvalue(result, 0, 3);
	const char *blocked_by = PQgetvalue(result, 0, 4);
	const char *end =
		lc_format("end the transaction of that process: SELECT pg_terminate_backend(%s)", blocked_by);
	const char *waits = is_zero(request) && is_zero(standby)
							? ""
							: lc_format(" (a request has waited for %s, a standby for %s)", request, standby);

	lc_find(p, p->primary ? BAD : GOOD, "health",
			!p->primary             ? ""
			: blocked_by[0] != '\0' ? end
									: "look at the lines below, and at the server's log",
			"%s%s", PQgetvalue(result, 0, 1), waits);
}

/* Reports the result of health(), a function that old versions of the extension lack. */
static void
check_health(patient *p)
{
	PGresult *result;

	if (!answers(p))
		return;
	result = lc_keep(PQexec(
		p->db, "SELECT ok, problem, request_wait, standby_wait, blocked_by FROM lock_election.health()"));
	if (lc_is_denied(result))
		lc_find(p, BAD, "health", GRANT_VIEWS,
				"%s may not call lock_election.health(), which tells whether locks are granted",
				PQuser(p->db));
	else if (PQresultStatus(result) != PGRES_TUPLES_OK)
		lc_find(p, ODD, "health", "ALTER EXTENSION lock_election UPDATE",
				"the extension cannot report it: %s", PQresultErrorMessage(result));
	else if (PQgetvalue(result, 0, 0)[0] == 't')
		lc_find(p, GOOD, "health", "", "locks are granted here");
	else
		tell_problem(p, result);
}

/* Checks whether the role may call the functions that lockctl and the clients need. */
static void
check_rights(patient *p)
{
	static const char refused[] =
		"SELECT string_agg(DISTINCT f.proname, ', ' ORDER BY f.proname) FROM pg_proc f WHERE f.pronamespace "
		"= "
		"(" LC_SCHEMA_OID_SQL ") AND (f.proname "
		"IN ('grant_lease', 'keep_alive', 'lease_holds', 'revoke_lease', 'is_held', 'acquire_lock', "
		"'enqueue_lock', 'await_lock') OR f.proname = 'release_lock' AND f.pronargs = 4) AND NOT "
		"(has_function_privilege(f.oid, 'EXECUTE') AND has_schema_privilege(f.pronamespace, 'USAGE'))";
	const char *functions;

	if (!answers(p) || !p->primary)
		return;
	functions = lc_ask(p, refused);
	if (functions[0] != '\0')
		lc_find(p, ODD, "rights",
				"GRANT EXECUTE ON FUNCTION .. TO its role, see docs/operation/shared-server.md",
				"lockctl and the clients cannot use locks as %s, which may not call %s", PQuser(p->db),
				functions);
	else
		lc_find(p, GOOD, "rights", "", "%s may call what a lock needs", PQuser(p->db));
}

/* --- activity --- */

/* Reports the longest wait for a lock, and a disconnected leader that keeps candidates waiting. */
static void
check_waits(patient *p)
{
	static const char waits[] =
		"SELECT format('somebody has waited %s for lock %s, %s', date_trunc('second', now() - "
		"w.waiting_since), "
		"CASE WHEN w.plain THEN quote_literal(w.name) ELSE '(see lock_election.waiters)' END, "
		"CASE WHEN l.mode IS NOT NULL THEN format('held by role %s since %s, process %s, %s', l.role, "
		"date_trunc('second', l.acquired_at), coalesce(l.pid::text, 'unknown'), CASE l.connected WHEN "
		"true THEN 'connected' WHEN false THEN 'not connected' ELSE 'which only members of its role and of "
		"pg_read_all_stats may know' END) ELSE 'which nobody holds' END), "
		"CASE WHEN w.plain AND l.mode IS NOT NULL THEN format('if it hangs: lockctl release --force ''%s''', "
		"w.name) ELSE 'look at lock_election.waiters and lock_election.locks; evict_lock() evicts a holder' "
		"END FROM (SELECT *, name ~ '" PLAIN_NAME "' AS plain FROM lock_election.waiters "
		"WHERE "
		"kind = 'lock' AND waiting_since < now() - interval '" LONG_WAIT
		"' ORDER BY waiting_since LIMIT 1) w "
		"LEFT JOIN LATERAL (SELECT * FROM lock_election.locks WHERE kind = 'lock' AND name = w.name "
		"ORDER BY acquired_at LIMIT 1) l ON true";
	/*
	 * candidates normally wait for a long time; report only those that wait for a leader without a
	 * connection, because it leads until its TTL ends
	 */
	static const char leaders[] =
		"SELECT format('candidates wait for %s, whose leader is not connected, for another %s', CASE WHEN "
		"l.name ~ '" PLAIN_NAME
		"' THEN quote_literal(l.name) ELSE 'an election' END, date_trunc('second', l.time_left)) "
		"FROM lock_election.locks l WHERE l.kind = 'election' AND l.connected = false AND EXISTS (SELECT "
		"FROM lock_election.waiters w WHERE w.kind = 'election' AND w.name = l.name AND w.waiting_since < "
		"now() - "
		"interval '" LONG_WAIT "') ORDER BY l.time_left DESC LIMIT 1";
	/* in the portable edition, waiting_since is NULL where this role may not see it */
	static const char unknown[] =
		"SELECT '; since when some wait only members of their role and of pg_read_all_stats may see' "
		"FROM lock_election.waiters WHERE kind = 'lock' AND waiting_since IS NULL LIMIT 1";
	PGresult *result;
	const char *leader, *more;

	if (!answers(p) || !p->primary)
		return;
	/* set the timeout for one transaction, because behind a pooler other clients use the same connection */
	lc_ask(p, "BEGIN; SET LOCAL statement_timeout = '" VIEW_TIMEOUT "'");
	result = lc_keep(PQexec(p->db, waits));
	leader = lc_ask(p, leaders);
	more = lc_ask(p, unknown);
	lc_ask(p, "ROLLBACK");
	if (lc_is_denied(result))
		lc_find(p, ODD, "waits", GRANT_VIEWS, "%s may not look at view lock_election.waiters", PQuser(p->db));
	else if (PQresultStatus(result) != PGRES_TUPLES_OK)
		lc_find(
			p, BAD, "waits",
			"look at the manager's process, at the server's log, and at docs/operation/high-availability.md",
			"the manager does not return the waiters: %s", PQresultErrorMessage(result));
	else if (PQntuples(result) > 0)
		lc_find(p, ODD, "waits", PQgetvalue(result, 0, 1), "%s", PQgetvalue(result, 0, 0));
	else
		lc_find(p, GOOD, "waits", "", "nobody has waited for a lock for more than " LONG_WAIT "%s", more);
	if (leader[0] != '\0')
		lc_find(p, ODD, "leaders", "if it no longer runs: lockctl release --force --now --election NAME",
				"%s", leader);
}

/* Checks the manager's memory, and the counters that should be zero. */
static void
check_counters(patient *p)
{
	static const struct
	{
		const char *query, *text, *advice;
		finding what;
	} checks[] = {
		{"SELECT pg_catalog.pg_size_pretty(memory) FROM lock_election.manager "
		 "WHERE memory > pg_catalog.pg_size_bytes(pg_catalog.current_setting('lock_election.max_memory'))",
		 "the locks take %s, more than lock_election.max_memory: no more locks are granted",
		 "ALTER SYSTEM SET lock_election.max_memory higher, and pg_reload_conf()", BAD},
		{"SELECT key_violations FROM lock_election.stat WHERE key_violations > 0",
		 "a second holder was rejected %s times: another program has written to the tables",
		 "look at the server's log, which has the tokens", BAD},
		{"SELECT failed_batches FROM lock_election.stat WHERE failed_batches > 0",
		 "%s batches could not be written", "look at the server's log", ODD},
		{"SELECT stalls FROM lock_election.stat WHERE stalls > 0",
		 "the manager did not run for more than a second, %s times",
		 "look at the server's log, and at its disk and processors", ODD},
	};
	bool found = false;

	if (!p->installed || !p->preloaded || !p->primary)
		return;
	/* report each counter that is not zero; report missing privileges only once */
	for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++)
	{
		const char *n = lc_ask(p, checks[i].query);
		char text[200];

		snprintf(text, sizeof(text), checks[i].text, n);
		if (p->denied && !found)
			lc_find(p, ODD, "counters", GRANT_VIEWS,
					"%s may not look at views lock_election.manager and lock_election.stat", PQuser(p->db));
		if (n[0] != '\0')
			lc_find(p, checks[i].what, "counters", checks[i].advice, "%s", text);
		found = found || n[0] != '\0' || p->denied;
	}
	/* report that there is no problem */
	if (!found)
		lc_find(p, GOOD, "counters", "", "no failed batch, no stall since the counters were reset");
}

/* --- surroundings --- */

/* Checks the settings on which durability and notifications depend. */
static void
check_settings(patient *p)
{
	const char *fsync = lc_ask(p, "SHOW fsync"), *commit = lc_ask(p, "SHOW synchronous_commit");
	const char *notify =
		p->portable
			? ""
			: lc_ask(p,
					 "SELECT coalesce(nullif(current_setting('lock_election.notify', true), ''), 'unknown')");

	if (strcmp(fsync, "on") != 0)
		lc_find(p, BAD, "settings", "ALTER SYSTEM SET fsync = on",
				"fsync is off: a crash can lose locks, and all other data");
	if (strcmp(commit, "off") == 0)
		lc_find(p, ODD, "settings",
				p->portable
					? "SET synchronous_commit = on, or RESET it for the role, the database or the server"
					: "ALTER SYSTEM SET lock_election.min_durability = 'local'",
				"synchronous_commit is off: a crash can lose the newest locks");
	if (strcmp(notify, "none") == 0 || strcmp(notify, "elections") == 0)
		lc_find(p, ODD, "settings", "ALTER SYSTEM SET lock_election.notify = 'all'",
				"lock_election.notify is %s: waiters poll instead of being notified", notify);
	if (strcmp(fsync, "on") == 0 && strcmp(commit, "off") != 0)
		lc_find(p, GOOD, "settings", "", "fsync on, synchronous_commit %s%s%s", commit,
				p->portable ? "" : ", notify ", notify);
}

/* Checks that there is a synchronous standby if there are standbys or a setting requires one. */
static void
check_replication(patient *p)
{
	const char *standbys = lc_ask(p, "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'");
	const char *names = lc_ask(p, "SHOW synchronous_standby_names");
	const char *synchronous =
		lc_ask(p, "SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')");

	if (!p->primary)
		lc_find(p, ODD, "replication", "connect with target_session_attrs=primary",
				"this is a standby: it shows locks, and grants none");
	else if (atoi(standbys) > 0 && names[0] == '\0')
		lc_find(p, ODD, "replication",
				"ALTER SYSTEM SET synchronous_standby_names = '*', and pg_reload_conf()",
				"%s standbys, none is synchronous: a failover can lose the newest locks", standbys);
	else if (names[0] != '\0' && atoi(synchronous) == 0)
		lc_find(p, BAD, "replication", "start the standby, or ALTER SYSTEM RESET synchronous_standby_names",
				"synchronous_standby_names is set, but no standby is connected: nothing is granted");
	else
		lc_find(p, GOOD, "replication", "", "%s standbys, %s synchronous", standbys, synchronous);
}

/* Compares the server's clock with the clock of this machine. */
static void
check_clock(patient *p)
{
	struct timespec before, after;
	double server, difference;
	const char *text;

	clock_gettime(CLOCK_REALTIME, &before);
	text = lc_ask(p, "SELECT extract(epoch FROM clock_timestamp())");
	clock_gettime(CLOCK_REALTIME, &after);
	server = strtod(text, NULL);
	difference = server - ((double) before.tv_sec + (double) after.tv_sec +
						   ((double) before.tv_nsec + (double) after.tv_nsec) / 1e9) /
							  2;
	if (difference > CLOCK_SECONDS || difference < -CLOCK_SECONDS)
		lc_find(p, ODD, "clock", "timedatectl set-ntp true, on both machines",
				"the server's clock differs by %.1f s from this machine's; no lock depends on it, but times "
				"mislead",
				difference);
	else
		lc_find(p, GOOD, "clock", "", "differs by %ld ms from the server's", lround(difference * 1000));
}

int
lc_doctor(int argc, char **argv)
{
	patient p = {0};

	lc_words(argc, argv, NULL, 0);
	/* run the checks for the edition, then those for both editions */
	if (connect(&p))
	{
		if (p.portable)
			lc_check_portable(&p);
		else
		{
			check_preload(&p);
			check_extension(&p);
		}
		check_health(&p);
		check_manager(&p);
		check_rights(&p);
		check_waits(&p);
		check_counters(&p);
		check_settings(&p);
		check_replication(&p);
		check_clock(&p);
	}
	/* end the JSON array that lc_find() has begun */
	if (lc_globals.output == LC_JSON)
		puts("]");
	PQfinish(p.db);
	lc_flush();
	return p.bad > 0 ? LC_EXIT_FAILED : 0;
}
