/*
 * text.h
 *		Prepares texts for terminals and JSON.
 */
#ifndef TEXT_H
#define TEXT_H

#include <stdbool.h>

/* Replaces each character that a terminal would act upon by a question mark, for tables. */
extern char *lc_printable(const char *text);
/* Escapes the same characters as in C, for messages. */
extern char *lc_escaped(const char *text);
/* Joins the lines of a text, such as a libpq message, into one line. */
extern char *lc_line(const char *text);
/* Returns whether a text may be a connection string with a password. */
extern bool lc_may_be_secret(const char *text);
/*
 * Returns whether a text is a connection string ("key=value ..." or a URI)
 * instead of a database name.
 */
extern bool lc_is_conninfo(const char *text);
/*
 * Returns the text that messages show for a word of the command line.  The text
 * hides a word that may contain a password.
 */
extern const char *lc_shown(const char *text);
/*
 * Prints a text as a CSV field, always in quotes or only where it needs them,
 * and the separator that follows it.
 */
extern void lc_csv(const char *text, bool always, const char *end);
/* Returns the text as a JSON string, with its quotes. */
extern char *lc_json(const char *text);

#endif /* TEXT_H */
