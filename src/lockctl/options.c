/*
 * options.c
 *		Parses the options of all commands, durations and numbers.
 */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "globals.h"
#include "help.h"
#include "lock_election.h"
#include "memory.h"
#include "message.h"
#include "text.h"

lc_global lc_globals;

/*
 * Converts "5", "5s", "500ms", "2min", "1h" or "1d" to milliseconds.  Ends the
 * program if the text is invalid.
 */
static int
duration(const char *option, const char *text, int min, int max)
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
	lc_usage("%s: \"%s\" has an unknown unit: use ms, s, min, h or d", option, text);
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

/* Stores the codes of -E, CODE[,CODE].  most is 1 if the command accepts only one code. */
static void
take_exit_codes(const char *text, int codes[2], int64_t most)
{
	size_t length = most > 1 ? strcspn(text, ",") : strlen(text);
	char *first = lc_copy(text);

	first[length] = '\0';
	codes[0] = (int) lc_number("-E", first, 0, 255);
	if (text[length] == ',')
		codes[1] = (int) lc_number("-E", text + length + 1, 0, 255);
}

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

/*
 * Returns whether libpq treats an option in the string as secret.  A string that libpq cannot parse may
 * contain a password, too.
 */
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
 * Returns a copy of the value of -d.  Overwrites a password in the arguments, which all users of the machine
 * can see.
 */
static const char *
take_database(char *value)
{
	char *copy = lc_copy(value);

	if (lc_may_be_secret(value) || (lc_is_conninfo(value) && has_password(value)))
		memset(value, '*', strlen(value));
	return copy;
}

/* --- options --- */

const lc_option lc_global_options[] = {
	{"host", 'h', LC_TEXT, &lc_globals.host, 0, 0},
	{"port", 'p', LC_TEXT, &lc_globals.port, 0, 0},
	{"username", 'U', LC_TEXT, &lc_globals.user, 0, 0},
	{"dbname", 'd', LC_DATABASE, &lc_globals.database, 0, 0},
	{"shards", 'S', LC_TEXT, &lc_globals.shards, 0, 0},
	{"shard", 'N', LC_TEXT, &lc_globals.shard, 0, 0},
	{"output", 'o', LC_FORMAT, &lc_globals.output, 0, 0},
	{"quiet", 'q', LC_SET, &lc_globals.verbosity, LC_QUIET, 0},
	{"verbose", 'v', LC_SET, &lc_globals.verbosity, LC_VERBOSE, 0},
	{"version", 0, LC_VERSION, NULL, 0, 0},
	{0},
};

/*
 * Return values of getopt_long() for --help and for the first option of a command; the values of its other
 * options follow
 */
#define CODE_HELP 256
#define CODE_OWN  257

#define LONGS_MAX 16

/* Stores the value of an option. */
static void
store(const lc_option *o, char *value)
{
	const char *name = lc_format("--%s", o->name);

	switch (o->type)
	{
		case LC_NO_OPTION:
			break;
		case LC_FLAG:
			*(bool *) o->to = true;
			break;
		case LC_SET:
			*(int *) o->to = (int) o->min;
			break;
		case LC_VERSION:
			lc_version();
		case LC_TEXT:
			*(const char **) o->to = value;
			break;
		case LC_APPEND:
			*(*(const char ***) o->to)++ = value;
			break;
		case LC_DURATION:
			*(int *) o->to = duration(name, value, (int) o->min, (int) o->max);
			break;
		case LC_INT:
			*(int *) o->to = (int) lc_number(name, value, o->min, o->max);
			break;
		case LC_INT64:
			*(int64_t *) o->to = lc_number(name, value, o->min, o->max);
			break;
		case LC_CODES:
			take_exit_codes(value, o->to, o->max);
			break;
		case LC_DATABASE:
			*(const char **) o->to = take_database(value);
			break;
		case LC_FORMAT:
			*(lc_output *) o->to = output_of(value);
			break;
	}
}

/* Returns the option for a code that getopt_long() has returned, or NULL if there is none. */
static const lc_option *
option_of(const lc_option *options, int code)
{
	for (const lc_option *o = options; o->type != LC_NO_OPTION; o++)
	{
		if (o->name != NULL && (code == o->letter || code == CODE_OWN + (o - options)))
			return o;
	}
	return NULL;
}

/* Adds the letters of the options to the string for getopt_long(). */
static void
add_letters(char *letters, const lc_option *options)
{
	letters += strlen(letters);
	for (const lc_option *o = options; o->type != LC_NO_OPTION; o++)
	{
		if (o->letter != 0 && o->name != NULL)
			letters += sprintf(letters, "%c%s", o->letter, o->type < LC_TEXT ? "" : ":");
	}
}

/* Handles --help, an unknown option, or an option that lacks its value. */
static void __attribute__((noreturn)) refuse(int code, const char *text)
{
	if (code == CODE_HELP)
		lc_help(lc_globals.command);
	if (code == ':')
		lc_usage("option \"%s\" needs a value", text);
	/* do not show the option's value, which may be a connection string */
	if (strncmp(text, "--", 2) == 0)
		lc_usage("unknown option \"%.*s\"", (int) strcspn(text, "="), text);
	lc_usage("unknown option \"%s\"", lc_shown(text));
}

lc_parser
lc_parse(int argc, char **argv, const lc_option *options)
{
	static const lc_option none[] = {{0}};

	optind = 0;
	opterr = 0;
	return (lc_parser){.argc = argc, .argv = argv, .options = options != NULL ? options : none};
}

const char *
lc_next_word(lc_parser *p)
{
	bool global = p->options == lc_global_options;
	struct option longs[LONGS_MAX + 2] = {{"help", no_argument, NULL, CODE_HELP}};
	char letters[4 * LONGS_MAX];
	int n = 1;

	/* describe the options to getopt_long(); "+" makes it stop at the first word, which is the command */
	strcpy(letters, global ? "+:" : "-:");
	add_letters(letters, p->options);
	if (!global)
		add_letters(letters, lc_global_options);
	for (const lc_option *o = p->options; o->type != LC_NO_OPTION; o++)
	{
		if (o->name != NULL)
			longs[n++] =
				(struct option){o->name, o->type >= LC_TEXT, NULL, CODE_OWN + (int) (o - p->options)};
	}
	/* store options until a word, "--" or the end */
	for (;;)
	{
		int at = optind != 0 ? optind : 1;
		int code = getopt_long(p->argc, p->argv, letters, longs, NULL);
		const lc_option *o = option_of(p->options, code);

		if (code == 1)
			return optarg;
		if (code == -1)
		{
			p->dashes = optind > at;
			return NULL;
		}
		if (o == NULL)
			o = option_of(lc_global_options, code);
		if (o == NULL && code == '?' && p->unknown != NULL)
			p->unknown(p->argv[at]);
		if (o == NULL)
			refuse(code, p->argv[at]);
		store(o, optarg);
	}
}

const char **
lc_words(int argc, char **argv, const lc_option *options, int most)
{
	lc_parser p = lc_parse(argc, argv, options);
	const char **words = lc_alloc(sizeof(*words) * (size_t) (argc + 2)), *word;
	int n = 0;

	while ((word = lc_next_word(&p)) != NULL)
		words[n++] = word;
	while (optind < argc)
		words[n++] = argv[optind++];
	if (n > most)
		lc_usage("too many arguments: \"%s\"", lc_shown(words[most]));
	return words;
}
