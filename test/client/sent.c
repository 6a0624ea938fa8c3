/*
 * sent.c
 *		What a session sends, and when.  The program has a send() of its own,
 *		which sees every statement, can be slow, and can lose the answer.
 */
#include "client.h"

#include <sys/socket.h>

/* Statements that are looked for, by a text in them. */
typedef struct
{
	const char *text;
	_Atomic int seen;
	_Atomic int64_t at; /* when the last one was sent */
	_Atomic int slow_ms;
	_Atomic bool cut;    /* the connection, behind the next one */
	_Atomic bool refuse; /* the next one is wrong, and the server says so */
} statement;

static statement grants = {.text = "grant_lease"}, renewals = {.text = "keep_alive"},
				 listens = {.text = "LISTEN le_"}, places = {.text = "enqueue_lock("},
				 searches = {.text = "lease_holds("}, candidacies = {.text = "enqueue_candidate"};
static statement *const statements[] = {&grants, &renewals, &listens, &places, &searches, &candidacies};
static pthread_t main_thread;
static PGconn *db;

/* The answer may be there already, on a busy machine: it is lost as well. */
static void
cut(int fd)
{
	char lost[8192];

	shutdown(fd, SHUT_RDWR);
	while (recv(fd, lost, sizeof(lost), MSG_DONTWAIT) > 0)
		;
}

/* In the place of the system's, also for libpq.  The test's own statements do not count. */
ssize_t
send(int fd, const void *data, size_t size, int flags)
{
	int64_t now = le_now();
	ssize_t sent;

	if (memmem(data, size, listens.text, strlen(listens.text)) != NULL &&
		atomic_exchange(&listens.refuse, false))
		*(char *) memmem(data, size, listens.text, strlen(listens.text)) = 'X';
	sent = sendto(fd, data, size, flags, NULL, 0);
	for (size_t i = 0; i < sizeof(statements) / sizeof(statements[0]); i++)
	{
		statement *s = statements[i];

		if (pthread_equal(pthread_self(), main_thread) ||
			memmem(data, size, s->text, strlen(s->text)) == NULL)
			continue;
		s->at = now;
		s->seen++;
		usleep((useconds_t) s->slow_ms * 1000);
		if (atomic_exchange(&s->cut, false))
			cut(fd);
	}
	return sent;
}

/* --- the deadline --- */

#define TTL    6000
#define MARGIN 300

/* However late the answer is. */
static void
deadline(void)
{
	le_session *s;
	int64_t first;

	grants.slow_ms = renewals.slow_ms = 400;
	s = open_session(TTL);
	first = le_deadline(s);
	ok(first <= grants.at + TTL - MARGIN, "the TTL counts from the sending of what grants the lease");
	eventually(le_deadline(s) > first, "a renewal");
	ok(le_deadline(s) <= renewals.at + TTL - MARGIN, "from its sending, too");
	grants.slow_ms = renewals.slow_ms = 0;
	le_close(s, -1, NULL);
}

/* --- a connection that takes the place of another one --- */

static void
listening(void)
{
	char info[1000];
	le_options o = options_of(60000);
	le_session *s, *other = open_session(60000);
	le_hold *held = must_lock(other, "x"), *waits;
	int before;

	snprintf(info, sizeof(info), "%s application_name=listens", conninfo);
	o.conninfo = info;
	s = open_with(&o);
	waits = enqueue(s, "x");
	eventually(listens.seen > 0, "a session that waits listens");
	before = listens.seen;
	query(db, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'listens'");
	eventually(listens.seen > before, "and listens again on its next connection");
	le_release(held, 0, NULL);
	is_status(le_await(waits, PATIENCE, &error), LE_OK, "where it is told of the grant");
	le_release(waits, 0, NULL);
	le_close(s, -1, NULL);
	le_close(other, -1, NULL);
}

/* Where LISTEN is refused the session looks often, on the same connection. */
static void
refused(void)
{
	char backend[100];
	char info[1000];
	le_options o = options_of(60000);
	le_session *s, *other = open_session(60000);
	le_hold *held = must_lock(other, "x"), *waits;
	static const char find[] =
		"SELECT backend_start FROM pg_stat_activity WHERE application_name = 'refused'";

	snprintf(info, sizeof(info), "%s application_name=refused", conninfo);
	o.conninfo = info;
	o.name =
		"1234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890"
		"123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789é"
		".";
	s = open_with(&o);
	snprintf(backend, sizeof(backend), "%s", query(db, find));
	listens.refuse = true;
	waits = enqueue(s, "x");
	eventually(!listens.refuse, "LISTEN is refused");
	le_release(held, 0, NULL);
	is_status(le_await(waits, 3000, &error), LE_OK, "the grant is found soon");
	ok(strcmp(query(db, find), backend) == 0, "on the same connection");
	is_int(atoi(query(db, "SELECT count(*) FROM lock_election.locks WHERE owner ~ '^[0-9]{199}#'")), 1,
		   "a long name is cut between two characters");
	le_release(waits, 0, NULL);
	le_close(s, -1, NULL);
	le_close(other, -1, NULL);
}

/* The application may hang locks of its own on the lease. */
static void
lost_answer(void)
{
	le_session *s = open_session(60000);
	le_hold *lost, *next;

	query(db, "SELECT acquire_lock('own', lease => %" PRId64 ")", le_lease(s));
	query(db, "SELECT acquire_lock('named', owner => 'worker', lease => %" PRId64 ")", le_lease(s));
	places.cut = true;
	lost = enqueue(s, "x");
	is_status(le_await(lost, PATIENCE, &error), LE_OK,
			  "what was granted is found, though the answer was lost");
	ok(!places.cut && searches.seen > 0, "it has been looked for");
	is_status(lock(s, "y", PATIENCE, &next), LE_OK, "the session goes on");
	is_int(atoi(query(db, "SELECT count(*) FROM lock_election.locks WHERE name IN ('own', 'named')")), 2,
		   "and releases nothing that is not its own");
	le_release(lost, 0, NULL);
	le_release(next, 0, NULL);
	is_status(le_close(s, -1, &error), LE_OK, "closed");
}

/* --- the end of a wait --- */

/* Nothing else wakes the session for a minute: neither a look at the queue nor a renewal. */
static void
until(void)
{
	le_options o = options_of(600000);
	le_how late = {.size = sizeof(late), .until = le_now() + 3600000}, soon = late;
	const char *name = "x";
	le_session *s, *other = open_session(60000);
	le_hold *held = must_lock(other, name), *a, *b;

	o.listen = -1;
	o.poll_ms = 60000;
	s = open_with(&o);
	is_status(le_enqueue(s, &name, 1, &late, &a, &error), LE_OK, "a wait for an hour");
	eventually(le_position(a) == 1, "queued");
	soon.until = le_now() + 300;
	is_status(le_enqueue(s, &name, 1, &soon, &b, &error), LE_OK, "one for a moment");
	eventually_quietly(le_get_hold_state(b) == LE_HOLD_OVER);
	ok(le_get_hold_state(b) == LE_HOLD_OVER && le_now() >= soon.until && le_now() < soon.until + 30000,
	   "is over when its time has come");
	is_status(le_await(b, 0, &error), LE_TIMEOUT, "with the reason");
	is_status(le_await(a, 0, &error), LE_WAITING, "the other goes on");
	le_drop(a);
	le_drop(b);
	le_release(held, 0, NULL);
	le_close(s, -1, NULL);
	le_close(other, -1, NULL);
}

/* --- the runner --- */

static _Atomic int leads;

static int
on_elected(le_hold *term, void *arg)
{
	(void) arg;
	leads++;
	le_wait_stop(term, -1);
	return 0;
}

/* One more lock of this role is refused from here on, or is not. */
static void
refuse(bool yes)
{
	bool refused = !yes;

	query(db, "ALTER SYSTEM SET lock_election.max_locks_per_role = %d", yes ? 1 : 1000);
	query(db, "SELECT pg_reload_conf()");
	for (int64_t end = le_now() + PATIENCE; refused != yes && le_now() < end; usleep(2000))
	{
		refused = strncmp(query(db, "SELECT try_acquire_lock('probe')"), "ERROR", 5) == 0;
		query(db, "SELECT release_lock('probe') FROM lock_election.locks WHERE name = 'probe'");
	}
	ok(refused == yes, yes ? "candidacies are refused" : "and are not any more");
}

#define TRIES 9

static void
pauses(void)
{
	le_callbacks callbacks = {.size = sizeof(callbacks), .on_elected = on_elected};
	le_session *s = open_session(60000);
	le_hold *held = must_lock(s, "one");
	le_runner *runner;
	int64_t before;

	refuse(true);
	is_status(le_run(s, "boss", "me", &callbacks, &runner, &error), LE_OK, "a runner");
	eventually_quietly(candidacies.seen >= TRIES - 1);
	before = candidacies.at;
	eventually(candidacies.seen >= TRIES, "stands again and again");
	ok(candidacies.at - before >= 2000, "after longer and longer pauses");
	ok(candidacies.at - before < 10000, "which do not grow for ever");
	refuse(false);
	eventually(leads == 1, "until it is elected");

	refuse(true);
	candidacies.seen = 0;
	query(db, "SELECT force_resign('boss')");
	eventually_quietly(candidacies.seen >= 1);
	before = candidacies.at;
	eventually(candidacies.seen >= 2, "it is forced out, and refused again");
	ok(candidacies.at - before < 4000, "after a term the pauses begin anew");
	refuse(false);
	eventually(leads == 2, "elected again");
	is_status(le_stop(runner, &error), LE_OK, "stopped");
	le_release(held, 0, NULL);
	le_close(s, -1, NULL);
	query(db, "ALTER SYSTEM RESET lock_election.max_locks_per_role");
	query(db, "SELECT pg_reload_conf()");
}

static void
tests(void)
{
	main_thread = pthread_self();
	db = connect_db();
	deadline();
	listening();
	refused();
	lost_answer();
	until();
	pauses();
	is_int(atoi(query(db, "SELECT count(*) FROM lock_election.look()")), 0, "nothing is left");
	PQfinish(db);
}

int
main(int argc, char **argv)
{
	return run_tests(argc, argv, tests);
}
