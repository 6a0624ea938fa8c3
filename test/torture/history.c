/*
 * history.c
 *		Reads histories: see record.c for the lines of clients.  The nemesis
 *		writes
 *
 *		N <from> <to> <kind> [process id of a client]
 *		G <time> <what> <count>		what is left at the end
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

Clients clients;
Windows windows;
Lefts lefts;
static LIST(const char *) names;

void *
grow(void *list, size_t count, size_t *room, size_t size)
{
	if (count < *room)
		return list;
	*room = *room ? 2 * *room : 8;
	list = realloc(list, *room * size);
	if (list == NULL)
	{
		perror("check");
		exit(2);
	}
	memset((char *) list + count * size, 0, (*room - count) * size);
	return list;
}

int
name_number(const char *name)
{
	for (size_t i = 0; i < names.n; i++)
		if (strcmp(names.at[i], name) == 0)
			return (int) i;
	*APPEND(names) = strdup(name);
	return (int) names.n - 1;
}

const char *
name_text(int number)
{
	return names.at[number];
}

int
name_count(void)
{
	return (int) names.n;
}

bool
is_op(const Call *call, const char *op)
{
	return strcmp(call->op, op) == 0;
}

static void
bad_line(const char *path, const char *line)
{
	fprintf(stderr, "%s: not a line of a history: %s\n", path, line);
	exit(2);
}

static void
parse_names(Call *call, char *list)
{
	char *save = NULL;

	if (strcmp(list, "-") == 0)
		return;
	for (char *p = strtok_r(list, ",", &save); p && call->nnames < MAX_NAMES; p = strtok_r(NULL, ",", &save))
		call->names[call->nnames++] = name_number(p);
}

static void
parse_argument(Call *call, char *word)
{
	char *value = strchr(word, '=');
	long long n;

	if (value == NULL)
		return;
	*value++ = '\0';
	n = strtoll(value, NULL, 10);
	if (strcmp(word, "mode") == 0)
	{
		call->mode = value[0];
		call->permits = atoi(value + 1);
	}
	else if (strcmp(word, "ttl") == 0)
		call->ttl = n * MS;
	else if (strcmp(word, "wait") == 0)
		call->wait = n < 0 ? FOREVER : n * MS;
	else if (strcmp(word, "hold_for") == 0)
		call->hold_for = n * MS;
	else if (strcmp(word, "owner") == 0)
		call->owner = strcmp(value, "-") == 0 ? NULL : strdup(value);
	else if (strcmp(word, "lease") == 0)
		call->lease = n;
	else if (strcmp(word, "token") == 0)
		call->token = n;
	else if (strcmp(word, "value") == 0)
		call->value = n;
	else if (strcmp(word, "after") == 0)
		call->after = n;
}

/* C <time> <number> <connection> <operation> <names> <arguments> */
static bool
parse_call(Client *client, Time t, char *rest, const char *line)
{
	Call *call = APPEND(client->calls);
	char *save = NULL;
	char *words[16];
	int n = 0;

	for (char *p = strtok_r(rest, " ", &save); p && n < 16; p = strtok_r(NULL, " ", &save))
		words[n++] = p;
	if (n < 4)
		return false;
	call->asked_line = line;
	call->sent = t;
	call->received = FOREVER;
	call->status = STATUS_UNKNOWN;
	call->number = atol(words[0]);
	call->connection = atol(words[1]);
	call->op = strdup(words[2]);
	parse_names(call, words[3]);
	for (int i = 4; i < n; i++)
		parse_argument(call, words[i]);
	return true;
}

/* A <time> <number> <status> <answer> */
static bool
parse_answer(Client *client, Time t, char *rest, const char *line)
{
	static const char *const statuses[] = {"ok", "null", "error", "unknown"};
	Call *call = client->calls.at + client->calls.n;
	char status[16];
	long number;
	int used = 0;

	if (sscanf(rest, "%ld %15s%n", &number, status, &used) != 2)
		return false;
	/* the last call, or one of those that were made together with it */
	do
	{
		if (call == client->calls.at || (--call)->number < number)
			return false;
	} while (call->number != number);
	call->answer_line = line;
	call->received = t;
	call->answer = strdup(rest[used] == ' ' ? rest + used + 1 : "");
	for (int i = 0; i < 4; i++)
		if (strcmp(status, statuses[i]) == 0)
		{
			call->status = (Status) i;
			return true;
		}
	return false;
}

static bool
parse_connection(Client *client, char kind, Time t, const char *rest, const char *line)
{
	Call *call = APPEND(client->calls);

	call->op = kind == 'S' ? "S" : "X";
	call->connection = atol(rest);
	call->sent = call->received = t;
	call->asked_line = line;
	call->number = -1;
	return true;
}

static bool
parse_window(Time t, const char *rest, const char *line)
{
	Window *w = APPEND(windows);
	char kind[64];
	long long to;

	w->from = t;
	w->line = line;
	if (sscanf(rest, "%lld %63s %ld", &to, kind, &w->pid) < 2)
		return false;
	w->to = to;
	w->kind = strdup(kind);
	return true;
}

static bool
parse_left(const char *rest, const char *line)
{
	Left *left = APPEND(lefts);
	char what[64];

	if (sscanf(rest, "%63s %ld", what, &left->count) != 2)
		return false;
	left->what = strdup(what);
	left->line = line;
	return true;
}

static bool
parse_line(Client **client, char *text, const char *line)
{
	long long t;
	int used = 0;
	char kind;
	char *rest;

	if (sscanf(text, "%c %lld %n", &kind, &t, &used) < 2)
		return false;
	rest = text + used;
	if (kind == 'N')
		return parse_window(t, rest, line);
	if (kind == 'G')
		return parse_left(rest, line);
	if (kind == 'P')
	{
		*client = APPEND(clients);
		(*client)->pid = atol(rest);
		(*client)->name = strdup(strchr(rest, ' ') ? strchr(rest, ' ') + 1 : "");
		(*client)->death = FOREVER;
		return true;
	}
	if (*client == NULL)
		return false;
	switch (kind)
	{
		case 'C':
			return parse_call(*client, t, rest, line);
		case 'A':
			return parse_answer(*client, t, rest, line);
		case 'S':
		case 'X':
			return parse_connection(*client, kind, t, rest, line);
	}
	return false;
}

void
read_history(const char *path)
{
	FILE *f = fopen(path, "r");
	char *text = NULL;
	size_t room = 0;
	ssize_t len;
	Client *client = NULL;

	if (f == NULL)
	{
		perror(path);
		exit(2);
	}
	while ((len = getline(&text, &room, f)) > 0)
	{
		char *line;

		if (text[len - 1] != '\n')
			break; /* killed while it wrote */
		text[len - 1] = '\0';
		if (text[0] == '\0' || text[0] == '#')
			continue;
		line = strdup(text);
		if (!parse_line(&client, text, line))
			bad_line(path, line);
	}
	free(text);
	fclose(f);
}

static int
by_from(const void *a, const void *b)
{
	const Window *x = a, *y = b;

	return (x->from > y->from) - (x->from < y->from);
}

/*
 * A client that was killed knows nothing after its death. Its calls get their
 * pointers to it only here, because the list of clients has moved while it grew.
 */
void
finish_reading(void)
{
	if (windows.n > 0)
		qsort(windows.at, windows.n, sizeof(Window), by_from);
	for (size_t i = 0; i < clients.n; i++)
	{
		Client *c = &clients.at[i];

		for (size_t j = 0; j < windows.n; j++)
			if (windows.at[j].pid == c->pid && strcmp(windows.at[j].kind, "kill-client") == 0)
				c->death = windows.at[j].to;
		for (size_t j = 0; j < c->calls.n; j++)
		{
			Call *call = &c->calls.at[j];

			call->client = c;
			if (call->answer_line == NULL && call->number >= 0)
				call->received = c->death;
		}
	}
}

/*
 * Returns the end of the first window after t whose changes, made by an old primary, are not on the new one;
 * FOREVER if there is none.
 */
Time
lost_after(Time t)
{
	for (size_t i = 0; i < windows.n; i++)
		if (strcmp(windows.at[i].kind, "lose-tail") == 0 && windows.at[i].to > t)
			return windows.at[i].to;
	return FOREVER;
}

/* Returns whether changes of this time were made by an old primary, and are not on the new one. */
bool
in_lost_tail(Time t)
{
	for (size_t i = 0; i < windows.n; i++)
		if (strcmp(windows.at[i].kind, "lose-tail") == 0 && windows.at[i].from <= t && t < windows.at[i].to)
			return true;
	return false;
}
