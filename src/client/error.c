/*
 * error.c
 *		Converts errors of the server and of libpq into statuses and errors of
 *		the library.
 */
#include "error.h"

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
		"ok",     "waiting", "timeout",     "canceled",        "lost",          "deadlock", "limit",
		"denied", "invalid", "unavailable", "outcome unknown", "out of memory", "failed"};

	return (int) status < 0 || (size_t) status >= sizeof(names) / sizeof(names[0]) ? "?" : names[status];
}

le_status
le_error_clear(le_error *error)
{
	if (error != NULL)
		*error = (le_error){.status = LE_OK};
	return LE_OK;
}

le_status
le_error_set(le_error *error, le_status status, const char *sqlstate, const char *format, ...)
{
	va_list args;

	if (error == NULL)
		return status;
	error->status = status;
	snprintf(error->sqlstate, sizeof(error->sqlstate), "%s", sqlstate);
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
 * Returns the status for an SQLSTATE.  In the table, complete codes must precede their prefixes.  55P03
 * and 58xxx mean that the manager cannot write now, because its tables are locked or a disk fails.
 */
le_status
le_status_of(const char *sqlstate)
{
	static const struct
	{
		le_status status;
		const char *prefixes;
	} rules[] = {
		{LE_LOST, "LE001"},
		{LE_DEADLOCK, "40P01"},
		{LE_LIMIT, "53200 53400"},
		{LE_DENIED, "42501 28"},
		{LE_INVALID, "22"},
		{LE_UNKNOWN, "08007 57014 40003"},
		{LE_UNAVAILABLE, "55000 57 53 08 25006 42883 3F000 3D000 55P03 58"},
	};

	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
	{
		for (const char *p = rules[i].prefixes; *p != '\0'; p += strspn(p, " "))
		{
			size_t len = strcspn(p, " ");

			if (strncmp(sqlstate, p, len) == 0)
				return rules[i].status;
			p += len;
		}
	}
	return LE_FAILED;
}

le_status
le_error_server(le_error *error, const char *sqlstate, const char *message, const char *hint)
{
	return le_error_set(error, le_status_of(sqlstate), sqlstate, "%s%s%s%s",
						message != NULL ? message : "error of the server", hint != NULL ? " (" : "",
						hint != NULL ? hint : "", hint != NULL ? ")" : "");
}

le_status
le_error_result(le_error *error, const PGresult *result)
{
	const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *message = PQresultErrorMessage(result);

	if (sqlstate == NULL)
		return le_error_set(error, LE_UNKNOWN, "", "%.*s", (int) strcspn(message, "\n"), message);
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
	return error->sqlstate[0] != '\0' && strstr(sqlstates, error->sqlstate) != NULL;
}

bool
le_error_ends_connection(const le_error *error)
{
	return le_error_is(error, "25006 57P01 57P02 57P03 53300") || strncmp(error->sqlstate, "08", 2) == 0;
}

bool
le_error_is_absent(const le_error *error)
{
	return le_error_is(error, "42883 3F000");
}

bool
le_error_passes(const le_error *error)
{
	if (error->status == LE_UNAVAILABLE)
		return !le_error_is(error, LE_NOT_INSTALLED);
	return error->status == LE_UNKNOWN || strncmp(error->sqlstate, "XX", 2) == 0 ||
		   (strncmp(error->sqlstate, "40", 2) == 0 && error->status != LE_DEADLOCK);
}
