/*
 * open.c
 *		Opening a session: errors are returned in time, as a status and as text;
 *		and the forms of connection strings.
 */
#include "client.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

static int64_t took;

/* --- the hosts of a connection --- */

static char tried[1000];
static pthread_t main_thread;
/* Connections to this port are delayed by SLOW_MS. */
#define SLOW_MS 1000
static _Atomic int slow_port;

static int
port_of(const struct sockaddr *address)
{
	if (address->sa_family == AF_UNIX)
		return atoi(strrchr(((const struct sockaddr_un *) address)->sun_path, '.') + 1);
	return ntohs(((const struct sockaddr_in *) address)->sin_port);
}

static void
note_address(const struct sockaddr *address)
{
	size_t len = strlen(tried);

	if (address->sa_family == AF_UNIX)
		snprintf(tried + len, sizeof(tried) - len, "socket.%d ", port_of(address));
	else if (address->sa_family == AF_INET)
		snprintf(tried + len, sizeof(tried) - len, "%s:%d ",
				 inet_ntoa(((const struct sockaddr_in *) address)->sin_addr), port_of(address));
}

/* Replaces the function of the system for libpq in the sessions' threads. */
int
connect(int fd, const struct sockaddr *address, socklen_t size)
{
	if (!pthread_equal(pthread_self(), main_thread))
		note_address(address);
	if (slow_port != 0 && port_of(address) == slow_port)
		usleep(SLOW_MS * 1000);
	return (int) syscall(SYS_connect, fd, address, size);
}

static le_status
try_open(const char *how, int connect_ms)
{
	le_options o = {.size = sizeof(o), .connect_ms = connect_ms, .ttl_ms = 5000};
	char *info = strdup(ask("conninfo %s", how));
	int64_t start = le_now();
	le_session *s;
	le_status status;

	o.conninfo = info;
	tried[0] = '\0';
	status = le_open(&o, &s, &error);
	took = le_now() - start;
	if (status != LE_OK)
		printf("# %s: %s %s: %s\n", how, le_status_name(status), error.sqlstate, error.message);
	ok((status == LE_OK) == (s != NULL), "le_open returns a session exactly if it returns LE_OK");
	free(info);
	if (status == LE_OK)
		le_close(s, -1, NULL);
	return status;
}

static void
errors(void)
{
	is_status(try_open("closed", 0), LE_UNAVAILABLE, "no server");
	ok(error.message[0] != '\0', "no server: the error has a message");
	is_status(try_open("password", 0), LE_DENIED, "a wrong password");
	ok(strcmp(error.sqlstate, "28P01") == 0, "a wrong password: the code");
	ok(strstr(error.message, "LOCATION") == NULL && strstr(error.message, "28P01") == NULL,
	   "a wrong password: the message has no code and no location");
	is_status(try_open("no_password", 0), LE_DENIED, "no password at all");
	is_status(try_open("database", 0), LE_UNAVAILABLE, "no such database");
	is_status(try_open("extension", 0), LE_UNAVAILABLE, "a database without the extension");
	ok(strstr(error.message, "CREATE EXTENSION lock_election") != NULL,
	   "without the extension, the error names CREATE EXTENSION");
	is_status(try_open("library", 0), LE_UNAVAILABLE, "a server without the library");
	ok(strcmp(error.sqlstate, "55000") == 0 && strstr(error.message, "shared_preload_libraries") != NULL,
	   "without the library, the error names shared_preload_libraries");
	is_status(try_open("standby", 0), LE_UNAVAILABLE, "a standby");
	is_status(try_open("nonsense", 0), LE_INVALID, "an invalid connection string");
	is_status(try_open("silent", 300), LE_UNAVAILABLE, "a host that does not reply");
	ok(took >= 300 && took < 20000, "le_open returns after connect_ms");
	is_status(try_open("silent_timeout", 60000), LE_UNAVAILABLE,
			  "a host that does not reply, with connect_timeout");
	ok(took >= 900 && took < 30000, "le_open returns after connect_timeout");
}

/* Opens a session with several hosts, and checks that each of them is tried once, in order. */
static void
opens(const char *how, const char *name)
{
	const char *order;

	is_status(try_open(how, 1500), LE_OK, name);
	order = ask("order %s", how);
	if (!ok(strcmp(tried, order) == 0, "each host is tried once, in order"))
		printf("#   tried %s, expected %s\n", tried, order);
}

static void
forms(void)
{
	is_status(try_open("plain", 0), LE_OK, "keys and values");
	is_status(try_open("uri", 0), LE_OK, "a URI");
	is_status(try_open("service", 0), LE_OK, "a service file");
	is_status(try_open("closed_first", 0), LE_OK, "a second host after one that refuses connections");
	is_status(try_open("standby_first", 0), LE_OK, "a second host after a standby");
	is_status(try_open("standby_any", 0), LE_OK,
			  "a second host after a standby, with target_session_attrs=any");
	is_status(try_open("standbys_any", 0), LE_UNAVAILABLE, "two standbys");
	ok(strcmp(error.sqlstate, "25006") == 0, "two standbys: the code of a read-only server");
	opens("silent_first", "a second host after one that does not reply");
	ok(took >= 1500 && took < 20000, "the host that does not reply takes its share of the time");
	opens("silent_service", "hosts of a service file");
	opens("silent_twice", "a third host after two that do not reply");
	opens("silent_between", "a host after some that refuse and one that does not reply");
	opens("one_port", "one port for all hosts");
	unsetenv("PGHOST");
	opens("one_silent_port", "one port at several addresses, after one that refuses");
	opens("addresses", "only addresses");
	opens("more_addresses", "addresses with several ports");
	opens("names_and_addresses", "addresses with names");
}

/* The time that a host takes until it is given up is not taken from the next host at its address. */
static void
limits(void)
{
	char order[200];

	snprintf(order, sizeof(order), "%s", ask("order standby_silent"));
	slow_port = atoi(strrchr(order, '.') + 1);
	is_status(try_open("standby_silent", 1000), LE_UNAVAILABLE, "neither of two hosts accepts the session");
	ok(took >= SLOW_MS + 1000, "each of two hosts has had its time");
	ok(strcmp(tried, order) == 0, "two hosts are tried in order");
	slow_port = 0;
}

/* Each member that has a range, at its limits and beyond. */
static void
ranges(void)
{
	static const struct
	{
		le_options options;
		bool allowed;
		const char *what;
	} cases[] = {
		{{.ttl_ms = 99}, false, "a TTL that is a little too short"},
		{{.ttl_ms = 2073600001}, false, "a TTL that is too long"},
		{{.ttl_ms = 2073600000}, true, "the longest TTL"},
		{{.ttl_ms = 60000, .margin_ms = 30000}, false, "a margin of half the TTL"},
		{{.ttl_ms = 60000, .margin_ms = 29999}, true, "a margin of a little less than half the TTL"},
		{{.ttl_ms = 60000, .margin_ms = -1}, false, "a negative margin"},
		{{.ttl_ms = 60000, .connect_ms = -1}, false, "a negative connect_ms"},
		{{.ttl_ms = 60000, .call_ms = -1}, false, "a negative call_ms"},
		{{.ttl_ms = 60000, .progress_ms = -1}, false, "a negative progress_ms"},
		{{.ttl_ms = 60000, .poll_ms = -1}, false, "a negative poll_ms"},
		{{.ttl_ms = 60000, .listen = -2}, false, "listen below its range"},
		{{.ttl_ms = 60000, .listen = 2}, false, "listen above its range"},
		{{.ttl_ms = 60000, .listen = -1}, true, "no listen"},
		{{.ttl_ms = 60000, .listen = 1}, true, "listen is required"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		le_options o = cases[i].options;
		int64_t start = le_now(), left;
		le_session *s;

		o.size = sizeof(o);
		o.conninfo = conninfo;
		is_status(le_open(&o, &s, &error), cases[i].allowed ? LE_OK : LE_INVALID, cases[i].what);
		if (s == NULL)
			continue;
		left = o.ttl_ms - (o.margin_ms != 0 ? o.margin_ms : 1000);
		ok(le_deadline(s) >= start + left && le_deadline(s) <= le_now() + left,
		   "the deadline of the session");
		le_close(s, -1, NULL);
	}
}

/*
 * Without options, the environment of libpq selects the server; a string without "=" is the name of a
 * database.
 */
static void
defaults(void)
{
	le_options o = options_of(60000);
	PGconn *db = connect_db();
	int64_t start = le_now();
	le_session *s;

	setenv("PGHOST", PQhost(db), 1);
	setenv("PGPORT", PQport(db), 1);
	setenv("PGDATABASE", "postgres", 1);
	is_status(le_open(NULL, &s, &error), LE_OK, "no options");
	ok(le_deadline(s) >= start + 29000 && le_deadline(s) <= le_now() + 29000,
	   "the default deadline is 30 s minus a second");
	le_close(s, -1, NULL);
	o.conninfo = "";
	s = open_with(&o);
	le_close(s, -1, NULL);
	o.conninfo = "postgres";
	s = open_with(&o);
	le_close(s, -1, NULL);
	o.ttl_ms = 6000;
	start = le_now();
	s = open_with(&o);
	ok(le_deadline(s) >= start + 5700 && le_deadline(s) <= le_now() + 5700,
	   "the default margin of a shorter TTL is a twentieth");
	le_close(s, -1, NULL);
	o.conninfo = "no such database";
	is_status(le_open(&o, &s, &error), LE_UNAVAILABLE, "a database that does not exist");
	ok(strstr(error.message, "no such database") != NULL, "the error names the missing database");
	unsetenv("PGHOST");
	unsetenv("PGPORT");
	unsetenv("PGDATABASE");
	PQfinish(db);
}

static void
options(void)
{
	le_options o = options_of(5000);
	char longest[300];
	le_session *s;
	le_hold *held;

	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	o.size = 0;
	is_status(le_open(&o, &s, &error), LE_INVALID, "options without a size");
	o = options_of(50);
	is_status(le_open(&o, &s, &error), LE_INVALID, "a TTL that is too short");
	o = options_of(-1);
	is_status(le_open(&o, &s, &error), LE_INVALID, "a negative TTL");
	o = options_of(1000);
	o.margin_ms = 600;
	is_status(le_open(&o, &s, &error), LE_INVALID, "a margin of more than half the TTL");
	o = options_of(1000);
	o.listen = 7;
	is_status(le_open(&o, &s, &error), LE_INVALID, "an invalid value of listen");
	is_status(le_open(&o, &s, NULL), LE_INVALID, "the error argument can be NULL");
	ranges();
	o = options_of(1000);
	o.name = longest;
	s = open_with(&o);
	ok(s != NULL, "a long name is cut");
	le_close(s, -1, NULL);
	o.name = "worker 7";
	s = open_with(&o);
	held = must_lock(s, "named");
	PGconn *db = connect_db();
	ok(strncmp(query(db, "SELECT owner FROM lock_election.locks WHERE name = 'named'"), "worker 7#", 9) == 0,
	   "the name is part of the owner");
	PQfinish(db);
	le_release(held, 0, NULL);
	le_close(s, -1, NULL);
}

static int
count_descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < 1000; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* Returns the address space of the process in MB. */
static long
size_of_process(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	long pages = 0;

	if (file == NULL || fscanf(file, "%ld", &pages) != 1)
		die("no /proc");
	fclose(file);
	return pages / 1024 * (sysconf(_SC_PAGESIZE) / 1024);
}

/*
 * Sessions that are closed, or were never opened, leave no descriptors and no threads (each of which has a
 * stack).
 */
static void
left_behind(void)
{
	le_options wrong = options_of(5000);
	int descriptors = 0;
	long size = 0;
	le_session *s;

	wrong.conninfo = "host=/nowhere";
	for (int i = 0; i < 24; i++)
	{
		if (i == 4)
		{
			descriptors = count_descriptors();
			size = size_of_process();
		}
		le_close(open_session(5000), -1, NULL);
		wrong.conninfo = i % 2 == 0 ? "host=/nowhere" : "host=/nowhere,/nowhere port=1,2";
		le_open(&wrong, &s, &error);
	}
	is_int(count_descriptors(), descriptors, "closed and failed sessions leave no descriptors");
	/* two stacks of 8 MB for each session would be 640 MB */
	ok(size_of_process() < size + 200, "closed and failed sessions leave no threads");
}

static void
on_change(const le_change *change, void *arg)
{
	(void) change;
	(void) arg;
}

static void
after_fork(void)
{
	le_session *s = open_session(5000);
	le_leader_info info = {.size = sizeof(info)};
	PGconn *db = connect_db();
	le_observer *mine, *observer;
	const char *name = "y";
	le_hold *held = must_lock(s, "x"), *none, *term;
	int wrong = 0, status;
	pid_t child;

	is_status(le_campaign(s, "boss", "me", 0, &term, &error), LE_OK, "the parent is elected");
	is_status(le_observe(s, "boss", 0, on_change, NULL, &mine, &error), LE_OK, "the parent has an observer");
	child = fork();
	if (child == 0)
	{
		wrong += lock(s, "y", 0, &none) != LE_INVALID;
		wrong += le_enqueue(s, &name, 1, NULL, &none, NULL) != LE_INVALID;
		wrong += le_enqueue_candidate(s, name, "me", &none, NULL) != LE_INVALID;
		wrong += le_campaign(s, name, "me", 0, &none, NULL) != LE_INVALID;
		wrong += le_await(held, 0, NULL) != LE_INVALID;
		wrong += le_await_until(held, 1, NULL) != LE_INVALID;
		wrong += le_fence(held, NULL, NULL) != LE_INVALID;
		wrong += le_proclaim(term, "you", NULL) != LE_INVALID;
		wrong += le_leader(s, name, &info, NULL) != LE_INVALID;
		wrong += le_observe(s, name, 0, on_change, NULL, &observer, NULL) != LE_INVALID;
		wrong += le_reopen(s, NULL) != LE_INVALID;
		wrong += le_valid(held) || le_get_state(s) != LE_ENDED;
		wrong += le_release(held, 0, NULL) != LE_OK;
		wrong += le_resign(term, NULL) != LE_OK;
		le_unobserve(mine);
		le_drop(held);
		le_cancel(held);
		wrong += le_close(s, -1, NULL) != LE_OK;
		le_orphan(s);
		_exit(wrong);
	}
	waitpid(child, &status, 0);
	is_int(status, 0, "a child cannot use the session");
	is_status(lock(s, "y", 0, &none), LE_OK, "the parent can use the session");
	ok(le_valid(held), "the hold of the parent is valid");
	/* The calls that were rejected in the child. Coverage does not record what the child itself reaches. */
	is_status(le_await_until(held, 1, &error), LE_OK, "le_await_until in the parent");
	is_status(le_proclaim(term, "still me", &error), LE_OK, "le_proclaim in the parent");
	is_status(le_leader(s, "boss", &info, &error), LE_OK, "le_leader in the parent");
	is_status(le_reopen(s, &error), LE_OK, "le_reopen in the parent");
	query(db, "BEGIN");
	is_status(le_fence(held, db, &error), LE_OK, "le_fence in the parent");
	query(db, "COMMIT");
	PQfinish(db);
	le_unobserve(mine);
	le_resign(term, NULL);
	le_release(none, 0, NULL);
	le_release(held, 0, NULL);
	le_close(s, -1, NULL);
}

/* Each status has its own word, and an invalid status has none. */
static void
names(void)
{
	int wrong = 0;

	for (int status = LE_OK; status <= LE_FAILED; status++)
	{
		const char *name = le_status_name((le_status) status);

		wrong += name == NULL || name[0] == '\0' || strcmp(name, "?") == 0;
		for (int other = LE_OK; other < status; other++)
			wrong += name != NULL && strcmp(name, le_status_name((le_status) other)) == 0;
	}
	is_int(wrong, 0, "each status has its own word");
	ok(strcmp(le_status_name((le_status) -1), "?") == 0, "the number below the first status has no word");
	ok(strcmp(le_status_name((le_status) (LE_FAILED + 1)), "?") == 0,
	   "the number above the last status has no word");
}

static void
tests(void)
{
	main_thread = pthread_self();
	names();
	errors();
	forms();
	limits();
	options();
	defaults();
	left_behind();
	after_fork();
}

int
main(int argc, char **argv)
{
	return run_tests(argc, argv, tests);
}
