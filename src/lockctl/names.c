/*
 * names.c
 *		Checks the names of locks, and passes them to CMD.
 */
#include "names.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "globals.h"
#include "memory.h"
#include "message.h"
#include "text.h"

#define NAME_MAX_BYTES 255

/* Linux's maximum size in bytes of one environment string, and of all arguments and environment strings */
#define STRING_MAX 131072
#define ALL_MAX    (6 * 1024 * 1024)
/* Bytes reserved for LOCK_TOKEN, and for data that the kernel adds, such as an interpreter's name */
#define SPARE 8192

extern char **environ;

void
lc_check_names(const char *const *names, int n, const char *what)
{
	for (int i = 0; i < n; i++)
	{
		size_t length = strlen(names[i]);

		if (length == 0)
			lc_usage("the name of the %s is empty", what);
		if (length > NAME_MAX_BYTES)
			lc_usage("the name of the %s has %zu bytes: at most %d are allowed", what, length,
					 NAME_MAX_BYTES);
	}
}

/* Returns the number of bytes that strings occupy in a new process. */
static size_t
size_of(char *const *strings)
{
	size_t size = 0;

	for (; *strings != NULL; strings++)
		size += strlen(*strings) + 1 + sizeof(*strings);
	return size;
}

/* Checks that CMD's arguments and environment are not too long, before the lock is acquired. */
static void
check_size(size_t list, int n, char *const *command)
{
	size_t all = size_of(environ) + size_of(command) + SPARE, most;
	long limit = sysconf(_SC_ARG_MAX);

	most = limit > 0 && limit < ALL_MAX ? (size_t) limit : ALL_MAX;
	if (list > STRING_MAX)
		lc_usage(
			"the names of %d locks are too long for the command: LOCK_NAMES has %zu bytes, at most %d are "
			"allowed",
			n, list, STRING_MAX);
	if (all > most)
		lc_usage("the command cannot run: its arguments and its environment have %zu bytes, at most %zu are "
				 "allowed",
				 all, most);
}

/*
 * CMD inherits the environment from the guardian.  LOCK_NAMES is a JSON array, which can be parsed no matter
 * what the names contain.  LOCK_NAME is set only for a single name.
 */
void
lc_set_environment(const char *const *names, int n, char *const *command)
{
	size_t room = 2;
	char *list, *end;
	bool failed;

	for (int i = 0; i < n; i++)
		room += 6 * strlen(names[i]) + 4;
	end = list = lc_alloc(room);
	for (int i = 0; i < n; i++)
		end += sprintf(end, "%s%s", i == 0 ? "[" : ", ", lc_json(names[i]));
	strcpy(end, "]");
	failed = n == 1 ? setenv("LOCK_NAME", names[0], 1) != 0 : unsetenv("LOCK_NAME") != 0;
	if (failed || setenv("LOCK_NAMES", list, 1) != 0)
		lc_die(LC_EXIT_CANNOT_RUN, "out of memory");
	check_size(strlen("LOCK_NAMES=") + strlen(list) + 1, n, command);
}
