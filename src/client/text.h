/*
 * text.h
 *		Appends to texts, and copies texts.
 */
#ifndef LE_CLIENT_TEXT_H
#define LE_CLIENT_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* A text that can be appended to; failed means that memory ran out and the text is incomplete */
typedef struct le_text
{
	char *data;
	size_t len, size;
	bool failed;
} le_text;

/* Append to a text, or set failed.  Do nothing if failed is set. */
extern void le_text_add(le_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
extern void le_text_add_bytes(le_text *text, const void *data, size_t len);
extern char *le_copy(const char *text); /* returns NULL if out of memory */

#endif /* LE_CLIENT_TEXT_H */
