/*
 * options.h
 *		Options of the commands.
 */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

/* Options of every command.  Codes of a command's own long options begin after LC_OPT_HELP. */
#define LC_GLOBAL_OPTIONS "h:p:U:d:S:N:o:qv"
#define LC_OPT_HELP       256
#define LC_HELP_OPTION                                                                                       \
	{                                                                                                        \
		"help", 0, NULL, LC_OPT_HELP                                                                         \
	}

/*
 * Handles a global option.  Returns false if the option is not global.
 * Overwrites a value that has a password.
 */
extern bool lc_take_global(int option, char *value);
/* Handles all other options: --help, an unknown option, or an option that lacks its value. */
extern void lc_bad_option(int option, const char *text) __attribute__((noreturn));
/* Stores the only word of a command.  Ends the program if there is one already. */
extern void lc_take_word(const char **word, const char *given);

/* Handles the options of a command that has only global options.  Sets optind to its first argument. */
extern void lc_take_globals(int argc, char **argv);

/*
 * Converts "5", "5s", "500ms", "2min", "1h" or "1d" to milliseconds.  Ends the
 * program if the text is invalid.
 */
extern int lc_duration(const char *option, const char *text, int min, int max);
/* Converts a number.  Ends the program if the number is not between min and max. */
extern int64_t lc_number(const char *what, const char *text, int64_t min, int64_t max);
/* Parses the values of -E, CODE[,LOST]; if lost is NULL, only CODE is allowed. */
extern void lc_exit_codes(const char *text, int *not_acquired, int *lost);

#define LC_TTL_MIN 100
#define LC_TTL_MAX 2073600000

#endif /* OPTIONS_H */
