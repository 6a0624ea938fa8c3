/*
 * session.c
 *		Opens, closes and reopens sessions, and returns their state without
 *		waiting.
 */
#include "types.h"

#include <string.h>

#include "arguments.h"
#include "due.h"
#include "error.h"
#include "objects.h"
#include "ownership.h"
#include "state.h"
#include "threads.h"

#define TTL_DEFAULT 30000
#define TTL_MIN     100
#define TTL_MAX     2073600000

/* --- open --- */

/*
 * Checks the options, in which ttl_ms is already set.  Returns LE_INVALID, with an error for the first
 * invalid option.
 */
static le_status
check_options(const le_options *o, le_error *error)
{
	const struct
	{
		const char *name;
		int ms;
	} others[] = {{"connect_ms", o->connect_ms},
				  {"call_ms", o->call_ms},
				  {"progress_ms", o->progress_ms},
				  {"poll_ms", o->poll_ms}};
	PQconninfoOption *parsed;
	char *message = NULL;

	/* check the times */
	if (o->ttl_ms < TTL_MIN || o->ttl_ms > TTL_MAX)
		return le_invalid(error, "ttl_ms is %d: 0 (%d) and %d to %d are allowed", o->ttl_ms, TTL_DEFAULT,
						  TTL_MIN, TTL_MAX);
	if (o->margin_ms < 0 || o->margin_ms >= o->ttl_ms / 2)
		return le_invalid(
			error, "margin_ms is %d: 0 (a twentieth of ttl_ms) to less than half of ttl_ms, %d, are allowed",
			o->margin_ms, o->ttl_ms / 2);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
	{
		if (others[i].ms < 0)
			return le_invalid(error, "%s is %d: 0 (the default) and more are allowed", others[i].name,
							  others[i].ms);
	}
	if (o->listen < -1 || o->listen > 1)
		return le_invalid(error, "listen is %d: -1, 0 and 1 are allowed", o->listen);
	if (o->name != NULL)
		le_must(le_check_utf8("name", o->name, error));
	/* check conninfo, unless it is only the name of a database, without "=" or "://" */
	if (o->conninfo == NULL || (strchr(o->conninfo, '=') == NULL && strstr(o->conninfo, "://") == NULL))
		return LE_OK;
	parsed = PQconninfoParse(o->conninfo, &message);
	if (parsed == NULL && message == NULL)
		return le_no_memory(error);
	if (parsed == NULL)
		le_error_unparsed(error, message);
	PQfreemem(message);
	PQconninfoFree(parsed);
	return parsed != NULL ? LE_OK : LE_INVALID;
}

le_status
le_open(const le_options *options, le_session **session, le_error *error)
{
	le_options o = {.size = sizeof(o)};
	le_session *s;
	le_error why;

	le_must(le_check_pointer(session, "session", error));
	*session = NULL;
	if (options != NULL)
		le_must(le_struct_read(&o, sizeof(o), options, "le_options", error));
	if (o.ttl_ms == 0)
		o.ttl_ms = TTL_DEFAULT;
	le_must(check_options(&o, error));
	s = le_session_new(&o);
	if (s == NULL)
		return le_error_set(error, LE_NO_MEMORY, "", "out of memory or descriptors");
	le_lock(s);
	s->net_started = le_start_thread(&s->net_thread, le_net_main, s);
	s->dispatch_started = s->net_started && le_start_thread(&s->dispatch_thread, le_dispatch_main, s);
	/* wait until the session thread has obtained a lease, or failed */
	s->refs += s->net_started + s->dispatch_started;
	if (!s->dispatch_started)
		le_error_set(&s->error, LE_NO_MEMORY, "", "could not start a thread");
	while (s->dispatch_started && !s->opened)
		le_cond_wait(&s->changed, &s->lock, LE_NEVER);
	why = s->error;
	/* check the lease, because it may have ended since it was granted */
	if (s->dispatch_started && le_is_alive(s))
		*session = s;
	le_unlock(s);
	if (*session != NULL)
		return LE_OK;
	le_close(s, -1, NULL);
	return le_error_copy(error, &why);
}

/* --- close --- */

static int
join(pthread_t thread)
{
	return pthread_join(thread, NULL);
}

static bool
is_callback(const le_session *s)
{
	return s->dispatch_started && pthread_equal(pthread_self(), s->dispatch_thread);
}

/*
 * Closes the session: makes the session thread shut down, and joins both threads.  Detaches a thread
 * that has not ended at the time "until" (in ns); it cleans up in the background.
 */
static le_status
session_close(le_session *s, bool orphan, int64_t until, le_error *error)
{
	bool net_done, dispatch_done, revoked = !le_is_alive(s);

	le_lock(s);
	/* stop both threads */
	s->closing = true;
	s->orphan = orphan;
	s->close_until = until;
	until = le_add(until, 10 * LE_MS_NS);
	s->revoked = !s->connected && !le_is_alive(s); /* do not reconnect: the lease expires anyway */
	le_end(s, "", "the session was closed");
	pthread_cond_broadcast(&s->changed);
	pthread_cond_broadcast(&s->to_tell);
	le_wake_net(s);
	/* wait for both threads */
	while (((s->net_started && !s->net_done) || (s->dispatch_started && !s->dispatch_done)) &&
		   le_now_ns() < until)
		le_cond_wait(&s->changed, &s->lock, until);
	/* read whether the threads and the lease have ended */
	net_done = s->net_done;
	dispatch_done = s->dispatch_done;
	revoked |= s->revoked || s->lease_gone || atomic_load(&s->lease) == 0;
	le_unlock(s);
	if (s->net_started)
		(net_done ? join : pthread_detach)(s->net_thread);
	if (s->dispatch_started)
		(dispatch_done ? join : pthread_detach)(s->dispatch_thread);
	le_session_unref(s);
	if (revoked || orphan)
		return LE_OK;
	return le_error_set(error, LE_UNKNOWN, "",
						"the server has not confirmed in time that the lease was revoked: it will expire");
}

le_status
le_close(le_session *session, int wait_ms, le_error *error)
{
	le_error_clear(error);
	if (session == NULL || le_in_child(session))
		return LE_OK;
	if (is_callback(session))
		return le_invalid(error, "le_close in a callback of its own session");
	le_must(session_close(session, false,
						  wait_ms < 0 ? le_add(le_now_ns(), session->call) : le_until(wait_ms), error));
	return le_check_wait(wait_ms, error);
}

void
le_orphan(le_session *session)
{
	if (session != NULL && !le_in_child(session) && !is_callback(session))
		session_close(session, true, le_add(le_now_ns(), session->call), NULL);
}

le_status
le_reopen(le_session *session, le_error *error)
{
	le_session *s = session;
	int64_t until;
	le_status status;
	bool again = true;

	le_must(le_check_session(s, error));
	until = le_add(le_now_ns(), le_add(s->connect, s->call));
	le_lock(s);
	s->refs++; /* keep the session: le_close() does not wait for this call */
	for (status = LE_OK; again && status == LE_OK && atomic_load(&s->state) == LE_ENDED;)
	{
		if (!s->closing && s->progress != 0 && le_now_ns() - atomic_load(&s->progress_at) >= s->progress)
			status = le_error_set(error, LE_UNAVAILABLE, "", "the application has not reported progress");
		else
			status = le_take(s, until, error);
		if (status != LE_OK)
			break;
		le_unlock(s);
		again = !le_grant(s);
		le_lock(s);
		/* if the connection broke, retry, because the session thread reconnects */
		if (again && s->net.conn != NULL)
			status = le_error_copy(error, &s->net.error);
		le_give(s);
	}
	le_unlock(s);
	le_session_unref(s);
	return status;
}

/* --- functions that do no I/O --- */

le_state
le_get_state(const le_session *session)
{
	int state = atomic_load(&session->state);

	if (state != LE_ENDED && (le_now_ns() >= atomic_load(&session->deadline) || le_in_child(session)))
		return LE_ENDED;
	return (le_state) state;
}

int64_t
le_lease(const le_session *session)
{
	return atomic_load(&session->lease);
}

int64_t
le_deadline(const le_session *session)
{
	return atomic_load(&session->deadline) / LE_MS_NS;
}

int64_t
le_time_left(const le_session *session)
{
	int64_t deadline = atomic_load(&session->deadline);

	if (atomic_load(&session->state) == LE_ENDED || le_in_child(session))
		return 0;
	return (deadline - le_now_ns()) / LE_MS_NS;
}

void
le_progress(le_session *session)
{
	if (le_in_child(session))
		return;
	atomic_store(&session->progress_at, le_now_ns());
	if (!atomic_load(&session->withheld))
		return;
	le_lock(session);
	le_wake_net(session);
	le_unlock(session);
}

/* --- events --- */

int
le_fd(const le_session *session)
{
	return session->wake_user[0];
}

int
le_next_event(le_session *session, le_event *event)
{
	int found = 1;

	*event = (le_event){0};
	if (le_in_child(session))
		return 0;
	le_lock(session);
	event->state = (le_state) atomic_load(&session->state);
	event->deadline = le_deadline(session);
	/* events of the state have priority, then those of holds, then renewals */
	if (session->state_event)
	{
		session->state_event = false;
		event->kind = LE_EVENT_STATE;
	}
	else if (!le_link_empty(&session->events))
	{
		event->kind = LE_EVENT_HOLD;
		event->hold = le_container(session->events.next, le_hold, event_link);
		le_link_remove(&event->hold->event_link);
	}
	else if (session->renewed_event)
	{
		session->renewed_event = false;
		event->kind = LE_EVENT_RENEWED;
	}
	else
	{
		/* no event is left, so make the descriptor unreadable */
		found = 0;
		session->user_woken = false;
		le_drain(session->wake_user);
	}
	le_unlock(session);
	return found;
}
