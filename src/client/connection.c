/*
 * connection.c
 *		Opens, uses and closes the connection, with a time limit for each wait.
 *
 * libpq's asynchronous connect has no time limit, and TCP does not detect a
 * server process that is stopped, because the kernel still acknowledges its
 * data.  So every wait here has a time limit, after which the connection is
 * closed.
 *
 * Several hosts are tried one by one, beginning after the last one that failed.
 * libpq blocks the session thread while it resolves a host name, so the
 * callback thread watches the session's deadline.
 */
#include "connection.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "due.h"
#include "error.h"
#include "objects.h"
#include "state.h"
#include "text.h"

/* Interval in ns at which a waiting thread checks whether the session has ended or is being closed */
#define SLICE (100 * LE_MS_NS)

/*
 * Buffer size in bytes for a statement: the longest one has 900 bytes, plus three times the quoted name
 * of the schema.
 */
#define SQL_MAX 2048
#define SCHEMA  "@extschema@"

static void broken(le_session *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Closes the connection after a failure, and sets net.error to the first line of the message. */
static void
broken(le_session *s, const char *format, ...)
{
	char text[200];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	le_error_set(&s->net.error, LE_UNAVAILABLE, "", "%.*s", (int) strcspn(text, "\n"), text);
	le_disconnect(s);
}

void
le_disconnect(le_session *s)
{
	PQfinish(s->net.conn);
	s->net.conn = NULL;
}

/*
 * Waits until the socket is ready.  Returns false if the time limit or the time for closing the session
 * has passed, or if alive is set and the session has ended.
 */
static bool
wait_socket(le_session *s, PGconn *conn, short events, int64_t until, bool alive)
{
	for (;;)
	{
		struct pollfd fd = {.fd = PQsocket(conn), .events = events};
		int64_t at = le_add(le_now_ns(), SLICE);
		bool over;

		le_sooner(&at, until);
		if (alive)
			le_sooner(&at, atomic_load(&s->deadline));
		le_poll(&fd, 1, at);
		if (fd.revents != 0)
			return true;
		le_lock(s);
		le_check_deadline(s);
		if (s->closing)
			le_sooner(&until, s->close_until);
		over = le_now_ns() >= until || (alive && !s->closing && !le_is_alive(s));
		le_unlock(s);
		if (over)
			return false;
	}
}

/* --- connecting --- */

/* Returns the number of items in a comma-separated list; 0 if the list is empty. */
static int
count_items(const char *list)
{
	int n = list[0] != '\0';

	for (; *list != '\0'; list++)
		n += *list == ',';
	return n;
}

/* Drops notices, because libpq would write them to the application's standard error. */
static void
ignore_notice(void *arg, const PGresult *result)
{
	(void) arg;
	(void) result;
}

/*
 * Starts to connect to the next host.  Returns NULL if out of memory.
 *
 * Keys before dbname are defaults that the connection string overrides.  learn_server() rejects standbys
 * later; target_session_attrs would also reject a primary if the role has default_transaction_read_only.
 * client_encoding is always UTF-8, because the same bytes are different names in different encodings.
 *
 * If options_only is true, adds an invalid option, so that libpq does not connect.  The result then only
 * serves to read the options, also those of the environment and the service file.
 */
static PGconn *
start(le_session *s, bool options_only)
{
	static const char *const places[] = {"host", "hostaddr", "port"};
	const char *keys[9] = {"tcp_user_timeout", "dbname", "fallback_application_name", "client_encoding"};
	char timeout[24], items[3][256];
	const char *values[9] = {timeout, s->conninfo != NULL ? s->conninfo : "", "liblockelection", "UTF8"};
	int n = 4;
	PGconn *conn;

	snprintf(timeout, sizeof(timeout), "%lld", (long long) le_ms_up(s->call));
	/* with several hosts, set the host, address and port to try */
	for (int i = 0; i < 3 && s->net.nhosts > 1; i++)
	{
		/* a list with one item applies to all hosts */
		const char *item = s->net.places[i];

		for (int at = count_items(item) == 1 ? 0 : s->net.host; at > 0; at--)
			item = strchr(item, ',') != NULL ? strchr(item, ',') + 1 : "";
		snprintf(items[i], sizeof(items[i]), "%.*s", (int) strcspn(item, ","), item);
		keys[n] = places[i];
		values[n++] = items[i];
	}
	if (options_only)
	{
		keys[n] = "target_session_attrs";
		values[n++] = "none of them";
	}
	keys[n] = values[n] = NULL;
	/* verbose errors contain the SQLSTATE, which take_code() in secret.c reads */
	conn = PQconnectStartParams(keys, values, 1);
	if (conn != NULL)
	{
		PQsetErrorVerbosity(conn, PQERRORS_VERBOSE);
		PQsetNoticeReceiver(conn, ignore_notice, NULL);
	}
	return conn;
}

/*
 * Reads the hosts and the time limit for connecting from the connection string, the environment and the
 * service file, as libpq parses them.  Returns false if out of memory.
 */
static bool
learn_options(le_session *s)
{
	static const char *const keywords[] = {"host", "hostaddr", "port", "connect_timeout"};
	const char *found[4] = {"", "", "", ""};
	le_net *net = &s->net;
	PGconn *conn = start(s, true);
	PQconninfoOption *options = PQconninfo(conn);
	bool ok = options != NULL;

	/* find the options that are needed */
	for (const PQconninfoOption *o = options; o != NULL && o->keyword != NULL; o++)
	{
		for (int i = 0; i < 4; i++)
		{
			if (strcmp(o->keyword, keywords[i]) == 0 && o->val != NULL)
				found[i] = o->val;
		}
	}
	/* store their values */
	for (int i = 0; i < 3 && ok; i++)
	{
		free(net->places[i]);
		ok = (net->places[i] = le_copy(found[i])) != NULL;
	}
	net->nhosts = count_items(found[found[1][0] != '\0']);
	if (ok)
		net->connect_ns = atoi(found[3]) > 0 ? atoi(found[3]) * LE_SEC_NS : s->connect;
	else
		le_no_memory(&net->error);
	PQconninfoFree(options);
	PQfinish(conn);
	return ok;
}

/*
 * Waits until the connection is established.  Returns false if that fails.  The time limit applies to
 * each address of the host.  It is shorter while the session has a lease, so that other hosts can be
 * tried before the lease ends.
 */
static bool
wait_connected(le_session *s, PGconn *conn)
{
	PostgresPollingStatusType status = PGRES_POLLING_WRITING;
	char at[64] = "", now[64];
	int64_t limit = s->net.connect_ns, until = 0;

	if (atomic_load(&s->state) == LE_SUSPENDED)
		le_sooner(&limit, s->ttl / 4 < 200 * LE_MS_NS ? 200 * LE_MS_NS : s->ttl / 4);
	while (status != PGRES_POLLING_OK && status != PGRES_POLLING_FAILED)
	{
		snprintf(now, sizeof(now), "%s", PQhostaddr(conn) != NULL ? PQhostaddr(conn) : "");
		if (until == 0 || strcmp(at, now) != 0)
			until = le_add(le_now_ns(), limit);
		memcpy(at, now, sizeof(at));
		if (!wait_socket(s, conn, status == PGRES_POLLING_READING ? POLLIN : POLLOUT, until, false))
		{
			if (le_misread(conn) == NULL)
				le_error_set(&s->net.error, LE_UNAVAILABLE, "", "no answer from %s port %s in time",
							 PQhost(conn), PQport(conn));
			return false;
		}
		status = PQconnectPoll(conn);
	}
	return status == PGRES_POLLING_OK;
}

/*
 * Selects the extension's schema (NULL = not installed), whether the server is a standby, and the pid of
 * the server process.  Behind a pooler, that pid differs from the pid that libpq reports (%d).  The
 * portable edition needs READ COMMITTED and writable transactions, so for that edition the query makes
 * both the connection's default, unless a pooler shares the connection with other clients.
 */
static const char info_sql[] =
	"SELECT pg_catalog.quote_ident(n.nspname), pg_catalog.pg_is_in_recovery(), pg_catalog.pg_backend_pid()"
	" FROM (VALUES (0)) AS v(v) LEFT JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) COALESCE("
	"(SELECT e.extnamespace FROM pg_catalog.pg_extension e WHERE e.extname OPERATOR(pg_catalog.=) "
	"'lock_election'),"
	" (SELECT CASE WHEN pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) %d"
	" AND pg_catalog.set_config('default_transaction_isolation', 'read committed', false) IS NOT NULL"
	" AND pg_catalog.set_config('default_transaction_read_only', 'off', false) IS NULL"
	" THEN NULL ELSE p.pronamespace END"
	" FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace i ON i.nspname OPERATOR(pg_catalog.=) "
	"'_lock_election'"
	" AND i.nspowner OPERATOR(pg_catalog.=) p.proowner WHERE p.proname OPERATOR(pg_catalog.=) 'lease_holds' "
	"LIMIT 1))";

/*
 * Reads the extension's schema and other properties of the server, in one round trip.  Returns false and
 * sets net.error if the server cannot be used.
 */
static bool
learn_server(le_session *s)
{
	le_net *net = &s->net;
	char query[sizeof(info_sql) + 16];
	char *schema = NULL;
	PGresult *result;

	/* run the query */
	snprintf(query, sizeof(query), info_sql, PQbackendPID(net->conn));
	result = le_exec(s, query, 0, NULL);
	/* reject a standby, and a database without the extension */
	if (PQresultStatus(result) != PGRES_TUPLES_OK)
		;
	else if (PQgetvalue(result, 0, 1)[0] == 't')
		le_error_set(&net->error, LE_UNAVAILABLE, "25006", "the server is a standby");
	else if (PQgetisnull(result, 0, 0))
		le_error_set(
			&net->error, LE_UNAVAILABLE, "3F000",
			"lock_election is not installed in database \"%s\" (CREATE EXTENSION lock_election, or lockctl "
			"install for the portable edition)",
			PQdb(net->conn));
	else if ((schema = le_copy(PQgetvalue(result, 0, 0))) == NULL)
		le_no_memory(&net->error);
	else
	{
		net->pooled = atoi(PQgetvalue(result, 0, 2)) != PQbackendPID(net->conn);
		le_lock(s); /* le_fence() reads the schema in other threads */
		free(s->schema);
		s->schema = schema;
		le_unlock(s);
	}
	PQclear(result);
	return schema != NULL;
}

/* Connects to one host.  Returns false and sets net.error if that fails. */
static bool
connect_host(le_session *s)
{
	le_net *net = &s->net;
	PGconn *conn = start(s, false);

	net->error.status = LE_OK;
	if (conn == NULL || PQstatus(conn) == CONNECTION_BAD || !wait_connected(s, conn))
	{
		if (net->error.status == LE_OK)
			le_connection_error(conn, &net->error);
		PQfinish(conn);
		return false;
	}
	PQsetErrorVerbosity(conn, PQERRORS_DEFAULT);
	net->conn = conn;
	if (PQsetnonblocking(conn, 1) != 0)
		broken(s, "could not make the connection non-blocking");
	else if (learn_server(s))
	{
		net->plain = net->pooled;
		net->prepared = false;
		return true;
	}
	le_disconnect(s);
	return false;
}

bool
le_connect(le_session *s)
{
	le_net *net = &s->net;
	bool stops = net->connect_ns == 0 && !learn_options(s);

	for (int tries = 0; (tries == 0 || tries < net->nhosts) && !stops; tries++)
	{
		if (connect_host(s))
			return true;
		if (net->nhosts > 1)
			net->host = (net->host + 1) % net->nhosts;
		le_lock(s);
		stops = s->closing && le_now_ns() >= s->close_until;
		le_unlock(s);
	}
	return false;
}

/* --- statements --- */

void
le_receive(le_session *s)
{
	PGnotify *notify;

	if (!PQconsumeInput(s->net.conn))
		broken(s, "the connection broke: %.150s", PQerrorMessage(s->net.conn));
	while (s->net.conn != NULL && (notify = PQnotifies(s->net.conn)) != NULL)
	{
		le_lock(s);
		le_hear(s, notify->relname);
		le_unlock(s);
		PQfreemem(notify);
	}
}

/* Sends the pending data, and reads until a result is complete.  Returns false if the connection was lost. */
static bool
exchange(le_session *s, int64_t until, bool alive)
{
	PGconn *conn = s->net.conn;
	int unsent;

	while (s->net.conn != NULL && ((unsent = PQflush(conn)) != 0 || PQisBusy(conn)))
	{
		if (unsent < 0)
			broken(s, "the connection broke: %.150s", PQerrorMessage(conn));
		else if (wait_socket(s, conn, unsent != 0 ? POLLIN | POLLOUT : POLLIN, until, alive))
			le_receive(s);
		else
			broken(s, "the server did not answer in time");
	}
	return s->net.conn != NULL;
}

/*
 * Reads all results of the statement that was sent.  Returns the first error, or else the last result,
 * or NULL if the connection was lost.
 *
 * If the connection ends before the reply is complete, the outcome is unknown even if an error was
 * received, because the server process may have been terminated after the statement took effect.
 */
static PGresult *
results(le_session *s, int sent)
{
	PGresult *last = NULL, *result = NULL;
	int64_t until = le_add(le_now_ns(), s->call);
	bool alive = le_is_alive(s);

	/* compute the time by which the reply must be complete */
	le_sooner(&until, s->net.until);
	if (!sent)
		broken(s, "could not send: %.150s", PQerrorMessage(s->net.conn));
	/* read the results */
	while (s->net.conn != NULL && exchange(s, until, alive) && (result = PQgetResult(s->net.conn)) != NULL)
	{
		if (last != NULL && PQresultStatus(last) == PGRES_FATAL_ERROR)
			PQclear(result);
		else
		{
			PQclear(last);
			last = result;
		}
	}
	if (s->net.conn != NULL && last == NULL) /* no result: probably out of memory */
		broken(s, "no answer to a statement");
	if (s->net.conn == NULL)
	{
		PQclear(last);
		return NULL;
	}
	le_receive(s);
	if (PQresultStatus(last) == PGRES_FATAL_ERROR)
		le_error_result(&s->net.error, last);
	return last;
}

/*
 * Replaces @extschema@ in a statement with the schema.  Allocates no memory, so that a lease can be
 * revoked even if memory has run out.
 */
static void
qualify(const le_session *s, const char *sql, char text[SQL_MAX])
{
	size_t len = 0;

	for (const char *at; (at = strstr(sql, SCHEMA)) != NULL; sql = at + strlen(SCHEMA))
		len += (size_t) snprintf(text + len, SQL_MAX - len, "%.*s%s", (int) (at - sql), sql, s->schema);
	snprintf(text + len, SQL_MAX - len, "%s", sql);
}

/* The statement of a turn; it returns the columns of LeColumn */
static const char sync_sql[] =
	"SELECT item, event, kind, name, token, queue_position, owner, reason, sqlstate, message, hint,"
	" (pg_catalog.date_part('epoch', validity) OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8 AS validity,"
	" incarnation, news, complete, channel FROM @extschema@.lease_sync($1, $2, $3, $4, $5, $6)";

/*
 * Runs a statement, see le_exec().  Prepares the statement that calls lease_sync() once per connection.
 * Does not prepare it behind a pooler, or after an error which shows that prepared statements do not work
 * on this connection or that lease_sync() has changed.
 *
 * If the schema does not exist, the extension may have been moved or created again in another schema since
 * the session connected.  In that case the statement had no effect, and this function sends it once more
 * with the new schema.
 */
static PGresult *
statement(le_session *s, const char *sql, int n, const char *const *values, int items_length)
{
	static const int formats[6] = {[4] = 1};
	const int lengths[6] = {[4] = items_length};
	bool sync = sql == sync_sql, moved = false, again = true;
	le_net *net = &s->net;
	PGresult *result = NULL;
	char own[SQL_MAX];

	while (net->conn != NULL && again)
	{
		bool prepared = sync && !net->plain, prepares = prepared && !net->prepared;
		int sent;

		/* send the statement, or prepare it first */
		qualify(s, sql, own);
		PQclear(result);
		if (n < 0)
			sent = PQsendQuery(net->conn, own);
		else if (prepares)
			sent = PQsendPrepare(net->conn, "lease_sync", own, 0, NULL);
		else if (prepared)
			sent = PQsendQueryPrepared(net->conn, "lease_sync", n, values, lengths, formats, 0);
		else
			sent = PQsendQueryParams(net->conn, own, n, NULL, values, lengths, sync ? formats : NULL, 0);
		result = results(s, sent);
		again = prepares && PQresultStatus(result) == PGRES_COMMAND_OK;
		net->prepared |= again;
		/* after an error, repeat the statement without preparing it, or in another schema */
		if (net->conn == NULL || PQresultStatus(result) != PGRES_FATAL_ERROR)
			continue;
		again = prepared && le_error_is(&net->error, "26000 42P05 0A000");
		if (!again && !moved && strstr(sql, SCHEMA) != NULL && le_error_is_absent(&net->error))
			again = moved = learn_server(s);
		net->plain |= again;
	}
	if (net->conn != NULL)
		return result;
	PQclear(result);
	return NULL;
}

PGresult *
le_exec(le_session *s, const char *sql, int n, const char *const *values)
{
	return statement(s, sql, n, values, 0);
}

PGresult *
le_sync(le_session *s, const char *const *values, int items_length)
{
	return statement(s, sync_sql, 6, values, items_length);
}
