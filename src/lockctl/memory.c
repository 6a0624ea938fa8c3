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

/* Either memory or a query result */
typedef struct block
{
	void *memory;
	PGresult *result;
} block;

static block *blocks;
static size_t nblocks, room;

/* Ends the program.  Does not use lc_die(), which needs memory. */
static void __attribute__((noreturn)) no_memory(void)
{
	fputs("lockctl: out of memory\n", stderr);
	exit(LC_EXIT_SERVER);
}

static void
keep(block one)
{
	if (nblocks == room)
	{
		room = 2 * room + 64;
		blocks = realloc(blocks, room * sizeof(*blocks));
		if (blocks == NULL)
			no_memory();
	}
	blocks[nblocks++] = one;
}

void *
lc_alloc(size_t size)
{
	void *memory = calloc(1, size);

	if (memory == NULL)
		no_memory();
	keep((block){.memory = memory});
	return memory;
}

PGresult *
lc_keep(PGresult *result)
{
	keep((block){.result = result});
	return result;
}

PGresult *
lc_own(void)
{
	return blocks[--nblocks].result;
}

size_t
lc_mark(void)
{
	return nblocks;
}

void
lc_free_since(size_t mark)
{
	for (; nblocks > mark; nblocks--)
	{
		free(blocks[nblocks - 1].memory);
		PQclear(blocks[nblocks - 1].result);
	}
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
