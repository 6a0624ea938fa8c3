/*
 * dispatch.c
 *		The callback thread: calls the application's callbacks one at a time,
 *		reads changes for observers, and ends the session at its deadline,
 *		because the session thread may hang in name resolution.
 */
#include <string.h>

#include "objects.h"
#include "state.h"
#include "threads.h"

/* Calls on_state or on_renewed.  Returns false if neither is due.  The mutex is held at entry and exit. */
static bool
tell(le_session *s)
{
	const le_options *o = &s->options;
	bool renewed = s->nstates == 0;
	le_state state = s->states[0];

	if (renewed && s->renewed_told)
		return false;
	if (renewed)
		s->renewed_told = true;
	else
		memmove(s->states, s->states + 1, (size_t) --s->nstates * sizeof(s->states[0]));
	le_unlock(s);
	if (renewed && o->on_renewed != NULL)
		o->on_renewed(s, atomic_load(&s->deadline) / LE_MS_NS, o->arg);
	else if (!renewed && o->on_state != NULL)
		o->on_state(s, state, o->arg);
	le_lock(s);
	return true;
}

void *
le_dispatch_main(void *session)
{
	le_session *s = session;

	le_lock(s);
	while (!s->closing)
	{
		int64_t next = LE_NEVER;

		le_check_deadline(s);
		if (tell(s) || le_observe_work(s, &next))
			continue;
		if (le_is_alive(s))
			le_sooner(&next, atomic_load(&s->deadline));
		le_cond_wait(&s->to_tell, &s->lock, next);
	}
	s->dispatch_done = true;
	pthread_cond_broadcast(&s->changed);
	le_unlock(s);
	le_session_unref(s);
	return NULL;
}
