/*
 * message.h
 *		Prints messages to the user.
 */
#ifndef MESSAGE_H
#define MESSAGE_H

#include "globals.h"

/* Print a message to stderr, after the program's name.  -q suppresses notices; only -v shows details. */
#define lc_error(...)  lc_tell(LC_QUIET, __VA_ARGS__)
#define lc_notice(...) lc_tell(LC_NORMAL, __VA_ARGS__)
#define lc_detail(...) lc_tell(LC_VERBOSE, __VA_ARGS__)
extern void lc_tell(lc_level least, const char *format, ...) __attribute__((format(printf, 2, 3)));
extern void lc_die(int code, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));
extern void lc_usage(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
/* Flushes stdout.  Ends the program if that fails. */
extern void lc_flush(void);

#endif /* MESSAGE_H */
