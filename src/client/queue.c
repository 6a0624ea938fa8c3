/*
 * queue.c
 *		How waiters learn of their grants, all through one connection.
 *
 * A grant is announced on the channel of its name.  The announcement is a hint
 * and may be lost, so all waiters are looked at now and then, many in one
 * statement, and those that were announced at once.  is_held() decides.  The
 * order is: enqueue, which tells the channel; LISTEN; look.  So nothing can
 * come between.
 *
 * Behind a pooler LISTEN is swallowed: the connection listens for some time to
 * somebody else's client.  A pooler has another process id than the server, and
 * then waiters are looked at every poll_ms.
 */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* With LISTEN, all are looked at this often. */
#define LOOK_INTERVAL (5 * LE_SEC_NS)
/* A notification to ourselves comes with the answer; this is patience. */
#define TEST_PATIENCE (300 * LE_MS_NS)

/* --- channels --- */

le_channel *
le_channel_get(le_session *s, const char *name)
{
	le_channel *channel;

	for (le_link *link = s->channels.next; link != &s->channels; link = link->next)
	{
		channel = le_container(link, le_channel, link);
		if (strcmp(channel->name, name) == 0)
		{
			channel->refs++;
			return channel;
		}
	}
	if (strlen(name) >= LE_CHANNEL_SIZE)
		return NULL;
	channel = calloc(1, sizeof(*channel));
	if (channel == NULL)
		return NULL;
	snprintf(channel->name, sizeof(channel->name), "%s", name);
	channel->refs = 1;
	le_link_init(&channel->link);
	le_link_append(&s->channels, &channel->link);
	return channel;
}

/* The network thread removes it when it does not listen any more. */
void
le_channel_put(le_channel *channel)
{
	channel->refs--;
}

void
le_channels_free(le_session *s)
{
	while (!le_link_empty(&s->channels))
	{
		le_channel *channel = le_container(s->channels.next, le_channel, link);

		le_link_remove(&channel->link);
		free(channel);
	}
}

void
le_queue_lost(le_session *s)
{
	for (le_link *link = s->channels.next; link != &s->channels; link = link->next)
		le_container(link, le_channel, link)->listening = false;
	s->net.check_at = 0;
}

void
le_queue_connected(le_session *s)
{
	s->net.listen_tested = s->net.listen_works = false;
	s->net.check_at = 0;
}

/* Does this connection hear what is sent to it? */
bool
le_queue_test(le_session *s)
{
	le_net *net = &s->net;
	int64_t until;
	char sql[200];

	net->listen_tested = true;
	net->listen_works = false;
	if (s->options.listen < 0 || (s->options.listen == 0 && (net->pooled || !net->listen_terms)))
		return true;
	net->heard = false;
	snprintf(net->heard_name, sizeof(net->heard_name), "le_self_%s", s->marker + 1);
	snprintf(sql, sizeof(sql), "LISTEN \"%s\"; NOTIFY \"%s\"", net->heard_name, net->heard_name);
	le_unlock(s);
	PQclear(le_exec(s, le_add(le_now_ns(), s->call), sql, -1, NULL));
	until = le_add(le_now_ns(), TEST_PATIENCE);
	while (net->conn != NULL && !net->heard && le_now_ns() < until)
	{
		le_idle(s, until);
		le_receive(s);
	}
	snprintf(sql, sizeof(sql), "UNLISTEN \"%s\"", net->heard_name);
	PQclear(le_exec(s, le_add(le_now_ns(), s->call), sql, -1, NULL));
	le_lock(s);
	net->listen_works = net->conn != NULL && net->heard;
	return true;
}

void
le_queue_announce(le_session *s, le_hold *hold)
{
	hold->hint = true;
	le_link_prepend(&s->queued, &hold->link);
}

/* The connection listens from now on: what was granted before is seen by looking. */
static void
hear(le_session *s)
{
	for (le_link *link = s->queued.next, *next; link != &s->queued; link = next)
	{
		le_hold *hold = le_container(link, le_hold, link);

		next = link->next;
		if (hold->channel != NULL && hold->channel->fresh)
			le_queue_announce(s, hold);
	}
	for (le_link *link = s->channels.next; link != &s->channels; link = link->next)
	{
		le_channel *channel = le_container(link, le_channel, link);

		if (channel->fresh)
			le_observers_due(s, channel);
		channel->fresh = false;
	}
}

/* LISTEN and UNLISTEN for all that has changed.  True: something was sent. */
static bool
update_channels(le_session *s)
{
	le_text sql = {0};
	PGresult *result;
	bool ok;

	for (le_link *link = s->channels.next, *next; link != &s->channels; link = next)
	{
		le_channel *channel = le_container(link, le_channel, link);

		next = link->next;
		channel->fresh = channel->refs > 0 && !channel->listening;
		if (channel->refs > 0 && !channel->listening)
			le_text_add(&sql, "LISTEN %s;", channel->name);
		else if (channel->refs == 0 && channel->listening)
			le_text_add(&sql, "UNLISTEN %s;", channel->name);
		if (channel->refs == 0)
		{
			le_link_remove(link);
			free(channel);
		}
		else
			channel->listening = true;
	}
	if (sql.len == 0 && !sql.failed)
		return false;
	le_unlock(s);
	result = le_exec_text(s, le_add(le_now_ns(), s->call), &sql, -1, NULL);
	ok = PQresultStatus(result) == PGRES_COMMAND_OK;
	PQclear(result);
	le_lock(s);
	if (ok)
		hear(s);
	else if (s->net.conn != NULL)
	{
		/* refused: this connection polls */
		s->net.listen_works = false;
		le_queue_lost(s);
	}
	return true;
}

/* --- notifications --- */

/* The number behind "key":" in a payload; 0: none. */
static int64_t
number_in(const char *payload, const char *key)
{
	char pattern[24];
	const char *at;

	snprintf(pattern, sizeof(pattern), "\"%s\":\"", key);
	at = strstr(payload, pattern);
	return at != NULL ? strtoll(at + strlen(pattern), NULL, 10) : 0;
}

void
le_notified(le_session *s, const char *channel, const char *payload)
{
	int64_t token = number_in(payload, "token");

	if (token == 0)
		token = number_in(payload, "term");
	if (strcmp(channel, s->net.heard_name) == 0)
		s->net.heard = true;
	le_lock(s);
	for (le_link *link = s->queued.next; link != &s->queued; link = link->next)
	{
		le_hold *hold = le_container(link, le_hold, link);

		if (hold->server_token == token && !hold->hint)
		{
			le_queue_announce(s, hold);
			break;
		}
	}
	for (le_link *link = s->channels.next; link != &s->channels; link = link->next)
	{
		le_channel *c = le_container(link, le_channel, link);

		if (strcmp(c->name, channel) == 0)
			le_observers_due(s, c);
	}
	le_unlock(s);
}

/* --- looks --- */

void
le_look_add(le_look *look, le_hold *hold)
{
	const char *comma = look->n == 0 ? "{" : ",";

	hold->refs++;
	look->holds[look->n++] = hold;
	le_text_add(&look->names, "%s", comma);
	le_text_add_element(&look->names, hold->names[0]);
	le_text_add(&look->tokens, "%s%lld", comma, (long long) hold->server_token);
	le_text_add(&look->terms, "%s%c", comma, hold->kind == LE_KIND_TERM ? 't' : 'f');
}

void
le_look_sql(int first, le_text *sql)
{
	le_text_add(
		sql,
		"ARRAY(SELECT u.o FROM ROWS FROM (pg_catalog.unnest($%d::pg_catalog.text[]), "
		"pg_catalog.unnest($%d::pg_catalog.int8[]),"
		" pg_catalog.unnest($%d::pg_catalog.bool[])) WITH ORDINALITY AS u(n, t, e, o)"
		" WHERE CASE WHEN u.e THEN @extschema@.is_leader(u.n, u.t) ELSE @extschema@.is_held(u.n, u.t) END)",
		first, first + 1, first + 2);
}

/* Closes the arrays. */
bool
le_look_failed(le_look *look)
{
	if (look->n > 0)
	{
		le_text_add(&look->names, "}");
		le_text_add(&look->tokens, "}");
		le_text_add(&look->terms, "}");
	}
	return look->names.failed || look->tokens.failed || look->terms.failed;
}

void
le_look_apply(le_session *s, le_look *look, const char *held)
{
	bool is_held[LE_CHECK_MAX] = {false};
	le_error lost;

	(void) s;
	le_error_set(&lost, LE_LOST, "LE001",
				 "the server has ended it: released by force, or with another token");
	for (const char *p = held + 1; *p >= '0' && *p <= '9';)
	{
		char *end;
		long o = strtol(p, &end, 10);

		if (o >= 1 && o <= look->n)
			is_held[o - 1] = true;
		p = *end == ',' ? end + 1 : end;
	}
	for (int i = 0; i < look->n; i++)
	{
		le_hold *hold = look->holds[i];
		int state = atomic_load(&hold->state);

		if (state == LE_HOLD_WAITING && hold->phase == LE_PHASE_QUEUED && is_held[i])
			le_hold_held(hold);
		else if (state == LE_HOLD_HELD && hold->phase == LE_PHASE_GRANTED && !is_held[i])
		{
			le_hold_over(hold, &lost);
			le_hold_done(hold);
		}
	}
}

void
le_look_free(le_look *look)
{
	for (int i = 0; i < look->n; i++)
		le_hold_unref(look->holds[i]);
	le_text_free(&look->names);
	le_text_free(&look->tokens);
	le_text_free(&look->terms);
}

/* The first of the queue in turn: the announced ones, or as many as fit. */
static void
choose(le_session *s, le_look *look, bool all)
{
	le_link *last = s->queued.prev;

	while (!le_link_empty(&s->queued) && look->n < LE_CHECK_MAX)
	{
		le_link *link = s->queued.next;
		le_hold *hold = le_container(link, le_hold, link);

		if (!all && !hold->hint)
			break;
		hold->hint = false;
		le_link_append(&s->queued, link);
		le_look_add(look, hold);
		if (link == last)
			break;
	}
}

/* Locked at entry and exit.  Returns the number of holds that were looked at, -1 after a failure. */
static int
look(le_session *s, bool all)
{
	le_look *l = calloc(1, sizeof(*l));
	le_text sql = {0};
	PGresult *result = NULL;
	int n;

	if (l == NULL)
	{
		s->net.ask_at = le_add(le_now_ns(), s->poll);
		return -1;
	}
	choose(s, l, all);
	le_unlock(s);
	le_text_add(&sql, "SELECT ");
	le_look_sql(1, &sql);
	if (le_look_failed(l))
		sql.failed = true;
	result = le_exec_text(s, le_add(le_now_ns(), s->call), &sql, 3,
						  (const char *[]){l->names.data, l->tokens.data, l->terms.data});
	le_lock(s);
	n = PQresultStatus(result) == PGRES_TUPLES_OK ? l->n : -1;
	if (n >= 0)
		le_look_apply(s, l, PQgetvalue(result, 0, 0));
	else
	{
		/* to the front again: a hint behind a hold without one is not seen */
		for (int i = l->n - 1; i >= 0; i--)
		{
			le_hold *hold = l->holds[i];

			if (hold->phase == LE_PHASE_QUEUED && atomic_load(&hold->state) == LE_HOLD_WAITING)
				le_queue_announce(s, hold);
		}
		s->net.ask_at = le_add(le_now_ns(), s->poll);
	}
	PQclear(result);
	le_look_free(l);
	free(l);
	return n;
}

/* One that still waits, each time another one: a place that is gone is not told by is_held(). */
static void
verify_one(le_session *s)
{
	le_hold *hold = le_container(s->queued.next, le_hold, link);
	le_text sql = {0}, names = {0};
	char token[24];
	const char *values[] = {NULL, token};
	PGresult *result;

	hold->refs++;
	le_link_append(&s->queued, &hold->link);
	snprintf(token, sizeof(token), "%lld", (long long) hold->server_token);
	le_unlock(s);
	le_text_add(&sql, "SELECT @extschema@.%s($1, $2)",
				hold->kind == LE_KIND_TERM    ? "await_leadership"
				: hold->kind == LE_KIND_LOCKS ? "await_locks"
											  : "await_lock");
	le_hold_names(hold, &names);
	values[0] = names.data;
	sql.failed |= names.failed;
	result = le_exec_text(s, le_add(le_now_ns(), s->call), &sql, 2, values);
	le_text_free(&names);
	le_lock(s);
	if (atomic_load(&hold->state) == LE_HOLD_WAITING && hold->phase == LE_PHASE_QUEUED && result != NULL)
	{
		if (PQresultStatus(result) != PGRES_TUPLES_OK && strcmp(s->net.error.sqlstate, "LE001") == 0)
		{
			le_hold_over(hold, &s->net.error);
			le_hold_done(hold);
		}
		else if (PQresultStatus(result) == PGRES_TUPLES_OK && PQgetvalue(result, 0, 0)[0] == 't')
			le_hold_held(hold);
	}
	le_hold_unref(hold);
	PQclear(result);
}

/* --- what is to be done --- */

static int
count_queued(const le_session *s)
{
	int n = 0;

	for (const le_link *link = s->queued.next; link != &s->queued; link = link->next)
		n++;
	return n;
}

/* A round over all who wait, in as many statements as it takes. */
static void
look_at_all(le_session *s)
{
	int left = count_queued(s);
	bool hears = s->net.listen_works && s->net.listen_locks;

	while (left > 0 && !le_link_empty(&s->queued) && !le_renewal_is_due(s, le_now_ns()))
	{
		int n = look(s, true);

		if (n <= 0)
			return;
		left -= n;
	}
	if (!le_link_empty(&s->queued))
		verify_one(s);
	s->net.check_at = le_add(le_now_ns(), le_jitter(hears ? LOOK_INTERVAL : s->poll));
}

static void
demand_listen(le_session *s)
{
	le_error error;

	le_error_set(&error, LE_UNAVAILABLE, "", "LISTEN does not work on this connection");
	while (!le_link_empty(&s->queued))
		le_hold_over(le_container(s->queued.next, le_hold, link), &error);
}

bool
le_queue_is_urgent(const le_session *s, int64_t now)
{
	if (le_link_empty(&s->queued) || !s->net.listen_tested)
		return false;
	return le_container(s->queued.next, le_hold, link)->hint ||
		   (s->net.check_at != 0 && now >= le_add(s->net.check_at, s->poll));
}

bool
le_queue_work(le_session *s, int64_t now, int64_t *next)
{
	le_net *net = &s->net;

	if (le_link_empty(&s->channels) && le_link_empty(&s->queued))
	{
		net->check_at = 0;
		return false;
	}
	if (!net->listen_tested)
		return le_queue_test(s);
	if (s->options.listen == 1 && !net->listen_works && !le_link_empty(&s->queued))
	{
		demand_listen(s);
		return true;
	}
	if (net->listen_works && update_channels(s))
		return true;
	if (le_link_empty(&s->queued))
		return false;
	if (le_container(s->queued.next, le_hold, link)->hint)
	{
		look(s, false);
		return true;
	}
	if (now >= net->check_at)
	{
		look_at_all(s);
		return true;
	}
	if (net->check_at < *next)
		*next = net->check_at;
	return false;
}
