/*
 * engine.c
 *		The session thread, and who has the connection.
 *
 * It makes the turns that nobody else makes, connects again, and listens while
 * something waits.  Then it rests: it waits for the end of the connection, for
 * another thread, or for the time; while something waits, for notifications
 * too.  It does not have the connection meanwhile, so a caller does not wait for
 * it.
 */
#include "internal.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_ENDED (5 * LE_SEC_NS)
/* LISTEN goes on for so long after the last wait. */
#define LINGER LE_SEC_NS
/* A notification to ourselves comes with the answer; this is patience. */
#define TEST_PATIENCE (300 * LE_MS_NS)

/* The other end has closed the connection: it ends a wait for nothing else. */
#ifdef POLLRDHUP
#define HUNG_UP POLLRDHUP
#else
#define HUNG_UP POLLIN
#endif

/* --- the lease --- */

bool
le_grant(le_session *s)
{
	char ttl[32], wait[32];
	const char *values[] = {ttl, s->marker, wait};
	int64_t sent_at = le_now_ns();
	PGresult *result;
	bool ok;

	snprintf(ttl, sizeof(ttl), "%d ms", s->options.ttl_ms);
	snprintf(wait, sizeof(wait), "%lld ms", (long long) le_ms_up(s->call / 2));
	result = le_exec(s, LE_NEVER, "SELECT @extschema@.grant_lease($1, $2, $3)", 3, values);
	ok = PQresultStatus(result) == PGRES_TUPLES_OK;
	if (ok)
	{
		le_lock(s);
		le_forget_turns(s);
		atomic_store(&s->lease, strtoll(PQgetvalue(result, 0, 0), NULL, 10));
		s->lease_gone = s->revoked = false;
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

static void
revoke(le_session *s)
{
	char lease[24];
	const char *values[] = {lease};
	PGresult *result;

	snprintf(lease, sizeof(lease), "%lld", (long long) atomic_load(&s->lease));
	result = le_exec(s, LE_NEVER, "SELECT @extschema@.revoke_lease($1)", 1, values);
	le_lock(s);
	s->revoked = PQresultStatus(result) == PGRES_TUPLES_OK;
	le_unlock(s);
	PQclear(result);
}

/* --- what is to be done; all that follows is locked at entry and exit --- */

/* Is there somebody to be told of notifications? */
static bool
is_curious(const le_session *s)
{
	return s->waiting > 0 || !le_link_empty(&s->observers);
}

static bool
wants_channel(const le_session *s)
{
	return s->channel[0] != '\0' &&
		   (is_curious(s) || (s->waited_at != 0 && le_now_ns() < s->waited_at + LINGER));
}

/* When the session thread has something to do. */
static int64_t
next_work(le_session *s)
{
	int64_t next = s->connected ? le_due(s) : s->net.retry_at;

	le_sooner(&next, s->next_until);
	if (s->closing || s->net.unread)
		return 0;
	if (!s->connected)
		return next;
	if (!s->deaf && (s->relisten || s->listens != wants_channel(s)))
		return 0;
	if (s->listens && s->waiting == 0 && le_link_empty(&s->observers))
		le_sooner(&next, s->waited_at + LINGER);
	if (s->options.listen == 1 && s->waiting > 0 && !s->heard)
		le_sooner(&next, s->deaf || s->tested_at == 0 ? 0 : s->tested_at + TEST_PATIENCE);
	return next;
}

void
le_wake_net(le_session *s)
{
	if (s->busy || s->rests_until == 0 || next_work(s) >= s->rests_until)
		return;
	s->rests_until = 0;
	le_wake(s->wake_net);
}

static void
wait_changed(le_session *s, int64_t until)
{
	s->watchers++;
	le_cond_wait(&s->changed, &s->lock, until);
	s->watchers--;
}

void
le_give(le_session *s)
{
	s->connected = s->net.conn != NULL;
	s->busy = false;
	if (s->watchers > 0)
		pthread_cond_broadcast(&s->changed);
	le_wake_net(s);
}

/* A renewal that is due goes first. */
static bool
is_free(le_session *s)
{
	return !s->busy && s->connected && !s->net.unread && !(le_is_alive(s) && s->renew_at <= le_now_ns());
}

le_status
le_take(le_session *s, int64_t until, le_error *error)
{
	s->asking++;
	while (!s->closing && le_now_ns() < until && !is_free(s))
	{
		int64_t at = until;

		if (le_is_alive(s))
			le_sooner(&at, atomic_load(&s->deadline));
		wait_changed(s, at);
		le_check_deadline(s);
	}
	s->asking--;
	if (s->closing)
		return le_error_copy(error, &s->error);
	if (!is_free(s) || le_now_ns() >= until)
		return le_error_set(error, LE_UNAVAILABLE, "", "the server has not answered in time%s%s",
							s->trouble.message[0] != '\0' ? ": " : "", s->trouble.message);
	s->busy = true;
	return LE_OK;
}

PGresult *
le_ask(le_session *s, int64_t until, const char *sql, int n, const char *const *values, le_error *error)
{
	while (le_take(s, until, error) == LE_OK)
	{
		int64_t pause = le_add(le_now_ns(), LE_RETRY_FIRST);
		PGresult *result;
		bool again;

		le_unlock(s);
		result = le_exec(s, until, sql, n, values);
		le_lock(s);
		again =
			PQresultStatus(result) != PGRES_TUPLES_OK && (result == NULL || le_error_passes(&s->net.error));
		le_error_copy(error, &s->net.error);
		if (again)
			le_error_copy(&s->trouble, &s->net.error);
		le_give(s);
		if (PQresultStatus(result) == PGRES_TUPLES_OK)
			return result;
		PQclear(result);
		if (!again)
			break;
		while (!s->closing && le_now_ns() < pause && le_now_ns() < until)
			wait_changed(s, pause);
	}
	return NULL;
}

/* --- LISTEN --- */

void
le_hear(le_session *s, const char *channel)
{
	if (strcmp(channel, s->channel) != 0)
		le_observers_due(s, channel);
	else
	{
		s->heard = true;
		s->look |= s->waiting > 0;
	}
}

/* Listens to what is wanted, and to nothing else.  The first time the session notifies itself. */
static void
listen(le_session *s)
{
	le_text sql = {0};
	PGresult *result = NULL;
	bool wants = wants_channel(s);

	le_text_add(&sql, "UNLISTEN *;");
	if (wants)
		le_text_add(&sql, "LISTEN %s;", s->channel);
	for (le_link *link = s->observers.next; link != &s->observers; link = link->next)
	{
		le_observer *o = le_container(link, le_observer, link);

		if (o->channel[0] != '\0')
			le_text_add(&sql, "LISTEN %s;", o->channel);
	}
	if (wants && s->tested_at == 0)
	{
		le_text_add(&sql, "SET LOCAL synchronous_commit = off; NOTIFY %s", s->channel);
		s->tested_at = le_now_ns();
	}
	s->listens = wants;
	s->relisten = false;
	s->busy = true;
	le_unlock(s);
	if (!sql.failed)
		result = le_exec(s, LE_NEVER, sql.data, -1, NULL);
	le_lock(s);
	s->deaf = PQresultStatus(result) != PGRES_COMMAND_OK;
	if (s->deaf)
		s->listens = false;
	/* what came before */
	s->look |= s->waiting > 0;
	le_observers_due(s, NULL);
	PQclear(result);
	le_text_free(&sql);
	le_give(s);
}

/* Nobody waits where that is not wanted without LISTEN. */
static void
demand_listen(le_session *s)
{
	le_error error;

	if (s->options.listen != 1 || s->waiting == 0 || s->heard ||
		!(s->deaf || s->channel[0] == '\0' ||
		  (s->tested_at != 0 && le_now_ns() >= s->tested_at + TEST_PATIENCE)))
		return;
	le_error_set(&error, LE_UNAVAILABLE, "", "LISTEN does not work on this connection");
	for (le_link *link = s->held.next, *next; link != &s->held; link = next)
	{
		le_hold *hold = le_container(link, le_hold, link);

		next = link->next;
		if (atomic_load(&hold->state) == LE_HOLD_WAITING)
			le_hold_over(hold, &error);
	}
}

/* --- the session thread --- */

/* While there is a lease to save, it is tried often. */
static void
reconnect(le_session *s)
{
	le_net *net = &s->net;
	int64_t delay = LE_RETRY_FIRST << (net->failures < 10 ? net->failures : 10);
	bool ok;

	if (le_is_alive(s))
		le_set_state(s, LE_SUSPENDED);
	s->busy = true;
	le_unlock(s);
	ok = le_connect(s);
	le_lock(s);
	if (ok)
	{
		net->failures = 0;
		s->renew_at = s->ask_at = 0;
		s->heard = s->listens = false;
		s->relisten = !le_link_empty(&s->observers);
		s->deaf = s->options.listen < 0 || (s->options.listen == 0 && net->pooled);
		s->tested_at = 0;
		le_observers_due(s, NULL);
	}
	else
	{
		le_error_copy(&s->trouble, &net->error);
		le_sooner(&delay, atomic_load(&s->state) == LE_ENDED ? RETRY_ENDED : le_retry_most(s));
		net->failures++;
		net->retry_at = le_add(le_now_ns(), le_jitter(delay));
	}
	le_give(s);
}

/* Waits of which the time has passed. */
static void
expire(le_session *s, int64_t now)
{
	le_link *lists[] = {&s->asks, &s->open, &s->held};

	if (now < s->next_until)
		return;
	s->next_until = LE_NEVER;
	for (int i = 0; i < 3; i++)
	{
		for (le_link *link = lists[i]->next, *next; link != lists[i]; link = next)
		{
			le_hold *hold = le_container(link, le_hold, link);

			next = link->next;
			le_hold_check_until(hold, now);
			if (atomic_load(&hold->state) == LE_HOLD_WAITING)
				le_sooner(&s->next_until, le_hold_ends(hold));
		}
	}
}

/* What the server has sent: the rest of an answer, or notifications. */
static void
receive(le_session *s)
{
	s->busy = true;
	le_unlock(s);
	if (s->net.unread)
		le_read_rest(s);
	else
		le_receive(s);
	le_lock(s);
	le_give(s);
}

static void
rest(le_session *s, int64_t until)
{
	PGconn *conn = s->net.conn;
	struct pollfd fds[2] = {
		{.fd = conn != NULL ? PQsocket(conn) : -1, .events = HUNG_UP | (is_curious(s) ? POLLIN : 0)},
		{.fd = s->wake_net[0], .events = POLLIN}};

	s->rests_until = until;
	le_unlock(s);
	le_poll(fds, 2, s->timer, until);
	if (fds[1].revents != 0)
		le_drain(s->wake_net);
	le_lock(s);
	s->rests_until = 0;
	if (fds[0].revents != 0 && !s->busy && s->net.conn == conn && !s->net.unread)
		receive(s);
}

static void
step(le_session *s)
{
	int64_t now = le_now_ns();

	le_check_deadline(s);
	expire(s, now);
	if (s->busy || (s->asking > 0 && is_free(s)))
		wait_changed(s, LE_NEVER);
	else if (s->net.unread)
		receive(s);
	else if (!s->connected && now >= s->net.retry_at)
		reconnect(s);
	else if (!s->connected)
	{
		if (le_is_alive(s))
			le_set_state(s, LE_SUSPENDED);
		rest(s, next_work(s));
	}
	else if (le_due(s) <= now)
		le_turn(s);
	else if (!s->deaf && (s->relisten || s->listens != wants_channel(s)))
		listen(s);
	else
	{
		demand_listen(s);
		if (next_work(s) > now)
			rest(s, next_work(s));
	}
}

/* --- closing --- */

/* What is given back goes before the lease; with the lease most of it goes anyway. */
static void
give_back(le_session *s)
{
	for (le_link *link = s->gives.next, *next; link != &s->gives && !s->orphan; link = next)
	{
		next = link->next;
		if (le_container(link, le_hold, link)->hold_for_ms == 0)
			le_hold_done(le_container(link, le_hold, link));
	}
	s->renew_failures = 0;
	while ((!le_link_empty(&s->gives) || (s->orphan && s->bare)) && s->net.conn != NULL &&
		   le_now_ns() < s->close_until && s->renew_failures == 0 && !s->lease_gone)
		le_turn(s);
}

static void
shut_down(le_session *s)
{
	bool has_lease = atomic_load(&s->lease) != 0 && !s->lease_gone;

	while (s->busy)
		wait_changed(s, LE_NEVER);
	s->busy = true;
	le_unlock(s);
	if (s->net.unread)
		le_read_rest(s);
	if (has_lease && s->net.conn == NULL && le_now_ns() < s->close_until)
		le_connect(s);
	le_lock(s);
	if (has_lease && s->net.conn != NULL)
		give_back(s);
	s->busy = true;
	le_unlock(s);
	if (!s->orphan && has_lease && !s->lease_gone && s->net.conn != NULL)
		revoke(s);
	le_disconnect(s);
	le_lock(s);
}

/* The holds that are left are the application's alone. */
static void
forget_holds(le_session *s)
{
	le_link *lists[] = {&s->asks, &s->open, &s->held, &s->gives, &s->later};

	for (int i = 0; i < 5; i++)
	{
		while (!le_link_empty(lists[i]))
			le_hold_done(le_container(lists[i]->next, le_hold, link));
	}
}

void *
le_net_main(void *session)
{
	le_session *s = session;
	bool ok = le_connect(s) && le_grant(s);

	le_lock(s);
	if (!ok)
		le_error_copy(&s->error, &s->net.error);
	s->deaf = s->options.listen < 0 || (s->options.listen == 0 && s->net.pooled);
	s->opened = true;
	le_give(s);
	pthread_cond_broadcast(&s->changed);
	while (!ok && !s->closing)
		wait_changed(s, LE_NEVER);
	while (!s->closing)
		step(s);
	shut_down(s);
	forget_holds(s);
	s->net_done = true;
	pthread_cond_broadcast(&s->changed);
	le_unlock(s);
	le_session_unref(s);
	return NULL;
}
