/*
 * text.c
 *		Texts that grow: statements, and arrays as arguments, which also have bytes that are no texts.
 */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool
reserve(le_text *text, size_t more)
{
	size_t size = text->size < 256 ? 256 : text->size;
	char *data = text->data;

	while (size < text->len + more + 1)
		size *= 2;
	if (size != text->size && !text->failed)
		data = realloc(data, size);
	text->failed = text->failed || data == NULL;
	if (!text->failed)
	{
		text->data = data;
		text->size = size;
	}
	return !text->failed;
}

void
le_text_add(le_text *text, const char *format, ...)
{
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(NULL, 0, format, args);
	va_end(args);
	if (len < 0)
		text->failed = true;
	if (len < 0 || !reserve(text, (size_t) len))
		return;
	va_start(args, format);
	vsnprintf(text->data + text->len, (size_t) len + 1, format, args);
	va_end(args);
	text->len += (size_t) len;
}

void
le_text_add_bytes(le_text *text, const void *data, size_t len)
{
	if (!reserve(text, len))
		return;
	memcpy(text->data + text->len, data, len);
	text->len += len;
	text->data[text->len] = '\0';
}

void
le_text_add_element(le_text *text, const char *value)
{
	le_text_add_bytes(text, "\"", 1);
	for (; *value != '\0'; value++)
	{
		if (*value == '"' || *value == '\\')
			le_text_add_bytes(text, "\\", 1);
		le_text_add_bytes(text, value, 1);
	}
	le_text_add_bytes(text, "\"", 1);
}

void
le_text_free(le_text *text)
{
	free(text->data);
	*text = (le_text){0};
}

char *
le_copy(const char *text)
{
	size_t size = strlen(text) + 1;
	char *copy = malloc(size);

	if (copy != NULL)
		memcpy(copy, text, size);
	return copy;
}
