/*
 * options.c
 *		Durations, numbers, and the connection string.
 */
#include "lockctl.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

lc_global lc_globals;

int
lc_duration(const char *option, const char *text, int min, int max)
{
	static const struct
	{
		const char *name;
		double ms;
	} units[] = {{"", 1000},   {"ms", 1},      {"s", 1000},    {"sec", 1000},
				 {"m", 60000}, {"min", 60000}, {"h", 3600000}, {"d", 86400000}};
	char *end;
	double value;

	errno = 0;
	value = strtod(text, &end);
	if (end == text || errno != 0 || !isfinite(value) || strpbrk(text, "xXpP") != NULL)
		lc_usage("%s: \"%s\" is not a duration such as 30, 500ms, 10s, 2min, 1h or 1d", option, text);
	while (*end == ' ')
		end++;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
	{
		if (strcmp(end, units[i].name) != 0)
			continue;
		value = ceil(value * units[i].ms);
		if (value < min || value > max)
			lc_usage("%s: \"%s\" is not between %d ms and %.0f days", option, text, min, max / 86400000.0);
		return (int) value;
	}
	lc_usage("%s: \"%s\" has no unit that is known: ms, s, min, h or d", option, text);
}

int64_t
lc_number(const char *what, const char *text, int64_t min, int64_t max)
{
	char *end;
	long long value;

	errno = 0;
	value = strtoll(text, &end, 10);
	if (end == text || *end != '\0' || errno != 0 || value < min || value > max)
	{
		if (max == INT64_MAX)
			lc_usage("%s: \"%s\" is not a number of at least %lld", what, text, (long long) min);
		lc_usage("%s: \"%s\" is not a number between %lld and %lld", what, text, (long long) min,
				 (long long) max);
	}
	return value;
}

void
lc_exit_codes(const char *text, int *not_acquired, int *lost)
{
	size_t length = lost != NULL ? strcspn(text, ",") : strlen(text);
	char *first = lc_copy(text);

	first[length] = '\0';
	*not_acquired = (int) lc_number("-E", first, 0, 255);
	if (text[length] == ',')
		*lost = (int) lc_number("-E", text + length + 1, 0, 255);
	free(first);
}

/* --- options of every command --- */

/* Returns the format that the value of -o names. */
static lc_output
output_of(const char *text)
{
	if (strcmp(text, "table") == 0)
		return LC_TABLE;
	if (strcmp(text, "json") == 0)
		return LC_JSON;
	if (strcmp(text, "csv") == 0)
		return LC_CSV;
	lc_usage("-o: \"%s\" is not table, json or csv", text);
}

/* Returns whether a text is a connection string ("key=value ..." or a URI) instead of a database name. */
static bool
is_conninfo(const char *text)
{
	return strchr(text, '=') != NULL || strncmp(text, "postgresql://", 13) == 0 ||
		   strncmp(text, "postgres://", 11) == 0;
}

/* Asks libpq which options are secret.  A string that libpq cannot parse may contain a password, too. */
static bool
has_password(const char *conninfo)
{
	PQconninfoOption *options = PQconninfoParse(conninfo, NULL);
	bool found = options == NULL;

	for (PQconninfoOption *o = options; o != NULL && o->keyword != NULL; o++)
		found = found || (o->val != NULL && strcmp(o->dispchar, "*") == 0);
	PQconninfoFree(options);
	return found;
}

/*
 * Handles -d.  All users of the machine can see the arguments of a process, so a password is
 * overwritten in the arguments.
 */
static const char *
take_database(char *value)
{
	char *copy = lc_copy(value);

	if (lc_may_be_secret(value) || (is_conninfo(value) && has_password(value)))
		memset(value, '*', strlen(value));
	return copy;
}

bool
lc_take_global(int option, char *value)
{
	lc_global *g = &lc_globals;

	switch (option)
	{
		/* connection */
		case 'h':
			g->host = value;
			return true;
		case 'p':
			g->port = value;
			return true;
		case 'U':
			g->user = value;
			return true;
		case 'd':
			g->database = take_database(value);
			return true;
		case 'S':
			g->shards = value;
			return true;
		case 'N':
			g->shard = value;
			return true;
		/* output */
		case 'o':
			g->output = output_of(value);
			return true;
		case 'q':
			lc_verbosity = LC_QUIET;
			return true;
		case 'v':
			lc_verbosity = LC_VERBOSE;
			return true;
		default:
			return false;
	}
}

void
lc_bad_option(int option, const char *text)
{
	if (option == LC_OPT_HELP)
		lc_help(lc_globals.command);
	if (option == ':')
		lc_usage("option \"%s\" needs a value", text);
	/* do not show the option's value, which may be a connection string */
	if (strncmp(text, "--", 2) == 0)
		lc_usage("unknown option \"%.*s\"", (int) strcspn(text, "="), text);
	lc_usage("unknown option \"%s\"", lc_shown(text));
}

void
lc_take_word(const char **word, const char *given)
{
	if (*word != NULL)
		lc_usage("too many arguments: \"%s\"", lc_shown(given));
	*word = given;
}

void
lc_take_globals(int argc, char **argv)
{
	static const struct option options[] = {LC_HELP_OPTION, {NULL, 0, NULL, 0}};
	int option;

	optind = 0;
	opterr = 0;
	while ((option = getopt_long(argc, argv, ":" LC_GLOBAL_OPTIONS, options, NULL)) != -1)
	{
		if (!lc_take_global(option, optarg))
			lc_bad_option(option, argv[optind - 1]);
	}
}

/* --- the connection string --- */

/* Adds an option to a connection string, with its value quoted. */
static void
add(char **text, const char *key, const char *value)
{
	char *quoted = lc_alloc(strlen(value) * 2 + 1), *to = quoted, *old = *text;

	for (const char *from = value; *from != '\0'; from++)
	{
		if (*from == '\'' || *from == '\\')
			*to++ = '\\';
		*to++ = *from;
	}
	*text = lc_format("%s%s%s='%s'", old != NULL ? old : "", old != NULL ? " " : "", key, quoted);
	free(quoted);
	free(old);
}

/* Ends the program because libpq cannot parse the connection string. */
static void __attribute__((noreturn)) refuse_conninfo(const char *text)
{
	PGconn *db = PQconnectStart(text);
	le_error error;

	le_connection_error(db, &error);
	lc_usage("%s", error.message);
}

/* Builds the string from -d (a name, "key=value ..." or a URI), and -h, -p and -U, which override it. */
char *
lc_conninfo(void)
{
	const lc_global *g = &lc_globals;
	const char *database;
	bool is_string;
	PQconninfoOption *options = NULL;
	char *text = NULL;

	lc_choose_shard(NULL, 0);
	/* the database, which lc_choose_shard() may have set */
	database = g->database;
	is_string = database != NULL && is_conninfo(database);
	if (is_string)
	{
		options = PQconninfoParse(database, NULL);
		if (options == NULL)
			refuse_conninfo(database);
		for (PQconninfoOption *o = options; o->keyword != NULL; o++)
		{
			if (o->val != NULL)
				add(&text, o->keyword, o->val);
		}
		PQconninfoFree(options);
	}
	else if (database != NULL)
		add(&text, "dbname", database);
	/* add the options that override the string */
	if (g->host != NULL)
		add(&text, "host", g->host);
	if (g->port != NULL)
		add(&text, "port", g->port);
	if (g->user != NULL)
		add(&text, "user", g->user);
	return text;
}

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
