/*
 * turn.c
 *		Runs a turn: makes one call of lease_sync() and handles its reply.
 *		docs/reference/lease-sync.md has the rules.
 *
 * A call sends queued releases first, then queued requests.  If its reply is
 * lost, the call may or may not have been carried out.  The next call is
 * therefore *bare*: it sends no items and only reads the news, which contains
 * everything that the lost reply would have reported.  A request that is not in
 * the news was not carried out, and is sent again.
 */
#include "turn.h"

#include <arpa/inet.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "connection.h"
#include "due.h"
#include "error.h"
#include "objects.h"
#include "ownership.h"
#include "state.h"
#include "text.h"

/* A call of lease_sync().  A request is one item; a release is one item for each name. */
typedef struct Turn
{
	int n;
	le_hold *holds[LE_ITEMS_MAX]; /* hold of each item, with a reference; NULL = the item's row was handled */
	int names[LE_ITEMS_MAX];      /* index of the name that the item releases; -1 = the item is a request */
	bool silent;                  /* the call has only releases, and its reply does not renew the lease */
	int64_t call, sent_at;
	le_text texts;
} Turn;

/* One row of a reply */
typedef struct Row
{
	const PGresult *result;
	int row;
} Row;

/* Returns the text of a column, or NULL for an SQL NULL. */
static const char *
value(Row row, LeColumn column)
{
	return PQgetisnull(row.result, row.row, column) ? NULL : PQgetvalue(row.result, row.row, column);
}

static int64_t
number(Row row, LeColumn column, int64_t otherwise)
{
	const char *text = value(row, column);

	return text != NULL ? strtoll(text, NULL, 10) : otherwise;
}

static bool
is_event(Row row, const char *event)
{
	return strcmp(value(row, LE_COLUMN_EVENT), event) == 0;
}

static bool
is_wanted(const le_hold *hold)
{
	return atomic_load(&hold->state) == LE_HOLD_WAITING;
}

void
le_turn_join(le_session *s)
{
	int64_t now = le_now_ns();

	if (!s->busy && s->connected && s->asking == 0 && s->renew_at > now && le_due(s) <= now)
		le_turn(s);
	else
		le_wake_net(s);
}

/* --- sending a call --- */

/* Adds a text, or an SQL NULL if text is NULL, to a binary array. */
static void
add_text(le_text *texts, const char *text)
{
	uint32_t len = htonl(text != NULL ? (uint32_t) strlen(text) : UINT32_MAX); /* UINT32_MAX = SQL NULL */

	le_text_add_bytes(texts, &len, sizeof(len));
	if (text != NULL)
		le_text_add_bytes(texts, text, strlen(text));
}

/*
 * Adds an item to the call, with six texts for each name.  The item releases the name with index "name",
 * or requests the hold if name is -1.
 */
static void
add_item(Turn *t, le_hold *hold, int name)
{
	static const char *const actions[] = {
		"enqueue_lock", "enqueue_permit", "enqueue_candidate", "proclaim", "enqueue_shared",
		"try_lock",     "try_permit",     "try_candidate",     "proclaim", "try_shared"};
	bool gives = name >= 0, has_token = gives || hold->kind == LE_KIND_PROCLAIM;
	const char *action = hold->kind == LE_KIND_TERM ? "resign" : "release", *value = hold->candidate;
	char item[16], number[24], owner[LE_OWNER_MAX + LE_MARKER_SIZE], hold_for[24];

	snprintf(item, sizeof(item), "%d", t->n);
	snprintf(number, sizeof(number), "%lld", has_token ? (long long) hold->server_token : hold->permits);
	snprintf(owner, sizeof(owner), "%s%s-%lld", hold->session->name, hold->session->marker,
			 (long long) hold->asked);
	snprintf(hold_for, sizeof(hold_for), "%d ms", hold->hold_for_ms);
	if (!gives)
		action = actions[(hold->try ? 5 : 0) + (hold->shared ? 4 : (int) hold->kind)];
	else
		value = hold->hold_for_ms != 0 ? hold_for : NULL;
	for (int i = gives ? name : 0; i < (gives ? name + 1 : hold->n); i++)
	{
		const char *texts[] = {item, action, hold->names[i], number, has_token ? NULL : owner, value};

		for (int k = 0; k < 6; k++)
			add_text(&t->texts, texts[k]);
	}
	hold->refs++;
	t->names[t->n] = name;
	t->holds[t->n++] = hold;
}

/* Adds items to the call: first queued releases, then queued requests, each in the order of their list. */
static void
take_items(le_session *s, Turn *t)
{
	int most = s->bare ? 0 : s->alone > 0 ? 1 : LE_ITEMS_MAX, names;

	/* queue the releases whose pause has ended */
	while (!le_link_empty(&s->lists[LE_LATER]) && t->sent_at >= s->later_at)
		le_link_append(&s->lists[LE_GIVES], s->lists[LE_LATER].next);
	if (le_link_empty(&s->lists[LE_LATER]))
		s->later_at = LE_NEVER;
	/* add the releases; a hold with many names may need several calls */
	le_foreach (le_hold, hold, &s->lists[LE_GIVES])
	{
		while (hold->given < hold->n && t->n < most)
			add_item(t, hold, hold->given++);
		if (hold->given < hold->n)
			break;
		t->silent &= hold->hold_for_ms == 0;
		le_link_append(&s->lists[LE_HELD], &hold->link);
	}
	/*
	 * A call with requests waits for a flush, which would delay releases in it.  So a call with releases
	 * sends no requests; the next call sends both.
	 */
	s->apart = !s->apart && t->n > 0;
	/* add the requests that the application still waits for */
	names = t->n;
	le_foreach (le_hold, hold, &s->lists[LE_ASKS])
	{
		names += hold->n;
		if (s->apart || t->n == most || names > LE_NAMES_MAX || t->sent_at < s->ask_at)
			break;
		if (!is_wanted(hold))
			le_hold_done(hold);
		else
		{
			add_item(t, hold, -1);
			t->silent = false;
			hold->phase = LE_PHASE_SENT;
			le_link_append(&s->lists[LE_OPEN], &hold->link);
		}
	}
	s->alone -= s->alone > 0 && t->n > 0;
}

/*
 * Calls lease_sync().  Returns its result, or NULL and sets net.error.  The mutex is held at entry, but
 * not at exit.
 */
static PGresult *
make_call(le_session *s, Turn *t)
{
	uint32_t head[5] = {htonl(1), htonl(1), htonl(25), 0,
						htonl(1)}; /* dimensions, NULLs allowed, type text, number of elements, first index */
	char lease[24], number[24], seen[2][24], wait[24];
	const char *values[6] = {lease, number, seen[0], seen[1]};
	PGresult *result = NULL;
	uint32_t n = 0;

	/* with the mutex: collect the items and the other arguments */
	*t = (Turn){.sent_at = le_now_ns()};
	t->silent = t->sent_at < s->renew_at && s->waiting == 0 && !s->look && le_link_empty(&s->lists[LE_OPEN]);
	le_text_add_bytes(&t->texts, head, sizeof(head));
	take_items(s, t);
	t->silent &= t->n > 0;
	for (int i = 0; i < t->n; i++)
		n += 6 * (uint32_t) (t->names[i] >= 0 ? 1 : t->holds[i]->n);
	head[3] = htonl(n);
	if (!t->texts.failed)
		memcpy(t->texts.data, head, sizeof(head));
	t->call = ++s->calls;
	s->last_at = t->sent_at;
	s->look = false;
	memcpy(seen, s->seen, sizeof(seen));
	snprintf(lease, sizeof(lease), "%lld", (long long) atomic_load(&s->lease));
	snprintf(number, sizeof(number), "%lld", (long long) t->call);
	snprintf(wait, sizeof(wait), "%lld ms", (long long) le_ms_up(s->call / 2));
	le_unlock(s);

	/* without the mutex: send the call */
	if (seen[0][0] == '\0')
		values[2] = values[3] = NULL;
	values[4] = t->n > 0 ? t->texts.data : NULL;
	values[5] = t->silent ? NULL : wait;
	if (t->texts.failed)
		le_no_memory(&s->net.error);
	else
		result = le_sync(s, values, (int) t->texts.len);
	free(t->texts.data);
	return result;
}

/* --- results of items --- */

/* Moves an item back to the front of its list.  If lost is true, the call may have been carried out. */
static void
send_again(le_session *s, Turn *t, int i, bool lost)
{
	le_hold *hold = t->holds[i];

	if (t->names[i] < 0 && hold->phase == LE_PHASE_SENT)
		le_link_prepend(&s->lists[LE_ASKS], &hold->link);
	else if (t->names[i] >= 0 && hold->phase != LE_PHASE_DONE)
	{
		hold->given = t->names[i] < hold->given ? t->names[i] : hold->given;
		hold->again = true;
		hold->lost |= lost;
		le_link_prepend(&s->lists[LE_GIVES], &hold->link);
	}
}

/*
 * Handles a release that the server has rejected.  If hold_for is the reason, queues a release without
 * it; otherwise queues the release after a pause.
 */
static void
release_refused(le_session *s, le_hold *hold, const le_error *error)
{
	bool passes = le_error_passes(error) || error->status == LE_LIMIT || error->status == LE_NO_MEMORY;

	hold->given = 0;
	hold->left = hold->n;
	hold->again = true;
	if (hold->hold_for_ms != 0 && (error->status == LE_INVALID || le_error_is(error, "53400")))
	{
		/* hold_for exceeds lock_election.max_hold_for or is out of range, so release without it */
		hold->hold_for_ms = 0;
		hold->again = hold->lost = false;
		le_error_copy(&hold->error, error);
		hold->error.status = LE_INVALID;
		le_link_prepend(&s->lists[LE_GIVES], &hold->link);
		return;
	}
	if (!passes)
	{
		/* retry, because a missing privilege may be granted later, but let le_release() return */
		le_error_set(&hold->error, LE_UNKNOWN, error->sqlstate, "%.400s; the session keeps trying",
					 error->message);
		hold->release_done = true;
		le_hold_changed(hold);
	}
	le_link_append(&s->lists[LE_LATER], &hold->link);
	le_sooner(&s->later_at, le_add(le_now_ns(), passes ? LE_PAUSE : s->ttl / 3));
}

/* Ends a request that has neither a grant nor a place on the server. */
static void
settle(le_hold *hold, const le_error *error)
{
	if (is_wanted(hold))
		le_hold_over(hold, error);
	le_hold_done(hold);
}

/*
 * Handles an item with an error.  Queues it again if it is a release, or a request that may wait and the
 * error is temporary.  Ends any other request with the error.
 */
static void
refused(le_session *s, Turn *t, int i, const le_error *error)
{
	le_hold *hold = t->holds[i];
	bool waits = is_wanted(hold) && (!hold->try || hold->kind == LE_KIND_PROCLAIM);

	if (hold->phase == LE_PHASE_DONE)
		return;
	if (t->names[i] >= 0)
		release_refused(s, hold, error);
	else if (le_error_passes(error) && waits)
	{
		s->ask_at = le_add(le_now_ns(), le_jitter(LE_PAUSE));
		send_again(s, t, i, false);
	}
	else
		settle(hold, error);
}

/*
 * Records the grant or place that a request has on the server, and queues its release if the application
 * no longer waits for it.
 */
static void
adopt(le_session *s, le_hold *hold, Row row)
{
	bool granted = !is_event(row, "queued");

	hold->server_token = number(row, LE_COLUMN_TOKEN, 0);
	hold->phase = granted ? LE_PHASE_GRANTED : LE_PHASE_QUEUED;
	hold->pending = false;
	le_link_append(&s->lists[is_wanted(hold) ? LE_HELD : LE_GIVES], &hold->link);
	atomic_store(&hold->position,
				 number(row, LE_COLUMN_QUEUE_POSITION, granted ? 0 : 1)); /* news has no position */
	s->waiting += !granted && is_wanted(hold);
	if (granted && is_wanted(hold))
		le_hold_held(hold);
	le_sooner(&s->next_until, le_hold_ends(hold));
	le_hold_check_until(hold, le_now_ns());
}

/* Handles the row of an item: an error, a grant, a place or another result. */
static void
take_result(le_session *s, Turn *t, int i, Row row)
{
	le_hold *hold = t->holds[i];
	bool gives = t->names[i] >= 0;
	le_error error = {.status = LE_OK};

	/* ignore the row if the session has ended, or this release will be sent again */
	if (hold->phase == LE_PHASE_DONE || (gives && t->names[i] >= hold->given))
		return;
	hold->seen_call = t->call;
	hold->seen_names = hold->n;
	if (is_event(row, "error"))
	{
		le_error_server(&error, value(row, LE_COLUMN_SQLSTATE), value(row, LE_COLUMN_MESSAGE),
						value(row, LE_COLUMN_HINT));
		refused(s, t, i, &error);
	}
	else if (is_event(row, "pending"))
	{
		s->look = true;
		hold->pending = !gives && hold->kind != LE_KIND_PROCLAIM;
		if (!hold->pending)
			send_again(s, t, i, false);
	}
	else if (gives)
	{
		/*
		 * If a repeated release finds nothing held, the earlier release has succeeded.  But if the
		 * reply to the earlier release was lost, it is not known whether hold_for took effect.
		 */
		if (is_event(row, "not_held") && !hold->again && hold->error.status == LE_OK)
			le_error_set(&hold->error, LE_LOST, "LE001", "it had been lost before it was released");
		else if (is_event(row, "not_held") && hold->lost && hold->hold_for_ms != 0)
			le_error_set(&hold->error, LE_UNKNOWN, "", "the answer was lost");
		if (--hold->left == 0)
			le_hold_done(hold);
	}
	else if (is_event(row, "granted") || is_event(row, "queued"))
		adopt(s, hold, row);
	else
	{
		if (is_event(row, "not_held"))
			le_error_set(&error, LE_LOST, "LE001", "this term does not lead any more");
		else if (is_event(row, "not_granted"))
			le_error_set(&error, LE_TIMEOUT, "", "somebody else holds it, or is queued for it");
		settle(hold, &error);
	}
}

/* --- news --- */

/*
 * Returns the hold with this token, or the unanswered request with this number, or NULL if there is
 * neither.
 */
static le_hold *
find_hold(le_session *s, int64_t token, int64_t asked)
{
	for (int i = 0; i < LE_LISTS; i++)
	{
		le_foreach (le_hold, hold, &s->lists[i])
		{
			if (hold->kind != LE_KIND_PROCLAIM &&
				(hold->server_token == token || (hold->phase == LE_PHASE_SENT && hold->asked == asked)))
				return hold;
		}
	}
	return NULL;
}

/*
 * Reports a hold or a place that the server has ended or evicted as lost.  If a hold with several names
 * has ended, the server may still hold its other names, so queues their release.  An evicted hold that
 * the application has seen as HELD stays on the server until the application releases it.
 */
static void
lose(le_hold *hold, const char *reason, bool evicted)
{
	int state = atomic_load(&hold->state);
	le_error error;

	if (evicted)
		le_error_set(&error, LE_LOST, "LE001", "it was evicted");
	else
		le_error_set(&error, LE_LOST, "LE001", "the server has ended it: %s", reason);
	if (state != LE_HOLD_OVER)
		le_hold_over(hold, &error);
	if (!evicted && hold->n == 1)
		le_hold_done(hold);
	else if (evicted && state == LE_HOLD_HELD)
		le_link_append(&hold->session->lists[LE_HELD], &hold->link);
}

/*
 * Queues the release of a grant or place that belongs to no hold.  If out of memory, schedules a
 * turn that reads the news again soon, because other clients may be waiting for the lock.
 */
static void
give_ghost_back(le_session *s, Row row)
{
	le_kind kind = strcmp(value(row, LE_COLUMN_KIND), "election") == 0 ? LE_KIND_TERM : LE_KIND_LOCK;
	le_hold *hold = le_hold_alloc(s, kind, &(const char *){value(row, LE_COLUMN_NAME)}, 1, NULL);

	if (hold == NULL)
	{
		s->seen[0][0] = '\0';
		le_sooner(&s->renew_at, le_add(le_now_ns(), LE_PAUSE));
		return;
	}
	hold->refs = 1;
	s->refs++;
	hold->server_token = number(row, LE_COLUMN_TOKEN, 0);
	hold->phase = LE_PHASE_GRANTED;
	hold->dropped = true;
	atomic_store(&hold->state, LE_HOLD_OVER);
	le_link_append(&s->lists[LE_GIVES], &hold->link);
}

/*
 * Handles a row of news: finds the hold by its token or owner text, and updates it.  Queues the release
 * of a grant or place that belongs to no hold.
 */
static void
take_news(le_session *s, const Turn *t, Row row)
{
	const char *owner = value(row, LE_COLUMN_OWNER);
	char prefix[LE_OWNER_MAX + LE_MARKER_SIZE];
	int len = snprintf(prefix, sizeof(prefix), "%s%s-", s->name, s->marker);
	bool is_ours = owner != NULL && strncmp(owner, prefix, (size_t) len) == 0;
	int64_t asked = is_ours ? strtoll(owner + len, NULL, 10) : 0;
	le_hold *hold = find_hold(s, number(row, LE_COLUMN_TOKEN, 0), asked);

	if (hold == NULL)
	{
		/* after le_orphan(), the server keeps holds that this process no longer knows: do not release them */
		if (asked != 0 && !s->orphan && (is_event(row, "granted") || is_event(row, "queued")))
			give_ghost_back(s, row);
		return;
	}
	hold->seen_names = hold->seen_call == t->call ? hold->seen_names + 1 : 1;
	hold->seen_call = t->call;
	if (is_event(row, "lost"))
		lose(hold, value(row, LE_COLUMN_REASON), false);
	else if (is_event(row, "evicted") && hold->server_token != 0)
		lose(hold, NULL, true);
	else if (hold->server_token == 0)
	{
		if (is_event(row, "evicted")) /* evicted before the reply with its grant was read: release it */
			lose(hold, NULL, true);
		adopt(s, hold, row);
	}
	else if (is_event(row, "granted") && is_wanted(hold))
		le_hold_held(hold);
}

/* Handles a complete reply: reports each hold that is not in the reply as lost. */
static void
compare(le_session *s, const Turn *t)
{
	le_foreach (le_hold, hold, &s->lists[LE_HELD])
	{
		int seen = hold->seen_call == t->call ? hold->seen_names : 0;

		if (seen < hold->n && atomic_load(&hold->state) != LE_HOLD_OVER)
			lose(hold, "unknown when", false);
	}
}

/*
 * Handles a reply with news: if a pending request is not in the news, it was not carried out or has
 * ended, and is queued again.
 */
static void
ask_pending_again(le_session *s, const Turn *t)
{
	for (le_link *link = s->lists[LE_OPEN].prev, *prev; link != &s->lists[LE_OPEN]; link = prev)
	{
		le_hold *hold = le_container(link, le_hold, link);

		prev = link->prev;
		if (hold->pending && hold->seen_call != t->call)
			le_link_prepend(&s->lists[LE_ASKS], link);
		hold->pending &= hold->seen_call == t->call;
	}
}

/* --- handling the reply --- */

/*
 * Handles a reply: first the row of the lease, then the rows of items and news, and finally the items
 * and holds without a row.  Ends the session if the lease has ended.
 */
static void
take_reply(le_session *s, Turn *t, const PGresult *result)
{
	static const le_error late = {LE_UNAVAILABLE, "", "the lease is not durable yet"};
	Row head = {result, 0};
	const char *channel = value(head, LE_COLUMN_CHANNEL), *complete = value(head, LE_COLUMN_COMPLETE);

	if (is_event(head, "gone"))
	{
		s->lease_gone = true;
		le_end(s, "LE001", "the server has ended the lease: %s", value(head, LE_COLUMN_REASON));
		return;
	}
	if (value(head, LE_COLUMN_INCARNATION) != NULL)
	{
		snprintf(s->seen[0], sizeof(s->seen[0]), "%s", value(head, LE_COLUMN_INCARNATION));
		snprintf(s->seen[1], sizeof(s->seen[1]), "%s", value(head, LE_COLUMN_NEWS));
		s->listens &= channel != NULL && strcmp(channel, s->channel) == 0;
		snprintf(s->channel, sizeof(s->channel), "%s", channel != NULL ? channel : "");
	}
	/* complete is NULL if a result is not durable yet; then the reply has no news */
	s->bare &= complete == NULL;
	s->look |= complete == NULL && !t->silent;
	if (value(head, LE_COLUMN_VALIDITY) != NULL)
		le_renewed(s, t->sent_at, number(head, LE_COLUMN_VALIDITY, 0) * LE_US_NS);
	else if (!t->silent && s->renew_at <= le_now_ns())
		s->renew_at = le_failed(s, &late);
	/* handle the rows of items and news */
	for (int n = 1; n < PQntuples(result); n++)
	{
		Row row = {result, n};
		int i = (int) number(row, LE_COLUMN_ITEM, -1);

		if (i < 0)
			take_news(s, t, row);
		else if (i < t->n && t->holds[i] != NULL)
		{
			take_result(s, t, i, row);
			le_hold_unref(t->holds[i]);
			t->holds[i] = NULL;
		}
	}
	/* an item without a row was not carried out, because the call was old (rule 2 in lease-sync.md) */
	for (int i = t->n - 1; i >= 0; i--)
	{
		if (t->holds[i] != NULL)
			send_again(s, t, i, false);
	}
	if (complete != NULL && complete[0] == 't')
		compare(s, t);
	if (complete != NULL)
		ask_pending_again(s, t);
}

/*
 * Handles a call that has failed or lost its connection.  If the error is permanent and the call had a
 * single item, that item has failed.  Otherwise queues all items again, behind a bare call.
 */
static void
take_error(le_session *s, Turn *t)
{
	le_error error = s->net.error;
	bool passes = le_error_passes(&error), connected = s->net.conn != NULL;
	int64_t again_at;

	if (connected && t->n == 1 && !passes)
	{
		/* read the news, because the call may have been carried out even though it failed */
		s->look = true;
		refused(s, t, 0, &error);
		return;
	}
	/* the news of a bare call will show whether this call was carried out */
	s->bare = true;
	again_at = le_failed(s, &error);
	if (connected)
	{
		s->renew_at = again_at;
		s->ask_at = le_add(le_now_ns(), le_jitter(LE_PAUSE));
		s->alone = passes ? 0 : t->n;
	}
	else
		s->retry_at = s->failures > 1 ? again_at : 0; /* reconnect at once; retries have a pause */
	for (int i = t->n - 1; i >= 0; i--)
		send_again(s, t, i, true);
}

void
le_turn(le_session *s)
{
	int woken = s->woken;
	PGresult *result;
	Turn t;

	/* send the call */
	s->busy = true;
	result = make_call(s, &t);
	if (PQresultStatus(result) != PGRES_TUPLES_OK && le_error_ends_connection(&s->net.error))
		le_disconnect(s);
	le_lock(s);
	/* handle its reply */
	le_check_deadline(s);
	if (PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) > 0)
		take_reply(s, &t, result);
	else
		take_error(s, &t);
	PQclear(result);
	for (int i = 0; i < t.n; i++)
	{
		if (t.holds[i] != NULL)
			le_hold_unref(t.holds[i]);
	}
	/* let the threads that were woken up run first, so that the next turn sends their next requests */
	if (s->woken != woken)
	{
		le_unlock(s);
		sched_yield();
		le_lock(s);
	}
	le_give(s);
}
