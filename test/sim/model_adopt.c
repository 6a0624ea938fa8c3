/*
 * model_adopt.c
 *		Several events were due at the same moment.  Their order is not defined,
 *		so the model checks the core's outcome, and adopts it.
 */
#include <stdlib.h>
#include <string.h>

#include "model.h"

static bool
lease_due(Model *m, const MEntry *e, LeTime now)
{
	return e->lease != 0 && m_find_lease(m, e->lease)->deadline <= now;
}

static bool
own_time_due(const MEntry *e, LeTime now)
{
	return m_has_own_time(e) && e->deadline <= now;
}

/* Checks that no entry ended that was not due. */
static void
check_gone(Model *m, const MEntry *e, LeTime now)
{
	bool due = lease_due(m, e, now) || own_time_due(e, now) || (e->waiter != 0 && e->wait_until <= now) ||
			   (e->lapsed && e->retry <= now);
	bool joined = false;

	for (LeEntry *a = NULL; (a = le_next_answer(m->w->core, a)) != NULL;)
	{
		if (a->waiter->session == e->waiter && a->waiter->request == e->request)
			joined = a->end == LE_END_REPLACED;
	}
	if (!due && !joined)
		sim_fail(m->w, "token %lld ended, and was not due", (long long) e->token);
	if (e->held)
		ENSURE(m->w, !world_fenced(m->w, e->token));
}

/* Returns the entry in which the core keeps the wait: the first of those that wait as one. */
static const LeEntry *
waits_in(const LeEntry *c)
{
	return c->state == LE_STATE_QUEUED && c->grouped ? c->waiter->group->members : c;
}

/* Checks that no entry stays that had to end. */
static void
check_there(Model *m, const MEntry *e, const LeEntry *c, LeTime now)
{
	bool lapsed = c->state == LE_STATE_LAPSED;

	ENSURE(m->w, !e->held || le_entry_has_slot(c));
	ENSURE(m->w, lapsed || c->lease == NULL || c->lease->deadline > now);
	ENSURE(m->w, lapsed || (c->lease != NULL && !c->evicted) || c->deadline > now);
	if (lapsed && !e->lapsed)
		ENSURE(m->w, world_fenced(m->w, e->token) && (lease_due(m, e, now) || own_time_due(e, now)));
	if (c->state == LE_STATE_QUEUED)
		ENSURE(m->w, waits_in(c)->waiter->until > now);
	if (e->held && !lapsed)
		ENSURE(m->w, c->hold_count >= e->count);
}

/* Checks that entries that waited as one still wait, were granted, or ended together. */
static void
check_together(Model *m, const MEntry *e, const MEntry *other)
{
	LeEntry *c[2];

	if (!e->group || e->held || e->token != other->token)
		return;
	c[0] = m_core_entry(m, e);
	c[1] = m_core_entry(m, other);
	ENSURE(m->w, (c[0] == NULL) == (c[1] == NULL));
	ENSURE(m->w, c[0] == NULL || le_entry_has_slot(c[0]) == le_entry_has_slot(c[1]));
}

static void
take_over(Model *m, MEntry *e, const LeEntry *c)
{
	const LeWaiter *waiter = waits_in(c)->waiter;

	if (!e->held && le_entry_has_slot(c) && e->mode == LE_MODE_EXCLUSIVE)
	{
		MLock *lock = m_lock(m, e->kind, e->name);

		ENSURE(m->w, e->token > lock->last_exclusive);
		lock->last_exclusive = e->token;
	}
	e->stored = e->stored && e->held == le_entry_has_slot(c);
	e->held = le_entry_has_slot(c);
	e->lapsed = c->state == LE_STATE_LAPSED;
	e->retry = e->lapsed ? c->timer.at : 0;
	e->closed_until = e->lapsed ? c->closed_until : 0;
	e->lease = le_entry_named_lease(c) != NULL ? c->lease->id : 0;
	ENSURE(m->w, c->evicted == (e->evicted && !e->lapsed));
	e->evicted = c->evicted;
	e->alone = e->group && (e->lapsed || e->evicted) && c->lease == NULL;
	e->ttl = m_shares_time(e) && c->lease != NULL ? c->lease->ttl : c->ttl;
	e->deadline = m_shares_time(e) && c->lease != NULL ? c->lease->deadline : c->deadline;
	e->acquired = e->held ? c->acquired_at : 0;
	e->answered = waiter != NULL && waiter->answering;
	e->wait_until = e->held ? LE_NEVER : waiter->until;
	e->waiter = e->answered || e->held ? 0 : waiter->session;
	e->count = c->hold_count;
	e->value = sim_text_id(c->value);
}

static void
adopt_answers(Model *m)
{
	m->nanswers = 0;
	for (LeEntry *a = NULL; (a = le_next_answer(m->w->core, a)) != NULL;)
	{
		MAnswer answer = {a->waiter->session, a->waiter->request, (LeStatus) a->waiter->answer,
						  a->waiter->answer_token};

		m->answers = m_grow(m->answers, m->nanswers, &m->max_answers, sizeof(MAnswer));
		m->answers[m->nanswers++] = answer;
	}
}

static void
adopt_locks(Model *m, LeTime now)
{
	for (int i = 0; i < m->w->conf.names * 2; i++)
	{
		const LeLock *lock =
			le_core_find_lock(m->w->core, i % 2 ? LE_KIND_LOCK : LE_KIND_ELECTION, sim_name(i / 2));
		MLock *mine = &m->s.locks[i];

		mine->permits = lock != NULL ? lock->permits : 0;
		mine->closed_until = lock != NULL && lock->closed_until > now ? lock->closed_until : 0;
		mine->closed_by = lock != NULL ? lock->closed_by : 0;
		mine->unstored = mine->closed_until;
	}
}

/* Checks the strict order: older waiters are granted before newer ones. */
static void
check_order(Model *m)
{
	for (int i = 0; i < m->s.nentries; i++)
	{
		const MEntry *granted = &m->s.entries[i];

		for (int k = 0; k < i && granted->held && granted->acquired == m->w->now; k++)
		{
			const MEntry *older = &m->s.entries[k];

			ENSURE(m->w, older->held || older->kind != granted->kind || older->name != granted->name);
		}
	}
}

static int
by_place(const void *a, const void *b)
{
	const MHold *x = a, *y = b;

	return x->xact != y->xact         ? (x->xact < y->xact ? -1 : 1)
		   : x->subxact != y->subxact ? (x->subxact < y->subxact ? -1 : 1)
		   : x->token != y->token     ? (x->token < y->token ? -1 : 1)
									  : x->name - y->name;
}

static void
adopt_holds(Model *m)
{
	m->s.nholds = 0;
	for (int i = 0; i < m->s.nentries; i++)
	{
		const LeEntry *c = m_core_entry(m, &m->s.entries[i]);

		for (const LeUncommitted *h = c->uncommitted; h != NULL; h = h->next)
			m_add_hold(m, &m->s.entries[i],
					   &(LeCommand){.session = h->session,
									.sessno = m_sessno(m, h->session),
									.xact = h->xact,
									.subxact = h->subxact});
	}
	if (m->s.nholds > 0)
		qsort(m->s.holds, (size_t) m->s.nholds, sizeof(MHold), by_place);
}

void
model_adopt(Model *m, LeTime now)
{
	int n = 0;

	for (int i = 0; i < m->s.nentries; i++)
	{
		const MEntry *e = &m->s.entries[i];
		const LeEntry *c = m_core_entry(m, e);

		if (i > 0)
			check_together(m, e, e - 1);
		if (c == NULL)
			check_gone(m, e, now);
		else
			check_there(m, e, c, now);
	}
	for (int i = 0; i < m->s.nentries; i++)
	{
		MEntry e = m->s.entries[i];
		const LeEntry *c = m_core_entry(m, &e);

		if (c == NULL)
			continue;
		take_over(m, &e, c);
		m->s.entries[n++] = e;
	}
	m->s.nentries = n;
	n = 0;
	for (int i = 0; i < m->s.nleases; i++)
	{
		const MLease *lease = &m->s.leases[i];

		ENSURE(m->w, (le_core_find_lease(m->w->core, lease->id) == NULL) == (lease->deadline <= now));
		if (lease->deadline > now)
			m->s.leases[n++] = *lease;
	}
	m->s.nleases = n;
	adopt_holds(m);
	adopt_answers(m);
	adopt_locks(m, now);
	m->next = le_core_next_revision(m->w->core);
	check_order(m);
}
