/*
 * arguments.c
 *		What calls say of arguments that are wrong, of texts in other encodings,
 *		and of connection strings with a password.
 */
#include "client.h"

static le_session *s;
static PGconn *db;

/* Checks the whole message: which argument is invalid, its value, and the allowed values. */
#define refused(call, expected) check_refused((call), (expected), __LINE__)

static void
check_refused(le_status status, const char *expected, int line)
{
	bool same = status == LE_INVALID && strcmp(error.message, expected) == 0;

	if (!tap_ok(same, expected, line))
		printf("#   got %s: %s\n", le_status_name(status), error.message);
}

static le_status
opened(le_options options)
{
	le_session *none = NULL;
	le_status status;

	options.size = sizeof(options);
	if (options.conninfo == NULL)
		options.conninfo = conninfo;
	status = le_open(&options, &none, &error);
	if (status == LE_OK)
		le_close(none, -1, NULL);
	return status;
}

/* --- sessions --- */

static void
of_sessions(void)
{
	refused(le_open(NULL, NULL, &error), "session is NULL");
	refused(opened((le_options){.ttl_ms = 99}), "ttl_ms is 99: 0 (30000) and 100 to 2073600000 are allowed");
	refused(opened((le_options){.ttl_ms = INT32_MIN}),
			"ttl_ms is -2147483648: 0 (30000) and 100 to 2073600000 are allowed");
	refused(opened((le_options){.ttl_ms = 1000, .margin_ms = 500}),
			"margin_ms is 500: 0 (a twentieth of ttl_ms) to less than half of ttl_ms, 500, are allowed");
	refused(opened((le_options){.connect_ms = -1}), "connect_ms is -1: 0 (the default) and more are allowed");
	refused(opened((le_options){.call_ms = -5}), "call_ms is -5: 0 (the default) and more are allowed");
	refused(opened((le_options){.progress_ms = INT32_MIN}),
			"progress_ms is -2147483648: 0 (the default) and more are allowed");
	refused(opened((le_options){.poll_ms = -1}), "poll_ms is -1: 0 (the default) and more are allowed");
	refused(opened((le_options){.listen = 2}), "listen is 2: -1, 0 and 1 are allowed");
	refused(opened((le_options){.name = "caf\xe9"}), "name is not UTF-8: byte 4 is 0xe9");
	is_status(opened((le_options){.ttl_ms = 100}), LE_OK, "the shortest TTL");
	is_status(opened((le_options){.connect_ms = INT32_MAX, .call_ms = INT32_MAX, .poll_ms = INT32_MAX}),
			  LE_OK, "the longest limits");
	refused(le_reopen(NULL, &error), "session is NULL");
	is_status(le_close(NULL, -1, &error), LE_OK, "le_close(NULL) does nothing");
	refused(le_close(open_session(5000), -2, &error), "wait_ms is -2: -1 (no limit), 0 and more are allowed");
	eventually(strcmp(query(db, "SELECT count(*) FROM lock_election.leases"), "1") == 0,
			   "the session is closed although wait_ms is invalid");
}

/* --- names, and other members of a request --- */

/* Invalid UTF-8, in the first bytes, where PostgreSQL reports it. */
static const char *const broken[] = {
	"\x80",         "\xc0\xaf",         "\xc3",         "\xe0\x80\xaf",     "\xe2\x82",
	"\xed\xa0\x80", "\xf0\x80\x80\x80", "\xf0\x9f\x98", "\xf4\x90\x80\x80", "\xff"};

static le_status
asked(const char *const *names, int n, le_how how, int wait_ms)
{
	le_hold *hold = (le_hold *) &error;
	le_status status;

	how.size = sizeof(how);
	status = le_acquire(s, names, n, &how, wait_ms, &hold, &error);
	if (status == LE_OK)
		le_release(hold, 0, NULL);
	else
		ok(hold == NULL, "a failed call returns no hold");
	return status;
}

static void
of_names(void)
{
	static const char *const pair[] = {"a", "b"}, *const holes[] = {"a", "", NULL};
	const char *const one[] = {"a"}, *const null[] = {NULL}, *const holes2[] = {"a", "b", NULL};
	char many[300], candidate[5000];
	const char *const longer[] = {many};
	le_how none = {0};
	le_hold *hold;

	memset(many, 'x', 256);
	many[256] = '\0';
	refused(asked(one, 0, none, 0), "n is 0: 1 to 1000 names are allowed");
	refused(asked(one, INT32_MAX, none, 0), "n is 2147483647: 1 to 1000 names are allowed");
	refused(asked(NULL, 1, none, 0), "names is NULL");
	refused(asked(null, 1, none, 0), "names[0] is NULL: 1 to 255 bytes are allowed");
	refused(asked(holes, 2, none, 0), "names[1] is empty: 1 to 255 bytes are allowed");
	refused(asked(holes2, 3, none, 0), "names[2] is NULL: 1 to 255 bytes are allowed");
	refused(asked(longer, 1, none, 0), "names[0] has 256 bytes: 1 to 255 are allowed");
	for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++)
	{
		const char *const wrong[] = {broken[i]};
		char message[100];

		snprintf(message, sizeof(message), "names[0] is not UTF-8: byte 1 is 0x%02x",
				 (unsigned char) broken[i][0]);
		refused(asked(wrong, 1, none, 0), message);
		ok(strncmp(query(db, "SELECT convert_from('\\x%02x%02x%02x'::bytea, 'UTF8')",
						 (unsigned char) broken[i][0], (unsigned char) broken[i][1],
						 broken[i][1] != '\0' ? (unsigned char) broken[i][2] : 0),
				   "ERROR", 5) == 0,
		   "as PostgreSQL says");
	}
	is_status(
		asked((const char *const[]){"\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf\xc2\x80\x7f\x01"}, 1, none, 0),
		LE_OK, "the first and last valid characters");
	refused(asked(one, 1, none, -2), "wait_ms is -2: -1 (no limit), 0 and more are allowed");
	refused(asked(one, 1, none, INT32_MIN), "wait_ms is -2147483648: -1 (no limit), 0 and more are allowed");
	refused(asked(one, 1, (le_how){.permits = -1}, 0),
			"how.permits is -1: 0 (no permit) and more are allowed");
	refused(asked(one, 1, (le_how){.permits = 2, .shared = 1}, 0),
			"how.permits is 2, and how.shared is set: only one of them is allowed");
	refused(asked(pair, 2, (le_how){.permits = 2}, 0),
			"how.permits is 2, and n is 2: a permit has only one name");
	refused(asked(one, 1, (le_how){.until = -1}, 0),
			"how.until is -1: 0 (no limit), and points of le_now() are allowed");
	is_status(asked(one, 1, (le_how){.until = INT64_MAX}, INT32_MAX), LE_OK, "the longest waits");
	is_status(asked(one, 1, (le_how){.until = 1}, 0), LE_OK, "a deadline in the past is a try");
	refused(le_acquire(s, one, 1, NULL, 0, NULL, &error), "hold is NULL");
	refused(le_acquire(NULL, one, 1, NULL, 0, &hold, &error), "session is NULL");
	refused(le_enqueue(s, one, 1, NULL, NULL, &error), "hold is NULL");
	refused(le_enqueue(NULL, one, 1, NULL, &hold, &error), "session is NULL");
	refused(le_enqueue(s, broken, 1, NULL, &hold, &error), "names[0] is not UTF-8: byte 1 is 0x80");

	memset(candidate, 'x', 4097);
	candidate[4097] = '\0';
	refused(le_campaign(s, "e", candidate, 0, &hold, &error),
			"candidate has 4097 bytes: 1 to 4096 are allowed");
	refused(le_campaign(s, "e", "a\xff", 0, &hold, &error), "candidate is not UTF-8: byte 2 is 0xff");
	refused(le_campaign(s, "", "me", 0, &hold, &error), "election is empty: 1 to 255 bytes are allowed");
	refused(le_campaign(s, NULL, "me", 0, &hold, &error), "election is NULL: 1 to 255 bytes are allowed");
	refused(le_campaign(s, "e", "me", -7, &hold, &error),
			"wait_ms is -7: -1 (no limit), 0 and more are allowed");
	refused(le_campaign(s, "e", "me", 0, NULL, &error), "hold is NULL");
	refused(le_enqueue_candidate(s, "e", "me", NULL, &error), "hold is NULL");
	refused(le_enqueue_candidate(s, "e\xff", "me", &hold, &error), "election is not UTF-8: byte 2 is 0xff");
}

/* --- holds, observers, runners --- */

static int
on_elected(le_hold *term, void *arg)
{
	(void) arg;
	le_wait_stop(term, -1);
	return 1;
}

static void
on_change(const le_change *change, void *arg)
{
	(void) change;
	(void) arg;
}

static void
of_holds(void)
{
	le_callbacks callbacks = {.size = sizeof(callbacks), .on_elected = on_elected},
				 empty = {.size = sizeof(empty)};
	le_leader_info info = {.size = sizeof(info)};
	le_observer *observer;
	le_runner *runner;
	le_hold *hold = must_lock(s, "x");

	refused(le_await(NULL, 0, &error), "hold is NULL");
	refused(le_await(hold, -2, &error), "wait_ms is -2: -1 (no limit), 0 and more are allowed");
	refused(le_await_until(NULL, 0, &error), "hold is NULL");
	refused(le_fence(NULL, db, &error), "hold is NULL");
	refused(le_fence(hold, NULL, &error), "yours is NULL");
	refused(le_fence(hold, db, &error), "yours has no open transaction, or one that has failed");
	refused(le_proclaim(NULL, "me", &error), "hold is NULL");
	refused(le_proclaim(hold, "me", &error), "hold is a lock, but must be a term");
	refused(le_leader(NULL, "e", &info, &error), "session is NULL");
	refused(le_leader(s, "e", NULL, &error), "leader is NULL");
	refused(le_leader(s, "", &info, &error), "election is empty: 1 to 255 bytes are allowed");
	info.size = 0;
	refused(le_leader(s, "e", &info, &error), "size of le_leader_info is not set");
	refused(le_observe(s, "e", -2, on_change, NULL, &observer, &error),
			"after is -2: -1 (the leader now), 0 (all changes) and numbers of changes are allowed");
	refused(le_observe(s, "e", 0, NULL, NULL, &observer, &error), "on_change is NULL");
	refused(le_observe(s, "e", 0, on_change, NULL, NULL, &error), "observer is NULL");
	refused(le_observe(NULL, "e", 0, on_change, NULL, &observer, &error), "session is NULL");
	refused(le_observe(s, "\xff", 0, on_change, NULL, &observer, &error),
			"election is not UTF-8: byte 1 is 0xff");
	refused(le_run(s, "e", "me", &callbacks, NULL, &error), "runner is NULL");
	refused(le_run(s, "e", "me", NULL, &runner, &error), "callbacks is NULL");
	refused(le_run(s, "e", "me", &empty, &runner, &error), "callbacks.on_elected is NULL");
	refused(le_run(NULL, "e", "me", &callbacks, &runner, &error), "session is NULL");
	refused(le_run(s, "e", "", &callbacks, &runner, &error),
			"candidate is empty: 1 to 4096 bytes are allowed");
	refused(le_set_candidate(NULL, "me", &error), "runner is NULL");
	if (le_run(s, "e", "me", &callbacks, &runner, &error) != LE_OK)
		die("no runner");
	refused(le_set_candidate(runner, NULL, &error), "candidate is NULL: 1 to 4096 bytes are allowed");
	le_stop(runner, NULL);
	refused(le_release(hold, -5, &error), "it is released without hold_for_ms: -5 is negative");
	is_status(le_release(NULL, -5, &error), LE_OK, "le_release(NULL) does nothing");
	le_cancel(NULL);
	le_drop(NULL);
}

/* --- encodings --- */

/* One name is one lock, whatever encoding the environment, the connection string or the role sets. */
static void
encodings(void)
{
	static const char *const settings[] = {"client_encoding=LATIN1", "client_encoding=SQL_ASCII",
										   "options='-c client_encoding=LATIN1'"};
	const char *const several[] = {"öäü€", "ß\\\""};
	PGconn *mine = connect_db();
	le_hold *hold, *again, *both, *term;

	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]) + 1; i++)
	{
		char info[1000];
		le_options o = options_of(60000);
		le_session *other;

		snprintf(info, sizeof(info), "%s %s", conninfo, i > 0 ? settings[i - 1] : "");
		o.conninfo = info;
		if (i == 0)
			setenv("PGCLIENTENCODING", "LATIN1", 1);
		other = open_with(&o);
		unsetenv("PGCLIENTENCODING");
		is_status(lock(other, "öäü€", 0, &hold), LE_OK, i > 0 ? settings[i - 1] : "PGCLIENTENCODING");
		is_status(lock(s, "öäü€", 0, &again), LE_TIMEOUT, "the lock is the same in another encoding");
		ok(strcmp(query(db, "SELECT count(*) FROM lock_election.locks WHERE name = 'öäü€'"), "1") == 0,
		   "the lock has this name in the view");
		le_release(hold, 0, NULL);
		le_close(other, -1, NULL);
	}

	is_status(lock(s, "öäü€", 0, &hold), LE_OK, "a lock with non-ASCII characters is acquired");
	is_status(le_acquire(s, several + 1, 1, NULL, 0, &again, &error), LE_OK,
			  "a second lock with non-ASCII characters is acquired");
	le_release(again, 0, NULL);
	le_release(hold, 0, NULL);
	is_status(le_acquire(s, several, 2, NULL, 0, &both, &error), LE_OK,
			  "a group with non-ASCII characters is acquired");
	is_status(lock(s, "grün", 0, &hold), LE_OK, "a third lock with non-ASCII characters is acquired");
	is_status(le_campaign(s, "höhe", "me", 0, &term, &error), LE_OK,
			  "an election with non-ASCII characters is won");
	for (int i = 0; i < 3; i++)
	{
		query(mine, "SET client_encoding = '%s'", (const char *const[]){"LATIN1", "UTF8", "SQL_ASCII"}[i]);
		query(mine, "BEGIN");
		is_status(le_fence(hold, mine, &error), LE_OK,
				  "a lock is fenced in a connection with another encoding");
		is_status(le_fence(both, mine, &error), LE_OK,
				  "a group is fenced in a connection with another encoding");
		is_status(le_fence(term, mine, &error), LE_OK,
				  "a term is fenced in a connection with another encoding");
		query(mine, "COMMIT");
	}
	PQfinish(mine);
	le_release(both, 0, NULL);
	le_release(hold, 0, NULL);
	le_resign(term, NULL);
}

/* --- connection strings --- */

#define SECRET "S3cr3t"

/*
 * Checks that no message about the string contains the password, neither of the library nor of the program's
 * own connection.
 */
static void
keeps_secret(const char *string, const char *expected)
{
	le_status status = opened((le_options){.conninfo = string, .ttl_ms = 1000, .connect_ms = 500});
	le_error own;
	PGconn *conn;

	ok(status != LE_OK && error.message[0] != '\0' && strstr(error.message, SECRET) == NULL, string);
	if (strstr(error.message, expected) == NULL)
	{
		ok(false, expected);
		printf("#   got %s: %s\n", le_status_name(status), error.message);
	}
	conn = PQconnectdb(string);
	le_connection_error(conn, &own);
	ok(own.message[0] != '\0' && strstr(own.message, SECRET) == NULL,
	   "the error of the program's connection does not contain the password");
	PQfinish(conn);
}

static void
secrets(void)
{
	static const char host[] = "its host has characters that a host cannot have",
					  port[] = "its port is not a number";
	static const char database[] = "its database has one of the characters @ = ; or //";
	char info[1000];

	setenv("PGHOST", "127.0.0.1", 1);
	setenv("PGPORT", "1", 1);
	keeps_secret("postgres://u:S3cr3t%ZZ@127.0.0.1:1/db", "a % is not followed by two hexadecimal digits");
	keeps_secret("postgres://u:S3cr3t%00@127.0.0.1:1/db",
				 "cannot parse the connection string: %00 is not allowed");
	keeps_secret("postgres://u:S3cr3t@[::1/db", "an IPv6 address has no \"]\"");
	keeps_secret("postgres://u:S3cr3t@[]/db", "an IPv6 address is empty");
	keeps_secret("postgres://u@[::1]S3cr3t/db",
				 "the host is followed by something other than a port or a path");
	keeps_secret("postgres://127.0.0.1/db?S3cr3t", "a parameter of the URI has no \"=\"");
	keeps_secret("postgres://127.0.0.1/db?password=S3cr3t=x", "a parameter of the URI has two \"=\"");
	keeps_secret("postgres://127.0.0.1/db?S3cr3t=x", "there is no such parameter");
	keeps_secret("host=127.0.0.1 password=my S3cr3t dbname=x", "an option has no \"=\"");
	keeps_secret("host=127.0.0.1 password='S3cr3t", "a quoted value is not terminated");
	keeps_secret("host=127.0.0.1 password=my S3cr3t=x", "there is no such option");
	keeps_secret("postgre://u:S3cr3t@127.0.0.1:1/db", "cannot parse the connection string");
	keeps_secret("postgres//u:S3cr3t@127.0.0.1:1/db", database);
	keeps_secret("postgres://u:S3cr3t@x@127.0.0.1:1/db", host);
	keeps_secret("postgres://u:x@S3cr3t@127.0.0.1:1/db", host);
	keeps_secret("host=127.0.0.1;password=S3cr3t", host);
	keeps_secret("host='/tmp;password=S3cr3t'", host);
	keeps_secret("host=u:S3cr3t", host);
	keeps_secret("postgres://u:S3cr3t/x@127.0.0.1:1/db", database);
	keeps_secret("host=127.0.0.1 port=S3cr3t", port);
	keeps_secret("host=127.0.0.1 user=u:S3cr3t port=x", "its user has one of the characters : = ;");
	keeps_secret("host=127.0.0.1 connect_timeout=S3cr3t", "");
	keeps_secret("host=127.0.0.1 sslmode=S3cr3t", "sslmode");
	keeps_secret("host=127.0.0.1 target_session_attrs=S3cr3t", "target_session_attrs");
	keeps_secret("host=127.0.0.1 sslmode='prefer password=S3cr3t'",
				 "the password is a part of another option");
	unsetenv("PGHOST");
	unsetenv("PGPORT");
	/* the server repeats these values in its messages */
	snprintf(info, sizeof(info), "%s dbname='postgres//u:S3cr3t@host/db'", conninfo);
	keeps_secret(info, database);
	snprintf(info, sizeof(info), "%s user='u:S3cr3t'", conninfo);
	keeps_secret(info, "its user has one of the characters : = ;");
	setenv("PGDATABASE", "postgres//u:S3cr3t@host/db", 1);
	snprintf(info, sizeof(info), "%.*s", (int) (strstr(conninfo, "dbname") - conninfo), conninfo);
	keeps_secret(info, database);
	unsetenv("PGDATABASE");
	/* other errors are unchanged */
	keeps_secret("host=127.0.0.1 port=1 password=S3cr3t", "127.0.0.1");
	snprintf(info, sizeof(info), "%s dbname=nowhere password=S3cr3t", conninfo);
	keeps_secret(info, "database \"nowhere\" does not exist");
	keeps_secret("service=nowhere", "definition of service \"nowhere\" not found");
}

static void
tests(void)
{
	db = connect_db();
	s = open_session(600000);
	of_sessions();
	of_names();
	of_holds();
	encodings();
	secrets();
	le_close(s, -1, NULL);
	PQfinish(db);
}

int
main(int argc, char **argv)
{
	return run_tests(argc, argv, tests);
}
