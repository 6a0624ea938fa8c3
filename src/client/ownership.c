/*
 * ownership.c
 *		Lets one thread at a time own the connection.  A renewal that is due has
 *		priority.
 */
#include "ownership.h"

#include "connection.h"
#include "due.h"
#include "error.h"
#include "objects.h"
#include "state.h"

void
le_wait_changed(le_session *s, int64_t until)
{
	s->watchers++;
	le_cond_wait(&s->changed, &s->lock, until);
	s->watchers--;
}

void
le_give(le_session *s)
{
	if (s->connected && s->net.conn == NULL)
		le_error_copy(&s->trouble, &s->net.error);
	s->connected = s->net.conn != NULL;
	s->busy = false;
	if (s->watchers > 0)
		pthread_cond_broadcast(&s->changed);
	le_wake_net(s);
}

bool
le_is_free(const le_session *s)
{
	return !s->busy && s->connected && !(le_is_alive(s) && s->renew_at <= le_now_ns());
}

le_status
le_take(le_session *s, int64_t until, le_error *error)
{
	bool taken;

	s->asking++;
	while (!(taken = le_is_free(s)) && !s->closing && le_now_ns() < until)
	{
		int64_t at = until;

		if (le_is_alive(s))
			le_sooner(&at, atomic_load(&s->deadline));
		le_wait_changed(s, at);
		le_check_deadline(s);
	}
	s->asking--;
	taken &= !s->closing && le_now_ns() < until;
	if (!taken && s->watchers > 0)
		pthread_cond_broadcast(&s->changed); /* the session thread may be waiting for this thread to run */
	if (s->closing)
		return le_error_copy(error, &s->error);
	if (!taken)
		return le_error_set(error, LE_UNAVAILABLE, "", "the server has not answered in time%s%s",
							s->trouble.message[0] != '\0' ? ": " : "", s->trouble.message);
	s->busy = true;
	return LE_OK;
}

/* Waits at most half of call_ms for the connection, so that the other half remains for the statement. */
PGresult *
le_ask(le_session *s, const char *sql, int n, const char *const *values, le_error *error)
{
	int64_t until = le_add(le_now_ns(), s->call / 2), pause;
	PGresult *result = NULL;
	bool again = true;

	while (result == NULL && again && le_take(s, until, error) == LE_OK)
	{
		/* run the statement */
		s->net.until = le_add(until, s->call / 2);
		le_unlock(s);
		result = le_exec(s, sql, n, values);
		le_lock(s);
		s->net.until = LE_NEVER;
		if (PQresultStatus(result) != PGRES_TUPLES_OK)
		{
			le_error_copy(&s->trouble, &s->net.error);
			le_error_copy(error, &s->trouble);
			again = le_error_passes(&s->trouble);
			PQclear(result);
			result = NULL;
		}
		le_give(s);
		/* pause before a retry */
		pause = le_add(le_now_ns(), LE_RETRY_FIRST);
		while (result == NULL && again && !s->closing && le_now_ns() < pause)
			le_wait_changed(s, pause);
	}
	return result;
}
