/*
 * record.c
 *		The client's side of a history: a connection, and calls on it, each
 *		recorded before it is sent and after its reply has arrived.
 *
 * A file of lines for each process; every line is one write(2), so that a kill
 * loses at most the last one.  Times are nanoseconds of CLOCK_MONOTONIC.
 *
 *		P <time> <process id> <client>				begins the file
 *		S <time> <connection> <backend's process id>	a connection is there
 *		X <time> <connection>						it is gone, or known to be
 *		C <time> <number> <connection> <operation> <name,..|-> <key=value>..
 *		A <time> <number> ok <value> | null | error <SQLSTATE> | unknown <SQLSTATE>
 *
 * A call for many names is a call for each of them, at one time: first their
 * lines C, then their lines A.
 *
 * A call without a reply has an unknown outcome, like one that lost its
 * connection (SQLSTATE 08006), got 08007, or was terminated.  With TORTURE_CALL_MS
 * in the environment a call is given up after so many ms, and its connection with it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "record.h"

#define LINE_SIZE 4096

static int file = -1;
static const char *conninfo;
static PGconn *connection;
static int connection_number;
static int call_number;
static int64_t limit; /* of a call, in ns; 0: none */

volatile sig_atomic_t stopping;

static int64_t
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t) t.tv_sec * 1000000000 + t.tv_nsec;
}

void
pause_ms(int ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000L};

	nanosleep(&t, NULL);
}

/*
 * Exits if the line cannot be written, because it would be missing in the history.  A disk that is full for
 * the server can be full for this process, too.
 */
static void
write_line(const char *line, size_t len)
{
	if (write(file, line, len) != (ssize_t) len)
	{
		perror("history");
		exit(1);
	}
}

static void line(char kind, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void
line(char kind, const char *format, ...)
{
	char text[LINE_SIZE];
	int len = snprintf(text, sizeof(text), "%c %lld ", kind, (long long) now());
	va_list args;

	va_start(args, format);
	len += vsnprintf(text + len, sizeof(text) - (size_t) len, format, args);
	va_end(args);
	if (len > (int) sizeof(text) - 2)
	{
		fprintf(stderr, "a line of the history is too long\n");
		exit(1);
	}
	text[len++] = '\n';
	write_line(text, (size_t) len);
}

void
record_open(const char *path, const char *client, const char *conn)
{
	conninfo = conn;
	file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (file < 0)
	{
		perror(path);
		exit(1);
	}
	if (getenv("TORTURE_CALL_MS"))
		limit = strtoll(getenv("TORTURE_CALL_MS"), NULL, 10) * 1000000;
	line('P', "%d %s", (int) getpid(), client);
}

void
disconnect(void)
{
	if (connection == NULL)
		return;
	PQfinish(connection);
	connection = NULL;
	line('X', "%d", connection_number);
}

/* Notices of the server are not part of the history. */
static void
ignore_notice(void *arg, const PGresult *result)
{
	(void) arg;
	(void) result;
}

/* Connects, and retries until there is a connection. Returns false if the process should stop. */
bool
connected(void)
{
	while (connection == NULL && !stopping)
	{
		PGconn *c = PQconnectdb(conninfo);

		if (PQstatus(c) == CONNECTION_OK)
		{
			PQsetNoticeReceiver(c, ignore_notice, NULL);
			connection = c;
			line('S', "%d %d", ++connection_number, PQbackendPID(c));
			return true;
		}
		PQfinish(c);
		pause_ms(50);
	}
	return connection != NULL;
}

bool
in_transaction(void)
{
	return connection != NULL && PQtransactionStatus(connection) != PQTRANS_IDLE;
}

/* Returns whether the SQLSTATE proves that nothing was done. */
static bool
is_definite(const char *state)
{
	static const char *const classes[] = {"22", "25", "40", "42", "53", "55", "LE", "57014", "57P03"};

	for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
		if (strncmp(state, classes[i], strlen(classes[i])) == 0)
			return true;
	return false;
}

static void
answer_rows(Answer *answer, const PGresult *result, int first_row, int end_row, int first_column)
{
	size_t len = 0;

	answer->value[0] = '\0';
	for (int row = first_row; row < end_row; row++)
		for (int column = first_column; column < PQnfields(result); column++)
		{
			const char *v = PQgetisnull(result, row, column) ? "-" : PQgetvalue(result, row, column);

			if (len + strlen(v) + 2 > sizeof(answer->value))
				return; /* more than any caller reads */
			len += (size_t) sprintf(answer->value + len, "%s%s",
									len == 0                 ? ""
									: column == first_column ? ";"
															 : "|",
									v);
		}
	answer->status =
		first_row >= end_row || PQgetisnull(result, first_row, first_column) ? ANSWER_NULL : ANSWER_OK;
}

static void
answer_from(Answer *answer, const PGresult *result)
{
	const char *state = result ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : NULL;

	if (PQresultStatus(result) == PGRES_TUPLES_OK)
		answer_rows(answer, result, 0, PQntuples(result), 0);
	else if (PQresultStatus(result) == PGRES_COMMAND_OK)
	{
		answer->status = ANSWER_OK;
		snprintf(answer->value, sizeof(answer->value), "%s", PQcmdStatus((PGresult *) result));
		for (char *p = answer->value; *p; p++)
			if (*p == ' ')
				*p = '_';
	}
	else
	{
		const char *message = result ? PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY) : NULL;

		snprintf(answer->value, sizeof(answer->value), "%s", state ? state : "08006");
		snprintf(answer->message, sizeof(answer->message), "%s", message ? message : "");
		answer->status = is_definite(answer->value) ? ANSWER_ERROR : ANSWER_UNKNOWN;
	}
}

/* Waits until there is something to read. Returns false if there is nothing before this time. */
static bool
readable_before(int64_t end)
{
	for (;;)
	{
		struct pollfd fd = {.fd = PQsocket(connection), .events = POLLIN};
		int64_t left = end - now();
		int n;

		if (left <= 0)
			return false;
		n = poll(&fd, 1, (int) (left / 1000000) + 1);
		if (n > 0)
			return true;
		if (n < 0 && errno != EINTR)
			return false;
	}
}

/*
 * A stopped server still acknowledges packets, so only a timer of the client
 * can end the wait for its reply.
 */
static PGresult *
execute(const char *sql)
{
	int64_t end = now() + limit;
	PGresult *result = NULL, *next;

	if (limit == 0)
		return PQexec(connection, sql);
	if (!PQsendQuery(connection, sql))
		return NULL;
	for (;;)
	{
		while (PQisBusy(connection))
		{
			if (readable_before(end) && PQconsumeInput(connection))
				continue;
			PQclear(result);
			return NULL;
		}
		next = PQgetResult(connection);
		if (next == NULL)
			return result;
		PQclear(result);
		result = next;
	}
}

static const char *const status_names[] = {"ok", "null", "error", "unknown"};

/*
 * Makes a call: "what" is the operation in the history, "sql" the statement.
 * If the connection is lost, the outcome is unknown.
 */
bool
call(Answer *answer, const char *what, const char *sql)
{
	PGresult *result;
	int number = ++call_number;

	if (!connected())
	{
		answer->status = ANSWER_ERROR;
		strcpy(answer->value, "08003");
		return false;
	}
	line('C', "%d %d %s", number, connection_number, what);
	result = execute(sql);
	answer_from(answer, result);
	line('A', "%d %s %s", number, status_names[answer->status], answer->value);
	if (result == NULL || PQstatus(connection) != CONNECTION_OK)
		disconnect();
	PQclear(result);
	return answer->status == ANSWER_OK;
}

bool
call_each(Answer *answers, int n, const char *const *what, const char *sql)
{
	int first = call_number + 1;
	PGresult *result;

	call_number += n;
	if (!connected())
		return false;
	for (int i = 0; i < n; i++)
		line('C', "%d %d %s", first + i, connection_number, what[i]);
	result = execute(sql);
	for (int i = 0; i < n; i++)
	{
		if (PQresultStatus(result) == PGRES_TUPLES_OK)
			answer_rows(&answers[i], result, i, i + 1, 1);
		else
			answer_from(&answers[i], result);
		line('A', "%d %s %s", first + i, status_names[answers[i].status], answers[i].value);
	}
	if (result == NULL || PQstatus(connection) != CONNECTION_OK)
		disconnect();
	PQclear(result);
	return connection != NULL;
}

bool
callf(Answer *answer, const char *what, const char *format, ...)
{
	char sql[LINE_SIZE];
	va_list args;

	va_start(args, format);
	vsnprintf(sql, sizeof(sql), format, args);
	va_end(args);
	return call(answer, what, sql);
}
