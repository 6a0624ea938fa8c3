/*
 * reconcile.c
 *		What has become of statements whose answer was lost.
 *
 * Every statement that asks has an owner of its own, which lease_holds() tells,
 * and asks once for a name.  So a place or a hold of our lease whose token
 * we do not know is either one that was asked for when the connection broke:
 * then it is ours, in its old order.  Or nobody waits for it any more: then it
 * is given back.
 *
 * Before looking, the backend of the broken connection must be gone, or it
 * could still take a place that nobody knows of: the new connection ends it.
 * Behind a pooler there is no knowing which it was, and a role that was set for
 * the session may not end it; there we look again later.
 *
 * To ask again would answer the same token, for on a named lease a place is
 * taken once.  It is not enough: a permit is taken each time; and a request
 * that is carried out after its hold was given back takes a place that only the
 * views show, and that our renewals would keep for ever.
 */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAUSE  (30 * LE_MS_NS)
#define REPEAT 3

/* How long the server waits for the old backend's end. */
#define END_MS 250

/* NULL: the role may not end it.  Each session of the login role may have been given another role. */
static const char end_sql[] = "SELECT CASE WHEN pg_catalog.pg_has_role(usesysid, 'USAGE') THEN "
							  "pg_catalog.pg_terminate_backend(pid, $3) END"
							  " FROM pg_catalog.pg_stat_activity WHERE pid OPERATOR(pg_catalog.=) $1 AND "
							  "backend_start OPERATOR(pg_catalog.=) $2";

/* Locked at entry and exit. */
static void
again_soon(le_session *s, int64_t delay)
{
	s->net.lost_answer = true;
	s->net.ask_at = le_add(le_now_ns(), delay);
}

/*
 * No row: it was gone already.  False: it may be there still, or has gone while the
 * server looked.  This connection has nothing to lose meanwhile: where it breaks, the old
 * one is still the one to be ended.
 */
bool
le_end_old_backend(le_session *s)
{
	le_net *net = &s->net;
	int64_t wait_ms = le_ms_up(s->call / 2);
	char old[16], timeout[24];
	const char *values[] = {old, net->old_start, timeout};
	PGresult *result;
	int pid = net->pid;

	if (net->old_pid == 0)
		return true;
	snprintf(old, sizeof(old), "%d", net->old_pid);
	snprintf(timeout, sizeof(timeout), "%lld", (long long) (wait_ms < END_MS ? wait_ms : END_MS));
	net->pid = 0;
	result = le_exec(s, le_add(le_now_ns(), s->call), end_sql, 3, values);
	if (result == NULL)
		return false;
	net->pid = pid;
	if (PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) > 0 && PQgetisnull(result, 0, 0))
		net->not_ended = true;
	if (PQresultStatus(result) == PGRES_TUPLES_OK &&
		(PQntuples(result) == 0 || PQgetvalue(result, 0, 0)[0] != 'f'))
		net->old_pid = 0;
	PQclear(result);
	return true;
}

static bool
has_name(const le_hold *hold, const char *name)
{
	for (int i = 0; i < hold->n; i++)
	{
		if (strcmp(hold->names[i], name) == 0)
			return true;
	}
	return false;
}

/*
 * The hold with this token or, if it is not known, the one that was asked for by
 * this name under this owner: one statement may have asked for many.
 */
static le_hold *
find_hold(le_session *s, int64_t token, const char *name, const char *owner)
{
	le_link *lists[] = {&s->todo, &s->queued, &s->granted, &s->sent, &s->refused};
	char asked[LE_OWNER_MAX + LE_MARKER_SIZE];

	for (int i = 0; i < 5; i++)
	{
		for (le_link *link = lists[i]->next; link != lists[i]; link = link->next)
		{
			le_hold *hold = le_container(link, le_hold, link);

			if (hold->server_token == token)
				return hold;
			if (hold->phase != LE_PHASE_SENT)
				continue;
			le_hold_owner(hold, asked);
			if (strcmp(asked, owner) == 0 && has_name(hold, name))
				return hold;
		}
	}
	return NULL;
}

static void
adopt(le_session *s, le_hold *hold, int64_t token, int64_t position, const char *channel)
{
	hold->server_token = token;
	hold->phase = position == 0 ? LE_PHASE_GRANTED : LE_PHASE_QUEUED;
	if (atomic_load(&hold->state) == LE_HOLD_OVER)
		le_link_prepend(&s->todo, &hold->link);
	else if (position == 0)
		le_hold_held(hold);
	else
	{
		atomic_store(&hold->position, position);
		hold->channel = le_channel_get(s, channel);
		le_link_append(&s->queued, &hold->link);
		le_hold_answered(hold);
	}
}

/* Not locked.  Nobody knows of it. */
static void
release_ghost(le_session *s, const char *kind, const char *name, const char *token)
{
	const char *values[] = {name, token};
	le_text sql = {0};

	le_text_add(&sql, "SELECT @extschema@.%s($1, $2)",
				strcmp(kind, "election") == 0 ? "resign" : "release_lock");
	PQclear(le_exec_text(s, le_add(le_now_ns(), s->call), &sql, 2, values));
}

static void
found(le_session *s, const PGresult *result, int row)
{
	int64_t token = strtoll(PQgetvalue(result, row, 2), NULL, 10);
	const char *owner = PQgetvalue(result, row, 3);
	size_t name = strlen(s->name);
	le_hold *hold;

	/* what the application has hung on the lease by itself is none of ours */
	if (strncmp(owner, s->name, name) != 0 || strncmp(owner + name, s->marker, strlen(s->marker)) != 0)
		return;
	hold = find_hold(s, token, PQgetvalue(result, row, 1), owner);
	/* le_orphan() leaves behind what was held, and does not know it any more */
	if (hold == NULL && s->orphan)
		return;
	if (hold == NULL)
	{
		le_unlock(s);
		release_ghost(s, PQgetvalue(result, row, 0), PQgetvalue(result, row, 1), PQgetvalue(result, row, 2));
		le_lock(s);
	}
	else if (hold->server_token != token)
		adopt(s, hold, token, strtoll(PQgetvalue(result, row, 4), NULL, 10), PQgetvalue(result, row, 5));
}

/* What is not there was not done: it is asked for again. */
static void
ask_again(le_session *s)
{
	while (!le_link_empty(&s->sent))
	{
		le_hold *hold = le_container(s->sent.prev, le_hold, link);

		hold->phase = LE_PHASE_NEW;
		if (atomic_load(&hold->state) == LE_HOLD_OVER)
			le_hold_done(hold);
		else
			le_link_prepend(&s->todo, &hold->link);
	}
}

static void
look_for(le_session *s)
{
	char lease[24];
	const char *values[] = {lease};
	/* of several names the one that is farthest back tells how far */
	static const char sql[] = "SELECT kind, name, token, owner, queue_position, channel"
							  " FROM @extschema@.lease_holds($1) ORDER BY queue_position DESC";
	PGresult *result;

	snprintf(lease, sizeof(lease), "%lld", (long long) atomic_load(&s->lease));
	le_unlock(s);
	result = le_exec(s, le_add(le_now_ns(), s->call), sql, 1, values);
	le_lock(s);
	/* nothing hangs on a lease that has ended */
	if (PQresultStatus(result) != PGRES_TUPLES_OK && strcmp(s->net.error.sqlstate, "LE001") != 0)
		again_soon(s, le_jitter(s->poll));
	else
	{
		for (int row = 0; row < PQntuples(result); row++)
			found(s, result, row);
		if (s->net.conn != NULL)
			ask_again(s);
	}
	PQclear(result);
}

void
le_reconcile(le_session *s)
{
	le_net *net = &s->net;
	bool late = net->reconcile_left > 0 && !net->lost_answer, lost = net->lost_answer;

	net->lost_answer = false;
	le_unlock(s);
	(void) le_end_old_backend(s);
	le_lock(s);
	if (net->conn == NULL || net->old_pid != 0)
	{
		again_soon(s, PAUSE);
		return;
	}
	if (lost && (net->pooled || net->not_ended) && !le_link_empty(&s->sent))
		net->reconcile_left = REPEAT + 1;
	if (late || !le_link_empty(&s->sent))
		look_for(s);
	if (net->reconcile_left > 0)
	{
		net->reconcile_left--;
		net->reconcile_at = le_add(le_now_ns(), s->call);
	}
}
