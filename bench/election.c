/*
 * election.c
 *		Measures by one monotonic clock how long an election has no leader.
 *
 *	election crash N	N leaders with a TTL of 1 s die by SIGKILL.  Prints a
 *						line for each: microseconds from the request, and from
 *						the reply, of its last renewal to the reply to the
 *						next leader's campaign
 *	election hand-off N	Hands off a lock and an election N times.  Prints a
 *						line for each: microseconds from the request of
 *						release_lock to the reply to the next holder, and the
 *						same for resign
 *	election observed N OBSERVERS
 *						Hands off an election N times without and N times
 *						with observers.  Prints a line for each: microseconds
 *						from the request of resign to the reply to the next
 *						leader, without and with observers, and until the
 *						last observer was notified of that leader.  Fails if
 *						an observer misses a change
 *
 * Connects to the server that libpq's environment variables name.
 */
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <libpq-fe.h>

typedef struct Renewal
{
	int64_t sent;
	int64_t answered;
} Renewal;

#define MAX_NUMBER 24
#define MAX_SILENCE_MS 10000
#define SETTLE_US 20000 /* pause between hand-offs, so that the server is idle again */
#define TURN 20

/* A listening connection, and the number of the last change that it was notified of. */
typedef struct Observer
{
	PGconn *conn;
	char change[MAX_NUMBER];
} Observer;

static int64_t
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t) t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void
die(const char *what, PGconn *conn)
{
	fprintf(stderr, "%s: %s", what, conn != NULL ? PQerrorMessage(conn) : "\n");
	exit(1);
}

static PGconn *
connect_db(void)
{
	PGconn *conn = PQconnectdb("");

	if (PQstatus(conn) != CONNECTION_OK)
		die("connect", conn);
	return conn;
}

/* Returns the only value of the reply, which the caller must free. Exits if it is NULL. */
static char *
answer(PGconn *conn, PGresult *result)
{
	char *value;

	if (PQresultStatus(result) != PGRES_TUPLES_OK || PQntuples(result) != 1 || PQgetisnull(result, 0, 0))
		die("no answer", conn);
	value = strdup(PQgetvalue(result, 0, 0));
	PQclear(result);
	return value;
}

static char *
ask(PGconn *conn, const char *sql)
{
	return answer(conn, PQexec(conn, sql));
}

static void
start(PGconn *conn, const char *sql)
{
	if (!PQsendQuery(conn, sql))
		die(sql, conn);
}

/* Waits for the reply to the statement of start(). Returns the time at which it arrived. */
static int64_t
finish(PGconn *conn, char **value)
{
	PGresult *result = PQgetResult(conn);
	int64_t at = now();

	*value = answer(conn, result);
	while ((result = PQgetResult(conn)) != NULL)
		PQclear(result);
	return at;
}

static void
until_one_waits(PGconn *conn)
{
	for (;;)
	{
		char *n = ask(conn, "SELECT count(*) FROM lock_election.waiters");
		int waits = atoi(n);

		free(n);
		if (waits == 1)
			return;
		usleep(1000);
	}
}

/* Runs a process that leads, renews for a while, and then kills itself. */
static void
lead(int out)
{
	PGconn *conn = connect_db();
	char *term = ask(conn, "SELECT campaign('crash', 'leader', ttl => '1 s')");
	char sql[100];
	int renewals = 3 + rand() % 5;
	Renewal renewal;

	snprintf(sql, sizeof(sql), "SELECT renew_leadership('crash', %s)", term);
	for (int i = 0; i < renewals; i++)
	{
		usleep(50000 + rand() % 100000);
		renewal.sent = now();
		free(ask(conn, sql));
		renewal.answered = now();
		if (write(out, &renewal, sizeof(renewal)) != sizeof(renewal))
			die("write", NULL);
	}
	usleep(rand() % 100000);
	kill(getpid(), SIGKILL);
}

static void
crash(int n)
{
	for (int i = 0; i < n; i++)
	{
		Renewal renewal = {0, 0};
		PGconn *next;
		int64_t elected;
		int fds[2];
		char *term, *resigned;
		char sql[100];

		if (pipe(fds) != 0)
			die("pipe", NULL);
		srand(i + 1);
		fflush(stdout);
		if (fork() == 0)
			lead(fds[1]);
		close(fds[1]);

		/* The child leads if it has renewed. */
		if (read(fds[0], &renewal, sizeof(renewal)) != sizeof(renewal))
			die("the leader has not renewed", NULL);
		next = connect_db();
		start(next, "SELECT campaign('crash', 'next', ttl => '1 min')");
		elected = finish(next, &term);
		while (read(fds[0], &renewal, sizeof(renewal)) == sizeof(renewal))
			;
		close(fds[0]);
		wait(NULL);
		printf("%ld %ld\n", (long) (elected - renewal.sent), (long) (elected - renewal.answered));
		snprintf(sql, sizeof(sql), "SELECT resign('crash', %s)", term);
		resigned = ask(next, sql);
		if (strcmp(resigned, "t") != 0)
			die("not resigned", NULL);
		free(resigned);
		free(term);
		PQfinish(next);
	}
}

/*
 * Hands off a lock or an election from conns[0] to conns[1], and swaps them.  Returns the microseconds from the request
 * of "give" to the reply to "take".
 */
static int64_t
hand_off(PGconn *conns[2], PGconn *watch, const char *take, const char *give, char **token, int64_t *sent)
{
	PGconn *holder = conns[0];
	char sql[100], *given;
	int64_t taken;

	start(conns[1], take);
	until_one_waits(watch);
	snprintf(sql, sizeof(sql), give, *token);
	free(*token);
	*sent = now();
	start(holder, sql);
	taken = finish(conns[1], token);
	(void) finish(holder, &given);
	if (strcmp(given, "t") != 0)
		die("not given", NULL);
	free(given);
	conns[0] = conns[1];
	conns[1] = holder;
	return taken - *sent;
}

static void
hand_offs(int n)
{
	PGconn *lock[2] = {connect_db(), connect_db()}, *election[2] = {connect_db(), connect_db()};
	PGconn *watch = connect_db();
	const char *acquire = "SELECT acquire_lock('hand-off', '1 min')";
	const char *campaign = "SELECT campaign('hand-off', 'leader', '1 min')";
	char *token = ask(lock[0], acquire), *term = ask(election[0], campaign);

	int64_t sent;

	for (int i = 0; i < n; i++)
	{
		long of_lock = hand_off(lock, watch, acquire, "SELECT release_lock('hand-off', %s)", &token, &sent);
		long of_election = hand_off(election, watch, campaign, "SELECT resign('hand-off', %s)", &term, &sent);

		printf("%ld %ld\n", of_lock, of_election);
	}
}

/* --- observers --- */

/* Copies the text of a field of a notification's payload, "field":"text". */
static void
field(const char *payload, const char *name, char *text, size_t size)
{
	char key[20];
	const char *at;

	snprintf(key, sizeof(key), "\"%s\":\"", name);
	at = strstr(payload, key);
	if (at == NULL)
		die(payload, NULL);
	at += strlen(key);
	snprintf(text, size, "%.*s", (int) strcspn(at, "\""), at);
}

/*
 * Reads the notifications that have arrived, and returns whether one reports the election of "term".  Exits if an
 * earlier one is missing.
 */
static bool
told(Observer *observer, const char *term)
{
	bool elected = false;
	PGnotify *notice;

	if (!PQconsumeInput(observer->conn))
		die("observer", observer->conn);
	while ((notice = PQnotifies(observer->conn)) != NULL)
	{
		char previous[MAX_NUMBER], event[MAX_NUMBER], of[MAX_NUMBER];

		field(notice->extra, "previous", previous, sizeof(previous));
		if (observer->change[0] != '\0' && strcmp(previous, observer->change) != 0)
			die("an observer has missed a change", NULL);
		field(notice->extra, "change", observer->change, sizeof(observer->change));
		field(notice->extra, "event", event, sizeof(event));
		field(notice->extra, "term", of, sizeof(of));
		elected |= strcmp(event, "elected") == 0 && strcmp(of, term) == 0;
		PQfreemem(notice);
	}
	return elected;
}

/* Waits until all observers were notified of the election of "term", and returns the time. */
static int64_t
until_all_are_told(Observer *observers, int n, const char *term)
{
	struct pollfd *fds = calloc(n, sizeof(struct pollfd));
	int64_t at;

	for (int i = 0; i < n; i++)
		fds[i] = (struct pollfd){.fd = PQsocket(observers[i].conn), .events = POLLIN};
	for (int left = n; left > 0;)
	{
		if (poll(fds, n, MAX_SILENCE_MS) <= 0)
			die("an observer was not told", NULL);
		for (int i = 0; i < n; i++)
			if (fds[i].revents != 0 && told(&observers[i], term))
			{
				/* poll() ignores this observer from now on */
				fds[i].fd = -1;
				left--;
			}
	}
	at = now();
	free(fds);
	return at;
}

static void
command_all(Observer *observers, int n, const char *sql)
{
	for (int i = 0; i < n; i++)
	{
		PGresult *result = PQexec(observers[i].conn, sql);

		if (PQresultStatus(result) != PGRES_COMMAND_OK)
			die(sql, observers[i].conn);
		PQclear(result);
		observers[i].change[0] = '\0';
	}
}

/* Measures hand-offs alternately without and with observers, over the same connections, so that only LISTEN differs. */
static void
observed(int n, int nobservers)
{
	PGconn *election[2] = {connect_db(), connect_db()}, *watch = connect_db();
	Observer *observers = calloc(nobservers, sizeof(Observer));
	const char *campaign = "SELECT campaign('observed', 'leader', '1 min')";
	const char *resign = "SELECT resign('observed', %s)";
	char *channel = ask(watch, "SELECT observe_election('observed')");
	char *term = ask(election[0], campaign);
	char listen[100];

	snprintf(listen, sizeof(listen), "LISTEN %s", channel);
	for (int i = 0; i < nobservers; i++)
		observers[i].conn = connect_db();
	for (int i = 0; i < n; i += TURN)
	{
		long unobserved[TURN];

		for (int j = 0; j < TURN; j++)
		{
			int64_t sent;

			unobserved[j] = hand_off(election, watch, campaign, resign, &term, &sent);
			usleep(SETTLE_US);
		}
		command_all(observers, nobservers, listen);
		for (int j = 0; j < TURN; j++)
		{
			int64_t sent;
			long taken = hand_off(election, watch, campaign, resign, &term, &sent);
			long told = until_all_are_told(observers, nobservers, term) - sent;

			printf("%ld %ld %ld\n", unobserved[j], taken, told);
			usleep(SETTLE_US);
		}
		command_all(observers, nobservers, "UNLISTEN *");
	}
}

int
main(int argc, char **argv)
{
	int n = argc >= 3 ? atoi(argv[2]) : 0;

	if (n > 0 && argc == 3 && strcmp(argv[1], "crash") == 0)
		crash(n);
	else if (n > 0 && argc == 3 && strcmp(argv[1], "hand-off") == 0)
		hand_offs(n);
	else if (n > 0 && argc == 4 && atoi(argv[3]) > 0 && strcmp(argv[1], "observed") == 0)
		observed(n, atoi(argv[3]));
	else
		die("usage: election crash|hand-off N, election observed N OBSERVERS", NULL);
	return 0;
}
