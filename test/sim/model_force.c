/*
 * model_force.c
 *		The commands of administrators, by the contract: everything of a name or
 *		a role is ended, and its waiters are granted.
 */
#include "model.h"

/* --- a name --- */

/* Opens a name that is closed, or will be closed at the end of its holder's fence. */
static void
reopen(Model *m, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	MLock *lock = m_lock(m, (uint8_t) cmd->kind, sim_text_id(cmd->name.data));

	for (int i = 0; i < m->s.nentries; i++)
	{
		MEntry *e = &m->s.entries[i];

		if (!e->lapsed || e->closed_until <= now || e->kind != cmd->kind ||
			e->name != sim_text_id(cmd->name.data) || (!cmd->any_role && e->role != cmd->role))
			continue;
		e->closed_until = 0;
		reply->reopened = true;
	}
	if (lock->closed_until <= now || (!cmd->any_role && lock->closed_by != cmd->role))
		return;
	lock->closed_until = 0;
	reply->reopened = true;
}

void
m_force(Model *m, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	int64_t tokens[4096];
	int n = 0;

	for (int i = 0; i < m->s.nentries && n < 4096; i++)
	{
		const MEntry *e = &m->s.entries[i];

		if (e->held && !e->lapsed && e->kind == cmd->kind && e->name == sim_text_id(cmd->name.data) &&
			(cmd->any_role || e->role == cmd->role))
			tokens[n++] = e->token;
	}
	m_defer(m);
	for (int i = 0; i < n; i++)
		m_end(m, m_find(m, (uint8_t) cmd->kind, sim_text_id(cmd->name.data), tokens[i]), LE_END_FORCED, 0,
			  now);
	reopen(m, cmd, now, reply);
	m_undefer(m, now);
	if (reply->reopened)
		m_settle(m, (uint8_t) cmd->kind, sim_text_id(cmd->name.data), now);
	reply->ended = n;
}

static void
evict_one(Model *m, MEntry *e, LeTime now)
{
	if (e->lease != 0)
		e->deadline = m_find_lease(m, e->lease)->deadline;
	e->most = e->lease != 0 || m_shares_time(e) ? e->deadline - now : e->ttl;
	e->evicted = true;
	e->alone = e->group && e->lease == 0;
}

/* Entries that share their lease are one holder. */
static void
evict(Model *m, MEntry *e, LeTime now)
{
	bool all = m_shares_time(e);

	evict_one(m, e, now);
	for (int i = 0; i < m->s.nentries && all; i++)
	{
		if (m->s.entries[i].token == e->token && m->s.entries[i].held && !m->s.entries[i].lapsed &&
			!m->s.entries[i].evicted)
			evict_one(m, &m->s.entries[i], now);
	}
}

/*
 * Evicts all holders, or none if one of them has no deadline.  From now on, nothing moves the deadline of
 * these holders: it is the last one that their clients were told.
 */
void
m_evict(Model *m, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	for (int pass = 0; pass < 2; pass++)
	{
		for (int i = 0; i < m->s.nentries; i++)
		{
			MEntry *e = &m->s.entries[i];

			if (!e->held || e->lapsed || e->evicted || e->kind != cmd->kind ||
				e->name != sim_text_id(cmd->name.data) || !m_manages(cmd, e->role))
				continue;
			if (e->lease == 0 && e->ttl == LE_TTL_BOUND)
			{
				reply->status = LE_HELD_BOUND;
				return;
			}
			if (pass == 0)
				continue;
			evict(m, e, now);
			reply->ended++;
		}
	}
}

/* --- a role --- */

/*
 * Returns whether the core has chosen to end this entry in this step.  A wait that has become one more hold
 * of a holder has ended, too, but not by force.
 */
static bool
is_gone(Model *m, const MEntry *e)
{
	const LeEntry *c = m_core_entry(m, e);

	if (c != NULL)
		return c->state == LE_STATE_LAPSED;
	for (LeEntry *a = NULL; (a = le_next_answer(m->w->core, a)) != NULL;)
	{
		if (a->waiter->session == e->waiter && a->waiter->request == e->request)
			return a->end != LE_END_REPLACED;
	}
	return true;
}

/*
 * Ends the role's entries that belong to this step, waiters or holders.  Returns the number of remaining
 * entries.
 */
static int
force_entries(Model *m, const LeCommand *cmd, bool held, LeTime now, LeReply *reply)
{
	int left = 0;

	m_defer(m);
	for (int i = m->s.nentries - 1; i >= 0; i--)
	{
		/* entries that wait as one end as one */
		MEntry *e = i < m->s.nentries ? &m->s.entries[i] : NULL;

		if (e == NULL || e->role != cmd->role || e->held != held || e->lapsed)
			continue;
		if (m->actual->next != 0 && !is_gone(m, e))
		{
			left++;
			continue;
		}
		reply->ended++;
		m_end(m, e, LE_END_FORCED, 0, now);
	}
	m_undefer(m, now);
	return left;
}

static void
force_leases(Model *m, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	for (int i = m->s.nleases - 1; i >= 0; i--)
	{
		int64_t id = m->s.leases[i].id;

		if (m->s.leases[i].role != cmd->role)
			continue;
		if (m->actual->next != 0 && le_core_find_lease(m->w->core, id) != NULL)
			continue;
		reply->ended++;
		m_end_lease(m, id, LE_END_FORCED, now);
	}
}

/* Opens names that would be closed at the end of a fence. */
static void
force_lapsed(Model *m, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	for (int i = 0; i < m->s.nentries; i++)
	{
		MEntry *e = &m->s.entries[i];
		const LeEntry *c = e->lapsed && e->role == cmd->role ? m_core_entry(m, e) : NULL;

		if (c == NULL || e->closed_until <= now || (m->actual->next != 0 && c->closed_until > now))
			continue;
		e->closed_until = 0;
		reply->ended++;
		reply->reopened = true;
	}
}

static void
force_closed(Model *m, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	for (int i = 0; i < m->w->conf.names * 2; i++)
	{
		MLock *lock = &m->s.locks[i];
		LeKind kind = i % 2 ? LE_KIND_LOCK : LE_KIND_ELECTION;
		const LeLock *c = le_core_find_lock(m->w->core, kind, sim_name(i / 2));

		if (lock->closed_until == 0 || lock->closed_by != cmd->role ||
			(m->actual->next != 0 && c != NULL && c->closed_until == lock->closed_until))
			continue;
		reply->reopened |= lock->closed_until > now;
		reply->ended += lock->closed_until > now;
		lock->closed_until = 0;
		m_settle(m, (uint8_t) kind, i / 2, now);
	}
}

/*
 * Ends all entries of a role, or those that the core has chosen for this step.  The order of kinds is
 * defined: waiters end first, because they would otherwise be granted the locks of ended holders.
 */
void
m_force_role(Model *m, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	int left = force_entries(m, cmd, false, now, reply), waits = reply->ended;

	force_leases(m, cmd, now, reply);
	(void) force_entries(m, cmd, true, now, reply);
	force_lapsed(m, cmd, now, reply);
	force_closed(m, cmd, now, reply);
	ENSURE(m->w, left == 0 || reply->ended == waits);
}
