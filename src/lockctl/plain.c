/*
 * plain.c
 *		Implements single steps for scripts: acquire, renew, release, held, lease.
 */
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

/* Maximum number of words that are parsed.  Commands accept fewer; need() rejects the first extra word. */
#define WORDS_MAX 4

typedef struct arguments
{
	int ttl, wait, permits, hold_for, not_acquired;
	bool shared, force, now, election, once;
	const char *owner;
	int64_t lease;
	const char **words;
	PGconn *db;
	char *name; /* name of the lock or election as an SQL literal; NULL = none */
} arguments;

#define NO_ARGUMENTS                                                                                         \
	{                                                                                                        \
		.ttl = -1, .wait = -1, .not_acquired = LC_EXIT_NOT_ACQUIRED                                          \
	}

/* Checks that there are exactly n words; "words" describes them in the error message. */
static void
need(const arguments *a, int n, const char *words)
{
	int i = 0;

	while (i < n && a->words[i] != NULL)
		i++;
	if (i < n)
		lc_usage("missing arguments: %s", words);
	if (a->words[n] != NULL)
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

/* Returns the single value of a result, or NULL if it is null or there is no row. */
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

/* Prints a value.  If that fails, lockctl exits, and undoes the action with this query (NULL = no undo). */
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
	arguments a = NO_ARGUMENTS;
	const lc_option options[] = {
		{"ttl", 0, LC_DURATION, &a.ttl, LC_TTL_MIN, LC_TTL_MAX},
		{"wait", 'w', LC_DURATION, &a.wait, 0, INT_MAX},
		{"try", 'n', LC_SET, &a.wait, 0, 0},
		{"shared", 's', LC_FLAG, &a.shared, 0, 0},
		{"permits", 0, LC_INT, &a.permits, 1, INT_MAX},
		{"owner", 0, LC_TEXT, &a.owner, 0, 0},
		{"lease", 0, LC_INT64, &a.lease, 1, INT64_MAX},
		{"conflict-exit-code", 'E', LC_CODES, &a.not_acquired, 0, 1},
		{0},
	};
	PGresult *result;
	const char *release = NULL;
	int signo, code = 0;

	a.words = lc_words(argc, argv, options, WORDS_MAX);
	need(&a, 1, "NAME");
	if (a.shared && a.permits > 0)
		lc_usage("--permits cannot be used with --shared");
	if (a.ttl > 0 && a.lease != 0)
		lc_usage("--ttl cannot be used with --lease");
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
		/* With --lease, do not undo: this would release a lock that the lease has held before. */
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

/* Reports why a renewal failed.  An evicted holder cannot renew its lock, but keeps it until its release. */
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

/* Checks that the words are NAME and TOKEN, and connects. */
static void
connect_to_lock(arguments *a, const char *words)
{
	need(a, 2, words);
	lc_number("TOKEN", a->words[1], 1, INT64_MAX);
	connect(a, a->words[0]);
}

int
lc_renew(int argc, char **argv)
{
	arguments a = NO_ARGUMENTS;
	const lc_option options[] = {{"ttl", 0, LC_DURATION, &a.ttl, LC_TTL_MIN, LC_TTL_MAX}, {0}};
	const char *value, *ttl;

	a.words = lc_words(argc, argv, options, WORDS_MAX);
	connect_to_lock(&a, "NAME and TOKEN");
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
						  : "nobody holds lock \"%s\" (for an election, use --election)",
			  a->words[0]);
	return LC_EXIT_LOST;
}

/* Ends all holders at once (release --force --now). */
static int
end_now(arguments *a)
{
	/*
	 * Count rows before the call.  A closed name has a row even without holders; the call opens it, so do not
	 * report that nobody holds it.
	 */
	int64_t there = rows_of(a);
	const char *ended = value_of(lc_query(a->db, "SELECT %s.%s(%s)", lc_schema(a->db),
										  a->election ? "force_resign" : "force_release_lock", a->name));
	int code = 0;

	print_value(a->db, "ended", "int8", ended);
	if (strcmp(ended, "0") != 0)
		lc_notice("ended immediately: a process that was working may continue next to the next holder until "
				  "it notices");
	else if (there == 0)
		code = tell_nobody(a);
	return code;
}

/*
 * Evicts the holders (release --force).  Evicted holders keep the lock until they release it, or until their
 * deadline.
 */
static int
evict(arguments *a)
{
	PGresult *result;
	const char *evicted = value_of(lc_query(a->db, "SELECT %s.%s(%s)", lc_schema(a->db),
											a->election ? "evict_leader" : "evict_lock", a->name));
	int code = 0;

	/* print the number of evicted holders */
	print_value(a->db, "evicted", "int8", evicted);
	/* report until when they hold the lock, or until when it is closed */
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
	arguments a = NO_ARGUMENTS;
	const lc_option options[] = {
		{"hold-for", 0, LC_DURATION, &a.hold_for, 1, INT_MAX},
		{"force", 0, LC_FLAG, &a.force, 0, 0},
		{"now", 0, LC_FLAG, &a.now, 0, 0},
		{"election", 0, LC_FLAG, &a.election, 0, 0},
		{0},
	};
	const char *hold_for;
	bool released;

	a.words = lc_words(argc, argv, options, WORDS_MAX);
	if (a.force)
		return force(&a);
	if (a.election || a.now)
		lc_usage("%s requires --force", a.election ? "--election" : "--now");
	connect_to_lock(&a, "NAME and TOKEN, or --force NAME");
	hold_for = a.hold_for > 0 ? lc_format(", hold_for => '%d ms'", a.hold_for) : "";
	released = is_true(
		lc_query(a.db, "SELECT %s.release_lock(%s, %s%s)", lc_schema(a.db), a.name, a.words[1], hold_for));
	return finish(&a, released ? 0 : lost(a.words[0]));
}

int
lc_held(int argc, char **argv)
{
	arguments a = NO_ARGUMENTS;

	a.words = lc_words(argc, argv, NULL, WORDS_MAX);
	connect_to_lock(&a, "NAME and TOKEN");
	return finish(&a, is_held(&a) ? 0 : lost(a.words[0]));
}

/* --- leases --- */

static int
lease_ended(const char *lease)
{
	lc_notice("lease %s has ended", lease);
	return LC_EXIT_LOST;
}

/* Runs a statement.  Returns NULL if there is no reply before "until". */
static PGresult *
ask_until(PGconn *db, const char *query, int64_t until)
{
	bool sent = PQsendQuery(db, query) == 1;

	while (sent && PQisBusy(db) && le_now() < until)
	{
		struct pollfd fd = {.fd = PQsocket(db), .events = POLLIN};

		/* Limit the time, because a stopped server keeps the connection open without a reply. */
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

#define NO_ANSWER (-1) /* no reply in time, or an error */
#define GONE      (-2) /* the lease has ended */

/*
 * Renews a lease, even if the extension's schema was renamed.  Returns the validity in ms from now on
 * (normally the TTL), NO_ANSWER or GONE.
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
 * Renews a lease until it has ended or a signal arrives.  Renews after a third of the validity, or after a
 * twentieth of the TTL if that is later.  After a failure, reconnects and retries for as long as the lease
 * may still be valid.  A reply with a shorter validity does not shorten the time that an earlier reply
 * granted.
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
	arguments a = NO_ARGUMENTS;
	const lc_option options[] = {
		{"ttl", 0, LC_DURATION, &a.ttl, LC_TTL_MIN, LC_TTL_MAX},
		{"owner", 0, LC_TEXT, &a.owner, 0, 0},
		{"once", 0, LC_FLAG, &a.once, 0, 0},
		{0},
	};
	const char *what;

	a.words = lc_words(argc, argv, options, WORDS_MAX);
	what = a.words[0] != NULL ? a.words[0] : "";
	/* subcommands that take no lease number */
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
	/* subcommands that take a lease number */
	if (strcmp(what, "keep-alive") != 0 && strcmp(what, "revoke") != 0 && strcmp(what, "ttl") != 0)
		lc_usage("lease grant, keep-alive, revoke, ttl or list");
	need(&a, 2, "LEASE");
	lc_number("LEASE", a.words[1], 1, INT64_MAX);
	connect(&a, NULL);
	return finish(&a, lease_of_number(&a, what));
}
