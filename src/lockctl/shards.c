/*
 * shards.c
 *		Chooses among several servers: the file of --shards lists them, and the
 *		name of a lock or election determines the server to use.
 *
 * Each line of the file has the name of a shard and, after blanks, its
 * connection string, as for -d.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "globals.h"
#include "lock_election.h"
#include "memory.h"
#include "message.h"
#include "options.h"
#include "server.h"
#include "text.h"

#define BLANKS " \t\r\n"
/* Some editors put this mark before the first line, where it would become part of a shard's name. */
#define BYTE_ORDER_MARK "\xef\xbb\xbf"

typedef struct map
{
	const char **names;
	char **conninfo;
	int n;
} map;

/* Adds a line's shard to the map.  Ends the program if the line is wrong. */
static void
add_line(map *m, const char *file, int line, char *text)
{
	char *name, *conninfo;
	size_t len;

	if (line == 1 && strncmp(text, BYTE_ORDER_MARK, strlen(BYTE_ORDER_MARK)) == 0)
		text += strlen(BYTE_ORDER_MARK);
	/* find the name; skip comments and empty lines */
	name = text + strspn(text, BLANKS);
	len = strcspn(name, BLANKS);
	if (*name == '\0' || *name == '#')
		return;
	conninfo = name + len + strspn(name + len, BLANKS);
	name[len] = '\0';
	/* if the name is missing, the line begins with the connection string, which must not be shown */
	if (lc_may_be_secret(name) || strchr(name, '=') != NULL)
		lc_usage("%s, line %d: the name of the shard is missing, or has a = or ://", file, line);
	if (*conninfo == '\0')
		lc_usage("%s, line %d: shard \"%s\" has no connection string", file, line, name);
	for (len = strlen(conninfo); strchr(BLANKS, conninfo[len - 1]) != NULL; len--)
		conninfo[len - 1] = '\0';
	for (int i = 0; i < m->n; i++)
	{
		if (strcmp(m->names[i], name) == 0)
			lc_usage("%s, line %d: shard \"%s\" appears twice", file, line, name);
	}
	/* store the shard */
	m->names = realloc(m->names, sizeof(*m->names) * (size_t) (m->n + 1));
	m->conninfo = realloc(m->conninfo, sizeof(*m->conninfo) * (size_t) (m->n + 1));
	if (m->names == NULL || m->conninfo == NULL)
		lc_die(LC_EXIT_SERVER, "out of memory");
	m->names[m->n] = lc_copy(name);
	m->conninfo[m->n++] = lc_copy(conninfo);
}

/*
 * Reads the file.  Ends the program if it cannot be read completely, because a partial list maps names to
 * other shards.
 */
static map
read_map(const char *file)
{
	FILE *in = fopen(file, "r");
	map m = {0};
	char *text = NULL;
	size_t size = 0;

	if (in == NULL)
		lc_usage("--shards: cannot open \"%s\": %s", file, strerror(errno));
	for (int line = 1; getline(&text, &size, in) >= 0; line++)
		add_line(&m, file, line, text);
	/* check feof() instead of ferror(), which does not report that memory for a line ran out */
	if (!feof(in))
		lc_usage("--shards: cannot read \"%s\": %s", file, strerror(errno));
	fclose(in);
	free(text);
	if (m.n == 0)
		lc_usage("--shards: \"%s\" has no shard", file);
	return m;
}

/* Returns the map; the first call reads it from the file. */
static const map *
the_map(void)
{
	static map m;

	if (m.n == 0)
		m = read_map(lc_globals.shards);
	return &m;
}

/* Returns the index of a shard.  Ends the program if no shard has that name. */
static int
shard_named(const map *m, const char *name)
{
	for (int i = 0; i < m->n; i++)
	{
		if (strcmp(m->names[i], name) == 0)
			return i;
	}
	lc_usage("--shard: \"%s\" has no shard \"%s\"", lc_globals.shards, name);
}

void
lc_choose_shard(const char *const *names, int n)
{
	lc_global *g = &lc_globals;
	const map *m;
	int chosen;

	/* check the options */
	if (g->shard != NULL && g->shards == NULL)
		lc_usage("--shard requires --shards");
	if (g->shards == NULL)
		return;
	if (g->host != NULL || g->port != NULL || g->database != NULL)
		lc_usage("-h, -p and -d cannot be used with --shards");
	m = the_map();
	if (g->shard == NULL && n == 0)
		lc_usage("with --shards, \"%s\" needs a name, or --shard", g->command);
	/* choose the shard, to which all names must belong */
	chosen = g->shard != NULL ? shard_named(m, g->shard) : le_shard(names[0], m->names, m->n);
	for (int i = 0; i < n; i++)
	{
		int own = le_shard(names[i], m->names, m->n);

		if (own != chosen && g->shard == NULL)
			lc_usage("\"%s\" is on shard %s and \"%s\" on shard %s: no lock spans several servers", names[0],
					 m->names[chosen], names[i], m->names[own]);
		if (own != chosen)
			lc_usage("\"%s\" is on shard %s, not on %s", names[i], m->names[own], g->shard);
	}
	lc_detail("shard \"%s\"", m->names[chosen]);
	/* continue as if -d had given the shard's connection string */
	g->database = m->conninfo[chosen];
	g->shards = g->shard = NULL;
}

/* Prints the shard of each name; without names, prints all shards. */
int
lc_shard(int argc, char **argv)
{
	const char **names = lc_words(argc, argv, NULL, argc);
	const map *m;

	if (lc_globals.shards == NULL)
		lc_usage("\"shard\" needs --shards");
	m = the_map();
	for (int i = 0; names[0] == NULL && i < m->n; i++)
		puts(m->names[i]);
	for (; *names != NULL; names++)
		puts(m->names[le_shard(*names, m->names, m->n)]);
	lc_flush();
	return 0;
}
