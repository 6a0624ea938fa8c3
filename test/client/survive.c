/*
 * survive.c
 *		Events that a session survives, and those that it does not: a restart of
 *		the server, killed backends, locked tables, a stopped server.
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

/* Reconnects the test's own connection, which is broken, too. */
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
	eventually(le_position(next) == 1, "one session holds the lock, and another waits for it");
	ask("%s", how);
	eventually(told.suspended == 1, "the session is suspended by the restart");
	ok(le_valid(held), "the hold is valid while the session is suspended");
	eventually(told.connected == 1, "the session is connected again");
	ok(le_valid(held) && le_token(held) == token && le_valid(term),
	   "hold, token and term are unchanged after the restart");
	is_int(told.ended, 0, "the session has not ended by the restart");
	is_status(le_proclaim(term, "still", &error), LE_OK, "the leader proclaims after the restart");
	is_status(le_release(held, 0, &error), LE_OK, "the lock is released after the restart");
	is_status(le_await(next, PATIENCE, &error), LE_OK, "the waiter from before the restart is granted");
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
	/* a pooler has few backends, and needs time to replace them */
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
	_Atomic int *holder; /* the holder of each lock */
	int granted, canceled, both;
	int others;
} worker;

#define LOCKS 3

/* Acquires one of three locks at a time, in various ways; sometimes two at once, a term, or with a cancel. */
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

/* A lost reply leaves no entry behind, loses no grant, and does not admit two holders. */
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
	is_int(both, 0, "no lock had two holders while backends were killed");
	is_int(others, 0, "no call has failed while backends were killed");
	eventually(strcmp(query(db, "SELECT count(*) FROM lock_election.look()"), "0") == 0,
			   "the sessions finally hold nothing and wait for nothing");
	ok(le_get_state(sessions[0]) != LE_ENDED && le_get_state(sessions[1]) != LE_ENDED,
	   "the sessions have not ended");
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
	is_status(lock(a, "y", 0, &none), LE_UNAVAILABLE,
			  "a try returns LE_UNAVAILABLE while the server is stopped");
	is_status(le_leader(a, "e", &info, &error), LE_UNAVAILABLE,
			  "le_leader returns LE_UNAVAILABLE while the server is stopped");
	ok(strncmp(error.message, "the server has not answered in time: ", 37) == 0,
	   "the error says that the server has not replied in time");
	is_status(le_proclaim(term, "b", &error), LE_UNAVAILABLE,
			  "le_proclaim returns LE_UNAVAILABLE while the server is stopped");
	is_status(lock(a, "y", 100, &none), LE_TIMEOUT, "a wait times out while the server is stopped");
	ok(le_now() - start < 10000, "all calls return within their limits");
	ok(le_valid(held), "the hold is valid while the server is stopped");
	eventually(told.suspended > 0, "the session is suspended while the server is stopped");
	waits = enqueue(a, "z");
	start = le_now();
	is_status(le_close(b, 200, &error), LE_UNKNOWN,
			  "le_close returns LE_UNKNOWN while the server is stopped");
	ok(le_now() - start >= 200 && le_now() - start < 10000, "le_close waits for its limit");
	start = le_now();
	is_status(le_release(held, 0, &error), LE_UNKNOWN,
			  "le_release returns LE_UNKNOWN while the server is stopped");
	ok(le_now() - start < 10000, "le_release returns within its limit");
	ask("cont");
	is_status(le_await(waits, PATIENCE, &error), LE_OK, "a wait is granted when the server continues");
	le_release(waits, 0, NULL);
	is_status(lock(a, "x", PATIENCE, &held), LE_OK,
			  "the lock with the unknown release is free when the server continues");
	le_release(held, 0, NULL);
	is_status(lock(a, "y", PATIENCE, &held), LE_OK,
			  "the lock of the timed out acquires is free when the server continues");
	le_release(held, 0, NULL);
	ok(le_get_state(a) == LE_CONNECTED, "the session is connected when the server continues");
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
	ok(le_deadline(a) >= deadline && le_now() >= le_deadline(a), "the session ends at its deadline");
	ok(!le_valid(held) && le_hold_time_left(held) == 0, "the hold is invalid after the deadline");
	ok(le_time_left(a) <= 0, "no time is left after the deadline");
	is_status(le_await(waits, -1, &error), LE_LOST, "a wait returns LE_LOST after the deadline");
	is_status(lock(a, "z", -1, &again), LE_LOST, "a new wait returns LE_LOST after the deadline");
	eventually(told.ended == 1, "the callback reports the end");
	ok(told.ended_at >= le_deadline(a), "the callback is not called before the deadline");
	is_status(le_release(held, 0, &error), LE_LOST, "a release returns LE_LOST after the deadline");
	le_drop(waits);
	ask("cont");
	usleep(100000);
	ok(le_get_state(a) == LE_ENDED, "replies after the deadline do not revive the session");
	eventually(le_reopen(a, &error) == LE_OK, "le_reopen grants a new lease to the ended session");
	ok(le_get_state(a) == LE_CONNECTED && le_time_left(a) > 0, "the reopened session is connected");
	is_status(lock(a, "x", PATIENCE, &again), LE_OK, "the reopened session acquires");
	le_release(again, 0, NULL);
	is_status(le_reopen(a, &error), LE_OK, "le_reopen of an open session returns LE_OK");
	le_close(a, -1, NULL);
}

/* --- tables that another session has locked, as VACUUM FULL does --- */

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
	is_status(lock(a, "y", 0, &next), LE_UNAVAILABLE,
			  "a try returns LE_UNAVAILABLE while the tables are locked");
	waits = enqueue(a, "z");
	next = enqueue(b, "x");
	status = le_release(held, 0, &error);
	ok(status == LE_OK || status == LE_UNKNOWN,
	   "a release is done asynchronously, or repeated, while the tables are locked");
	is_int(le_get_hold_state(waits), LE_HOLD_WAITING, "a request waits while the tables are locked");
	query(db, "COMMIT");
	is_status(le_await(next, PATIENCE, &error), LE_OK, "the lock is released when the tables are unlocked");
	is_status(le_await(waits, PATIENCE, &error), LE_OK,
			  "the waiting request is granted when the tables are unlocked");
	is_int(told.ended, 0, "the session has not ended by the locked tables");
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
