/*
 * client.h
 *		What the tests of the library share.  A test program gets a connection
 *		string, and may ask the script that runs it to do something to the
 *		server: see ask().
 */
#ifndef CLIENT_H
#define CLIENT_H

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../unit/tap.h"
#include "lock_election.h"

/* Milliseconds. Generous, because a machine can be busy; a passing test never waits for as long as this. */
#define PATIENCE 60000

static const char *conninfo;
static le_error error;

static inline void
die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	printf("Bail out! ");
	vprintf(format, args);
	printf("\n");
	va_end(args);
	exit(1);
}

static inline int
run_tests(int argc, char **argv, void (*tests)(void))
{
	if (argc != 2)
		die("usage: %s CONNINFO", argv[0]);
	setvbuf(stdout, NULL, _IOLBF, 0);
	conninfo = argv[1];
	tests();
	return done_testing();
}

/* Sends an action to the script that runs this program, see LeClient.pm. Returns its reply. */
static inline const char *
ask(const char *format, ...)
{
	static char answer[1000];
	va_list args;

	va_start(args, format);
	printf("do: ");
	vprintf(format, args);
	printf("\n");
	va_end(args);
	fflush(stdout);
	if (fgets(answer, sizeof(answer), stdin) == NULL)
		die("the script has not replied");
	answer[strcspn(answer, "\n")] = '\0';
	return answer;
}

#define is_status(got, expected, name) tap_status((got), (expected), (name), __LINE__)

static inline bool
tap_status(le_status got, le_status expected, const char *name, int line)
{
	if (!tap_ok(got == expected, name, line))
	{
		printf("#   got %s, expected %s; last error: %s %s\n", le_status_name(got), le_status_name(expected),
			   error.sqlstate, error.message);
		return false;
	}
	return true;
}

/* Waits until a condition is true. */
#define eventually(condition, name)                                                                          \
	do                                                                                                       \
	{                                                                                                        \
		int64_t eventually_end = le_now() + PATIENCE;                                                        \
		while (!(condition) && le_now() < eventually_end)                                                    \
			usleep(2000);                                                                                    \
		ok(condition, name);                                                                                 \
	} while (0)

#define eventually_quietly(condition)                                                                        \
	for (int64_t quiet_end = le_now() + PATIENCE; !(condition) && le_now() < quiet_end;)                     \
	usleep(200)

static inline le_options
options_of(int ttl_ms)
{
	return (le_options){.size = sizeof(le_options), .conninfo = conninfo, .ttl_ms = ttl_ms};
}

static inline le_session *
open_with(const le_options *options)
{
	le_session *s;

	if (le_open(options, &s, &error) != LE_OK)
		die("le_open: %s: %s", le_status_name(error.status), error.message);
	return s;
}

static inline le_session *
open_session(int ttl_ms)
{
	le_options o = options_of(ttl_ms);

	return open_with(&o);
}

static inline le_status
lock(le_session *s, const char *name, int wait_ms, le_hold **hold)
{
	return le_acquire(s, &name, 1, NULL, wait_ms, hold, &error);
}

static inline le_status
lock_how(le_session *s, const char *name, le_how how, int wait_ms, le_hold **hold)
{
	how.size = sizeof(how);
	return le_acquire(s, &name, 1, &how, wait_ms, hold, &error);
}

static inline le_hold *
must_lock(le_session *s, const char *name)
{
	le_hold *hold;

	if (lock(s, name, PATIENCE, &hold) != LE_OK)
		die("lock %s: %s: %s", name, le_status_name(error.status), error.message);
	return hold;
}

static inline le_hold *
enqueue(le_session *s, const char *name)
{
	le_hold *hold;

	if (le_enqueue(s, &name, 1, NULL, &hold, &error) != LE_OK)
		die("enqueue %s: %s", name, error.message);
	return hold;
}

/* Returns the value of a query that returns one row with one column; "" for no row or NULL. */
static inline const char *
query(PGconn *conn, const char *format, ...)
{
	static char value[2000];
	char sql[2000];
	va_list args;
	PGresult *result;

	va_start(args, format);
	vsnprintf(sql, sizeof(sql), format, args);
	va_end(args);
	result = PQexec(conn, sql);
	value[0] = '\0';
	if (PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) > 0)
		snprintf(value, sizeof(value), "%s", PQgetvalue(result, 0, 0));
	else if (PQresultStatus(result) != PGRES_TUPLES_OK && PQresultStatus(result) != PGRES_COMMAND_OK)
		snprintf(value, sizeof(value), "%s", PQresultErrorMessage(result));
	PQclear(result);
	return value;
}

/* Opens a connection of the test itself, which bypasses a pooler that the sessions use. */
static inline PGconn *
connect_db(void)
{
	PGconn *conn = PQconnectdb(getenv("LE_TEST_DIRECT") != NULL ? getenv("LE_TEST_DIRECT") : conninfo);

	if (PQstatus(conn) != CONNECTION_OK)
		die("%s", PQerrorMessage(conn));
	return conn;
}

#endif /* CLIENT_H */
