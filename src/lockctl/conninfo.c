/*
 * conninfo.c
 *		Builds the connection string from the global options.
 */
#include <string.h>

#include "globals.h"
#include "lock_election.h"
#include "memory.h"
#include "message.h"
#include "server.h"
#include "text.h"

/* Adds an option to a connection string, with its value quoted. */
static void
add(char **text, const char *key, const char *value)
{
	char *quoted = lc_alloc(strlen(value) * 2 + 1), *to = quoted;

	for (const char *from = value; *from != '\0'; from++)
	{
		if (*from == '\'' || *from == '\\')
			*to++ = '\\';
		*to++ = *from;
	}
	*text = lc_format("%s%s%s='%s'", *text != NULL ? *text : "", *text != NULL ? " " : "", key, quoted);
}

/* Ends the program because libpq cannot parse the connection string. */
static void __attribute__((noreturn)) refuse_conninfo(const char *text)
{
	PGconn *db = PQconnectStart(text);
	le_error error;

	le_connection_error(db, &error);
	lc_usage("%s", error.message);
}

/* Builds the string from -d (a name, "key=value ..." or a URI); -h, -p and -U override parts of -d. */
char *
lc_conninfo(void)
{
	const lc_global *g = &lc_globals;
	const char *database;
	bool is_string;
	PQconninfoOption *options = NULL;
	char *text = NULL;

	lc_choose_shard(NULL, 0);
	/* read -d only now, because lc_choose_shard() may have set it */
	database = g->database;
	is_string = database != NULL && lc_is_conninfo(database);
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
