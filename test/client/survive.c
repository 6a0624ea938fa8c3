/*
 * survive.c
 *		What a session survives, and what it does not: a restart of the server,
 *		killed backends, tables that are locked, a server that is stopped.
 */
#include "client.h"

static PGconn *db;

typedef struct
{
	_Atomic int connected, suspended, ended, renewed;
	_Atomic int64_t ended_at;
} seen;

static void
on_state(le_session *s, le_state state, void *arg)
{
	seen *told = arg;

	(void) s;
	if (state == LE_ENDED)
		told->ended_at = le_now();
	told->connected += state == LE_CONNECTED;
	told->suspended += state == LE_SUSPENDED;
	told->ended += state == LE_ENDED;
}

static void
on_renewed(le_session *s, int64_t deadline, void *arg)
{
	(void) s;
	((seen *) arg)->renewed += deadline > le_now();
}

static le_session *
watched(int ttl_ms, int call_ms, seen *told)
{
	le_options o = options_of(ttl_ms);

	o.call_ms = call_ms;
	o.on_state = on_state;
	o.on_renewed = on_renewed;
	o.arg = told;
	return open_with(&o);
}

/* The connection of the test itself is broken as well. */
static void
reconnect_db(void)
{
	int64_t end = le_now() + PATIENCE;

	PQreset(db);
	while (PQstatus(db) != CONNECTION_OK && le_now() < end)
	{
		usleep(20000);
		PQreset(db);
	}
}

static void
restart(const char *how)
{
	seen told = {0};
	le_session *a = watched(20000, 0, &told), *b = open_session(20000);
	le_hold *held = must_lock(a, "x"), *next = enqueue(b, "x"), *term;
	int64_t token = le_token(held);

	le_campaign(a, "e", "a", 0, &term, &error);
	eventually(le_position(next) == 1, "one holds, one waits");
	ask("%s", how);
	eventually(told.suspended == 1, "the session is suspended");
	ok(le_valid(held), "what it holds is held");
	eventually(told.connected == 1, "and connected again");
	ok(le_valid(held) && le_token(held) == token && le_valid(term), "as if nothing had been");
	is_int(told.ended, 0, "nothing has ended");
	is_status(le_proclaim(term, "still", &error), LE_OK, "the leader proclaims");
	is_status(le_release(held, 0, &error), LE_OK, "released");
	is_status(le_await(next, PATIENCE, &error), LE_OK, "who waited before the restart gets it");
	le_release(next, 0, NULL);
	le_resign(term, NULL);
	le_close(a, -1, NULL);
	le_close(b, -1, NULL);
	reconnect_db();
	is_int(atoi(query(db, "SELECT count(*) FROM lock_election.look()")), 0, "nothing is left");
}

/* --- killed backends --- */

static _Atomic int killing;

static void *
kill_backends(void *arg)
{
	PGconn *mine = connect_db();
	/* a pooler has few backends, and takes its time to replace them */
	int least = getenv("LE_TEST_DIRECT") != NULL ? 300000 : 10000;

	(void) arg;
	while (killing)
	{
		query(mine, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
					" WHERE application_name = 'liblockelection' AND random() < 0.6");
		usleep((useconds_t) (least + rand() % 60000));
	}
	PQfinish(mine);
	return NULL;
}

typedef struct
{
	le_session *session;
	int seed;
	_Atomic int *holder; /* of each lock */
	int granted, canceled, both;
	int others;
} worker;

#define LOCKS 3

/* One of three locks at a time, in any way; two at once, elected or canceled now and then. */
static void *
work(void *arg)
{
	worker *w = arg;
	static const char *const names[LOCKS] = {"k0", "k1", "k2"};

	for (int i = 0; i < 60; i++)
	{
		int which = (i + w->seed) % LOCKS, n = i % 5 == 0 && which < 2 ? 2 : 1;
		le_hold *hold;
		le_error why;
		le_status status = LE_OK;

		if (n == 2)
			status = le_acquire(w->session, names + which, n, NULL, 0, &hold, &why);
		else
		{
			status = le_enqueue(w->session, names + which, 1, NULL, &hold, &why);
			if (status == LE_OK)
			{
				if (i % 4 == 3)
				{
					usleep(rand() % 3000);
					le_cancel(hold);
				}
				status = le_await(hold, -1, &why);
				if (status != LE_OK)
					le_release(hold, 0, NULL);
			}
		}
		if (status == LE_OK)
		{
			for (int k = 0; k < n; k++)
				w->both += atomic_fetch_add(&w->holder[which + k], 1) != 0;
			usleep(500);
			for (int k = 0; k < n; k++)
				atomic_fetch_sub(&w->holder[which + k], 1);
			w->granted++;
			if (i % 2)
				le_drop(hold);
			else
			{
				status = le_release(hold, 0, &why);
				if (status != LE_OK && status != LE_UNKNOWN)
					w->others++;
			}
		}
		else if (status == LE_CANCELED || status == LE_TIMEOUT || status == LE_UNAVAILABLE)
			w->canceled++;
		else
		{
			printf("# %s: %s %s\n", le_status_name(status), why.sqlstate, why.message);
			w->others++;
		}
	}
	return NULL;
}

/* An answer that was lost leaves nothing behind, loses no turn, and lets no two in. */
static void
killed(void)
{
	le_session *sessions[2] = {open_session(60000), open_session(60000)};
	_Atomic int holder[LOCKS] = {0};
	worker workers[4];
	pthread_t threads[4], killer;
	int granted = 0, both = 0, others = 0;

	killing = 1;
	pthread_create(&killer, NULL, kill_backends, NULL);
	for (int i = 0; i < 4; i++)
	{
		workers[i] = (worker){.session = sessions[i % 2], .seed = i, .holder = holder};
		pthread_create(&threads[i], NULL, work, &workers[i]);
	}
	for (int i = 0; i < 4; i++)
	{
		pthread_join(threads[i], NULL);
		granted += workers[i].granted;
		both += workers[i].both;
		others += workers[i].others;
	}
	killing = 0;
	pthread_join(killer, NULL);
	ok(granted > 100, "locks were granted while backends were killed all the time");
	is_int(both, 0, "never to two");
	is_int(others, 0, "and no call has failed by that");
	eventually(strcmp(query(db, "SELECT count(*) FROM lock_election.look()"), "0") == 0,
			   "in the end the sessions hold nothing and wait for nothing");
	ok(le_get_state(sessions[0]) != LE_ENDED && le_get_state(sessions[1]) != LE_ENDED, "and live");
	le_close(sessions[0], -1, NULL);
	le_close(sessions[1], -1, NULL);
}

/* --- a server that is stopped --- */

static void
stopped(void)
{
	seen told = {0};
	le_session *a = watched(20000, 400, &told), *b = watched(20000, 400, &told);
	le_hold *held = must_lock(a, "x"), *none, *waits, *term;
	le_leader_info info = {.size = sizeof(info)};
	int64_t start;

	is_status(le_campaign(a, "stopped", "a", PATIENCE, &term, &error), LE_OK, "a leader");
	ask("stop");
	start = le_now();
	is_status(lock(a, "y", 0, &none), LE_UNAVAILABLE, "a server that is stopped does not answer a try");
	is_status(le_leader(a, "e", &info, &error), LE_UNAVAILABLE, "nor who leads");
	ok(strncmp(error.message, "the server has not answered in time: ", 37) == 0, "with the reason");
	is_status(le_proclaim(term, "b", &error), LE_UNAVAILABLE, "a proclamation that cannot be sent");
	is_status(lock(a, "y", 100, &none), LE_TIMEOUT, "nor a wait");
	ok(le_now() - start < 10000, "all within their limits");
	ok(le_valid(held), "what is held is held");
	eventually(told.suspended > 0, "the session is suspended");
	waits = enqueue(a, "z");
	start = le_now();
	is_status(le_close(b, 200, &error), LE_UNKNOWN, "closing does not wait for long either");
	ok(le_now() - start >= 200 && le_now() - start < 10000, "but for as long as it is told");
	start = le_now();
	is_status(le_release(held, 0, &error), LE_UNKNOWN, "whether a release has come through is not known");
	ok(le_now() - start < 10000, "within its limit");
	ask("cont");
	is_status(le_await(waits, PATIENCE, &error), LE_OK, "afterwards waits go on");
	le_release(waits, 0, NULL);
	is_status(lock(a, "x", PATIENCE, &held), LE_OK, "and the release was made good");
	le_release(held, 0, NULL);
	is_status(lock(a, "y", PATIENCE, &held), LE_OK, "as were the acquires that nobody waited for");
	le_release(held, 0, NULL);
	ok(le_get_state(a) == LE_CONNECTED, "it is connected");
	le_resign(term, NULL);
	le_close(a, -1, NULL);
}

static void
stopped_for_long(void)
{
	seen told = {0};
	le_session *a = watched(3000, 300, &told);
	struct pollfd fd = {.fd = le_fd(a), .events = POLLIN};
	le_hold *held = must_lock(a, "x"), *waits, *again;
	le_event event = {0};
	int64_t deadline;

	while (le_next_event(a, &event))
		;
	ask("stop");
	waits = enqueue(a, "y");
	deadline = le_deadline(a);
	while (event.kind != LE_EVENT_STATE || event.state != LE_ENDED)
	{
		poll(&fd, 1, PATIENCE);
		if (le_now() < le_deadline(a))
			continue;
		while (le_next_event(a, &event) && (event.kind != LE_EVENT_STATE || event.state != LE_ENDED))
			;
	}
	ok(le_deadline(a) >= deadline && le_now() >= le_deadline(a), "it ends at the deadline");
	ok(!le_valid(held) && le_hold_time_left(held) == 0, "then nothing is held");
	ok(le_time_left(a) <= 0, "and no time is left");
	is_status(le_await(waits, -1, &error), LE_LOST, "a wait ends");
	is_status(lock(a, "z", -1, &again), LE_LOST, "no other begins");
	eventually(told.ended == 1, "the callback tells");
	ok(told.ended_at >= le_deadline(a), "not before");
	is_status(le_release(held, 0, &error), LE_LOST, "a release tells, too");
	le_drop(waits);
	ask("cont");
	usleep(100000);
	ok(le_get_state(a) == LE_ENDED, "what the network says afterwards does not count");
	eventually(le_reopen(a, &error) == LE_OK, "a new lease for the same session");
	ok(le_get_state(a) == LE_CONNECTED && le_time_left(a) > 0, "which lives");
	is_status(lock(a, "x", PATIENCE, &again), LE_OK, "and acquires");
	le_release(again, 0, NULL);
	is_status(le_reopen(a, &error), LE_OK, "it needs no other one");
	le_close(a, -1, NULL);
}

/* --- tables that somebody else has locked, as VACUUM FULL does --- */

static void
locked(void)
{
	seen told = {0};
	le_session *a = watched(30000, 3000, &told), *b = open_session(30000);
	le_hold *held = must_lock(a, "x"), *waits, *next;
	le_status status;

	query(db, "BEGIN");
	ok(strcmp(query(db, "LOCK TABLE _lock_election.slot IN ACCESS EXCLUSIVE MODE"), "") == 0,
	   "the tables are locked");
	is_status(lock(a, "y", 0, &next), LE_UNAVAILABLE, "a try is told so");
	waits = enqueue(a, "z");
	next = enqueue(b, "x");
	status = le_release(held, 0, &error);
	ok(status == LE_OK || status == LE_UNKNOWN, "a release is mailed, or goes on being tried");
	is_int(le_get_hold_state(waits), LE_HOLD_WAITING, "so does a wait");
	query(db, "COMMIT");
	is_status(le_await(next, PATIENCE, &error), LE_OK, "afterwards it is released");
	is_status(le_await(waits, PATIENCE, &error), LE_OK, "and the wait goes on");
	is_int(told.ended, 0, "the session has not ended");
	le_release(waits, 0, NULL);
	le_release(next, 0, NULL);
	le_close(a, -1, NULL);
	le_close(b, -1, NULL);
}

static void
tests(void)
{
	db = connect_db();
	/* a pooler keeps its clients while the server is down */
	if (getenv("LE_TEST_DIRECT") == NULL)
	{
		restart("restart fast");
		restart("restart immediate");
	}
	killed();
	locked();
	stopped();
	stopped_for_long();
	PQfinish(db);
}

int
main(int argc, char **argv)
{
	return run_tests(argc, argv, tests);
}
