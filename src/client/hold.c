/*
 * hold.c
 *		Holds, on the application's side: asked for, waited for, given back.
 */
#include "internal.h"

#include <stdlib.h>

/* --- asking --- */

void
le_hold_free(le_hold *hold)
{
	for (int i = 0; i < hold->n && hold->names != NULL; i++)
		free(hold->names[i]);
	free(hold->names);
	free(hold->candidate);
	pthread_cond_destroy(&hold->changed);
	free(hold);
}

le_hold *
le_hold_alloc(le_session *s, le_kind kind, const char *const *names, int n, const char *candidate)
{
	le_hold *hold = calloc(1, sizeof(*hold));
	bool ok;

	if (hold == NULL || le_cond_init(&hold->changed) != 0)
	{
		free(hold);
		return NULL;
	}
	hold->session = s;
	hold->kind = kind;
	hold->n = hold->left = n;
	hold->names = calloc((size_t) n, sizeof(char *));
	hold->candidate = candidate != NULL ? le_copy(candidate) : NULL;
	ok = hold->names != NULL && (candidate == NULL || hold->candidate != NULL);
	for (int i = 0; i < n && ok; i++)
		ok = (hold->names[i] = le_copy(names[i])) != NULL;
	if (!ok)
	{
		le_hold_free(hold);
		return NULL;
	}
	le_link_init(&hold->link);
	le_link_init(&hold->event_link);
	atomic_init(&hold->state, LE_HOLD_WAITING);
	hold->until = LE_NEVER;
	return hold;
}

/* until, in ns: one that has passed takes no queue place.  now: makes the turn as well, if it can. */
static le_status
ask(le_hold *hold, int64_t until, bool now, le_error *error)
{
	le_session *s;

	if (hold == NULL)
		return le_no_memory(error);
	s = hold->session;
	hold->until = until;
	hold->answer_by = le_add(le_now_ns(), s->call);
	hold->try = until <= le_now_ns();
	le_lock(s);
	le_check_deadline(s);
	if (s->closing || atomic_load(&s->state) == LE_ENDED)
	{
		le_error_copy(error, &s->error);
		le_unlock(s);
		le_hold_free(hold);
		return LE_LOST;
	}
	hold->refs = 2; /* the application's, and the session's until it is done */
	s->refs++;
	hold->asked = ++s->requests;
	le_link_append(&s->asks, &hold->link);
	le_sooner(&s->next_until, le_hold_ends(hold));
	if (now)
		le_turn_join(s);
	else
		le_wake_net(s);
	le_unlock(s);
	return LE_OK;
}

/* Waits until a hold is granted or over, and gives it back unless it was granted. */
static le_status
finish(le_hold *own, le_hold **hold, le_error *error)
{
	le_status status = le_hold_wait(own, LE_NEVER, error);

	*hold = status == LE_OK ? own : NULL;
	if (status != LE_OK)
		le_drop(own);
	return status;
}

/* The hold that is asked for; *until: its own limit, if it has one. */
static le_status
new_lock(le_session *s, const char *const *names, int n, const le_how *given, int64_t *until, le_hold **hold,
		 le_error *error)
{
	le_how how = {.size = sizeof(how)};

	le_must(le_check_names(names, n, error));
	if (given != NULL)
		le_must(le_struct_read(&how, sizeof(how), given, "le_how", error));
	le_must(le_check_how(&how, n, error));
	le_must(le_check_session(s, error));
	*hold = le_hold_alloc(s, how.permits > 0 ? LE_KIND_PERMIT : LE_KIND_LOCK, names, n, NULL);
	if (*hold == NULL)
		return le_no_memory(error);
	(*hold)->shared = how.shared;
	(*hold)->permits = how.permits;
	if (how.until != 0)
		le_sooner(until, le_until_point(how.until));
	return LE_OK;
}

le_status
le_enqueue(le_session *session, const char *const *names, int n, const le_how *how, le_hold **hold,
		   le_error *error)
{
	int64_t until = LE_NEVER;
	le_hold *own;

	le_must(le_check_pointer(hold, "hold", error));
	*hold = NULL;
	le_must(new_lock(session, names, n, how, &until, &own, error));
	le_must(ask(own, until, false, error));
	*hold = own;
	return LE_OK;
}

le_status
le_acquire(le_session *session, const char *const *names, int n, const le_how *how, int wait_ms,
		   le_hold **hold, le_error *error)
{
	int64_t until = le_until(wait_ms);
	le_hold *own;

	le_must(le_check_pointer(hold, "hold", error));
	*hold = NULL;
	le_must(le_check_wait(wait_ms, error));
	le_must(new_lock(session, names, n, how, &until, &own, error));
	le_must(ask(own, until, true, error));
	return finish(own, hold, error);
}

le_status
le_enqueue_candidate(le_session *session, const char *election, const char *candidate, le_hold **hold,
					 le_error *error)
{
	le_hold *own;

	le_must(le_check_pointer(hold, "hold", error));
	*hold = NULL;
	le_must(le_check_candidacy(election, candidate, error));
	le_must(le_check_session(session, error));
	own = le_hold_alloc(session, LE_KIND_TERM, &election, 1, candidate);
	le_must(ask(own, LE_NEVER, false, error));
	*hold = own;
	return LE_OK;
}

le_status
le_campaign(le_session *session, const char *election, const char *candidate, int wait_ms, le_hold **hold,
			le_error *error)
{
	int64_t until = le_until(wait_ms);
	le_hold *own;

	le_must(le_check_pointer(hold, "hold", error));
	*hold = NULL;
	le_must(le_check_candidacy(election, candidate, error));
	le_must(le_check_wait(wait_ms, error));
	le_must(le_check_session(session, error));
	own = le_hold_alloc(session, LE_KIND_TERM, &election, 1, candidate);
	le_must(ask(own, until, true, error));
	return finish(own, hold, error);
}

le_status
le_proclaim(le_hold *hold, const char *candidate, le_error *error)
{
	le_hold *own;
	le_status status;

	le_must(le_check_hold(hold, error));
	if (hold->kind != LE_KIND_TERM)
		return le_error_set(error, LE_INVALID, "", "hold is a lock: a term is allowed");
	le_must(le_check_text("candidate", candidate, LE_CANDIDATE_MAX, error));
	if (!le_valid(hold))
		return le_error_set(error, LE_LOST, "LE001", "this term does not lead");
	own = le_hold_alloc(hold->session, LE_KIND_PROCLAIM, (const char *const *) hold->names, 1, candidate);
	if (own != NULL)
		own->server_token = le_token(hold);
	le_must(ask(own, 0, true, error));
	status = le_hold_wait(own, LE_NEVER, error);
	le_drop(own);
	return status;
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
		hold->waiters++;
		le_cond_wait(&hold->changed, &s->lock, until < ends ? until : ends);
		hold->waiters--;
	}
	if (atomic_load(&hold->state) == LE_HOLD_OVER)
		status = le_error_copy(error, &hold->error);
	else if (atomic_load(&hold->state) == LE_HOLD_WAITING)
		status = le_error_set(error, LE_WAITING, "", "not granted yet");
	if (status != LE_OK)
		le_wake_net(s); /* perhaps a place is to be given back */
	le_unlock(s);
	return status;
}

le_status
le_await(le_hold *hold, int wait_ms, le_error *error)
{
	le_must(le_check_hold(hold, error));
	le_must(le_check_wait(wait_ms, error));
	return le_hold_wait(hold, le_until(wait_ms), error);
}

le_status
le_await_until(le_hold *hold, int64_t until, le_error *error)
{
	le_must(le_check_hold(hold, error));
	return le_hold_wait(hold, le_until_point(until), error);
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
	le_wake_net(hold->session);
	le_unlock(hold->session);
}

/* --- giving back --- */

/* Locked.  Waits until the server has answered. */
static le_status
wait_released(le_hold *hold, le_error *error)
{
	le_session *s = hold->session;
	int64_t until = le_add(le_now_ns(), s->call);

	hold->waiters++;
	while (!hold->release_done && le_now_ns() < until)
		le_cond_wait(&hold->changed, &s->lock, until);
	hold->waiters--;
	if (!hold->release_done)
		return le_error_set(error, LE_UNKNOWN, "", "%s; the session goes on trying",
							hold->given > 0 || hold->again ? "the server has not answered"
														   : "there is no connection to the server");
	if (hold->release_status == LE_OK)
		return LE_OK;
	if (hold->release_status == LE_LOST)
		return le_error_set(error, LE_LOST, "LE001", "it had been lost before it was released");
	if (hold->error.message[0] == '\0')
		return le_error_set(error, hold->release_status, "", "the answer was lost");
	return le_error_set(error, hold->release_status, hold->error.sqlstate, "%.400s%s", hold->error.message,
						hold->release_status == LE_UNKNOWN ? "; the session goes on trying" : "");
}

static le_status
give_back(le_hold *hold, int hold_for_ms, bool wait, le_error *error)
{
	le_session *s = hold->session;
	le_status status = LE_OK;
	le_error over;
	bool held;

	le_error_set(&over, LE_CANCELED, "", "it was released");
	le_lock(s);
	s->refs++;
	le_check_deadline(s);
	hold->dropped = true;
	le_link_remove(&hold->event_link);
	held = atomic_load(&hold->state) == LE_HOLD_HELD;
	if (atomic_load(&hold->state) != LE_HOLD_OVER)
		le_hold_over(hold, &over);
	else if (hold->error.status == LE_LOST && atomic_load(&hold->token) != 0)
	{
		/* one that was evicted is given back by the application alone */
		status = le_error_copy(error, &hold->error);
		if (hold->phase == LE_PHASE_GRANTED)
			le_link_append(&s->gives, &hold->link);
	}
	if (held)
	{
		hold->hold_for_ms = hold_for_ms;
		le_error_clear(&hold->error);
	}
	if (wait)
		le_turn_join(s);
	else
		le_wake_net(s);
	if (held && wait)
		status = wait_released(hold, error);
	le_hold_unref(hold);
	le_unlock(s);
	le_session_unref(s);
	return status;
}

le_status
le_release(le_hold *hold, int hold_for_ms, le_error *error)
{
	bool allowed;

	le_error_clear(error);
	if (hold == NULL || le_in_child(hold->session))
		return LE_OK;
	allowed = hold_for_ms == 0 || (hold_for_ms > 0 && hold->kind != LE_KIND_TERM);
	le_must(give_back(hold, allowed ? hold_for_ms : 0, true, error));
	if (!allowed)
		return le_error_set(error, LE_INVALID, "", "it is released without hold_for_ms: %d%s", hold_for_ms,
							hold_for_ms < 0 ? " is negative" : " is not for a term");
	return LE_OK;
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

	if (atomic_load(&hold->state) != LE_HOLD_HELD || le_in_child(hold->session))
		return 0;
	return le_ms_up(deadline - le_now_ns());
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
