/*
 * observe.c
 *		Reads the changes of elections, and reports them to observers.
 *
 * election_history() returns all changes, in order and without gaps; a
 * notification only makes a read due.  The callback thread reads up to
 * CHANGES_MAX changes after the last reported one, and reports them.  So no
 * change is missed or reported twice, and a slow callback needs no buffer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "due.h"
#include "error.h"
#include "objects.h"
#include "ownership.h"
#include "text.h"
#include "threads.h"

/* Maximum number of changes that are read for an observer at once */
#define CHANGES_MAX 64
/* Interval of reads without a notification, on a connection where notifications work, in ns */
#define READ_INTERVAL (5 * LE_SEC_NS)

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

	/* check the arguments */
	le_must(le_check_pointer(observer, "observer", error));
	*observer = NULL;
	le_must(le_check_session(session, error));
	le_must(le_check_text("election", election, LE_NAME_MAX, error));
	if (after < -1)
		return le_invalid(
			error, "after is %lld: -1 (the leader now), 0 (all changes) and numbers of changes are allowed",
			(long long) after);
	le_must(le_check_pointer((const void *) (intptr_t) on_change, "on_change", error));
	/* create the observer */
	o = calloc(1, sizeof(*o));
	if (o != NULL && ((o->election = le_copy(election)) == NULL || le_cond_init(&o->changed) != 0))
	{
		free(o->election);
		free(o);
		o = NULL;
	}
	if (o == NULL)
		return le_no_memory(error);
	o->session = session;
	o->after = after;
	o->start_now = after == -1;
	o->on_change = on_change;
	o->arg = arg;
	le_link_init(&o->link);
	/* add the observer to the session; if the lease's channel is unknown, schedule a turn that reads it */
	le_lock(session);
	session->refs++;
	le_link_append(&session->observers, &o->link);
	session->look |= session->channel[0] == '\0';
	pthread_cond_signal(&session->to_tell);
	le_wake_net(session);
	le_unlock(session);
	*observer = o;
	return LE_OK;
}

/* Removes an observer from its session, and frees it.  The caller holds the mutex. */
static void
observer_free(le_observer *o)
{
	le_link_remove(&o->link);
	o->session->relisten |= o->channel[0] != '\0';
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
	s->refs++;
	observer->gone = true;
	if (observer->calling && pthread_equal(pthread_self(), s->dispatch_thread))
		observer->own_end = true;
	else
	{
		while (observer->calling)
			le_cond_wait(&observer->changed, &s->lock, LE_NEVER);
		observer_free(observer);
	}
	le_wake_net(s);
	le_unlock(s);
	le_session_unref(s);
}

/* --- reading and reporting: the mutex is held at entry and exit --- */

/*
 * Reads the changes after the last reported one.  If start_now is set, reads only the latest change of
 * the current term; a term's changes have higher numbers than the term itself.  If the history no longer
 * has any change of that term, returns the current leader as a change with number 0.  Returns NULL if
 * the statement failed.
 */
static PGresult *
read_changes(le_observer *o)
{
	static const char next_sql[] =
		"SELECT " COLUMNS " FROM @extschema@.election_history($1, $2) ORDER BY change LIMIT $3";
	static const char last_sql[] =
		"SELECT " COLUMNS " FROM (SELECT change, term, how, candidate, elected_at, changed_at"
		" FROM @extschema@.election_history($1,"
		" COALESCE((SELECT l.term FROM @extschema@.current_leader($1) AS l), 0))"
		" UNION ALL SELECT 0, term, 'elected', candidate, elected_at, elected_at"
		" FROM @extschema@.current_leader($1)) AS h(change, term, how, candidate, elected_at, changed_at)"
		" ORDER BY change DESC LIMIT 1";
	char after[24], most[16];
	const char *values[] = {o->election, after, most};

	snprintf(after, sizeof(after), "%lld", (long long) o->after);
	snprintf(most, sizeof(most), "%d", CHANGES_MAX);
	return le_ask(o->session, o->start_now ? last_sql : next_sql, o->start_now ? 1 : 3, values, NULL);
}

/* Converts a row with the columns COLUMNS to an le_change. */
static le_change
change_of(const PGresult *rows, int row)
{
	const char *how = PQgetvalue(rows, row, 2);

	return (le_change){
		.change = strtoll(PQgetvalue(rows, row, 0), NULL, 10),
		.term = strtoll(PQgetvalue(rows, row, 1), NULL, 10),
		.how = how,
		.candidate = PQgetvalue(rows, row, 3),
		.elected_at = strtoll(PQgetvalue(rows, row, 4), NULL, 10),
		.changed_at = strtoll(PQgetvalue(rows, row, 5), NULL, 10),
		.leads = strcmp(how, "elected") == 0 || strcmp(how, "proclaimed") == 0,
	};
}

/*
 * Reports changes to the application.  If start_now is set, reports the change only if the election has
 * a leader after it.  If a term was reported as change 0, does not report the election of that term
 * again.
 */
static void
tell(le_observer *o, const PGresult *rows)
{
	le_session *s = o->session;

	for (int row = 0; row < PQntuples(rows) && !o->gone && !s->closing; row++)
	{
		le_change change = change_of(rows, row);
		bool known = change.change != 0 && change.term == o->start_term && strcmp(change.how, "elected") == 0;

		if (!known && (change.leads || !o->start_now))
		{
			le_unlock(s);
			o->on_change(&change, o->arg);
			le_lock(s);
		}
		if (change.change == 0)
			o->start_term = change.term;
		o->after = change.change;
		o->start_now = false;
	}
}

/* Reads the next changes of an observer, reports them, and sets the time of the next read. */
static void
work_for(le_observer *o)
{
	le_session *s = o->session;
	bool start_now = o->start_now;
	PGresult *rows;

	/* set due_at before the read, so that a notification during the read can make the observer due again */
	o->due_at = le_add(le_now_ns(), o->channel[0] != '\0' && s->heard ? READ_INTERVAL : 4 * s->poll);
	/* read the channel of the observer's notifications */
	if (o->channel[0] == '\0' && !s->deaf)
	{
		rows =
			le_ask(s, "SELECT @extschema@.observe_election($1)", 1, (const char *const[]){o->election}, NULL);
		if (rows != NULL)
			snprintf(o->channel, sizeof(o->channel), "%s", PQgetvalue(rows, 0, 0));
		s->relisten |= o->channel[0] != '\0';
		PQclear(rows);
	}
	/* read and report changes; after the maximum number, read again at once */
	rows = read_changes(o);
	if (rows == NULL)
		o->due_at = le_add(le_now_ns(), LE_PAUSE);
	else if (PQntuples(rows) == CHANGES_MAX)
		o->due_at = 0;
	tell(o, rows);
	/* there is neither a leader nor a change yet, so read from the first change on */
	if (rows != NULL && start_now && PQntuples(rows) == 0)
	{
		o->start_now = false;
		o->after = 0;
	}
	PQclear(rows);
	le_wake_net(s);
}

bool
le_observe_work(le_session *s, int64_t *next)
{
	int64_t now = le_now_ns();

	le_foreach (le_observer, o, &s->observers)
	{
		if (o->gone || !s->connected)
			continue;
		le_sooner(next, o->due_at);
		if (now < o->due_at)
			continue;
		o->calling = true;
		work_for(o);
		o->calling = false;
		le_link_append(&s->observers, &o->link); /* next time, serve the other observers first */
		pthread_cond_broadcast(&o->changed);
		if (o->own_end)
			observer_free(o);
		return true;
	}
	return false;
}
