/*
 * lockctl.h
 *		Declarations shared by the files of lockctl.
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
#ifndef LOCKCTL_H
#define LOCKCTL_H

#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <libpq-fe.h>

#include "lock_election.h"

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

/* --- message.c --- */

typedef enum lc_level
{
	LC_QUIET = -1,
	LC_NORMAL,
	LC_VERBOSE
} lc_level;

extern lc_level lc_verbosity;

/* Print messages to stderr, with the program's name.  Errors are never suppressed. */
extern void lc_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern void lc_notice(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern void lc_detail(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern void lc_die(int code, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));
extern void lc_usage(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
extern void *lc_alloc(size_t size); /* zeroed; never returns NULL */
extern char *lc_copy(const char *text);
extern char *lc_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern char *lc_vformat(const char *format, va_list args) __attribute__((format(printf, 1, 0)));
/* Flushes stdout.  Ends the program if that fails. */
extern void lc_flush(void);

/* --- text.c: functions that return char * allocate a text that the caller must free --- */

/* Replaces each character that a terminal would act upon by a question mark, for tables. */
extern char *lc_printable(const char *text);
/* Escapes the same characters as in C, for messages. */
extern char *lc_escaped(const char *text);
/* Joins the lines of a text, such as a libpq message, into one line. */
extern char *lc_line(const char *text);
/* Returns whether a text may be a connection string with a password. */
extern bool lc_may_be_secret(const char *text);
/*
 * Returns the text that messages show for a word of the command line.  The text
 * hides a word that may contain a password.  The caller must not free it.
 */
extern const char *lc_shown(const char *text);
/* Returns the text as a JSON string, with its quotes. */
extern char *lc_json(const char *text);

/* --- options.c --- */

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
	const char *command;
} lc_global;

extern lc_global lc_globals;

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
/*
 * Returns the connection string that the global options describe, or NULL if
 * they describe none and only the environment applies.  The caller must free
 * it.  With --shards, a shard must have been chosen.
 */
extern char *lc_conninfo(void);
/* Returns the exit code for a status. */
extern int lc_exit_code(le_status status);

#define LC_TTL_MIN 100
#define LC_TTL_MAX 2073600000

/* --- shards.c --- */

/*
 * With --shards, chooses the server to which these names belong.  Ends the
 * program if they belong to different servers, or if there is neither a name
 * nor --shard.
 */
extern void lc_choose_shard(const char *const *names, int n);

/* --- names.c --- */

/* Ends the program if one of the names is not allowed.  what is "lock" or "election". */
extern void lc_check_names(const char *const *names, int n, const char *what);
/*
 * Sets LOCK_NAME and LOCK_NAMES for CMD.  Ends the program if these variables,
 * or all arguments and variables of CMD together, are too long for the system.
 * Must be called before anything is acquired.
 */
extern void lc_set_environment(const char *const *names, int n, char *const *command);

/* --- help.c --- */

/* Prints the help of a command, or of lockctl if command is NULL, and ends the program. */
extern void lc_help(const char *command) __attribute__((noreturn));
/* Prints the version, and ends the program. */
extern void lc_version(void) __attribute__((noreturn));

/* --- signals.c --- */

/*
 * Called at program start.  Until lc_signals_fd() is called, a signal ends the
 * program at once, because nothing is held.
 */
extern void lc_signals_start(void);
/* Returns a descriptor from which signals are read from now on. */
extern int lc_signals_fd(void);
/* Returns the next signal, or 0 if there is none. */
extern int lc_signals_next(int fd);
/* Makes this signal, too, be read from the descriptor. */
extern void lc_signals_add(int fd, int signo);
/* Restores the default effect of this signal. */
extern void lc_signals_allow(int signo);
/* Ends the program by this signal, so that a shell loop or script notices the interruption. */
extern void lc_signals_die(int signo) __attribute__((noreturn));
/* Called in a child before exec.  Restores the signal handling with which the program was started. */
extern void lc_signals_restore(void);

/* --- tree.c --- */

/* Returns whether /proc shows lockctl's own processes, such as this child. */
extern bool lc_tree_is_visible(pid_t child);
/*
 * Sends a signal to all descendants of a process, including those in other
 * sessions, and continues stopped descendants.  Returns the number of processes
 * to which the signal was sent.
 */
extern int lc_tree_signal(pid_t root, int signo);

/* --- cgroup.c --- */

/*
 * Finds out whether CMD can have its own control group.  If not, the following
 * functions do nothing, except that lc_cgroup_fork() still forks.
 */
extern void lc_cgroup_find(void);
/* Forks a child that is in the group from its beginning. */
extern pid_t lc_cgroup_fork(void);
/* Kills all processes in the group. */
extern void lc_cgroup_kill(void);
/* Removes the group, which must be empty. */
extern void lc_cgroup_remove(void);

/* --- guardian.c: the protocol, and the process --- */

typedef enum lc_what
{
	/* to the guardian */
	LC_START = 1, /* token, deadline; value = 1 to make CMD's group the foreground group, or 0 */
	LC_DEADLINE,  /* new deadline */
	LC_SIGNAL,    /* value = a signal for CMD's process group */
	LC_END,       /* end CMD, because it has run for --at-most */

	/* from the guardian */
	LC_STARTED, /* value = CMD's process id */
	LC_STOPPED, /* value = the signal that has stopped CMD */
	LC_EXITED,  /* value = CMD's wait status; processes that CMD has started may still run */
	LC_LATE,    /* the deadline is near: SIGTERM was sent */
	LC_GONE     /* CMD and all its descendants have ended */
} lc_what;

typedef struct lc_message
{
	int32_t what;
	int32_t value;
	int64_t token;
	int64_t deadline; /* point of le_now() */
} lc_message;

typedef struct lc_command
{
	char **argv;
	int ttl, grace; /* ms */
	bool notify;    /* NOTIFY_SOCKET is for lockctl and must be hidden from CMD */
} lc_command;

typedef struct lc_guardian
{
	pid_t pid;
	int fd;      /* socket; -1 = none */
	pid_t child; /* pid of CMD; 0 = not started */
	bool exited, late, gone;
	bool killed;         /* lockctl has killed the guardian */
	bool wants_terminal; /* CMD is stopped because it needs the terminal */
	bool interrupted;    /* CMD was ended by a key of its terminal, such as Ctrl-C */
	int status;          /* wait status of CMD */
} lc_guardian;

/* Returns the time before the deadline at which CMD is killed, in ms. */
extern int lc_reserve(int ttl);
/* Interval in ms at which SIGKILL is repeated */
#define LC_KILL_AGAIN_MS 10
/* Runs the guardian process, from its fork to its end. */
extern void lc_guardian_main(const lc_command *command, int fd) __attribute__((noreturn));

/* --- link.c: lockctl's side of the guardian --- */

/* Forks the guardian.  Must be called before any thread is started. */
extern void lc_guardian_fork(lc_guardian *guardian, const lc_command *command);
extern void lc_guardian_send(lc_guardian *guardian, lc_what what, int value, int64_t token, int64_t deadline);
/* Makes the guardian start CMD. */
extern void lc_guardian_start(lc_guardian *guardian, int64_t token, int64_t deadline);
/* Reads the guardian's messages.  If the guardian was killed, kills CMD and its descendants. */
extern void lc_guardian_read(lc_guardian *guardian);
/*
 * Kills CMD and its descendants because the lock is lost.  Does not rely on the
 * guardian, which may be stopped.  The caller repeats the call until
 * guardian.gone is set.
 */
extern void lc_guardian_kill(lc_guardian *guardian);
/* Continues CMD after the shell has continued lockctl. */
extern void lc_guardian_continue(lc_guardian *guardian);
/* Takes the terminal back, and waits for the guardian's end. */
extern void lc_guardian_finish(lc_guardian *guardian);

/* --- notify.c --- */

/* Notifies systemd.  Does nothing if systemd has not started lockctl. */
extern void lc_notify(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --- http.c --- */

#define LC_HTTP_CLIENTS 128

typedef struct lc_http_client
{
	int fd;        /* -1 = the slot is free */
	int64_t until; /* point of le_now() by which the client must have sent its request */
	size_t length;
	char request[1024];
} lc_http_client;

typedef struct lc_http
{
	int fd; /* -1 = none */
	lc_http_client clients[LC_HTTP_CLIENTS];
} lc_http;

/* Information that a reply reports */
typedef struct lc_http_state
{
	bool leads;
	const char *election, *candidate;
	int64_t term;
} lc_http_state;

/* Listens on ADDR:PORT, or ends the program. */
extern void lc_http_open(lc_http *http, const char *address);
/* Fills in the descriptors to poll.  Returns their number, at most 1 + LC_HTTP_CLIENTS. */
extern int lc_http_poll(lc_http *http, struct pollfd *fds);
/* Returns the point of le_now() at which the first client times out; INT64_MAX if there is no client. */
extern int64_t lc_http_until(const lc_http *http);
/* Accepts clients, reads their requests, and sends replies. */
extern void lc_http_work(lc_http *http, const lc_http_state *state);

/* --- sql.c --- */

/* Connects, or ends the program.  With primary, skips standbys. */
extern PGconn *lc_connect(bool primary);
/* Connects to any server, primary or standby; the caller checks the status. */
extern PGconn *lc_connect_any(const char *application_name, const char *seconds);
/*
 * Returns the reason why a connection failed, in one line and without a
 * password.  The caller must free it.
 */
extern char *lc_why_not(const PGconn *db, le_status *status);
/* Returns the quoted schema of the extension's functions.  Ends the program if there is none. */
extern const char *lc_schema(PGconn *db);
/*
 * The query for that schema, and a function that handles its result, for
 * commands that run for so long that the schema may be renamed
 */
#define LC_SCHEMA_OID_SQL                                                                                    \
	"SELECT COALESCE((SELECT e.extnamespace FROM pg_catalog.pg_extension e WHERE e.extname "                 \
	"OPERATOR(pg_catalog.=) 'lock_election'), (SELECT p.pronamespace FROM pg_catalog.pg_proc p JOIN "        \
	"pg_catalog.pg_namespace i ON i.nspname OPERATOR(pg_catalog.=) '_lock_election' AND i.nspowner "         \
	"OPERATOR(pg_catalog.=) p.proowner WHERE p.proname OPERATOR(pg_catalog.=) 'lease_holds' LIMIT 1))"
#define LC_SCHEMA_SQL                                                                                        \
	"SELECT pg_catalog.quote_ident(n.nspname) FROM pg_catalog.pg_namespace n WHERE n.oid "                   \
	"OPERATOR(pg_catalog.=) (" LC_SCHEMA_OID_SQL ")"
extern bool lc_take_schema(const PGresult *result);
/*
 * Query that returns a row if the portable edition is installed, which has a
 * table that the C edition lacks
 */
#define LC_PORTABLE_SQL                                                                                      \
	"SELECT true FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) " \
	"c.relnamespace WHERE n.nspname OPERATOR(pg_catalog.=) '_lock_election' AND c.relname "                  \
	"OPERATOR(pg_catalog.=) 'edition'"
extern bool lc_is_portable(PGconn *db);
/*
 * Query for the counters of the portable edition, in one row.  They are table
 * statistics, so they include changes that were rolled back, and count the
 * renewals of one lease_sync() as one.
 */
#define LC_PORTABLE_STAT                                                                                     \
	"SELECT l.held, w.waiting, w.oldest_wait, t.grants, t.releases, t.renewals, t.waits, t.dead_rows, "      \
	"t.tables FROM (SELECT count(*) FILTER (WHERE mode IS NOT NULL) AS held FROM lock_election.locks) l, "   \
	"(SELECT count(*) AS waiting, min(waiting_since) FILTER (WHERE kind = 'lock') AS oldest_wait FROM "      \
	"lock_election.waiters) w, (SELECT sum(n_tup_ins) FILTER (WHERE relname = 'hold') AS grants, "           \
	"sum(n_tup_del) FILTER (WHERE relname = 'hold') AS releases, sum(n_tup_upd) FILTER (WHERE relname = "    \
	"'lease') AS renewals, sum(n_tup_ins) FILTER (WHERE relname = 'place') AS waits, sum(n_dead_tup) AS "    \
	"dead_rows, sum(pg_total_relation_size(relid))::bigint AS tables FROM pg_catalog.pg_stat_all_tables "    \
	"WHERE schemaname = '_lock_election') t"
/* Returns a text as an SQL literal.  The caller must free it. */
extern char *lc_literal(PGconn *db, const char *text);
/* Runs a query, and ends the program if it fails. */
extern PGresult *lc_query(PGconn *db, const char *format, ...) __attribute__((format(printf, 2, 3)));
/*
 * Runs a statement, and cancels it if a signal arrives.  Returns NULL if it was
 * canceled.  Sets *signo to the signal, or to 0 if there was none.
 */
extern PGresult *lc_query_signals(PGconn *db, const char *query, int *signo);
/*
 * Prints the rows of a query, and returns their number.  The server formats
 * JSON and CSV.  With one, prints the only row as a JSON object instead of an
 * array.
 */
extern int64_t lc_print(PGconn *db, bool one, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Returns the number of terminal columns that a text occupies. */
extern int lc_width(const char *text);

/* --- the commands; each function returns the exit code --- */

/* Runs a command under a lock. */
extern int lc_lock(int argc, char **argv);
/* Runs a command as the leader of an election. */
extern int lc_elect(int argc, char **argv);
/* Prints the leader, and each change of the leader. */
extern int lc_elect_listen(const char *election);
/* Acquires a lock, and prints its token. */
extern int lc_acquire(int argc, char **argv);
/* Renews a lock. */
extern int lc_renew(int argc, char **argv);
/* Releases a lock by its token, or by force. */
extern int lc_release(int argc, char **argv);
/* Checks whether a token holds its lock. */
extern int lc_held(int argc, char **argv);
/* Grants, keeps alive, revokes, shows or lists leases. */
extern int lc_lease(int argc, char **argv);
/* Shows locks. */
extern int lc_locks(int argc, char **argv);
/* Shows waiters. */
extern int lc_waiters(int argc, char **argv);
/* Shows elections. */
extern int lc_elections(int argc, char **argv);
/* Shows the manager and its counters. */
extern int lc_show_status(int argc, char **argv);
/* Prints changes of locks. */
extern int lc_watch(int argc, char **argv);
/* Shows locks, queues and rates, on a full screen. */
extern int lc_top(int argc, char **argv);
/* Checks for problems. */
extern int lc_doctor(int argc, char **argv);
/* Installs or upgrades the portable edition. */
extern int lc_install(int argc, char **argv);
/* Prints the servers to which names belong. */
extern int lc_shard(int argc, char **argv);

/*
 * The coverage counters are written only at exit().  The guardian does not end
 * by exit(), nor does lockctl when it dies by CMD's signal.
 */
#ifdef LE_COVERAGE
#include <unistd.h>

extern void __gcov_dump(void);

#define LC_DUMP_COVERAGE() __gcov_dump()
#define _exit(code)        (__gcov_dump(), (_exit) (code))
#else
#define LC_DUMP_COVERAGE() ((void) 0)
#endif

#endif /* LOCKCTL_H */
