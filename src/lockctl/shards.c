/*
 * shards.c
 *		Several servers: --shards FILE says which there are, and the name of a
 *		lock or election which of them is meant.
 *
 * A line of the file is the name of a shard and, behind blanks, how to connect
 * to it, as -d takes it.
 */
#include "lockctl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLANKS " \t\r\n"
/* What some editors put before the first line; it would be a part of a shard's name, and so of the map. */
#define BYTE_ORDER_MARK "\xef\xbb\xbf"

typedef struct map
{
	const char **names;
	char **conninfo;
	int n;
} map;

static void
add_line(map *m, const char *file, int line, char *text)
{
	char *name, *conninfo;
	size_t len;

	if (line == 1 && strncmp(text, BYTE_ORDER_MARK, strlen(BYTE_ORDER_MARK)) == 0)
		text += strlen(BYTE_ORDER_MARK);
	name = text + strspn(text, BLANKS);
	len = strcspn(name, BLANKS);
	if (*name == '\0' || *name == '#')
		return;
	conninfo = name + len + strspn(name + len, BLANKS);
	name[len] = '\0';
	/* a line without a name begins with the connection string, of which nothing is shown */
	if (lc_may_be_secret(name) || strchr(name, '=') != NULL)
		lc_usage("%s, line %d: the name of the shard is missing, or has a = or ://", file, line);
	if (*conninfo == '\0')
		lc_usage("%s, line %d: shard \"%s\" has no connection string", file, line, name);
	for (len = strlen(conninfo); strchr(BLANKS, conninfo[len - 1]) != NULL; len--)
		conninfo[len - 1] = '\0';
	for (int i = 0; i < m->n; i++)
	{
		if (strcmp(m->names[i], name) == 0)
			lc_usage("%s, line %d: shard \"%s\" is there twice", file, line, name);
	}
	m->names = realloc(m->names, sizeof(*m->names) * (size_t) (m->n + 1));
	m->conninfo = realloc(m->conninfo, sizeof(*m->conninfo) * (size_t) (m->n + 1));
	if (m->names == NULL || m->conninfo == NULL)
		lc_die(LC_EXIT_SERVER, "out of memory");
	m->names[m->n] = lc_copy(name);
	m->conninfo[m->n++] = lc_copy(conninfo);
}

/* A file that cannot be read whole is none: half a map is another map. */
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
	/* also where a line does not fit into memory, which is no error of the file */
	if (!feof(in))
		lc_usage("--shards: cannot read \"%s\": %s", file, strerror(errno));
	fclose(in);
	free(text);
	if (m.n == 0)
		lc_usage("--shards: \"%s\" has no shard", file);
	return m;
}

static const map *
the_map(void)
{
	static map m;

	if (m.n == 0)
		m = read_map(lc_globals.shards);
	return &m;
}

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

	if (g->shard != NULL && g->shards == NULL)
		lc_usage("--shard is for --shards");
	if (g->shards == NULL)
		return;
	if (g->host != NULL || g->port != NULL || g->database != NULL)
		lc_usage("-h, -p and -d are not with --shards");
	m = the_map();
	if (g->shard == NULL && n == 0)
		lc_usage("with --shards, \"%s\" needs a name, or --shard", g->command);
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
	g->database = m->conninfo[chosen];
	g->shards = g->shard = NULL;
}

/* Without names: the shards. */
int
lc_shard(int argc, char **argv)
{
	const map *m;

	lc_take_globals(argc, argv);
	if (lc_globals.shards == NULL)
		lc_usage("\"shard\" needs --shards");
	m = the_map();
	for (int i = 0; optind == argc && i < m->n; i++)
		puts(m->names[i]);
	for (int i = optind; i < argc; i++)
		puts(m->names[le_shard(argv[i], m->names, m->n)]);
	lc_flush();
	return 0;
}
