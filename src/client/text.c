/*
 * text.c
 *		Texts that grow: statements, and arrays as arguments.
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
	char *data;

	if (text->failed)
		return false;
	while (size < text->len + more + 1)
		size *= 2;
	if (size == text->size)
		return true;
	data = realloc(text->data, size);
	if (data == NULL)
	{
		text->failed = true;
		return false;
	}
	text->data = data;
	text->size = size;
	return true;
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
le_text_add_element(le_text *text, const char *value)
{
	if (!reserve(text, 2 * strlen(value) + 2))
		return;
	text->data[text->len++] = '"';
	for (; *value != '\0'; value++)
	{
		if (*value == '"' || *value == '\\')
			text->data[text->len++] = '\\';
		text->data[text->len++] = *value;
	}
	text->data[text->len++] = '"';
	text->data[text->len] = '\0';
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

int
le_line_length(const char *text)
{
	size_t len = strlen(text);

	while (len > 0 && text[len - 1] == '\n')
		len--;
	return (int) len;
}
