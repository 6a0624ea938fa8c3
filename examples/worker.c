/*
 * A worker of the pool in C, with libpq.
 *
 *	cc -o worker examples/worker.c -I$(pg_config --includedir) -L$(pg_config --libdir) -lpq
 *	./worker NAME			the database: PGHOST, PGDATABASE, ... as for psql
 */
#define _DEFAULT_SOURCE

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <libpq-fe.h>

static const char *name;
static char owner[37]; /* our identity, whatever connection we use */
static volatile sig_atomic_t stop;

static void
on_signal(int signo)
{
	(void) signo;
	stop = 1;
}

/* Runs a statement; its first value is in answer, "" for NULL.  False: an error, which is told. */
static bool
run(PGconn *conn, const char *sql, const char *arg1, const char *arg2, char *answer, size_t size)
{
	const char *args[] = {arg1, arg2};
	PGresult *result = PQexecParams(conn, sql, arg2 ? 2 : arg1 ? 1 : 0, NULL, args, NULL, NULL, 0);
	ExecStatusType status = PQresultStatus(result);
	const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	bool ok = status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK;

	if (!ok)
		printf("%s: %s\n", name, sqlstate ? sqlstate : PQerrorMessage(conn));
	else if (answer != NULL)
		snprintf(answer, size, "%s", PQntuples(result) > 0 ? PQgetvalue(result, 0, 0) : "");
	PQclear(result);
	return ok;
}

/* Works for as long as we lead.  False: an error. */
static bool
lead(PGconn *conn, const char *term)
{
	time_t renewed = time(NULL);
	char valid[64];

	printf("%s leads, term %s\n", name, term);
	while (!stop)
	{
		/* From the fence to the commit nobody else can be elected. */
		if (!run(conn, "BEGIN", NULL, NULL, NULL, 0) ||
			!run(conn, "SELECT fence_leader('pool', $1)", term, NULL, NULL, 0) ||
			!run(conn, "INSERT INTO work SELECT coalesce(max(number), 0) + 1, $1, $2 FROM work", term, name, NULL, 0) ||
			!run(conn, "COMMIT", NULL, NULL, NULL, 0))
			return false;
		if (time(NULL) > renewed)
		{
			if (!run(conn, "SELECT renew_leadership('pool', $1)", term, NULL, valid, sizeof(valid)))
				return false;
			if (valid[0] == '\0')
			{
				printf("%s leads no more\n", name);
				return true;
			}
			renewed = time(NULL);
		}
		usleep(100000);
	}
	/* The next in order leads at once, and need not wait for our TTL. */
	return run(conn, "SELECT resign('pool', $1)", term, NULL, NULL, 0);
}

static void
work(PGconn *conn)
{
	char term[32];

	while (!stop)
	{
		/* Waits for a second at most, so that a signal is served.
		 * The same owner gets the term that it has already. */
		if (!run(conn, "SELECT campaign('pool', $1, ttl => '3 s', wait => '1 s', owner => $2)", name, owner, term,
				 sizeof(term)) ||
			(term[0] != '\0' && !lead(conn, term)))
			return;
	}
}

int
main(int argc, char **argv)
{
	FILE *random = fopen("/proc/sys/kernel/random/uuid", "r");

	if (argc != 2 || random == NULL || fgets(owner, sizeof(owner), random) == NULL)
	{
		fprintf(stderr, "usage: worker NAME\n");
		return 2;
	}
	fclose(random);
	name = argv[1];
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGTERM, on_signal);
	signal(SIGINT, on_signal);
	while (!stop)
	{
		PGconn *conn = PQconnectdb("");

		if (PQstatus(conn) == CONNECTION_OK)
			work(conn);
		else
			printf("%s: %s", name, PQerrorMessage(conn));
		PQfinish(conn); /* an open transaction is rolled back */

		/* LE001: somebody else leads.  Or the server is gone: another one may have taken over. */
		if (!stop)
			usleep(500000);
	}
	printf("%s leaves\n", name);
	return 0;
}
