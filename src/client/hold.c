/*
 * hold.c
 *		Holds, on the application's side: asked for, waited for, given back.
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

/* --- arguments --- */

/* how: what the caller gives, or NULL, becomes one of our size. */
static le_status
check_asked(const char *const *names, int n, const le_how *given, le_how *how, le_error *error)
{
	le_status status = le_check_names(names, n, error);

	*how = (le_how){.size = sizeof(*how)};
	if (status == LE_OK && given != NULL)
		status = le_struct_read(how, sizeof(*how), given, "le_how", error);
	if (status != LE_OK)
		return status;
	return le_check_how(how, n, error);
}

/* The name, or the array of names. */
void
le_hold_names(const le_hold *hold, le_text *text)
{
	if (hold->kind != LE_KIND_LOCKS)
	{
		le_text_add(text, "%s", hold->names[0]);
		return;
	}
	for (int i = 0; i < hold->n; i++)
	{
		le_text_add(text, i == 0 ? "{" : ",");
		le_text_add_element(text, hold->names[i]);
	}
	le_text_add(text, "}");
}

/* --- the life of a hold --- */

static void
hold_free(le_hold *hold)
{
	for (int i = 0; i < hold->n && hold->names != NULL; i++)
		free(hold->names[i]);
	free(hold->names);
	free(hold->candidate);
	free(hold);
}

/* The caller has a reference of the session. */
void
le_hold_unref(le_hold *hold)
{
	le_session *s = hold->session;

	if (--hold->refs > 0)
		return;
	le_link_remove(&hold->event_link);
	pthread_cond_destroy(&hold->changed);
	hold_free(hold);
	s->refs--;
}

static le_hold *
hold_alloc(le_hold_kind kind, const char *const *names, int n, const char *candidate)
{
	le_hold *hold = calloc(1, sizeof(*hold));
	bool ok;

	if (hold == NULL)
		return NULL;
	hold->kind = kind;
	hold->n = n;
	hold->names = calloc((size_t) n, sizeof(char *));
	hold->candidate = candidate != NULL ? le_copy(candidate) : NULL;
	ok = hold->names != NULL && (candidate == NULL || hold->candidate != NULL);
	for (int i = 0; i < n && ok; i++)
	{
		hold->names[i] = le_copy(names[i]);
		ok = hold->names[i] != NULL;
	}
	if (!ok || le_cond_init(&hold->changed) != 0)
	{
		hold_free(hold);
		return NULL;
	}
	le_link_init(&hold->link);
	le_link_init(&hold->event_link);
	atomic_init(&hold->state, LE_HOLD_WAITING);
	hold->until = LE_NEVER;
	return hold;
}

/* Has the server said that the hold is granted, or has a place? */
static bool
is_answered(const le_hold *hold)
{
	return hold->phase != LE_PHASE_NEW && hold->phase != LE_PHASE_SENT;
}

/*
 * The limit of a wait bounds how long it stands in the queue.  The first answer
 * may take as long as that of any statement, or a wait that is shorter than a
 * round trip could never be granted a free lock.
 */
int64_t
le_hold_ends(const le_hold *hold)
{
	return is_answered(hold) || hold->until > hold->answer_by ? hold->until : hold->answer_by;
}

/* The network thread ends the wait when it is to end. */
static void
watch_limit(le_hold *hold)
{
	le_session *s = hold->session;

	if (le_hold_ends(hold) < s->next_until)
		s->next_until = le_hold_ends(hold);
}

le_status
le_hold_new(le_session *s, le_hold_kind kind, const char *const *names, int n, const le_how *how,
			const char *candidate, int64_t until, le_hold **result, le_error *error)
{
	le_hold *hold;
	le_status status = le_check_session(s, error);

	*result = NULL;
	if (status != LE_OK)
		return status;
	hold = hold_alloc(kind, names, n, candidate);
	if (hold == NULL)
		return le_error_set(error, LE_NO_MEMORY, "", "out of memory");
	hold->session = s;
	hold->shared = how != NULL && how->shared;
	hold->permits = how != NULL ? how->permits : 0;
	hold->until = until;
	hold->answer_by = le_add(le_now_ns(), s->call);
	hold->try = until <= le_now_ns();
	le_lock(s);
	le_check_deadline(s);
	if (s->closing || atomic_load(&s->state) == LE_ENDED)
	{
		le_error_copy(error, &s->error);
		le_unlock(s);
		pthread_cond_destroy(&hold->changed);
		hold_free(hold);
		return LE_LOST;
	}
	hold->refs = 2; /* the application's, and the session's until it is done */
	s->refs++;
	le_link_append(&s->todo, &hold->link);
	watch_limit(hold);
	le_unlock(s);
	le_wake_net(s);
	*result = hold;
	return LE_OK;
}

static void
event(le_hold *hold)
{
	le_session *s = hold->session;

	if (!hold->dropped)
	{
		le_link_append(&s->events, &hold->event_link);
		le_wake_user(s);
	}
	pthread_cond_broadcast(&hold->changed);
}

static void
leave_channel(le_hold *hold)
{
	if (hold->channel != NULL)
		le_channel_put(hold->channel);
	hold->channel = NULL;
}

/*
 * What the server has of it is given back: by the network thread, before all
 * that is to be asked for.  If the answer is still on its way, when it is here.
 */
void
le_hold_over(le_hold *hold, const le_error *error)
{
	le_session *s = hold->session;

	atomic_store(&hold->state, LE_HOLD_OVER);
	le_error_copy(&hold->error, error);
	leave_channel(hold);
	event(hold);
	if (hold->phase == LE_PHASE_NEW)
		le_hold_done(hold);
	else if (hold->phase == LE_PHASE_QUEUED || hold->phase == LE_PHASE_GRANTED)
	{
		le_link_prepend(&s->todo, &hold->link);
		le_wake_net(s);
	}
}

/* Ends a wait whose own limit has passed. */
void
le_hold_check_until(le_hold *hold, int64_t now)
{
	const le_error *trouble = &hold->session->trouble;
	le_error error;

	if (atomic_load(&hold->state) != LE_HOLD_WAITING || now < le_hold_ends(hold))
		return;
	if (!hold->try)
		le_error_set(&error, LE_TIMEOUT, "", "not granted in time");
	else
		le_error_set(&error, LE_UNAVAILABLE, "", "the server has not answered in time%s%s",
					 trouble->message[0] != '\0' ? ": " : "", trouble->message);
	le_hold_over(hold, &error);
}

/* The first answer is that it waits, perhaps for longer than the caller wants to. */
void
le_hold_answered(le_hold *hold)
{
	watch_limit(hold);
	le_hold_check_until(hold, le_now_ns());
}

void
le_hold_held(le_hold *hold)
{
	le_session *s = hold->session;

	if (le_check_deadline(s))
		return;
	hold->phase = LE_PHASE_GRANTED;
	atomic_store(&hold->token, hold->server_token);
	atomic_store(&hold->state, LE_HOLD_HELD);
	leave_channel(hold);
	le_link_append(&s->granted, &hold->link);
	event(hold);
}

void
le_hold_done(le_hold *hold)
{
	if (hold->phase == LE_PHASE_DONE)
		return;
	hold->phase = LE_PHASE_DONE;
	le_link_remove(&hold->link);
	leave_channel(hold);
	hold->release_done = true;
	pthread_cond_broadcast(&hold->changed);
	le_hold_unref(hold);
}

/* --- waiting --- */

le_status
le_hold_wait(le_hold *hold, int64_t until, le_error *error)
{
	le_session *s = hold->session;
	le_status status = LE_OK;
	int64_t ends;

	le_lock(s);
	for (;;)
	{
		le_check_deadline(s);
		le_hold_check_until(hold, le_now_ns());
		if (atomic_load(&hold->state) != LE_HOLD_WAITING || le_now_ns() >= until)
			break;
		ends = le_hold_ends(hold);
		le_cond_wait(&hold->changed, &s->lock, until < ends ? until : ends);
	}
	if (atomic_load(&hold->state) == LE_HOLD_OVER)
		status = le_error_copy(error, &hold->error);
	else if (atomic_load(&hold->state) == LE_HOLD_WAITING)
		status = le_error_set(error, LE_WAITING, "", "not granted yet");
	le_unlock(s);
	return status;
}

le_status
le_await(le_hold *hold, int wait_ms, le_error *error)
{
	le_status status;

	le_error_clear(error);
	status = le_check_hold(hold, error);
	if (status == LE_OK)
		status = le_check_wait(wait_ms, error);
	return status == LE_OK ? le_hold_wait(hold, le_until(wait_ms), error) : status;
}

le_status
le_await_until(le_hold *hold, int64_t until, le_error *error)
{
	le_status status;

	le_error_clear(error);
	status = le_check_hold(hold, error);
	return status == LE_OK ? le_hold_wait(hold, le_until_point(until), error) : status;
}

void
le_cancel(le_hold *hold)
{
	le_error error;

	if (hold == NULL || le_in_child(hold->session))
		return;
	le_error_set(&error, LE_CANCELED, "", "the wait was canceled");
	le_lock(hold->session);
	if (atomic_load(&hold->state) == LE_HOLD_WAITING)
		le_hold_over(hold, &error);
	le_unlock(hold->session);
}

/* Ends the call that made a hold: waits for it, and gives it back unless it was granted. */
le_status
le_hold_finish(le_hold *own, le_hold **hold, le_error *error)
{
	le_status status = le_hold_wait(own, LE_NEVER, error);

	*hold = status == LE_OK ? own : NULL;
	if (status != LE_OK)
		le_drop(own);
	return status;
}

/* --- asking --- */

static le_hold_kind
kind_of(const le_how *how, int n)
{
	if (how->permits > 0)
		return LE_KIND_PERMIT;
	return n > 1 ? LE_KIND_LOCKS : LE_KIND_LOCK;
}

le_status
le_enqueue(le_session *session, const char *const *names, int n, const le_how *how, le_hold **hold,
		   le_error *error)
{
	le_how own;
	le_status status;

	le_error_clear(error);
	status = le_check_pointer(hold, "hold", error);
	if (status != LE_OK)
		return status;
	*hold = NULL;
	status = check_asked(names, n, how, &own, error);
	if (status != LE_OK)
		return status;
	if (own.until == 0)
		return le_hold_new(session, kind_of(&own, n), names, n, &own, NULL, LE_NEVER, hold, error);
	return le_hold_new(session, kind_of(&own, n), names, n, &own, NULL, le_until_point(own.until), hold,
					   error);
}

le_status
le_acquire(le_session *session, const char *const *names, int n, const le_how *how, int wait_ms,
		   le_hold **hold, le_error *error)
{
	int64_t until = le_until(wait_ms);
	le_how now;
	le_status status;
	le_hold *own;

	le_error_clear(error);
	status = le_check_pointer(hold, "hold", error);
	if (status != LE_OK)
		return status;
	*hold = NULL;
	status = check_asked(names, n, how, &now, error);
	if (status == LE_OK)
		status = le_check_wait(wait_ms, error);
	if (status != LE_OK)
		return status;
	if (now.until != 0 && le_until_point(now.until) < until)
		until = le_until_point(now.until);
	status = le_hold_new(session, kind_of(&now, n), names, n, &now, NULL, until, &own, error);
	return status == LE_OK ? le_hold_finish(own, hold, error) : status;
}

/* --- giving back --- */

/* Locked.  Waits until the server has answered. */
static le_status
wait_released(le_hold *hold, le_error *error)
{
	le_session *s = hold->session;
	int64_t until = le_add(le_now_ns(), s->call);
	bool sent;

	while (!hold->release_done && le_now_ns() < until)
		le_cond_wait(&hold->changed, &s->lock, until);
	sent = hold->releases > 0;
	if (!hold->release_done)
		return le_error_set(error, LE_UNKNOWN, "", "%s; the session goes on trying",
							sent ? "the server has not answered" : "there is no connection to the server");
	if (hold->release_status == LE_OK)
		return LE_OK;
	if (hold->release_status == LE_LOST)
		return le_error_set(error, LE_LOST, "LE001", "it had been lost before it was released");
	if (hold->release_status == LE_UNKNOWN && hold->error.message[0] != '\0')
		return le_error_set(error, LE_UNKNOWN, hold->error.sqlstate, "%.400s; the session goes on trying",
							hold->error.message);
	return le_error_set(error, hold->release_status, hold->error.sqlstate, "%s",
						hold->error.message[0] != '\0' ? hold->error.message : "the answer was lost");
}

static le_status
give_back(le_hold *hold, int hold_for_ms, bool wait, le_error *error)
{
	le_session *s = hold->session;
	le_status status = LE_OK;
	le_error over;

	le_error_set(&over, LE_CANCELED, "", "it was released");
	le_lock(s);
	le_session_ref(s);
	le_check_deadline(s);
	hold->dropped = true;
	le_link_remove(&hold->event_link);
	if (atomic_load(&hold->state) == LE_HOLD_WAITING)
		le_hold_over(hold, &over);
	else if (atomic_load(&hold->state) == LE_HOLD_HELD)
	{
		hold->hold_for_ms = hold_for_ms;
		le_hold_over(hold, &over);
		le_error_clear(&hold->error);
		if (wait)
			status = wait_released(hold, error);
	}
	else if (hold->error.status == LE_LOST && atomic_load(&hold->token) != 0)
		status = le_error_copy(error, &hold->error);
	le_hold_unref(hold);
	le_unlock(s);
	le_session_unref(s);
	return status;
}

le_status
le_release(le_hold *hold, int hold_for_ms, le_error *error)
{
	le_status status;
	bool allowed;

	le_error_clear(error);
	if (hold == NULL || le_in_child(hold->session))
		return LE_OK;
	allowed = hold_for_ms == 0 || (hold_for_ms > 0 && hold->kind != LE_KIND_TERM);
	status = give_back(hold, allowed ? hold_for_ms : 0, true, error);
	if (status == LE_OK && !allowed)
		status = le_error_set(error, LE_INVALID, "", "it is released without hold_for_ms: %d%s", hold_for_ms,
							  hold_for_ms < 0 ? " is negative" : " is not for a term");
	return status;
}

void
le_drop(le_hold *hold)
{
	if (hold != NULL && !le_in_child(hold->session))
		give_back(hold, 0, false, NULL);
}

le_status
le_resign(le_hold *hold, le_error *error)
{
	return le_release(hold, 0, error);
}

/* --- local questions --- */

le_hold_state
le_get_hold_state(const le_hold *hold)
{
	return (le_hold_state) atomic_load(&hold->state);
}

int64_t
le_token(const le_hold *hold)
{
	return atomic_load(&hold->token);
}

int64_t
le_position(const le_hold *hold)
{
	return atomic_load(&hold->position);
}

/*
 * The deadline is read first: if it is of a later lease, the end of the hold,
 * which came before, is seen as well.
 */
int64_t
le_hold_time_left(const le_hold *hold)
{
	int64_t deadline = atomic_load(&hold->session->deadline);
	int64_t left;

	if (atomic_load(&hold->state) != LE_HOLD_HELD || le_in_child(hold->session))
		return 0;
	left = deadline - le_now_ns();
	return left > 0 ? le_ms_up(left) : 0;
}

int
le_valid(const le_hold *hold)
{
	return le_hold_time_left(hold) > 0;
}

void
le_set_user(le_hold *hold, void *user)
{
	atomic_store(&hold->user, user);
}

void *
le_user(const le_hold *hold)
{
	return atomic_load(&hold->user);
}
