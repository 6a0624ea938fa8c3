/*
 * model_told.c
 *		The facts that clients were told: a crash must not undo them.
 */
#include "model.h"

/* Returns whether the entry survives the server: a bound entry ends with its connection. */
static bool
has_to_last(const MEntry *e)
{
	return e->ttl != LE_TTL_BOUND || e->lease != 0;
}

static void
told_entry(Model *m, uint8_t kind, int name, int64_t token, Told told)
{
	MEntry *e = m_find(m, kind, name, token);
	MLease *lease = e != NULL ? m_find_lease(m, e->lease) : NULL;

	if (e == NULL || !has_to_last(e))
		return;
	if (told > e->told)
		e->told = told;
	if (lease != NULL)
		lease->told = true;
}

/* Marks all entries that an eviction has found, unless something is unflushed: it may be an eviction. */
static void
told_evicted(Model *m, const LeCommand *cmd)
{
	for (int i = 0; i < m->s.nentries && m->w->flushed == m->w->lsn; i++)
	{
		MEntry *e = &m->s.entries[i];

		if (e->evicted && e->kind == cmd->kind && e->name == sim_text_id(cmd->name.data) &&
			m_manages(cmd, e->role))
			e->told_evicted = true;
	}
}

/* After this release, the name is granted to nobody for a while. */
static void
told_closed(Model *m, const LeCommand *cmd, int64_t token)
{
	MLock *lock = m_lock(m, (uint8_t) cmd->kind, sim_text_id(cmd->name.data));

	if (lock->closer == token)
		lock->told = lock->closed_until;
}

void
model_told(Model *m, const LeCommand *cmd, const LeReply *reply)
{
	MLease *lease;

	if (reply->status != LE_OK && reply->status != LE_QUEUED)
		return;
	switch (cmd->type)
	{
		case LE_CMD_ACQUIRE:
		case LE_CMD_AWAIT:
		case LE_CMD_RENEW:
		case LE_CMD_CHECK:
			for (uint32_t i = 0; i < command_names(cmd); i++)
				told_entry(m, (uint8_t) cmd->kind, sim_text_id(command_name(cmd, i).data),
						   reply->token != 0 ? reply->token : cmd->token,
						   reply->status == LE_OK ? TOLD_HELD : TOLD_PLACE);
			break;
		case LE_CMD_RELEASE:
			if (cmd->hold_for > 0)
				told_closed(m, cmd, reply->token);
			break;
		case LE_CMD_EVICT:
			told_evicted(m, cmd);
			break;
		case LE_CMD_GRANT_LEASE:
		case LE_CMD_KEEP_ALIVE:
		case LE_CMD_LEASE_TTL:
			lease = m_find_lease(m, reply->lease != 0 ? reply->lease : cmd->lease);
			if (lease != NULL)
				lease->told = true;
			break;
		default:
			break;
	}
}

static const MEntry *
find_entry(const MState *s, const MEntry *e)
{
	for (int i = 0; i < s->nentries; i++)
	{
		const MEntry *other = &s->entries[i];

		if (other->token == e->token && other->kind == e->kind && other->name == e->name)
			return other;
	}
	return NULL;
}

static bool
has_lease(const MState *s, int64_t id)
{
	for (int i = 0; i < s->nleases; i++)
	{
		if (s->leases[i].id == id)
			return true;
	}
	return false;
}

/*
 * Replaces the stored state by that of this disk.  Entries that no longer exist in
 * the lost state may have ended at any time, and are not searched for.
 */
void
model_lose(Model *m, int disk)
{
	const MState *left = &m->disks[disk], *lost = &m->stored;

	for (int i = 0; i < lost->nentries; i++)
	{
		const MEntry *e = &lost->entries[i];
		const MEntry *other = find_entry(left, e);

		if (e->told_evicted && other != NULL && !other->evicted && !other->lapsed)
			sim_fail(m->w, "token %lld, that was evicted, is not so after a crash", (long long) e->token);

		if (e->told != TOLD_NOTHING && (other == NULL || (e->told == TOLD_HELD && !other->held)))
			sim_fail(m->w, "token %lld, that somebody was told of, is lost with a crash",
					 (long long) e->token);
	}
	for (int i = 0; i < lost->nleases; i++)
	{
		if (lost->leases[i].told && !has_lease(left, lost->leases[i].id))
			sim_fail(m->w, "lease %lld, that somebody was told of, is lost with a crash",
					 (long long) lost->leases[i].id);
	}
	for (int i = 0; i < m->w->conf.names * 2; i++)
	{
		const MLock *lock = &lost->locks[i];

		if (lock->told != 0 && lock->told == lock->closed_until && left->locks[i].closed_until < lock->told)
			sim_fail(m->w, "name %d was to stay closed, and a crash opens it", i / 2);
	}
}
