/*
 * lockctl.h
 *		What the files of lockctl share.
 *
 * lockctl runs a command under a lock, or asks and changes locks from a shell.
 * Where it runs a command there are three processes:
 *
 *		lockctl --- has the session of liblockelection, which renews
 *		   |
 *		guardian -- has the deadline, and a timer; no thread, no connection
 *		   |
 *		CMD ------- in a process group of its own
 *
 * lockctl and the guardian share a socket.  lockctl sends each new deadline.
 * If no new one comes, because lockctl is stopped or cut off or because the
 * socket has ended with lockctl, the guardian ends CMD before the deadline.
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

#define LC_EXIT_FAILED       1 /* doctor has found something; there is nothing of that name */
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

/* To stderr, with the program's name.  Errors are always told. */
extern void lc_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern void lc_notice(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern void lc_detail(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern void lc_die(int code, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));
extern void lc_usage(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
extern void *lc_alloc(size_t size); /* zeroed; never NULL */
extern char *lc_copy(const char *text);
extern char *lc_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern char *lc_vformat(const char *format, va_list args) __attribute__((format(printf, 1, 0)));
/* Writes all that was printed; ends the program when that fails. */
extern void lc_flush(void);

/* --- text.c: all of these make a text that is to be freed --- */

/* Of a table: each character that a terminal would act upon is a question mark. */
extern char *lc_printable(const char *text);
/* Of a message: each of them is escaped as in C. */
extern char *lc_escaped(const char *text);
/* Several lines, as libpq's messages have, in one. */
extern char *lc_line(const char *text);
/* Is it, perhaps, a connection string? */
extern bool lc_may_be_secret(const char *text);
/* A word of the command line as messages may have it: not if it may have a password.  Not to be freed. */
extern const char *lc_shown(const char *text);
/* A string of JSON, with its quotes. */
extern char *lc_json(const char *text);

/* --- options.c --- */

typedef enum lc_output
{
	LC_TABLE,
	LC_JSON,
	LC_CSV
} lc_output;

/* What stands before the command, or anywhere in it. */
typedef struct lc_global
{
	const char *host, *port, *user, *database;
	const char *shards, *shard; /* a file; the name of one of them */
	lc_output output;
	const char *command;
} lc_global;

extern lc_global lc_globals;

/* Of every command.  A command's own long options start behind LC_OPT_HELP. */
#define LC_GLOBAL_OPTIONS "h:p:U:d:S:N:o:qv"
#define LC_OPT_HELP       256
#define LC_HELP_OPTION                                                                                       \
	{                                                                                                        \
		"help", 0, NULL, LC_OPT_HELP                                                                         \
	}

/* True where it is one of them.  A value with a password is overwritten. */
extern bool lc_take_global(int option, char *value);
/* What is left: --help, an option that is not known, or one without its value. */
extern void lc_bad_option(int option, const char *text) __attribute__((noreturn));
/* The one word that a command takes: a second one is too many. */
extern void lc_take_word(const char **word, const char *given);

/* Those of a command that has no others; its first argument is at optind then. */
extern void lc_take_globals(int argc, char **argv);

/* "5", "5s", "500ms", "2min", "1h", "1d" in milliseconds.  Ends the program where it is none. */
extern int lc_duration(const char *option, const char *text, int min, int max);
extern int64_t lc_number(const char *what, const char *text, int64_t min, int64_t max);
/* The values of -E, CODE[,LOST]; without lost, CODE alone. */
extern void lc_exit_codes(const char *text, int *not_acquired, int *lost);
/* From the global options; NULL: the environment says it all.  To be freed.  With --shards one has to be chosen. */
extern char *lc_conninfo(void);
extern int lc_exit_code(le_status status);

#define LC_TTL_MIN 100
#define LC_TTL_MAX 2073600000

/* --- shards.c --- */

/*
 * With --shards: from here on the server of these names is meant.  Ends the
 * program where they are on different ones, or where there is no name and no
 * --shard.
 */
extern void lc_choose_shard(const char *const *names, int n);

/* --- names.c --- */

/* Ends the program where one cannot be the name of a lock; what: "lock" or "election". */
extern void lc_check_names(const char *const *names, int n, const char *what);
/*
 * Sets LOCK_NAME and LOCK_NAMES for CMD.  Ends the program where they, or all that CMD gets, are
 * too long for the system: before anything is acquired.
 */
extern void lc_set_environment(const char *const *names, int n, char *const *command);

/* --- help.c --- */

/* Prints what --help prints, of a command or (NULL) of lockctl, and ends the program. */
extern void lc_help(const char *command) __attribute__((noreturn));
/* Prints the version, and ends the program. */
extern void lc_version(void) __attribute__((noreturn));

/* --- signals.c --- */

/* Until then a signal ends the program at once: nothing is held. */
extern void lc_signals_start(void);
/* From here on they are read from a descriptor, which is returned. */
extern int lc_signals_fd(void);
/* The next one; 0: none. */
extern int lc_signals_next(int fd);
/* From here on this one is read as well. */
extern void lc_signals_add(int fd, int signo);
/* From here on this one does at once again what it does by default. */
extern void lc_signals_allow(int signo);
/* Ends the program of this signal: a shell's loop or script that is interrupted has to see it. */
extern void lc_signals_die(int signo) __attribute__((noreturn));
/* In a child, before exec: as it was when the program began. */
extern void lc_signals_restore(void);

/* --- tree.c --- */

/* Does /proc show our processes, such as this child? */
extern bool lc_tree_is_visible(pid_t child);
/*
 * Sends a signal to all that descends from a process, also in sessions of
 * their own, and continues what is stopped; how many there were.
 */
extern int lc_tree_signal(pid_t root, int signo);

/* --- cgroup.c --- */

/* A control group of CMD's own can be had: then all of the following do something. */
extern void lc_cgroup_find(void);
/* fork(), where the child is in the group from its beginning. */
extern pid_t lc_cgroup_fork(void);
/* SIGKILL for all that is in the group. */
extern void lc_cgroup_kill(void);
/* Nothing is left in the group. */
extern void lc_cgroup_remove(void);

/* --- guardian.c: the protocol, and the process --- */

typedef enum lc_what
{
	/* to the guardian */
	LC_START = 1, /* token, deadline; value: 1 to make CMD the foreground group */
	LC_DEADLINE,  /* deadline */
	LC_SIGNAL,    /* value, for CMD's process group */
	LC_END,       /* CMD's time is over: --at-most */

	/* from the guardian */
	LC_STARTED, /* value: CMD's process id */
	LC_STOPPED, /* value: CMD was stopped by this signal */
	LC_EXITED,  /* value: CMD's wait status; what it has left behind may be running */
	LC_LATE,    /* the deadline is near: SIGTERM was sent */
	LC_GONE     /* nothing of it runs any more */
} lc_what;

typedef struct lc_message
{
	int32_t what;
	int32_t value;
	int64_t token;
	int64_t deadline; /* ms of le_now() */
} lc_message;

typedef struct lc_command
{
	char **argv;
	int ttl, grace; /* ms */
	bool notify;    /* NOTIFY_SOCKET is lockctl's, not CMD's */
} lc_command;

typedef struct lc_guardian
{
	pid_t pid;
	int fd;      /* -1: none */
	pid_t child; /* 0: not started */
	bool exited, late, gone;
	bool killed;         /* by ourselves */
	bool wants_terminal; /* CMD is stopped until it gets the terminal */
	bool interrupted;    /* CMD has died of a key of its terminal, such as Ctrl-C */
	int status;          /* of CMD */
} lc_guardian;

/* Nothing of CMD is left so many ms before the deadline. */
extern int lc_reserve(int ttl);
#define LC_KILL_AGAIN_MS 10
/* The guardian, from its fork to its end. */
extern void lc_guardian_main(const lc_command *command, int fd) __attribute__((noreturn));

/* --- link.c: the guardian, seen from lockctl --- */

/* Before there is any thread. */
extern void lc_guardian_fork(lc_guardian *guardian, const lc_command *command);
extern void lc_guardian_send(lc_guardian *guardian, lc_what what, int value, int64_t token, int64_t deadline);
extern void lc_guardian_start(lc_guardian *guardian, int64_t token, int64_t deadline);
/* Takes what it has sent.  Where it has been killed, kills what it guarded. */
extern void lc_guardian_read(lc_guardian *guardian);
/* The lock is lost: kills what it guards, and not by it, since it may be stopped.  Again until nothing is left. */
extern void lc_guardian_kill(lc_guardian *guardian);
/* The shell continues us. */
extern void lc_guardian_continue(lc_guardian *guardian);
/* Takes the terminal back, and waits for the guardian. */
extern void lc_guardian_finish(lc_guardian *guardian);

/* --- notify.c --- */

/* Tells systemd; nothing where it has not started us. */
extern void lc_notify(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --- http.c --- */

#define LC_HTTP_CLIENTS 128

typedef struct lc_http_client
{
	int fd;        /* -1: free */
	int64_t until; /* ms of le_now(): the end of its time for the request */
	size_t length;
	char request[1024];
} lc_http_client;

typedef struct lc_http
{
	int fd; /* -1: none */
	lc_http_client clients[LC_HTTP_CLIENTS];
} lc_http;

/* What there is to tell. */
typedef struct lc_http_state
{
	bool leads;
	const char *election, *candidate;
	int64_t term;
} lc_http_state;

/* Listens on ADDR:PORT, or ends the program. */
extern void lc_http_open(lc_http *http, const char *address);
/* Adds its descriptors; returns how many.  At most 1 + LC_HTTP_CLIENTS. */
extern int lc_http_poll(lc_http *http, struct pollfd *fds);
/* When the first client has had its time; INT64_MAX: there is none. */
extern int64_t lc_http_until(const lc_http *http);
extern void lc_http_work(lc_http *http, const lc_http_state *state);

/* --- sql.c --- */

/* Connects, or ends the program.  primary: only to a server that is not a standby. */
extern PGconn *lc_connect(bool primary);
/* As lc_connect, to any server; the caller looks at its status. */
extern PGconn *lc_connect_any(const char *application_name, const char *seconds);
/* Why a connection could not be made, in one line and without a password; to be freed. */
extern char *lc_why_not(const PGconn *db, le_status *status);
/* The schema of the extension's functions, quoted. Ends the program where there is none. */
extern const char *lc_schema(PGconn *db);
/* The query for it, and its answer, for a command that runs for so long that the schema may get another name. */
#define LC_SCHEMA_OID_SQL                                                                                    \
	"SELECT COALESCE((SELECT e.extnamespace FROM pg_catalog.pg_extension e WHERE e.extname "                 \
	"OPERATOR(pg_catalog.=) 'lock_election'), (SELECT p.pronamespace FROM pg_catalog.pg_proc p JOIN "        \
	"pg_catalog.pg_namespace i ON i.nspname OPERATOR(pg_catalog.=) '_lock_election' AND i.nspowner "         \
	"OPERATOR(pg_catalog.=) p.proowner WHERE p.proname OPERATOR(pg_catalog.=) 'lease_holds' LIMIT 1))"
#define LC_SCHEMA_SQL                                                                                        \
	"SELECT pg_catalog.quote_ident(n.nspname) FROM pg_catalog.pg_namespace n WHERE n.oid "                   \
	"OPERATOR(pg_catalog.=) (" LC_SCHEMA_OID_SQL ")"
extern bool lc_take_schema(const PGresult *result);
/* A row where the portable edition is installed: of a table that the C edition has not. */
#define LC_PORTABLE_SQL                                                                                      \
	"SELECT true FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) " \
	"c.relnamespace WHERE n.nspname OPERATOR(pg_catalog.=) '_lock_election' AND c.relname "                  \
	"OPERATOR(pg_catalog.=) 'edition'"
extern bool lc_is_portable(PGconn *db);
/*
 * What there is to count in the portable edition, in one row.  Rates are those of its tables: what was rolled back
 * is counted, and what lease_sync() renews together is one renewal.
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
/* A text as a literal of SQL; to be freed. */
extern char *lc_literal(PGconn *db, const char *text);
/* Runs a query and ends the program if it fails. */
extern PGresult *lc_query(PGconn *db, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Runs a statement, so that a signal cancels it; NULL: a signal did, its number is in *signo. */
extern PGresult *lc_query_signals(PGconn *db, const char *query, int *signo);
/*
 * Prints the rows of a query, made by the server as JSON and CSV, and answers
 * how many there are.  one: a row is an object, not an array of them.
 */
extern int64_t lc_print(PGconn *db, bool one, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* How many columns of a terminal a text takes. */
extern int lc_width(const char *text);

/* --- the commands --- */

/* Run a command under a lock, as a leader.  All of these answer the exit code. */
extern int lc_lock(int argc, char **argv);
/* As the leader of an election. */
extern int lc_elect(int argc, char **argv);
/* Prints who leads, and each change. */
extern int lc_elect_listen(const char *election);
/* Prints a token. */
extern int lc_acquire(int argc, char **argv);
/* Starts the TTL of a lock again. */
extern int lc_renew(int argc, char **argv);
/* Ends a lock, by its token or by force. */
extern int lc_release(int argc, char **argv);
/* Does the token hold the lock? */
extern int lc_held(int argc, char **argv);
/* grant, keep-alive, revoke, ttl, list. */
extern int lc_lease(int argc, char **argv);
/* Who holds what. */
extern int lc_locks(int argc, char **argv);
/* Who waits. */
extern int lc_waiters(int argc, char **argv);
/* Who leads. */
extern int lc_elections(int argc, char **argv);
/* The manager and its counters. */
extern int lc_show_status(int argc, char **argv);
/* Prints what changes. */
extern int lc_watch(int argc, char **argv);
/* Full screen. */
extern int lc_top(int argc, char **argv);
/* Looks for what is wrong. */
extern int lc_doctor(int argc, char **argv);
/* Installs or upgrades the portable edition. */
extern int lc_install(int argc, char **argv);
/* Which server a name belongs to. */
extern int lc_shard(int argc, char **argv);

/*
 * Counters of coverage are written at exit() alone, and the guardian, and whoever dies of its command's
 * signal, end otherwise.
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
