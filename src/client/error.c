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
le_status
le_status_of(const char *sqlstate)
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

le_status
le_error_server(le_error *error, const char *sqlstate, const char *message, const char *hint)
{
	if (message == NULL)
		message = "error of the server";
	if (hint == NULL)
		return le_error_set(error, le_status_of(sqlstate), sqlstate, "%s", message);
	return le_error_set(error, le_status_of(sqlstate), sqlstate, "%s (%s)", message, hint);
}

le_status
le_error_result(le_error *error, const PGresult *result)
{
	const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *message = PQresultErrorMessage(result);

	if (sqlstate == NULL)
		return le_error_set(error, LE_UNKNOWN, NULL, "%.*s", (int) strcspn(message, "\n"), message);
	return le_error_server(error, sqlstate, PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY),
						   PQresultErrorField(result, PG_DIAG_MESSAGE_HINT));
}

le_status
le_no_memory(le_error *error)
{
	return le_error_set(error, LE_NO_MEMORY, "", "out of memory");
}

bool
le_error_is(const le_error *error, const char *sqlstates)
{
	char sqlstate[8];

	snprintf(sqlstate, sizeof(sqlstate), " %s ", error->sqlstate);
	return error->sqlstate[0] != '\0' && strstr(sqlstates, sqlstate) != NULL;
}

const char *
le_error_ends_connection(const le_error *error)
{
	if (le_error_is(error, " 25006 "))
		return "the server has become a standby";
	if (le_error_is(error, " 57P01 57P02 57P03 53300 ") || strncmp(error->sqlstate, "08", 2) == 0)
		return "the server is shutting down, or not ready";
	return NULL;
}

bool
le_error_is_absent(const le_error *error)
{
	return le_error_is(error, " 42883 3F000 ");
}

bool
le_error_passes(const le_error *error)
{
	if (error->status == LE_UNAVAILABLE)
		return !le_error_is(error, " 55000 42883 3F000 ");
	return error->status == LE_UNKNOWN || strncmp(error->sqlstate, "XX", 2) == 0 ||
		   (strncmp(error->sqlstate, "40", 2) == 0 && error->status != LE_DEADLOCK);
}
