/*
 * model_group.c
 *		The meaning of several names in one command, by the contract.  In the
 *		model a group is only a set of entries with one token, in several locks.
 *		Their own lease is not an object: a change of the deadline of one of them
 *		changes that of all.
 */
#include "model.h"

/* --- the time that a group shares --- */

bool
m_shares_time(const MEntry *e)
{
	return e->group && (e->held || e->place) && !e->alone && e->lease == 0 && e->ttl != LE_TTL_BOUND;
}

void
m_share_time(Model *m, const MEntry *e)
{
	for (int i = 0; i < m->s.nentries && m_shares_time(e); i++)
	{
		MEntry *member = &m->s.entries[i];

		if (member->token == e->token && m_shares_time(member))
		{
			member->ttl = e->ttl;
			member->deadline = e->deadline;
		}
	}
}

/* Returns whether this is the first of the entries that live, wait or end as one. */
bool
m_leads(Model *m, int i)
{
	const MEntry *e = &m->s.entries[i];

	for (int k = 0; k < i && (m_shares_time(e) || (e->group && !e->held)); k++)
	{
		const MEntry *other = &m->s.entries[k];

		if (other->token == e->token && (m_shares_time(other) || !other->held))
			return false;
	}
	return true;
}

void
m_expire_group(Model *m, int64_t token, LeTime closed_until, LeTime now)
{
	m_defer(m);
	for (int i = m->s.nentries - 1; i >= 0; i--)
	{
		MEntry *e = &m->s.entries[i];

		/* waiting entries end together */
		if (i >= m->s.nentries || e->token != token || !m_shares_time(e))
			continue;
		e->alone = true;
		e->deadline = LE_NEVER;
		m_end(m, e, LE_END_EXPIRED, closed_until, now);
	}
	m_undefer(m, now);
}

/* --- waiting and granting --- */

static int
names_of(Model *m, int64_t token, int *names)
{
	int n = 0;

	for (int i = 0; i < m->s.nentries; i++)
	{
		if (m->s.entries[i].token == token)
			names[n++] = m->s.entries[i].name;
	}
	return n;
}

/* Returns whether all members are first in their queues, and their locks admit them. */
bool
m_ready(Model *m, const MEntry *head, LeTime now)
{
	for (int i = 0; i < m->s.nentries; i++)
	{
		const MEntry *e = &m->s.entries[i];

		if (e->token == head->token &&
			(m_first(m, e->kind, e->name) != e || !m_admits(m, e->kind, e->name, e->mode, now)))
			return false;
	}
	return true;
}

void
m_grant_group(Model *m, int64_t token, LeTime now)
{
	int names[MAX_GROUP];
	int n = names_of(m, token, names);

	for (int i = 0; i < n; i++)
		m_grant(m, m_find(m, LE_KIND_LOCK, names[i], token), now);
	for (int i = 0; i < n; i++)
		m_settle(m, LE_KIND_LOCK, names[i], now);
}

void
m_end_waiting_group(Model *m, int64_t token, LeTime now)
{
	int names[MAX_GROUP];
	int n = names_of(m, token, names);

	for (int i = 0; i < n; i++)
		m_remove(m, m_find(m, LE_KIND_LOCK, names[i], token));
	for (int i = 0; i < n; i++)
		m_settle(m, LE_KIND_LOCK, names[i], now);
}

/* --- acquire --- */

/*
 * Returns the holders of which the request could be one more hold; if there are several, those with this
 * token.
 */
static uint32_t
find_holders(Model *m, const LeCommand *cmd, int64_t token, MEntry **holders)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < cmd->nnames; i++)
	{
		MEntry e = m_new_entry(cmd, cmd->names[i]);

		holders[i] = m_reentrant(m, &e, LE_OK, token);
		if (holders[i] != NULL)
			n++;
	}
	return n;
}

/* Determines the result for these holders of n names.  Returns whether it is the core's reply. */
static bool
judge(Model *m, const LeCommand *cmd, MEntry *const *holders, uint32_t n, LeReply *reply)
{
	const LeReply *actual = m->actual;

	reply->status = LE_BAD_GROUP;
	for (reply->which = 0; reply->which < cmd->nnames; reply->which++)
	{
		const MEntry *holder = holders[reply->which];

		if (n < cmd->nnames ? holder != NULL : holder->token != holders[0]->token)
			return actual->status == LE_BAD_GROUP && actual->which == reply->which;
	}
	for (reply->which = 0; reply->which < cmd->nnames; reply->which++)
	{
		MEntry e = m_new_entry(cmd, cmd->names[reply->which]);

		reply->status = m_reentry_status(holders[reply->which], &e);
		if (reply->status != LE_OK)
			return actual->status == reply->status && actual->which == reply->which;
	}
	return actual->status == LE_OK && actual->token == holders[0]->token;
}

/*
 * If the contract leaves open which holders are meant, they are those of the
 * core: tries all those with one token, and none of them.
 */
static uint32_t
choose_holders(Model *m, const LeCommand *cmd, MEntry **holders, LeReply *reply)
{
	int64_t token = 0;
	uint32_t n = 0;

	for (int i = 0; i <= m->s.nentries; i++)
	{
		n = find_holders(m, cmd, token, holders);
		if (n == 0 || judge(m, cmd, holders, n, reply))
			break;
		if (n == cmd->nnames && m->actual->status == LE_BAD_GROUP && m->actual->which < n)
		{
			MEntry e = m_new_entry(cmd, cmd->names[m->actual->which]);

			holders[m->actual->which] = m_reentrant(m, &e, LE_BAD_GROUP, holders[0]->token);
			if (judge(m, cmd, holders, n, reply))
				break;
		}
		token = i < m->s.nentries ? m->s.entries[i].token : 0;
	}
	return n;
}

static bool
acquire_again(Model *m, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	MEntry *holders[MAX_GROUP];

	if (choose_holders(m, cmd, holders, reply) == 0)
		return false;
	for (uint32_t i = 0; i < cmd->nnames && reply->status == LE_OK; i++)
	{
		MEntry e = m_new_entry(cmd, cmd->names[i]);
		bool counted;

		m_reenter(m, holders[i], &e, now, &counted);
		if (counted)
			m_add_hold(m, holders[i], cmd);
		reply->counted = reply->counted || counted;
		reply->token = holders[i]->token;
		reply->valid_for = m_time_left(m, holders[i], now);
		reply->reentrant = true;
	}
	return true;
}

/* Checks that each name that is in use is used as a lock. */
static bool
check_uses(Model *m, const LeCommand *cmd, LeReply *reply)
{
	for (uint32_t i = 0; i < cmd->nnames; i++)
	{
		MEntry e = m_new_entry(cmd, cmd->names[i]);

		reply->which = i;
		reply->status = m_check_use(m, cmd, &e);
		if (reply->status != LE_OK)
			return false;
	}
	return true;
}

static bool
all_admit(Model *m, const LeCommand *cmd, LeTime now)
{
	for (uint32_t i = 0; i < cmd->nnames; i++)
	{
		int name = sim_text_id(cmd->names[i].data);

		if (m_waiting(m, LE_KIND_LOCK, name) > 0 || !m_admits(m, LE_KIND_LOCK, name, cmd->mode, now))
			return false;
	}
	return true;
}

/* Not granted immediately: checks whether the request may wait. */
static bool
may_wait(Model *m, const LeCommand *cmd, LeReply *reply)
{
	int64_t limit = m->w->conf.limits.waiters_per_lock;

	reply->status = LE_NOT_GRANTED;
	for (uint32_t i = 0; i < cmd->nnames && !reply->own_session && !cmd->enqueue; i++)
	{
		MEntry e = m_new_entry(cmd, cmd->names[i]);

		reply->own_session = m_own_holder(m, &e);
		reply->which = i;
	}
	for (uint32_t i = 0; i < cmd->nnames && limit > 0 && (cmd->wait != 0 || cmd->enqueue); i++)
	{
		if (m_waiting(m, LE_KIND_LOCK, sim_text_id(cmd->names[i].data)) < limit)
			continue;
		reply->status = LE_LIMIT_WAITERS;
		reply->which = i;
		return false;
	}
	return cmd->wait != 0 || cmd->enqueue;
}

/* Returns whether exactly these names, in this order, wait with this token. */
static bool
waits_for_names(Model *m, int64_t token, const LeCommand *cmd)
{
	int names[MAX_GROUP];

	if (names_of(m, token, names) != (int) cmd->nnames)
		return false;
	for (uint32_t i = 0; i < cmd->nnames; i++)
	{
		const MEntry *e = m_find(m, LE_KIND_LOCK, sim_text_id(cmd->names[i].data), token);

		if (e == NULL || e->held || e->member != i + 1)
			return false;
	}
	return true;
}

static bool
holds_names(Model *m, int64_t token, const LeCommand *cmd)
{
	for (uint32_t i = 0; i < cmd->nnames; i++)
	{
		const MEntry *e = m_find(m, LE_KIND_LOCK, sim_text_id(cmd->names[i].data), token);

		if (e == NULL || !e->held || e->lapsed || e->evicted || e->lease != cmd->lease)
			return false;
	}
	return true;
}

/*
 * Returns the entry of an earlier copy of this request on its named lease: the oldest waiter, or else the
 * oldest holder.
 */
static const MEntry *
entered_on_lease(Model *m, const LeCommand *cmd, const MEntry *request)
{
	const MEntry *held = NULL;

	for (int i = 0; i < m->s.nentries; i++)
	{
		if (m_same_place(&m->s.entries[i], request) && waits_for_names(m, m->s.entries[i].token, cmd))
			return &m->s.entries[i];
	}
	for (int i = 0; i < m->s.nentries; i++)
	{
		const MEntry *e = &m->s.entries[i];

		if (e->kind == request->kind && e->name == request->name && e->owner == request->owner &&
			(held == NULL || e->token < held->token) && holds_names(m, e->token, cmd))
			held = e;
	}
	return held;
}

/* An earlier copy of the request exists on its named lease. */
static bool
enqueue_again(Model *m, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	MEntry request = m_new_entry(cmd, cmd->names[0]);
	const MEntry *first = cmd->enqueue && cmd->lease != 0 ? entered_on_lease(m, cmd, &request) : NULL;
	LeStatus status;

	if (first == NULL)
		return false;
	status = first->held ? m_reentry_status(first, &request) : LE_QUEUED;
	for (reply->which = 0; reply->which < cmd->nnames; reply->which++)
	{
		MEntry *e = m_find(m, LE_KIND_LOCK, sim_text_id(cmd->names[reply->which].data), first->token);

		reply->status = e->held ? m_reentry_status(e, &request) : LE_QUEUED;
		if (reply->status != LE_OK && reply->status != LE_QUEUED)
			return true;
	}
	reply->which = 0;
	reply->status = status;
	reply->token = first->token;
	for (uint32_t i = 0; i < cmd->nnames; i++)
		m_once_more(m, m_find(m, LE_KIND_LOCK, sim_text_id(cmd->names[i].data), reply->token), cmd, now,
					reply);
	return true;
}

void
m_acquire_group(Model *m, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	bool granted;

	m_touch(m, cmd, now);
	reply->status = m_check_lease(m, cmd, now);
	if (reply->status != LE_OK || enqueue_again(m, cmd, now, reply) || !check_uses(m, cmd, reply) ||
		acquire_again(m, cmd, now, reply))
		return;
	granted = all_admit(m, cmd, now);
	if (!granted && !may_wait(m, cmd, reply))
		return;
	reply->status = LE_LIMIT_LOCKS;
	if (m_role_is_full(m, cmd->role, cmd->nnames))
		return;
	reply->status = granted ? LE_OK : cmd->enqueue ? LE_QUEUED : LE_WAITING;
	reply->counted = true;
	reply->token = m->next++;
	for (uint32_t i = 0; i < cmd->nnames; i++)
	{
		MEntry e = m_new_entry(cmd, cmd->names[i]);

		e.token = reply->token;
		if (cmd->lease != 0)
			e.ttl = m_find_lease(m, cmd->lease)->ttl;
		e.member = (uint16_t) (i + 1);
		if (!granted && !cmd->enqueue)
			m_set_wait(&e, cmd, now);
		else if (!granted && m_shares_time(&e))
			e.deadline = now + e.ttl;
		m_add_hold(m, m_insert(m, &e), cmd);
	}
	if (granted)
		m_grant_group(m, reply->token, now);
	if (granted || cmd->enqueue)
		reply->valid_for = m_time_left(m, &m->s.entries[m->s.nentries - 1], now);
}

/* --- await --- */

void
m_await_group(Model *m, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	LeCommand one = *cmd;

	for (reply->which = 0; reply->which < cmd->nnames; reply->which++)
	{
		const MEntry *e =
			m_find(m, (uint8_t) cmd->kind, sim_text_id(cmd->names[reply->which].data), cmd->token);

		if (e == NULL || e->lapsed || (!e->held && !e->place))
			reply->status = LE_LOST;
		else if (e->role != cmd->role)
			reply->status = LE_DENIED;
		else if (e->evicted)
			reply->status = LE_LOST;
		if (reply->status != LE_OK)
		{
			m_touch(m, cmd, now);
			return;
		}
	}
	reply->which = 0;
	one.name = cmd->names[0];
	m_await_one(m, &one, now, reply);
}
