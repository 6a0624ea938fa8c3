/*
 * globals.h
 *		Declares exit codes and global options.
 *
 * The functions of a file are declared in the header of the same name, with
 * these exceptions: commands.h declares the commands, server.h declares shards.c
 * and conninfo.c, and guardian.h declares link.c, tree.c and cgroup.c.
 *
 * lockctl runs a command (CMD) under a lock, or shows and changes locks from a
 * shell.  To run a command, it uses three processes:
 *
 *		lockctl --- has the session of liblockelection, which renews the lease
 *		   |
 *		guardian -- has the deadline and a timer, but no thread or connection
 *		   |
 *		CMD ------- runs in its own process group
 *
 * A socket connects lockctl and the guardian.  lockctl sends each new deadline
 * to the guardian.  The guardian ends CMD before the deadline if no later
 * deadline arrives, because lockctl is stopped or cut off from the server.  It
 * ends CMD at once if the socket is closed, because lockctl has ended.
 */
#ifndef GLOBALS_H
#define GLOBALS_H

/* --- exit codes --- */

#define LC_EXIT_FAILED       1 /* doctor found a problem, or the named object does not exist */
#define LC_EXIT_NOT_ACQUIRED 3
#define LC_EXIT_LOST         4
#define LC_EXIT_USAGE        64
#define LC_EXIT_SERVER       69
#define LC_EXIT_AT_MOST      124 /* --at-most ended CMD; same code as timeout(1) */
#define LC_EXIT_CANNOT_RUN   126
#define LC_EXIT_NOT_FOUND    127
#define LC_EXIT_SIGNAL       128 /* plus the number of the signal that ended CMD or lockctl */

/* --- global options --- */

typedef enum lc_level
{
	LC_QUIET = -1,
	LC_NORMAL,
	LC_VERBOSE
} lc_level;

typedef enum lc_output
{
	LC_TABLE,
	LC_JSON,
	LC_CSV
} lc_output;

/* Global options, given before the command or among its options */
typedef struct lc_global
{
	const char *host, *port, *user, *database;
	const char *shards, *shard; /* path of the shards file; name of the selected shard */
	lc_output output;
	lc_level verbosity;
	const char *command;
} lc_global;

extern lc_global lc_globals;

#endif /* GLOBALS_H */
