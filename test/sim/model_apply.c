/*
 * model_apply.c
 *		The meaning of each command, by the contract.
 */
#include <stdlib.h>
#include <string.h>

#include "model.h"

/* --- sessions --- */

static void
drop_holds(Model *m, uint32_t sessno)
{
	int n = 0;

	for (int i = 0; i < m->s.nholds; i++)
	{
		if (m->s.holds[i].sessno != sessno)
			m->s.holds[n++] = m->s.holds[i];
	}
	m->s.nholds = n;
}

/* Ends the waiting call of this session. */
static void
stop_waiting(Model *m, uint64_t session, uint32_t xact, uint32_t subxact, LeEnd how, LeTime now)
{
	for (int i = 0; i < m->s.nentries; i++)
	{
		MEntry *e = &m->s.entries[i];

		if (e->waiter != session || session == 0)
			continue;
		if (how == LE_END_UNDONE && (e->wait_xact != xact || e->wait_subxact < subxact))
			continue;
		if (!e->place)
		{
			m_end(m, e, how, 0, now);
			return;
		}
		m_answer(m, e, LE_NOT_GRANTED, 0);
		e->wait_until = LE_NEVER;
		if (e->lease == 0)
			m_renew(m, e, now);
		return;
	}
}

static MEntry *
newest_of_session(Model *m, uint64_t session)
{
	for (int i = m->s.nentries - 1; i >= 0; i--)
	{
		if (m->s.entries[i].session == session)
			return &m->s.entries[i];
	}
	return NULL;
}

static void
end_session(Model *m, uint64_t session, uint32_t sessno, LeTime now)
{
	LeTime grace = m->w->conf.limits.expiry_grace;
	MEntry *e;

	m_defer(m);
	stop_waiting(m, session, 0, 0, LE_END_SESSION, now);
	drop_holds(m, sessno);
	while ((e = newest_of_session(m, session)) != NULL)
	{
		e->session = 0;
		if (e->ttl == LE_TTL_BOUND && e->lease == 0 && !e->lapsed)
			m_end(m, e, LE_END_SESSION, grace > 0 ? now + grace : 0, now);
	}
	m_undefer(m, now);
	m->s.sessions[sessno].id = 0;
}

void
m_touch(Model *m, const LeCommand *cmd, LeTime now)
{
	MSession *s = &m->s.sessions[cmd->sessno];

	if (s->id != cmd->session && s->id != 0)
		end_session(m, s->id, cmd->sessno, now);
	if (s->id != cmd->session || s->xact != cmd->xact)
		drop_holds(m, cmd->sessno);
	s->id = cmd->session;
	s->xact = cmd->xact;
}

bool
m_own_holder(Model *m, const MEntry *request)
{
	for (int i = 0; i < m->s.nentries; i++)
	{
		const MEntry *e = &m->s.entries[i];

		if (e->held && e->kind == request->kind && e->name == request->name && e->session == request->session)
			return true;
	}
	return false;
}

/* --- acquire --- */

LeStatus
m_check_lease(Model *m, const LeCommand *cmd, LeTime now)
{
	MLease *lease = m_find_lease(m, cmd->lease);

	if (cmd->lease == 0)
		return LE_OK;
	if (lease == NULL || lease->deadline <= now)
		return LE_NO_LEASE;
	return lease->role == cmd->role ? LE_OK : LE_DENIED;
}

LeStatus
m_check_use(Model *m, const LeCommand *cmd, const MEntry *e)
{
	MLock *lock = m_lock(m, e->kind, e->name);

	if (m_held(m, e->kind, e->name) + m_waiting(m, e->kind, e->name) == 0)
		return LE_OK;
	if ((lock->permits > 0) != (cmd->mode == LE_MODE_PERMIT))
		return LE_BAD_MODE;
	if (cmd->mode == LE_MODE_PERMIT && lock->permits != cmd->permits)
		return LE_BAD_PERMITS;
	return LE_OK;
}

void
m_set_wait(MEntry *e, const LeCommand *cmd, LeTime now)
{
	e->waiter = cmd->session;
	e->waiter_sessno = cmd->sessno;
	e->request = cmd->request;
	e->wait_xact = cmd->xact;
	e->wait_subxact = cmd->subxact;
	e->wait_until = cmd->wait == LE_WAIT_FOREVER ? LE_NEVER : now + cmd->wait;
}

MEntry
m_new_entry(const LeCommand *cmd, LeText name)
{
	MEntry e;

	memset(&e, 0, sizeof(e));
	e.kind = (uint8_t) cmd->kind;
	e.name = sim_text_id(name.data);
	e.group = cmd->nnames > 0;
	e.mode = cmd->mode;
	e.place = cmd->enqueue;
	e.owner = sim_text_id(cmd->owner.data);
	e.value = sim_text_id(cmd->value.data);
	e.lease = cmd->lease;
	e.ttl = cmd->ttl;
	e.deadline = e.wait_until = LE_NEVER;
	e.session = cmd->session;
	e.sessno = cmd->sessno;
	e.role = cmd->role;
	e.count = 1;
	return e;
}

/* Returns the holder that the command names, if it belongs to the session and has no named owner. */
static MEntry *
named_by_command(Model *m, const LeCommand *cmd, const MEntry *e)
{
	MEntry *holder = cmd->reenter != 0 ? m_find(m, e->kind, e->name, cmd->reenter) : NULL;

	if (holder == NULL || !holder->held || holder->lapsed || holder->evicted ||
		holder->session != cmd->session || holder->owner != NO_OWNER || holder->role != cmd->role ||
		cmd->mode == LE_MODE_PERMIT)
		return NULL;
	return holder;
}

static bool
acquire_again(Model *m, const LeCommand *cmd, const MEntry *e, LeTime now, LeReply *reply)
{
	MEntry *holder = named_by_command(m, cmd, e);
	bool counted;

	if (holder == NULL)
		holder = m_reentrant(m, e, m->actual->status, m->actual->token);
	if (holder == NULL)
		return false;
	reply->status = m_reenter(m, holder, e, now, &counted);
	if (counted)
		m_add_hold(m, holder, cmd);
	if (reply->status == LE_OK)
	{
		reply->token = holder->token;
		reply->valid_for = m_time_left(m, holder, now);
		reply->reentrant = true;
		reply->counted = counted;
	}
	return true;
}

/* Returns the holder on this request's named lease. */
static MEntry *
held_on_lease(Model *m, const MEntry *request)
{
	MEntry as_call = *request;
	MEntry *holder;

	as_call.place = false;
	holder = m_reentrant(m, &as_call, m->actual->status, m->actual->token);
	return holder != NULL && holder->lease == request->lease ? holder : NULL;
}

bool
m_same_place(const MEntry *e, const MEntry *request)
{
	return !e->held && e->place && e->kind == request->kind && e->name == request->name &&
		   e->lease == request->lease && e->group == request->group && e->mode == request->mode &&
		   e->owner == request->owner && e->value == request->value;
}

/* Returns the entry of an earlier copy of this request on its named lease: a holder, or else its place. */
static MEntry *
on_lease_already(Model *m, const MEntry *request)
{
	MEntry *holder = held_on_lease(m, request);

	for (int i = 0; i < m->s.nentries && holder == NULL; i++)
	{
		if (m_same_place(&m->s.entries[i], request))
			return &m->s.entries[i];
	}
	return holder;
}

/* Adds a hold, which is counted while an earlier request can still roll back. */
void
m_once_more(Model *m, MEntry *e, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	MEntry request = m_new_entry(cmd, cmd->nnames > 0 ? cmd->names[0] : cmd->name);
	bool counted = false;

	if (e->held)
	{
		m_reenter(m, e, &request, now, &counted);
		reply->reentrant = true;
	}
	else
	{
		for (int i = 0; i < m->s.nholds; i++)
			counted = counted || m_on_hold(&m->s.holds[i], e);
		e->count += counted;
	}
	if (counted)
		m_add_hold(m, e, cmd);
	reply->counted = reply->counted || counted;
	reply->valid_for = m_time_left(m, e, now);
}

static bool
enqueue_again(Model *m, const LeCommand *cmd, const MEntry *request, LeTime now, LeReply *reply)
{
	MEntry *e =
		cmd->enqueue && cmd->lease != 0 && cmd->mode != LE_MODE_PERMIT ? on_lease_already(m, request) : NULL;

	if (e == NULL)
		return false;
	reply->status = e->held ? m_reentry_status(e, request) : LE_QUEUED;
	if (reply->status != LE_OK && reply->status != LE_QUEUED)
		return true;
	reply->token = e->token;
	m_once_more(m, e, cmd, now, reply);
	return true;
}

/* Returns whether this many more locks, places and waits would exceed the limit of a role. */
bool
m_role_is_full(Model *m, uint32_t role, uint32_t more)
{
	int64_t limit = m->w->conf.limits.locks_per_role, n = 0;

	for (int i = 0; i < m->s.nentries; i++)
		n += m->s.entries[i].role == role;
	for (int i = 0; i < m->w->conf.names * 2; i++)
		n += m->s.locks[i].closed_until != 0 && m->s.locks[i].closed_by == role;
	return limit > 0 && n + more > limit;
}

static void
acquire(Model *m, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	MEntry e = m_new_entry(cmd, cmd->name);
	MEntry *stored;
	MLock *lock = m_lock(m, e.kind, e.name);
	int64_t limit = m->w->conf.limits.waiters_per_lock;
	int waiting;
	bool granted;

	m_touch(m, cmd, now);
	waiting = m_waiting(m, e.kind, e.name);
	reply->status = m_check_lease(m, cmd, now);
	if (reply->status == LE_OK)
		reply->status = m_check_use(m, cmd, &e);
	if (reply->status != LE_OK || enqueue_again(m, cmd, &e, now, reply) ||
		acquire_again(m, cmd, &e, now, reply))
		return;
	if (cmd->lease != 0)
		e.ttl = m_find_lease(m, cmd->lease)->ttl;

	granted = waiting == 0 &&
			  (cmd->mode == LE_MODE_PERMIT && lock->permits == 0 ? lock->closed_until <= now
																 : m_admits(m, e.kind, e.name, e.mode, now));
	if (!granted && !cmd->enqueue)
		reply->own_session = m_own_holder(m, &e);
	if (!granted && !cmd->enqueue && cmd->wait == 0)
	{
		reply->status = LE_NOT_GRANTED;
		return;
	}
	if (!granted && cmd->reenter != 0)
	{
		reply->status = LE_LOST;
		return;
	}
	if (!granted && limit > 0 && waiting >= limit)
	{
		reply->status = LE_LIMIT_WAITERS;
		return;
	}
	if (m_role_is_full(m, cmd->role, 1))
	{
		reply->status = LE_LIMIT_LOCKS;
		return;
	}
	if (cmd->mode == LE_MODE_PERMIT && lock->permits == 0)
		lock->permits = cmd->permits;
	reply->counted = true;
	reply->token = e.token = m->next++;
	m_add_hold(m, &e, cmd);
	stored = m_insert(m, &e);
	if (granted)
	{
		m_grant(m, stored, now);
		reply->valid_for = m_time_left(m, stored, now);
		return;
	}
	reply->status = cmd->enqueue ? LE_QUEUED : LE_WAITING;
	if (!cmd->enqueue)
		m_set_wait(stored, cmd, now);
	else if (cmd->lease == 0 && cmd->ttl != LE_TTL_BOUND)
		stored->deadline = now + cmd->ttl;
	if (cmd->enqueue)
		reply->valid_for = m_time_left(m, stored, now);
}

/* --- commands on a token --- */

static MEntry *
own(Model *m, const LeCommand *cmd, int64_t token, LeReply *reply)
{
	MEntry *e = m_find(m, (uint8_t) cmd->kind, sim_text_id(cmd->name.data), token);

	reply->status = LE_NOT_HELD;
	if (e == NULL || e->lapsed || (!e->held && !e->place))
		return NULL;
	reply->status = e->role == cmd->role ? LE_OK : LE_DENIED;
	if (e->role != cmd->role)
		return NULL;
	reply->token = e->token;
	return e;
}

/* Returns the validity in the reply to a renewal, which the client applies to everything on the lease. */
static LeTime
believed(Model *m, int64_t lease, LeTime left, LeTime now)
{
	for (int i = 0; i < m->s.nentries && lease != 0; i++)
	{
		const MEntry *e = &m->s.entries[i];

		if (e->lease == lease && e->evicted && m_time_left(m, e, now) < left)
			left = m_time_left(m, e, now);
	}
	return left;
}

static void
renew(Model *m, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	MEntry *e = own(m, cmd, cmd->token, reply);

	if (e == NULL)
		return;
	if (!e->held)
		reply->status = LE_QUEUED;
	else if (e->evicted)
		reply->status = LE_NOT_HELD;
	else if (cmd->ttl != 0 && (e->lease != 0 || e->ttl == LE_TTL_BOUND))
		reply->status = LE_BAD_TTL;
	else
	{
		if (cmd->ttl != 0)
			e->ttl = cmd->ttl;
		m_renew(m, e, now);
		reply->valid_for = believed(m, e->lease, m_time_left(m, e, now), now);
	}
}

void
m_await_one(Model *m, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	MEntry *e;

	m_touch(m, cmd, now);
	e = own(m, cmd, cmd->token, reply);
	if (e == NULL)
	{
		if (reply->status == LE_NOT_HELD)
			reply->status = LE_LOST;
		return;
	}
	if (e->evicted)
	{
		reply->status = LE_LOST;
		return;
	}
	m_renew(m, e, now);
	reply->valid_for = m_time_left(m, e, now);
	if (e->held)
		return;
	reply->own_session =
		m_own_holder(m, &(MEntry){.kind = e->kind, .name = e->name, .session = cmd->session});
	reply->status = LE_QUEUED;
	if (cmd->wait != 0 && !e->answered)
	{
		int64_t token = e->token;

		for (int i = 0; i < m->s.nentries; i++)
		{
			if (m->s.entries[i].token == token)
				m_set_wait(&m->s.entries[i], cmd, now);
		}
		reply->status = LE_WAITING;
	}
}

/* Returns the newest token that this session requested and holds, before that revision. */
static int64_t
newest_held(Model *m, const LeCommand *cmd)
{
	int64_t token = 0;

	for (int i = 0; i < m->s.nentries; i++)
	{
		const MEntry *e = &m->s.entries[i];

		if (e->held && !e->lapsed && e->session == cmd->session && e->kind == cmd->kind &&
			e->name == sim_text_id(cmd->name.data) && (cmd->before == 0 || e->token < cmd->before))
			token = e->token;
	}
	return token;
}

void
m_release_one(Model *m, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	MLock *lock = m_lock(m, (uint8_t) cmd->kind, sim_text_id(cmd->name.data));
	int64_t token;
	LeTime closed_until;
	MEntry *e;

	m_touch(m, cmd, now);
	token = cmd->token != 0 ? cmd->token : newest_held(m, cmd);
	e = own(m, cmd, token, reply);
	if (e == NULL)
		return;
	if (e->held && e->count > 1 && !cmd->all_holds && !m_counts_once(e))
	{
		e->count--;
		return;
	}
	closed_until = e->held && cmd->hold_for > 0 ? e->acquired + cmd->hold_for : 0;
	m_end(m, e, LE_END_RELEASED, closed_until > now ? closed_until : 0, now);
	if (closed_until > now && lock->closed_until == closed_until)
		lock->closer = token;
}

void
m_check_one(Model *m, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	MEntry *e = m_find(m, (uint8_t) cmd->kind, sim_text_id(cmd->name.data),
					   cmd->token != 0 ? cmd->token : newest_held(m, cmd));

	reply->status = LE_NOT_HELD;
	if (e == NULL || (!e->held && !e->place) || e->lapsed)
		return;
	reply->token = e->token;
	reply->valid_for = m_time_left(m, e, now);
	reply->status = cmd->role != 0 && e->role != cmd->role ? LE_DENIED : e->held ? LE_OK : LE_QUEUED;
	reply->own_session = e->held && e->owner == NO_OWNER && e->session == cmd->session;
	reply->holds = m_counts_once(e) ? 1 : e->count;
}

/* Returns whether the command has the right for this role; the simulator's commands name one role. */
bool
m_manages(const LeCommand *cmd, uint32_t role)
{
	return cmd->any_role || memcmp(cmd->value.data, &role, sizeof(role)) == 0;
}

static void
set_permits(Model *m, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	uint8_t kind = (uint8_t) cmd->kind;
	int name = sim_text_id(cmd->name.data);
	MLock *lock = m_lock(m, kind, name);

	reply->status = LE_NOT_HELD;
	if (m_held(m, kind, name) + m_waiting(m, kind, name) == 0)
		return;
	reply->status = LE_BAD_MODE;
	if (lock->permits == 0)
		return;
	reply->status = LE_DENIED;
	for (int i = 0; i < m->s.nentries; i++)
	{
		const MEntry *e = &m->s.entries[i];

		if (e->held && e->kind == kind && e->name == name && !m_manages(cmd, e->role))
			return;
	}
	if (lock->closed_until > now && !m_manages(cmd, lock->closed_by))
		return;
	reply->status = LE_OK;
	reply->permits = lock->permits;
	lock->permits = cmd->permits;
	m_settle(m, kind, name, now);
}

/* --- leases --- */

static void
on_lease(Model *m, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	MLease *lease = m_find_lease(m, cmd->lease);

	if (lease == NULL || lease->role != cmd->role)
	{
		reply->status = lease == NULL ? LE_NO_LEASE : LE_DENIED;
		return;
	}
	if (cmd->type == LE_CMD_REVOKE_LEASE)
	{
		m_end_lease(m, cmd->lease, LE_END_REVOKED, now);
		return;
	}
	if (cmd->type == LE_CMD_KEEP_ALIVE)
		lease->deadline = now + lease->ttl;
	reply->valid_for = lease->deadline > now ? lease->deadline - now : 0;
	if (cmd->type == LE_CMD_KEEP_ALIVE)
		reply->valid_for = believed(m, lease->id, reply->valid_for, now);
}

static void
grant_lease(Model *m, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	MLease lease = {.ttl = cmd->ttl, .deadline = now + cmd->ttl, .role = cmd->role};
	int64_t limit = m->w->conf.limits.leases_per_role, n = 0;

	for (int i = 0; i < m->s.nleases; i++)
		n += m->s.leases[i].role == cmd->role;
	if (limit > 0 && n >= limit)
	{
		reply->status = LE_LIMIT_LEASES;
		return;
	}
	lease.id = m->next++;
	m->s.leases = m_grow(m->s.leases, m->s.nleases, &m->s.max_leases, sizeof(MLease));
	m->s.leases[m->s.nleases++] = lease;
	reply->lease = lease.id;
	reply->valid_for = cmd->ttl;
}

/* --- undoing --- */

/* Returns the newest of this session's holds that is newer than the savepoint. */
static int
newest_hold(Model *m, const LeCommand *cmd)
{
	for (int i = m->s.nholds - 1; i >= 0; i--)
	{
		if (m->s.holds[i].session == cmd->session && m->s.holds[i].subxact >= cmd->subxact)
			return i;
	}
	return -1;
}

static void
undo(Model *m, const LeCommand *cmd, LeTime now)
{
	MSession *s = &m->s.sessions[cmd->sessno];
	int i;

	if (s->id != cmd->session || s->xact != cmd->xact)
		return;
	m_defer(m);
	stop_waiting(m, cmd->session, cmd->xact, cmd->subxact, LE_END_UNDONE, now);
	while ((i = newest_hold(m, cmd)) >= 0)
	{
		MEntry *e = m_find_hold(m, &m->s.holds[i]);

		memmove(&m->s.holds[i], &m->s.holds[i + 1], (size_t) (m->s.nholds - i - 1) * sizeof(MHold));
		m->s.nholds--;

		/* an ended entry that was only fenced may have been removed by a load */
		if (e == NULL || e->lapsed)
			continue;
		if (e->count > 1)
			e->count--;
		else
			m_end(m, e, LE_END_UNDONE, 0, now);
	}
	m_undefer(m, now);
}

static void
fence_ended(Model *m, LeTime now)
{
	m_defer(m);
	for (int i = m->s.nentries - 1; i >= 0; i--)
	{
		if (m->s.entries[i].lapsed)
			m_end(m, &m->s.entries[i], LE_END_EXPIRED, 0, now);
	}
	m_undefer(m, now);
}

void
model_apply(Model *m, const LeCommand *cmd, LeTime now, LeReply *reply, const LeReply *actual)
{
	MEntry *e;

	memset(reply, 0, sizeof(*reply));
	m->actual = actual;
	switch (cmd->type)
	{
		case LE_CMD_ACQUIRE:
			(cmd->nnames > 0 ? m_acquire_group : acquire)(m, cmd, now, reply);
			break;
		case LE_CMD_AWAIT:
			(cmd->nnames > 0 ? m_await_group : m_await_one)(m, cmd, now, reply);
			break;
		case LE_CMD_RENEW:
			renew(m, cmd, now, reply);
			break;
		case LE_CMD_RELEASE:
			m_release_one(m, cmd, now, reply);
			break;
		case LE_CMD_CHECK:
			m_check_one(m, cmd, now, reply);
			break;
		case LE_CMD_FORCE_ROLE:
			m_force_role(m, cmd, now, reply);
			break;
		case LE_CMD_FORCE:
			m_force(m, cmd, now, reply);
			break;
		case LE_CMD_EVICT:
			m_evict(m, cmd, now, reply);
			break;
		case LE_CMD_PROCLAIM:
			e = own(m, cmd, cmd->token, reply);
			if (e != NULL && !e->held)
				reply->status = LE_NOT_HELD;
			else if (e != NULL)
			{
				m_changed(m, e);
				e->value = sim_text_id(cmd->value.data);
			}
			break;
		case LE_CMD_SET_PERMITS:
			set_permits(m, cmd, now, reply);
			break;
		case LE_CMD_GRANT_LEASE:
			grant_lease(m, cmd, now, reply);
			break;
		case LE_CMD_KEEP_ALIVE:
		case LE_CMD_REVOKE_LEASE:
		case LE_CMD_LEASE_TTL:
		case LE_CMD_LEASE_HOLDS:
			on_lease(m, cmd, now, reply);
			break;
		case LE_CMD_ADVANCE:
			m->next = cmd->revision > m->next ? cmd->revision : m->next;
			reply->revision = m->next;
			break;
		case LE_CMD_UNDO:
			undo(m, cmd, now);
			break;
		case LE_CMD_SESSION_END:
			if (m->s.sessions[cmd->sessno].id == cmd->session)
				end_session(m, cmd->session, cmd->sessno, now);
			break;
		case LE_CMD_FENCE_ENDED:
			fence_ended(m, now);
			break;
	}
}
