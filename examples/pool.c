/*
 * A worker of the pool, with libpq: pool NAME [CONNECTION-STRING]
 */
#define _DEFAULT_SOURCE /* getentropy */
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <libpq-fe.h>

static const char *name;
static char owner[33]; /* new for each process: a worker that is started again is another one */
static volatile sig_atomic_t stopping;

static void
stop(int signo)
{
	stopping = signo;
}

/*
 * Runs a statement with up to three arguments. False if it failed, or if its
 * answer, the first value of its first row, is NULL: see the connection.
 */
static bool
ask(PGconn *db, char answer[32], const char *query, int n, ...)
{
	const char *args[3];
	PGresult *result;
	bool ok;
	va_list list;

	va_start(list, n);
	for (int i = 0; i < n; i++)
		args[i] = va_arg(list, const char *);
	va_end(list);
	result = PQexecParams(db, query, n, NULL, args, NULL, NULL, 0);
	ok = PQresultStatus(result) == PGRES_COMMAND_OK;
	if (PQresultStatus(result) == PGRES_TUPLES_OK)
		ok = !PQgetisnull(result, 0, 0);
	else if (!ok)
		printf("%s: %s", name, PQresultErrorMessage(result)); /* LE001: lost, and nothing was written */
	if (ok && answer)
		snprintf(answer, 32, "%s", PQgetvalue(result, 0, 0));
	PQclear(result);
	return ok;
}

/* The fence first: what follows it in the transaction is written by the leader, or not at all. */
static bool
work(PGconn *db, const char *term)
{
	if (ask(db, NULL, "BEGIN", 0) && ask(db, NULL, "SELECT fence_leader('pool', $1)", 1, term) &&
		ask(db, NULL, "UPDATE work SET done = done + 1, term = $1, worker = $2 WHERE id = 1", 2, term,
			name) &&
		ask(db, NULL, "COMMIT", 0))
		return true;
	return ask(db, NULL, "ROLLBACK", 0) && false;
}

/* Works until told to stop; returns when the leadership or the connection is lost. */
static void
lead(PGconn *db, const char *term)
{
	struct timespec now, renewed;

	clock_gettime(CLOCK_MONOTONIC, &renewed);
	while (!stopping)
	{
		if (!work(db, term))
			return;
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec > renewed.tv_sec) /* at the latest after a third of the TTL */
		{
			renewed = now;
			if (!ask(db, NULL, "SELECT renew_leadership('pool', $1)", 1, term))
				return;
		}
		usleep(200 * 1000);
	}
	/* the next leads at once, not when the TTL ends */
	if (ask(db, NULL, "SELECT resign('pool', $1)", 1, term))
		printf("%s: resigned\n", name);
}

int
main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = stop};
	unsigned char random[16];
	char term[32];
	PGconn *db;

	if (argc < 2 || getentropy(random, sizeof random) != 0)
		return 2;
	name = argv[1];
	for (size_t i = 0; i < sizeof random; i++)
		sprintf(owner + 2 * i, "%02x", random[i]);
	setvbuf(stdout, NULL, _IOLBF, 0);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);

	db = PQconnectdb(argc > 2 ? argv[2] : "");
	while (!stopping)
	{
		if (PQstatus(db) != CONNECTION_OK)
		{
			printf("%s: connects again after: %s", name, PQerrorMessage(db));
			sleep(1);
			PQreset(db);
			continue;
		}
		/* Waits a few seconds at a time, so that it can be stopped. Who still leads gets the same term again. */
		if (ask(db, NULL, "SET idle_in_transaction_session_timeout = '5 s'", 0) &&
			ask(db, term, "SELECT campaign('pool', $1, ttl => '3 s', wait => '3 s', owner => $2)", 2, name,
				owner))
		{
			printf("%s: leads, term %s\n", name, term);
			lead(db, term);
			if (!stopping)
				printf("%s: no longer sure to lead: campaigns again\n", name);
		}
		else
			usleep(100 * 1000); /* not elected in this time, or it failed */
	}
	PQfinish(db);
	return 0;
}
