/*
 * claims.c
 *		The claims of each client: when it certainly held a lock, and the latest
 *		time until which it may have held it or waited for it.
 *
 * Times are the client's.  A grant is claimed from the receipt of its reply to
 * the sending of the last renewal plus the TTL, or to the sending of the
 * release.  A lock that is bound to the connection, or acquired in a transaction
 * that is still open, can end without the client's knowledge: it is claimed to
 * the sending of the last call in that connection that got a reply.  The same
 * applies to locks that are fenced, or released in a transaction, whatever their
 * TTL.  A call that forces the holders out ends all claims, unless a later event
 * shows that it did not affect this one.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

/* The server notices the end of a connection within this time. */
#define END_NOTICED (1 * SECOND)

Holds holds;

/* The active holds of the client that is being processed. */
static Holds active;
static LIST(Lease *) leases;
static bool in_xact;
static Time alive; /* the latest time at which the connection certainly existed */

bool
is_acquire(const Call *call)
{
	return is_op(call, "acquire") || is_op(call, "enqueue");
}

static Time
plus(Time a, Time b)
{
	return a == FOREVER || b == FOREVER || a > FOREVER - b ? FOREVER : a + b;
}

static Time
earlier(Time a, Time b)
{
	return a < b ? a : b;
}

static Time
later(Time a, Time b)
{
	return a > b ? a : b;
}

static bool
is_bound(const Hold *h)
{
	return h->lease->ttl == FOREVER;
}

/*
 * A grant that is bound to its connection waits for no standby: a new primary may have neither the
 * grant nor the end of the previous holder.
 */
bool
waited_for_no_standby(const Hold *h)
{
	if (!is_bound(h))
		return false;
	for (size_t i = 0; i < windows.n; i++)
		if (strcmp(windows.at[i].kind, "promote-sync") == 0 && h->asked->sent < windows.at[i].to &&
			h->asked->received > windows.at[i].from)
			return true;
	return false;
}

/* Can the hold end together with the connection, without the client's knowledge? */
static bool
is_weak(const Hold *h)
{
	return is_bound(h) || h->in_xact;
}

static Segment *
last_segment(Hold *h)
{
	return h->segments.n > 0 ? &h->segments.at[h->segments.n - 1] : NULL;
}

bool
covers(const Hold *h, Time from, Time to)
{
	for (size_t i = h->segments.n; i-- > 0;)
		if (h->segments.at[i].from <= from && h->segments.at[i].to >= to)
			return true;
	return false;
}

/* --- holders that are forced out --- */

/*
 * A cancel ends an acquire without an effect. Any other call may have been
 * applied, unless it is rolled back.
 */
static bool
cancelled_too_late(const Call *call)
{
	return call->status == STATUS_ERROR && strcmp(call->answer, "57014") == 0 && !in_xact &&
		   !is_acquire(call);
}

/* Forced releases by name, in order of their sending. */
static LIST(Calls) forces;

static int
call_by_sent(const void *a, const void *b)
{
	const Call *x = *(const Call *const *) a, *y = *(const Call *const *) b;

	return (x->sent > y->sent) - (x->sent < y->sent);
}

static void
find_forces(void)
{
	while (forces.n < (size_t) name_count())
		(void) APPEND(forces);
	for (size_t i = 0; i < clients.n; i++)
		for (size_t j = 0; j < clients.at[i].calls.n; j++)
		{
			Call *call = &clients.at[i].calls.at[j];

			if (!is_op(call, "force"))
				continue;
			if (cancelled_too_late(call))
				call->status = STATUS_UNKNOWN;
			if (call->status == STATUS_UNKNOWN || call->status == STATUS_OK)
				*APPEND(forces.at[call->names[0]]) = call;
		}
	for (size_t i = 0; i < forces.n; i++)
		if (forces.at[i].n > 0)
			qsort(forces.at[i].at, forces.at[i].n, sizeof(Call *), call_by_sent);
}

/* Returns when the call has been applied, or will never be. */
static Time
force_over(const Call *force)
{
	return force->status == STATUS_UNKNOWN ? plus(force->received, END_NOTICED) : force->received;
}

/* Returns the first call that may have ended a holder of this name after this time. */
static const Call *
next_force(int name, Time from)
{
	for (size_t i = 0; i < forces.at[name].n; i++)
	{
		const Call *force = forces.at[name].at[i];

		if (force_over(force) > from && (force->status == STATUS_UNKNOWN || strcmp(force->answer, "0") != 0))
			return force;
	}
	return NULL;
}

/* A call that finds no holder also opens a closed name. */
bool
forced_between(int name, Time from, Time to)
{
	for (size_t i = 0; i < forces.at[name].n; i++)
		if (forces.at[name].at[i]->sent < to && force_over(forces.at[name].at[i]) > from)
			return true;
	return false;
}

/* Was it certainly held before this time, to its client's knowledge? */
static bool
certain_before(const Hold *h, Time t)
{
	return h->segments.n > 0 && h->segments.at[0].from <= t;
}

/* Does the call concern this hold itself, and not only its lease, which the hold may have lost? */
static bool
is_about(const Call *call, const Hold *h)
{
	for (int i = 0; i < call->nnames; i++)
		if (call->names[i] == h->name)
			return is_acquire(call) || call->token == h->token;
	return false;
}

/* The call proves that it is held or queued: no force that was applied before has ended it. */
static void
survived(Hold *h, const Call *call)
{
	while (is_about(call, h) && h->force && force_over(h->force) < call->sent)
	{
		const Call *force = h->force;

		if (force->status == STATUS_OK && certain_before(h, force->sent) && !h->was_fenced &&
			!in_lost_tail(h->segments.at[0].from) && lost_after(force->sent) > call->sent)
			violation('E', "held after its holders were forced out", force, call, NULL);
		h->force = next_force(h->name, force_over(force));
	}
}

/* Returns until when a lease that this call has renewed or shown can be claimed. */
static Time
claimed_until(const Hold *h, const Call *call)
{
	Time t = earlier(plus(call->sent, h->lease->ttl), lost_after(call->sent));

	return h->force ? earlier(t, h->force->sent) : t;
}

/* The call proves that it is held, and has renewed it. */
static void
prove(Hold *h, const Call *call)
{
	Time deadline;
	Segment *s = last_segment(h);

	survived(h, call);
	deadline = claimed_until(h, call);

	h->lease->proof = later(h->lease->proof, call->sent);
	if (h->closed || call->received >= deadline)
		return;
	if (s == NULL || call->received > (is_weak(h) ? h->deadline : s->to))
	{
		s = APPEND(h->segments);
		s->from = s->to = call->received;
		s->by = call;
		h->deadline = deadline;
	}
	h->deadline = later(h->deadline, deadline);
	if (!is_weak(h))
		s->to = later(s->to, h->deadline);
}

/* Ends the claim at this time. */
static void
clip(Hold *h, Time t)
{
	for (size_t i = h->segments.n; i-- > 0;)
		h->segments.at[i].to = earlier(h->segments.at[i].to, t);
	h->deadline = earlier(h->deadline, t);
}

static void
close_hold(Hold *h, Time claimed, Time gone, const Call *by)
{
	clip(h, claimed);
	h->closed = true;
	h->in_xact = h->pending = false;
	h->fence_from = FOREVER;
	if (h->ended == NULL)
		h->ended = by;
	h->gone = earlier(h->gone, gone);
}

/* The connection existed when this call was sent. */
static void
still_alive(Time t)
{
	alive = t;
	for (size_t i = 0; i < active.n; i++)
	{
		Hold *h = active.at[i];
		Segment *s = last_segment(h);

		if (h->closed)
			continue;
		if (s && is_weak(h))
			s->to = later(s->to, earlier(t, h->deadline));
		if (h->fence_from < t && lost_after(h->fence_from) > t)
		{
			if (s == NULL || s->to < h->fence_from)
			{
				s = APPEND(h->segments);
				s->from = h->fence_from;
				s->by = h->granted;
			}
			s->to = later(s->to, t);
		}
	}
}

static Hold *
find_active(int64_t token, int name)
{
	for (size_t i = active.n; i-- > 0;)
		if (active.at[i]->token == token && (name < 0 || active.at[i]->name == name))
			return active.at[i];
	return NULL;
}

static Lease *
find_lease(int64_t number)
{
	for (size_t i = leases.n; i-- > 0;)
		if (leases.at[i]->number == number)
			return leases.at[i];
	return NULL;
}

static Lease *
new_lease(int64_t number, Time ttl, const Call *call)
{
	Lease *l = calloc(1, sizeof(Lease));

	l->number = number;
	l->ttl = l->ttl_high = ttl;
	l->proof = call->sent;
	l->latest = plus(call->received, ttl);
	*APPEND(leases) = l;
	return l;
}

static Hold *
new_hold(const Call *call, int name, int64_t token, Lease *lease)
{
	Hold *h = calloc(1, sizeof(Hold));

	h->client = call->client;
	h->name = name;
	h->token = token;
	h->mode = call->mode;
	h->permits = call->permits;
	h->lease = lease;
	h->asked = call;
	h->count = 1;
	h->in_xact = in_xact;
	h->fence_from = h->gone = FOREVER;
	h->force = next_force(name, call->sent);
	*APPEND(holds) = h;
	*APPEND(active) = h;
	return h;
}

/* --- what the replies prove --- */

/* The reply says that it is not held. Returns whether it should be held. */
static bool
denied(Hold *h, const Call *call)
{
	bool wrong = covers(h, call->sent, call->received);

	figures.checked['D'] += wrong;
	close_hold(h, call->sent, call->received, call);
	return wrong;
}

static void
deny(Hold *h, const Call *call)
{
	const Call *granted = h->granted ? h->granted : h->asked;

	if (denied(h, call))
		violation('D', "an acknowledged lock that was neither released nor expired is not held", granted,
				  call, NULL);
}

static void
renewed(Hold *h, const Call *call)
{
	h->lease->latest = later(h->lease->latest, plus(call->received, h->lease->ttl_high));
	if (call->status == STATUS_OK)
		prove(h, call);
}

static void
acquired(const Call *call)
{
	int64_t token = strtoll(call->answer, NULL, 10);
	Lease *lease = call->lease ? find_lease(call->lease) : NULL;
	bool granted =
		is_op(call, "acquire") || (strchr(call->answer, '|') && strchr(call->answer, '|')[1] == 't');

	if (lease == NULL && find_active(token, -1) == NULL)
		lease = new_lease(call->lease, call->ttl ? call->ttl : FOREVER, call);
	for (int i = 0; i < call->nnames; i++)
	{
		Hold *h = find_active(token, call->names[i]);

		if (h == NULL)
			h = new_hold(call, call->names[i], token, lease);
		else if (call->lease == 0)
			h->count++;
		if (!granted)
		{
			h->deadline = claimed_until(h, call);
			continue;
		}
		if (h->granted == NULL)
			h->granted = call;
		if (call->lease == 0)
			renewed(h, call);
		else
		{
			/* it is on a lease, which this call has not renewed */
			Call by_lease = *call;
			Segment *s;

			by_lease.sent = h->lease->proof;
			prove(h, &by_lease);
			s = last_segment(h);
			if (s && s->by == &by_lease)
				s->by = call;
		}
	}
}

/*
 * Returns whether an error says nothing about the place, because the server could not carry out the request: there is
 * no manager, or no synchronous standby (57P03), this server is a standby now (25006), the disk is full (53100), or, in
 * the portable edition, another transaction has not ended yet (55P03).
 */
static bool
tells_nothing(const Call *call)
{
	static const char *const states[] = {"57P03", "25006", "53100", "55P03"};

	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
		if (strcmp(call->answer, states[i]) == 0)
			return true;
	return false;
}

static void
awaited(const Call *call)
{
	Hold *h = find_active(call->token, call->names[0]);

	if (h == NULL)
		return;
	if (call->status == STATUS_OK && call->answer[0] == 't')
	{
		if (h->granted == NULL)
			h->granted = call;
		renewed(h, call);
	}
	else if (call->status == STATUS_ERROR && !tells_nothing(call))
	{
		if (h->granted == NULL && !h->closed && call->received < h->deadline)
			violation('D', "a place is lost before its deadline", h->asked, call, NULL);
		deny(h, call);
	}
	else
	{
		h->lease->latest = later(h->lease->latest, plus(call->received, h->lease->ttl_high));
		if (call->status == STATUS_OK && h->granted == NULL)
		{
			survived(h, call);
			h->deadline = claimed_until(h, call);
		}
	}
}

/* A new TTL counts from the sending of the call that sets it, if the call is applied. */
static void
change_ttl(Lease *lease, const Call *call)
{
	if (call->status != STATUS_OK && call->status != STATUS_UNKNOWN)
		return;
	lease->ttl_high = later(lease->ttl_high, call->ttl);
	lease->ttl = call->status == STATUS_OK ? call->ttl : earlier(lease->ttl, call->ttl);
	for (size_t i = 0; i < active.n; i++)
		if (active.at[i]->lease == lease)
			clip(active.at[i], call->sent + lease->ttl);
}

static void
asked_of_holder(const Call *call)
{
	Hold *h = find_active(call->token, call->names[0]);
	bool renews = is_op(call, "renew");

	if (h == NULL)
		return;
	if (call->status == STATUS_OK && call->answer[0] != 'f')
	{
		figures.checked['D'] += covers(h, call->sent, call->received);
		survived(h, call);
	}
	if (call->status == STATUS_NULL || (call->status == STATUS_OK && call->answer[0] == 'f') ||
		(call->status == STATUS_ERROR && strcmp(call->answer, "LE001") == 0))
	{
		deny(h, call);
		return;
	}
	if (!renews)
		return;
	if (call->ttl > 0)
		change_ttl(h->lease, call);
	for (size_t i = 0; i < active.n; i++)
		if (active.at[i]->lease == h->lease && active.at[i]->granted)
			renewed(active.at[i], call);
}

static void
fenced(const Call *call)
{
	Hold *h = find_active(call->token, call->names[0]);

	asked_of_holder(call);
	if (h && call->status != STATUS_ERROR)
		h->was_fenced = true;
	if (h && call->status == STATUS_OK)
		h->fence_from = earlier(h->fence_from, call->received);
}

static void
released_one(Hold *h, const Call *call)
{
	bool yes = call->status == STATUS_OK && call->answer[0] == 't';

	if (yes)
		survived(h, call);
	if (h->count == 1 && call->status != STATUS_ERROR)
		h->hold_for = call->hold_for;
	if (yes && in_xact)
	{
		h->was_fenced = true;
		if (h->count == 1)
		{
			h->pending = true;
			h->ended = call;
		}
		h->fence_from = earlier(h->fence_from, call->received);
	}
	else if (yes && h->count > 1)
		h->count--;
	else if (yes)
		close_hold(h, call->sent, h->uncertain ? FOREVER : call->received, call);
	else if (call->status != STATUS_ERROR)
	{
		h->uncertain = h->uncertain || h->count > 1;
		close_hold(h, call->sent, FOREVER, call);
	}
}

static void
released(const Call *call)
{
	bool no = call->status == STATUS_OK && call->answer[0] == 'f';
	bool all = true;
	Hold *h = NULL;

	for (int i = 0; i < call->nnames; i++)
	{
		h = find_active(call->token, call->names[i]);
		if (h == NULL)
			continue;
		if (!no)
			released_one(h, call);
		else if (!denied(h, call))
			all = false;
	}
	if (no && all && h && h->granted)
		violation('D', "an acknowledged lock that has not expired cannot be released", h->granted, call,
				  NULL);
}

static void
lease_called(const Call *call)
{
	Lease *lease = find_lease(call->lease);

	if (lease == NULL)
		return;
	for (size_t i = 0; i < active.n; i++)
	{
		Hold *h = active.at[i];

		if (h->lease != lease)
			continue;
		if (call->status == STATUS_NULL || (call->status == STATUS_OK && call->answer[0] == 'f'))
			deny(h, call);
		else if (is_op(call, "keep_alive"))
			renewed(h, call);
		else
			close_hold(h, call->sent, call->status == STATUS_OK ? call->received : FOREVER, call);
	}
	if (is_op(call, "keep_alive") && call->status != STATUS_NULL)
		lease->latest = later(lease->latest, plus(call->received, lease->ttl));
	if (is_op(call, "keep_alive") && call->status == STATUS_OK)
		lease->proof = call->sent;
}

/* --- transactions and connections --- */

/* Processes the end of a transaction, as far as its outcome is known. */
static void
end_xact(const Call *call, Status commit, bool committed)
{
	for (size_t i = 0; i < active.n; i++)
	{
		Hold *h = active.at[i];
		bool mine = h->in_xact, pending = h->pending;

		if (in_xact && h->fence_from != FOREVER)
			h->keeps = later(h->keeps, plus(call->received, END_NOTICED));
		h->fence_from = FOREVER;
		h->pending = false;
		h->in_xact = false;
		if (commit == STATUS_UNKNOWN && (mine || pending))
			close_hold(h, alive, FOREVER, call);
		else if (committed && pending)
			close_hold(h, call->sent, call->received, call);
		else if (committed && mine && last_segment(h))
			last_segment(h)->to = is_bound(h) ? last_segment(h)->to : later(last_segment(h)->to, h->deadline);
		else if (!committed && mine)
			close_hold(h, call->sent, plus(call->received, END_NOTICED), call);
		if (!committed && !mine && pending)
			h->ended = NULL;
	}
	in_xact = false;
}

static void
connection_ended(const Call *call)
{
	if (in_xact)
		end_xact(call, STATUS_UNKNOWN, false);
	for (size_t i = 0; i < active.n; i++)
		if (is_bound(active.at[i]))
			close_hold(active.at[i], alive, plus(call->sent, END_NOTICED), call);
}

static void
look_at(const Call *call)
{
	bool answered = call->number >= 0 && (call->status == STATUS_OK || call->status == STATUS_NULL);

	if (answered)
		still_alive(call->sent);
	if (is_op(call, "X"))
		connection_ended(call);
	else if (is_acquire(call))
	{
		if (call->status == STATUS_OK)
			acquired(call);
	}
	else if (is_op(call, "await"))
		awaited(call);
	else if (is_op(call, "renew") || is_op(call, "is_held") || is_op(call, "proclaim"))
		asked_of_holder(call);
	else if (is_op(call, "fence"))
		fenced(call);
	else if (is_op(call, "release"))
		released(call);
	else if (is_op(call, "grant_lease"))
	{
		if (call->status == STATUS_OK)
			new_lease(strtoll(call->answer, NULL, 10), call->ttl, call);
	}
	else if (is_op(call, "keep_alive") || is_op(call, "revoke_lease"))
		lease_called(call);
	else if (is_op(call, "begin"))
		in_xact = call->status == STATUS_OK;
	else if (is_op(call, "commit") || is_op(call, "rollback"))
		end_xact(call, call->status,
				 is_op(call, "commit") && call->status == STATUS_OK && call->answer[0] == 'C');
	if (in_xact && call->status == STATUS_ERROR)
		end_xact(call, STATUS_OK, false); /* aborted: a ROLLBACK follows */
}

/* Drops the oldest closed holds, which are no longer needed. */
static void
forget_closed(void)
{
	size_t n = 0;

	if (active.n < 64)
		return;
	for (size_t i = 0; i < active.n; i++)
		if (!active.at[i]->closed || i + 32 > active.n)
			active.at[n++] = active.at[i];
	active.n = n;
}

/* Holds that were certainly forced out, and are not kept by a fence, ended at that time. */
static void
forced_are_gone(void)
{
	for (size_t i = 0; i < holds.n; i++)
	{
		Hold *h = holds.at[i];

		if (h->force && h->force->status == STATUS_OK && certain_before(h, h->force->sent) && !h->was_fenced)
			h->gone = earlier(h->gone, h->force->received);
	}
}

void
find_holds(void)
{
	find_forces();
	for (size_t i = 0; i < clients.n; i++)
	{
		Client *c = &clients.at[i];
		Call *end;

		active.n = leases.n = 0;
		in_xact = false;
		alive = 0;
		for (size_t j = 0; j < c->calls.n; j++)
		{
			if (cancelled_too_late(&c->calls.at[j]))
				c->calls.at[j].status = STATUS_UNKNOWN;
			look_at(&c->calls.at[j]);
			forget_closed();
		}
		/* The client was killed, or is still running: its open entries end with it. */
		end = calloc(1, sizeof(Call));
		*end = (Call){.client = c, .op = "X", .sent = c->death, .received = c->death, .number = -1};
		connection_ended(end);
	}
	forced_are_gone();
}

/* Returns when it has certainly ended, by its client's knowledge; see handoffs.c for the server's. */
Time
hold_gone(const Hold *h)
{
	Time t = h->gone;

	if (t == FOREVER)
	{
		t = h->lease->latest;
		if (h->granted == NULL)
			t = plus(t, h->lease->ttl_high); /* it may have been granted at the last moment */
		t = later(t, h->keeps);
	}
	/* a closed name is not granted, either */
	if (h->hold_for > 0)
		t = later(t, plus(h->granted ? h->granted->received : FOREVER, h->hold_for));
	return t;
}
