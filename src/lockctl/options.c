/*
 * options.c
 *		The global options, durations and numbers.
 */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "globals.h"
#include "help.h"
#include "lock_election.h"
#include "memory.h"
#include "message.h"
#include "text.h"

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

	if (lc_may_be_secret(value) || (lc_is_conninfo(value) && has_password(value)))
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
			lc_globals.verbosity = LC_QUIET;
			return true;
		case 'v':
			lc_globals.verbosity = LC_VERBOSE;
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
