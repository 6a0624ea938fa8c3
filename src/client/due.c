/*
 * due.c
 *		Computes when the session thread has work, wakes it up, and makes work
 *		due after a notification.
 */
#include "due.h"

#include <string.h>

#include "objects.h"

/* Time for which the session keeps listening after the last wait in a queue has ended, in ns */
#define LINGER LE_SEC_NS
/* Time limit in ns for the session's test notification to itself, which normally arrives with the reply */
#define TEST_PATIENCE (300 * LE_MS_NS)

/* --- work --- */

/*
 * Returns whether the lease may be renewed.  If progress_ms is set, this requires a recent call of
 * le_progress().  Sets withheld before it reads progress_at: if it misses a concurrent call of
 * le_progress(), that call sees withheld, and wakes up the session thread.
 */
static bool
has_progress(le_session *s)
{
	atomic_store(&s->withheld, s->progress != 0);
	if (s->progress != 0 && le_now_ns() - atomic_load(&s->progress_at) < s->progress)
		atomic_store(&s->withheld, 0);
	return !atomic_load(&s->withheld);
}

int64_t
le_due(le_session *s)
{
	int64_t due = s->renew_at;

	if (!le_is_alive(s) || !has_progress(s))
		return LE_NEVER;
	if (s->failures > 0)
		return due;
	if (s->look || !le_link_empty(&s->lists[LE_GIVES]))
		return 0;
	if (!le_link_empty(&s->lists[LE_ASKS]))
		le_sooner(&due, s->ask_at);
	if (!le_link_empty(&s->lists[LE_LATER]))
		le_sooner(&due, s->later_at);
	if (s->waiting > 0 && !(s->heard && s->listens))
		le_sooner(&due, le_add(s->last_at, s->poll));
	return due;
}

bool
le_is_curious(const le_session *s)
{
	return s->waiting > 0 || !le_link_empty(&s->observers);
}

bool
le_wants_channel(const le_session *s)
{
	return s->channel[0] != '\0' &&
		   (le_is_curious(s) || (s->waited_at != 0 && le_now_ns() < s->waited_at + LINGER));
}

int64_t
le_listen_due(const le_session *s)
{
	return s->relisten || s->listens != le_wants_channel(s) ? s->listen_at : LE_NEVER;
}

int64_t
le_patience(const le_session *s)
{
	if (s->options.listen != 1 || s->waiting == 0 || s->heard)
		return LE_NEVER;
	if (s->deaf || s->channel[0] == '\0')
		return 0;
	return s->tested_at == 0 ? LE_NEVER : s->tested_at + TEST_PATIENCE;
}

int64_t
le_next_work(le_session *s)
{
	int64_t next = s->connected ? le_due(s) : s->retry_at;

	if (s->closing || (s->connected && s->rests_deaf && le_is_curious(s)))
		return 0;
	le_sooner(&next, s->next_until);
	le_sooner(&next, s->connected ? le_patience(s) : LE_NEVER);
	le_sooner(&next, s->connected ? le_listen_due(s) : LE_NEVER);
	if (s->listens && !le_is_curious(s) && le_wants_channel(s))
		le_sooner(&next, s->waited_at + LINGER);
	return next;
}

void
le_wake_net(le_session *s)
{
	if (s->busy || s->rests_until == 0 || le_next_work(s) >= s->rests_until)
		return;
	s->rests_until = 0;
	le_wake(s->wake_net);
}

/* --- notifications --- */

void
le_observers_due(le_session *s, const char *channel)
{
	le_foreach (le_observer, o, &s->observers)
	{
		if (channel == NULL || strcmp(o->channel, channel) == 0)
			o->due_at = 0;
	}
	pthread_cond_signal(&s->to_tell);
}

void
le_hear(le_session *s, const char *channel)
{
	bool own = strcmp(channel, s->channel) == 0;

	s->heard |= own;
	/*
	 * Read the news also if a request has no reply yet: the notification of its grant may arrive before
	 * the reply was read.
	 */
	s->look |= own && (s->waiting > 0 || !le_link_empty(&s->lists[LE_OPEN]));
	le_observers_due(s, channel);
}
