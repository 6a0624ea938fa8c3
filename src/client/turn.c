/*
 * turn.c
 *		One call of lease_sync(): what is sent, and what its reply means.
 *		docs/reference/lease-sync.md has the rules.
 *
 * What is queued are holds: those to be given back (gives), and behind them those
 * to be asked for (asks).  An answer that does not come may be that of a call
 * that was carried out.  So the next call is bare: it only reads the news, which
 * tell what the lost answer would have told.  What the news do not have was not
 * done, and is asked for again.
 */
#include "internal.h"

#include <arpa/inet.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Turn
{
	int n;
	le_hold *holds[LE_ITEMS_MAX]; /* with a reference to each; NULL: its row has come */
	int names[LE_ITEMS_MAX];      /* which name of it is given back; -1: it is asked for */
	bool silent;                  /* nothing but releases: the reply tells nothing of the lease */
	int64_t call, sent_at;
	char number[24], seen[2][24], wait[24];
	le_text items;
} Turn;

/* The columns of le_sync(). */
enum
{
	ITEM,
	EVENT,
	KIND,
	NAME,
	TOKEN,
	POSITION,
	OWNER,
	REASON,
	SQLSTATE,
	MESSAGE,
	HINT,
	VALIDITY,
	INCARNATION,
	NEWS,
	COMPLETE,
	CHANNEL
};

/* One row of a reply; a value is NULL where it is in SQL. */
typedef struct Row
{
	const char *values[CHANNEL + 1];
	int64_t token;
} Row;

static Row
row_of(const PGresult *result, int row)
{
	Row r;

	for (int column = 0; column <= CHANNEL; column++)
		r.values[column] = PQgetisnull(result, row, column) ? NULL : PQgetvalue(result, row, column);
	r.token = r.values[TOKEN] != NULL ? strtoll(r.values[TOKEN], NULL, 10) : 0;
	return r;
}

static bool
is_event(const Row *row, const char *event)
{
	return strcmp(row->values[EVENT], event) == 0;
}

static bool
is_wanted(const le_hold *hold)
{
	return atomic_load(&hold->state) == LE_HOLD_WAITING;
}

/* --- when --- */

/* Without progress of the application nothing is renewed.  Whoever reports some sees the flag, or is seen here. */
static bool
has_progress(le_session *s)
{
	if (s->progress == 0)
		return true;
	atomic_store(&s->withheld, 1);
	if (le_now_ns() - atomic_load(&s->progress_at) < s->progress)
		atomic_store(&s->withheld, 0);
	return !atomic_load(&s->withheld);
}

int64_t
le_due(le_session *s)
{
	int64_t due = s->renew_at;

	if (!le_is_alive(s) || !has_progress(s))
		return LE_NEVER;
	if (s->renew_failures > 0)
		return due;
	if (s->look || !le_link_empty(&s->gives))
		return 0;
	if (!le_link_empty(&s->asks))
		le_sooner(&due, s->ask_at);
	if (!le_link_empty(&s->later))
		le_sooner(&due, s->later_at);
	if (s->waiting > 0 && !(s->heard && s->listens))
		le_sooner(&due, le_add(s->last_at, s->poll));
	return due;
}

void
le_turn_join(le_session *s)
{
	int64_t now = le_now_ns();

	if (!s->busy && s->connected && s->asking == 0 && !s->net.unread && s->renew_at > now && le_due(s) <= now)
		le_turn(s);
	else
		le_wake_net(s);
}

void
le_forget_turns(le_session *s)
{
	s->calls = s->renew_failures = s->alone = 0;
	s->seen[0][0] = s->seen[1][0] = s->channel[0] = '\0';
	s->look = s->bare = s->listens = false;
	s->ask_at = 0;
}

/* --- what is sent --- */

static void
add_text(le_text *items, const char *text)
{
	uint32_t len = htonl(text != NULL ? (uint32_t) strlen(text) : UINT32_MAX); /* NULL */

	le_text_add_bytes(items, &len, sizeof(len));
	if (text != NULL)
		le_text_add_bytes(items, text, strlen(text));
}

/* An item is one or more rows of six texts. */
static void
add_item(Turn *t, le_hold *hold, int name)
{
	static const char *const actions[2][3] = {{"enqueue_lock", "enqueue_permit", "enqueue_candidate"},
											  {"try_lock", "try_permit", "try_candidate"}};
	const char *action = hold->kind == LE_KIND_TERM ? "resign" : "release", *value = NULL;
	char item[16], number[24], owner[LE_OWNER_MAX + LE_MARKER_SIZE], ms[24];
	bool gives = name >= 0, proclaims = hold->kind == LE_KIND_PROCLAIM;

	snprintf(item, sizeof(item), "%d", t->n);
	snprintf(number, sizeof(number), "%lld",
			 gives || proclaims ? (long long) hold->server_token : hold->permits);
	snprintf(owner, sizeof(owner), "%s%s-%lld", hold->session->name, hold->session->marker,
			 (long long) hold->asked);
	snprintf(ms, sizeof(ms), "%d ms", hold->hold_for_ms);
	if (proclaims)
		action = "proclaim";
	else if (!gives && hold->shared)
		action = hold->try ? "try_shared" : "enqueue_shared";
	else if (!gives)
		action = actions[hold->try][hold->kind];
	if (!gives)
		value = hold->candidate;
	else if (hold->hold_for_ms != 0)
		value = ms;
	for (int i = gives ? name : 0; i < (gives ? name + 1 : hold->n); i++)
	{
		add_text(&t->items, item);
		add_text(&t->items, action);
		add_text(&t->items, hold->names[i]);
		add_text(&t->items, number);
		add_text(&t->items, gives || proclaims ? NULL : owner);
		add_text(&t->items, value);
	}
	hold->refs++;
	t->names[t->n] = name;
	t->holds[t->n++] = hold;
}

/* Those to be given back, name by name, and then those to be asked for, in their order. */
static void
take_items(le_session *s, Turn *t, int64_t now)
{
	int most = s->bare ? 0 : s->alone > 0 ? 1 : LE_ITEMS_MAX, names = 0;

	if (now >= s->later_at)
	{
		while (!le_link_empty(&s->later))
			le_link_append(&s->gives, s->later.next);
		s->later_at = LE_NEVER;
	}
	for (le_link *link; (link = s->gives.next) != &s->gives && t->n < most;)
	{
		le_hold *hold = le_container(link, le_hold, link);

		while (hold->given < hold->n && t->n < most)
			add_item(t, hold, hold->given++);
		t->silent &= hold->hold_for_ms == 0;
		if (hold->given == hold->n)
			le_link_append(&s->held, link);
	}
	names = t->n;
	while (!le_link_empty(&s->asks) && !s->bare && now >= s->ask_at)
	{
		le_hold *hold = le_container(s->asks.next, le_hold, link);

		if (!is_wanted(hold))
		{
			le_hold_done(hold);
			continue;
		}
		names += hold->n;
		if (t->n == most || names > LE_NAMES_MAX)
			break;
		add_item(t, hold, -1);
		hold->phase = LE_PHASE_SENT;
		le_link_append(&s->open, &hold->link);
		t->silent = false;
	}
	s->alone -= s->alone > 0 && t->n > 0;
}

static void
begin(le_session *s, Turn *t)
{
	static const uint32_t dimensions = 1, has_nulls = 1, text_oid = 25, first = 1;
	int64_t now = le_now_ns();
	uint32_t head[5] = {htonl(dimensions), htonl(has_nulls), htonl(text_oid), 0, htonl(first)}, n = 0;

	*t = (Turn){.silent = now < s->renew_at && s->waiting == 0 && !s->look && le_link_empty(&s->open)};
	le_text_add_bytes(&t->items, head, sizeof(head));
	take_items(s, t, now);
	t->silent &= t->n > 0;
	for (int i = 0; i < t->n; i++)
		n += 6 * (uint32_t) (t->names[i] >= 0 ? 1 : t->holds[i]->n);
	if (!t->items.failed)
		memcpy(t->items.data + 3 * sizeof(n), &(uint32_t){htonl(n)}, sizeof(n));
	t->call = ++s->calls;
	t->sent_at = s->last_at = now;
	s->look = false;
	snprintf(t->number, sizeof(t->number), "%lld", (long long) t->call);
	memcpy(t->seen, s->seen, sizeof(t->seen));
	snprintf(t->wait, sizeof(t->wait), "%lld ms", (long long) le_ms_up(s->call / 2));
}

static PGresult *
call(le_session *s, Turn *t)
{
	char lease[24];
	const char *values[6] = {lease,
							 t->number,
							 t->seen[0][0] != '\0' ? t->seen[0] : NULL,
							 t->seen[1][0] != '\0' ? t->seen[1] : NULL,
							 t->n > 0 ? t->items.data : NULL,
							 t->silent ? NULL : t->wait};

	snprintf(lease, sizeof(lease), "%lld", (long long) atomic_load(&s->lease));
	if (!t->items.failed)
		return le_sync(s, values, (int) t->items.len);
	le_no_memory(&s->net.error);
	return NULL;
}

/* --- what has become of an item --- */

/* To the front of what is queued; lost: it may have been carried out. */
static void
send_again(Turn *t, int i, bool lost)
{
	le_hold *hold = t->holds[i];
	le_session *s = hold->session;

	if (t->names[i] < 0 && hold->phase == LE_PHASE_SENT)
		le_link_prepend(&s->asks, &hold->link);
	else if (t->names[i] >= 0 && hold->phase != LE_PHASE_DONE)
	{
		if (t->names[i] < hold->given)
			hold->given = t->names[i];
		hold->again = true;
		hold->lost |= lost;
		le_link_prepend(&s->gives, &hold->link);
	}
}

/*
 * A release that is sent again and finds nothing was done before, as far as
 * anybody knows; whether hold_for took effect then is another question.
 */
static void
gave_back(le_hold *hold, bool released)
{
	if (!released && !hold->again)
		hold->release_status = LE_LOST;
	else if (!released && hold->lost && hold->hold_for_ms != 0)
		hold->release_status = LE_UNKNOWN;
	if (--hold->left <= 0)
		le_hold_done(hold);
}

/* Not now, but after a while. */
static void
give_later(le_hold *hold, int64_t delay)
{
	le_session *s = hold->session;

	hold->given = 0;
	hold->left = hold->n;
	hold->again = true;
	le_link_append(&s->later, &hold->link);
	le_sooner(&s->later_at, le_add(le_now_ns(), delay));
}

static void
release_refused(le_hold *hold, const le_error *error)
{
	le_session *s = hold->session;

	if (hold->hold_for_ms != 0 && (error->status == LE_INVALID || le_error_is(error, " 53400 ")))
	{
		/* longer than lock_election.max_hold_for, or than anything: it is released all the same */
		hold->hold_for_ms = hold->given = 0;
		hold->left = hold->n;
		hold->again = hold->lost = false;
		hold->release_status = LE_INVALID;
		le_error_copy(&hold->error, error);
		le_link_prepend(&s->gives, &hold->link);
	}
	else if (le_error_passes(error) || error->status == LE_LIMIT || error->status == LE_NO_MEMORY)
		give_later(hold, LE_PAUSE);
	else
	{
		/* perhaps a right was taken away, and comes back: nobody waits for this one */
		hold->release_status = LE_UNKNOWN;
		le_error_copy(&hold->error, error);
		hold->release_done = true;
		le_hold_changed(hold);
		give_later(hold, s->ttl / 3);
	}
}

/* An item was not carried out. */
static void
refused(Turn *t, int i, const le_error *error)
{
	le_hold *hold = t->holds[i];
	le_session *s = hold->session;

	if (hold->phase == LE_PHASE_DONE)
		return;
	if (t->names[i] >= 0)
		release_refused(hold, error);
	else if (le_error_passes(error) && is_wanted(hold) && (!hold->try || hold->kind == LE_KIND_PROCLAIM))
	{
		s->ask_at = le_add(le_now_ns(), le_jitter(LE_PAUSE));
		send_again(t, i, false);
	}
	else
	{
		if (is_wanted(hold))
			le_hold_over(hold, error);
		le_hold_done(hold);
	}
}

/* What the server has for a request: it was granted, or has a place; perhaps nobody wants it any more. */
static void
adopt(le_hold *hold, const Row *row)
{
	le_session *s = hold->session;
	bool granted = is_event(row, "granted");

	hold->server_token = row->token;
	hold->phase = granted ? LE_PHASE_GRANTED : LE_PHASE_QUEUED;
	hold->pending = false;
	le_link_append(is_wanted(hold) ? &s->held : &s->gives, &hold->link);
	if (!is_wanted(hold))
		return;
	if (row->values[POSITION] != NULL)
		atomic_store(&hold->position, strtoll(row->values[POSITION], NULL, 10));
	s->waiting += !granted;
	if (granted)
		le_hold_held(hold);
	else
	{
		le_sooner(&s->next_until, le_hold_ends(hold));
		le_hold_check_until(hold, le_now_ns());
	}
}

/* The end of a request that the server has nothing of. */
static void
settle(le_hold *hold, le_status status, const char *sqlstate, const char *why)
{
	le_error error;

	le_error_set(&error, status, sqlstate, "%s", why);
	if (is_wanted(hold))
		le_hold_over(hold, &error);
	le_hold_done(hold);
}

static void
take_result(le_session *s, Turn *t, int i, const Row *row)
{
	le_hold *hold = t->holds[i];
	bool gives = t->names[i] >= 0;
	le_error error;

	/* the session has ended, or the whole release is sent again */
	if (hold->phase == LE_PHASE_DONE || (gives && t->names[i] >= hold->given))
		return;
	hold->seen_call = t->call;
	hold->seen_names = hold->n;
	if (is_event(row, "error"))
	{
		le_error_server(&error, row->values[SQLSTATE], row->values[MESSAGE], row->values[HINT]);
		refused(t, i, &error);
	}
	else if (is_event(row, "pending"))
	{
		s->look = true;
		if (gives || hold->kind == LE_KIND_PROCLAIM)
			send_again(t, i, false);
		else
			hold->pending = true;
	}
	else if (gives)
		gave_back(hold, is_event(row, "released"));
	else if (is_event(row, "proclaimed"))
		settle(hold, LE_OK, "", "");
	else if (is_event(row, "not_held"))
		settle(hold, LE_LOST, "LE001", "this term does not lead any more");
	else if (is_event(row, "not_granted"))
		settle(hold, LE_TIMEOUT, "", "somebody else holds it, or is queued for it");
	else
		adopt(hold, row);
}

/* --- news --- */

/* The hold with this token, or the request that was sent with this number. */
static le_hold *
find_hold(le_session *s, int64_t token, int64_t asked)
{
	le_link *lists[] = {&s->held, &s->gives, &s->later, &s->open, &s->asks};

	for (int i = 0; i < 5; i++)
	{
		for (le_link *link = lists[i]->next; link != lists[i]; link = link->next)
		{
			le_hold *hold = le_container(link, le_hold, link);

			if (i < 3
					? hold->server_token == token
					: hold->phase == LE_PHASE_SENT && hold->asked == asked && hold->kind != LE_KIND_PROCLAIM)
				return hold;
		}
	}
	return NULL;
}

/* The number of our request with this owner text; 0: it is none of ours. */
static int64_t
number_of(const le_session *s, const char *owner)
{
	size_t name = strlen(s->name), marker = strlen(s->marker);

	if (owner == NULL || strncmp(owner, s->name, name) != 0 ||
		strncmp(owner + name, s->marker, marker) != 0 || owner[name + marker] != '-')
		return 0;
	return strtoll(owner + name + marker + 1, NULL, 10);
}

/* Nobody wants it any more.  Without memory it is found again later. */
static void
give_ghost_back(le_session *s, const Row *row)
{
	bool term = strcmp(row->values[KIND], "election") == 0;
	le_hold *hold = le_hold_alloc(s, term ? LE_KIND_TERM : LE_KIND_LOCK, &row->values[NAME], 1, NULL);

	if (hold == NULL)
	{
		s->seen[0][0] = s->seen[1][0] = '\0';
		return;
	}
	hold->refs = 1;
	s->refs++;
	hold->server_token = row->token;
	hold->phase = LE_PHASE_GRANTED;
	hold->dropped = true;
	atomic_store(&hold->state, LE_HOLD_OVER);
	le_link_append(&s->gives, &hold->link);
}

/* A hold or a place has ended, or will. */
static void
lose(le_hold *hold, const char *reason, bool evicted)
{
	int state = atomic_load(&hold->state);
	le_error error;

	le_error_set(&error, LE_LOST, "LE001", "the server has ended it (%s)", reason);
	if (state != LE_HOLD_OVER)
		le_hold_over(hold, &error);
	if (!evicted)
		le_hold_done(hold);
	else if (state != LE_HOLD_OVER)
		le_link_append(&hold->session->held, &hold->link); /* until the application gives it back */
}

static void
take_news(le_session *s, const Turn *t, const Row *row)
{
	int64_t asked = number_of(s, row->values[OWNER]);
	le_hold *hold = find_hold(s, row->token, asked);

	if (hold != NULL)
	{
		hold->seen_names = hold->seen_call == t->call ? hold->seen_names + 1 : 1;
		hold->seen_call = t->call;
	}
	if (is_event(row, "lost") || is_event(row, "evicted"))
	{
		if (hold != NULL && hold->server_token == row->token)
			lose(hold, is_event(row, "lost") ? row->values[REASON] : "evicted", is_event(row, "evicted"));
	}
	else if (hold == NULL)
	{
		/* le_orphan() leaves behind what was held, and does not know it any more */
		if (asked != 0 && !s->orphan)
			give_ghost_back(s, row);
	}
	else if (hold->server_token == 0)
		adopt(hold, row);
	else if (is_event(row, "granted") && hold->phase == LE_PHASE_QUEUED)
	{
		if (is_wanted(hold))
			le_hold_held(hold);
		else
			hold->phase = LE_PHASE_GRANTED;
	}
}

/* The reply has everything: what it does not have is lost; a pending request that it does not have was not done. */
static void
compare(le_session *s, const Turn *t)
{
	for (le_link *link = s->held.next, *next; link != &s->held; link = next)
	{
		le_hold *hold = le_container(link, le_hold, link);
		int seen = hold->seen_call == t->call ? hold->seen_names : 0;

		next = link->next;
		if (seen < hold->n && atomic_load(&hold->state) != LE_HOLD_OVER)
			lose(hold, "unknown when", false);
	}
	for (le_link *link = s->open.prev, *prev; link != &s->open; link = prev)
	{
		le_hold *hold = le_container(link, le_hold, link);

		prev = link->prev;
		if (!hold->pending || hold->seen_call == t->call)
			continue;
		hold->pending = false;
		le_link_prepend(&s->asks, link);
	}
}

/* --- the reply --- */

static void
take_head(le_session *s, const Turn *t, const Row *head)
{
	const char *channel = head->values[CHANNEL] != NULL ? head->values[CHANNEL] : "";

	if (head->values[INCARNATION] != NULL)
	{
		snprintf(s->seen[0], sizeof(s->seen[0]), "%s", head->values[INCARNATION]);
		snprintf(s->seen[1], sizeof(s->seen[1]), "%s", head->values[NEWS]);
		if (strcmp(channel, s->channel) != 0)
			s->listens = false;
		snprintf(s->channel, sizeof(s->channel), "%s", channel);
	}
	if (head->values[COMPLETE] != NULL)
		s->bare = false;
	else if (!t->silent)
		s->look = true; /* something is not durable yet */
	if (head->values[VALIDITY] != NULL)
		le_renewed(s, t->sent_at, strtoll(head->values[VALIDITY], NULL, 10) * LE_US_NS);
	else if (!t->silent && s->renew_at <= le_now_ns())
	{
		le_error_set(&s->trouble, LE_UNAVAILABLE, "", "the lease is not durable yet");
		le_renewal_failed(s);
	}
}

static void
reply(le_session *s, Turn *t, const PGresult *result)
{
	Row head = row_of(result, 0);

	if (is_event(&head, "gone"))
	{
		s->lease_gone = true;
		le_end(s, LE_LOST, "LE001", "the server has ended the lease (%s)",
			   head.values[REASON] != NULL ? head.values[REASON] : "unknown");
		return;
	}
	take_head(s, t, &head);
	for (int n = 1; n < PQntuples(result); n++)
	{
		Row row = row_of(result, n);
		int i = row.values[ITEM] != NULL ? atoi(row.values[ITEM]) : -1;

		if (i < 0)
			take_news(s, t, &row);
		else if (i < t->n && t->holds[i] != NULL)
		{
			take_result(s, t, i, &row);
			le_hold_unref(t->holds[i]);
			t->holds[i] = NULL;
		}
	}
	/* what has no row: the call was old */
	for (int i = t->n - 1; i >= 0; i--)
	{
		if (t->holds[i] != NULL)
			send_again(t, i, false);
	}
	if (head.values[COMPLETE] != NULL && head.values[COMPLETE][0] == 't')
		compare(s, t);
}

/* There is no reply, but an error, or the connection is gone. */
static void
failed(le_session *s, Turn *t, bool connected)
{
	le_error error = s->net.error;
	bool alone = connected && t->n == 1 && !le_error_passes(&error);

	le_error_copy(&s->trouble, &error);
	s->bare = !alone;
	if (alone)
		refused(t, 0, &error);
	else if (connected)
	{
		le_renewal_failed(s);
		s->ask_at = le_add(le_now_ns(), le_jitter(LE_PAUSE));
		s->alone = le_error_passes(&error) ? 0 : t->n;
	}
	for (int i = t->n - 1; i >= 0 && !alone; i--)
		send_again(t, i, true);
}

void
le_turn(le_session *s)
{
	const char *end = NULL;
	int woken = s->woken;
	PGresult *result;
	Turn t;

	s->busy = true;
	begin(s, &t);
	le_unlock(s);
	result = call(s, &t);
	if (PQresultStatus(result) != PGRES_TUPLES_OK && s->net.conn != NULL &&
		(end = le_error_ends_connection(&s->net.error)) != NULL)
		le_set_broken(s, "%s", end);
	le_lock(s);
	le_check_deadline(s);
	if (PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) > 0)
		reply(s, &t, result);
	else
		failed(s, &t, s->net.conn != NULL);
	PQclear(result);
	le_text_free(&t.items);
	for (int i = 0; i < t.n; i++)
	{
		if (t.holds[i] != NULL)
			le_hold_unref(t.holds[i]);
	}
	/* those that were woken may have their next requests in the next turn */
	if (s->woken != woken)
	{
		le_unlock(s);
		sched_yield();
		le_lock(s);
	}
	le_give(s);
}
