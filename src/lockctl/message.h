/*
 * message.h
 *		Messages to the user.
 */
#ifndef MESSAGE_H
#define MESSAGE_H

/* Print messages to stderr, with the program's name.  Errors are never suppressed. */
extern void lc_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern void lc_notice(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern void lc_detail(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern void lc_die(int code, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));
extern void lc_usage(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
/* Flushes stdout.  Ends the program if that fails. */
extern void lc_flush(void);

#endif /* MESSAGE_H */
