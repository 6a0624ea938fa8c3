/*
 * watch.c
 *		Prints changes.  The command watch reads the locks at intervals; elect --listen observes an election,
 *		and misses no change.
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

/* --- watch --- */

enum
{
	COL_KIND,
	COL_NAME,
	COL_SLOT,
	COL_SINCE,
	COL_OWNER,
	COL_WAITERS,
	COL_AT,
	COL_JSON
};

static void
tell_line(const char *event, const char *const *field, const char *at)
{
	size_t mark = lc_mark();
	char *name = lc_printable(field[COL_NAME]), *owner = lc_printable(field[COL_OWNER]);

	printf("%s  %-8s %-8s %s  %s%s%s waiting\n", at, event, field[COL_KIND], name, owner,
		   owner[0] != '\0' ? "  " : "", field[COL_WAITERS]);
	lc_free_since(mark);
}

/* Prints an event of a lock, in the format that -o selects. */
static void
tell(const char *event, const PGresult *rows, int row, const char *at)
{
	const char *field[COL_JSON + 1];

	for (int c = 0; c <= COL_JSON; c++)
		field[c] = PQgetvalue(rows, row, c);
	if (lc_globals.output == LC_JSON)
		printf("{\"event\":\"%s\",\"at\":\"%s\",\"lock\":%s}\n", event, at, field[COL_JSON]);
	else if (lc_globals.output == LC_CSV)
	{
		lc_csv(event, false, ",");
		lc_csv(at, false, ",");
		lc_csv(field[COL_KIND], false, ",");
		lc_csv(field[COL_NAME], false, ",");
		lc_csv(field[COL_OWNER], false, ",");
		lc_csv(field[COL_WAITERS], false, "\n");
	}
	else
		tell_line(event, field, at);
}

/* Compares two rows by kind, name and slot. */
static int
compare(const PGresult *a, int i, const PGresult *b, int j)
{
	for (int c = COL_KIND; c <= COL_NAME; c++)
	{
		int order = strcmp(PQgetvalue(a, i, c), PQgetvalue(b, j, c));

		if (order != 0)
			return order;
	}
	return atoi(PQgetvalue(a, i, COL_SLOT)) - atoi(PQgetvalue(b, j, COL_SLOT));
}

/* Prints the differences between two lists, which are sorted by compare(). */
static void
tell_changes(const PGresult *old, const PGresult *new, const char *at)
{
	int i = 0, j = 0, n = old != NULL ? PQntuples(old) : 0, m = PQntuples(new);

	while (i < n || j < m)
	{
		int order = i == n ? 1 : j == m ? -1 : compare(old, i, new, j);

		if (order < 0)
			tell("ended", old, i++, at);
		else if (order > 0)
			tell(old == NULL ? "held" : "granted", new, j++, at);
		else
		{
			if (strcmp(PQgetvalue(old, i, COL_SINCE), PQgetvalue(new, j, COL_SINCE)) != 0)
				tell("granted", new, j, at);
			else if (strcmp(PQgetvalue(old, i, COL_WAITERS), PQgetvalue(new, j, COL_WAITERS)) != 0)
				tell("waiters", new, j, at);
			i++;
			j++;
		}
	}
	lc_flush();
}

/*
 * Reads the locks that the condition selects, prints the changes since the old list, and returns the new
 * list.
 */
static PGresult *
look(PGconn *db, const char *where, const PGresult *old)
{
	size_t mark = lc_mark();
	PGresult *clock = lc_query(db, "SELECT to_char(clock_timestamp(), 'YYYY-MM-DD HH24:MI:SS.MSOF')");
	PGresult *new = lc_query(db,
							 "SELECT kind, name, slot, acquired_at, owner, waiters, NULL, row_to_json(l) "
							 "FROM (SELECT * FROM lock_election.locks WHERE mode IS NOT NULL) l%s ORDER BY "
							 "kind COLLATE \"C\", name COLLATE \"C\", slot",
							 where);

	lc_own();
	tell_changes(old, new, PQgetvalue(clock, 0, 0));
	lc_free_since(mark);
	return new;
}

/* Reads the locks at intervals, count times (0 = forever), and prints the changes. */
static void
watch(const char *name, int interval, int64_t count)
{
	const char *where = "";
	PGresult *old = NULL, *new;
	PGconn *db;

	lc_choose_shard(&name, name != NULL);
	db = lc_connect(false);
	if (name != NULL)
		where = lc_format(" WHERE name = %s", lc_literal(db, name));
	lc_schema(db);
	if (lc_globals.output == LC_CSV)
		puts("event,at,kind,name,owner,waiters");
	for (int64_t i = 0; count == 0 || i < count; i++)
	{
		if (i > 0)
			poll(NULL, 0, interval);
		new = look(db, where, old);
		PQclear(old);
		old = new;
	}
	PQclear(old);
	PQfinish(db);
}

int
lc_watch(int argc, char **argv)
{
	int interval = 1000;
	int64_t count = 0;
	const lc_option options[] = {
		{"interval", 0, LC_DURATION, &interval, 10, INT_MAX},
		{"count", 0, LC_INT64, &count, 1, INT64_MAX},
		{0},
	};
	const char *name = lc_words(argc, argv, options, 1)[0];

	/* watch() returns only with --count */
	watch(name, interval, count);
	return 0;
}

/* --- elect --listen --- */

/* Prints a change of the election, in the format that -o selects. */
static void
on_change(const le_change *change, void *arg)
{
	const char *candidate = change->candidate != NULL ? change->candidate : "";
	size_t mark = lc_mark();

	(void) arg;
	if (lc_globals.output == LC_JSON)
		printf("{\"change\":%lld,\"how\":\"%s\",\"term\":%lld,\"leads\":%s,\"candidate\":%s}\n",
			   (long long) change->change, change->how, (long long) change->term,
			   change->leads ? "true" : "false", lc_json(candidate));
	else if (lc_globals.output == LC_CSV)
	{
		printf("%lld,%s,%lld,", (long long) change->change, change->how, (long long) change->term);
		lc_csv(candidate, false, "\n");
	}
	else
		printf("%s  %lld  %s\n", change->how, (long long) change->term, lc_printable(candidate));
	lc_flush();
	lc_free_since(mark);
}

int
lc_elect_listen(const char *election)
{
	le_options options = {.size = sizeof(options), .name = "lockctl elect --listen "};
	struct pollfd fd = {.events = POLLIN};
	le_session *session;
	le_observer *observer;
	le_error error;
	int signo;

	lc_choose_shard(&election, 1);
	/* open a session, with an observer that begins with the current leader */
	options.conninfo = lc_conninfo();
	if (le_open(&options, &session, &error) != LE_OK)
		lc_die(lc_exit_code(error.status), "%s", lc_line(error.message));
	fd.fd = lc_signals_fd();
	if (lc_globals.output == LC_CSV)
		puts("change,how,term,candidate");
	lc_flush();
	if (le_observe(session, election, -1, on_change, NULL, &observer, &error) != LE_OK)
		lc_die(lc_exit_code(error.status), "%s", lc_line(error.message));
	/* Wait for a signal.  The observer works even if the lease is lost. */
	do
	{
		poll(&fd, 1, -1);
		signo = lc_signals_next(fd.fd);
	} while (signo == 0 || signo == SIGCONT);
	le_unobserve(observer);
	le_close(session, 1000, NULL);
	lc_signals_die(signo);
}
