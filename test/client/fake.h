/*
 * fake.h
 *		A session without threads and without a connection, and holds of it, for
 *		tests of single functions.
 */
#ifndef FAKE_H
#define FAKE_H

#include "client.h"
#include "internal.h"

static inline le_session *
new_session(void)
{
	le_session *s = calloc(1, sizeof(*s));
	le_link *lists[] = {&s->todo, &s->sent,      &s->queued,   &s->granted, &s->refused,
						&s->ops,  &s->observers, &s->channels, &s->events};

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
		le_link_init(lists[i]);
	s->process = getpid();
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->changed, NULL);
	if (!le_pipe(s->wake_net) || !le_pipe(s->wake_dispatch) || !le_pipe(s->wake_user))
		die("no pipes");
	return s;
}

static inline void
free_session(le_session *s)
{
	le_channels_free(s);
	for (int i = 0; i < 2; i++)
	{
		close(s->wake_net[i]);
		close(s->wake_dispatch[i]);
		close(s->wake_user[i]);
	}
	free(s);
}

static inline le_hold *
new_hold(le_session *s, le_link *list, int64_t token, le_phase phase, le_hold_state state)
{
	static char *names[] = {"a \"b\""};
	le_hold *hold = calloc(1, sizeof(*hold));

	hold->session = s;
	hold->refs = 100;
	hold->n = 1;
	hold->names = names;
	hold->server_token = token;
	hold->phase = phase;
	hold->until = LE_NEVER;
	le_cond_init(&hold->changed);
	le_link_init(&hold->link);
	le_link_init(&hold->event_link);
	atomic_store(&hold->state, state);
	le_link_append(list, &hold->link);
	return hold;
}

static inline void
free_hold(le_hold *hold)
{
	pthread_cond_destroy(&hold->changed);
	free(hold);
}

#endif /* FAKE_H */
