/*
 * model_check.c
 *		Time in the model, failed batches, and the comparison with the core.
 */
#include <stdlib.h>
#include <string.h>

#include "model.h"

/* --- comparing --- */

static void
differ(Model *m, int64_t token, const char *what, int64_t expected, int64_t actual)
{
	sim_fail(m->w, "token %lld: %s is %lld, should be %lld", (long long) token, what, (long long) actual,
			 (long long) expected);
}

#define SAME(what, expected, actual)                                                                         \
	do                                                                                                       \
	{                                                                                                        \
		if ((int64_t) (expected) != (int64_t) (actual))                                                      \
			differ(m, e->token, what, (int64_t) (expected), (int64_t) (actual));                             \
	} while (0)

/* A group waits as one: the core may keep the wait in any of its members. */
static void
compare_wait(Model *m, const MEntry *e, const LeEntry *c)
{
	if (e->group && e->waiter != 0)
	{
		c = le_core_waiting_on(m->w->core, e->waiter, e->waiter_sessno);
		SAME("waiting", 1, c != NULL && c->token == e->token);
	}
	if (!e->group || e->waiter != 0)
		SAME("waiter", e->waiter, c->waiter == NULL || c->waiter->answering ? 0 : c->waiter->session);
	if (e->waiter != 0 && c->waiter != NULL)
	{
		SAME("wait_until", e->wait_until, c->waiter->until);
		SAME("request", e->request, c->waiter->request);
		SAME("wait's transaction", e->wait_xact, c->waiter->xact);
		SAME("wait's part of it", e->wait_subxact, c->waiter->subxact);
	}
}

static void
compare_time(Model *m, const MEntry *e, const LeEntry *c)
{
	if (m_shares_time(e))
	{
		SAME("own lease", e->token, c->lease != NULL && c->lease->for_group ? c->lease->id : 0);
		SAME("shared ttl", e->ttl, c->lease->ttl);
		SAME("shared deadline", e->deadline, c->lease->deadline);
		return;
	}
	if (!e->group || !e->held)
		SAME("ttl", e->ttl, c->ttl);
	if (!e->lapsed && m_has_own_time(e))
		SAME("deadline", e->deadline, c->deadline);
}

static void
compare_holds(Model *m, const MEntry *e, const LeEntry *c)
{
	int expected = 0, actual = 0;

	for (int i = 0; i < m->s.nholds; i++)
		expected += m_on_hold(&m->s.holds[i], e);
	for (const LeUncommitted *hold = c->uncommitted; hold != NULL; hold = hold->next)
		actual++;
	SAME("holds", e->count, c->hold_count);
	/* a lapsed holder has ended: its holds cannot be undone */
	if (!e->lapsed)
		SAME("uncommitted holds", expected, actual);
}

static void
compare_entry(Model *m, const MEntry *e)
{
	const LeEntry *c = m_core_entry(m, e);

	if (c == NULL)
		differ(m, e->token, "presence", 1, 0);
	SAME("state", e->lapsed ? LE_STATE_LAPSED : e->held ? LE_STATE_HELD : LE_STATE_QUEUED, c->state);
	SAME("ns", e->kind, c->lock->kind);
	SAME("name", e->name, sim_text_id(c->lock->name));
	SAME("mode", e->mode, c->mode);
	SAME("owner", e->owner, sim_text_id(c->owner));
	SAME("value", e->value, sim_text_id(c->value));
	SAME("role", e->role, c->role);
	SAME("lease", e->lease, le_entry_named_lease(c) != NULL ? c->lease->id : 0);
	SAME("session", e->session, c->session);
	SAME("evicted", e->evicted, c->evicted);
	compare_holds(m, e, c);
	compare_time(m, e, c);
	if (e->held)
		SAME("acquired", e->acquired, c->acquired_at);
	if (e->lapsed && e->closed_until > m->w->now)
		SAME("closed_until", e->closed_until, c->closed_until);
	if (!e->held)
	{
		SAME("place", e->place, c->place);
		compare_wait(m, e, c);
	}
}

/* Returns the number of groups that have their own lease. */
static uint32_t
own_leases(Model *m)
{
	uint32_t n = 0;

	for (int i = 0; i < m->s.nentries; i++)
	{
		if (m_shares_time(&m->s.entries[i]) && m_leads(m, i))
			n++;
	}
	return n;
}

static void
compare_leases(Model *m)
{
	LeCore *core = m->w->core;
	uint32_t named = 0;

	for (int i = 0; i < m->s.nleases; i++)
	{
		const MLease *mine = &m->s.leases[i];
		const LeLease *lease = le_core_find_lease(core, mine->id);

		ENSURE(m->w, lease != NULL && !lease->for_group && !lease->draining &&
						 lease->deadline == mine->deadline && lease->ttl == mine->ttl &&
						 lease->role == mine->role);
	}
	for (uint32_t place = 0; place < le_core_lease_indexes(core); place++)
		named += le_core_lease_at(core, place) != NULL;
	ENSURE(m->w, named == (uint32_t) m->s.nleases);
}

void
model_compare(Model *m)
{
	LeCore *core = m->w->core;
	uint32_t n = 0;

	for (int i = 0; i < m->s.nentries; i++)
		compare_entry(m, &m->s.entries[i]);
	for (uint32_t place = 0; place < le_core_lock_indexes(core); place++)
	{
		LeLock *lock = le_core_lock_at(core, place);
		MLock *mine;

		if (lock == NULL)
			continue;
		mine = m_lock(m, lock->kind, sim_text_id(lock->name));
		n += (uint32_t) lock->held + lock->waiting;
		ENSURE(m->w, lock->permits == mine->permits);
		if (mine->closed_until > m->w->now && lock->closed_until != mine->closed_until)
			sim_fail(m->w, "ns %d name %d: not before %lld, should be %lld", lock->kind,
					 sim_text_id(lock->name), (long long) lock->closed_until, (long long) mine->closed_until);
		ENSURE(m->w, mine->closed_until <= m->w->now || lock->closed_by == mine->closed_by);
	}
	ENSURE(m->w, n == (uint32_t) m->s.nentries);
	compare_leases(m);
}

/* A rejected command has changed nothing, except that its session is in another transaction. */
void
model_compare_refused(Model *m, const LeCommand *cmd)
{
	if (cmd->type == LE_CMD_ACQUIRE)
		m_touch(m, cmd, m->w->now);
	model_compare(m);
}

/* --- rows --- */

static void
compare_slot_row(Model *m, const SlotRow *row)
{
	const MEntry *e = m_find(m, row->kind, row->name, row->token);

	if (e == NULL || !e->held)
		sim_fail(m->w, "a row of token %lld, name %d, that does not hold", (long long) row->token, row->name);
	SAME("row's mode", e->mode, row->mode);
	SAME("row's lapsed", e->lapsed, row->end != LE_END_NONE);
	SAME("row's evicted", e->evicted, row->evicted);
	SAME("row's owner", e->owner, row->owner);
	SAME("row's value", e->value, row->value);
	SAME("row's role", e->role, row->role);
	SAME("row's holds", e->count, row->hold_count);
	SAME("row's acquired_at", e->acquired, row->acquired_at);
	if (m_shares_time(e))
		SAME("row's own lease", e->token, row->lease);
	else if (!e->lapsed)
	{
		SAME("row's lease", e->lease, row->lease);
		SAME("row's ttl", e->ttl, row->ttl);
	}
}

/* The row of a named lease, or of the lease of a group. */
static void
compare_lease_row(Model *m, const LeaseRow *row)
{
	const MLease *lease = m_find_lease(m, row->id);
	struct
	{
		int64_t token;
	} id = {row->id}, *e = &id;

	if (lease != NULL)
	{
		SAME("lease row's ttl", lease->ttl, row->ttl);
		SAME("lease row's role", lease->role, row->role);
		return;
	}
	for (int i = 0; i < m->s.nentries; i++)
	{
		const MEntry *member = &m->s.entries[i];

		if (member->token != row->id || !m_shares_time(member))
			continue;
		SAME("own lease row's ttl", member->ttl, row->ttl);
		SAME("own lease row's role", member->role, row->role);
		return;
	}
	sim_fail(m->w, "a row of lease %lld, that is gone", (long long) row->id);
}

/* The rows that a batch has stored must agree with the model. */
void
model_compare_rows(Model *m)
{
	const SlotRow *slots = m->w->tables[TABLE_SLOTS].rows;
	const LeaseRow *leases = m->w->tables[TABLE_LEASES].rows;
	int held = 0, holders = 0;

	for (uint32_t i = 0; i < m->w->tables[TABLE_SLOTS].len; i++)
	{
		if (!slots[i].used || !slots[i].held || store_is_later(m->w, &slots[i]))
			continue;
		compare_slot_row(m, &slots[i]);
		held++;
	}
	for (int i = 0; i < m->s.nentries; i++)
		holders += m->s.entries[i].held;
	ENSURE(m->w, held == holders);
	for (uint32_t i = 0; i < m->w->tables[TABLE_LEASES].len; i++)
	{
		if (leases[i].used)
			compare_lease_row(m, &leases[i]);
	}
	ENSURE(m->w, m->w->tables[TABLE_LEASES].used == (uint32_t) m->s.nleases + own_leases(m));
}

/* Returns whether this reply contains the index of one of several names. */
static bool
tells_which(const LeCommand *cmd, const LeReply *reply)
{
	LeStatus status = reply->status;

	if (cmd->nnames == 0)
		return false;
	return status == LE_BAD_MODE || status == LE_BAD_GROUP || status == LE_BAD_UPGRADE ||
		   status == LE_BAD_TTL || status == LE_LIMIT_WAITERS || (status == LE_WAITING && reply->own_session);
}

/* A reader of the history must know each leader and its value. */
void
model_compare_history(Model *m)
{
	int leaders = 0, told = 0;

	for (int i = 0; i < m->s.nentries; i++)
	{
		const MEntry *e = &m->s.entries[i];
		const Story *story = &m->w->stories[e->name];

		if (e->kind != LE_KIND_ELECTION || !e->held)
			continue;
		leaders++;
		SAME("history's term", e->token, story->term);
		SAME("history's value", e->value, story->value);
	}
	for (int i = 0; i < m->w->conf.names; i++)
		told += m->w->stories[i].term != 0;
	ENSURE(m->w, leaders == told);
}

/* Returns the position of this token in the queue; of several, the highest one. */
static uint32_t
position_of(Model *m, const LeCommand *cmd, int64_t token)
{
	uint32_t position = 0;

	for (uint32_t i = 0; i < command_names(cmd); i++)
	{
		uint32_t before = 0;

		for (int k = 0; k < m->s.nentries; k++)
		{
			const MEntry *e = &m->s.entries[k];

			before += !e->held && e->kind == cmd->kind && e->token < token &&
					  e->name == sim_text_id(command_name(cmd, i).data);
		}
		if (before + 1 > position)
			position = before + 1;
	}
	return position;
}

void
model_compare_reply(Model *m, const LeCommand *cmd, const LeReply *expected, const LeReply *actual)
{
	struct
	{
		int64_t token;
	} reply = {expected->token}, *e = &reply;

	SAME("status", expected->status, actual->status);
	if (tells_which(cmd, actual))
		SAME("which", expected->which, actual->which);
	if (actual->status != LE_DENIED)
		SAME("own", expected->own_session, actual->own_session);
	SAME("reentrant", expected->reentrant, actual->reentrant);
	if (actual->status != LE_OK && actual->status != LE_QUEUED && actual->status != LE_WAITING)
		return;
	SAME("token", expected->token, actual->token);
	SAME("lease", expected->lease, actual->lease);
	SAME("revision", expected->revision, actual->revision);
	SAME("ended", expected->ended, actual->ended);
	SAME("counted", expected->counted, actual->counted);
	SAME("valid_for", expected->valid_for, actual->valid_for);
	SAME("reopened", expected->reopened, actual->reopened);
	if (cmd->type == LE_CMD_SET_PERMITS)
		SAME("permits", expected->permits, actual->permits);
	if (cmd->type == LE_CMD_CHECK)
		SAME("holds", expected->holds, actual->holds);
	if (cmd->type == LE_CMD_ACQUIRE && actual->status == LE_QUEUED)
		SAME("position", position_of(m, cmd, actual->token), actual->position);
}

/* --- answers --- */

/* A waiter that returns after a reload joins a place of its owner that was granted meanwhile. */
static void
ask_again(Model *m, uint64_t session, uint32_t request, int64_t token)
{
	for (int i = 0; i < m->s.nentries; i++)
	{
		MEntry *e = &m->s.entries[i];

		if (e->waiter != session || e->request != request || e->held || e->token == token)
			continue;
		(void) m_joins(m, e, m->w->now);
		return;
	}
}

static void
compare_answer(Model *m, uint64_t session, uint32_t request, LeStatus status, int64_t token)
{
	struct
	{
		int64_t token;
	} answer = {token}, *e = &answer;

	if (m->w->recovering && status == LE_OK)
		ask_again(m, session, request, token);
	for (int i = 0; i < m->nanswers; i++)
	{
		MAnswer *a = &m->answers[i];

		if (a->session != session || a->request != request)
			continue;
		SAME("answer", a->status, status);
		if (status == LE_OK)
			SAME("answered token", a->token, token);
		*a = m->answers[--m->nanswers];
		return;
	}
	sim_fail(m->w, "session %lld was told %s %lld, but should wait", (long long) session,
			 sim_status_name(status), (long long) token);
}

/* Checks that exactly the expected waiters get a reply. */
void
model_compare_answers(Model *m)
{
	World *w = m->w;

	for (LeEntry *e = NULL; (e = le_next_answer(w->core, e)) != NULL;)
		compare_answer(m, e->waiter->session, e->waiter->request, (LeStatus) e->waiter->answer,
					   e->waiter->answer_token);
	for (uint32_t i = 0; w->recovering && i < w->nbatch; i++)
	{
		const Posted *p = &w->batch[i];

		if (p->reply.status != LE_WAITING)
			compare_answer(m, p->cmd.session, p->cmd.request, p->reply.status, p->reply.token);
	}
	if (m->nanswers > 0)
		sim_fail(w, "session %lld should be told %s %lld, but waits", (long long) m->answers[0].session,
				 sim_status_name(m->answers[0].status), (long long) m->answers[0].token);
}

/* --- a batch is stored, or not --- */

static void
copy_array(void **to, int *nto, int *max, const void *from, int n, size_t size)
{
	if (*max < n)
	{
		*max = n * 2;
		*to = realloc(*to, (size_t) *max * size);
		if (*to == NULL)
			abort();
	}
	if (n > 0)
		memcpy(*to, from, (size_t) n * size);
	*nto = n;
}

static void
copy_state(Model *m, MState *to, const MState *from)
{
	copy_array((void **) &to->entries, &to->nentries, &to->max_entries, from->entries, from->nentries,
			   sizeof(MEntry));
	copy_array((void **) &to->holds, &to->nholds, &to->max_holds, from->holds, from->nholds, sizeof(MHold));
	copy_array((void **) &to->leases, &to->nleases, &to->max_leases, from->leases, from->nleases,
			   sizeof(MLease));
	memcpy(to->locks, from->locks, (size_t) m->w->conf.names * 2 * sizeof(MLock));
	memcpy(to->sessions, from->sessions, m->w->conf.sessions * sizeof(MSession));
}

void
model_stored(Model *m)
{
	for (int i = 0; i < m->s.nentries; i++)
	{
		m->s.entries[i].answered = false;
		m->s.entries[i].stored = true;
	}
	if (m->w->conf.fail_mille > 0 || m->w->conf.restart_mille > 0)
		copy_state(m, &m->stored, &m->s);
}

/*
 * After a failed batch, a deadline is the one that it had in memory.  Otherwise it is not earlier than the
 * returned validity, nor later than the TTL; lives.c checks that dead leases end.  An entry that ended or got
 * another TTL in the failed batch has any of these deadlines.  Until it is renewed again, a crash leaves what
 * it would have left before the failed batch.
 */
static LeTime
restored(Model *m, Loss loss, LeTime ttl, LeTime promised, MUnsaved *unsaved, LeTime failed, LeTime actual,
		 LeTime now)
{
	if (promised == unsaved->deadline)
		promised = unsaved->crash;
	if (loss == LOST_BATCH && failed != 0 && actual != failed)
		sim_fail(m->w, "ttl %lld: %lld left when a batch failed, %lld after it", (long long) ttl,
				 (long long) (failed - now), (long long) (actual - now));
	if (actual < promised || actual > now + ttl)
		sim_fail(m->w, "ttl %lld: %lld promised, %lld restored", (long long) ttl,
				 (long long) (promised - now), (long long) (actual - now));
	*unsaved = loss == LOST_BATCH ? (MUnsaved){actual, promised} : (MUnsaved){0};
	return actual;
}

/* Returns the deadline in the failed batch; 0 if there was none. */
static LeTime
failed_deadline(const Model *m, const MEntry *e)
{
	int low = 0, high = m->failed.nentries;

	while (low < high)
	{
		int mid = (low + high) / 2;

		if (m->failed.entries[mid].token < e->token)
			low = mid + 1;
		else
			high = mid;
	}
	for (; low < m->failed.nentries && m->failed.entries[low].token == e->token; low++)
	{
		const MEntry *f = &m->failed.entries[low];

		if (f->kind == e->kind && f->name == e->name)
			return f->ttl == e->ttl && f->deadline != LE_NEVER && (!m_shares_time(e) || m_shares_time(f))
					   ? f->deadline
					   : 0;
	}
	return 0;
}

static LeTime
failed_lease(const Model *m, const MLease *lease)
{
	for (int i = 0; i < m->failed.nleases; i++)
	{
		if (m->failed.leases[i].id == lease->id)
			return m->failed.leases[i].deadline;
	}
	return 0;
}

/* Returns whether a call waits for a place on this lease: its return after a reload renews the lease. */
static bool
is_awaited(const Model *m, const MLease *lease)
{
	for (int i = 0; i < m->s.nentries; i++)
	{
		const MEntry *e = &m->s.entries[i];

		if (e->lease == lease->id && e->place && !e->held && e->waiter != 0)
			return true;
	}
	return false;
}

static void
restore_time(Model *m, LeTime now, Loss loss)
{
	LeCore *core = m->w->core;

	for (int i = 0; i < m->s.nleases; i++)
	{
		MLease *lease = &m->s.leases[i];
		const LeLease *c = le_core_find_lease(core, lease->id);

		ENSURE(m->w, c != NULL);
		if (!is_awaited(m, lease))
			lease->deadline = restored(m, loss, lease->ttl, lease->deadline, &lease->unsaved,
									   failed_lease(m, lease), c->deadline, now);
	}
	for (int i = 0; i < m->s.nentries; i++)
	{
		MEntry *e = &m->s.entries[i];
		const LeEntry *c = m_core_entry(m, e);

		if (e->waiter != 0 && e->wait_until != LE_NEVER && e->wait_until <= now)
			e->wait_until = now + 1;
		if (e->lapsed)
			e->retry = now;
		if (e->place && !e->held && e->waiter != 0)
		{
			m_renew(m, e, now);
			continue;
		}
		if ((e->lapsed && !m_shares_time(e)) || !m_has_own_time(e) || e->ttl == LE_TTL_BOUND ||
			(!e->held && !e->place))
			continue;
		/* a place that was granted meanwhile is compared as a holder */
		if (!e->held && (c == NULL || c->state != LE_STATE_QUEUED))
			e->deadline = now + e->ttl;
		else if (c != NULL)
			/* a grant of a place that was not written may have moved its deadline, and no client knows */
			e->deadline =
				restored(m, loss, e->ttl, e->held || m->w->conf.fail_mille == 0 ? e->deadline : -LE_NEVER,
						 &e->unsaved, failed_deadline(m, e),
						 m_shares_time(e) && c->lease != NULL ? c->lease->deadline : c->deadline, now);
		ENSURE(m->w, !e->evicted || c == NULL || e->deadline <= now + (e->most > 1 ? e->most : 1));
	}
}

/*
 * State that rows do not contain.  A changed number of permits is stored with the holders: if there are
 * none, the waiters return with the number that they requested.
 */
static void
restore_locks(Model *m)
{
	for (int i = 0; i < m->w->conf.names * 2; i++)
	{
		const LeLock *lock =
			le_core_find_lock(m->w->core, i % 2 ? LE_KIND_LOCK : LE_KIND_ELECTION, sim_name(i / 2));
		MLock *mine = &m->s.locks[i];

		/* no client knew that the lock was held, so the name does not have to be closed, either */
		if (mine->closed_until == mine->unstored)
		{
			mine->closed_until = lock != NULL ? lock->closed_until : 0;
			mine->closed_by = lock != NULL ? lock->closed_by : 0;
		}
		if (mine->closed_until <= m->w->now)
			mine->closed_until = 0;
	}
	for (int i = 0; i < m->s.nentries; i++)
	{
		const MEntry *e = &m->s.entries[i];

		if (e->mode == LE_MODE_PERMIT && m_held(m, e->kind, e->name) == 0)
			m_lock(m, e->kind, e->name)->permits =
				le_core_find_lock(m->w->core, (LeKind) e->kind, sim_name(e->name))->permits;
	}
}

/* The grant is stored, but its reply was not sent. */
void
model_expect_answer(Model *m, const LeCommand *cmd, int64_t token)
{
	MAnswer a = {cmd->session, cmd->request, LE_OK, token};

	m->answers = m_grow(m->answers, m->nanswers, &m->max_answers, sizeof(MAnswer));
	m->answers[m->nanswers++] = a;
}

/* Copies the stored state to a disk that another server may use. */
void
model_copy_disk(Model *m, int disk)
{
	copy_state(m, &m->disks[disk], &m->stored);
}

void
model_put_back(Model *m, int disk)
{
	copy_state(m, &m->stored, &m->disks[disk]);
}

/* All connections have ended: ends blocked calls and bound entries. */
static void
forget_sessions(Model *m, LeTime now)
{
	LeTime grace = m->w->conf.limits.expiry_grace;
	int n = 0;

	m->s.nholds = 0;
	memset(m->s.sessions, 0, m->w->conf.sessions * sizeof(MSession));
	for (int i = 0; i < m->s.nentries; i++)
	{
		MEntry e = m->s.entries[i];
		MLock *lock = m_lock(m, e.kind, e.name);
		bool bound = e.ttl == LE_TTL_BOUND && e.lease == 0 && !e.lapsed;

		if (e.held && bound && grace > 0)
			m_close(lock, now + grace, e.role);
		if (bound || (!e.held && !e.place))
			continue;
		e.session = e.waiter = 0;
		e.wait_until = LE_NEVER;
		m->s.entries[n++] = e;
	}
	m->s.nentries = n;
}

/* A lapsed entry whose fence has ended before the core is rebuilt has ended. */
static void
end_unfenced(Model *m, LeTime now)
{
	int n = 0;

	for (int i = 0; i < m->s.nentries; i++)
	{
		MEntry e = m->s.entries[i];
		MLock *lock = m_lock(m, e.kind, e.name);

		if (!e.lapsed || world_fenced(m->w, e.token))
			m->s.entries[n++] = e;
		else if (e.closed_until > now)
			m_close(lock, e.closed_until, e.role);
	}
	m->s.nentries = n;
}

/* Restores the state that was stored last, with the remaining waiters or without any. */
void
model_reload(Model *m, LeTime now, Loss loss)
{
	copy_array((void **) &m->failed.entries, &m->failed.nentries, &m->failed.max_entries, m->s.entries,
			   m->s.nentries, sizeof(MEntry));
	copy_array((void **) &m->failed.leases, &m->failed.nleases, &m->failed.max_leases, m->s.leases,
			   m->s.nleases, sizeof(MLease));
	copy_state(m, &m->s, &m->stored);
	m->nanswers = 0;
	if (loss == LOST_SERVER)
		forget_sessions(m, now);
	end_unfenced(m, now);
	restore_time(m, now, loss);
	restore_locks(m);
	for (int i = 0; i < m->w->conf.names; i++)
	{
		m_settle(m, LE_KIND_LOCK, i, now);
		m_settle(m, LE_KIND_ELECTION, i, now);
	}
	m->next = le_core_next_revision(m->w->core);
}

/* --- time --- */

typedef struct Due
{
	int64_t token; /* or lease, or index of a lock */
	uint8_t kind;
	int name;
	enum
	{
		DUE_LEASE,
		DUE_WAIT,
		DUE_DEADLINE,
		DUE_RETRY,
		DUE_LOCK
	} what;
} Due;

static int
find_due(Model *m, LeTime now, Due *due)
{
	int n = 0;

	for (int i = 0; i < m->s.nleases; i++)
	{
		if (m->s.leases[i].deadline <= now)
			n++, *due = (Due){m->s.leases[i].id, 0, 0, DUE_LEASE};
	}
	for (int i = 0; i < m->s.nentries; i++)
	{
		MEntry *e = &m->s.entries[i];

		if (e->lapsed && e->retry <= now)
			n++, *due = (Due){e->token, e->kind, e->name, DUE_RETRY};
		else if ((e->lapsed && !m_shares_time(e)) || !m_leads(m, i))
			continue;
		else if (!e->held && e->waiter != 0 && e->wait_until <= now)
			n++, *due = (Due){e->token, e->kind, e->name, DUE_WAIT};
		else if (m_has_own_time(e) && e->deadline <= now)
			n++, *due = (Due){e->token, e->kind, e->name, DUE_DEADLINE};
	}
	for (int i = 0; i < m->w->conf.names * 2; i++)
	{
		if (m->s.locks[i].closed_until != 0 && m->s.locks[i].closed_until <= now)
			n++, *due = (Due){i, 0, 0, DUE_LOCK};
	}
	return n;
}

static void
handle_due(Model *m, const Due *due, LeTime now)
{
	LeTime grace = m->w->conf.limits.expiry_grace;
	MEntry *e =
		due->what == DUE_LEASE || due->what == DUE_LOCK ? NULL : m_find(m, due->kind, due->name, due->token);

	switch (due->what)
	{
		case DUE_LEASE:
			m_end_lease(m, due->token, LE_END_EXPIRED, now);
			break;
		case DUE_RETRY:
			m_end(m, e, LE_END_EXPIRED, 0, now);
			break;
		case DUE_LOCK:
			m->s.locks[due->token].closed_until = 0;
			m_settle(m, due->token % 2 ? LE_KIND_LOCK : LE_KIND_ELECTION, (int) due->token / 2, now);
			break;
		case DUE_WAIT:
			if (!e->place)
				m_end(m, e, LE_END_TIMEOUT, 0, now);
			else
			{
				e->wait_until = LE_NEVER;
				if (e->lease == 0)
					m_renew(m, e, now);
				m_answer(m, e, LE_QUEUED, e->token);
			}
			break;
		case DUE_DEADLINE:
			/* a wait for a place keeps the place alive */
			if (!e->held && e->waiter != 0)
				m_renew(m, e, now);
			else if (m_shares_time(e))
				m_expire_group(m, e->token, grace > 0 ? now + grace : 0, now);
			else
				m_end(m, e, LE_END_EXPIRED, e->held && grace > 0 ? now + grace : 0, now);
			break;
	}
}

void
model_expire(Model *m, LeTime now)
{
	Due due;
	int n;

	while ((n = find_due(m, now, &due)) > 0)
	{
		if (n > 1)
		{
			/* their order is not defined: check the outcome */
			model_adopt(m, now);
			return;
		}
		handle_due(m, &due, now);
	}
}
