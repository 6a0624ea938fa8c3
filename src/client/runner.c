/*
 * runner.c
 *		Implements the runner, which campaigns repeatedly in a thread of its own.
 *
 *		follower -> candidate -> leader -> follower ... -> stopping
 *
 * on_elected runs in another thread, so that the runner can report a loss.  The
 * runner continues only after that thread has ended.  So the work of two terms
 * never overlaps, and no term is resigned before its work has ended.
 */
#include <stdlib.h>

#include "arguments.h"
#include "due.h"
#include "error.h"
#include "hold.h"
#include "objects.h"
#include "state.h"
#include "text.h"

#define RETRY_FIRST (100 * LE_MS_NS)
#define RETRY_MOST  (5 * LE_SEC_NS)

/* A runner.  Members that change are protected by the session's mutex. */
struct le_runner
{
	le_session *session;
	pthread_t thread;
	pthread_cond_t changed;
	le_callbacks callbacks;
	char *election;
	char *candidate;
	le_observer *observer;
	le_hold *hold; /* the candidacy or the term; NULL = none */
	bool stopping;
	bool entered, returned; /* on_elected was called for this term; it has returned */
	int answer;             /* result of on_elected; not 0 = stop the runner */
	int failures;
	le_error error; /* the permanent error that has ended the runner */
};

/* --- leading --- */

/* Main function of the thread of one term: calls on_elected, and passes its result to the runner. */
static void *
elected_main(void *arg)
{
	le_runner *r = arg;
	le_session *s = r->session;
	int answer;

	le_lock(s);
	r->entered = true;
	le_unlock(s);
	answer = r->callbacks.on_elected(r->hold, r->callbacks.arg);
	le_lock(s);
	r->answer = answer;
	r->returned = true;
	pthread_cond_broadcast(&r->hold->changed);
	le_unlock(s);
	return NULL;
}

/*
 * Leads until on_elected has returned.  Calls on_lost if the term is lost before that.  Returns false if
 * no thread could be started.  The mutex is held at entry and exit.
 */
static bool
lead(le_runner *r)
{
	le_session *s = r->session;
	bool told = false;
	pthread_t thread;

	/* start the thread of on_elected */
	r->entered = r->returned = false;
	if (!le_start_thread(&thread, elected_main, r))
		return false;
	/* wait until on_elected has returned, and report a loss of the term */
	while (!r->returned)
	{
		int64_t soon = le_add(le_now_ns(), 10 * LE_MS_NS);

		le_check_deadline(s);
		if (!told && r->entered && atomic_load(&r->hold->state) != LE_HOLD_HELD)
		{
			told = true;
			le_unlock(s);
			if (r->callbacks.on_lost != NULL)
				r->callbacks.on_lost(r->hold, r->callbacks.arg);
			le_lock(s);
		}
		else
			le_cond_wait(&r->hold->changed, &s->lock, told || !r->entered ? soon : atomic_load(&s->deadline));
	}
	le_unlock(s);
	pthread_join(thread, NULL);
	le_lock(s);
	return true;
}

/* --- campaigning --- */

/*
 * Runs one candidacy and its term.  Returns LE_OK, or an error after which the caller retries or ends
 * the runner.  Obtains a new lease for the session if the old one was lost.  The caller does not hold
 * the mutex.
 */
static le_status
stand(le_runner *r, le_error *error)
{
	le_session *s = r->session;
	le_hold *hold = NULL;
	le_status status;
	bool lost;
	char *candidate;

	/* enter the election */
	le_lock(s);
	candidate = le_copy(r->candidate);
	le_unlock(s);
	status = candidate == NULL ? le_no_memory(error)
							   : le_enqueue_candidate(s, r->election, candidate, &hold, error);
	free(candidate);
	if (status != LE_OK)
		return status == LE_LOST ? le_reopen(s, error) : status;
	le_lock(s);
	/* wait to be elected */
	r->hold = hold;
	while (!r->stopping && atomic_load(&hold->state) == LE_HOLD_WAITING)
	{
		le_unlock(s);
		le_hold_wait(hold, LE_NEVER, NULL);
		le_lock(s);
	}
	/* Other threads run turns, so the candidacy or the term may have ended since the last wait. */
	le_check_deadline(s);
	if (atomic_load(&hold->state) == LE_HOLD_OVER)
		status = le_error_copy(error, &hold->error);
	else if (!r->stopping)
	{
		r->failures = 0;
		if (!lead(r))
			status = le_no_memory(error);
		r->stopping |= r->answer != 0;
	}
	/* resign, and reopen the session if the lease is lost */
	r->hold = NULL;
	lost = status == LE_LOST && !r->stopping;
	le_unlock(s);
	le_release(hold, 0, NULL);
	return lost ? le_reopen(s, error) : status;
}

/*
 * Main function of the runner's thread: campaigns until the runner is stopped.  After a temporary error,
 * pauses before a retry, each time longer; le_stop() ends the pause.  A permanent error ends the runner.
 */
static void *
runner_main(void *arg)
{
	le_runner *r = arg;
	le_session *s = r->session;

	le_lock(s);
	while (!r->stopping)
	{
		le_error error = {.status = LE_OK};
		le_status status;

		le_unlock(s);
		status = stand(r, &error);
		le_lock(s);
		if (status == LE_OK || r->stopping)
			continue;
		if (s->closing || status == LE_INVALID || status == LE_DENIED ||
			le_error_is(&error, LE_NOT_INSTALLED))
		{
			/* a retry would not help; the last condition means that lock_election is not installed */
			r->error = error;
			r->stopping = true;
		}
		else
		{
			/* pause before the retry */
			int64_t delay = RETRY_FIRST << (r->failures < 8 ? r->failures : 8), until;

			until = le_add(le_now_ns(), le_jitter(delay < RETRY_MOST ? delay : RETRY_MOST));
			r->failures++;
			while (!r->stopping && le_now_ns() < until)
				le_cond_wait(&r->changed, &s->lock, until);
		}
	}
	le_unlock(s);
	return NULL;
}

/* --- functions that the application calls --- */

/* Callback of the runner's observer: reports the leader. */
static void
on_change(const le_change *change, void *arg)
{
	le_runner *r = arg;

	r->callbacks.on_new_leader(change->leads ? change->candidate : NULL, change->leads ? change->term : 0,
							   r->callbacks.arg);
}

static void
runner_free(le_runner *r)
{
	le_unobserve(r->observer);
	free(r->election);
	free(r->candidate);
	pthread_cond_destroy(&r->changed);
	free(r);
}

le_status
le_run(le_session *session, const char *election, const char *candidate, const le_callbacks *callbacks,
	   le_runner **runner, le_error *error)
{
	le_callbacks own;
	le_status status = LE_OK;
	le_runner *r;

	/* check the arguments */
	le_must(le_check_pointer(runner, "runner", error));
	*runner = NULL;
	le_must(le_check_session(session, error));
	le_must(le_check_pointer(callbacks, "callbacks", error));
	le_must(le_struct_read(&own, sizeof(own), callbacks, "le_callbacks", error));
	le_must(le_check_pointer((const void *) (intptr_t) own.on_elected, "callbacks.on_elected", error));
	le_must(le_check_candidacy(election, candidate, error));
	/* create the runner, its observer and its thread */
	r = calloc(1, sizeof(*r));
	if (r == NULL || le_cond_init(&r->changed) != 0)
	{
		free(r);
		return le_no_memory(error);
	}
	r->session = session;
	r->callbacks = own;
	r->election = le_copy(election);
	r->candidate = le_copy(candidate);
	if (r->election == NULL || r->candidate == NULL)
		status = le_no_memory(error);
	else if (own.on_new_leader != NULL)
		status = le_observe(session, election, -1, on_change, r, &r->observer, error);
	if (status == LE_OK && !le_start_thread(&r->thread, runner_main, r))
		status = le_error_set(error, LE_NO_MEMORY, "", "could not start a thread");
	if (status == LE_OK)
		*runner = r;
	else
		runner_free(r);
	return status;
}

le_status
le_set_candidate(le_runner *runner, const char *candidate, le_error *error)
{
	char *copy, *old;

	le_must(le_check_pointer(runner, "runner", error));
	le_must(le_check_session(runner->session, error));
	le_must(le_check_text("candidate", candidate, LE_CANDIDATE_MAX, error));
	copy = le_copy(candidate);
	if (copy == NULL)
		return le_no_memory(error);
	le_lock(runner->session);
	old = runner->candidate;
	runner->candidate = copy;
	le_unlock(runner->session);
	free(old);
	return LE_OK;
}

int
le_must_stop(const le_hold *term)
{
	return atomic_load(&term->stop_asked) || !le_valid(term);
}

int
le_wait_stop(le_hold *term, int wait_ms)
{
	le_session *s = term->session;
	int64_t until = le_until(wait_ms);

	if (le_in_child(s))
		return 1;
	le_lock(s);
	while (!le_must_stop(term) && le_now_ns() < until)
	{
		int64_t deadline = atomic_load(&s->deadline);

		le_cond_wait(&term->changed, &s->lock, until < deadline ? until : deadline);
	}
	le_unlock(s);
	return le_must_stop(term);
}

le_status
le_stop(le_runner *runner, le_error *error)
{
	static const le_error stopped = {LE_CANCELED, "", "the runner was stopped"};
	le_session *s;
	le_status status;

	le_error_clear(error);
	if (runner == NULL || le_in_child(runner->session))
		return LE_OK;
	s = runner->session;
	/* wake up the runner and on_elected, and end the wait of a candidacy */
	le_lock(s);
	s->refs++;
	runner->stopping = true;
	pthread_cond_broadcast(&runner->changed);
	if (runner->hold != NULL)
	{
		atomic_store(&runner->hold->stop_asked, 1);
		pthread_cond_broadcast(&runner->hold->changed);
		if (atomic_load(&runner->hold->state) == LE_HOLD_WAITING)
			le_hold_over(runner->hold, &stopped);
		le_wake_net(s);
	}
	le_unlock(s);
	/* wait until the runner has ended, and return its error */
	pthread_join(runner->thread, NULL);
	status = runner->error.status;
	if (status != LE_OK)
		status = le_error_set(error, LE_FAILED, runner->error.sqlstate, "%s", runner->error.message);
	runner_free(runner);
	le_session_unref(s);
	return status;
}
