/*
 * request.c
 *		What the network thread asks of the server for a hold: to be granted or
 *		queued, and to be given back.
 *
 * Every asking has an owner of its own, so that two holds of one session, which
 * hang on one lease, exclude each other, and so that reconcile.c can find what
 * an answer that was lost would have told.
 */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAUSE (100 * LE_MS_NS)

void
le_hold_owner(const le_hold *hold, char owner[LE_OWNER_MAX + LE_MARKER_SIZE])
{
	snprintf(owner, LE_OWNER_MAX + LE_MARKER_SIZE, "%s%s-%lld.%d", hold->session->name, hold->session->marker,
			 (long long) hold->number, hold->attempt);
}

/* --- asking --- */

static void
ask_sql(const le_hold *hold, const char *schema, le_text *sql)
{
	static const char *const try[] = {
		[LE_KIND_LOCK] = "SELECT %s.acquire_lock($1, wait => '0', owner => $2, lease => $3, mode => $4)",
		[LE_KIND_LOCKS] = "SELECT %s.acquire_locks($1, wait => '0', owner => $2, lease => $3, mode => $4)",
		[LE_KIND_PERMIT] =
			"SELECT %s.acquire_permit($1, wait => '0', owner => $2, lease => $3, permits => $4)",
		[LE_KIND_TERM] = "SELECT %s.campaign($1, wait => '0', owner => $2, lease => $3, candidate => $4)",
	};
	static const char *const queue[] = {
		[LE_KIND_LOCK] = "SELECT * FROM %s.enqueue_lock($1, owner => $2, lease => $3, mode => $4)",
		[LE_KIND_LOCKS] = "SELECT * FROM %s.enqueue_locks($1, owner => $2, lease => $3, mode => $4)",
		[LE_KIND_PERMIT] = "SELECT * FROM %s.enqueue_permit($1, owner => $2, lease => $3, permits => $4)",
		[LE_KIND_TERM] = "SELECT * FROM %s.enqueue_candidate($1, owner => $2, lease => $3, candidate => $4)",
	};
	const char *format = (hold->try ? try : queue)[hold->kind], *at = strstr(format, "%s");

	le_text_add(sql, "%.*s%s%s", (int) (at - format), format, schema, at + 2);
}

/* It was granted, or has a place; but the application may not want it any more. */
static void
asked(le_session *s, le_hold *hold, const PGresult *result)
{
	bool granted = hold->try || PQgetvalue(result, 0, 1)[0] == 't';
	le_error error;

	if (PQgetisnull(result, 0, 0))
	{
		le_error_set(&error, LE_TIMEOUT, "", "somebody else holds it, or is queued for it");
		if (atomic_load(&hold->state) == LE_HOLD_WAITING)
			le_hold_over(hold, &error);
		le_hold_done(hold);
		return;
	}
	hold->server_token = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
	hold->phase = granted ? LE_PHASE_GRANTED : LE_PHASE_QUEUED;
	if (atomic_load(&hold->state) == LE_HOLD_OVER)
		le_link_prepend(&s->todo, &hold->link);
	else if (granted)
		le_hold_held(hold);
	else
	{
		atomic_store(&hold->position, strtoll(PQgetvalue(result, 0, 2), NULL, 10));
		hold->channel = le_channel_get(s, PQgetvalue(result, 0, 3));
		le_link_append(&s->queued, &hold->link);
		if (hold->channel != NULL && hold->channel->listening)
			le_queue_announce(s, hold);
	}
}

static void
pause_requests(le_session *s)
{
	s->net.ask_at = le_add(le_now_ns(), le_jitter(PAUSE));
	if (strcmp(s->net.error.sqlstate, "25006") == 0)
	{
		le_unlock(s);
		le_set_broken(s, "the server has become a standby");
		le_lock(s);
	}
}

static void
ask_failed(le_session *s, le_hold *hold)
{
	le_error error = s->net.error;

	if (le_error_is_unknown(&error))
	{
		s->net.lost_answer = true;
		pause_requests(s);
	}
	else if (le_error_passes(&error) && !hold->try && atomic_load(&hold->state) == LE_HOLD_WAITING)
	{
		hold->phase = LE_PHASE_NEW;
		le_link_prepend(&s->todo, &hold->link);
		pause_requests(s);
	}
	else
	{
		if (strcmp(error.sqlstate, "LE001") == 0)
			s->renew_at = 0; /* the lease is gone, it seems */
		if (atomic_load(&hold->state) == LE_HOLD_WAITING)
			le_hold_over(hold, &error);
		le_hold_done(hold);
	}
}

/* A hold that stays SENT is looked for by le_reconcile(). */
static void
ask(le_session *s, le_hold *hold)
{
	char owner[LE_OWNER_MAX + LE_MARKER_SIZE], lease[24], permits[16];
	const char *values[4] = {NULL, owner, lease, hold->shared ? "shared" : "exclusive"};
	le_text sql = {0}, names = {0};
	PGresult *result = NULL;

	hold->attempt++;
	hold->phase = LE_PHASE_SENT;
	le_link_append(&s->sent, &hold->link);
	le_hold_owner(hold, owner);
	snprintf(lease, sizeof(lease), "%lld", (long long) atomic_load(&s->lease));
	snprintf(permits, sizeof(permits), "%d", hold->permits);
	if (hold->kind == LE_KIND_PERMIT)
		values[3] = permits;
	else if (hold->kind == LE_KIND_TERM)
		values[3] = hold->candidate;
	le_unlock(s);

	ask_sql(hold, s->net.schema, &sql);
	le_hold_names(hold, &names);
	values[0] = names.data;
	if (names.failed)
		sql.failed = true;
	result = le_exec_text(s, le_add(le_now_ns(), s->call), &sql, 4, values);
	le_text_free(&names);

	le_lock(s);
	if (hold->phase == LE_PHASE_SENT)
	{
		if (PQresultStatus(result) == PGRES_TUPLES_OK)
			asked(s, hold, result);
		else if (result != NULL || s->net.conn != NULL)
			ask_failed(s, hold);
	}
	PQclear(result);
}

/* --- giving back --- */

static void
release_sql(const le_hold *hold, const char *schema, le_text *sql)
{
	if (hold->kind == LE_KIND_TERM)
		le_text_add(sql, "SELECT %s.resign($1, $2)", schema);
	else if (hold->kind != LE_KIND_LOCKS)
		le_text_add(sql, "SELECT %s.release_lock($1, $2, $3, true)", schema);
	else if (hold->hold_for == 0)
		le_text_add(sql, "SELECT %s.release_locks($1, $2)", schema);
	else
		le_text_add(sql,
					"SELECT pg_catalog.bool_and(%s.release_lock(u.n, $2, $3, true))"
					" FROM pg_catalog.unnest($1::text[]) AS u(n)",
					schema);
}

/*
 * A release that is sent again and finds nothing was done before, as far as
 * anybody knows; whether hold_for took effect then is another question.
 */
void
le_release_answer(le_hold *hold, bool released)
{
	if (hold->release_status == LE_OK && !released)
	{
		if (hold->releases <= 1)
			hold->release_status = LE_LOST;
		else if (hold->hold_for != 0)
			hold->release_status = LE_UNKNOWN;
	}
	le_hold_done(hold);
}

static void
release_failed(le_session *s, le_hold *hold)
{
	le_error error = s->net.error;

	if (hold->hold_for != 0 && error.status == LE_INVALID)
	{
		/* it is released all the same */
		hold->hold_for = 0;
		hold->releases = 0;
		hold->release_status = LE_INVALID;
		le_error_copy(&hold->error, &error);
	}
	else if (le_error_passes(&error) || error.status == LE_LIMIT || error.status == LE_NO_MEMORY)
		pause_requests(s);
	else
	{
		/* perhaps a right was taken away: the others' turn, and nobody waits for this one */
		hold->release_status = LE_UNKNOWN;
		le_error_copy(&hold->error, &error);
		hold->release_done = true;
		pthread_cond_broadcast(&hold->changed);
		le_link_append(&s->refused, &hold->link);
	}
}

static void
release(le_session *s, le_hold *hold)
{
	char token[24], hold_for[32];
	const char *values[3] = {NULL, token, hold->hold_for != 0 ? hold_for : NULL};
	le_text sql = {0}, names = {0};
	bool three = hold->kind != LE_KIND_TERM && (hold->kind != LE_KIND_LOCKS || hold->hold_for != 0);
	PGresult *result;

	snprintf(token, sizeof(token), "%lld", (long long) hold->server_token);
	snprintf(hold_for, sizeof(hold_for), "%d ms", hold->hold_for);
	release_sql(hold, s->net.schema, &sql);
	hold->releases++;
	le_unlock(s);

	le_hold_names(hold, &names);
	values[0] = names.data;
	if (names.failed)
		sql.failed = true;
	result = le_exec_text(s, le_add(le_now_ns(), s->call), &sql, three ? 3 : 2, values);
	le_text_free(&names);

	le_lock(s);
	if (hold->phase != LE_PHASE_DONE)
	{
		if (PQresultStatus(result) == PGRES_TUPLES_OK)
			le_release_answer(hold, PQgetvalue(result, 0, 0)[0] == 't');
		else if (result != NULL || s->net.conn != NULL)
			release_failed(s, hold);
	}
	PQclear(result);
}

void
le_request(le_session *s, le_hold *hold)
{
	hold->refs++;
	if (atomic_load(&hold->state) == LE_HOLD_WAITING)
		ask(s, hold);
	else if (hold->server_token != 0)
		release(s, hold);
	else
		le_hold_done(hold);
	le_hold_unref(hold);
}
