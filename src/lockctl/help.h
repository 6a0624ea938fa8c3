/*
 * help.h
 *		Prints the --help texts.
 */
#ifndef HELP_H
#define HELP_H

/* Prints the help of a command, or of lockctl if command is NULL, and ends the program. */
extern void lc_help(const char *command) __attribute__((noreturn));
/* Prints the version, and ends the program. */
extern void lc_version(void) __attribute__((noreturn));

#endif /* HELP_H */
