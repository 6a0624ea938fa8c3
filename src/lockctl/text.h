/*
 * text.h
 *		Prepares texts for terminals and JSON.
 */
#ifndef TEXT_H
#define TEXT_H

#include <stdbool.h>

/* Returns a copy for tables, with a question mark for each character that a terminal would act upon. */
extern char *lc_printable(const char *text);
/* Returns a copy for messages, with C escape sequences for characters that a terminal would act upon. */
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
/* Returns a word of the command line for messages, or a substitute if it may contain a password. */
extern const char *lc_shown(const char *text);
/* Prints a text as a CSV field, followed by "end".  Quotes it if necessary, or if "always" is set. */
extern void lc_csv(const char *text, bool always, const char *end);
/* Returns the text as a JSON string, with its quotes. */
extern char *lc_json(const char *text);

#endif /* TEXT_H */
