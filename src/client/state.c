/*
 * state.c
 *		Changes the states of a session and of its holds, and reports them to
 *		the application.  The caller of each function holds the session's mutex.
 */
#include "state.h"

#include <stdarg.h>
#include <stdio.h>

#include "due.h"
#include "error.h"
#include "objects.h"

/* Longest pause between attempts to connect while the session has no lease, in ns */
#define RETRY_ENDED (5 * LE_SEC_NS)

/* --- state of a session --- */

/* Makes the descriptor of le_fd() readable for the application. */
static void
wake_user(le_session *s)
{
	if (!s->user_woken)
		le_wake(s->wake_user);
	s->user_woken = true;
}

void
le_set_state(le_session *s, le_state state)
{
	if (atomic_load(&s->state) == (int) state)
		return;
	atomic_store(&s->state, state);
	if (s->nstates < LE_STATES_MAX)
		s->nstates++;
	else if (s->states[LE_STATES_MAX - 1] == LE_ENDED) /* full: keep LE_ENDED before the new state */
		s->states[LE_STATES_MAX - 2] = LE_ENDED;
	s->states[s->nstates - 1] = state;
	s->state_event = true;
	wake_user(s);
	pthread_cond_signal(&s->to_tell);
}

/*
 * Ends the holds before the session, so that the deadline of a later lease cannot make le_valid() true
 * for an old hold.  Grants and places on the server end with the lease.  While the session is being
 * closed, releases are still sent, even those of requests that have no reply yet.
 */
void
le_end(le_session *s, const char *sqlstate, const char *format, ...)
{
	char text[300];
	va_list args;

	if (atomic_load(&s->state) == LE_ENDED)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	/* store the reason why the session has ended */
	le_error_set(&s->error, LE_LOST, sqlstate, "%s", text);
	for (int i = 0; i < LE_LISTS; i++)
	{
		le_foreach (le_hold, hold, &s->lists[i])
		{
			bool was_over = atomic_load(&hold->state) == LE_HOLD_OVER;

			hold->refs++;
			/* report the hold as lost; if its release is pending, set the result of the release */
			if (!was_over)
				le_hold_over(hold, &s->error);
			else if (!s->closing && hold->error.status == LE_OK && (hold->given > 0 || hold->again))
				le_error_set(&hold->error, LE_UNKNOWN, "", "the answer was lost");
			else if (!s->closing && hold->error.status == LE_OK)
				le_error_set(&hold->error, LE_LOST, "LE001", "it had been lost before it was released");
			/* drop the hold, unless a release may still have to be sent */
			if (!s->closing || (!was_over && hold->phase != LE_PHASE_SENT))
				le_hold_done(hold);
			le_hold_unref(hold);
		}
	}
	le_set_state(s, LE_ENDED);
	le_wake_net(s);
}

bool
le_check_deadline(le_session *s)
{
	bool troubled = s->trouble.message[0] != '\0';

	if (!le_is_alive(s) || le_now_ns() < atomic_load(&s->deadline))
		return false;
	if (atomic_load(&s->withheld))
		le_end(s, "", "the lease has ended: the application has not reported progress");
	else
		le_end(s, "", "the lease could not be renewed in time%s%s", troubled ? ": " : "", s->trouble.message);
	return true;
}

static int64_t
longest_pause(const le_session *s)
{
	return le_clamp(s->ttl / 20, LE_RETRY_FIRST, LE_SEC_NS);
}

/*
 * Applies the validity that the server has returned for a renewal.  The validity is normally the TTL.  A
 * shorter validity never moves the deadline back, but makes the next renewal due sooner.  A reply that
 * arrives after the deadline is ignored, even if the server has renewed the lease.
 */
void
le_renewed(le_session *s, int64_t sent_at, int64_t validity)
{
	int64_t deadline;

	if (le_check_deadline(s) || atomic_load(&s->state) == LE_ENDED)
		return;
	/* limit the validity to the TTL, because the margin and the pauses between retries depend on the TTL */
	validity = le_clamp(validity, 0, s->ttl);
	deadline = le_add(sent_at, validity - s->margin);
	if (deadline > atomic_load(&s->deadline))
		atomic_store(&s->deadline, deadline);
	s->renew_at = le_add(sent_at, le_jitter(le_clamp(longest_pause(s), validity / 3, s->ttl / 3)));
	s->failures = 0;
	le_set_state(s, LE_CONNECTED);
	s->renewed_event = true;
	s->renewed_told = s->options.on_renewed == NULL;
	wake_user(s);
	pthread_cond_signal(&s->to_tell);
}

int64_t
le_failed(le_session *s, const le_error *why)
{
	int64_t delay = LE_RETRY_FIRST << (s->failures < 10 ? s->failures : 10);

	le_error_copy(&s->trouble, why);
	if (le_is_alive(s))
		le_set_state(s, LE_SUSPENDED);
	le_sooner(&delay, atomic_load(&s->state) == LE_ENDED ? RETRY_ENDED : longest_pause(s));
	s->failures++;
	return le_add(le_now_ns(), le_jitter(delay));
}

/* --- state of a hold --- */

void
le_hold_changed(le_hold *hold)
{
	hold->session->woken += hold->waiters > 0;
	pthread_cond_broadcast(&hold->changed);
}

/* Ends the wait or the ownership of a hold: sets its state, queues an event and wakes up waiting threads. */
static void
leave(le_hold *hold, le_hold_state state)
{
	le_session *s = hold->session;

	if (hold->phase == LE_PHASE_QUEUED && atomic_load(&hold->state) == LE_HOLD_WAITING)
	{
		s->waiting--;
		s->waited_at = le_now_ns();
	}
	atomic_store(&hold->state, state);
	if (!hold->dropped)
	{
		le_link_append(&s->events, &hold->event_link);
		wake_user(s);
	}
	le_hold_changed(hold);
}

/*
 * Queues the release of the hold's grant or place on the server.  If its request has no reply yet, that
 * reply queues the release.
 */
void
le_hold_over(le_hold *hold, const le_error *error)
{
	leave(hold, LE_HOLD_OVER);
	le_error_copy(&hold->error, error);
	if (hold->phase == LE_PHASE_NEW)
		le_hold_done(hold);
	else if (hold->phase == LE_PHASE_QUEUED || hold->phase == LE_PHASE_GRANTED)
		le_link_append(&hold->session->lists[LE_GIVES], &hold->link);
}

void
le_hold_held(le_hold *hold)
{
	if (le_check_deadline(hold->session))
		return;
	atomic_store(&hold->token, hold->server_token);
	leave(hold, LE_HOLD_HELD);
	hold->phase = LE_PHASE_GRANTED;
}

void
le_hold_done(le_hold *hold)
{
	if (hold->phase == LE_PHASE_DONE)
		return;
	hold->phase = LE_PHASE_DONE;
	le_link_remove(&hold->link);
	hold->release_done = true;
	le_hold_changed(hold);
	le_hold_unref(hold);
}

/*
 * The time limit of a wait applies to the time in the queue.  The first reply may take call_ms in any
 * case, because otherwise a wait that is shorter than a round trip could never acquire a free lock.
 */
int64_t
le_hold_ends(const le_hold *hold)
{
	bool answered = hold->phase != LE_PHASE_NEW && hold->phase != LE_PHASE_SENT;

	return answered || hold->until > hold->answer_by ? hold->until : hold->answer_by;
}

void
le_hold_check_until(le_hold *hold, int64_t now)
{
	const char *trouble = hold->session->trouble.message;
	le_error error;

	if (atomic_load(&hold->state) != LE_HOLD_WAITING || now < le_hold_ends(hold))
		return;
	if (!hold->try)
		le_error_set(&error, LE_TIMEOUT, "", "not granted in time");
	else
		le_error_set(&error, LE_UNAVAILABLE, "", "the server has not answered in time%s%s",
					 trouble[0] != '\0' ? ": " : "", trouble);
	if (hold->kind == LE_KIND_PROCLAIM && hold->phase == LE_PHASE_SENT)
		error.status = LE_UNKNOWN;
	le_hold_over(hold, &error);
}
