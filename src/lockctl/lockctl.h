/*
 * lockctl.h
 *		What the files of lockctl share.
 *
 * lockctl runs a command (CMD) under a lock, or shows and changes locks from a
 * shell.  When it runs a command there are three processes:
 *
 *		lockctl --- has the session of liblockelection, which renews the lease
 *		   |
 *		guardian -- has the deadline and a timer; no thread, no connection
 *		   |
 *		CMD ------- in a process group of its own
 *
 * A socket connects lockctl and the guardian.  lockctl sends each new deadline.
 * If none comes, because lockctl is stopped or cut off from the server, or has
 * ended and with it the socket, the guardian ends CMD before the deadline.
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

#define LC_EXIT_FAILED       1 /* doctor has found a problem, or nothing has that name */
#define LC_EXIT_NOT_ACQUIRED 3
#define LC_EXIT_LOST         4
#define LC_EXIT_USAGE        64
#define LC_EXIT_SERVER       69
#define LC_EXIT_AT_MOST      124 /* as timeout(1) */
#define LC_EXIT_CANNOT_RUN   126
#define LC_EXIT_NOT_FOUND    127
#define LC_EXIT_SIGNAL       128 /* + its number */

/* --- message.c --- */

typedef enum lc_level
{
	LC_QUIET = -1,
	LC_NORMAL,
	LC_VERBOSE
} lc_level;

extern lc_level lc_verbosity;

/* Messages to stderr, with the program's name.  Errors are never suppressed. */
extern void lc_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern void lc_notice(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern void lc_detail(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern void lc_die(int code, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));
extern void lc_usage(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
extern void *lc_alloc(size_t size); /* zeroed; never returns NULL */
extern char *lc_copy(const char *text);
extern char *lc_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern char *lc_vformat(const char *format, va_list args) __attribute__((format(printf, 1, 0)));
/* Flushes stdout; ends the program if that fails. */
extern void lc_flush(void);

/* --- text.c: functions that return char * allocate a text, which the caller frees --- */

/* For tables: replaces each character that a terminal would act upon by a question mark. */
extern char *lc_printable(const char *text);
/* For messages: escapes these characters as in C. */
extern char *lc_escaped(const char *text);
/* Joins the lines of a text, such as a message of libpq, to one line. */
extern char *lc_line(const char *text);
/* Returns whether a text may be a connection string with a password. */
extern bool lc_may_be_secret(const char *text);
/*
 * Returns what messages show of a word of the command line: not the word if it
 * may contain a password.  Not to be freed.
 */
extern const char *lc_shown(const char *text);
/* Returns a JSON string, with its quotes. */
extern char *lc_json(const char *text);

/* --- options.c --- */

typedef enum lc_output
{
	LC_TABLE,
	LC_JSON,
	LC_CSV
} lc_output;

/* Global options, before the command or among its own options */
typedef struct lc_global
{
	const char *host, *port, *user, *database;
	const char *shards, *shard; /* name of the file of shards; name of the shard that was chosen */
	lc_output output;
	const char *command;
} lc_global;

extern lc_global lc_globals;

/* The options of every command.  Codes of a command's own long options begin after LC_OPT_HELP. */
#define LC_GLOBAL_OPTIONS "h:p:U:d:S:N:o:qv"
#define LC_OPT_HELP       256
#define LC_HELP_OPTION                                                                                       \
	{                                                                                                        \
		"help", 0, NULL, LC_OPT_HELP                                                                         \
	}

/* Takes a global option; returns false if it is not one.  Overwrites a value that has a password. */
extern bool lc_take_global(int option, char *value);
/* Handles all other options: --help, an unknown option, or an option without its value. */
extern void lc_bad_option(int option, const char *text) __attribute__((noreturn));
/* Takes the only word of a command; ends the program if there is one already. */
extern void lc_take_word(const char **word, const char *given);

/* Takes the options of a command that has only global ones.  Afterwards optind is its first argument. */
extern void lc_take_globals(int argc, char **argv);

/* Converts "5", "5s", "500ms", "2min", "1h" or "1d" to milliseconds.  Ends the program if it cannot. */
extern int lc_duration(const char *option, const char *text, int min, int max);
/* Converts a number.  Ends the program if it is not between min and max. */
extern int64_t lc_number(const char *what, const char *text, int64_t min, int64_t max);
/* Takes the values of -E, CODE[,LOST]; if lost is NULL, only CODE. */
extern void lc_exit_codes(const char *text, int *not_acquired, int *lost);
/*
 * Returns the connection string of the global options; NULL: only the
 * environment counts.  To be freed.  With --shards, a shard must have been
 * chosen.
 */
extern char *lc_conninfo(void);
/* Returns the exit code of a status. */
extern int lc_exit_code(le_status status);

#define LC_TTL_MIN 100
#define LC_TTL_MAX 2073600000

/* --- shards.c --- */

/*
 * With --shards: chooses the server of these names.  Ends the program if they
 * are on different servers, or if there is neither a name nor --shard.
 */
extern void lc_choose_shard(const char *const *names, int n);

/* --- names.c --- */

/* Ends the program if one of the names is not allowed.  what: "lock" or "election". */
extern void lc_check_names(const char *const *names, int n, const char *what);
/*
 * Sets LOCK_NAME and LOCK_NAMES for CMD.  Ends the program if they, or all
 * arguments and variables of CMD together, are too long for the system.  Must
 * be called before anything is acquired.
 */
extern void lc_set_environment(const char *const *names, int n, char *const *command);

/* --- help.c --- */

/* Prints the help of a command, or (NULL) of lockctl, and ends the program. */
extern void lc_help(const char *command) __attribute__((noreturn));
/* Prints the version, and ends the program. */
extern void lc_version(void) __attribute__((noreturn));

/* --- signals.c --- */

/* Called at start.  Until lc_signals_fd(), a signal ends the program at once, since nothing is held. */
extern void lc_signals_start(void);
/* From here on signals are read from a descriptor, which this returns. */
extern int lc_signals_fd(void);
/* Returns the next signal; 0: none. */
extern int lc_signals_next(int fd);
/* From here on this signal is read from the descriptor, too. */
extern void lc_signals_add(int fd, int signo);
/* From here on this signal has its default effect again, at once. */
extern void lc_signals_allow(int signo);
/* Ends the program by this signal, so that a loop or script of a shell sees that it was interrupted. */
extern void lc_signals_die(int signo) __attribute__((noreturn));
/* In a child, before exec: restores the signal handling that the program was started with. */
extern void lc_signals_restore(void);

/* --- tree.c --- */

/* Returns whether /proc shows our processes, such as this child. */
extern bool lc_tree_is_visible(pid_t child);
/*
 * Sends a signal to all descendants of a process, including those in other
 * sessions, and continues stopped ones.  Returns how many it has reached.
 */
extern int lc_tree_signal(pid_t root, int signo);

/* --- cgroup.c --- */

/*
 * Finds out whether CMD can have a control group of its own.  If not, the
 * following functions do nothing but fork.
 */
extern void lc_cgroup_find(void);
/* Forks; the child is in the group from its beginning. */
extern pid_t lc_cgroup_fork(void);
/* Kills all processes in the group. */
extern void lc_cgroup_kill(void);
/* Removes the group, which must be empty. */
extern void lc_cgroup_remove(void);

/* --- guardian.c: the protocol, and the process --- */

typedef enum lc_what
{
	/* to the guardian */
	LC_START = 1, /* token, deadline; value: 1 to make CMD's group the foreground group */
	LC_DEADLINE,  /* deadline */
	LC_SIGNAL,    /* value: a signal for CMD's process group */
	LC_END,       /* end CMD, which has run for --at-most */

	/* from the guardian */
	LC_STARTED, /* value: CMD's process id */
	LC_STOPPED, /* value: CMD was stopped by this signal */
	LC_EXITED,  /* value: CMD's wait status; processes that it has started may still run */
	LC_LATE,    /* the deadline is near: SIGTERM was sent */
	LC_GONE     /* neither CMD nor a descendant of it runs any more */
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
	bool notify;    /* NOTIFY_SOCKET is for lockctl, and hidden from CMD */
} lc_command;

typedef struct lc_guardian
{
	pid_t pid;
	int fd;      /* socket; -1: none */
	pid_t child; /* process of CMD; 0: not started */
	bool exited, late, gone;
	bool killed;         /* lockctl has killed the guardian */
	bool wants_terminal; /* CMD is stopped because it needs the terminal */
	bool interrupted;    /* CMD was ended by a key of its terminal, such as Ctrl-C */
	int status;          /* wait status of CMD */
} lc_guardian;

/* Returns how many ms before the deadline CMD is killed. */
extern int lc_reserve(int ttl);
/* The interval at which SIGKILL is repeated */
#define LC_KILL_AGAIN_MS 10
/* The guardian process, from its fork to its end */
extern void lc_guardian_main(const lc_command *command, int fd) __attribute__((noreturn));

/* --- link.c: the guardian, seen from lockctl --- */

/* Forks the guardian.  Must be called before there is any thread. */
extern void lc_guardian_fork(lc_guardian *guardian, const lc_command *command);
extern void lc_guardian_send(lc_guardian *guardian, lc_what what, int value, int64_t token, int64_t deadline);
/* Lets the guardian start CMD. */
extern void lc_guardian_start(lc_guardian *guardian, int64_t token, int64_t deadline);
/* Reads the messages of the guardian.  If it was killed, kills CMD and its descendants. */
extern void lc_guardian_read(lc_guardian *guardian);
/*
 * Kills CMD and its descendants because the lock is lost, without the guardian,
 * which may be stopped.  To be repeated until guardian.gone.
 */
extern void lc_guardian_kill(lc_guardian *guardian);
/* The shell has continued lockctl: continues CMD. */
extern void lc_guardian_continue(lc_guardian *guardian);
/* Takes the terminal back, and waits for the guardian. */
extern void lc_guardian_finish(lc_guardian *guardian);

/* --- notify.c --- */

/* Notifies systemd; does nothing if systemd has not started us. */
extern void lc_notify(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --- http.c --- */

#define LC_HTTP_CLIENTS 128

typedef struct lc_http_client
{
	int fd;        /* -1: the slot is free */
	int64_t until; /* point of le_now() until which it must have sent its request */
	size_t length;
	char request[1024];
} lc_http_client;

typedef struct lc_http
{
	int fd; /* -1: none */
	lc_http_client clients[LC_HTTP_CLIENTS];
} lc_http;

/* What a reply reports */
typedef struct lc_http_state
{
	bool leads;
	const char *election, *candidate;
	int64_t term;
} lc_http_state;

/* Listens on ADDR:PORT, or ends the program. */
extern void lc_http_open(lc_http *http, const char *address);
/* Fills in the descriptors to poll; returns how many, at most 1 + LC_HTTP_CLIENTS. */
extern int lc_http_poll(lc_http *http, struct pollfd *fds);
/* Returns when the time of the first client is over; INT64_MAX: there is none. */
extern int64_t lc_http_until(const lc_http *http);
/* Accepts clients, reads their requests and replies. */
extern void lc_http_work(lc_http *http, const lc_http_state *state);

/* --- sql.c --- */

/* Connects, or ends the program.  primary: skips standbys. */
extern PGconn *lc_connect(bool primary);
/* Connects to any server, primary or standby; the caller checks the status. */
extern PGconn *lc_connect_any(const char *application_name, const char *seconds);
/* Returns why a connection could not be made, in one line and without a password; to be freed. */
extern char *lc_why_not(const PGconn *db, le_status *status);
/* Returns the schema of the extension's functions, quoted.  Ends the program if there is none. */
extern const char *lc_schema(PGconn *db);
/*
 * The query for it, and a function that takes its result: for commands that run
 * so long that the schema may be renamed
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
/* Returns a row if the portable edition is installed: it has a table that the C edition does not have. */
#define LC_PORTABLE_SQL                                                                                      \
	"SELECT true FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) " \
	"c.relnamespace WHERE n.nspname OPERATOR(pg_catalog.=) '_lock_election' AND c.relname "                  \
	"OPERATOR(pg_catalog.=) 'edition'"
extern bool lc_is_portable(PGconn *db);
/*
 * The counters of the portable edition, in one row.  They are those of its
 * tables: changes that were rolled back count, and renewals that one
 * lease_sync() makes together count as one.
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
/* Returns a text as an SQL literal; to be freed. */
extern char *lc_literal(PGconn *db, const char *text);
/* Runs a query, and ends the program if it fails. */
extern PGresult *lc_query(PGconn *db, const char *format, ...) __attribute__((format(printf, 2, 3)));
/*
 * Runs a statement that a signal cancels.  Returns NULL if it was canceled.
 * *signo is the signal that has come, or 0.
 */
extern PGresult *lc_query_signals(PGconn *db, const char *query, int *signo);
/*
 * Prints the rows of a query, and returns how many there are.  The server
 * formats JSON and CSV.  one: the only row is printed as a JSON object, not as
 * an array.
 */
extern int64_t lc_print(PGconn *db, bool one, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Returns how many columns of a terminal a text takes. */
extern int lc_width(const char *text);

/* --- the commands; all of these return the exit code --- */

/* Runs a command under a lock. */
extern int lc_lock(int argc, char **argv);
/* Runs a command as the leader of an election. */
extern int lc_elect(int argc, char **argv);
/* Prints the leader, and each change of it. */
extern int lc_elect_listen(const char *election);
/* Acquires a lock, and prints its token. */
extern int lc_acquire(int argc, char **argv);
/* Renews a lock. */
extern int lc_renew(int argc, char **argv);
/* Releases a lock, by its token or by force. */
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
/* Looks for problems. */
extern int lc_doctor(int argc, char **argv);
/* Installs or upgrades the portable edition. */
extern int lc_install(int argc, char **argv);
/* Prints to which server names belong. */
extern int lc_shard(int argc, char **argv);

/*
 * Counters of coverage are only written at exit().  The guardian, and lockctl
 * when it dies by the signal of CMD, end otherwise.
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
