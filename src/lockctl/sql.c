/*
 * sql.c
 *		Connects to the server, runs queries, and prints their results.
 */
#include "sql.h"

#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "globals.h"
#include "memory.h"
#include "message.h"
#include "server.h"
#include "signals.h"
#include "text.h"

#define CONNECT_SECONDS "5"
/* Maximum length of a statement, in bytes */
#define STATEMENT_MAX 8191

/* First version of libpq that accepts target_session_attrs=primary */
#define PRIMARY_SINCE 140000

/* --- connect --- */

/* Returns whether the connection string or an environment variable sets an option. */
static bool
is_set(const char *conninfo, const char *key, const char *variable)
{
	PQconninfoOption *options = conninfo != NULL ? PQconninfoParse(conninfo, NULL) : NULL;
	bool set = getenv(variable) != NULL;

	for (PQconninfoOption *o = options; o != NULL && o->keyword != NULL; o++)
	{
		if (strcmp(o->keyword, key) == 0 && o->val != NULL)
			set = true;
	}
	PQconninfoFree(options);
	return set;
}

/*
 * Connects.  If primary is set, skips standbys, but accepts a primary on which the role is read-only.  Texts
 * are in UTF-8, as in the library's sessions, unless the user has chosen another client encoding.
 */
static PGconn *
start(bool primary, const char *application_name, const char *seconds)
{
	char *conninfo = lc_conninfo();
	const char *keys[8], *values[8];
	int n = 0;
	PGconn *db;

#define ADD(key, value) (keys[n] = (key), values[n++] = (value))
	ADD("dbname", conninfo != NULL ? conninfo : "");
	ADD("fallback_application_name", application_name);
	if (!is_set(conninfo, "client_encoding", "PGCLIENTENCODING"))
		ADD("client_encoding", "UTF8");
	if (!is_set(conninfo, "connect_timeout", "PGCONNECT_TIMEOUT"))
		ADD("connect_timeout", seconds);
	if (primary && !is_set(conninfo, "target_session_attrs", "PGTARGETSESSIONATTRS"))
		ADD("target_session_attrs", PQlibVersion() >= PRIMARY_SINCE ? "primary" : "read-write");
	ADD(NULL, NULL);
#undef ADD
	db = PQconnectdbParams(keys, values, 1);
	return db;
}

PGconn *
lc_connect_any(const char *application_name, const char *seconds)
{
	return start(false, application_name, seconds);
}

char *
lc_why_not(const PGconn *db, le_status *status)
{
	le_error error;

	*status = le_connection_error(db, &error);
	return lc_line(error.message);
}

PGconn *
lc_connect(bool primary)
{
	PGconn *db = start(primary, "lockctl", CONNECT_SECONDS);
	le_status status;

	if (db == NULL || PQstatus(db) != CONNECTION_OK)
	{
		const char *why = lc_why_not(db, &status);

		lc_die(lc_exit_code(status), "%s", why);
	}
	return db;
}

bool
lc_is_portable(PGconn *db)
{
	return PQntuples(lc_query(db, LC_PORTABLE_SQL)) > 0;
}

static char *schema; /* the extension's schema, quoted; NULL = not known yet */

bool
lc_take_schema(const PGresult *result)
{
	if (PQresultStatus(result) != PGRES_TUPLES_OK || PQntuples(result) == 0)
		return false;
	free(schema);
	schema = strdup(PQgetvalue(result, 0, 0)); /* not lc_copy(), whose memory is freed after each round */
	return schema != NULL;
}

const char *
lc_schema(PGconn *db)
{
	if (schema == NULL && !lc_take_schema(lc_query(db, "%s", LC_SCHEMA_SQL)))
		lc_die(LC_EXIT_SERVER,
			   "database \"%s\" has no locks: as a superuser type CREATE EXTENSION lock_election, or lockctl "
			   "install; see lockctl doctor",
			   PQdb(db));
	return schema;
}

char *
lc_literal(PGconn *db, const char *text)
{
	char *quoted = PQescapeLiteral(db, text, strlen(text)), *copy;

	if (quoted == NULL)
		lc_usage("\"%s\": %s", text, lc_line(PQerrorMessage(db)));
	copy = lc_copy(quoted);
	PQfreemem(quoted);
	return copy;
}

/* --- queries --- */

int
lc_exit_code(le_status status)
{
	switch (status)
	{
		case LE_TIMEOUT:
			return LC_EXIT_NOT_ACQUIRED;
		case LE_LOST:
			return LC_EXIT_LOST;
		case LE_INVALID:
			return LC_EXIT_USAGE;
		default:
			return LC_EXIT_SERVER;
	}
}

static int
result_code(const PGresult *result)
{
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	if (state != NULL && strcmp(state, "LE001") == 0)
		return LC_EXIT_LOST;
	if (state != NULL && strncmp(state, "22", 2) == 0)
		return LC_EXIT_USAGE;
	return LC_EXIT_SERVER;
}

/* Reports a server error and exits. */
static void __attribute__((noreturn)) failed(PGconn *db, const PGresult *result)
{
	const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
	const char *hint = PQresultErrorField(result, PG_DIAG_MESSAGE_HINT);

	if (message == NULL)
		lc_die(LC_EXIT_SERVER, "%s", lc_line(PQerrorMessage(db)));
	lc_die(result_code(result), "%s%s%s", message, hint != NULL ? "; hint: " : "", hint != NULL ? hint : "");
}

/* Formats a statement.  Ends the program if it is too long. */
static char *
statement(const char *format, va_list args)
{
	char *text = lc_vformat(format, args);

	if (strlen(text) > STATEMENT_MAX)
		lc_usage("the arguments are too long");
	return text;
}

PGresult *
lc_query(PGconn *db, const char *format, ...)
{
	PGresult *result;
	va_list args;

	va_start(args, format);
	result = lc_keep(PQexec(db, statement(format, args)));
	va_end(args);
	if (PQresultStatus(result) != PGRES_TUPLES_OK && PQresultStatus(result) != PGRES_COMMAND_OK)
		failed(db, result);
	return result;
}

PGresult *
lc_result(PGconn *db)
{
	PGresult *result = lc_keep(PQgetResult(db)), *next;

	while (result != NULL && (next = PQgetResult(db)) != NULL)
		PQclear(next);
	return result;
}

/* Asks the server to cancel the current statement. */
static void
cancel(PGconn *db)
{
	PGcancel *handle = PQgetCancel(db);
	char message[256];

	if (handle != NULL && !PQcancel(handle, message, sizeof(message)))
		lc_detail("%s", lc_line(message));
	PQfreeCancel(handle);
}

PGresult *
lc_query_signals(PGconn *db, const char *query, int *signo)
{
	struct pollfd fds[] = {{.fd = PQsocket(db), .events = POLLIN}, {.fd = lc_signals_fd(), .events = POLLIN}};
	PGresult *result;
	int seen;

	/* send the statement */
	*signo = 0;
	if (!PQsendQuery(db, query))
		lc_die(LC_EXIT_SERVER, "%s", lc_line(PQerrorMessage(db)));
	/* wait; a first signal cancels the statement, a second signal ends the program */
	while (PQisBusy(db))
	{
		poll(fds, 2, -1);
		while ((seen = lc_signals_next(fds[1].fd)) != 0)
		{
			if (seen == SIGCONT)
				continue;
			if (*signo != 0)
				lc_signals_die(seen);
			*signo = seen;
			cancel(db);
		}
		if (fds[0].revents != 0 && !PQconsumeInput(db))
			lc_die(LC_EXIT_SERVER, "%s", lc_line(PQerrorMessage(db)));
	}
	result = lc_result(db);
	if (PQresultStatus(result) == PGRES_TUPLES_OK)
		return result;
	if (*signo == 0)
		failed(db, result);
	return NULL;
}

/* --- output --- */

int
lc_width(const char *text)
{
	mbstate_t state = {0};
	int width = 0;

	while (*text != '\0')
	{
		wchar_t c;
		size_t length = mbrtowc(&c, text, strlen(text), &state);
		int columns;

		if (length == (size_t) -1 || length == (size_t) -2)
		{
			memset(&state, 0, sizeof(state));
			length = 1;
			columns = 1;
		}
		else
			columns = wcwidth(c);
		width += columns > 0 ? columns : 0;
		text += length;
	}
	return width;
}

static int
printed_width(const char *text)
{
	size_t mark = lc_mark();
	int width = lc_width(lc_printable(text));

	lc_free_since(mark);
	return width;
}

static bool
is_number(const PGresult *result, int column)
{
	Oid type = PQftype(result, column);

	/* bigint and integer; the views have no other numeric types */
	return type == 20 || type == 23;
}

/* Prints a cell of a table, padded to its width. */
static void
print_cell(const char *text, int width, bool right, bool last)
{
	size_t mark = lc_mark();
	char *safe = lc_printable(text);
	int pad = width - lc_width(safe);

	if (right)
		printf("%*s%s", pad, "", safe);
	else
		printf("%s%*s", safe, last ? 0 : pad, "");
	fputs(last ? "\n" : "  ", stdout);
	lc_free_since(mark);
}

/* Prints a result as a table whose columns are as wide as their longest value. */
static void
print_table(const PGresult *result)
{
	int columns = PQnfields(result), rows = PQntuples(result);
	int *widths = lc_alloc(sizeof(int) * (size_t) (columns + 1));

	for (int c = 0; c < columns; c++)
	{
		widths[c] = printed_width(PQfname(result, c));
		for (int r = 0; r < rows; r++)
		{
			int width = printed_width(PQgetvalue(result, r, c));

			widths[c] = width > widths[c] ? width : widths[c];
		}
	}
	for (int r = -1; r < rows; r++)
	{
		for (int c = 0; c < columns; c++)
			print_cell(r < 0 ? PQfname(result, c) : PQgetvalue(result, r, c), widths[c], is_number(result, c),
					   c == columns - 1);
	}
}

/* Prints a query as CSV with a header, and returns the number of rows. */
static int64_t
print_csv(PGconn *db, const char *query)
{
	PGresult *result;
	char *line;
	int length;

	lc_query(db, "SET client_min_messages = warning");
	result = lc_keep(PQexec(db, lc_format("COPY (%s) TO STDOUT WITH (FORMAT csv, HEADER)", query)));
	if (PQresultStatus(result) != PGRES_COPY_OUT)
		failed(db, result);
	while ((length = PQgetCopyData(db, &line, 0)) > 0)
	{
		fwrite(line, 1, (size_t) length, stdout);
		PQfreemem(line);
	}
	result = lc_keep(PQgetResult(db));
	if (length == -2 || PQresultStatus(result) != PGRES_COMMAND_OK)
		failed(db, result);
	return atoll(PQcmdTuples(result));
}

int64_t
lc_print(PGconn *db, bool one, const char *format, ...)
{
	const char *query;
	PGresult *result;
	va_list args;
	int64_t rows;

	va_start(args, format);
	query = statement(format, args);
	va_end(args);
	/* print the result in the format that -o selects */
	if (lc_globals.output == LC_CSV)
		rows = print_csv(db, query);
	else if (lc_globals.output == LC_TABLE)
	{
		result = lc_query(db, "%s", query);
		print_table(result);
		rows = PQntuples(result);
	}
	else
	{
		result = lc_query(db,
						  one ? "SELECT row_to_json(q), 1 FROM (%s) q"
							  : "SELECT coalesce(json_agg(q), '[]'), count(*) FROM (%s) q",
						  query);
		puts(PQntuples(result) > 0 ? PQgetvalue(result, 0, 0) : "null");
		rows = PQntuples(result) > 0 ? atoll(PQgetvalue(result, 0, 1)) : 0;
	}
	lc_flush();
	return rows;
}
