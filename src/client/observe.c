/*
 * observe.c
 *		Observers of elections.
 *
 * What has happened is in election_history(), in order and without gaps; a
 * notification only says when to look.  The network thread reads some changes
 * behind the last one that was told, the callback thread tells them, and only
 * then more is read.  So nothing is missed or told twice over a reconnect, and
 * a slow callback costs no memory.
 */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define READ_INTERVAL (5 * LE_SEC_NS)
#define READ_PATIENCE LE_SEC_NS
#define PAUSE         (100 * LE_MS_NS)

enum
{
	CHANGE,
	TERM,
	HOW,
	CANDIDATE,
	ELECTED_AT,
	CHANGED_AT
};

#define COLUMNS                                                                                              \
	"change, term, how, candidate, (extract(epoch FROM elected_at) OPERATOR(pg_catalog.*) "                  \
	"1000000)::pg_catalog.int8,"                                                                             \
	" (extract(epoch FROM changed_at) OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8"

/* --- the application's side --- */

le_status
le_observe(le_session *session, const char *election, int64_t after,
		   void (*on_change)(const le_change *change, void *arg), void *arg, le_observer **observer,
		   le_error *error)
{
	le_observer *o;
	le_status status;

	le_error_clear(error);
	status = le_check_pointer(observer, "observer", error);
	if (status != LE_OK)
		return status;
	*observer = NULL;
	status = le_check_session(session, error);
	if (status == LE_OK)
		status = le_check_election(election, error);
	if (status == LE_OK && after < -1)
		status = le_error_set(
			error, LE_INVALID, "",
			"after is %lld: -1 (the leader now), 0 (all changes) and numbers of changes are allowed",
			(long long) after);
	if (status == LE_OK && on_change == NULL)
		status = le_error_set(error, LE_INVALID, "", "on_change is NULL");
	if (status != LE_OK)
		return status;
	o = calloc(1, sizeof(*o));
	if (o != NULL && ((o->election = le_copy(election)) == NULL || le_cond_init(&o->changed) != 0))
	{
		free(o->election);
		free(o);
		o = NULL;
	}
	if (o == NULL)
		return le_error_set(error, LE_NO_MEMORY, "", "out of memory");
	o->session = session;
	o->after = after;
	o->start_now = after == -1;
	o->on_change = on_change;
	o->arg = arg;
	le_link_init(&o->link);
	le_lock(session);
	session->refs++;
	le_link_append(&session->observers, &o->link);
	le_unlock(session);
	le_wake_net(session);
	*observer = o;
	return LE_OK;
}

/* Locked. */
static void
observer_free(le_observer *o)
{
	le_link_remove(&o->link);
	if (o->channel != NULL)
		le_channel_put(o->channel);
	PQclear(o->rows);
	pthread_cond_destroy(&o->changed);
	free(o->election);
	o->session->refs--;
	free(o);
}

void
le_unobserve(le_observer *observer)
{
	le_session *s;

	if (observer == NULL || le_in_child(observer->session))
		return;
	s = observer->session;
	le_lock(s);
	le_session_ref(s);
	observer->gone = true;
	if (observer->calling && pthread_equal(pthread_self(), s->dispatch_thread))
		observer->own_end = true;
	else
	{
		while (observer->reading || observer->calling)
			le_cond_wait(&observer->changed, &s->lock, LE_NEVER);
		observer_free(observer);
	}
	le_unlock(s);
	le_wake_net(s);
	le_session_unref(s);
}

/* --- reading --- */

void
le_observers_due(le_session *s, const le_channel *channel)
{
	for (le_link *link = s->observers.next; link != &s->observers; link = link->next)
	{
		le_observer *o = le_container(link, le_observer, link);

		if (channel == NULL || o->channel == channel)
			o->due_at = 0;
	}
}

/* Not locked, as all that follow. */
static PGresult *
query(le_session *s, const char *sql, int n, const char *const *values)
{
	return le_exec(s, le_add(le_now_ns(), s->call), sql, n, values);
}

static PGresult *
read_after(le_session *s, const char *election, int64_t after)
{
	static const char sql[] =
		"SELECT " COLUMNS " FROM @extschema@.election_history($1, $2) ORDER BY change LIMIT $3";
	char number[24], most[16];
	const char *values[] = {election, number, most};

	snprintf(number, sizeof(number), "%lld", (long long) after);
	snprintf(most, sizeof(most), "%d", LE_OBSERVE_MAX);
	return query(s, sql, 3, values);
}

/*
 * The last change.  Those of the present term have higher numbers than the
 * term.  If the history has lost them all, the leader as it is now.
 */
static PGresult *
read_last(le_session *s, const char *election)
{
	static const char last_sql[] = "SELECT " COLUMNS " FROM @extschema@.election_history($1,"
								   " COALESCE((SELECT l.term FROM @extschema@.current_leader($1) AS l), 0)) "
								   "ORDER BY change DESC LIMIT 1";
	static const char leader_sql[] =
		"SELECT " COLUMNS " FROM (SELECT 0::pg_catalog.int8 AS change, term, 'elected' AS how, candidate,"
		" elected_at, elected_at AS changed_at FROM @extschema@.current_leader($1)) AS l";
	const char *values[] = {election};
	PGresult *result = query(s, last_sql, 1, values);

	if (PQresultStatus(result) != PGRES_TUPLES_OK || PQntuples(result) > 0)
		return result;
	PQclear(result);
	return query(s, leader_sql, 1, values);
}

/* Empty: could not be asked. */
static void
read_channel(le_session *s, const char *election, char channel[LE_CHANNEL_SIZE])
{
	const char *values[] = {election};
	PGresult *result = query(s, "SELECT @extschema@.observe_election($1)", 1, values);

	channel[0] = '\0';
	if (PQresultStatus(result) == PGRES_TUPLES_OK)
		snprintf(channel, LE_CHANNEL_SIZE, "%s", PQgetvalue(result, 0, 0));
	PQclear(result);
}

/* Locked. */
static void
keep_rows(le_session *s, le_observer *o, PGresult *result)
{
	int n;

	if (PQresultStatus(result) != PGRES_TUPLES_OK)
	{
		s->net.ask_at = le_add(le_now_ns(), PAUSE);
		o->due_at = 0;
		PQclear(result);
		return;
	}
	n = PQntuples(result);
	if (o->start_now && n == 0)
		o->after = 0;
	else if (o->start_now && PQgetvalue(result, 0, CHANGE)[0] == '0')
		o->start_term = strtoll(PQgetvalue(result, 0, TERM), NULL, 10);
	if (n == 0)
	{
		o->start_now = false;
		PQclear(result);
		return;
	}
	o->rows = result;
	le_wake(s->wake_dispatch);
}

/* Locked at entry and exit.  Before it reads, so that a notification meanwhile counts. */
static void
read_changes(le_session *s, le_observer *o)
{
	char channel[LE_CHANNEL_SIZE] = "";
	bool ask_channel = o->channel == NULL && s->net.listen_works && s->net.listen_terms;
	bool start_now = o->start_now, heard = o->channel != NULL && o->channel->listening;
	int64_t after = o->after;
	PGresult *result;

	o->reading = true;
	o->due_at = le_add(le_now_ns(), heard ? READ_INTERVAL : 4 * s->poll);
	le_unlock(s);
	if (ask_channel)
		read_channel(s, o->election, channel);
	result = start_now ? read_last(s, o->election) : read_after(s, o->election, after);
	le_lock(s);
	o->reading = false;
	if (channel[0] != '\0')
		o->channel = le_channel_get(s, channel);
	keep_rows(s, o, result);
	pthread_cond_broadcast(&o->changed);
}

static bool
is_due(const le_observer *o, int64_t now)
{
	return !o->gone && o->rows == NULL && now >= o->due_at;
}

bool
le_observe_is_urgent(const le_session *s, int64_t now)
{
	for (const le_link *link = s->observers.next; link != &s->observers; link = link->next)
	{
		const le_observer *o = le_container(link, le_observer, link);

		if (o->due_at != 0 && is_due(o, now - READ_PATIENCE))
			return true;
	}
	return false;
}

bool
le_observe_work(le_session *s, int64_t now, int64_t *next)
{
	if (!le_link_empty(&s->observers) && le_link_empty(&s->channels) && !s->net.listen_tested)
		return le_queue_test(s);
	for (le_link *link = s->observers.next; link != &s->observers; link = link->next)
	{
		le_observer *o = le_container(link, le_observer, link);

		if (is_due(o, now))
		{
			read_changes(s, o);
			return true;
		}
		if (!o->gone && o->rows == NULL && o->due_at < *next)
			*next = o->due_at;
	}
	return false;
}

/* --- telling --- */

static bool
change_of(const PGresult *rows, int row, le_change *change)
{
	const char *how = PQgetvalue(rows, row, HOW);

	*change = (le_change){
		.change = strtoll(PQgetvalue(rows, row, CHANGE), NULL, 10),
		.term = strtoll(PQgetvalue(rows, row, TERM), NULL, 10),
		.how = how,
		.candidate = PQgetvalue(rows, row, CANDIDATE),
		.elected_at = strtoll(PQgetvalue(rows, row, ELECTED_AT), NULL, 10),
		.changed_at = strtoll(PQgetvalue(rows, row, CHANGED_AT), NULL, 10),
		.leads = strcmp(how, "elected") == 0 || strcmp(how, "proclaimed") == 0,
	};
	return change->leads;
}

/* Locked at entry and exit. */
static void
tell_rows(le_session *s, le_observer *o)
{
	int n = PQntuples(o->rows);

	for (int row = 0; row < n && !o->gone && !s->closing; row++)
	{
		le_change change;
		bool leads = change_of(o->rows, row, &change);
		bool skip = (o->start_now && !leads) || (change.change != 0 && change.term == o->start_term &&
												 strcmp(change.how, "elected") == 0);

		if (!skip)
		{
			le_unlock(s);
			o->on_change(&change, o->arg);
			le_lock(s);
		}
		o->after = change.change;
		o->start_now = false;
	}
	PQclear(o->rows);
	o->rows = NULL;
	if (n == LE_OBSERVE_MAX)
		o->due_at = 0;
}

bool
le_observe_tell(le_session *s)
{
	for (le_link *link = s->observers.next; link != &s->observers; link = link->next)
	{
		le_observer *o = le_container(link, le_observer, link);

		if (o->rows == NULL || o->gone)
			continue;
		o->calling = true;
		tell_rows(s, o);
		o->calling = false;
		le_link_append(&s->observers, &o->link); /* the others' turn */
		pthread_cond_broadcast(&o->changed);
		if (o->own_end)
			observer_free(o);
		le_wake_net(s);
		return true;
	}
	return false;
}
