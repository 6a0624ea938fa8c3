/*
 * memory.c
 *		Allocates memory and texts.  Ends the program if there is no memory.
 */
#include "memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "globals.h"

void *
lc_alloc(size_t size)
{
	void *memory = calloc(1, size);

	if (memory == NULL)
	{
		/* Write directly, because other messages need memory. */
		fputs("lockctl: out of memory\n", stderr);
		exit(LC_EXIT_SERVER);
	}
	return memory;
}

char *
lc_copy(const char *text)
{
	size_t size = strlen(text) + 1;

	return memcpy(lc_alloc(size), text, size);
}

char *
lc_vformat(const char *format, va_list args)
{
	va_list again;
	char *text;
	int length;

	va_copy(again, args);
	length = vsnprintf(NULL, 0, format, again);
	va_end(again);
	text = lc_alloc((size_t) length + 1);
	vsnprintf(text, (size_t) length + 1, format, args);
	return text;
}

char *
lc_format(const char *format, ...)
{
	va_list args;
	char *text;

	va_start(args, format);
	text = lc_vformat(format, args);
	va_end(args);
	return text;
}
