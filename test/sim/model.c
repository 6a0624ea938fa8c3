/*
 * model.c
 *		The model's state: entering, granting, ending.
 */
#include <stdlib.h>
#include <string.h>

#include "model.h"

/* --- arrays --- */

void *
m_grow(void *array, int n, int *max, size_t size)
{
	if (n < *max)
		return array;
	*max = *max ? *max * 2 : 64;
	array = realloc(array, (size_t) *max * size);
	if (array == NULL)
		abort();
	return array;
}

Model *
model_create(World *w)
{
	Model *m = calloc(1, sizeof(Model));

	if (m == NULL)
		abort();
	m->w = w;
	m->s.locks = calloc(MAX_NAMES * 2, sizeof(MLock));
	m->s.sessions = calloc(w->conf.sessions, sizeof(MSession));
	m->stored.locks = calloc(MAX_NAMES * 2, sizeof(MLock));
	m->stored.sessions = calloc(w->conf.sessions, sizeof(MSession));
	for (int i = 0; i < DISKS; i++)
	{
		m->disks[i].locks = calloc(MAX_NAMES * 2, sizeof(MLock));
		m->disks[i].sessions = calloc(w->conf.sessions, sizeof(MSession));
	}
	m->next = le_core_next_revision(w->core);
	return m;
}

static void
state_free(MState *s)
{
	free(s->entries);
	free(s->holds);
	free(s->leases);
	free(s->locks);
	free(s->sessions);
}

void
model_free(Model *m)
{
	state_free(&m->s);
	state_free(&m->stored);
	for (int i = 0; i < DISKS; i++)
		state_free(&m->disks[i]);
	state_free(&m->failed);
	free(m->answers);
	free(m);
}

/* A token identifies an entry together with its lock. */
MEntry *
m_find(Model *m, uint8_t kind, int name, int64_t token)
{
	for (int i = 0; i < m->s.nentries; i++)
	{
		MEntry *e = &m->s.entries[i];

		if (e->token == token && e->kind == kind && e->name == name)
			return e;
	}
	return NULL;
}

bool
model_has(Model *m, const LeCommand *cmd)
{
	return m_find(m, (uint8_t) cmd->kind, sim_text_id(cmd->name.data), cmd->token) != NULL;
}

MEntry *
m_find_hold(Model *m, const MHold *hold)
{
	return m_find(m, hold->kind, hold->name, hold->token);
}

LeEntry *
m_core_entry(Model *m, const MEntry *e)
{
	return le_core_find_entry(m->w->core, (LeKind) e->kind, sim_name(e->name), e->token);
}

MLease *
m_find_lease(Model *m, int64_t id)
{
	for (int i = 0; i < m->s.nleases; i++)
	{
		if (m->s.leases[i].id == id)
			return &m->s.leases[i];
	}
	return NULL;
}

/* Revisions only grow, so that the array stays in their order. */
MEntry *
m_insert(Model *m, const MEntry *e)
{
	m->s.entries = m_grow(m->s.entries, m->s.nentries, &m->s.max_entries, sizeof(MEntry));
	m->s.entries[m->s.nentries] = *e;
	return &m->s.entries[m->s.nentries++];
}

bool
m_on_hold(const MHold *hold, const MEntry *e)
{
	return hold->token == e->token && hold->kind == e->kind && hold->name == e->name;
}

void
m_add_hold(Model *m, const MEntry *e, const LeCommand *cmd)
{
	MHold hold = {e->token, e->kind, e->name, cmd->session, cmd->sessno, cmd->xact, cmd->subxact};

	m->s.holds = m_grow(m->s.holds, m->s.nholds, &m->s.max_holds, sizeof(MHold));
	m->s.holds[m->s.nholds++] = hold;
}

uint32_t
m_sessno(const Model *m, uint64_t session)
{
	for (uint32_t i = 0; i < m->w->conf.sessions; i++)
	{
		if (m->s.sessions[i].id == session)
			return i;
	}
	return 0;
}

void
m_remove(Model *m, const MEntry *e)
{
	MEntry *at = m_find(m, e->kind, e->name, e->token);
	int n = 0;

	for (int i = 0; i < m->s.nholds; i++)
	{
		if (!m_on_hold(&m->s.holds[i], e))
			m->s.holds[n++] = m->s.holds[i];
	}
	m->s.nholds = n;
	memmove(at, at + 1, (size_t) (m->s.entries + m->s.nentries - (at + 1)) * sizeof(MEntry));
	m->s.nentries--;
}

void
m_lease_remove(Model *m, int64_t id)
{
	int n = 0;

	for (int i = 0; i < m->s.nleases; i++)
	{
		if (m->s.leases[i].id != id)
			m->s.leases[n++] = m->s.leases[i];
	}
	m->s.nleases = n;
}

static int
count(Model *m, uint8_t kind, int name, bool held)
{
	int n = 0;

	for (int i = 0; i < m->s.nentries; i++)
	{
		const MEntry *e = &m->s.entries[i];

		if (e->kind == kind && e->name == name && e->held == held)
			n++;
	}
	return n;
}

int
m_held(Model *m, uint8_t kind, int name)
{
	return count(m, kind, name, true);
}

int
m_waiting(Model *m, uint8_t kind, int name)
{
	return count(m, kind, name, false);
}

/* --- answers and time --- */

/* Adds one reply, also for a group. */
void
m_answer(Model *m, MEntry *e, LeStatus status, int64_t token)
{
	MAnswer a = {e->waiter, e->request, status, token};

	if (e->waiter == 0)
		return;
	m->answers = m_grow(m->answers, m->nanswers, &m->max_answers, sizeof(MAnswer));
	m->answers[m->nanswers++] = a;
	e->waiter = 0;
	e->answered = true;
	for (int i = 0; i < m->s.nentries && e->group; i++)
	{
		MEntry *member = &m->s.entries[i];

		if (member->token == e->token)
		{
			member->waiter = 0;
			member->answered = true;
		}
	}
}

bool
m_has_own_time(const MEntry *e)
{
	return e->lease == 0 || e->evicted;
}

LeTime
m_time_left(Model *m, const MEntry *e, LeTime now)
{
	LeTime deadline = m_has_own_time(e) ? e->deadline : m_find_lease(m, e->lease)->deadline;

	if (deadline == LE_NEVER)
		return LE_NEVER;
	return deadline > now ? deadline - now : 0;
}

/* Renews the entry: its client has sent a request. */
void
m_renew(Model *m, MEntry *e, LeTime now)
{
	ENSURE(m->w, !e->evicted);
	if (e->lease != 0)
	{
		MLease *lease = m_find_lease(m, e->lease);

		lease->deadline = now + lease->ttl;
	}
	else if (e->ttl != LE_TTL_BOUND)
		e->deadline = now + e->ttl;
	m_share_time(m, e);
}

/* A change of an election has its own revision. */
void
m_changed(Model *m, const MEntry *e)
{
	if (e->kind == LE_KIND_ELECTION)
		m->next++;
}

/* --- granting --- */

bool
m_admits(Model *m, uint8_t kind, int name, LeMode mode, LeTime now)
{
	MLock *lock = m_lock(m, kind, name);
	int held = m_held(m, kind, name);

	if (lock->closed_until > now)
		return false;
	if (mode == LE_MODE_PERMIT)
		return held < lock->permits;
	for (int i = 0; i < m->s.nentries; i++)
	{
		const MEntry *e = &m->s.entries[i];

		if (e->held && e->kind == kind && e->name == name &&
			(mode == LE_MODE_EXCLUSIVE || e->mode == LE_MODE_EXCLUSIVE))
			return false;
	}
	return true;
}

void
m_grant(Model *m, MEntry *e, LeTime now)
{
	MLock *lock = m_lock(m, e->kind, e->name);

	ENSURE(m->w, m_admits(m, e->kind, e->name, e->mode, now));
	if (e->mode == LE_MODE_EXCLUSIVE)
	{
		ENSURE(m->w, e->token > lock->last_exclusive);
		lock->last_exclusive = e->token;
	}
	if (e->lease != 0)
		ENSURE(m->w, m_find_lease(m, e->lease) != NULL);
	e->held = true;
	lock->closed_until = 0;
	e->stored = false;
	e->acquired = now;
	e->wait_until = LE_NEVER;
	if (e->lease == 0 && e->ttl != LE_TTL_BOUND)
		e->deadline = now + e->ttl;
	m_changed(m, e);
	m_answer(m, e, LE_OK, e->token);
}

/* Returns whether further holds of the entry are not counted. */
bool
m_counts_once(const MEntry *e)
{
	return e->lease != 0 || e->kind == LE_KIND_ELECTION;
}

LeStatus
m_reentry_status(const MEntry *holder, const MEntry *request)
{
	if (holder->mode == LE_MODE_SHARED && request->mode == LE_MODE_EXCLUSIVE)
		return LE_BAD_UPGRADE;
	if (holder->lease != request->lease)
		return LE_BAD_TTL;
	if (request->lease == 0 && (holder->ttl == LE_TTL_BOUND) != (request->ttl == LE_TTL_BOUND))
		return LE_BAD_TTL;
	return LE_OK;
}

static bool
in_own_transaction(Model *m, const MEntry *e, const MEntry *request)
{
	for (int i = 0; i < m->s.nholds; i++)
	{
		if (m_on_hold(&m->s.holds[i], e) && m->s.holds[i].session == request->session)
			return true;
	}
	return false;
}

/* Returns what a request has in common with a holder: 1 owner and lease, 2 owner, 3 lease, 4 transaction. */
static int
kinship(Model *m, const MEntry *e, const MEntry *request)
{
	bool foreign = e->ttl == LE_TTL_BOUND && e->lease == 0 && e->session != request->session;

	if (!e->held || e->lapsed || e->evicted || e->kind != request->kind || e->name != request->name)
		return 0;
	if (!foreign && request->owner != NO_OWNER && e->owner == request->owner && e->role == request->role)
		return e->lease == request->lease ? 1 : 2;
	if (request->lease != 0 && e->lease == request->lease && request->owner == NO_OWNER &&
		e->owner == NO_OWNER)
		return 3;
	if (request->owner == NO_OWNER && e->owner == NO_OWNER && e->role == request->role && !request->held &&
		request->waiter == 0 && in_own_transaction(m, e, request))
		return 4;
	return 0;
}

static bool
fits(const MEntry *e, const MEntry *request, LeStatus core_says, int64_t core_token)
{
	LeStatus status = m_reentry_status(e, request);

	/* for a group, the result of the whole group counts, not that of one name */
	if (request->group)
		return (e->token == core_token) == (core_says == LE_OK);
	return status == core_says && (status != LE_OK || e->token == core_token);
}

/*
 * Returns the holder of which this request is one more hold.  If several are
 * possible, the contract leaves it open: then it is the one that the core chose.
 */
MEntry *
m_reentrant(Model *m, const MEntry *request, LeStatus core_says, int64_t core_token)
{
	if (request->place || request->mode == LE_MODE_PERMIT)
		return NULL;
	for (int kin = 1; kin <= 4; kin++)
	{
		MEntry *any = NULL;

		for (int i = 0; i < m->s.nentries; i++)
		{
			MEntry *e = &m->s.entries[i];

			if (kinship(m, e, request) != kin)
				continue;
			if (fits(e, request, core_says, core_token))
				return e;
			any = e;
		}
		if (any != NULL)
			return any;
	}
	return NULL;
}

LeStatus
m_reenter(Model *m, MEntry *holder, const MEntry *request, LeTime now, bool *counted)
{
	LeStatus status = m_reentry_status(holder, request);
	bool uncommitted = false;

	*counted = false;
	if (status != LE_OK)
		return status;
	for (int i = 0; i < m->s.nholds; i++)
	{
		if (m_on_hold(&m->s.holds[i], holder))
			uncommitted = true;
	}
	*counted = !m_counts_once(holder) || uncommitted;
	if (*counted)
		holder->count++;
	if (holder->lease == 0 && holder->ttl != LE_TTL_BOUND)
	{
		if (request->ttl > holder->ttl)
			holder->ttl = request->ttl;
		if (now + request->ttl > holder->deadline)
			holder->deadline = now + request->ttl;
		m_share_time(m, holder);
	}
	if (request->value >= 0)
	{
		if (request->value != holder->value)
			m_changed(m, holder);
		holder->value = request->value;
	}
	return LE_OK;
}

/* Returns the core's reply to this waiter, if there is one. */
static LeStatus
core_answer(Model *m, const MEntry *e, int64_t *token)
{
	*token = 0;
	for (LeEntry *a = NULL; (a = le_next_answer(m->w->core, a)) != NULL;)
	{
		if (a->waiter->session == e->waiter && a->waiter->request == e->request)
		{
			*token = a->waiter->answer_token;
			return (LeStatus) a->waiter->answer;
		}
	}
	return LE_WAITING;
}

/* A waiter at the head of the queue, or one that returns after a reload, joins a holder. */
bool
m_joins(Model *m, MEntry *head, LeTime now)
{
	int64_t core_token;
	LeStatus said, status;
	MEntry *holder;
	bool counted;

	if (head->group || head->place || head->mode == LE_MODE_PERMIT)
		return false;
	said = core_answer(m, head, &core_token);
	holder = m_reentrant(m, head, said, core_token);

	/* the holder has the owner, but another lease: the waiter waits like any other */
	if (holder == NULL || holder->lease != head->lease || (said == LE_OK && core_token == head->token))
		return false;
	status = m_reenter(m, holder, head, now, &counted);
	m_answer(m, head, status, status == LE_OK ? holder->token : 0);
	for (int i = 0; i < m->s.nholds && counted; i++)
	{
		if (m_on_hold(&m->s.holds[i], head))
			m->s.holds[i].token = holder->token;
	}
	m_remove(m, head);
	return true;
}

/* Returns the first waiter of a lock. */
MEntry *
m_first(Model *m, uint8_t kind, int name)
{
	for (int i = 0; i < m->s.nentries; i++)
	{
		MEntry *e = &m->s.entries[i];

		if (!e->held && e->kind == kind && e->name == name)
			return e;
	}
	return NULL;
}

void
m_settle(Model *m, uint8_t kind, int name, LeTime now)
{
	MEntry *head;

	if (m->deferring)
	{
		ENSURE(m->w, m->ndeferred < (int) (sizeof(m->deferred) / sizeof(m->deferred[0])));
		m->deferred[m->ndeferred++] = name * 2 + (kind == LE_KIND_LOCK);
		return;
	}
	while ((head = m_first(m, kind, name)) != NULL)
	{
		if (head->lease != 0 && m_find_lease(m, head->lease)->deadline <= now)
		{
			m_end(m, head, LE_END_EXPIRED, 0, now);
			continue;
		}
		if (m_joins(m, head, now))
			continue;
		if (!m_ready(m, head, now))
			break;
		if (head->group)
			m_grant_group(m, head->token, now);
		else
			m_grant(m, head, now);
	}
	if (m_held(m, kind, name) == 0 && m_waiting(m, kind, name) == 0)
		m_lock(m, kind, name)->permits = 0;
}

void
m_defer(Model *m)
{
	m->deferring = true;
}

void
m_undefer(Model *m, LeTime now)
{
	m->deferring = false;
	for (int i = 0; i < m->ndeferred; i++)
		m_settle(m, m->deferred[i] % 2 ? LE_KIND_LOCK : LE_KIND_ELECTION, m->deferred[i] / 2, now);
	m->ndeferred = 0;
}

/* --- ending --- */

/* Returns whether the name is closed for longer than before. */
bool
m_close(MLock *lock, LeTime until, uint32_t role)
{
	bool longer = until > lock->closed_until;

	if (longer || (until == lock->closed_until && role < lock->closed_by))
		lock->closed_by = role;
	if (longer)
		lock->closed_until = until;
	return longer;
}

void
m_end(Model *m, MEntry *e, LeEnd how, LeTime closed_until, LeTime now)
{
	uint8_t kind = e->kind;
	int name = e->name;

	if (e->held && world_fenced(m->w, e->token))
	{
		e->lapsed = true;
		e->evicted = false;
		if (closed_until > e->closed_until)
			e->closed_until = closed_until;
		e->retry = now + LE_FENCE_RETRY;
		return;
	}
	if (e->closed_until > closed_until)
		closed_until = e->closed_until;
	if (e->held && closed_until > now && m_close(m_lock(m, kind, name), closed_until, e->role) && !e->stored)
		m_lock(m, kind, name)->unstored = closed_until;
	m_answer(m, e,
			 e->place || how == LE_END_EXPIRED || how == LE_END_REVOKED || how == LE_END_FORCED
				 ? LE_LOST
				 : LE_NOT_GRANTED,
			 0);
	if (e->group && !e->held)
	{
		m_end_waiting_group(m, e->token, now);
		return;
	}
	if (e->held)
		m_changed(m, e);
	m_remove(m, e);
	m_settle(m, kind, name, now);
}

static MEntry *
newest_on_lease(Model *m, int64_t id)
{
	for (int i = m->s.nentries - 1; i >= 0; i--)
	{
		if (m->s.entries[i].lease == id)
			return &m->s.entries[i];
	}
	return NULL;
}

void
m_end_lease(Model *m, int64_t id, LeEnd how, LeTime now)
{
	LeTime grace = m->w->conf.limits.expiry_grace;
	LeTime closed_until = how == LE_END_EXPIRED && grace > 0 ? now + grace : 0;

	MEntry *e;

	m_defer(m);
	while ((e = newest_on_lease(m, id)) != NULL)
	{
		e->lease = 0;
		e->alone = true;
		e->deadline = LE_NEVER;
		m_end(m, e, how, closed_until, now);
	}
	m_lease_remove(m, id);
	m_undefer(m, now);
}
