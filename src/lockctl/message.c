/*
 * message.c
 *		Prints messages to the user.
 */
#include "message.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "globals.h"
#include "memory.h"
#include "text.h"

/*
 * Prints a message as one line in one write, so that the lines of several processes do not mix.  Escapes
 * control characters, so that a name cannot begin a new line.
 */
static void
tell(const char *format, va_list args)
{
	size_t mark = lc_mark();
	char text[2048];

	vsnprintf(text, sizeof(text), format, args);
	fprintf(stderr, "lockctl: %s\n", lc_escaped(text));
	lc_free_since(mark);
}

void
lc_tell(lc_level least, const char *format, ...)
{
	va_list args;

	if (lc_globals.verbosity < least)
		return;
	va_start(args, format);
	tell(format, args);
	va_end(args);
}

void
lc_die(int code, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	tell(format, args);
	va_end(args);
	exit(code);
}

void
lc_usage(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	tell(format, args);
	va_end(args);
	if (lc_globals.command != NULL)
		fprintf(stderr, "Try \"lockctl %s --help\".\n", lc_globals.command);
	else
		fprintf(stderr, "Try \"lockctl --help\".\n");
	exit(LC_EXIT_USAGE);
}

void
lc_flush(void)
{
	if (fflush(stdout) != 0 || ferror(stdout))
		lc_die(LC_EXIT_FAILED, "cannot write the output: %s", strerror(errno));
}
