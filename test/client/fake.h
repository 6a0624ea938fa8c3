/*
 * fake.h
 *		A session without threads and without a connection, and holds of it, for
 *		tests of single functions.
 */
#ifndef FAKE_H
#define FAKE_H

#include "client.h"
#include "types.h"

static inline le_session *
new_session(void)
{
	le_session *s = calloc(1, sizeof(*s));

	for (int i = 0; i < LE_LISTS; i++)
		le_link_init(&s->lists[i]);
	le_link_init(&s->observers);
	le_link_init(&s->events);
	s->process = getpid();
	s->refs = 100;
	s->next_until = s->later_at = s->net.until = LE_NEVER;
	s->ttl = 600 * LE_SEC_NS;
	s->call = LE_SEC_NS;
	s->poll = 250 * LE_MS_NS;
	s->name = "me";
	strcpy(s->marker, "#0");
	atomic_store(&s->deadline, LE_NEVER);
	pthread_mutex_init(&s->lock, NULL);
	le_cond_init(&s->changed);
	le_cond_init(&s->to_tell);
	if (!le_pipe(s->wake_net) || !le_pipe(s->wake_user))
		die("no pipes");
	return s;
}

static inline void
free_session(le_session *s)
{
	for (int i = 0; i < 2; i++)
	{
		close(s->wake_net[i]);
		close(s->wake_user[i]);
	}
	free(s);
}

static inline le_hold *
new_hold(le_session *s, int list, int64_t token, le_phase phase, le_hold_state state)
{
	static char *names[] = {"a \"b\""};
	le_hold *hold = calloc(1, sizeof(*hold));

	hold->session = s;
	hold->refs = 100;
	hold->n = hold->left = 1;
	hold->names = names;
	hold->server_token = token;
	hold->phase = phase;
	hold->until = LE_NEVER;
	le_cond_init(&hold->changed);
	le_link_init(&hold->link);
	le_link_init(&hold->event_link);
	atomic_store(&hold->state, state);
	le_link_append(&s->lists[list], &hold->link);
	return hold;
}

static inline void
free_hold(le_hold *hold)
{
	pthread_cond_destroy(&hold->changed);
	free(hold);
}

#endif /* FAKE_H */
