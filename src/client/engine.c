/*
 * engine.c
 *		The network thread: what it does next.
 *
 * One statement is under way at a time.  A renewal that is due goes first; then
 * answers that were lost are looked for, calls that wait are served, holds are
 * asked for or given back in their order, waiters are looked after, observers
 * read.  Then it waits for the server, for another thread, or for the time.
 */
#include "internal.h"

#include <string.h>

#define RETRY_ENDED (5 * LE_SEC_NS)

/* While there is a lease to save, it is tried often. */
static void
connect_failed(le_session *s)
{
	le_net *net = &s->net;
	int64_t delay = LE_RETRY_FIRST << (net->failures < 10 ? net->failures : 10), most;

	le_lock(s);
	most = atomic_load(&s->state) == LE_ENDED ? RETRY_ENDED : le_retry_most(s);
	le_error_copy(&s->trouble, &net->error);
	le_unlock(s);
	net->failures++;
	net->retry_at = le_add(le_now_ns(), le_jitter(delay < most ? delay : most));
}

static void
reconnect(le_session *s)
{
	if (!le_connect(s))
	{
		connect_failed(s);
		return;
	}
	s->net.failures = 0;
	s->net.ask_at = 0;
	le_lock(s);
	s->renew_at = 0;
	le_observers_due(s, NULL);
	le_unlock(s);
	le_queue_connected(s);
}

/* Locked.  Waits of le_enqueue whose time has passed. */
static void
expire(le_session *s, int64_t now)
{
	le_link *lists[] = {&s->todo, &s->sent, &s->queued};

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
			if (atomic_load(&hold->state) == LE_HOLD_WAITING && le_hold_ends(hold) < s->next_until)
				s->next_until = le_hold_ends(hold);
		}
	}
}

static void
sooner(int64_t *next, int64_t at)
{
	if (at < *next)
		*next = at;
}

/* Locked.  True: something was done. */
static bool
work(le_session *s, int64_t now, int64_t *next)
{
	le_net *net = &s->net;

	if (net->lost_answer || (net->reconcile_left > 0 && now >= net->reconcile_at))
	{
		if (now >= net->ask_at)
		{
			le_reconcile(s);
			return true;
		}
		sooner(next, net->ask_at);
		return false;
	}
	if (net->reconcile_left > 0)
		sooner(next, net->reconcile_at);
	if (!le_link_empty(&s->ops) && now >= net->ask_at)
	{
		le_op_work(s, le_container(s->ops.next, le_op, link));
		return true;
	}
	if (now >= net->ask_at && le_queue_is_urgent(s, now))
		return le_queue_work(s, now, next);
	if (now >= net->ask_at && le_observe_is_urgent(s, now))
		return le_observe_work(s, now, next);
	if (!le_link_empty(&s->todo) && now >= net->ask_at)
	{
		le_request(s);
		return true;
	}
	if (now < net->ask_at)
	{
		sooner(next, net->ask_at);
		return false;
	}
	return le_queue_work(s, now, next) || le_observe_work(s, now, next);
}

/* Locked at entry and exit.  One turn. */
static void
turn(le_session *s)
{
	int64_t now = le_now_ns(), next = LE_NEVER;
	le_net *net = &s->net;

	le_check_deadline(s);
	expire(s, now);
	sooner(&next, s->next_until);
	if (net->conn == NULL)
	{
		if (atomic_load(&s->state) == LE_CONNECTED)
			le_set_state(s, LE_SUSPENDED);
		le_queue_lost(s);
		if (now >= net->retry_at)
		{
			le_unlock(s);
			reconnect(s);
			le_lock(s);
			return;
		}
		sooner(&next, net->retry_at);
	}
	else if (le_renewal_is_due(s, now))
	{
		le_unlock(s);
		le_renew(s);
		le_lock(s);
		return;
	}
	else if (work(s, now, &next))
		return;
	if (atomic_load(&s->state) != LE_ENDED && net->conn != NULL && !atomic_load(&s->withheld))
		sooner(&next, s->renew_at);
	le_unlock(s);
	le_idle(s, next);
	if (net->conn != NULL)
		le_receive(s);
	le_lock(s);
}

/* Locked at entry and exit.  What is given back goes before the lease; with the lease most of it goes anyway. */
static void
give_back(le_session *s)
{
	while (!le_link_empty(&s->todo) && s->net.conn != NULL && le_now_ns() < s->close_until &&
		   le_now_ns() >= s->net.ask_at)
	{
		le_hold *hold = le_container(s->todo.next, le_hold, link);

		if (hold->server_token == 0 || (!s->orphan && hold->hold_for_ms == 0))
			le_hold_done(hold);
		else
			le_request(s);
	}
}

static void
shut_down(le_session *s)
{
	bool has_lease = atomic_load(&s->lease) != 0;

	if (has_lease && !s->lease_gone && s->net.conn == NULL && le_now_ns() < s->close_until)
		le_connect(s);
	if (has_lease && s->net.conn != NULL)
	{
		le_lock(s);
		if (s->net.lost_answer && s->orphan)
			le_reconcile(s);
		give_back(s);
		le_unlock(s);
		if (!s->orphan && !s->lease_gone && s->net.conn != NULL)
			le_revoke(s);
	}
	le_disconnect(s);
}

/* Locked at entry and exit.  The holds that are left are the application's alone. */
static void
forget_holds(le_session *s)
{
	le_link *lists[] = {&s->todo, &s->sent, &s->queued, &s->granted, &s->refused};

	for (int i = 0; i < 5; i++)
	{
		while (!le_link_empty(lists[i]))
			le_hold_done(le_container(lists[i]->next, le_hold, link));
	}
	while (!le_link_empty(&s->ops))
		le_op_done(le_container(s->ops.next, le_op, link), &s->error);
}

void *
le_net_main(void *session)
{
	le_session *s = session;
	bool ok = le_connect(s) && le_grant(s);

	le_lock(s);
	if (!ok)
		le_error_copy(&s->error, &s->net.error);
	s->opened = true;
	pthread_cond_broadcast(&s->changed);
	while (!ok && !s->closing)
		le_cond_wait(&s->changed, &s->lock, LE_NEVER);
	while (!s->closing)
		turn(s);
	le_unlock(s);
	shut_down(s);
	le_lock(s);
	forget_holds(s);
	s->net_done = true;
	pthread_cond_broadcast(&s->changed);
	le_unlock(s);
	le_session_unref(s);
	return NULL;
}
