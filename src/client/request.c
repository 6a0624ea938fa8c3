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

/* The most holds that one statement asks for, or gives back. */
#define TOGETHER_MAX 128
/* So many holds are looked at to find them. */
#define LOOK_MAX (4 * TOGETHER_MAX)

/* The holds of one statement, with a reference to each. */
typedef struct Together
{
	int n;
	le_hold *holds[TOGETHER_MAX];
} Together;

void
le_hold_owner(const le_hold *hold, char owner[LE_OWNER_MAX + LE_MARKER_SIZE])
{
	snprintf(owner, LE_OWNER_MAX + LE_MARKER_SIZE, "%s%s-%lld", hold->session->name, hold->session->marker,
			 (long long) hold->asked);
}

/* --- what travels together --- */

/* The names that were seen, by a hash of 12 bits: a name that looks like another one travels a statement later. */
typedef struct Seen
{
	uint64_t bits[64];
} Seen;

/* Marks the names of a hold; was one of them seen? */
static bool
see(Seen *seen, const le_hold *hold)
{
	bool was = false;

	for (int i = 0; i < hold->n; i++)
	{
		uint32_t hash = 2166136261u; /* FNV-1a */
		uint64_t bit;

		for (const char *p = hold->names[i]; *p != '\0'; p++)
			hash = (hash ^ (unsigned char) *p) * 16777619u;
		hash ^= hash >> 12;
		bit = UINT64_C(1) << (hash & 63);
		was |= (seen->bits[hash >> 6 & 63] & bit) != 0;
		seen->bits[hash >> 6 & 63] |= bit;
	}
	return was;
}

static bool
is_wanted(const le_hold *hold)
{
	return atomic_load(&hold->state) == LE_HOLD_WAITING;
}

/* Can a statement for many carry it? */
static bool
is_simple(const le_hold *hold)
{
	if (hold->alone)
		return false;
	if (is_wanted(hold))
		return hold->kind == LE_KIND_LOCK;
	return hold->server_token != 0 && hold->hold_for_ms == 0 &&
		   (hold->kind == LE_KIND_LOCK || hold->kind == LE_KIND_PERMIT);
}

static bool
are_alike(const le_hold *a, const le_hold *b)
{
	return is_wanted(a) == is_wanted(b) && (!is_wanted(a) || (a->try == b->try && a->shared == b->shared));
}

/* The first hold of the list, and those behind it that can go with it. */
static void
choose(le_session *s, Together *t)
{
	le_hold *first = le_container(s->todo.next, le_hold, link);
	Seen seen = {{0}};
	int left = LOOK_MAX;

	t->n = 0;
	for (le_link *link = s->todo.next; link != &s->todo && left > 0 && t->n < TOGETHER_MAX;
		 link = link->next, left--)
	{
		le_hold *hold = le_container(link, le_hold, link);
		/* the names of elections are others */
		bool passed_over = hold->kind != LE_KIND_TERM && see(&seen, hold);

		if (hold != first && (passed_over || !is_simple(hold) || !are_alike(first, hold)))
			continue;
		hold->refs++;
		t->holds[t->n++] = hold;
		if (!is_simple(first))
			break;
	}
}

/* The name, or the array of names. */
static void
add_names(const Together *t, le_text *text)
{
	if (t->n == 1)
	{
		le_hold_names(t->holds[0], text);
		return;
	}
	for (int i = 0; i < t->n; i++)
	{
		le_text_add(text, i == 0 ? "{" : ",");
		le_text_add_element(text, t->holds[i]->names[0]);
	}
	le_text_add(text, "}");
}

/* The token, or the array of tokens. */
static void
add_tokens(const Together *t, le_text *text)
{
	if (t->n > 1)
		le_text_add(text, "{");
	for (int i = 0; i < t->n; i++)
		le_text_add(text, "%s%lld", i == 0 ? "" : ",", (long long) t->holds[i]->server_token);
	if (t->n > 1)
		le_text_add(text, "}");
}

/* One row a hold; else the server is not of our version, and the outcome is not known. */
static bool
is_answer(le_session *s, const Together *t, const PGresult *result)
{
	if (PQresultStatus(result) != PGRES_TUPLES_OK)
		return false;
	if (PQntuples(result) == t->n)
		return true;
	le_error_set(&s->net.error, LE_UNKNOWN, "", "the server has answered %d rows for %d names",
				 PQntuples(result), t->n);
	return false;
}

/* A statement for many that failed took no effect: each is tried alone, and told its own error. */
static bool
fails_alone(const Together *t, const le_error *error)
{
	return t->n > 1 && !le_error_is_unknown(error) && !le_error_passes(error) &&
		   strcmp(error->sqlstate, "LE001") != 0;
}

/* --- asking --- */

static const char *
ask_sql(const Together *t)
{
	static const char *const try[] = {
		[LE_KIND_LOCK] =
			"SELECT @extschema@.acquire_lock($1, wait => '0', owner => $2, lease => $3, mode => $4)",
		[LE_KIND_LOCKS] =
			"SELECT @extschema@.acquire_locks($1, wait => '0', owner => $2, lease => $3, mode => $4)",
		[LE_KIND_PERMIT] =
			"SELECT @extschema@.acquire_permit($1, wait => '0', owner => $2, lease => $3, permits => $4)",
		[LE_KIND_TERM] =
			"SELECT @extschema@.campaign($1, wait => '0', owner => $2, lease => $3, candidate => $4)",
	};
	static const char *const queue[] = {
		[LE_KIND_LOCK] = "SELECT * FROM @extschema@.enqueue_lock($1, owner => $2, lease => $3, mode => $4)",
		[LE_KIND_LOCKS] = "SELECT * FROM @extschema@.enqueue_locks($1, owner => $2, lease => $3, mode => $4)",
		[LE_KIND_PERMIT] =
			"SELECT * FROM @extschema@.enqueue_permit($1, owner => $2, lease => $3, permits => $4)",
		[LE_KIND_TERM] =
			"SELECT * FROM @extschema@.enqueue_candidate($1, owner => $2, lease => $3, candidate => $4)",
	};
	static const char try_each[] =
		"SELECT token FROM @extschema@.try_acquire_each($1, owner => $2, lease => $3, mode => $4)";
	static const char queue_each[] =
		"SELECT token, granted, queue_position, channel"
		" FROM @extschema@.enqueue_each($1, owner => $2, lease => $3, mode => $4)";
	const le_hold *first = t->holds[0];

	if (t->n > 1)
		return first->try ? try_each : queue_each;
	return (first->try ? try : queue)[first->kind];
}

/* It was granted, or has a place; but the application may not want it any more. */
static void
asked(le_session *s, le_hold *hold, const PGresult *result, int row)
{
	bool granted = hold->try || PQgetvalue(result, row, 1)[0] == 't';
	le_error error;

	if (PQgetisnull(result, row, 0))
	{
		le_error_set(&error, LE_TIMEOUT, "", "somebody else holds it, or is queued for it");
		if (is_wanted(hold))
			le_hold_over(hold, &error);
		le_hold_done(hold);
		return;
	}
	hold->server_token = strtoll(PQgetvalue(result, row, 0), NULL, 10);
	hold->phase = granted ? LE_PHASE_GRANTED : LE_PHASE_QUEUED;
	if (atomic_load(&hold->state) == LE_HOLD_OVER)
		le_link_prepend(&s->todo, &hold->link);
	else if (granted)
		le_hold_held(hold);
	else
	{
		atomic_store(&hold->position, strtoll(PQgetvalue(result, row, 2), NULL, 10));
		hold->channel = le_channel_get(s, PQgetvalue(result, row, 3));
		le_link_append(&s->queued, &hold->link);
		if (hold->channel != NULL && hold->channel->listening)
			le_queue_announce(s, hold);
		le_hold_answered(hold);
	}
}

static void
pause_requests(le_session *s)
{
	const char *end = le_error_ends_connection(&s->net.error);

	s->net.ask_at = le_add(le_now_ns(), le_jitter(PAUSE));
	if (end != NULL)
	{
		le_unlock(s);
		le_set_broken(s, "%s", end);
		le_lock(s);
	}
}

/* To the front: the last of several first. */
static void
ask_once_more(le_session *s, le_hold *hold)
{
	hold->phase = LE_PHASE_NEW;
	if (is_wanted(hold))
		le_link_prepend(&s->todo, &hold->link);
	else
		le_hold_done(hold);
}

/* True: it is not over, but for now nothing more is asked. */
static bool
ask_failed(le_session *s, le_hold *hold, const le_error *error)
{
	if (le_error_is_unknown(error))
	{
		s->net.lost_answer = true;
		return true;
	}
	if (le_error_passes(error) && !hold->try && is_wanted(hold))
	{
		ask_once_more(s, hold);
		return true;
	}
	if (strcmp(error->sqlstate, "LE001") == 0)
		s->renew_at = 0; /* the lease is gone, it seems */
	if (is_wanted(hold))
		le_hold_over(hold, error);
	le_hold_done(hold);
	return false;
}

static void
all_failed(le_session *s, const Together *t)
{
	le_error error = s->net.error;
	bool each_alone = fails_alone(t, &error), pause = false;

	for (int i = t->n - 1; i >= 0; i--)
	{
		le_hold *hold = t->holds[i];

		if (hold->phase != LE_PHASE_SENT)
			continue;
		hold->alone = each_alone;
		if (each_alone)
			ask_once_more(s, hold);
		else
			pause |= ask_failed(s, hold, &error);
	}
	if (pause)
		pause_requests(s);
}

/* A hold that stays SENT is looked for by le_reconcile(). */
static void
ask(le_session *s, const Together *t)
{
	const le_hold *first = t->holds[0];
	char owner[LE_OWNER_MAX + LE_MARKER_SIZE], lease[24], permits[16];
	const char *values[4] = {NULL, owner, lease, first->shared ? "shared" : "exclusive"};
	le_text sql = {0}, names = {0};
	PGresult *result = NULL;

	s->asks++;
	for (int i = 0; i < t->n; i++)
	{
		t->holds[i]->asked = s->asks;
		t->holds[i]->phase = LE_PHASE_SENT;
		le_link_append(&s->sent, &t->holds[i]->link);
	}
	le_hold_owner(first, owner);
	snprintf(lease, sizeof(lease), "%lld", (long long) atomic_load(&s->lease));
	snprintf(permits, sizeof(permits), "%d", first->permits);
	if (first->kind == LE_KIND_PERMIT)
		values[3] = permits;
	else if (first->kind == LE_KIND_TERM)
		values[3] = first->candidate;
	le_unlock(s);

	le_text_add(&sql, "%s", ask_sql(t));
	add_names(t, &names);
	values[0] = names.data;
	if (names.failed)
		sql.failed = true;
	result = le_exec_text(s, le_add(le_now_ns(), s->call), &sql, 4, values);
	le_text_free(&names);

	le_lock(s);
	if (is_answer(s, t, result))
	{
		for (int i = 0; i < t->n; i++)
		{
			if (t->holds[i]->phase == LE_PHASE_SENT)
				asked(s, t->holds[i], result, i);
		}
	}
	else if (result != NULL || s->net.conn != NULL)
		all_failed(s, t);
	PQclear(result);
}

/* --- giving back --- */

static const char *
release_sql(const Together *t)
{
	const le_hold *first = t->holds[0];

	if (t->n > 1)
		return "SELECT * FROM @extschema@.release_each($1, $2)";
	if (first->kind == LE_KIND_TERM)
		return "SELECT @extschema@.resign($1, $2)";
	if (first->kind != LE_KIND_LOCKS)
		return "SELECT @extschema@.release_lock($1, $2, $3, true)";
	if (first->hold_for_ms == 0)
		return "SELECT @extschema@.release_locks($1, $2)";
	return "SELECT pg_catalog.bool_and(@extschema@.release_lock(u.n, $2, $3, true))"
		   " FROM pg_catalog.unnest($1::pg_catalog.text[]) AS u(n)";
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
		else if (hold->hold_for_ms != 0)
			hold->release_status = LE_UNKNOWN;
	}
	le_hold_done(hold);
}

/* True: the same again, but not now. */
static bool
release_failed(le_session *s, le_hold *hold, const le_error *error)
{
	if (hold->hold_for_ms != 0 && (error->status == LE_INVALID || strcmp(error->sqlstate, "53400") == 0))
	{
		/* longer than lock_election.max_hold_for, or than anything: it is released all the same */
		hold->hold_for_ms = 0;
		hold->releases = 0;
		hold->release_status = LE_INVALID;
		le_error_copy(&hold->error, error);
		return false;
	}
	if (le_error_passes(error) || error->status == LE_LIMIT || error->status == LE_NO_MEMORY)
		return true;
	/* perhaps a right was taken away: the others' turn, and nobody waits for this one */
	hold->release_status = LE_UNKNOWN;
	le_error_copy(&hold->error, error);
	hold->release_done = true;
	pthread_cond_broadcast(&hold->changed);
	le_link_append(&s->refused, &hold->link);
	return false;
}

/* What cannot be released together stays where it is, and is released alone. */
static void
releases_failed(le_session *s, const Together *t)
{
	le_error error = s->net.error;
	bool each_alone = fails_alone(t, &error), pause = false;

	for (int i = 0; i < t->n; i++)
	{
		le_hold *hold = t->holds[i];

		if (hold->phase == LE_PHASE_DONE)
			continue;
		hold->alone = each_alone;
		if (!each_alone)
			pause |= release_failed(s, hold, &error);
	}
	if (pause)
		pause_requests(s);
}

static void
release(le_session *s, const Together *t)
{
	const le_hold *first = t->holds[0];
	char hold_for_text[32];
	const char *values[3] = {NULL, NULL, first->hold_for_ms != 0 ? hold_for_text : NULL};
	le_text sql = {0}, names = {0}, tokens = {0};
	bool three =
		t->n == 1 && first->kind != LE_KIND_TERM && (first->kind != LE_KIND_LOCKS || first->hold_for_ms != 0);
	PGresult *result;

	snprintf(hold_for_text, sizeof(hold_for_text), "%d ms", first->hold_for_ms);
	le_text_add(&sql, "%s", release_sql(t));
	for (int i = 0; i < t->n; i++)
		t->holds[i]->releases++;
	add_tokens(t, &tokens);
	le_unlock(s);

	add_names(t, &names);
	values[0] = names.data;
	values[1] = tokens.data;
	if (names.failed || tokens.failed)
		sql.failed = true;
	result = le_exec_text(s, le_add(le_now_ns(), s->call), &sql, three ? 3 : 2, values);
	le_text_free(&names);
	le_text_free(&tokens);

	le_lock(s);
	if (is_answer(s, t, result))
	{
		for (int i = 0; i < t->n; i++)
		{
			if (t->holds[i]->phase != LE_PHASE_DONE)
				le_release_answer(t->holds[i], PQgetvalue(result, i, t->n > 1 ? 1 : 0)[0] == 't');
		}
	}
	else if (result != NULL || s->net.conn != NULL)
		releases_failed(s, t);
	PQclear(result);
}

void
le_request(le_session *s)
{
	Together t;

	choose(s, &t);
	if (is_wanted(t.holds[0]))
		ask(s, &t);
	else
		release(s, &t);
	for (int i = 0; i < t.n; i++)
		le_hold_unref(t.holds[i]);
}
