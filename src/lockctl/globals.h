/*
 * globals.h
 *		Exit codes and global options.  The functions of each file are declared in
 *		a header of its name; those of the commands in commands.h, of shards.c and
 *		conninfo.c in server.h, and of link.c, tree.c and cgroup.c in guardian.h.
 *
 * lockctl runs a command (CMD) under a lock, or shows and changes locks from a
 * shell.  To run a command, it uses three processes:
 *
 *		lockctl --- has the session of liblockelection, which renews the lease
 *		   |
 *		guardian -- has the deadline and a timer; no thread, no connection
 *		   |
 *		CMD ------- in a process group of its own
 *
 * A socket connects lockctl and the guardian.  lockctl sends each new deadline
 * to the guardian.  The guardian ends CMD before the deadline if no later
 * deadline arrives, because lockctl is stopped or cut off from the server, or
 * if the socket is closed, because lockctl has ended.
 */
#ifndef GLOBALS_H
#define GLOBALS_H

/* --- exit codes --- */

#define LC_EXIT_FAILED       1 /* doctor has found a problem, or no object has that name */
#define LC_EXIT_NOT_ACQUIRED 3
#define LC_EXIT_LOST         4
#define LC_EXIT_USAGE        64
#define LC_EXIT_SERVER       69
#define LC_EXIT_AT_MOST      124 /* same as timeout(1) */
#define LC_EXIT_CANNOT_RUN   126
#define LC_EXIT_NOT_FOUND    127
#define LC_EXIT_SIGNAL       128 /* plus the number of the signal */

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

/* Global options, which may be before the command or among its options */
typedef struct lc_global
{
	const char *host, *port, *user, *database;
	const char *shards, *shard; /* name of the shards file; name of the shard that was chosen */
	lc_output output;
	lc_level verbosity;
	const char *command;
} lc_global;

extern lc_global lc_globals;

#endif /* GLOBALS_H */
