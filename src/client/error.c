/*
 * error.c
 *		What a call answers, from the errors of the server and of libpq.
 */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *
le_version(void)
{
	return LE_RELEASE;
}

const char *
le_status_name(le_status status)
{
	static const char *const names[] = {
		[LE_OK] = "ok",
		[LE_WAITING] = "waiting",
		[LE_TIMEOUT] = "timeout",
		[LE_CANCELED] = "canceled",
		[LE_LOST] = "lost",
		[LE_DEADLOCK] = "deadlock",
		[LE_LIMIT] = "limit",
		[LE_DENIED] = "denied",
		[LE_INVALID] = "invalid",
		[LE_UNAVAILABLE] = "unavailable",
		[LE_UNKNOWN] = "outcome unknown",
		[LE_NO_MEMORY] = "out of memory",
		[LE_FAILED] = "failed",
	};

	if ((int) status < 0 || (size_t) status >= sizeof(names) / sizeof(names[0]))
		return "?";
	return names[status];
}

le_status
le_error_clear(le_error *error)
{
	if (error != NULL)
	{
		error->status = LE_OK;
		error->sqlstate[0] = '\0';
		error->message[0] = '\0';
	}
	return LE_OK;
}

le_status
le_error_set(le_error *error, le_status status, const char *sqlstate, const char *format, ...)
{
	va_list args;

	if (error == NULL)
		return status;
	error->status = status;
	snprintf(error->sqlstate, sizeof(error->sqlstate), "%s", sqlstate != NULL ? sqlstate : "");
	va_start(args, format);
	vsnprintf(error->message, sizeof(error->message), format, args);
	va_end(args);
	return status;
}

le_status
le_error_copy(le_error *to, const le_error *from)
{
	if (to != NULL && to != from)
		*to = *from;
	return from->status;
}

/*
 * The status of an SQLSTATE; prefixes come after what is more specific.  55P03
 * and 58 say that the manager cannot write now: its tables are locked, or a disk
 * fails.
 */
static le_status
status_of(const char *sqlstate)
{
	static const struct
	{
		const char *prefix;
		le_status status;
	} rules[] = {
		{"LE001", LE_LOST},        {"40P01", LE_DEADLOCK},    {"53200", LE_LIMIT},
		{"53400", LE_LIMIT},       {"42501", LE_DENIED},      {"28", LE_DENIED},
		{"22", LE_INVALID},        {"08007", LE_UNKNOWN},     {"57014", LE_UNKNOWN},
		{"40003", LE_UNKNOWN},     {"55000", LE_UNAVAILABLE}, {"57", LE_UNAVAILABLE},
		{"53", LE_UNAVAILABLE},    {"08", LE_UNAVAILABLE},    {"25006", LE_UNAVAILABLE},
		{"42883", LE_UNAVAILABLE}, {"3F000", LE_UNAVAILABLE}, {"3D000", LE_UNAVAILABLE},
		{"55P03", LE_UNAVAILABLE}, {"58", LE_UNAVAILABLE},
	};

	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
	{
		if (strncmp(sqlstate, rules[i].prefix, strlen(rules[i].prefix)) == 0)
			return rules[i].status;
	}
	return LE_FAILED;
}

/* The length of a message without the newline of libpq. */
static int
line_length(const char *text)
{
	size_t len = strlen(text);

	while (len > 0 && text[len - 1] == '\n')
		len--;
	return (int) len;
}

le_status
le_error_result(le_error *error, const PGresult *result)
{
	const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
	const char *hint = PQresultErrorField(result, PG_DIAG_MESSAGE_HINT);

	if (sqlstate == NULL)
	{
		message = PQresultErrorMessage(result);
		return le_error_set(error, LE_UNKNOWN, NULL, "%.*s", line_length(message), message);
	}
	if (message == NULL)
		message = "error of the server";
	if (hint == NULL)
		return le_error_set(error, status_of(sqlstate), sqlstate, "%s", message);
	return le_error_set(error, status_of(sqlstate), sqlstate, "%s (%s)", message, hint);
}

/* Is this ":  28P01: ", with which a verbose message of libpq carries an SQLSTATE? */
static bool
is_code(const char *text)
{
	if (strncmp(text, ":  ", 3) != 0)
		return false;
	for (int i = 3; i < 8; i++)
	{
		if (!((text[i] >= '0' && text[i] <= '9') || (text[i] >= 'A' && text[i] <= 'Z')))
			return false;
	}
	return strncmp(text + 8, ": ", 2) == 0;
}

static le_status
connection_status(const PGconn *conn, const char *code)
{
	if (conn == NULL)
		return LE_NO_MEMORY;
	if (code[0] != '\0')
		return status_of(code);
	return PQconnectionNeedsPassword(conn) ? LE_DENIED : LE_UNAVAILABLE;
}

/*
 * libpq keeps no SQLSTATE of a connection that failed, but a verbose message
 * has it.  The last one counts: it is of the last host.  The message is told
 * without it, and without the place in the server's source.
 */
le_status
le_error_connection(le_error *error, const PGconn *conn)
{
	char text[sizeof(error->message)], code[6] = "";
	const char *from = conn != NULL ? PQerrorMessage(conn) : "out of memory";
	size_t n = 0;

	while (*from != '\0' && n < sizeof(text) - 1)
	{
		if (is_code(from))
		{
			memcpy(code, from + 3, 5);
			code[5] = '\0';
			n += (size_t) snprintf(text + n, sizeof(text) - n, ": ");
			from += 9;
			if (n >= sizeof(text))
				n = sizeof(text) - 1;
		}
		else if (strncmp(from, "LOCATION:", 9) == 0)
			from += strcspn(from, "\n") + (strchr(from, '\n') != NULL);
		else
			text[n++] = *from++;
	}
	text[n] = '\0';
	return le_error_set(error, connection_status(conn, code), code, "%.*s", line_length(text), text);
}

bool
le_error_is_unknown(const le_error *error)
{
	return error->status == LE_UNKNOWN;
}

const char *
le_error_ends_connection(const le_error *error)
{
	static const char *const states[] = {"08", "57P01", "57P02", "57P03", "53300"};

	if (strcmp(error->sqlstate, "25006") == 0)
		return "the server has become a standby";
	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
	{
		if (strncmp(error->sqlstate, states[i], strlen(states[i])) == 0)
			return "the server is shutting down, or not ready";
	}
	return NULL;
}

bool
le_error_passes(const le_error *error)
{
	return (error->status == LE_UNAVAILABLE && strcmp(error->sqlstate, "55000") != 0 &&
			strcmp(error->sqlstate, "42883") != 0) ||
		   error->status == LE_UNKNOWN ||
		   (strncmp(error->sqlstate, "40", 2) == 0 && error->status != LE_DEADLOCK) ||
		   strncmp(error->sqlstate, "XX", 2) == 0;
}
