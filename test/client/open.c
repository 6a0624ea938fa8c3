/*
 * open.c
 *		Opening a session: what is wrong is told, by a status and in words, and
 *		in time; and forms of connection strings.
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

/* --- where it connects to --- */

static char tried[1000];
static pthread_t main_thread;
/* A connection to this port takes so long. */
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

/* In the place of the system's, for libpq in the sessions' threads. */
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
	ok((status == LE_OK) == (s != NULL), "a session, or none");
	free(info);
	if (status == LE_OK)
		le_close(s, -1, NULL);
	return status;
}

static void
errors(void)
{
	is_status(try_open("closed", 0), LE_UNAVAILABLE, "no server");
	ok(error.message[0] != '\0', "which is said");
	is_status(try_open("password", 0), LE_DENIED, "a wrong password");
	ok(strcmp(error.sqlstate, "28P01") == 0, "by its code");
	ok(strstr(error.message, "LOCATION") == NULL && strstr(error.message, "28P01") == NULL, "in plain words");
	is_status(try_open("no_password", 0), LE_DENIED, "no password at all");
	is_status(try_open("database", 0), LE_UNAVAILABLE, "no such database");
	is_status(try_open("extension", 0), LE_UNAVAILABLE, "a database without the extension");
	ok(strstr(error.message, "CREATE EXTENSION lock_election") != NULL, "with what to do");
	is_status(try_open("library", 0), LE_UNAVAILABLE, "a server without the library");
	ok(strcmp(error.sqlstate, "55000") == 0 && strstr(error.message, "shared_preload_libraries") != NULL,
	   "with what to do");
	is_status(try_open("standby", 0), LE_UNAVAILABLE, "a standby");
	is_status(try_open("nonsense", 0), LE_INVALID, "a connection string that is none");
	is_status(try_open("silent", 300), LE_UNAVAILABLE, "a host that does not answer");
	ok(took >= 300 && took < 20000, "in its time");
	is_status(try_open("silent_timeout", 60000), LE_UNAVAILABLE, "or that of connect_timeout");
	ok(took >= 900 && took < 30000, "which counts");
}

/* With several hosts, each of them tried once, in order. */
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
	is_status(try_open("closed_first", 0), LE_OK, "a second host, after one that refuses");
	is_status(try_open("standby_first", 0), LE_OK, "after a standby");
	is_status(try_open("standby_any", 0), LE_OK, "also where libpq is not to ask for a primary");
	is_status(try_open("standbys_any", 0), LE_UNAVAILABLE, "two standbys");
	ok(strcmp(error.sqlstate, "25006") == 0, "are none");
	opens("silent_first", "after one that does not answer");
	ok(took >= 1500 && took < 20000, "in its time");
	opens("silent_service", "hosts of a service file");
	opens("silent_twice", "after two that do not answer");
	opens("silent_between", "after some that refuse and one that does not answer");
	opens("one_port", "one port for all hosts");
	unsetenv("PGHOST");
	opens("one_silent_port", "at another address, after one that refuses");
	opens("addresses", "addresses alone");
	opens("more_addresses", "more of them");
	opens("names_and_addresses", "and with names");
}

/* What a host takes until it is left is not the time of the next one at its address. */
static void
limits(void)
{
	char order[200];

	snprintf(order, sizeof(order), "%s", ask("order standby_silent"));
	slow_port = atoi(strrchr(order, '.') + 1);
	is_status(try_open("standby_silent", 1000), LE_UNAVAILABLE, "neither of two hosts opens");
	ok(took >= SLOW_MS + 1000, "each has had its time");
	ok(strcmp(tried, order) == 0, "one after the other");
	slow_port = 0;
}

/* Each member that has a range, at its ends and beyond. */
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
		{{.ttl_ms = 2073600001}, false, "one that is too long"},
		{{.ttl_ms = 2073600000}, true, "the longest one"},
		{{.ttl_ms = 60000, .margin_ms = 30000}, false, "half of it as margin"},
		{{.ttl_ms = 60000, .margin_ms = 29999}, true, "a little less"},
		{{.ttl_ms = 60000, .margin_ms = -1}, false, "a negative margin"},
		{{.ttl_ms = 60000, .connect_ms = -1}, false, "connect_ms"},
		{{.ttl_ms = 60000, .call_ms = -1}, false, "call_ms"},
		{{.ttl_ms = 60000, .progress_ms = -1}, false, "progress_ms"},
		{{.ttl_ms = 60000, .poll_ms = -1}, false, "poll_ms"},
		{{.ttl_ms = 60000, .listen = -2}, false, "listen below"},
		{{.ttl_ms = 60000, .listen = 2}, false, "listen above"},
		{{.ttl_ms = 60000, .listen = -1}, true, "no listen"},
		{{.ttl_ms = 60000, .listen = 1}, true, "listen for certain"},
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
		ok(le_deadline(s) >= start + left && le_deadline(s) <= le_now() + left, "its deadline");
		le_close(s, -1, NULL);
	}
}

/* Without any, libpq's environment says where; so do words that name a database. */
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
	ok(le_deadline(s) >= start + 29000 && le_deadline(s) <= le_now() + 29000, "30 s, less a second");
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
	ok(le_deadline(s) >= start + 5700 && le_deadline(s) <= le_now() + 5700, "of less, a twentieth less");
	le_close(s, -1, NULL);
	o.conninfo = "no such database";
	is_status(le_open(&o, &s, &error), LE_UNAVAILABLE, "a database that is not there");
	ok(strstr(error.message, "no such database") != NULL, "by its name");
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
	is_status(le_open(&o, &s, &error), LE_INVALID, "no size");
	o = options_of(50);
	is_status(le_open(&o, &s, &error), LE_INVALID, "a short TTL");
	o = options_of(-1);
	is_status(le_open(&o, &s, &error), LE_INVALID, "a negative one");
	o = options_of(1000);
	o.margin_ms = 600;
	is_status(le_open(&o, &s, &error), LE_INVALID, "a margin that leaves nothing");
	o = options_of(1000);
	o.listen = 7;
	is_status(le_open(&o, &s, &error), LE_INVALID, "listen");
	is_status(le_open(&o, &s, NULL), LE_INVALID, "and nobody wants to know");
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
	   "a name is shown");
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

/* MB of address space. */
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

/* Sessions that are closed, or were never opened, leave no descriptors, and no threads, each with a stack. */
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
	is_int(count_descriptors(), descriptors, "no descriptors are left behind");
	/* two of 8 MB for each session would be 640 */
	ok(size_of_process() < size + 200, "and no threads");
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

	is_status(le_campaign(s, "boss", "me", 0, &term, &error), LE_OK, "a term");
	is_status(le_observe(s, "boss", 0, on_change, NULL, &mine, &error), LE_OK, "and an observer");
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
	is_status(lock(s, "y", 0, &none), LE_OK, "the parent goes on");
	ok(le_valid(held), "with what it holds");
	/* all that the child was refused: what it reaches itself is recorded by nobody */
	is_status(le_await_until(held, 1, &error), LE_OK, "which it can ask");
	is_status(le_proclaim(term, "still me", &error), LE_OK, "as the leader");
	is_status(le_leader(s, "boss", &info, &error), LE_OK, "as all can see");
	is_status(le_reopen(s, &error), LE_OK, "in an open session");
	query(db, "BEGIN");
	is_status(le_fence(held, db, &error), LE_OK, "also in transactions");
	query(db, "COMMIT");
	PQfinish(db);
	le_unobserve(mine);
	le_resign(term, NULL);
	le_release(none, 0, NULL);
	le_release(held, 0, NULL);
	le_close(s, -1, NULL);
}

/* Each status has a word of its own, and what is none has none. */
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
	is_int(wrong, 0, "each status has a word");
	ok(strcmp(le_status_name((le_status) -1), "?") == 0, "no status, below");
	ok(strcmp(le_status_name((le_status) (LE_FAILED + 1)), "?") == 0, "no status, above");
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
