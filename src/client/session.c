/*
 * session.c
 *		Sessions: open, close, and what the application may ask of one without
 *		waiting.
 */
#include "internal.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TTL_DEFAULT 30000
#define TTL_MIN     100
#define TTL_MAX     2073600000

static int64_t
clamp(int64_t value, int64_t low, int64_t high)
{
	return value < low ? low : value > high ? high : value;
}

/* --- locks and references --- */

void
le_lock(const le_session *s)
{
	pthread_mutex_lock(&((le_session *) s)->lock);
}

void
le_unlock(const le_session *s)
{
	pthread_mutex_unlock(&((le_session *) s)->lock);
}

static void
close_pipe(int fds[2])
{
	for (int i = 0; i < 2; i++)
	{
		if (fds[i] >= 0)
			close(fds[i]);
	}
}

static void
session_free(le_session *s)
{
	le_net_free(&s->net);
	le_channels_free(s);
	if (s->net.timer >= 0)
		close(s->net.timer);
	close_pipe(s->wake_net);
	close_pipe(s->wake_dispatch);
	close_pipe(s->wake_user);
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
	free(s->fence_schema);
	free(s->conninfo);
	free(s->name);
	free(s);
}

void
le_session_ref(le_session *s)
{
	s->refs++;
}

void
le_session_unref(le_session *s)
{
	int refs;

	le_lock(s);
	refs = --s->refs;
	le_unlock(s);
	if (refs == 0)
		session_free(s);
}

bool
le_in_child(const le_session *s)
{
	return getpid() != s->process;
}

le_status
le_check_session(const le_session *session, le_error *error)
{
	if (session == NULL)
		return le_error_set(error, LE_INVALID, "", "session is NULL");
	if (le_in_child(session))
		return le_error_set(error, LE_INVALID, "", "the session belongs to the parent process");
	return LE_OK;
}

le_status
le_check_hold(const le_hold *hold, le_error *error)
{
	if (hold == NULL)
		return le_error_set(error, LE_INVALID, "", "hold is NULL");
	return le_check_session(hold->session, error);
}

void
le_wake_net(le_session *s)
{
	le_wake(s->wake_net);
}

/* The descriptor of the application is readable from now on. */
void
le_wake_user(le_session *s)
{
	if (!s->user_woken)
	{
		s->user_woken = true;
		le_wake(s->wake_user);
	}
}

/* --- states --- */

void
le_set_state(le_session *s, le_state state)
{
	if (atomic_load(&s->state) == (int) state)
		return;
	atomic_store(&s->state, state);
	if (s->nstates < LE_STATES_MAX)
		s->states[s->nstates++] = state;
	else if (s->states[LE_STATES_MAX - 1] != LE_ENDED)
		s->states[LE_STATES_MAX - 1] = state;
	else
	{
		/* the one before an end gives way; there is never an end right before an end */
		s->states[LE_STATES_MAX - 2] = LE_ENDED;
		s->states[LE_STATES_MAX - 1] = state;
	}
	s->state_event = true;
	le_wake_user(s);
	le_wake(s->wake_dispatch);
	pthread_cond_broadcast(&s->changed);
}

/*
 * What the lease has on the server goes with it.  When the session is closed,
 * what is being given back still is: in shut_down().
 */
static void
holds_over(le_session *s, le_link *list)
{
	for (le_link *link = list->next, *next; link != list; link = next)
	{
		le_hold *hold = le_container(link, le_hold, link);
		bool was_over = atomic_load(&hold->state) == LE_HOLD_OVER;

		next = link->next;
		hold->refs++;
		if (!was_over)
			le_hold_over(hold, &s->error);
		if (!s->closing || (!was_over && hold->phase != LE_PHASE_SENT))
		{
			if (was_over)
				hold->release_status = hold->releases > 0 ? LE_UNKNOWN : LE_LOST;
			le_hold_done(hold);
		}
		le_hold_unref(hold);
	}
}

/* Holds go first: le_valid() of one must not be true by the deadline of a lease that comes later. */
void
le_end(le_session *s, le_status status, const char *sqlstate, const char *format, ...)
{
	char text[300];
	va_list args;

	if (atomic_load(&s->state) == LE_ENDED)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	le_error_set(&s->error, status, sqlstate, "%s", text);
	holds_over(s, &s->todo);
	holds_over(s, &s->sent);
	holds_over(s, &s->queued);
	holds_over(s, &s->granted);
	holds_over(s, &s->refused);
	le_set_state(s, LE_ENDED);
	le_wake_net(s);
}

int64_t
le_retry_most(const le_session *s)
{
	return clamp(s->ttl / 20, LE_RETRY_FIRST, LE_SEC_NS);
}

bool
le_check_deadline(le_session *s)
{
	int state = atomic_load(&s->state);

	if ((state != LE_CONNECTED && state != LE_SUSPENDED) || le_now_ns() < atomic_load(&s->deadline))
		return false;
	if (atomic_load(&s->withheld))
		le_end(s, LE_LOST, "", "the lease has ended: the application has not reported progress");
	else
		le_end(s, LE_LOST, "", "the lease has ended: it could not be renewed in time%s%s%s",
			   s->trouble.message[0] != '\0' ? " (" : "", s->trouble.message,
			   s->trouble.message[0] != '\0' ? ")" : "");
	return true;
}

/*
 * Takes the validity that the server has returned to a renewal.  It is the TTL
 * as a rule.  A shorter one does not shorten the deadline that an earlier
 * renewal gave, and the next renewal is due sooner.
 *
 * A renewal that is answered after the deadline comes too late, whatever the
 * server says.
 */
void
le_renewed(le_session *s, int64_t sent_at, int64_t validity)
{
	int64_t deadline, third;

	if (le_check_deadline(s) || atomic_load(&s->state) == LE_ENDED)
		return;
	/* the margin and the retries are made for the TTL, also where the server has a longer one */
	validity = clamp(validity, 0, s->ttl);
	deadline = le_add(sent_at, validity - s->margin);
	if (deadline > atomic_load(&s->deadline))
		atomic_store(&s->deadline, deadline);
	third = validity / 3 < le_retry_most(s) ? le_retry_most(s) : validity / 3;
	s->renew_at = le_add(sent_at, le_jitter(third < s->ttl / 3 ? third : s->ttl / 3));
	s->renew_failures = 0;
	le_set_state(s, LE_CONNECTED);
	while (!le_link_empty(&s->refused))
		le_link_append(&s->todo, s->refused.next);
	s->renewed_event = true;
	s->renewed_told = false;
	le_wake_user(s);
	if (s->options.on_renewed != NULL)
		le_wake(s->wake_dispatch);
}

/* --- open --- */

/* Words without "=" are the name of a database. */
static le_status
check_conninfo(const char *conninfo, le_error *error)
{
	PQconninfoOption *parsed;
	char *message = NULL;
	le_status status = LE_OK;

	if (conninfo == NULL || (strchr(conninfo, '=') == NULL && strstr(conninfo, "://") == NULL))
		return LE_OK;
	parsed = PQconninfoParse(conninfo, &message);
	if (parsed == NULL && message != NULL)
		status = le_error_unparsed(error, message);
	else if (parsed == NULL)
		status = le_error_set(error, LE_NO_MEMORY, "", "out of memory");
	PQfreemem(message);
	PQconninfoFree(parsed);
	return status;
}

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

	if (o->ttl_ms < TTL_MIN || o->ttl_ms > TTL_MAX)
		return le_error_set(error, LE_INVALID, "", "ttl_ms is %d: 0 (%d) and %d to %d are allowed", o->ttl_ms,
							TTL_DEFAULT, TTL_MIN, TTL_MAX);
	if (o->margin_ms < 0 || o->margin_ms >= o->ttl_ms / 2)
		return le_error_set(
			error, LE_INVALID, "",
			"margin_ms is %d: 0 (a twentieth of ttl_ms) to less than half of ttl_ms, %d, are allowed",
			o->margin_ms, o->ttl_ms / 2);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
	{
		if (others[i].ms < 0)
			return le_error_set(error, LE_INVALID, "", "%s is %d: 0 (the default) and more are allowed",
								others[i].name, others[i].ms);
	}
	if (o->listen < -1 || o->listen > 1)
		return le_error_set(error, LE_INVALID, "", "listen is %d: -1, 0 and 1 are allowed", o->listen);
	if (o->name != NULL && le_check_utf8("name", o->name, error) != LE_OK)
		return LE_INVALID;
	return check_conninfo(o->conninfo, error);
}

static void
set_times(le_session *s)
{
	const le_options *o = &s->options;

	s->ttl = o->ttl_ms * LE_MS_NS;
	s->margin = o->margin_ms != 0 ? o->margin_ms * LE_MS_NS : clamp(s->ttl / 20, 0, LE_SEC_NS);
	s->connect = o->connect_ms != 0 ? o->connect_ms * LE_MS_NS : 5 * LE_SEC_NS;
	s->call = o->call_ms != 0 ? o->call_ms * LE_MS_NS : clamp(s->ttl / 4, 200 * LE_MS_NS, 10 * LE_SEC_NS);
	s->progress = o->progress_ms * LE_MS_NS;
	s->poll = o->poll_ms != 0 ? o->poll_ms * LE_MS_NS : 250 * LE_MS_NS;
}

/* What tells the holds of this session from those of all others. */
static void
make_marker(le_session *s)
{
	uint64_t random;

	if (!le_random(&random, sizeof(random)))
		random = ((uint64_t) le_now_ns() << 20) ^ ((uint64_t) getpid() << 8) ^ (uint64_t) (uintptr_t) s;
	snprintf(s->marker, sizeof(s->marker), "#%016llx", (unsigned long long) random);
}

static void
init_lists(le_session *s)
{
	le_link *lists[] = {&s->todo, &s->sent,      &s->queued,   &s->granted, &s->refused,
						&s->ops,  &s->observers, &s->channels, &s->events};

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
		le_link_init(lists[i]);
}

/* Cut between two characters. */
static char *
copy_name(const char *name)
{
	char *copy = le_copy(name);
	size_t size = LE_OWNER_MAX;

	if (copy == NULL || strlen(copy) <= size)
		return copy;
	while (size > 0 && ((unsigned char) copy[size] & 0xC0) == 0x80)
		size--;
	copy[size] = '\0';
	return copy;
}

/* NULL: out of memory or descriptors. */
static le_session *
session_new(const le_options *options)
{
	le_session *s = calloc(1, sizeof(*s));

	if (s == NULL)
		return NULL;
	for (int i = 0; i < 2; i++)
		s->wake_net[i] = s->wake_dispatch[i] = s->wake_user[i] = -1;
	s->net.timer = -1;
	init_lists(s);
	if (pthread_mutex_init(&s->lock, NULL) != 0)
	{
		free(s);
		return NULL;
	}
	if (le_cond_init(&s->changed) != 0)
	{
		pthread_mutex_destroy(&s->lock);
		free(s);
		return NULL;
	}
	s->refs = 1;
	s->process = getpid();
	s->options = *options;
	s->conninfo = options->conninfo != NULL ? le_copy(options->conninfo) : NULL;
	s->name = copy_name(options->name != NULL ? options->name : "");
	s->options.conninfo = s->options.name = NULL;
	s->next_until = LE_NEVER;
	s->renewed_told = true;
	atomic_store(&s->progress_at, le_now_ns());
	set_times(s);
	make_marker(s);
	s->net.timer = le_timer_new();
	if ((options->conninfo != NULL && s->conninfo == NULL) || s->name == NULL || !le_pipe(s->wake_net) ||
		!le_pipe(s->wake_dispatch) || !le_pipe(s->wake_user))
	{
		session_free(s);
		return NULL;
	}
	return s;
}

/* The threads take no signal of the application's. */
static bool
start_threads(le_session *s)
{
	sigset_t all, old;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	le_lock(s);
	if (pthread_create(&s->net_thread, NULL, le_net_main, s) == 0)
	{
		s->net_started = true;
		s->refs++;
	}
	if (s->net_started && pthread_create(&s->dispatch_thread, NULL, le_dispatch_main, s) == 0)
	{
		s->dispatch_started = true;
		s->refs++;
	}
	le_unlock(s);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return s->dispatch_started;
}

le_status
le_open(const le_options *options, le_session **session, le_error *error)
{
	le_options o = {.size = sizeof(o)};
	le_session *s;
	le_error why;
	le_status status;

	le_error_clear(error);
	status = le_check_pointer(session, "session", error);
	if (status != LE_OK)
		return status;
	*session = NULL;
	status = options != NULL ? le_struct_read(&o, sizeof(o), options, "le_options", error) : LE_OK;
	if (o.ttl_ms == 0)
		o.ttl_ms = TTL_DEFAULT;
	if (status == LE_OK)
		status = check_options(&o, error);
	if (status != LE_OK)
		return status;
	s = session_new(&o);
	if (s == NULL || !start_threads(s))
	{
		if (s != NULL)
			le_close(s, -1, NULL);
		return le_error_set(error, LE_NO_MEMORY, "", "out of memory, threads or descriptors");
	}
	le_lock(s);
	while (!s->opened)
		le_cond_wait(&s->changed, &s->lock, LE_NEVER);
	status = atomic_load(&s->state) == LE_CONNECTED ? LE_OK : s->error.status;
	why = s->error;
	le_unlock(s);
	if (status == LE_OK)
	{
		*session = s;
		return LE_OK;
	}
	le_close(s, -1, NULL);
	return le_error_copy(error, &why);
}

/* --- close --- */

static void
join_or_leave(pthread_t thread, bool started, bool done)
{
	if (!started)
		return;
	if (done)
		pthread_join(thread, NULL);
	else
		pthread_detach(thread);
}

static bool
is_callback(const le_session *s)
{
	return s->dispatch_started && pthread_equal(pthread_self(), s->dispatch_thread);
}

static le_status
session_close(le_session *s, bool orphan, int wait_ms, le_error *error)
{
	int64_t until = wait_ms < 0 ? le_add(le_now_ns(), s->call) : le_until(wait_ms);
	bool net_done, dispatch_done, ended, revoked;

	le_lock(s);
	ended = atomic_load(&s->state) != LE_CONNECTED && atomic_load(&s->state) != LE_SUSPENDED;
	s->closing = true;
	s->orphan = orphan;
	s->close_until = until;
	le_end(s, LE_LOST, "", "the session was closed");
	pthread_cond_broadcast(&s->changed);
	le_wake_net(s);
	le_wake(s->wake_dispatch);
	while ((s->net_started && !s->net_done) || (s->dispatch_started && !s->dispatch_done))
	{
		if (le_now_ns() >= le_add(until, 10 * LE_MS_NS))
			break;
		le_cond_wait(&s->changed, &s->lock, le_add(until, 10 * LE_MS_NS));
	}
	net_done = s->net_done;
	dispatch_done = s->dispatch_done;
	revoked = s->revoked || s->lease_gone || ended || atomic_load(&s->lease) == 0;
	le_unlock(s);
	join_or_leave(s->net_thread, s->net_started, net_done);
	join_or_leave(s->dispatch_thread, s->dispatch_started, dispatch_done);
	le_session_unref(s);
	if (revoked || orphan)
		return LE_OK;
	return le_error_set(error, LE_UNKNOWN, "",
						"the server has not confirmed in time that the lease was revoked: it ends by itself");
}

le_status
le_close(le_session *session, int wait_ms, le_error *error)
{
	le_status status;

	le_error_clear(error);
	if (session == NULL || le_in_child(session))
		return LE_OK;
	if (is_callback(session))
		return le_error_set(error, LE_INVALID, "", "le_close in a callback of its own session");
	status = session_close(session, false, wait_ms, error);
	return status == LE_OK ? le_check_wait(wait_ms, error) : status;
}

void
le_orphan(le_session *session)
{
	if (session != NULL && !le_in_child(session) && !is_callback(session))
		session_close(session, true, -1, NULL);
}

le_status
le_reopen(le_session *session, le_error *error)
{
	le_op *op;

	le_status status;

	le_error_clear(error);
	status = le_check_session(session, error);
	if (status != LE_OK)
		return status;
	if (atomic_load(&session->state) != LE_ENDED)
		return LE_OK;
	op = le_op_new(session, LE_OP_REOPEN, NULL, NULL);
	if (op == NULL)
		return le_error_set(error, LE_NO_MEMORY, "", "out of memory");
	return le_op_run(session, op, le_add(le_now_ns(), le_add(session->connect, session->call)), NULL, error);
}

/* --- local questions --- */

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
	if (atomic_load(&session->withheld))
		le_wake_net(session);
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
		found = 0;
		session->user_woken = false;
		le_drain(session->wake_user);
	}
	le_unlock(session);
	return found;
}
