/*
 * hold.c
 *		Requests holds, waits for them, and releases them.
 */
#include "hold.h"

#include "arguments.h"
#include "due.h"
#include "error.h"
#include "objects.h"
#include "state.h"
#include "turn.h"

/* --- requests --- */

/*
 * Queues a new hold.  The wait of the hold ends at the time "until" (in ns); if that time has passed,
 * the request takes no queue place.  If now is true, runs a turn if possible.  Returns LE_NO_MEMORY if
 * hold is NULL.  Frees the hold and returns LE_LOST if the session has ended.
 */
static le_status
queue(le_hold *hold, int64_t until, bool now, le_error *error)
{
	le_session *s;
	bool ended;

	if (hold == NULL)
		return le_no_memory(error);
	s = hold->session;
	/* set the time limits; a request that must not wait is sent as try_.. */
	hold->until = until;
	hold->answer_by = le_add(le_now_ns(), s->call);
	hold->try = until <= le_now_ns();
	le_lock(s);
	le_check_deadline(s);
	ended = s->closing || atomic_load(&s->state) == LE_ENDED;
	if (ended)
		le_error_copy(error, &s->error);
	else
	{
		hold->refs = 2; /* one reference of the application, and one of the session until phase DONE */
		s->refs++;
		hold->asked = ++s->requests;
		le_link_append(&s->lists[LE_ASKS], &hold->link);
		le_sooner(&s->next_until, le_hold_ends(hold));
		if (now)
			le_turn_join(s);
		else
			le_wake_net(s);
	}
	le_unlock(s);
	/* if the session has ended, the hold was not queued */
	if (!ended)
		return LE_OK;
	le_hold_free(hold);
	return LE_LOST;
}

/*
 * Requests a lock, a permit or a term.  If now is true, waits for it, and drops the hold if it was not
 * granted.  "candidate" is the public text of a term; NULL for a lock or permit.
 */
static le_status
ask(le_session *s, const char *const *names, int n, const le_how *given, const char *candidate, bool term,
	int wait_ms, bool now, le_hold **hold, le_error *error)
{
	int64_t until = le_until(wait_ms);
	le_how how = {.size = sizeof(how)};
	le_hold *own;
	le_status status;

	/* check the arguments */
	le_must(le_check_pointer(hold, "hold", error));
	*hold = NULL;
	le_must(term ? le_check_candidacy(names[0], candidate, error) : le_check_names(names, n, error));
	if (given != NULL)
		le_must(le_struct_read(&how, sizeof(how), given, "le_how", error));
	le_must(le_check_how(&how, n, error));
	le_must(le_check_wait(wait_ms, error));
	le_must(le_check_session(s, error));
	/* queue the request */
	own = le_hold_alloc(s,
						term              ? LE_KIND_TERM
						: how.permits > 0 ? LE_KIND_PERMIT
										  : LE_KIND_LOCK,
						names, n, candidate);
	if (own != NULL)
	{
		own->shared = how.shared;
		own->permits = how.permits;
	}
	if (how.until != 0)
		le_sooner(&until, le_until_point(how.until));
	le_must(queue(own, until, now, error));
	/* wait, unless the application will do that later */
	status = now ? le_hold_wait(own, LE_NEVER, error) : LE_OK;
	if (status == LE_OK)
		*hold = own;
	else
		le_drop(own);
	return status;
}

le_status
le_enqueue(le_session *session, const char *const *names, int n, const le_how *how, le_hold **hold,
		   le_error *error)
{
	return ask(session, names, n, how, NULL, false, -1, false, hold, error);
}

le_status
le_acquire(le_session *session, const char *const *names, int n, const le_how *how, int wait_ms,
		   le_hold **hold, le_error *error)
{
	return ask(session, names, n, how, NULL, false, wait_ms, true, hold, error);
}

le_status
le_enqueue_candidate(le_session *session, const char *election, const char *candidate, le_hold **hold,
					 le_error *error)
{
	return ask(session, &election, 1, NULL, candidate, true, -1, false, hold, error);
}

le_status
le_campaign(le_session *session, const char *election, const char *candidate, int wait_ms, le_hold **hold,
			le_error *error)
{
	return ask(session, &election, 1, NULL, candidate, true, wait_ms, true, hold, error);
}

le_status
le_proclaim(le_hold *hold, const char *candidate, le_error *error)
{
	le_hold *own;
	le_status status;

	le_must(le_check_hold(hold, error));
	if (hold->kind != LE_KIND_TERM)
		return le_invalid(error, "hold is a lock, but must be a term");
	le_must(le_check_text("candidate", candidate, LE_CANDIDATE_MAX, error));
	if (!le_valid(hold))
		return le_error_set(error, LE_LOST, "LE001", "this term does not lead");
	own = le_hold_alloc(hold->session, LE_KIND_PROCLAIM, (const char *const *) hold->names, 1, candidate);
	if (own != NULL)
		own->server_token = le_token(hold);
	le_must(queue(own, 0, true, error));
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

	le_lock(s);
	for (;;)
	{
		int64_t at = until;

		le_check_deadline(s);
		le_hold_check_until(hold, le_now_ns());
		if (atomic_load(&hold->state) != LE_HOLD_WAITING || le_now_ns() >= until)
			break;
		le_sooner(&at, le_hold_ends(hold));
		hold->waiters++;
		le_cond_wait(&hold->changed, &s->lock, at);
		hold->waiters--;
	}
	if (atomic_load(&hold->state) == LE_HOLD_OVER)
		status = le_error_copy(error, &hold->error);
	else if (atomic_load(&hold->state) == LE_HOLD_WAITING)
		status = le_error_set(error, LE_WAITING, "", "not granted yet");
	le_wake_net(s); /* the session may have a place to release */
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

/* --- release --- */

/*
 * Releases a grant or place, and drops the application's reference to the hold.  If wait is true, waits
 * for the result, at most call_ms.  Returns the same as le_release.
 */
static le_status
give_back(le_hold *hold, int hold_for_ms, bool wait, le_error *error)
{
	static const le_error over = {LE_CANCELED, "", "it was released"};
	le_session *s = hold->session;
	int64_t until = le_add(le_now_ns(), s->call);
	le_status status = LE_OK;
	bool held;

	le_lock(s);
	s->refs++;
	le_check_deadline(s);
	/* set the hold to OVER, and thereby queue its release */
	hold->dropped = true;
	le_link_remove(&hold->event_link);
	held = atomic_load(&hold->state) == LE_HOLD_HELD;
	if (atomic_load(&hold->state) != LE_HOLD_OVER)
		le_hold_over(hold, &over);
	else if (hold->error.status == LE_LOST && atomic_load(&hold->token) != 0)
	{
		status = le_error_copy(error, &hold->error);
		if (hold->phase == LE_PHASE_GRANTED) /* an evicted hold was not released earlier */
			le_link_append(&s->lists[LE_GIVES], &hold->link);
	}
	if (held)
	{
		hold->hold_for_ms = hold_for_ms;
		le_error_clear(&hold->error);
	}
	/* send the release */
	if (wait)
		le_turn_join(s);
	else
		le_wake_net(s);
	/* wait for the result */
	while (held && wait && !hold->release_done && le_now_ns() < until)
	{
		hold->waiters++;
		le_cond_wait(&hold->changed, &s->lock, until);
		hold->waiters--;
	}
	if (held && wait && hold->release_done)
		status = le_error_copy(error, &hold->error);
	else if (held && wait)
		status = le_error_set(error, LE_UNKNOWN, "", "%s; the session keeps trying",
							  hold->given > 0 || hold->again ? "the server has not answered"
															 : "there is no connection to the server");
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
		return le_invalid(error, "it is released without hold_for_ms: %d%s", hold_for_ms,
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

/* --- functions that do no I/O --- */

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
 * Reads the deadline before the state.  If a new lease has changed the deadline, the hold ended before
 * that lease was granted, so the state that is read afterwards is no longer HELD.
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
