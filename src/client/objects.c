/*
 * objects.c
 *		Creates, frees and reference-counts le_session and le_hold objects, and
 *		locks the session's mutex.
 */
#include "objects.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "text.h"

/* --- sessions --- */

/* Frees a session that has no references, even if it is only partly initialized. */
static void
session_free(le_session *s)
{
	int fds[] = {s->wake_net[0], s->wake_net[1], s->wake_user[0], s->wake_user[1]};

	for (int i = 0; i < 4; i++)
	{
		if (fds[i] >= 0)
			close(fds[i]);
	}
	pthread_cond_destroy(&s->changed);
	pthread_cond_destroy(&s->to_tell);
	pthread_mutex_destroy(&s->lock);
	for (int i = 0; i < 3; i++)
		free(s->net.places[i]);
	free(s->schema);
	free(s->conninfo);
	free(s->name);
	free(s);
}

le_session *
le_session_new(const le_options *o)
{
	le_session *s = calloc(1, sizeof(*s));
	size_t size = LE_OWNER_MAX;

	/* create the mutex and the conditions, which session_free() requires */
	if (s == NULL || pthread_mutex_init(&s->lock, NULL) != 0 || le_cond_init(&s->changed) != 0 ||
		le_cond_init(&s->to_tell) != 0)
	{
		free(s);
		return NULL;
	}
	for (int i = 0; i < 2; i++)
		s->wake_net[i] = s->wake_user[i] = -1;
	/* initialize the lists, and members whose initial value is not 0 */
	for (int i = 0; i < LE_LISTS; i++)
		le_link_init(&s->lists[i]);
	le_link_init(&s->observers);
	le_link_init(&s->events);
	s->refs = 1;
	s->process = getpid();
	s->options = *o;
	s->options.conninfo = s->options.name = NULL;
	s->next_until = s->later_at = s->net.until = LE_NEVER;
	s->renewed_told = true;
	s->busy = true; /* the session thread owns the connection until it has connected */
	atomic_store(&s->progress_at, le_now_ns());
	/* convert the times to ns, and apply their defaults */
	s->ttl = o->ttl_ms * LE_MS_NS;
	s->margin = o->margin_ms != 0 ? o->margin_ms * LE_MS_NS : le_clamp(s->ttl / 20, 0, LE_SEC_NS);
	s->connect = o->connect_ms != 0 ? o->connect_ms * LE_MS_NS : 5 * LE_SEC_NS;
	s->call = o->call_ms != 0 ? o->call_ms * LE_MS_NS : le_clamp(s->ttl / 4, 200 * LE_MS_NS, 10 * LE_SEC_NS);
	s->progress = o->progress_ms * LE_MS_NS;
	s->poll = o->poll_ms != 0 ? o->poll_ms * LE_MS_NS : 250 * LE_MS_NS;
	/* distinguishes this session's requests from all others */
	snprintf(s->marker, sizeof(s->marker), "#%016llx", (unsigned long long) le_random());
	s->conninfo = le_copy(o->conninfo != NULL ? o->conninfo : "");
	s->name = le_copy(o->name != NULL ? o->name : "");
	if (s->conninfo == NULL || s->name == NULL || !le_pipe(s->wake_net) || !le_pipe(s->wake_user))
	{
		session_free(s);
		return NULL;
	}
	if (strlen(s->name) > size)
	{
		/* cut the name before a character that does not fit */
		while (size > 0 && ((unsigned char) s->name[size] & 0xC0) == 0x80)
			size--;
		s->name[size] = '\0';
	}
	return s;
}

void
le_lock(const le_session *s)
{
	pthread_mutex_lock(&((le_session *) s)->lock);
}

void
le_unlock(const le_session *s)
{
	pthread_mutex_unlock(&((le_session *) s)->lock);
}

void
le_session_unref(le_session *s)
{
	int refs;

	le_lock(s);
	refs = --s->refs;
	le_unlock(s);
	if (refs == 0)
		session_free(s);
}

bool
le_in_child(const le_session *s)
{
	return getpid() != s->process;
}

bool
le_is_alive(const le_session *s)
{
	int state = atomic_load(&s->state);

	return state == LE_CONNECTED || state == LE_SUSPENDED;
}

/* Blocks all signals while it creates the thread, because the new thread inherits the signal mask. */
bool
le_start_thread(pthread_t *thread, void *(*run)(void *), void *arg)
{
	sigset_t all, old;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(thread, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return rc == 0;
}

/* --- holds --- */

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

/* The caller must have another reference to the session; freeing the hold drops one. */
void
le_hold_unref(le_hold *hold)
{
	if (--hold->refs > 0)
		return;
	hold->session->refs--;
	le_link_remove(&hold->event_link);
	le_hold_free(hold);
}
