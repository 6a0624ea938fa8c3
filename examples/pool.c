/*
 * A worker of the pool, with liblockelection: pool NAME [CONNECTION-STRING]
 */
#define _POSIX_C_SOURCE 200809L /* sigtimedwait */
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <lock_election.h>

static const char *name, *conninfo;

static bool
run(PGconn *db, const char *query, int n, const char *const *args)
{
	PGresult *result = PQexecParams(db, query, n, NULL, args, NULL, NULL, 0);
	bool ok = PQresultStatus(result) == PGRES_COMMAND_OK;

	if (!ok)
		printf("%s: %s", name, PQresultErrorMessage(result));
	PQclear(result);
	return ok;
}

/* The fence comes first: all later writes of the transaction are the leader's, or fail. */
static bool
work(PGconn *db, le_hold *term)
{
	char number[32];
	const char *args[] = {number, name};
	le_error error;

	snprintf(number, sizeof number, "%lld", (long long) le_token(term));
	if (!run(db, "BEGIN", 0, NULL))
		return false;
	if (le_fence(term, db, &error) != LE_OK)
		printf("%s: %s\n", name, error.message);
	else if (run(db, "UPDATE work SET done = done + 1, term = $1, worker = $2 WHERE id = 1", 2, args))
		return run(db, "COMMIT", 0, NULL);
	run(db, "ROLLBACK", 0, NULL);
	return false;
}

/* Runs in a separate thread. The term is resigned, and the next worker leads, only when it has returned. */
static int
on_elected(le_hold *term, void *arg)
{
	PGconn *db = PQconnectdb(conninfo);

	(void) arg;
	printf("%s: leads, term %lld\n", name, (long long) le_token(term));
	run(db, "SET idle_in_transaction_session_timeout = '5 s'", 0, NULL);
	while (!le_must_stop(term))
	{
		if (!work(db, term) && !le_wait_stop(term, 1000) && PQstatus(db) != CONNECTION_OK)
			PQreset(db);
		le_wait_stop(term, 200);
	}
	if (!le_valid(term))
		printf("%s: lost, stands again\n", name);
	PQfinish(db);
	return 0;
}

int
main(int argc, char **argv)
{
	le_callbacks callbacks = {.size = sizeof callbacks, .on_elected = on_elected};
	le_options options = {.size = sizeof options, .ttl_ms = 3000};
	le_session *session;
	le_runner *runner;
	le_error error;
	sigset_t signals;
	int signo;

	if (argc < 2)
		return 2;
	name = argv[1];
	options.conninfo = conninfo = argc > 2 ? argv[2] : "";
	setvbuf(stdout, NULL, _IOLBF, 0);
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);

	while (le_open(&options, &session, &error) != LE_OK)
	{
		printf("%s: %s\n", name, error.message);
		if (sigtimedwait(&signals, NULL, &(struct timespec){.tv_sec = 1}) > 0)
			return 0;
	}
	if (le_run(session, "pool", name, &callbacks, &runner, &error) != LE_OK)
	{
		printf("%s: %s\n", name, error.message);
		return 1;
	}
	sigwait(&signals, &signo);
	if (le_stop(runner, &error) != LE_OK) /* waits for on_elected */
		printf("%s: %s\n", name, error.message);
	le_close(session, -1, NULL); /* the next one leads immediately, not when the TTL ends */
	printf("%s: resigned\n", name);
	return 0;
}
