/*
 * options.h
 *		Parses the options and words of the commands.
 */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum lc_type
{
	LC_NO_OPTION, /* end of a list of options */

	/* without a value */
	LC_FLAG,    /* sets a bool */
	LC_SET,     /* sets an int to the option's min */
	LC_VERSION, /* prints the version, and ends the program */

	/* with a value */
	LC_TEXT,
	LC_APPEND,   /* appends a text to an array; "to" points to the pointer to the next element */
	LC_DURATION, /* an int, in ms */
	LC_INT,
	LC_INT64,
	LC_CODES,    /* int[max]: the exit codes of -E */
	LC_DATABASE, /* a text; overwritten in argv if it may contain a password */
	LC_FORMAT    /* lc_output */
} lc_type;

typedef struct lc_option
{
	const char *name; /* NULL = this command does not have the option */
	char letter;      /* short option; 0 = none */
	lc_type type;
	void *to; /* address of the variable for the value */
	int64_t min, max;
} lc_option;

typedef struct lc_parser
{
	int argc;
	char **argv;
	const lc_option *options;
	void (*unknown)(const char *word); /* called for an unknown option; NULL = not called */
	bool dashes;                       /* "--" has ended the parsing */
} lc_parser;

/* Options that every command accepts, before or after its name */
extern const lc_option lc_global_options[];

/* Starts to parse the arguments of a command or, with lc_global_options, those before the command. */
extern lc_parser lc_parse(int argc, char **argv, const lc_option *options);
/*
 * Stores the options before the next word, and returns the word; NULL at "--" or at the end.  Sets optind to
 * the index of the argument that follows.
 */
extern const char *lc_next_word(lc_parser *p);
/*
 * Stores the options of a command (options = NULL: it has none), and returns its words, followed by NULLs.
 * Ends the program if there are more than "most" words.
 */
extern const char **lc_words(int argc, char **argv, const lc_option *options, int most);

/* Converts a number.  Ends the program if the number is not between min and max. */
extern int64_t lc_number(const char *what, const char *text, int64_t min, int64_t max);

#define LC_TTL_MIN 100
#define LC_TTL_MAX 2073600000

#endif /* OPTIONS_H */
