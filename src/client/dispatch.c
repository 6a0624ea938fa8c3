/*
 * dispatch.c
 *		The callback thread: calls the application, one call after the other,
 *		reads for observers, and watches the deadline while the session thread
 *		may hang in a name resolution.
 */
#include "internal.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

/* Locked at entry and exit. */
static void
tell_state(le_session *s)
{
	le_state state = s->states[0];

	s->nstates--;
	memmove(s->states, s->states + 1, (size_t) s->nstates * sizeof(s->states[0]));
	if (s->options.on_state == NULL)
		return;
	le_unlock(s);
	s->options.on_state(s, state, s->options.arg);
	le_lock(s);
}

/* Locked at entry and exit. */
static void
tell_renewed(le_session *s)
{
	int64_t deadline = le_deadline(s);

	s->renewed_told = true;
	if (s->options.on_renewed == NULL)
		return;
	le_unlock(s);
	s->options.on_renewed(s, deadline, s->options.arg);
	le_lock(s);
}

/* Locked at entry and exit. */
static void
wait_for_work(le_session *s, int timer, int64_t until)
{
	struct pollfd fd = {.fd = s->wake_dispatch[0], .events = POLLIN};

	if (le_is_alive(s))
		le_sooner(&until, atomic_load(&s->deadline));
	le_unlock(s);
	le_poll(&fd, 1, timer, until);
	if (fd.revents != 0)
		le_drain(s->wake_dispatch);
	le_lock(s);
}

void *
le_dispatch_main(void *session)
{
	le_session *s = session;
	int timer = le_timer_new();

	le_lock(s);
	while (!s->opened && !s->closing)
		le_cond_wait(&s->changed, &s->lock, LE_NEVER);
	while (!s->closing)
	{
		int64_t next = LE_NEVER;

		le_check_deadline(s);
		if (s->nstates > 0)
			tell_state(s);
		else if (!s->renewed_told)
			tell_renewed(s);
		else if (!le_observe_work(s, &next))
			wait_for_work(s, timer, next);
	}
	s->dispatch_done = true;
	pthread_cond_broadcast(&s->changed);
	le_unlock(s);
	if (timer >= 0)
		close(timer);
	le_session_unref(s);
	return NULL;
}
