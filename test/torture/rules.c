/*
 * rules.c
 *		The rules about holders and their order; see check.c.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

/* A time at which a token was certainly held. */
typedef struct Span
{
	Time from, to;
	const Call *by;
	const Hold *hold;
} Span;

typedef LIST(Span) Spans;

static int
span_by_from(const void *a, const void *b)
{
	const Span *x = a, *y = b;

	return (x->from > y->from) - (x->from < y->from);
}

/*
 * Returns the spans of one name in order of their start. With first_only, only the first span of each token.
 */
static void
spans_of(int name, bool first_only, Spans *spans)
{
	spans->n = 0;
	for (size_t i = 0; i < holds.n; i++)
	{
		const Hold *h = holds.at[i];

		if (h->name != name)
			continue;
		for (size_t j = 0; j < h->segments.n; j++)
		{
			const Segment *s = &h->segments.at[j];

			/* An instant is sufficient for the order, but not for an overlap. */
			if (s->to < s->from || (!first_only && s->to == s->from))
				continue;
			*APPEND(*spans) = (Span){s->from, s->to, s->by, h};
			if (first_only)
				break;
		}
	}
	if (spans->n > 0)
		qsort(spans->at, spans->n, sizeof(Span), span_by_from);
}

static bool
conflict(const Hold *a, const Hold *b)
{
	return a != b && a->token != b->token && (a->mode == 'x' || b->mode == 'x');
}

/* --- M --- */

static int
by_call_sent(const void *a, const void *b)
{
	const Call *x = *(const Call *const *) a, *y = *(const Call *const *) b;

	return (x->sent > y->sent) - (x->sent < y->sent);
}

/* Returns the number of permits after this call was applied: set or shown by it. */
int
permits_of(const Call *call)
{
	return is_op(call, "set_permits") ? (int) call->value : call->permits;
}

void
permit_calls(int name, Calls *calls)
{
	calls->n = 0;
	for (size_t i = 0; i < clients.n; i++)
		for (size_t j = 0; j < clients.at[i].calls.n; j++)
		{
			const Call *call = &clients.at[i].calls.at[j];

			if (call->nnames == 1 && call->names[0] == name && call->status != STATUS_ERROR &&
				((is_op(call, "set_permits") && call->status != STATUS_NULL) ||
				 (is_acquire(call) && call->mode == 'p')))
				*APPEND(*calls) = call;
		}
	if (calls->n > 0)
		qsort(calls->at, calls->n, sizeof(Call *), by_call_sent);
}

/* Returns how many of these calls were sent up to this time. */
size_t
calls_sent(const Calls *calls, Time t)
{
	size_t low = 0, high = calls->n;

	while (low < high)
	{
		size_t middle = (low + high) / 2;

		if (calls->at[middle]->sent <= t)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/*
 * Returns the largest possible number of permits at any time between these two:
 * that of the last certain call that was complete before, or of any later one.
 */
static int
most_permits(const Calls *calls, Time from, Time to)
{
	const Call *last = NULL;
	int most = 0;

	for (size_t i = calls_sent(calls, to); i-- > 0;)
	{
		const Call *call = calls->at[i];

		if (last != NULL && call->sent < last->sent - CARRIED_OUT)
			break;
		if (last != NULL && call->received < last->sent)
			continue;
		if (permits_of(call) > most)
			most = permits_of(call);
		if (last == NULL && call->status == STATUS_OK && call->received < from && lost_after(call->sent) > to)
			last = call;
	}
	return most;
}

/*
 * Checks that no more permits are held than exist, or than existed when the last
 * of them was granted: a lower number does not end holders.
 */
static void
check_permits(const Span *s, const Span *now, size_t n, const Calls *calls)
{
	Time last = s->hold->asked->sent;
	size_t held = 1;

	for (size_t i = 0; i < n; i++)
	{
		if (now[i].hold == s->hold || now[i].hold->mode != 'p')
			continue;
		held++;
		if (now[i].hold->asked->sent > last)
			last = now[i].hold->asked->sent;
	}
	if (held > 1 && held > (size_t) most_permits(calls, last, s->from))
		violation('M', "more permits are held than exist", now[0].by, s->by, NULL);
}

static void
check_span(const Span *s, Span *now, size_t n, const Calls *calls)
{
	figures.checked['M']++;
	for (size_t i = 0; i < n; i++)
		if (conflict(now[i].hold, s->hold))
			violation('M', "two holders that exclude each other hold at the same time", now[i].by, s->by,
					  NULL);
	if (s->hold->mode == 'p')
		check_permits(s, now, n, calls);
}

void
check_exclusion(void)
{
	Spans spans = {0}, now = {0};
	Calls calls = {0};

	for (int name = 0; name < name_count(); name++)
	{
		spans_of(name, false, &spans);
		permit_calls(name, &calls);
		now.n = 0;
		for (size_t i = 0; i < spans.n; i++)
		{
			size_t n = 0;

			for (size_t j = 0; j < now.n; j++)
				if (now.at[j].to > spans.at[i].from)
					now.at[n++] = now.at[j];
			now.n = n;
			check_span(&spans.at[i], now.at, now.n, &calls);
			*APPEND(now) = spans.at[i];
		}
	}
	free(spans.at);
	free(now.at);
	free(calls.at);
}

/* --- C --- */

static bool
has_closed(const Hold *h)
{
	return h->hold_for > 0 && h->mode == 'x' && h->ended && is_op(h->ended, "release") &&
		   h->ended->status == STATUS_OK && h->ended->answer[0] == 't' && h->gone == h->ended->received;
}

/* Checks a grant of the name that this holder has closed. */
static void
check_next(const Span *closed, Time acquired, const Span *next)
{
	const Call *release = closed->hold->ended;

	figures.checked['C']++;
	/* closed_until is stored as a time of day */
	if (next->from < acquired + closed->hold->hold_for && lost_after(release->sent) > next->from &&
		!forced_between(closed->hold->name, release->sent, next->from) && !clock_jumped(acquired, next->from))
		violation('C', "granted while its name was closed", release, next->by, NULL);
}

/*
 * A name is closed from its acquire on: that is after its request was sent, and
 * after the end of all spans of earlier holders.
 */
void
check_closed(void)
{
	Spans spans = {0};

	for (int name = 0; name < name_count(); name++)
	{
		Time before = 0;

		spans_of(name, true, &spans);
		for (size_t i = 0; i < spans.n; i++)
		{
			const Span *s = &spans.at[i];
			Time acquired = s->hold->asked->sent;

			if (before <= s->from && before > acquired)
				acquired = before;
			if (s->to > before)
				before = s->to;
			if (!has_closed(s->hold))
				continue;
			for (size_t j = i + 1; j < spans.n; j++)
				if (spans.at[j].hold->token > s->hold->token)
				{
					check_next(s, acquired, &spans.at[j]);
					break;
				}
		}
	}
	free(spans.at);
}

/* --- E --- */

/* A force that has found no holder while there was one; see claims.c for forces that have ended holders. */
void
check_forces(void)
{
	Spans spans = {0};

	for (int name = 0; name < name_count(); name++)
	{
		spans_of(name, false, &spans);
		for (size_t i = 0; i < clients.n && spans.n > 0; i++)
			for (size_t j = 0; j < clients.at[i].calls.n; j++)
			{
				const Call *call = &clients.at[i].calls.at[j];

				if (!is_op(call, "force") || call->names[0] != name || call->status != STATUS_OK)
					continue;
				figures.checked['E']++;
				if (strcmp(call->answer, "0") != 0)
					continue;
				for (size_t k = 0; k < spans.n && spans.at[k].from <= call->sent; k++)
					if (spans.at[k].to >= call->received && !spans.at[k].hold->was_fenced)
						violation('E', "a force has found no holder, but there was one", spans.at[k].by, call,
								  NULL);
			}
	}
	free(spans.at);
}

/* --- T and Q --- */

/*
 * Of two holders that exclude each other, the one that was seen to hold earlier
 * was granted earlier. (Otherwise the other one would have held already at that
 * time.) Entries that an asynchronous promotion has restored have no order
 * relative to later ones.
 */
static void
check_order_of(const Spans *spans)
{
	const Span *highest = NULL, *highest_x = NULL;

	for (size_t i = 0; i < spans->n; i++)
	{
		const Span *s = &spans->at[i];
		const Span *before = s->hold->mode == 'x' ? highest : highest_x;

		if (s->hold->mode == 'p' || lost_after(s->hold->asked->sent) < s->from ||
			waited_for_no_standby(s->hold))
			continue;
		figures.checked['T']++;
		if (before && before->hold->token > s->hold->token)
			violation(before->hold->mode == 'x' && s->hold->mode == 'x' ? 'T' : 'Q',
					  "a lower token was granted after a higher one", before->by, s->by, NULL);
		if (highest == NULL || s->hold->token > highest->hold->token)
			highest = s;
		if (s->hold->mode == 'x' && (highest_x == NULL || s->hold->token > highest_x->hold->token))
			highest_x = s;
	}
}

/*
 * A place that is still waiting at a call has waited since it was created: no
 * request behind it can have held the lock before that call.
 */
static void
check_places(const Spans *spans, int name)
{
	const Span **highest =
		calloc(spans->n + 1, sizeof(Span *)); /* the highest token up to there; NULL: none */

	for (size_t i = 0; i < spans->n; i++)
	{
		const Span *s = &spans->at[i], *before = i > 0 ? highest[i - 1] : NULL;
		bool higher = before == NULL || before->hold->token <= s->hold->token;

		highest[i] = higher && !waited_for_no_standby(s->hold) ? s : before;
	}
	for (size_t i = 0; i < holds.n; i++)
	{
		const Hold *h = holds.at[i];
		const Client *c = h->client;

		if (h->name != name || !is_op(h->asked, "enqueue"))
			continue;
		for (const Call *call = h->asked; call < c->calls.at + c->calls.n; call++)
		{
			size_t low = 0, high = spans->n;

			if (!is_op(call, "await") || call->token != h->token || call->status != STATUS_OK ||
				call->answer[0] != 'f')
			{
				if (is_acquire(call) && call != h->asked)
					break;
				continue;
			}
			while (low < high)
			{
				size_t middle = (low + high) / 2;

				if (spans->at[middle].from < call->sent)
					low = middle + 1;
				else
					high = middle;
			}
			figures.checked['Q']++;
			if (low > 0 && highest[low - 1] != NULL && highest[low - 1]->hold->token > h->token &&
				lost_after(h->asked->sent) > call->received)
				violation('Q', "granted before an earlier place that still waits", highest[low - 1]->by, call,
						  NULL);
		}
	}
	free(highest);
}

void
check_order(void)
{
	Spans spans = {0};

	for (int name = 0; name < name_count(); name++)
	{
		spans_of(name, true, &spans);
		check_order_of(&spans);
		check_places(&spans, name);
	}
	free(spans.at);
}

/* --- R --- */

typedef struct Given
{
	int64_t token;
	const Call *call;
	bool is_new; /* created by this call */
} Given;

static int
given_by_sent(const void *a, const void *b)
{
	const Call *x = ((const Given *) a)->call, *y = ((const Given *) b)->call;

	return (x->sent > y->sent) - (x->sent < y->sent);
}

static int
given_by_received(const void *a, const void *b)
{
	const Call *x = ((const Given *) a)->call, *y = ((const Given *) b)->call;

	return (x->received > y->received) - (x->received < y->received);
}

/*
 * Returns whether a call requests a new entry: always without owner and lease; with an owner, only the first
 * one.
 */
static bool
asks_for_new(const Client *c, const Call *call)
{
	if (call->owner == NULL)
		return call->lease == 0;
	for (const Call *before = call; before-- > c->calls.at;)
		if (before->owner && strcmp(before->owner, call->owner) == 0)
			return false;
		else if (call - before > 50)
			break;
	return true;
}

void
check_revisions(void)
{
	LIST(Given) sent = {0};
	Given *received;
	const Given *highest = NULL;
	size_t done = 0;

	for (size_t i = 0; i < clients.n; i++)
		for (size_t j = 0; j < clients.at[i].calls.n; j++)
		{
			const Call *call = &clients.at[i].calls.at[j];

			if (is_acquire(call) && call->status == STATUS_OK)
				*APPEND(sent) =
					(Given){strtoll(call->answer, NULL, 10), call, asks_for_new(&clients.at[i], call)};
		}
	if (sent.n == 0)
		return;
	received = malloc(sent.n * sizeof(Given));
	memcpy(received, sent.at, sent.n * sizeof(Given));
	qsort(sent.at, sent.n, sizeof(Given), given_by_sent);
	qsort(received, sent.n, sizeof(Given), given_by_received);
	for (size_t i = 0; i < sent.n; i++)
	{
		const Given *g = &sent.at[i];

		for (; done < sent.n && received[done].call->received < g->call->sent; done++)
			if (highest == NULL || received[done].token > highest->token)
				highest = &received[done];
		if (!g->is_new || highest == NULL)
			continue;
		figures.checked['R']++;
		if (highest->token >= g->token)
			violation('R', "the earlier call has the higher revision", highest->call, g->call, NULL);
	}
	free(received);
	free(sent.at);
}

/* --- elections --- */

void
check_leaders(void)
{
	Spans spans = {0};

	for (int name = 0; name < name_count(); name++)
	{
		spans_of(name, false, &spans);
		for (size_t i = 0; i < clients.n && spans.n > 0; i++)
			for (size_t j = 0; j < clients.at[i].calls.n; j++)
			{
				const Call *call = &clients.at[i].calls.at[j];

				if (!is_op(call, "current_leader") || call->names[0] != name ||
					(call->status != STATUS_OK && call->status != STATUS_NULL))
					continue;
				for (size_t k = 0; k < spans.n && spans.at[k].from <= call->sent; k++)
				{
					const Span *s = &spans.at[k];

					if (s->to < call->received)
						continue;
					figures.checked['D']++;
					if (call->status == STATUS_NULL)
						violation('D', "no leader is reported while there is one", s->by, call, NULL);
					else if (strtoll(call->answer, NULL, 10) != s->hold->token)
						violation('M', "another leader is reported", s->by, call, NULL);
				}
			}
	}
	free(spans.at);
}

typedef struct Change
{
	int64_t number;
	const Call *by;
} Change;

static int
change_by_number(const void *a, const void *b)
{
	const Change *x = a, *y = b;

	return (x->number > y->number) - (x->number < y->number);
}

static bool
next_change(const char **text, int64_t *number)
{
	if (*text == NULL || **text == '\0')
		return false;
	*number = strtoll(*text, NULL, 10);
	*text = strchr(*text, ';');
	if (*text)
		(*text)++;
	return true;
}

/* Checks that this reply contains all changes up to its last one. */
static void
check_history(const Call *call, const Change *changes, size_t n)
{
	const char *text = call->answer;
	int64_t number, last = call->after;
	size_t i = 0;

	figures.checked['H']++;
	while (next_change(&text, &number))
	{
		if (number <= last)
			violation('H', "changes out of order", call, NULL, NULL);
		last = number;
		while (i < n && changes[i].number <= call->after)
			i++;
		while (i + 1 < n && changes[i].number == changes[i + 1].number)
			i++;
		if (i < n && changes[i].number < number)
		{
			violation('H', "a change that another observer has seen is missing", changes[i].by, call, NULL);
			return;
		}
		i++;
	}
}

/*
 * Compares reads between two asynchronous promotions, each of which may undo changes that were seen before.
 */
static void
check_histories_of(int name, Time from, Time to)
{
	LIST(Change) changes = {0};

	for (int pass = 0; pass < 2; pass++)
	{
		if (pass == 1 && changes.n > 0)
			qsort(changes.at, changes.n, sizeof(Change), change_by_number);
		for (size_t i = 0; i < clients.n; i++)
			for (size_t j = 0; j < clients.at[i].calls.n; j++)
			{
				const Call *call = &clients.at[i].calls.at[j];
				const char *text = call->answer;
				int64_t number;

				if (!is_op(call, "history") || call->names[0] != name || call->status != STATUS_OK ||
					call->sent < from || call->received > to)
					continue;
				if (pass == 1)
					check_history(call, changes.at, changes.n);
				else
					while (next_change(&text, &number))
						*APPEND(changes) = (Change){number, call};
			}
	}
	free(changes.at);
}

void
check_histories(void)
{
	for (int name = 0; name < name_count(); name++)
		for (Time from = 0; from < FOREVER; from = lost_after(from))
			check_histories_of(name, from, lost_after(from));
}

/* --- F --- */

typedef struct Write
{
	int name;
	const Call *write, *commit;
} Write;

static int
write_by_value(const void *a, const void *b)
{
	const Write *x = a, *y = b;

	if (x->name != y->name)
		return x->name - y->name;
	if (x->write->value != y->write->value)
		return x->write->value < y->write->value ? -1 : 1;
	return (x->commit->sent > y->commit->sent) - (x->commit->sent < y->commit->sent);
}

void
check_updates(void)
{
	LIST(Write) writes = {0};

	for (size_t i = 0; i < clients.n; i++)
		for (size_t j = 0; j + 1 < clients.at[i].calls.n; j++)
		{
			const Call *call = &clients.at[i].calls.at[j];

			if (is_op(call, "write") && call->status == STATUS_OK && is_op(call + 1, "commit") &&
				call[1].status == STATUS_OK && call[1].answer[0] == 'C')
				*APPEND(writes) = (Write){call->names[0], call, call + 1};
		}
	if (writes.n > 0)
		qsort(writes.at, writes.n, sizeof(Write), write_by_value);
	figures.updates = (long) writes.n;
	for (size_t i = 1; i < writes.n; i++)
	{
		const Write *a = &writes.at[i - 1], *b = &writes.at[i];

		/* a commit that was lost by an asynchronous promotion is repeated */
		if (a->name != b->name || a->write->value != b->write->value ||
			lost_after(a->commit->sent) < b->commit->received)
			continue;
		figures.lost++;
		if (!unfenced)
			violation('F', "an update is lost: both have counted from the same number", a->write, b->write,
					  NULL);
	}
	figures.checked['F'] = (long) writes.n;
	free(writes.at);
}

/* --- G --- */

void
check_left(void)
{
	for (size_t i = 0; i < lefts.n; i++)
	{
		figures.checked['G']++;
		if (lefts.at[i].count != 0)
			violation('G', "something is left behind", NULL, NULL, lefts.at[i].line);
	}
}
