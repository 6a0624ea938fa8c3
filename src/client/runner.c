/*
 * runner.c
 *		The runner: stands for election again and again, in a thread of its own.
 *
 *		follower -> candidate -> leader -> follower ... -> stopping
 *
 * on_elected runs in another thread, so that the runner can tell a loss.  The
 * runner goes on only when that thread has ended; so two terms never overlap,
 * and nothing is resigned before the work is over.
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

#define RETRY_FIRST (100 * LE_MS_NS)
#define RETRY_MOST  (5 * LE_SEC_NS)

/* Under the session's mutex, but for what is fixed. */
struct le_runner
{
	le_session *session;
	pthread_t thread;
	pthread_cond_t changed;
	le_callbacks callbacks;
	char *election;
	char *candidate;
	le_observer *observer;
	le_hold *hold; /* the candidacy, or the term */
	bool stopping;
	bool entered, returned; /* on_elected */
	int answer;             /* of on_elected */
	int failures;
	le_error error; /* why it has ended by itself */
};

/* --- leading --- */

static void *
elected_main(void *arg)
{
	le_runner *r = arg;
	le_session *s = r->session;
	le_hold *hold;
	int answer;

	le_lock(s);
	hold = r->hold;
	r->entered = true;
	le_unlock(s);
	answer = r->callbacks.on_elected(hold, r->callbacks.arg);
	le_lock(s);
	r->answer = answer;
	r->returned = true;
	pthread_cond_broadcast(&hold->changed);
	le_unlock(s);
	return NULL;
}

/* Locked at entry and exit.  Until on_elected has returned. */
static void
watch_term(le_runner *r, le_hold *hold)
{
	le_session *s = r->session;
	bool told = false;

	while (!r->returned)
	{
		le_check_deadline(s);
		if (!told && r->entered && atomic_load(&hold->state) != LE_HOLD_HELD)
		{
			told = true;
			le_unlock(s);
			if (r->callbacks.on_lost != NULL)
				r->callbacks.on_lost(hold, r->callbacks.arg);
			le_lock(s);
			continue;
		}
		le_cond_wait(&hold->changed, &s->lock,
					 told || !r->entered ? le_add(le_now_ns(), 10 * LE_MS_NS) : atomic_load(&s->deadline));
	}
}

/* Locked at entry and exit.  False: there was no thread for it. */
static bool
lead(le_runner *r, le_hold *hold)
{
	le_session *s = r->session;
	pthread_t thread;

	r->entered = r->returned = false;
	r->answer = 0;
	if (!le_start_thread(&thread, elected_main, r))
		return false;
	watch_term(r, hold);
	le_unlock(s);
	pthread_join(thread, NULL);
	le_lock(s);
	return true;
}

/* --- standing --- */

/* Locked at entry and exit.  A growing delay, which le_stop ends. */
static void
pause_runner(le_runner *r)
{
	int64_t delay = RETRY_FIRST << (r->failures < 8 ? r->failures : 8);
	int64_t until = le_add(le_now_ns(), le_jitter(delay < RETRY_MOST ? delay : RETRY_MOST));

	r->failures++;
	while (!r->stopping && le_now_ns() < until)
		le_cond_wait(&r->changed, &r->session->lock, until);
}

/* Errors that another try does not mend end the runner. */
static bool
is_final(const le_error *error)
{
	return error->status == LE_INVALID || error->status == LE_DENIED || error->status == LE_FAILED;
}

/* Locked at entry and exit.  A candidacy that was granted. */
static void
serve(le_runner *r, le_hold *hold)
{
	r->failures = 0;
	if (!lead(r, hold))
		pause_runner(r);
	else if (r->answer != 0)
		r->stopping = true;
}

/* Locked at entry and exit.  One candidacy, from its beginning to its end. */
static void
stand(le_runner *r)
{
	le_session *s = r->session;
	char *candidate = le_copy(r->candidate);
	le_hold *hold = NULL;
	le_error error;
	le_status status;

	le_unlock(s);
	if (candidate == NULL)
		status = le_no_memory(&error);
	else
		status = le_enqueue_candidate(s, r->election, candidate, &hold, &error);
	free(candidate);
	le_lock(s);
	if (status == LE_OK)
	{
		r->hold = hold;
		if (!r->stopping)
		{
			le_unlock(s);
			status = le_hold_wait(hold, LE_NEVER, &error);
			le_lock(s);
			if (status == LE_OK && !r->stopping)
				serve(r, hold);
		}
		r->hold = NULL;
		le_unlock(s);
		le_release(hold, 0, NULL);
		le_lock(s);
	}
	if (status == LE_LOST && !s->closing && !r->stopping)
	{
		le_unlock(s);
		status = le_reopen(s, &error);
		le_lock(s);
	}
	if (status == LE_OK || status == LE_CANCELED)
		return;
	if (is_final(&error) || s->closing)
	{
		le_error_copy(&r->error, &error);
		r->stopping = true;
	}
	else
		pause_runner(r);
}

static void *
runner_main(void *arg)
{
	le_runner *r = arg;
	le_session *s = r->session;

	le_lock(s);
	while (!r->stopping)
		stand(r);
	le_unlock(s);
	return NULL;
}

/* --- the application's side --- */

static void
on_change(const le_change *change, void *arg)
{
	le_runner *r = arg;

	if (change->leads)
		r->callbacks.on_new_leader(change->candidate, change->term, r->callbacks.arg);
	else
		r->callbacks.on_new_leader(NULL, 0, r->callbacks.arg);
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

static le_runner *
runner_new(le_session *session, const char *election, const char *candidate, const le_callbacks *callbacks)
{
	le_runner *r = calloc(1, sizeof(*r));

	if (r == NULL)
		return NULL;
	r->session = session;
	r->callbacks = *callbacks;
	r->election = le_copy(election);
	r->candidate = le_copy(candidate);
	if (r->election == NULL || r->candidate == NULL || le_cond_init(&r->changed) != 0)
	{
		free(r->election);
		free(r->candidate);
		free(r);
		return NULL;
	}
	return r;
}

le_status
le_run(le_session *session, const char *election, const char *candidate, const le_callbacks *callbacks,
	   le_runner **runner, le_error *error)
{
	le_callbacks own;
	le_status status = LE_OK;
	le_runner *r;

	le_must(le_check_pointer(runner, "runner", error));
	*runner = NULL;
	le_must(le_check_session(session, error));
	le_must(le_check_pointer(callbacks, "callbacks", error));
	le_must(le_struct_read(&own, sizeof(own), callbacks, "le_callbacks", error));
	le_must(le_check_pointer((const void *) (intptr_t) own.on_elected, "callbacks.on_elected", error));
	le_must(le_check_candidacy(election, candidate, error));
	r = runner_new(session, election, candidate, &own);
	if (r == NULL)
		return le_no_memory(error);
	if (own.on_new_leader != NULL)
		status = le_observe(session, election, -1, on_change, r, &r->observer, error);
	if (status == LE_OK && !le_start_thread(&r->thread, runner_main, r))
		status = le_error_set(error, LE_NO_MEMORY, "", "could not start a thread");
	if (status != LE_OK)
	{
		runner_free(r);
		return status;
	}
	*runner = r;
	return LE_OK;
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
	le_session *s;
	le_hold *hold;
	le_status status;

	le_error_clear(error);
	if (runner == NULL || le_in_child(runner->session))
		return LE_OK;
	s = runner->session;
	le_lock(s);
	s->refs++;
	runner->stopping = true;
	pthread_cond_broadcast(&runner->changed);
	hold = runner->hold;
	if (hold != NULL)
	{
		atomic_store(&hold->stop_asked, 1);
		pthread_cond_broadcast(&hold->changed);
		if (atomic_load(&hold->state) == LE_HOLD_WAITING)
		{
			le_error canceled;

			le_error_set(&canceled, LE_CANCELED, "", "the runner was stopped");
			le_hold_over(hold, &canceled);
			le_wake_net(s);
		}
	}
	le_unlock(s);
	pthread_join(runner->thread, NULL);
	status = runner->error.status;
	if (status != LE_OK)
		status = le_error_set(error, LE_FAILED, runner->error.sqlstate, "%s", runner->error.message);
	runner_free(runner);
	le_session_unref(s);
	return status;
}
