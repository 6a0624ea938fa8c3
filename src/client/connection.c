/*
 * connection.c
 *		The connection: made, used and given up, always by a clock of our own.
 *
 * libpq's asynchronous connect has no limit of time, and a server that is
 * stopped still acknowledges what it is sent.  So every wait here ends at a
 * point in time.  A statement that is not answered by then costs the
 * connection: there is no other way to know that nothing comes any more.
 *
 * Of several hosts each one is tried for itself, beginning behind the last one
 * that did not do.  Resolving a host's name blocks, as libpq does it.  The
 * callback thread watches the deadline meanwhile.
 */
#include "internal.h"

#include <stdarg.h>

/* A wait looks at the session this often: it may have ended, or is being closed. */
#define SLICE (100 * LE_MS_NS)

/* The longest statement has 900 bytes, and a quoted name three times. */
#define SQL_MAX 2048
#define SCHEMA  "@extschema@"

static void broken(le_session *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The connection is of no more use. */
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
 * Waits for the socket.  False: the time is over, that of closing too, or a
 * session that was alive has ended.
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

static int
count_items(const char *list)
{
	int n = list[0] != '\0';

	for (; *list != '\0'; list++)
		n += *list == ',';
	return n;
}

/* The application's standard error is not ours. */
static void
ignore_notice(void *arg, const PGresult *result)
{
	(void) arg;
	(void) result;
}

/*
 * What comes before dbname is a default that the connection string overrides.
 * Whether the server is a standby is looked at later; a role may have
 * default_transaction_read_only.  Texts are in UTF-8, whatever the environment,
 * the role and the database say; or one name would be two locks.
 *
 * At first an option that no libpq takes keeps it from connecting: the connection
 * only tells what its string, the environment and the service file say.
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
	for (int i = 0; i < 3 && s->net.nhosts > 1; i++)
	{
		/* a list of one item is for all hosts */
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
	conn = PQconnectStartParams(keys, values, 1);
	if (conn != NULL)
	{
		PQsetErrorVerbosity(conn, PQERRORS_VERBOSE);
		PQsetNoticeReceiver(conn, ignore_notice, NULL);
	}
	return conn;
}

/* What libpq makes of the connection string, the environment and the service file. */
static bool
learn_options(le_session *s)
{
	static const char *const keywords[] = {"host", "hostaddr", "port", "connect_timeout"};
	const char *found[4] = {"", "", "", ""};
	le_net *net = &s->net;
	PGconn *conn = start(s, true);
	PQconninfoOption *options = PQconninfo(conn);
	bool ok = options != NULL;

	for (const PQconninfoOption *o = options; o != NULL && o->keyword != NULL; o++)
	{
		for (int i = 0; i < 4; i++)
		{
			if (strcmp(o->keyword, keywords[i]) == 0 && o->val != NULL)
				found[i] = o->val;
		}
	}
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

/* Each address of the host has its time.  While there is a lease to save, others have to get their turn. */
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
 * The extension's schema, NULL where there is none; is it a standby; and the process of the server, which is to
 * be this one.  The portable edition works in READ COMMITTED only: the session's default becomes that, if the
 * connection is the session's own, and not a pooler's.
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

/* What has to be known of the server, in one round trip. */
static bool
learn_server(le_session *s)
{
	le_net *net = &s->net;
	char query[sizeof(info_sql) + 16];
	char *schema = NULL;
	PGresult *result;

	snprintf(query, sizeof(query), info_sql, PQbackendPID(net->conn));
	result = le_exec(s, query, 0, NULL);
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
		le_lock(s); /* fences have it too, in other threads */
		free(s->schema);
		s->schema = schema;
		le_unlock(s);
	}
	PQclear(result);
	return schema != NULL;
}

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

/* Sends what is to be sent, and reads until a result is complete.  False: the connection is gone. */
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
 * Reads all results of what was sent: of several an error counts, or the last.
 * Where the connection ends before the answer is complete the outcome is not
 * known, also if an error has come: the server may have been terminated after
 * the statement had its effect.
 */
static PGresult *
results(le_session *s, int sent)
{
	PGresult *last = NULL, *result = NULL;
	int64_t until = le_add(le_now_ns(), s->call);
	bool alive = le_is_alive(s);

	le_sooner(&until, s->net.until);
	if (!sent)
		broken(s, "could not send: %.150s", PQerrorMessage(s->net.conn));
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
	if (s->net.conn != NULL && last == NULL) /* out of memory, perhaps */
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

/* A statement with the schema that is known.  Takes no memory: a lease is revoked also where there is none. */
static void
qualify(const le_session *s, const char *sql, char text[SQL_MAX])
{
	size_t len = 0;

	for (const char *at; (at = strstr(sql, SCHEMA)) != NULL; sql = at + strlen(SCHEMA))
		len += (size_t) snprintf(text + len, SQL_MAX - len, "%.*s%s", (int) (at - sql), sql, s->schema);
	snprintf(text + len, SQL_MAX - len, "%s", sql);
}

/* Its columns are those of LeColumn. */
static const char sync_sql[] =
	"SELECT item, event, kind, name, token, queue_position, owner, reason, sqlstate, message, hint,"
	" (pg_catalog.date_part('epoch', validity) OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8 AS validity,"
	" incarnation, news, complete, channel FROM @extschema@.lease_sync($1, $2, $3, $4, $5, $6)";

/*
 * A call of lease_sync() is prepared once in a connection; not behind a pooler,
 * and where that does not work or the function has changed.  In a session that
 * has worked before the extension may have been moved, or made again in another
 * schema: then the statement had no effect, and is sent once more.
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
