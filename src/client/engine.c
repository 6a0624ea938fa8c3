/*
 * engine.c
 *		Runs the session thread.
 *
 * The session thread runs the turns that no other thread runs, reconnects, and
 * listens for notifications while a hold waits.  Otherwise it sleeps until the
 * connection ends, another thread wakes it up, or work is due.  While a hold
 * waits, a notification wakes it up, too.  The session thread does not own the
 * connection while it sleeps, so that other threads can take the connection at
 * once.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "connection.h"
#include "due.h"
#include "error.h"
#include "objects.h"
#include "ownership.h"
#include "state.h"
#include "text.h"
#include "threads.h"
#include "turn.h"

/* Pause in ns before LISTEN is retried after an error, because the error may be temporary */
#define LISTEN_AGAIN (5 * LE_SEC_NS)

/*
 * The poll() event for a connection that the other end has closed.  Where POLLRDHUP does not exist, any
 * input wakes up the session thread.
 */
#ifdef POLLRDHUP
#define HUNG_UP POLLRDHUP
#else
#define HUNG_UP POLLIN
#endif

/*
 * Requests a lease for the session, and resets the session's state and turns.  Returns false and sets
 * net.error if no lease was granted.
 */
bool
le_grant(le_session *s)
{
	char ttl[32], wait[32];
	const char *values[] = {ttl, s->marker, wait};
	int64_t sent_at = le_now_ns();
	PGresult *result;
	bool ok;

	/* request the lease */
	snprintf(ttl, sizeof(ttl), "%d ms", s->options.ttl_ms);
	snprintf(wait, sizeof(wait), "%lld ms", (long long) le_ms_up(s->call / 2));
	result = le_exec(s, "SELECT @extschema@.grant_lease($1, $2, $3)", 3, values);
	ok = PQresultStatus(result) == PGRES_TUPLES_OK;
	if (ok)
	{
		/* reset everything that belonged to the old lease */
		le_lock(s);
		atomic_store(&s->lease, strtoll(PQgetvalue(result, 0, 0), NULL, 10));
		s->lease_gone = s->revoked = s->look = s->bare = s->listens = false;
		s->seen[0][0] = s->channel[0] = '\0';
		s->calls = s->failures = s->alone = 0;
		s->ask_at = 0;
		s->renew_at = le_add(sent_at, le_jitter(s->ttl / 3));
		atomic_store(&s->deadline, le_add(sent_at, s->ttl - s->margin));
		atomic_store(&s->withheld, 0);
		if (s->opened)
			le_set_state(s, LE_CONNECTED);
		else
			atomic_store(&s->state, LE_CONNECTED);
		le_error_clear(&s->error);
		le_unlock(s);
	}
	PQclear(result);
	return ok;
}

/* --- LISTEN (below, the mutex is held at entry and exit of each function) --- */

/*
 * Sends LISTEN for the channels that are needed, and UNLISTEN for all others.  The first time on a
 * connection, also sends a notification to the session itself, to test whether LISTEN works.  If memory
 * runs out, retries after a pause.
 */
static void
listen(le_session *s)
{
	le_text sql = {0};
	PGresult *result;
	bool listens = le_wants_channel(s), tests = listens && s->tested_at == 0;

	/* build the statements for all channels */
	le_text_add(&sql, "UNLISTEN *;");
	if (listens)
		le_text_add(&sql, "LISTEN %s;", s->channel);
	le_foreach (le_observer, o, &s->observers)
	{
		if (o->channel[0] != '\0')
			le_text_add(&sql, "LISTEN %s;", o->channel);
	}
	if (tests)
		le_text_add(&sql, "SET LOCAL synchronous_commit = off; NOTIFY %s", s->channel);
	if (sql.failed)
	{
		free(sql.data);
		s->listen_at = le_add(le_now_ns(), LE_PAUSE);
		return;
	}
	/* run the statements */
	s->listens = listens;
	s->relisten = false;
	s->tested_at = tests ? le_now_ns() : s->tested_at;
	s->busy = true;
	le_unlock(s);
	result = le_exec(s, sql.data, -1, NULL);
	le_lock(s);
	s->deaf = PQresultStatus(result) != PGRES_COMMAND_OK;
	if (s->deaf)
	{
		/*
		 * It is not known to which channels the connection listens now, so send LISTEN for all of them
		 * again later, with a new test.
		 */
		s->listens = s->heard = false;
		s->relisten = true;
		s->tested_at = 0;
		s->listen_at = le_add(le_now_ns(), LISTEN_AGAIN);
	}
	s->look |= s->waiting > 0; /* read grants whose notification was sent before this LISTEN */
	le_observers_due(s, NULL);
	PQclear(result);
	free(sql.data);
	le_give(s);
}

/* --- the session thread --- */

/* Connects, and resets the state that belonged to the old connection.  Sets retry_at after a failure. */
static void
connect_session(le_session *s)
{
	bool ok;

	if (le_is_alive(s))
		le_set_state(s, LE_SUSPENDED);
	s->busy = true;
	le_unlock(s);
	ok = le_connect(s);
	le_lock(s);
	if (ok)
	{
		s->failures = le_is_alive(s) ? s->failures : 0;
		s->renew_at = s->ask_at = s->tested_at = 0;
		s->heard = s->listens = false;
		s->relisten = !le_link_empty(&s->observers);
		s->deaf = s->options.listen < 0 || (s->options.listen == 0 && s->net.pooled);
		s->listen_at = s->deaf ? LE_NEVER : 0;
		le_observers_due(s, NULL);
	}
	else
		s->retry_at = le_failed(s, &s->net.error);
	le_give(s);
}

/*
 * Sleeps until a point in time, until another thread wakes up the session thread, or until the
 * connection ends.  While notifications are needed, input on the connection also ends the sleep, and is
 * then read.
 */
static void
rest(le_session *s, int64_t until)
{
	PGconn *conn = s->net.conn;
	struct pollfd fds[2] = {
		{.fd = conn != NULL ? PQsocket(conn) : -1, .events = HUNG_UP | (le_is_curious(s) ? POLLIN : 0)},
		{.fd = s->wake_net[0], .events = POLLIN}};

	/* sleep, without the mutex and without owning the connection */
	s->rests_until = until;
	s->rests_deaf = !le_is_curious(s);
	le_unlock(s);
	le_poll(fds, 2, until);
	if (fds[1].revents != 0)
		le_drain(s->wake_net);
	le_lock(s);
	s->rests_until = 0;
	s->rests_deaf = false;
	/* read the input, unless another thread owns the connection */
	if (fds[0].revents == 0 || s->busy || s->net.conn != conn)
		return;
	s->busy = true;
	le_unlock(s);
	le_receive(s);
	le_lock(s);
	le_give(s);
}

/* Ends waits whose time limit has passed.  If LISTEN does not work, also ends all waits that need it. */
static void
expire(le_session *s)
{
	int64_t now = le_now_ns();
	le_error error;

	if (!s->busy && s->connected && now >= le_patience(s))
	{
		le_error_set(&error, LE_UNAVAILABLE, "", "LISTEN does not work on this connection");
		le_foreach (le_hold, hold, &s->lists[LE_HELD])
		{
			if (atomic_load(&hold->state) == LE_HOLD_WAITING)
				le_hold_over(hold, &error);
		}
	}
	/* end waits whose time limit has passed */
	if (now < s->next_until)
		return;
	s->next_until = LE_NEVER;
	for (int i = LE_ASKS; i <= LE_HELD; i++)
	{
		le_foreach (le_hold, hold, &s->lists[i])
		{
			le_hold_check_until(hold, now);
			if (atomic_load(&hold->state) == LE_HOLD_WAITING)
				le_sooner(&s->next_until, le_hold_ends(hold));
		}
	}
}

/*
 * Does the most urgent work, or sleeps.  Lets a thread that waits for the connection run first, unless a
 * renewal becomes due before that thread runs.
 */
static void
step(le_session *s)
{
	le_check_deadline(s);
	expire(s);
	if (s->busy || (s->asking > 0 && le_is_free(s)))
		le_wait_changed(s, s->busy || !le_is_alive(s) ? LE_NEVER : s->renew_at);
	else if (!s->connected && le_now_ns() >= s->retry_at)
		connect_session(s);
	else if (s->connected && le_due(s) <= le_now_ns())
		le_turn(s);
	else if (s->connected && le_listen_due(s) <= le_now_ns())
		listen(s);
	else
	{
		if (!s->connected && le_is_alive(s))
			le_set_state(s, LE_SUSPENDED);
		rest(s, le_next_work(s));
	}
}

/* Revokes the lease.  Returns false if the server has permanently rejected the revocation. */
static bool
revoke_lease(le_session *s)
{
	char lease[24];
	PGresult *result;

	snprintf(lease, sizeof(lease), "%lld", (long long) atomic_load(&s->lease));
	s->busy = true;
	le_unlock(s);
	result = le_exec(s, "SELECT @extschema@.revoke_lease($1)", 1, (const char *const[]){lease});
	le_lock(s);
	s->revoked = PQresultStatus(result) == PGRES_TUPLES_OK;
	PQclear(result);
	if (!s->revoked)
		le_failed(s, &s->net.error);
	le_give(s);
	return s->revoked || le_error_passes(&s->trouble);
}

/*
 * Sends the remaining releases, then revokes the lease, unless le_orphan() was called.  Retries after
 * failures, until close_until.
 */
static void
wind_up(le_session *s)
{
	while (!s->lease_gone && !s->revoked && le_now_ns() < s->close_until)
	{
		bool gives = !le_link_empty(&s->lists[LE_GIVES]) || (s->orphan && s->bare);
		bool later = s->later_at < s->close_until;
		int64_t pause = 0;
		int failures = s->failures;

		if (s->orphan && !gives && !later)
			return;
		if (s->net.conn == NULL)
			connect_session(s);
		else if (gives || (later && s->later_at <= le_now_ns()))
			le_turn(s);
		else if (later)
			pause = s->later_at;
		else if (!revoke_lease(s))
			return;
		if (s->failures > failures)
			pause = le_add(le_now_ns(), LE_PAUSE);
		le_sooner(&pause, s->close_until);
		while (le_now_ns() < pause)
			le_wait_changed(s, pause);
	}
}

/*
 * Ends the session on the server and disconnects.  Sends a release only if it has a hold_for, or if the
 * lease is not revoked; all other holds end with the lease.
 */
static void
shut_down(le_session *s)
{
	while (s->busy)
		le_wait_changed(s, LE_NEVER);
	for (int i = LE_GIVES; i <= LE_LATER; i++)
	{
		le_foreach (le_hold, hold, &s->lists[i])
		{
			if (!s->orphan && hold->hold_for_ms == 0)
				le_hold_done(hold);
		}
	}
	if (atomic_load(&s->lease) != 0)
		wind_up(s);
	s->busy = true;
	le_unlock(s);
	le_disconnect(s);
	le_lock(s);
	/* drop the session's references to the remaining holds; the application may still have references */
	for (int i = 0; i < LE_LISTS; i++)
	{
		le_foreach (le_hold, hold, &s->lists[i])
			le_hold_done(hold);
	}
}

/* Connects, obtains the lease, works until the session is closed, then shuts it down. */
void *
le_net_main(void *session)
{
	le_session *s = session;
	bool ok;

	le_lock(s);
	connect_session(s);
	s->busy = true;
	le_unlock(s);
	ok = s->net.conn != NULL && le_grant(s);
	le_lock(s);
	if (!ok)
		le_error_copy(&s->error, &s->net.error);
	s->opened = true;
	le_give(s);
	pthread_cond_broadcast(&s->changed);
	while (!ok && !s->closing)
		le_wait_changed(s, LE_NEVER);
	while (!s->closing)
		step(s);
	shut_down(s);
	s->net_done = true;
	pthread_cond_broadcast(&s->changed);
	le_unlock(s);
	le_session_unref(s);
	return NULL;
}
