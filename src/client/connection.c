/*
 * connection.c
 *		The connection: made, used and given up, always by a timer of our own.
 *
 * libpq's asynchronous connect has no limit of time, and a server that is
 * stopped still acknowledges what it is sent.  So every wait here ends at a
 * point in time.  A statement that is not answered by then costs the
 * connection: there is no other way to know that nothing comes any more.
 *
 * With several hosts libpq goes from one to the next when one refuses.  One
 * that is silent it would wait for without end; then the list is rotated and
 * libpq starts again behind that host.
 *
 * Resolving a host's name blocks, as libpq does it.  The callback thread
 * watches the deadline meanwhile.
 */
#include "internal.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* libpq before 14 does not know "primary"; there le_connect() passes standbys over. */
#define PRIMARY_SINCE 140000

/*
 * In the middle of a statement: what it did is not known, and its backend may
 * still be at it.  reconcile.c ends that one.
 */
void
le_disconnect(le_session *s)
{
	le_net *net = &s->net;

	if (net->busy)
	{
		net->lost_answer = true;
		/* a role that was set for the session may not see the start of its own backend */
		net->not_ended = net->start[0] == '\0';
		net->old_pid = net->pooled || net->not_ended ? 0 : net->pid;
		memcpy(net->old_start, net->start, sizeof(net->old_start));
	}
	net->busy = false;
	net->pid = 0;
	PQfinish(net->conn);
	net->conn = NULL;
	le_lock(s);
	le_error_copy(&s->trouble, &net->error);
	le_unlock(s);
}

void
le_set_broken(le_session *s, const char *format, ...)
{
	char text[200];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	le_error_set(&s->net.error, LE_UNAVAILABLE, "", "%s", text);
	le_disconnect(s);
}

/* Closing does not wait for a server beyond its own limit. */
static int64_t
limit(le_session *s, int64_t until)
{
	le_lock(s);
	if (s->closing && s->close_until < until)
		until = s->close_until;
	le_unlock(s);
	return until;
}

/*
 * Waits for the socket, a wake-up or the time.  True: the socket is ready.  In
 * between the deadline of the session may pass.
 */
static bool
wait_socket(le_session *s, int fd, short events, int64_t until)
{
	struct pollfd fds[2] = {{.fd = fd, .events = events}, {.fd = s->wake_net[0], .events = POLLIN}};
	int64_t deadline = atomic_load(&s->deadline);
	int state = atomic_load(&s->state);

	/* Before the first lease there is none. */
	if ((state == LE_CONNECTED || state == LE_SUSPENDED) && deadline < until)
		until = deadline;
	le_poll(fds, 2, s->net.timer, until);
	if (fds[1].revents != 0)
		le_drain(s->wake_net);
	le_lock(s);
	le_check_deadline(s);
	le_unlock(s);
	return fds[0].revents != 0;
}

void
le_idle(le_session *s, int64_t until)
{
	wait_socket(s, s->net.conn != NULL ? PQsocket(s->net.conn) : -1, POLLIN, until);
}

/* --- hosts --- */

static void
free_hosts(le_net *net)
{
	for (int i = 0; i < net->nhosts; i++)
	{
		free(net->hosts[i].host);
		free(net->hosts[i].hostaddr);
		free(net->hosts[i].port);
	}
	free(net->hosts);
	net->hosts = NULL;
	net->nhosts = 0;
}

void
le_net_free(le_net *net)
{
	free_hosts(net);
	free(net->schema);
	net->schema = NULL;
}

static int
count_items(const char *list)
{
	int n = 1;

	if (list == NULL || *list == '\0')
		return 0;
	for (; *list != '\0'; list++)
		n += *list == ',';
	return n;
}

/* The item at a place of a list with commas; a list of one item is for all places. */
static char *
copy_item(const char *list, int at)
{
	char *copy;
	size_t len;

	if (count_items(list) == 1)
		at = 0;
	for (; list != NULL && at > 0; at--)
	{
		list = strchr(list, ',');
		list = list != NULL ? list + 1 : NULL;
	}
	if (list == NULL)
		list = "";
	len = strcspn(list, ",");
	copy = malloc(len + 1);
	if (copy != NULL)
	{
		memcpy(copy, list, len);
		copy[len] = '\0';
	}
	return copy;
}

static const char *
option(const PQconninfoOption *options, const char *keyword)
{
	for (; options->keyword != NULL; options++)
	{
		if (strcmp(options->keyword, keyword) == 0)
			return options->val;
	}
	return NULL;
}

/* What libpq made of the connection string, the environment and the service file. */
static bool
learn_options(le_session *s, PGconn *conn)
{
	le_net *net = &s->net;
	PQconninfoOption *options = PQconninfo(conn);
	const char *host, *hostaddr, *port, *timeout;
	int n;

	if (options == NULL)
		return false;
	host = option(options, "host");
	hostaddr = option(options, "hostaddr");
	port = option(options, "port");
	timeout = option(options, "connect_timeout");
	net->connect_ns = timeout != NULL && atoi(timeout) > 0 ? atoi(timeout) * LE_SEC_NS : s->connect;
	n = count_items(hostaddr) > 0 ? count_items(hostaddr) : count_items(host);
	net->hosts = n > 1 ? calloc((size_t) n, sizeof(le_host)) : NULL;
	for (int i = 0; i < n && net->hosts != NULL; i++)
	{
		net->hosts[i] = (le_host){copy_item(host, i), copy_item(hostaddr, i), copy_item(port, i)};
		net->nhosts = i + 1;
		if (net->hosts[i].host == NULL || net->hosts[i].hostaddr == NULL || net->hosts[i].port == NULL)
			free_hosts(net);
	}
	PQconninfoFree(options);
	return true;
}

static bool
is_host(const le_host *h, PGconn *conn)
{
	const char *host = PQhost(conn), *port = PQport(conn);

	if (h->port[0] != '\0' && port != NULL && strcmp(h->port, port) != 0)
		return false;
	return host != NULL && (strcmp(h->host, host) == 0 || strcmp(h->hostaddr, host) == 0);
}

/* The host that libpq is at comes last from now on, and those before it with it. */
static void
rotate(le_net *net, PGconn *conn)
{
	int at = 0;

	while (at < net->nhosts && !is_host(&net->hosts[at], conn))
		at++;
	at = at < net->nhosts ? at : 0;
	for (int k = 0; k <= at; k++)
	{
		le_host first = net->hosts[0];

		memmove(net->hosts, net->hosts + 1, (size_t) (net->nhosts - 1) * sizeof(le_host));
		net->hosts[net->nhosts - 1] = first;
	}
	net->rotated = true;
}

static void
join_hosts(const le_net *net, le_text *host, le_text *hostaddr, le_text *port)
{
	for (int i = 0; i < net->nhosts; i++)
	{
		const char *comma = i > 0 ? "," : "";

		le_text_add(host, "%s%s", comma, net->hosts[i].host);
		le_text_add(hostaddr, "%s%s", comma, net->hosts[i].hostaddr);
		le_text_add(port, "%s%s", comma, net->hosts[i].port);
	}
}

/* --- connecting --- */

/* The application's standard error is not ours. */
static void
ignore_notice(void *arg, const PGresult *result)
{
	(void) arg;
	(void) result;
}

/*
 * What comes before dbname is a default that the connection string overrides.
 * A primary is asked for, not a server that can be written to: the role may have
 * default_transaction_read_only.  Texts are in UTF-8, whatever the environment,
 * the role and the database say; or one name would be two locks.
 */
static PGconn *
start(le_session *s)
{
	const char *keys[12], *values[12];
	le_text host = {0}, hostaddr = {0}, port = {0};
	PGconn *conn = NULL;
	char timeout[24];
	int n = 0;

#define ADD(key, value) (keys[n] = (key), values[n++] = (value))
	snprintf(timeout, sizeof(timeout), "%lld", (long long) le_ms_up(s->call));
	if (getenv("PGTARGETSESSIONATTRS") == NULL && PQlibVersion() >= PRIMARY_SINCE)
		ADD("target_session_attrs", "primary");
	ADD("tcp_user_timeout", timeout);
	if (s->conninfo != NULL && s->conninfo[0] != '\0')
		ADD("dbname", s->conninfo);
	ADD("fallback_application_name", "liblockelection");
	ADD("client_encoding", "UTF8");
	if (s->net.rotated)
	{
		join_hosts(&s->net, &host, &hostaddr, &port);
		ADD("host", host.data);
		ADD("hostaddr", hostaddr.data);
		ADD("port", port.data);
	}
	ADD(NULL, NULL);
#undef ADD
	if (!host.failed && !hostaddr.failed && !port.failed)
		conn = PQconnectStartParams(keys, values, 1);
	le_text_free(&host);
	le_text_free(&hostaddr);
	le_text_free(&port);
	if (conn != NULL)
	{
		PQsetErrorVerbosity(conn, PQERRORS_VERBOSE);
		PQsetNoticeReceiver(conn, ignore_notice, NULL);
	}
	return conn;
}

/* How long one host may take.  While there is a lease to save, others have to get their turn. */
static int64_t
host_limit(le_session *s)
{
	int64_t ns = s->net.connect_ns, part = s->ttl / 4;

	if (part < 200 * LE_MS_NS)
		part = 200 * LE_MS_NS;
	return atomic_load(&s->state) == LE_SUSPENDED && part < ns ? part : ns;
}

typedef enum connect_result
{
	CONNECT_OK,
	CONNECT_FAILED,
	CONNECT_SILENT /* a host has not answered */
} connect_result;

/* Which host, and which of its addresses, libpq is at. */
static void
host_name(PGconn *conn, char *name, size_t size)
{
	const char *parts[] = {PQhost(conn), PQhostaddr(conn), PQport(conn)};

	snprintf(name, size, "%s %s %s", parts[0] != NULL ? parts[0] : "", parts[1] != NULL ? parts[1] : "",
			 parts[2] != NULL ? parts[2] : "");
}

static connect_result
wait_connected(le_session *s, PGconn *conn)
{
	PostgresPollingStatusType status = PGRES_POLLING_WRITING;
	int64_t until = limit(s, le_add(le_now_ns(), host_limit(s)));
	char at[300], now[300];

	host_name(conn, at, sizeof(at));
	while (status != PGRES_POLLING_OK && status != PGRES_POLLING_FAILED)
	{
		short events = status == PGRES_POLLING_READING ? POLLIN : POLLOUT;

		if (!wait_socket(s, PQsocket(conn), events, limit(s, until)))
		{
			if (le_now_ns() >= limit(s, until))
				return CONNECT_SILENT;
			continue;
		}
		status = PQconnectPoll(conn);
		host_name(conn, now, sizeof(now));
		if (strcmp(at, now) != 0)
		{
			memcpy(at, now, sizeof(at));
			until = le_add(le_now_ns(), host_limit(s));
		}
	}
	return status == PGRES_POLLING_OK ? CONNECT_OK : CONNECT_FAILED;
}

/* A connection to one of the hosts, each of them tried once. */
static bool
connect_hosts(le_session *s)
{
	le_net *net = &s->net;

	for (int tries = 0; tries == 0 || tries < net->nhosts; tries++)
	{
		PGconn *conn = start(s);
		connect_result result = CONNECT_FAILED;

		if (conn != NULL && net->connect_ns == 0 && !learn_options(s, conn))
		{
			PQfinish(conn);
			conn = NULL;
		}
		if (conn != NULL && PQstatus(conn) != CONNECTION_BAD)
			result = wait_connected(s, conn);
		if (result == CONNECT_OK)
		{
			PQsetErrorVerbosity(conn, PQERRORS_DEFAULT);
			net->conn = conn;
			return true;
		}
		if (result == CONNECT_SILENT && le_misread(conn) == NULL)
			le_error_set(&net->error, LE_UNAVAILABLE, "", "no answer from %s port %s in time",
						 PQhost(conn) != NULL ? PQhost(conn) : "?",
						 PQport(conn) != NULL ? PQport(conn) : "?");
		else
			le_connection_error(conn, &net->error);
		if (conn != NULL && net->nhosts > 1)
			rotate(net, conn);
		PQfinish(conn);
		if (result == CONNECT_FAILED)
			return false;
		le_lock(s);
		if (s->closing && le_now_ns() >= s->close_until)
			tries = net->nhosts;
		le_unlock(s);
	}
	return false;
}

/* The extension's schema, NULL where there is none; and what comes after it. */
#define FROM_SCHEMA                                                                                          \
	" FROM (VALUES (0)) AS v(v) LEFT JOIN (pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n"         \
	" ON n.oid OPERATOR(pg_catalog.=) e.extnamespace AND e.extname OPERATOR(pg_catalog.=) 'lock_election') " \
	"ON true"

/* What has to be known of the server, in one round trip. */
static const char info_sql[] =
	"SELECT pg_catalog.quote_ident(n.nspname), pg_catalog.pg_is_in_recovery(), pg_catalog.pg_backend_pid(),"
	" pg_catalog.current_setting('lock_election.notify', true),"
	" (SELECT a.backend_start FROM pg_catalog.pg_stat_activity a WHERE a.pid OPERATOR(pg_catalog.=) "
	"pg_catalog.pg_backend_pid())" FROM_SCHEMA;
static const char schema_sql[] = "SELECT pg_catalog.quote_ident(n.nspname)" FROM_SCHEMA;

static bool
is_standby(const le_error *error)
{
	return strcmp(error->sqlstate, "25006") == 0;
}

/* Fences have it too, in other threads. */
static bool
take_schema(le_session *s, const PGresult *result)
{
	char *own, *fence;

	if (PQgetisnull(result, 0, 0))
	{
		le_error_set(&s->net.error, LE_UNAVAILABLE, "3F000",
					 "lock_election is not installed in database \"%s\" (CREATE EXTENSION lock_election)",
					 PQdb(s->net.conn));
		return false;
	}
	own = le_copy(PQgetvalue(result, 0, 0));
	fence = le_copy(PQgetvalue(result, 0, 0));
	if (own == NULL || fence == NULL)
	{
		free(own);
		free(fence);
		le_error_set(&s->net.error, LE_NO_MEMORY, "", "out of memory");
		return false;
	}
	free(s->net.schema);
	s->net.schema = own;
	le_lock(s);
	free(s->fence_schema);
	s->fence_schema = fence;
	le_unlock(s);
	return true;
}

static bool
learn_server(le_session *s)
{
	le_net *net = &s->net;
	PGresult *result;
	const char *notify;
	bool ok = false;

	result = le_exec(s, le_add(le_now_ns(), s->call), info_sql, 0, NULL);
	if (result == NULL)
		return false;
	if (PQresultStatus(result) != PGRES_TUPLES_OK)
		le_error_result(&net->error, result);
	else if (PQgetvalue(result, 0, 1)[0] == 't')
		le_error_set(&net->error, LE_UNAVAILABLE, "25006", "the server is a standby");
	else if (take_schema(s, result))
	{
		net->pid = atoi(PQgetvalue(result, 0, 2));
		net->pooled = net->pid != PQbackendPID(net->conn);
		notify = PQgetvalue(result, 0, 3);
		net->listen_locks = strcmp(notify, "all") == 0 || strcmp(notify, "waiters") == 0;
		net->listen_terms = net->listen_locks || strcmp(notify, "elections") == 0;
		snprintf(net->start, sizeof(net->start), "%s", PQgetvalue(result, 0, 4));
		ok = true;
	}
	PQclear(result);
	return ok;
}

/* A server that does; one that does not is left, and a standby is the last to be asked again. */
static bool
connect_once(le_session *s)
{
	le_net *net = &s->net;

	if (!connect_hosts(s))
		return false;
	if (PQsetnonblocking(net->conn, 1) != 0)
	{
		le_set_broken(s, "could not make the connection non-blocking");
		return false;
	}
	if (learn_server(s))
		return true;
	if (net->conn != NULL)
	{
		if (net->nhosts > 1 && is_standby(&net->error))
			rotate(net, net->conn);
		le_disconnect(s);
	}
	return false;
}

bool
le_connect(le_session *s)
{
	bool ok = connect_once(s);

	/* unless a primary is asked for, libpq stops at a standby: then each of the others gets its turn */
	for (int tries = 1; !ok && is_standby(&s->net.error) && tries < s->net.nhosts; tries++)
		ok = connect_once(s);
	if (!ok || !le_end_old_backend(s))
		return false;
	s->net.listen_tested = s->net.listen_works = false;
	return true;
}

/* --- statements --- */

static void
take_notifications(le_session *s)
{
	PGnotify *notify;

	while ((notify = PQnotifies(s->net.conn)) != NULL)
	{
		le_notified(s, notify->relname, notify->extra);
		PQfreemem(notify);
	}
}

bool
le_receive(le_session *s)
{
	if (s->net.conn == NULL)
		return false;
	if (!PQconsumeInput(s->net.conn))
	{
		le_set_broken(s, "the connection broke: %.150s", PQerrorMessage(s->net.conn));
		return false;
	}
	take_notifications(s);
	return true;
}

/* Sends what is to be sent, and reads until the answer is complete. */
static bool
exchange(le_session *s, int64_t until)
{
	PGconn *conn = s->net.conn;

	for (;;)
	{
		int unsent = PQflush(conn);

		if (unsent < 0)
		{
			le_set_broken(s, "the connection broke: %.150s", PQerrorMessage(conn));
			return false;
		}
		if (unsent == 0 && !PQisBusy(conn))
			return true;
		if (!wait_socket(s, PQsocket(conn), unsent != 0 ? POLLIN | POLLOUT : POLLIN, limit(s, until)))
		{
			if (le_now_ns() < limit(s, until))
				continue;
			le_set_broken(s, "the server did not answer in time");
			return false;
		}
		if (!le_receive(s))
			return false;
	}
}

/* Reads all results of what was sent, while the connection lasts.  Of several an error counts, or the last. */
static PGresult *
read_results(le_session *s, int64_t until)
{
	PGresult *last = NULL, *result;

	while (exchange(s, until) && (result = PQgetResult(s->net.conn)) != NULL)
	{
		if (last != NULL && PQresultStatus(last) == PGRES_FATAL_ERROR)
			PQclear(result);
		else
		{
			PQclear(last);
			last = result;
		}
	}
	return last;
}

/*
 * Where the connection ends before the answer is complete the outcome is not
 * known, also if an error has come: the server may have been terminated after
 * the statement had its effect.
 */
static PGresult *
run(le_session *s, int64_t until, const char *sql, int n, const char *const *values)
{
	PGresult *last = NULL;
	int sent;

	s->net.busy = s->net.pid != 0;
	sent = n < 0 ? PQsendQuery(s->net.conn, sql)
				 : PQsendQueryParams(s->net.conn, sql, n, NULL, values, NULL, NULL, 0);
	if (!sent)
		le_set_broken(s, "could not send: %.150s", PQerrorMessage(s->net.conn));
	else
		last = read_results(s, until);
	/* out of memory, perhaps */
	if (s->net.conn != NULL && last == NULL)
		le_set_broken(s, "no answer to a statement");
	else if (last != NULL && PQresultStatus(last) == PGRES_FATAL_ERROR)
		le_error_result(&s->net.error, last);
	if (s->net.conn == NULL)
	{
		PQclear(last);
		return NULL;
	}
	s->net.busy = false;
	take_notifications(s);
	return last;
}

#define SCHEMA "@extschema@"

/* The longest statement is a renewal with its look: 600 bytes, and a quoted name three times. */
#define SQL_MAX 2048

/* Runs it with the schema that is known.  Takes no memory: a lease is revoked also where there is none. */
static PGresult *
run_in_schema(le_session *s, int64_t until, const char *sql, int n, const char *const *values)
{
	char text[SQL_MAX];
	size_t len = 0;
	const char *at;

	while ((at = strstr(sql, SCHEMA)) != NULL && len < sizeof(text))
	{
		len +=
			(size_t) snprintf(text + len, sizeof(text) - len, "%.*s%s", (int) (at - sql), sql, s->net.schema);
		sql = at + strlen(SCHEMA);
	}
	if (len < sizeof(text))
		len += (size_t) snprintf(text + len, sizeof(text) - len, "%s", sql);
	assert(len < sizeof(text));
	return run(s, until, text, n, values);
}

/* Of a session that has worked before: the extension was moved, or was made again in another schema. */
static bool
learn_schema(le_session *s, int64_t until)
{
	PGresult *result = run(s, until, schema_sql, 0, NULL);
	bool ok = PQresultStatus(result) == PGRES_TUPLES_OK && take_schema(s, result);

	PQclear(result);
	return ok;
}

PGresult *
le_exec(le_session *s, int64_t until, const char *sql, int n, const char *const *values)
{
	PGresult *result;

	if (s->net.conn == NULL)
		return NULL;
	if (strstr(sql, SCHEMA) == NULL)
		return run(s, until, sql, n, values);
	result = run_in_schema(s, until, sql, n, values);
	if (PQresultStatus(result) != PGRES_FATAL_ERROR || !le_error_is_absent(&s->net.error))
		return result;
	if (learn_schema(s, until))
	{
		PQclear(result);
		return run_in_schema(s, until, sql, n, values);
	}
	/* the error stands, unless the connection has gone with it: the statement had no effect */
	if (s->net.conn != NULL)
		return result;
	PQclear(result);
	return NULL;
}

PGresult *
le_exec_text(le_session *s, int64_t until, le_text *sql, int n, const char *const *values)
{
	PGresult *result = NULL;

	if (sql->failed)
		le_error_set(&s->net.error, LE_NO_MEMORY, "", "out of memory");
	else
		result = le_exec(s, until, sql->data, n, values);
	le_text_free(sql);
	return result;
}
