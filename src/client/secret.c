/*
 * secret.c
 *		Why a connection could not be made, without a piece of the connection
 *		string that may be a password.
 *
 * libpq quotes what it cannot parse.  It may also parse a string in another way
 * than it was meant: of "postgres://u:pass/word@host" it takes "pass" for the
 * port.  Then a part of the password is in the name of a host or a database,
 * which libpq and the server show.
 *
 * So nothing is shown of a string that was not parsed; nor of an error where an
 * option has characters that do not belong there.  Of all other errors the
 * values of options are cut out, but for those that tell where the connection
 * was to go.
 */
#include "internal.h"

#include <ctype.h>

/* Shorter values are words like "on", which are in messages anyhow. */
#define LEAST_MASKED 3

/* --- strings that libpq does not parse --- */

/*
 * message: libpq's.  The kind of mistake is told in words of our own; messages
 * in other languages have none.  One about the service file has names of files
 * and services, and numbers of lines.
 */
le_status
le_error_unparsed(le_error *error, const char *message)
{
	static const struct
	{
		const char *begins, *kind;
	} kinds[] = {
		{"missing \"=\"", ": an option has no \"=\""},
		{"unterminated quoted string", ": a quoted value has no end"},
		{"invalid connection option", ": there is no such option"},
		{"invalid percent-encoded", ": a % is not followed by two hexadecimal digits"},
		{"forbidden value %00", ": %00 is not allowed"},
		{"unexpected spaces", ": it has a space, which is %20 in a URI"},
		{"end of string reached", ": an IPv6 address has no \"]\""},
		{"IPv6 host address", ": an IPv6 address is empty"},
		{"unexpected character", ": something else than a port or a path follows the host"},
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

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
	{
		if (strncmp(message, kinds[i].begins, strlen(kinds[i].begins)) == 0)
			kind = kinds[i].kind;
	}
	if (kind == NULL)
		return le_invalid(error, "%.*s", (int) strcspn(message, "\n"), message);
	return le_invalid(error, "cannot parse the connection string%s", kind);
}

/* --- strings that libpq parses in another way than they were meant --- */

/* A socket's folder, an address, or a name. */
static bool
is_host(const char *item, size_t len)
{
	bool path = len > 0 && (item[0] == '/' || item[0] == '@'), colon = memchr(item, ':', len) != NULL;

	for (size_t i = 0; i < len; i++)
	{
		unsigned char c = (unsigned char) item[i];

		if (path ? i > 0 && strchr("@=;", c) != NULL : c < 0x80 && !isalnum(c) && strchr("-._:%", c) == NULL)
			return false;
		/* an IPv6 address, until its zone */
		if (!path && c == '%')
			return colon;
		if (!path && colon && !isxdigit(c) && c != ':' && c != '.')
			return false;
	}
	return true;
}

static bool
is_port(const char *item, size_t len)
{
	return len <= 5 && strspn(item, "0123456789") >= len;
}

/* Is each item of a list with commas one of these? */
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

static const char *
misread_option(const char *keyword, const char *value)
{
	if (strncmp(keyword, "host", 4) == 0 && !all_are(value, is_host))
		return "its host has characters that no host has";
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

/* libpq does not change the connection here. */
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

/* --- all other errors --- */

/* Where it stands for itself, and not in a word. */
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

/* The values of options are cut out, but for those that tell where the connection was to go. */
static void
mask_options(const PGconn *conn, char *text)
{
	static const char shown[] = " host hostaddr port dbname user service passfile ";
	PQconninfoOption *options = PQconninfo((PGconn *) conn);
	char keyword[64];

	for (const PQconninfoOption *o = options; o != NULL && o->keyword != NULL; o++)
	{
		snprintf(keyword, sizeof(keyword), " %s ", o->keyword);
		/* files of certificates and keys are told by their names */
		if (o->val != NULL && strstr(shown, keyword) == NULL && o->val[0] != '/')
			mask(text, o->val);
	}
	PQconninfoFree(options);
}

/*
 * libpq keeps no SQLSTATE of a connection that failed, but a verbose message has
 * it: ":  28P01: ".  The last one counts: it is of the last host.  The text is
 * the message without it, and without the place in the server's source.
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
	/* a string that was not parsed leaves libpq without a user and a database */
	if (PQstatus(conn) == CONNECTION_BAD && PQuser(conn) == NULL && PQdb(conn) == NULL)
		return le_error_unparsed(error, PQerrorMessage(conn));
	take_code(PQerrorMessage(conn), text, sizeof(text), code);
	status = code[0] != '\0'                   ? le_status_of(code)
			 : PQconnectionNeedsPassword(conn) ? LE_DENIED
											   : LE_UNAVAILABLE;
	misread = le_misread(conn);
	if (misread != NULL)
		return le_error_set(error, code[0] != '\0' ? status : LE_INVALID, code,
							"cannot connect, and the connection string is not what it was meant to be: %s"
							" (of a password in a URI, @ is written %%40, / %%2F, : %%3A and %% %%25)",
							misread);
	mask_options(conn, text);
	return le_error_set(error, status, code, "%s", text);
}
