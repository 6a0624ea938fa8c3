/*
 * text.c
 *		Appends to texts, for statements and for the items of a turn.
 */
#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void
le_text_add_bytes(le_text *text, const void *data, size_t len)
{
	size_t size = text->size < 256 ? 256 : text->size;
	char *grown = text->data;

	while (size < text->len + len + 1)
		size *= 2;
	if (size != text->size && !text->failed)
		grown = realloc(grown, size);
	text->failed = text->failed || grown == NULL;
	if (text->failed)
		return;
	text->data = grown;
	text->size = size;
	memcpy(text->data + text->len, data, len);
	text->len += len;
	text->data[text->len] = '\0';
}

/* Adds at most 511 bytes, which is enough for a name and some words; a longer text sets failed. */
void
le_text_add(le_text *text, const char *format, ...)
{
	char added[512];
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(added, sizeof(added), format, args);
	va_end(args);
	if (len >= 0 && (size_t) len < sizeof(added))
		le_text_add_bytes(text, added, (size_t) len);
	else
		text->failed = true;
}

char *
le_copy(const char *text)
{
	size_t size = strlen(text) + 1;
	char *copy = malloc(size);

	return copy != NULL ? memcpy(copy, text, size) : NULL;
}
