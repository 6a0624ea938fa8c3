/*
 * secret.c
 *		Describes why a connection failed, without any part of the connection
 *		string that may be a password.
 *
 * libpq's messages quote the parts of a string that libpq cannot parse.  libpq
 * may also parse a string differently than its author meant: in
 * "postgres://u:pass/word@host" it takes "pass" for the port.  Then the name of
 * a host or a database contains a part of the password, and messages of libpq
 * and the server contain that name.
 *
 * So an error contains no part of a string that libpq cannot parse, or of one
 * whose options have impossible characters.  In all other errors the values of
 * options are masked, except those that name the server and the database, such
 * as host and dbname.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "error.h"

/*
 * Length in bytes of the shortest value that is masked.  Shorter values, such as "on", occur in many
 * messages by chance.
 */
#define LEAST_MASKED 3

/* --- strings that libpq cannot parse --- */

/*
 * Reports a connection string that libpq cannot parse.  libpq's message may contain a secret, so the
 * error describes the kind of mistake in the library's own words, if the message is in English.  Messages
 * about the service file contain only file names, service names and line numbers, so they are shown.
 */
le_status
le_error_unparsed(le_error *error, const char *message)
{
	/* beginnings of libpq's messages, and descriptions; kind NULL = show libpq's message */
	static const struct
	{
		const char *begins, *kind;
	} kinds[] = {
		{"missing \"=\"", ": an option has no \"=\""},
		{"unterminated quoted string", ": a quoted value is not terminated"},
		{"invalid connection option", ": there is no such option"},
		{"invalid percent-encoded", ": a % is not followed by two hexadecimal digits"},
		{"forbidden value %00", ": %00 is not allowed"},
		{"unexpected spaces", ": it has a space, which is %20 in a URI"},
		{"end of string reached", ": an IPv6 address has no \"]\""},
		{"IPv6 host address", ": an IPv6 address is empty"},
		{"unexpected character", ": the host is followed by something other than a port or a path"},
		{"extra key/value", ": a parameter of the URI has two \"=\""},
		{"missing key/value", ": a parameter of the URI has no \"=\""},
		{"invalid URI query parameter", ": there is no such parameter"},
		{"definition of service", NULL},
		{"service file", NULL},
		{"syntax error in service", NULL},
		{"line ", NULL},
		{"nested service", NULL},
	};
	const char *kind = "";

	/* find the kind of mistake */
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
	{
		if (strncmp(message, kinds[i].begins, strlen(kinds[i].begins)) == 0)
			kind = kinds[i].kind;
	}
	if (kind == NULL)
		return le_invalid(error, "%.*s", (int) strcspn(message, "\n"), message);
	return le_invalid(error, "cannot parse the connection string%s", kind);
}

/* --- strings that libpq misreads --- */

/* Returns whether an item can be a socket directory, an address, or a host name. */
static bool
is_host(const char *item, size_t len)
{
	bool path = len > 0 && (item[0] == '/' || item[0] == '@'), colon = memchr(item, ':', len) != NULL;

	for (size_t i = 0; i < len; i++)
	{
		unsigned char c = (unsigned char) item[i];

		if (path ? i > 0 && strchr("@=;", c) != NULL : c < 0x80 && !isalnum(c) && strchr("-._:%", c) == NULL)
			return false;
		/* all characters are allowed in the zone of an IPv6 address */
		if (!path && c == '%')
			return colon;
		if (!path && colon && !isxdigit(c) && c != ':' && c != '.')
			return false;
	}
	return true;
}

/* Returns whether an item is empty or can be a port. */
static bool
is_port(const char *item, size_t len)
{
	return len <= 5 && strspn(item, "0123456789") >= len;
}

/* Returns whether the condition is_one is true for each item of a comma-separated list. */
static bool
all_are(const char *list, bool (*is_one)(const char *item, size_t len))
{
	while (is_one(list, strcspn(list, ",")))
	{
		list += strcspn(list, ",");
		if (*list++ == '\0')
			return true;
	}
	return false;
}

/* Returns a reason if an option's value shows that libpq misread the connection string; otherwise NULL. */
static const char *
misread_option(const char *keyword, const char *value)
{
	if (strncmp(keyword, "host", 4) == 0 && !all_are(value, is_host))
		return "its host has characters that a host cannot have";
	if (strcmp(keyword, "port") == 0 && !all_are(value, is_port))
		return "its port is not a number";
	if (strcmp(keyword, "dbname") == 0 && (strpbrk(value, "@=;") != NULL || strstr(value, "//") != NULL))
		return "its database has one of the characters @ = ; or //";
	if (strcmp(keyword, "user") == 0 && strpbrk(value, ":=;") != NULL)
		return "its user has one of the characters : = ;";
	for (const char *at = value; (at = strcasestr(at, "password")) != NULL;)
	{
		at += strlen("password");
		if (at[strspn(at, " ")] == '=')
			return "the password is a part of another option";
	}
	return NULL;
}

/* The cast from const is safe, because PQconninfo() does not change the connection. */
const char *
le_misread(const PGconn *conn)
{
	PQconninfoOption *options = PQconninfo((PGconn *) conn);
	const char *why = NULL;

	for (const PQconninfoOption *o = options; o != NULL && o->keyword != NULL && why == NULL; o++)
	{
		if (o->val != NULL && strcmp(o->dispchar, "*") != 0)
			why = misread_option(o->keyword, o->val);
	}
	PQconninfoFree(options);
	return why;
}

/* --- other connection errors --- */

/* Replaces a value by dots wherever it occurs in a text, unless it is part of a longer word. */
static void
mask(char *text, const char *value)
{
	size_t len = strlen(value);

	if (len < LEAST_MASKED)
		return;
	for (char *at = text; (at = strstr(at, value)) != NULL; at++)
	{
		if ((at > text && isalnum((unsigned char) at[-1])) || isalnum((unsigned char) at[len]))
			continue;
		memmove(at + LEAST_MASKED, at + len, strlen(at + len) + 1);
		memset(at, '.', LEAST_MASKED);
		at += LEAST_MASKED - 1;
	}
}

/* Masks the values of options, except those that name the server and the database. */
static void
mask_options(const PGconn *conn, char *text)
{
	static const char shown[] = " host hostaddr port dbname user service passfile ";
	PQconninfoOption *options = PQconninfo((PGconn *) conn);
	char keyword[64];

	for (const PQconninfoOption *o = options; o != NULL && o->keyword != NULL; o++)
	{
		snprintf(keyword, sizeof(keyword), " %s ", o->keyword);
		/* show absolute file names, for example of certificates and keys */
		if (o->val != NULL && strstr(shown, keyword) == NULL && o->val[0] != '/')
			mask(text, o->val);
	}
	PQconninfoFree(options);
}

/*
 * Splits libpq's verbose message for a failed connection into a text, without the location in the
 * server's source, and the SQLSTATE, which libpq returns in no other way (":  28P01: ").  Returns the
 * last SQLSTATE, which belongs to the last host.
 */
static void
take_code(const char *from, char *text, size_t size, char code[6])
{
	size_t n = 0;

	while (*from != '\0' && n < size - 1)
	{
		if (strncmp(from, ":  ", 3) == 0 && strspn(from + 3, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 5 &&
			strncmp(from + 8, ": ", 2) == 0)
		{
			snprintf(code, 6, "%.5s", from + 3);
			n += (size_t) snprintf(text + n, size - n, ": ");
			from += 9;
		}
		else if (strncmp(from, "LOCATION:", 9) == 0)
			from += strcspn(from, "\n") + (strchr(from, '\n') != NULL);
		else
			text[n++] = *from++;
	}
	n = n < size - 1 ? n : size - 1;
	while (n > 0 && text[n - 1] == '\n')
		n--;
	text[n] = '\0';
}

le_status
le_connection_error(const PGconn *conn, le_error *error)
{
	char text[sizeof(error->message)], code[6] = "";
	const char *misread;
	le_status status;

	if (conn == NULL)
		return le_no_memory(error);
	/* without a user and a database, libpq could not parse the connection string */
	if (PQstatus(conn) == CONNECTION_BAD && PQuser(conn) == NULL && PQdb(conn) == NULL)
		return le_error_unparsed(error, PQerrorMessage(conn));
	take_code(PQerrorMessage(conn), text, sizeof(text), code);
	status = code[0] != '\0'                   ? le_status_of(code)
			 : PQconnectionNeedsPassword(conn) ? LE_DENIED
											   : LE_UNAVAILABLE;
	misread = le_misread(conn);
	if (misread != NULL)
		return le_error_set(error, code[0] != '\0' ? status : LE_INVALID, code,
							"cannot connect, and the connection string may not mean what was intended: %s"
							" (of a password in a URI, @ is written %%40, / %%2F, : %%3A and %% %%25)",
							misread);
	mask_options(conn, text);
	return le_error_set(error, status, code, "%s", text);
}

bool
le_succeeded(const PGconn *conn, const PGresult *result, le_error *error)
{
	ExecStatusType status = PQresultStatus(result);

	if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK)
		return true;
	if (result == NULL)
		le_connection_error(conn, error);
	else
		le_error_result(error, result);
	return false;
}
