/*
 * postgres.c
 *		The systems in PostgreSQL: this extension, a lock table written by hand, pg_advisory_lock, and SELECT 1 as
 *		the upper limit for any request to the server.  Each client has a thread, a connection and prepared
 *		statements.  Libpq's variables name the server; with PGOPTIONS='-c synchronous_commit=off' nothing is
 *		flushed.  With databases=N the clients are spread over the databases many1 to manyN.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libpq-fe.h>

#include "harness.h"

typedef struct Statement
{
	const char *name;
	const char *sql;
} Statement;

static const Statement extension_statements[] = {
	{"acquire", "SELECT acquire_lock($1, $2)"},
	{"try", "SELECT try_acquire_lock($1, $2)"},
	{"release", "SELECT release_lock($1, $2)"},
	{"renew", "SELECT renew_lock($1, $2)"},
	{"campaign", "SELECT campaign($1, 'bench', $2)"},
	{"resign", "SELECT resign($1, $2)"},
	{"renew_leadership", "SELECT renew_leadership($1, $2)"},
	{"enqueue", "SELECT token FROM enqueue_lock($1, '1 h')"},
	{"await", "SELECT await_lock($1, $2, '1 min')"},
	{"try_each", "SELECT name, token FROM try_acquire_each($1, $2) WHERE token IS NOT NULL"},
	{"release_each", "SELECT * FROM release_each($1, $2)"},
	{"fill", "SELECT count(acquire_lock('held' || g, '1 h')) FROM generate_series($1::bigint, $2::bigint) g"},
	{NULL, NULL},
};

static const Statement table_statements[] = {
	{"acquire",
	 "INSERT INTO table_lock AS l VALUES ($1, $2, now() + $3::interval) ON CONFLICT (name) DO UPDATE"
	 " SET owner = excluded.owner, expires_at = excluded.expires_at WHERE l.expires_at < now()"},
	{"release", "DELETE FROM table_lock WHERE name = $1 AND owner = $2"},
	{"renew", "UPDATE table_lock SET expires_at = now() + $3::interval"
			  " WHERE name = $1 AND owner = $2 AND expires_at > now()"},
	/* ORDER BY, because two such statements could otherwise deadlock */
	{"try_each",
	 "INSERT INTO table_lock AS l SELECT n, $2, now() + $3::interval FROM unnest($1::text[]) n ORDER BY n"
	 " ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at"
	 " WHERE l.expires_at < now() RETURNING name"},
	{"release_each", "DELETE FROM table_lock WHERE name = ANY ($1::text[]) AND owner = $2"},
	{"fill", "INSERT INTO table_lock SELECT 'held' || g, '', now() + interval '1 h'"
			 " FROM generate_series($1::bigint, $2::bigint) g"},
	{NULL, NULL},
};

static const Statement advisory_statements[] = {
	{"acquire", "SELECT pg_advisory_lock($1::bigint)"},
	{"try", "SELECT pg_try_advisory_lock($1::bigint)"},
	{"release", "SELECT pg_advisory_unlock($1::bigint)"},
	{NULL, NULL},
};

static const Statement ceiling_statements[] = {
	{"one", "SELECT 1"},
	{NULL, NULL},
};

static void
open_connection(Client *client, const Statement *statements)
{
	int databases = atoi(option("databases", "0"));
	char conninfo[40] = "";
	PGconn *conn;

	if (databases > 0)
		snprintf(conninfo, sizeof(conninfo), "dbname=many%d", client->number % databases + 1);
	conn = PQconnectdb(conninfo);
	if (PQstatus(conn) != CONNECTION_OK)
		die("connect: %s", PQerrorMessage(conn));
	for (const Statement *s = statements; s->name != NULL; s++)
	{
		PGresult *result = PQprepare(conn, s->name, s->sql, 0, NULL);

		if (PQresultStatus(result) != PGRES_COMMAND_OK)
			die("%s: %s", s->sql, PQerrorMessage(conn));
		PQclear(result);
	}
	client->conn = conn;
}

static PGresult *
execute(Client *client, const char *statement, const char *a, const char *b, const char *c)
{
	const char *values[] = {a, b, c};
	int n = (a != NULL) + (b != NULL) + (c != NULL);
	PGresult *result = PQexecPrepared(client->conn, statement, n, values, NULL, NULL, 0);
	ExecStatusType status = PQresultStatus(result);

	if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
		die("%s: %s", statement, PQerrorMessage(client->conn));
	return result;
}

/* Reads the only value of the reply.  Returns false if it is NULL or there is no row. */
static bool
ask(Client *client, char value[40], const char *statement, const char *a, const char *b)
{
	PGresult *result = execute(client, statement, a, b, NULL);
	bool is_null = PQntuples(result) != 1 || PQgetisnull(result, 0, 0);

	snprintf(value, 40, "%s", is_null ? "" : PQgetvalue(result, 0, 0));
	PQclear(result);
	return !is_null;
}

static bool
is_true(Client *client, const char *statement, const char *a, const char *b)
{
	char value[40];

	return ask(client, value, statement, a, b) && strcmp(value, "t") == 0;
}

/* Returns whether the statement has changed exactly one row. */
static bool
changes_one(Client *client, const char *statement, const char *a, const char *b, const char *c)
{
	PGresult *result = execute(client, statement, a, b, c);
	bool one = strcmp(PQcmdTuples(result), "1") == 0;

	PQclear(result);
	return one;
}

static void
interval(char text[24], int ms)
{
	snprintf(text, 24, "%d ms", ms);
}

/* Returns a column of the result as an array literal, which the caller must free; the values need no quotes. */
static char *
array_of(const PGresult *result, int column)
{
	char *array = malloc((size_t) PQntuples(result) * 40 + 3);
	int len = 0;

	if (array == NULL)
		die("out of memory");
	for (int row = 0; row < PQntuples(result); row++)
		len += sprintf(array + len, "%c%.38s", row == 0 ? '{' : ',', PQgetvalue(result, row, column));
	strcpy(array + len, len == 0 ? "{}" : "}");
	return array;
}

static void
names_array(char *array, char names[][40], int n)
{
	for (int i = 0; i < n; i++)
		array += sprintf(array, "%c%.38s", i == 0 ? '{' : ',', names[i]);
	strcpy(array, "}");
}

static void
fill_statement(Client *client, int64_t first, int64_t last)
{
	char from[24], to[24];

	snprintf(from, sizeof(from), "%lld", (long long) first);
	snprintf(to, sizeof(to), "%lld", (long long) last);
	PQclear(execute(client, "fill", from, to, NULL));
}

/* --- this extension --- */

static void
extension_open(Client *client)
{
	open_connection(client, extension_statements);
}

static bool
extension_acquire(Client *client, const char *name, int ttl_ms, bool wait)
{
	char ttl[24];

	interval(ttl, ttl_ms);
	return ask(client, client->token, wait ? "acquire" : "try", name, ttl);
}

static bool
extension_release(Client *client, const char *name)
{
	return is_true(client, "release", name, client->token);
}

static int
extension_each(Client *client, char names[][40], int n, int ttl_ms)
{
	char ttl[24], array[n * 40 + 2];
	PGresult *result;
	char *granted, *tokens;
	int held;

	interval(ttl, ttl_ms);
	names_array(array, names, n);
	result = execute(client, "try_each", array, ttl, NULL);
	held = PQntuples(result);
	granted = array_of(result, 0);
	tokens = array_of(result, 1);
	PQclear(result);
	PQclear(execute(client, "release_each", granted, tokens, NULL));
	free(granted);
	free(tokens);
	return held;
}

static bool
extension_renew(Client *client, const char *name, int ttl_ms)
{
	char left[40];

	(void) ttl_ms;
	return ask(client, left, "renew", name, client->token);
}

static bool
extension_campaign(Client *client, const char *name, int ttl_ms, bool wait)
{
	char ttl[24];

	(void) wait;
	interval(ttl, ttl_ms);
	return ask(client, client->token, "campaign", name, ttl);
}

static bool
extension_resign(Client *client, const char *name)
{
	return is_true(client, "resign", name, client->token);
}

static bool
extension_renew_term(Client *client, const char *name, int ttl_ms)
{
	char left[40];

	(void) ttl_ms;
	return ask(client, left, "renew_leadership", name, client->token);
}

static void
extension_enqueue(Client *client, const char *name, char token[40])
{
	if (!ask(client, token, "enqueue", name, NULL))
		die("enqueue_lock: no token");
}

static void
extension_await(Client *client, const char *name, const char *token)
{
	if (!is_true(client, "await", name, token))
		die("await_lock: not granted");
}

static void
extension_leave(Client *client, const char *name, const char *token)
{
	if (!is_true(client, "release", name, token))
		die("release_lock: not released");
}

/* --- a table written by hand --- */

static void
table_open(Client *client)
{
	open_connection(client, table_statements);
}

static bool
table_acquire(Client *client, const char *name, int ttl_ms, bool wait)
{
	char ttl[24];

	(void) wait;
	interval(ttl, ttl_ms);
	return changes_one(client, "acquire", name, client->owner, ttl);
}

static bool
table_release(Client *client, const char *name)
{
	return changes_one(client, "release", name, client->owner, NULL);
}

static int
table_each(Client *client, char names[][40], int n, int ttl_ms)
{
	char ttl[24], array[n * 40 + 2];
	PGresult *result;
	char *granted;
	int held;

	interval(ttl, ttl_ms);
	names_array(array, names, n);
	result = execute(client, "try_each", array, client->owner, ttl);
	held = PQntuples(result);
	granted = array_of(result, 0);
	PQclear(result);
	PQclear(execute(client, "release_each", granted, client->owner, NULL));
	free(granted);
	return held;
}

static bool
table_renew(Client *client, const char *name, int ttl_ms)
{
	char ttl[24];

	interval(ttl, ttl_ms);
	return changes_one(client, "renew", name, client->owner, ttl);
}

/* --- advisory locks, which end with the connection and have no TTL --- */

static void
advisory_open(Client *client)
{
	open_connection(client, advisory_statements);
}

/* Converts a name to the number of an advisory lock, by the hash FNV-1a. */
static void
advisory_key(char key[24], const char *name)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (; *name != '\0'; name++)
		hash = (hash ^ (unsigned char) *name) * UINT64_C(0x100000001b3);
	snprintf(key, 24, "%lld", (long long) hash);
}

static bool
advisory_acquire(Client *client, const char *name, int ttl_ms, bool wait)
{
	char key[24], nothing[40];

	(void) ttl_ms;
	advisory_key(key, name);
	return wait ? ask(client, nothing, "acquire", key, NULL) : is_true(client, "try", key, NULL);
}

static bool
advisory_release(Client *client, const char *name)
{
	char key[24];

	advisory_key(key, name);
	return is_true(client, "release", key, NULL);
}

/* --- SELECT 1 --- */

static void
ceiling_open(Client *client)
{
	open_connection(client, ceiling_statements);
}

static bool
ceiling_ask(Client *client)
{
	char one[40];

	return ask(client, one, "one", NULL, NULL);
}

static bool
ceiling_acquire(Client *client, const char *name, int ttl_ms, bool wait)
{
	(void) name, (void) ttl_ms, (void) wait;
	return ceiling_ask(client);
}

static bool
ceiling_release(Client *client, const char *name)
{
	(void) name;
	return ceiling_ask(client);
}

static bool
ceiling_renew(Client *client, const char *name, int ttl_ms)
{
	(void) name, (void) ttl_ms;
	return ceiling_ask(client);
}

static const System systems[] = {
	{
		.name = "lock_election",
		.open = extension_open,
		.acquire = extension_acquire,
		.release = extension_release,
		.renew = extension_renew,
		.campaign = extension_campaign,
		.resign = extension_resign,
		.renew_term = extension_renew_term,
		.enqueue = extension_enqueue,
		.await = extension_await,
		.leave = extension_leave,
		.each = extension_each,
		.fill = fill_statement,
		.waits = true,
	},
	{
		.name = "table",
		.open = table_open,
		.acquire = table_acquire,
		.release = table_release,
		.renew = table_renew,
		.campaign = table_acquire,
		.resign = table_release,
		.renew_term = table_renew,
		.each = table_each,
		.fill = fill_statement,
	},
	{
		.name = "advisory",
		.open = advisory_open,
		.acquire = advisory_acquire,
		.release = advisory_release,
		.campaign = advisory_acquire,
		.resign = advisory_release,
		.waits = true,
		.ends_at_close = true,
	},
	{
		.name = "select1",
		.open = ceiling_open,
		.acquire = ceiling_acquire,
		.release = ceiling_release,
		.renew = ceiling_renew,
		.no_lock = true,
	},
};

int
main(int argc, char **argv)
{
	return harness_main(argc, argv, systems, (int) (sizeof(systems) / sizeof(systems[0])));
}
