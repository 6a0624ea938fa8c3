/*
 * handoffs.c
 *		W and L: every waiter that can be granted is granted soon.
 *
 * A waiter can be granted when all requests that were, or may have been, ahead
 * of it have certainly ended. This is known of released and rejected ones; a
 * dead one ends at most its TTL after the reply to its last sign of life. Faults
 * of the nemesis delay everything until they end; after a restart every lease
 * has its TTL again.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

/* Time after a fault in which connections are made and queues are long. */
#define SETTLE (500 * MS)
/* A waiter or holder whose outcome is unknown may exist for this long after its connection. */
#define UNKNOWN_LEASE (60 * SECOND)
#define END_NOTICED   (1 * SECOND)
/* An asynchronous standby lags behind by less than this. */
#define LOST_TAIL (1 * SECOND)
/* Above this number of permits, nothing is checked. */
#define MAX_PERMITS 16

/* A request that may be ahead of a waiter, from its sending on. */
typedef struct Occupant
{
	Time from, gone, gone_before; /* the latest end of all up to this one */
	int64_t token;                /* 0: unknown */
	const Call *call;
} Occupant;

typedef LIST(Occupant) Occupants;

/* Returns whether a fault delays all clients: not if it hits one client, the wall clock or notifications. */
static bool
hits_all(const Window *w)
{
	static const char *const harmless[] = {"jump-clock", "fill-notifications"};

	for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++)
		if (strcmp(w->kind, harmless[i]) == 0)
			return false;
	return w->pid == 0;
}

/* Returns the first time from t on at which no fault delays anything. */
Time
outside_windows(Time t)
{
	for (size_t i = 0; i < windows.n; i++)
	{
		const Window *w = &windows.at[i];

		if (hits_all(w) && w->from <= t && t < w->to + SETTLE)
			t = w->to + SETTLE;
	}
	return t;
}

/* Returns whether the wall clock was set: stored times of day have another meaning then. */
bool
clock_jumped(Time from, Time to)
{
	for (size_t i = 0; i < windows.n; i++)
		if (strcmp(windows.at[i].kind, "jump-clock") == 0 && windows.at[i].from < to &&
			windows.at[i].to > from)
			return true;
	return false;
}

bool
was_stopped(const Client *c, Time from, Time to)
{
	for (size_t i = 0; i < windows.n; i++)
		if (windows.at[i].pid == c->pid && windows.at[i].from < to && windows.at[i].to > from)
			return true;
	return false;
}

/* Returns whether the server ended without a regular shutdown. */
static bool
is_crash(const Window *w)
{
	static const char *const crashes[] = {"stop-server", "kill-backend", "kill-manager", "fill-wal"};

	for (size_t i = 0; i < sizeof(crashes) / sizeof(crashes[0]); i++)
		if (strcmp(w->kind, crashes[i]) == 0)
			return true;
	return false;
}

/*
 * Returns the latest end of an entry: a fault during its life may have given it its full TTL again, or
 * undone its end, because a crash undoes releases that were confirmed just before it.
 */
static Time
prolonged(Time from, Time gone, Time ttl, bool ended)
{
	for (size_t i = 0; i < windows.n; i++)
	{
		const Window *w = &windows.at[i];
		bool lost = strcmp(w->kind, "promote-async") == 0 || (ended && is_crash(w));
		bool keeps = strcmp(w->kind, "stop-backend") == 0 || strcmp(w->kind, "terminate") == 0;

		if (!hits_all(w) || keeps || w->to < from || (ended && !lost) ||
			w->from - (lost ? LOST_TAIL : 0) > gone)
			continue;
		if (gone < w->to + SETTLE + ttl)
			gone = w->to + SETTLE + ttl;
	}
	return gone;
}

static Time
known_ttl(const Call *call)
{
	return call->lease ? UNKNOWN_LEASE : call->ttl;
}

/* Calls that got a reply without a grant, or no reply. */
static void
occupant_of_call(const Call *call, Occupants *list)
{
	Time gone = call->received;
	bool known = call->status == STATUS_NULL || call->status == STATUS_ERROR;

	if (call->received < FOREVER && !known)
		gone = call->received + END_NOTICED + known_ttl(call);
	if (gone < FOREVER)
		gone = prolonged(call->sent, gone, known_ttl(call), known);
	*APPEND(*list) = (Occupant){call->sent, gone, 0, 0, call};
}

static void
occupant_of_hold(const Hold *h, Occupants *list)
{
	Time gone = hold_gone(h);
	Time ttl = h->lease->ttl_high == FOREVER ? 0 : h->lease->ttl_high;

	/* after a restart, a closed name stays closed for its full time at most */
	if (h->hold_for > ttl)
		ttl = h->hold_for;
	if (gone < FOREVER)
		gone = prolonged(h->asked->sent, gone, ttl, h->gone < FOREVER && h->hold_for == 0);
	*APPEND(*list) = (Occupant){h->asked->sent, gone, 0, h->token, h->asked};
}

static int
by_from(const void *a, const void *b)
{
	const Occupant *x = a, *y = b;

	return (x->from > y->from) - (x->from < y->from);
}

static void
occupants_of(int name, Occupants *list)
{
	list->n = 0;
	for (size_t i = 0; i < holds.n; i++)
		if (holds.at[i]->name == name)
			occupant_of_hold(holds.at[i], list);
	for (size_t i = 0; i < clients.n; i++)
		for (size_t j = 0; j < clients.at[i].calls.n; j++)
		{
			const Call *call = &clients.at[i].calls.at[j];

			for (int k = 0; k < call->nnames && is_acquire(call) && call->status != STATUS_OK; k++)
				if (call->names[k] == name)
					occupant_of_call(call, list);
		}
	if (list->n == 0)
		return;
	qsort(list->at, list->n, sizeof(Occupant), by_from);
	for (size_t i = 0; i < list->n; i++)
	{
		Occupant *o = &list->at[i];

		o->gone_before =
			i > 0 && list->at[i - 1].gone_before > o->gone ? list->at[i - 1].gone_before : o->gone;
	}
}

/*
 * Returns the number of permits that was certain up to the time "until", and since when; if none is certain,
 * one permit, always.
 */
static void
permits_at(const Calls *calls, const Call *asked, Time until, int *permits, Time *since)
{
	const Call *last = NULL;

	*permits = asked->mode == 'p' ? asked->permits : 1;
	*since = asked->sent;
	if (asked->mode != 'p')
		return;
	for (size_t i = calls_sent(calls, until); i-- > 0 && calls->at[i]->sent > asked->sent - CARRIED_OUT;)
	{
		const Call *call = calls->at[i];

		if (!is_op(call, "set_permits") || call->received < asked->sent)
			continue;
		if (last == NULL && call->status == STATUS_OK && call->received < until &&
			lost_after(call->sent) > until)
		{
			last = call;
			*permits = permits_of(call);
			*since = call->received;
		}
		else if (last == NULL || call->received > last->sent)
		{
			/* any of these calls may have been applied last */
			*permits = 1;
			return;
		}
	}
}

/* Keeps the n latest of these times. */
static void
keep_latest(Time *latest, int n, Time t)
{
	int i = n - 1;

	if (t <= latest[i])
		return;
	for (; i > 0 && latest[i - 1] < t; i--)
		latest[i] = latest[i - 1];
	latest[i] = t;
}

/*
 * Returns when enough of the requests ahead of a request with this token have
 * ended: all of them, or so many that a permit is left for it.  FOREVER: not
 * before it is granted or gives up (at the time "until"), as far as is known.
 */
static Time
way_free(const Occupants *list, const Calls *calls, const Call *self, int64_t token, Time until, bool *waited,
		 const Call **front)
{
	size_t low = 0, high = list->n;
	Time latest[MAX_PERMITS] = {0};
	Time since;
	int permits;

	permits_at(calls, self, until, &permits, &since);
	if (permits < 1 || permits > MAX_PERMITS)
		return FOREVER;
	while (low < high)
	{
		size_t middle = (low + high) / 2;

		if (list->at[middle].from < until)
			low = middle + 1;
		else
			high = middle;
	}
	for (size_t i = low; i-- > 0 && list->at[i].gone_before > self->sent;)
	{
		const Occupant *o = &list->at[i];

		if (o->call == self || (token && o->token >= token) || o->gone <= self->sent)
			continue;
		*waited = true;
		if (o->gone > latest[permits - 1])
			*front = o->call;
		keep_latest(latest, permits, o->gone);
		if (latest[permits - 1] >= until)
			return FOREVER;
	}
	return latest[permits - 1] > since ? latest[permits - 1] : since;
}

static LIST(Time) times;

static int
by_time(const void *a, const void *b)
{
	Time x = *(const Time *) a, y = *(const Time *) b;

	return (x > y) - (x < y);
}

static void
check_waiter(Occupants *lists, const Calls *permits, const Call *call, int64_t token, const Call *asked,
			 Time until)
{
	Time free_at = asked->sent;
	bool waited = false;
	const Call *front = NULL;

	for (int k = 0; k < call->nnames; k++)
	{
		Time t =
			way_free(&lists[call->names[k]], &permits[call->names[k]], asked, token, until, &waited, &front);

		if (t > free_at)
			free_at = t;
	}
	if (free_at < FOREVER)
		free_at = outside_windows(free_at);
	if (!waited || free_at >= until || was_stopped(call->client, free_at, until))
		return;
	figures.checked['W']++;
	if (call == asked && call->status == STATUS_OK)
		*APPEND(times) = until - free_at;
	if (until - free_at > 20 * MS + slack)
		violation('W', "a waiter could have been granted much earlier", front ? front : call, call, NULL);
}

static void
check_waiters(Occupants *lists, const Calls *permits, const Client *c)
{
	for (size_t j = 0; j < c->calls.n; j++)
	{
		const Call *call = &c->calls.at[j];

		if (is_op(call, "acquire") && call->wait != 0 && call->lease == 0 && call->owner == NULL &&
			(call->status == STATUS_OK || call->status == STATUS_NULL))
			check_waiter(lists, permits, call,
						 call->status == STATUS_OK ? strtoll(call->answer, NULL, 10) : 0, call,
						 call->received);
		else if (is_op(call, "await") && call->status == STATUS_OK && call->answer[0] == 'f')
			for (size_t k = j; k-- > 0;)
			{
				const Call *asked = &c->calls.at[k];

				if (is_op(asked, "enqueue") && asked->status == STATUS_OK &&
					strtoll(asked->answer, NULL, 10) == call->token)
				{
					check_waiter(lists, permits, call, call->token, asked, call->sent);
					break;
				}
			}
	}
}

void
check_handoffs(void)
{
	Occupants *lists = calloc((size_t) name_count() + 1, sizeof(Occupants));
	Calls *permits = calloc((size_t) name_count() + 1, sizeof(Calls));

	for (int name = 0; name < name_count(); name++)
	{
		occupants_of(name, &lists[name]);
		permit_calls(name, &permits[name]);
	}
	for (size_t i = 0; i < clients.n; i++)
		check_waiters(lists, permits, &clients.at[i]);
	for (int name = 0; name < name_count(); name++)
	{
		free(lists[name].at);
		free(permits[name].at);
	}
	free(lists);
	free(permits);
	if (times.n == 0)
		return;
	qsort(times.at, times.n, sizeof(Time), by_time);
	figures.handoffs = (long) times.n;
	figures.p50 = times.at[times.n / 2];
	figures.p99 = times.at[times.n * 99 / 100];
	figures.longest = times.at[times.n - 1];
	figures.checked['L'] = figures.handoffs;
	if (times.n >= 100 && figures.p99 > percentile_limit)
		violation('L', "more than one of a hundred hand-offs takes too long", NULL, NULL, NULL);
}
