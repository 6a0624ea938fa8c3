/*
 * lease.c
 *		The lease of a session: granted, kept alive, revoked.  All of this is
 *		the network thread's.
 *
 * A renewal also looks at some of the holds, in the same statement: so a hold
 * that an administrator has ended is noticed, and a grant whose notification
 * was dropped, without a round trip more.  After a failure the next renewal
 * goes without that.
 */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t
call_limit(const le_session *s)
{
	return le_add(le_now_ns(), s->call);
}

bool
le_grant(le_session *s)
{
	char ttl[32];
	const char *values[] = {ttl, s->marker};
	int64_t sent_at = le_now_ns();
	PGresult *result;
	bool ok;

	snprintf(ttl, sizeof(ttl), "%d ms", s->options.ttl_ms);
	result = le_exec(s, le_add(sent_at, s->call), "SELECT @extschema@.grant_lease($1, $2)", 2, values);
	ok = PQresultStatus(result) == PGRES_TUPLES_OK;
	if (ok)
	{
		le_lock(s);
		atomic_store(&s->lease, strtoll(PQgetvalue(result, 0, 0), NULL, 10));
		s->lease_gone = s->revoked = false;
		s->renew_failures = 0;
		s->renew_at = le_add(sent_at, le_jitter(s->ttl / 3));
		atomic_store(&s->deadline, le_add(sent_at, s->ttl - s->margin));
		atomic_store(&s->withheld, 0);
		if (s->opened)
			le_set_state(s, LE_CONNECTED);
		else
			atomic_store(&s->state, LE_CONNECTED);
		le_error_clear(&s->error);
		le_unlock(s);
	}
	PQclear(result);
	return ok;
}

/*
 * Without progress of the application nothing is renewed.  Whoever reports some
 * at this moment sees the flag, or is seen here.
 */
static bool
has_progress(le_session *s, int64_t now)
{
	if (s->progress == 0)
		return true;
	if (now - atomic_load(&s->progress_at) < s->progress)
	{
		atomic_store(&s->withheld, 0);
		return true;
	}
	atomic_store(&s->withheld, 1);
	if (now - atomic_load(&s->progress_at) >= s->progress)
		return false;
	atomic_store(&s->withheld, 0);
	return true;
}

bool
le_renewal_is_due(le_session *s, int64_t now)
{
	int state = atomic_load(&s->state);

	return (state == LE_CONNECTED || state == LE_SUSPENDED) && now >= s->renew_at && has_progress(s, now);
}

/* The next of a list in turn, up to a number of holds in all. */
static void
look_at(le_look *look, le_link *list, int max)
{
	le_link *last = list->prev;

	while (!le_link_empty(list) && look->n < max)
	{
		le_link *link = list->next;

		le_link_append(list, link);
		le_look_add(look, le_container(link, le_hold, link));
		if (link == last)
			break;
	}
}

static void
renewal_failed(le_session *s)
{
	int64_t delay, most = le_retry_most(s);
	const char *end;

	le_lock(s);
	le_error_copy(&s->trouble, &s->net.error);
	if (atomic_load(&s->state) == LE_CONNECTED)
		le_set_state(s, LE_SUSPENDED);
	delay = LE_RETRY_FIRST << (s->renew_failures < 6 ? s->renew_failures : 6);
	s->renew_failures++;
	s->renew_at = le_add(le_now_ns(), le_jitter(delay < most ? delay : most));
	le_unlock(s);
	if (s->net.conn != NULL && (end = le_error_ends_connection(&s->net.error)) != NULL)
		le_set_broken(s, "%s", end);
}

static void
renewal_answered(le_session *s, const PGresult *result, le_look *look, int64_t sent_at)
{
	le_lock(s);
	/* meanwhile another thread may have ended the session; none but this one begins another lease */
	if (atomic_load(&s->state) == LE_ENDED)
		;
	else if (PQgetisnull(result, 0, 0))
	{
		s->lease_gone = true;
		le_end(s, LE_LOST, "LE001", "the server has ended the lease");
	}
	else
	{
		le_renewed(s, sent_at, strtoll(PQgetvalue(result, 0, 0), NULL, 10) * LE_US_NS);
		if (look->n > 0)
			le_look_apply(s, look, PQgetvalue(result, 0, 1));
	}
	le_unlock(s);
}

void
le_renew(le_session *s)
{
	le_look *look = calloc(1, sizeof(*look));
	char lease[24];
	const char *values[4] = {lease};
	le_text sql = {0};
	int64_t sent_at;
	PGresult *result;

	if (look == NULL)
	{
		le_error_set(&s->net.error, LE_NO_MEMORY, "", "out of memory");
		renewal_failed(s);
		return;
	}
	le_lock(s);
	if (s->renew_failures == 0)
	{
		look_at(look, &s->granted, LE_RENEW_CHECK_MAX / 2);
		look_at(look, &s->queued, LE_RENEW_CHECK_MAX);
	}
	le_unlock(s);
	snprintf(lease, sizeof(lease), "%lld", (long long) atomic_load(&s->lease));
	le_text_add(&sql, "SELECT (extract(epoch FROM @extschema@.keep_alive($1)) OPERATOR(pg_catalog.*) "
					  "1000000)::pg_catalog.int8");
	if (look->n > 0)
	{
		le_text_add(&sql, ", ");
		le_look_sql(2, &sql);
	}
	values[1] = look->names.data;
	values[2] = look->tokens.data;
	values[3] = look->terms.data;
	sent_at = le_now_ns();
	if (le_look_failed(look))
	{
		le_error_set(&s->net.error, LE_NO_MEMORY, "", "out of memory");
		le_text_free(&sql);
		result = NULL;
	}
	else
		result = le_exec_text(s, call_limit(s), &sql, look->n > 0 ? 4 : 1, values);
	if (PQresultStatus(result) == PGRES_TUPLES_OK)
		renewal_answered(s, result, look, sent_at);
	else
		renewal_failed(s);
	PQclear(result);
	le_lock(s);
	le_look_free(look);
	le_unlock(s);
	free(look);
}

void
le_revoke(le_session *s)
{
	char lease[24];
	const char *values[] = {lease};
	PGresult *result;

	snprintf(lease, sizeof(lease), "%lld", (long long) atomic_load(&s->lease));
	result = le_exec(s, call_limit(s), "SELECT @extschema@.revoke_lease($1)", 1, values);
	le_lock(s);
	s->revoked = PQresultStatus(result) == PGRES_TUPLES_OK;
	le_unlock(s);
	PQclear(result);
}
