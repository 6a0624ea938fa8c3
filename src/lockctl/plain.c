/*
 * plain.c
 *		Single steps for scripts: acquire, renew, release, held, lease.
 */
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "globals.h"
#include "memory.h"
#include "message.h"
#include "options.h"
#include "server.h"
#include "signals.h"
#include "sql.h"
#include "text.h"

enum
{
	OPT_TTL = LC_OPT_HELP + 1,
	OPT_PERMITS,
	OPT_OWNER,
	OPT_LEASE,
	OPT_HOLD_FOR,
	OPT_FORCE,
	OPT_NOW,
	OPT_ELECTION,
	OPT_ONCE
};

/* Options of all commands of this file; each command passes parse() the options that it allows */
static const struct option options[] = {{"ttl", required_argument, NULL, OPT_TTL},
										{"wait", required_argument, NULL, 'w'},
										{"try", no_argument, NULL, 'n'},
										{"shared", no_argument, NULL, 's'},
										{"permits", required_argument, NULL, OPT_PERMITS},
										{"owner", required_argument, NULL, OPT_OWNER},
										{"lease", required_argument, NULL, OPT_LEASE},
										{"hold-for", required_argument, NULL, OPT_HOLD_FOR},
										{"force", no_argument, NULL, OPT_FORCE},
										{"now", no_argument, NULL, OPT_NOW},
										{"election", no_argument, NULL, OPT_ELECTION},
										{"once", no_argument, NULL, OPT_ONCE},
										{"conflict-exit-code", required_argument, NULL, 'E'},
										LC_HELP_OPTION,
										{NULL, 0, NULL, 0}};

typedef struct arguments
{
	int ttl, wait, permits, hold_for, not_acquired;
	bool shared, force, now, election, once;
	const char *owner;
	int64_t lease;
	const char *words[4];
	int n;
	PGconn *db;
	char *name; /* name of the lock or election as an SQL literal; NULL = none */
} arguments;

/* Stores an option that is allowed. */
static void
take(arguments *a, int option)
{
	switch (option)
	{
		/* times and the kind of lock */
		case OPT_TTL:
			a->ttl = lc_duration("--ttl", optarg, LC_TTL_MIN, LC_TTL_MAX);
			break;
		case 'w':
			a->wait = lc_duration("--wait", optarg, 0, INT_MAX);
			break;
		case 'n':
			a->wait = 0;
			break;
		case 's':
			a->shared = true;
			break;
		case OPT_PERMITS:
			a->permits = (int) lc_number("--permits", optarg, 1, INT_MAX);
			break;
		case OPT_OWNER:
			a->owner = optarg;
			break;
		case OPT_LEASE:
			a->lease = lc_number("--lease", optarg, 1, INT64_MAX);
			break;
		case OPT_HOLD_FOR:
			a->hold_for = lc_duration("--hold-for", optarg, 1, INT_MAX);
			break;
		/* flags */
		case OPT_FORCE:
			a->force = true;
			break;
		case OPT_NOW:
			a->now = true;
			break;
		case OPT_ELECTION:
			a->election = true;
			break;
		case OPT_ONCE:
			a->once = true;
			break;
		case 'E':
			lc_exit_codes(optarg, &a->not_acquired, NULL);
			break;
		default:
			break;
	}
}

/* Returns whether the command allows an option.  allowed has the long names of its options. */
static bool
is_allowed(int option, const char *allowed)
{
	for (const struct option *o = options; o->name != NULL; o++)
	{
		if (o->val == option)
			return strstr(allowed, lc_format(" %s ", o->name)) != NULL;
	}
	return false;
}

static void
take_word(arguments *a, const char *word)
{
	if (a->n == 4)
		lc_usage("too many arguments: \"%s\"", lc_shown(word));
	a->words[a->n++] = word;
}

/* Parses the arguments of a command.  allowed has the command's own long options, each between blanks. */
static void
parse(arguments *a, int argc, char **argv, const char *allowed)
{
	int option;

	*a = (arguments){.ttl = -1, .wait = -1, .not_acquired = LC_EXIT_NOT_ACQUIRED};
	optind = 0;
	opterr = 0;
	for (;;)
	{
		int at = optind != 0 ? optind : 1;

		option = getopt_long(argc, argv, "-:E:nw:s" LC_GLOBAL_OPTIONS, options, NULL);
		if (option == -1)
			break;
		if (lc_take_global(option, optarg))
			continue;
		if (option == 1)
			take_word(a, optarg);
		else if (is_allowed(option, allowed))
			take(a, option);
		else
			lc_bad_option(option, argv[at]);
	}
	while (optind < argc)
		take_word(a, argv[optind++]);
}

static void
need(const arguments *a, int n, const char *words)
{
	if (a->n < n)
		lc_usage("missing arguments: %s", words);
	if (a->n > n)
		lc_usage("too many arguments: \"%s\"", lc_shown(a->words[n]));
}

/* --- results --- */

/* Prints one value.  The table format has only the value, for use as T=$(lockctl ...). */
static void
print_value(PGconn *db, const char *name, const char *type, const char *value)
{
	if (lc_globals.output == LC_TABLE)
	{
		puts(value);
		lc_flush();
	}
	else
		lc_print(db, true, "SELECT %s::%s AS %s", lc_literal(db, value), type, name);
}

/* Returns the single value of a result, or NULL if it is null. */
static const char *
value_of(const PGresult *result)
{
	return PQntuples(result) > 0 && !PQgetisnull(result, 0, 0) ? PQgetvalue(result, 0, 0) : NULL;
}

static bool
is_true(const PGresult *result)
{
	const char *value = value_of(result);

	return value != NULL && value[0] == 't';
}

static void
ignore_notices(void *arg, const PGresult *result)
{
	const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

	(void) arg;
	if (message != NULL)
		lc_detail("%s", message);
}

/* Connects to the server to which a lock or election belongs; name may be NULL. */
static void
connect(arguments *a, const char *name)
{
	lc_choose_shard(&name, name != NULL);
	a->db = lc_connect(true);
	PQsetNoticeReceiver(a->db, ignore_notices, NULL);
	if (name != NULL)
		a->name = lc_literal(a->db, name);
}

static int
finish(arguments *a, int code)
{
	PQfinish(a->db);
	return code;
}

/* --- undoing an action whose result cannot be printed --- */

static PGconn *undo_db;
static const char *undo_query; /* NULL = nothing to undo */

static void
give_back(void)
{
	if (undo_query != NULL)
		PQclear(PQexec(undo_db, undo_query));
}

/* Prints a value.  If that fails, lockctl exits, and runs query (unless it is NULL) to undo the action. */
static void
print_or_give_back(PGconn *db, const char *name, const char *value, const char *query)
{
	undo_db = db;
	undo_query = query;
	if (query != NULL)
		atexit(give_back);
	print_value(db, name, "int8", value);
	undo_query = NULL;
}

/* --- acquire --- */

/* Returns the owner as an SQL literal, or NULL. */
static const char *
owner_of(const arguments *a)
{
	return a->owner != NULL ? lc_literal(a->db, a->owner) : "NULL";
}

/* Returns the statement that acquires the lock. */
static const char *
acquire_query(const arguments *a)
{
	const char *wait = a->wait < 0 ? "NULL" : lc_format("'%d ms'", a->wait);
	const char *lease = a->lease != 0 ? lc_format("%lld", (long long) a->lease) : "NULL";
	const char *ttl = a->ttl > 0 ? lc_format(", ttl => '%d ms'", a->ttl) : "";
	const char *how = a->permits > 0 ? lc_format("permits => %d", a->permits)
					  : a->shared    ? "mode => 'shared'"
									 : "mode => 'exclusive'";

	return lc_format("SELECT %s.%s(%s, %s%s, wait => %s, owner => %s, lease => %s)", lc_schema(a->db),
					 a->permits > 0 ? "acquire_permit" : "acquire_lock", a->name, how, ttl, wait, owner_of(a),
					 lease);
}

int
lc_acquire(int argc, char **argv)
{
	arguments a;
	PGresult *result;
	const char *release = NULL;
	int signo, code = 0;

	parse(&a, argc, argv, " ttl wait try shared permits owner lease conflict-exit-code ");
	need(&a, 1, "NAME");
	if (a.shared && a.permits > 0)
		lc_usage("--permits is not with --shared");
	if (a.ttl > 0 && a.lease != 0)
		lc_usage("--ttl is not with --lease");
	connect(&a, a.words[0]);
	/* acquire the lock, unless a signal arrives */
	result = lc_query_signals(a.db, acquire_query(&a), &signo);
	if (result != NULL && !PQgetisnull(result, 0, 0))
		release =
			lc_format("SELECT %s.release_lock(%s, %s)", lc_schema(a.db), a.name, PQgetvalue(result, 0, 0));
	/* after a signal, release the lock and die by the signal */
	if (release != NULL && signo != 0)
		lc_query(a.db, "%s", release);
	if (signo != 0)
		lc_signals_die(signo);
	/* print the token */
	if (release == NULL)
	{
		lc_detail("lock \"%s\": not acquired", a.words[0]);
		code = a.not_acquired;
	}
	else
		/* A lease may have held the lock before, and then gets the same token; do not release that hold. */
		print_or_give_back(a.db, "token", PQgetvalue(result, 0, 0), a.lease == 0 ? release : NULL);
	return finish(&a, code);
}

/* --- renew, release, held --- */

static int
lost(const char *name)
{
	lc_notice("lock \"%s\" is not held by this token", name);
	return LC_EXIT_LOST;
}

static bool
is_held(const arguments *a)
{
	return is_true(lc_query(a->db, "SELECT %s.is_held(%s, %s)", lc_schema(a->db), a->name, a->words[1]));
}

/* Reports why a renewal failed.  An evicted holder cannot renew, but keeps the lock until it releases it. */
static int
not_renewed(const arguments *a)
{
	if (!is_held(a))
		return lost(a->words[0]);
	lc_notice(
		"lock \"%s\" is held by this token, but cannot be renewed any more: stop the work, and release it",
		a->words[0]);
	return LC_EXIT_LOST;
}

static int64_t
token_of(const arguments *a)
{
	return lc_number("TOKEN", a->words[1], 1, INT64_MAX);
}

int
lc_renew(int argc, char **argv)
{
	arguments a;
	const char *value, *ttl;

	parse(&a, argc, argv, " ttl ");
	need(&a, 2, "NAME and TOKEN");
	token_of(&a);
	connect(&a, a.words[0]);
	ttl = a.ttl > 0 ? lc_format(", '%d ms'", a.ttl) : "";
	value =
		value_of(lc_query(a.db, "SELECT %s.renew_lock(%s, %s%s)", lc_schema(a.db), a.name, a.words[1], ttl));
	if (value == NULL)
		return finish(&a, not_renewed(&a));
	print_value(a.db, "valid_for", "interval", value);
	return finish(&a, 0);
}

/* Returns the number of rows that view locks has for the name. */
static int64_t
rows_of(const arguments *a)
{
	return atoll(
		value_of(lc_query(a->db, "SELECT count(*) FROM lock_election.locks WHERE kind = '%s' AND name = %s",
						  a->election ? "election" : "lock", a->name)));
}

static int
tell_nobody(const arguments *a)
{
	lc_notice(a->election ? "nobody leads election \"%s\""
						  : "nobody holds lock \"%s\" (--election is for elections)",
			  a->words[0]);
	return LC_EXIT_LOST;
}

/* Ends all holders at once (release --force --now). */
static int
end_now(arguments *a)
{
	/*
	 * A name without holders may be closed.  Then the function opens it, and it
	 * must not be reported as absent.
	 */
	int64_t there = rows_of(a);
	const char *ended = value_of(lc_query(a->db, "SELECT %s.%s(%s)", lc_schema(a->db),
										  a->election ? "force_resign" : "force_release_lock", a->name));
	int code = 0;

	print_value(a->db, "ended", "int8", ended);
	if (strcmp(ended, "0") != 0)
		lc_notice("ended at once: whoever was at work may go on beside the next one, until it notices");
	else if (there == 0)
		code = tell_nobody(a);
	return code;
}

/* Evicts the holders, which keep the lock for the time that they were promised (release --force). */
static int
evict(arguments *a)
{
	PGresult *result;
	const char *evicted = value_of(lc_query(a->db, "SELECT %s.%s(%s)", lc_schema(a->db),
											a->election ? "evict_leader" : "evict_lock", a->name));
	int code = 0;

	/* the number of holders evicted */
	print_value(a->db, "evicted", "int8", evicted);
	/* the time until which they hold the lock, or until which it is closed */
	result = lc_query(a->db,
					  "SELECT max(expires_at)::timestamptz(0), "
					  "ceil(extract(epoch FROM max(time_left)))::int8, max(closed_until)::timestamptz(0) "
					  "FROM lock_election.locks WHERE kind = '%s' AND name = %s AND evicted IS DISTINCT FROM "
					  "false",
					  a->election ? "election" : "lock", a->name);
	if (!PQgetisnull(result, 0, 1))
		lc_notice(
			"%s \"%s\" cannot be renewed any more, and ends when it is released, at %s (in %s s) at the "
			"latest; --now would not wait for that",
			a->election ? "election" : "lock", a->words[0], PQgetvalue(result, 0, 0),
			PQgetvalue(result, 0, 1));
	else if (strcmp(evicted, "0") == 0 && !PQgetisnull(result, 0, 2))
	{
		lc_notice("nobody holds lock \"%s\"; it is closed until %s, and --now would open it", a->words[0],
				  PQgetvalue(result, 0, 2));
		code = LC_EXIT_LOST;
	}
	else if (strcmp(evicted, "0") == 0)
		code = tell_nobody(a);
	return code;
}

static int
force(arguments *a)
{
	need(a, 1, "NAME");
	connect(a, a->words[0]);
	lc_schema(a->db);
	return finish(a, a->now ? end_now(a) : evict(a));
}

int
lc_release(int argc, char **argv)
{
	arguments a;
	const char *hold_for;
	bool released;

	parse(&a, argc, argv, " hold-for force now election ");
	if (a.force)
		return force(&a);
	if (a.election || a.now)
		lc_usage("%s is for --force", a.election ? "--election" : "--now");
	need(&a, 2, "NAME and TOKEN, or --force NAME");
	token_of(&a);
	connect(&a, a.words[0]);
	hold_for = a.hold_for > 0 ? lc_format(", hold_for => '%d ms'", a.hold_for) : "";
	released = is_true(
		lc_query(a.db, "SELECT %s.release_lock(%s, %s%s)", lc_schema(a.db), a.name, a.words[1], hold_for));
	return finish(&a, released ? 0 : lost(a.words[0]));
}

int
lc_held(int argc, char **argv)
{
	arguments a;

	parse(&a, argc, argv, "");
	need(&a, 2, "NAME and TOKEN");
	token_of(&a);
	connect(&a, a.words[0]);
	return finish(&a, is_held(&a) ? 0 : lost(a.words[0]));
}

/* --- leases --- */

static int
lease_ended(const char *lease)
{
	lc_notice("lease %s has ended", lease);
	return LC_EXIT_LOST;
}

/* Runs a statement.  Returns NULL if there is no reply by until. */
static PGresult *
ask_until(PGconn *db, const char *query, int64_t until)
{
	bool sent = PQsendQuery(db, query) == 1;

	while (sent && PQisBusy(db) && le_now() < until)
	{
		struct pollfd fd = {.fd = PQsocket(db), .events = POLLIN};

		/* A stopped server keeps the connection open without a reply. */
		if (poll(&fd, 1, (int) (until - le_now())) > 0 && !PQconsumeInput(db))
			break;
	}
	return sent && !PQisBusy(db) ? lc_result(db) : NULL;
}

/* Returns whether a statement failed because the schema, or a function in it, does not exist. */
static bool
has_moved(const PGresult *result)
{
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	return state != NULL && (strcmp(state, "3F000") == 0 || strcmp(state, "42883") == 0);
}

static PGresult *
keep_alive(PGconn *db, const char *lease, int64_t until)
{
	return ask_until(
		db,
		lc_format("SELECT ceil(1000 * extract(epoch FROM %s.keep_alive(%s)))::int8", lc_schema(db), lease),
		until);
}

#define NO_ANSWER (-1) /* no reply in time */
#define GONE      (-2) /* the lease has ended */

/*
 * Renews a lease, even if its schema was renamed.  Returns its validity from now on in ms, which is
 * normally the TTL, or NO_ANSWER or GONE.
 */
static int64_t
renew_lease(PGconn *db, const char *lease, int64_t until)
{
	size_t mark = lc_mark();
	PGresult *result = keep_alive(db, lease, until);
	int64_t ms = NO_ANSWER;

	if (has_moved(result) && lc_take_schema(ask_until(db, LC_SCHEMA_SQL, until)))
		result = keep_alive(db, lease, until);
	if (PQresultStatus(result) == PGRES_TUPLES_OK)
		ms = PQgetisnull(result, 0, 0) ? GONE : atoll(PQgetvalue(result, 0, 0));
	else
		lc_notice("lease %s was not renewed: %s", lease,
				  lc_line(result != NULL ? PQresultErrorMessage(result) : "no answer"));
	lc_free_since(mark);
	return ms;
}

/* Waits until a point in time.  Returns the signal that has ended the wait early, or 0. */
static int
wait_until(int signal_fd, int64_t until)
{
	struct pollfd fd = {.fd = signal_fd, .events = POLLIN};
	int64_t left;
	int signo;

	while ((left = until - le_now()) > 0)
	{
		poll(&fd, 1, left < INT_MAX ? (int) left : INT_MAX);
		signo = lc_signals_next(signal_fd);
		if (signo != 0 && signo != SIGCONT)
			return signo;
	}
	return 0;
}

/*
 * Renews a lease until it has ended or a signal arrives.  Renews after a third of the validity, but
 * not before a twentieth of the TTL.  After a failure, reconnects and retries for as long as the lease
 * may still be valid.  A shorter validity does not shorten the time that an earlier reply has
 * promised.
 */
static int
keep_alive_for_ever(PGconn *db, const char *lease)
{
	int64_t now = le_now(), valid = renew_lease(db, lease, now + 10000), ttl = valid, until = now + valid,
			next;
	int signal_fd = lc_signals_fd(), signo;

	/* the first renewal must succeed */
	if (valid == NO_ANSWER)
		return LC_EXIT_SERVER;
	next = now + valid / 3;
	while (valid != GONE && le_now() < until)
	{
		int64_t answer = NO_ANSWER;

		/* wait and renew */
		signo = wait_until(signal_fd, next);
		if (signo != 0)
			lc_signals_die(signo);
		now = le_now();
		if (PQstatus(db) == CONNECTION_OK)
			answer = renew_lease(db, lease, now + ttl / 4);
		/* after a failure, reconnect and retry soon */
		if (answer == NO_ANSWER)
		{
			PQreset(db);
			next = le_now() + 500;
			continue;
		}
		valid = answer;
		ttl = valid > ttl ? valid : ttl;
		until = now + valid > until ? now + valid : until;
		next = now + (valid / 3 > ttl / 20 ? valid / 3 : ttl / 20);
	}
	return lease_ended(lease);
}

/* Runs lease revoke, keep-alive or ttl, and returns the exit code. */
static int
lease_of_number(const arguments *a, const char *what)
{
	const char *lease = a->words[1], *value;

	if (strcmp(what, "revoke") == 0)
		return is_true(lc_query(a->db, "SELECT %s.revoke_lease(%s)", lc_schema(a->db), lease))
				   ? 0
				   : lease_ended(lease);
	if (strcmp(what, "keep-alive") == 0 && !a->once)
		return keep_alive_for_ever(a->db, lease);
	value = value_of(lc_query(a->db, "SELECT %s.%s(%s)", lc_schema(a->db),
							  strcmp(what, "ttl") == 0 ? "lease_time_to_live" : "keep_alive", lease));
	if (value == NULL)
		return lease_ended(lease);
	print_value(a->db, "time_left", "interval", value);
	return 0;
}

/* Grants a lease, and prints its number.  Revokes the lease if its number cannot be printed. */
static void
grant_lease(const arguments *a)
{
	const char *lease = value_of(lc_query(a->db, "SELECT %s.grant_lease('%d ms', %s)", lc_schema(a->db),
										  a->ttl > 0 ? a->ttl : 60000, owner_of(a)));

	print_or_give_back(a->db, "lease", lease,
					   lc_format("SELECT %s.revoke_lease(%s)", lc_schema(a->db), lease));
}

int
lc_lease(int argc, char **argv)
{
	arguments a;
	const char *what;

	parse(&a, argc, argv, " ttl owner once ");
	what = a.n > 0 ? a.words[0] : "";
	if (strcmp(what, "list") == 0)
	{
		need(&a, 1, "nothing more");
		a.db = lc_connect(false);
		lc_schema(a.db);
		lc_print(a.db, false, "SELECT * FROM lock_election.leases ORDER BY lease");
		return finish(&a, 0);
	}
	if (strcmp(what, "grant") == 0)
	{
		need(&a, 1, "nothing more");
		connect(&a, NULL);
		grant_lease(&a);
		return finish(&a, 0);
	}
	if (strcmp(what, "keep-alive") != 0 && strcmp(what, "revoke") != 0 && strcmp(what, "ttl") != 0)
		lc_usage("lease grant, keep-alive, revoke, ttl or list");
	need(&a, 2, "LEASE");
	lc_number("LEASE", a.words[1], 1, INT64_MAX);
	connect(&a, NULL);
	return finish(&a, lease_of_number(&a, what));
}
