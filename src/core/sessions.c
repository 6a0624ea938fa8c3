/*
 * core/sessions.c
 *		Keeps the entries and waits of each session, ends sessions, and undoes
 *		(sub)transactions.
 */
#include "entry.h"
#include "lock.h"
#include "sessions.h"
#include "settle.h"
#include "state.h"
#include "together.h"
#include "uncommitted.h"
#include "view.h"

static void
session_forget_holds(LeCore *core, LeSession *session)
{
	while (!le_link_empty(&session->uncommitted))
		le_uncommitted_remove(core, le_container(session->uncommitted.next, LeUncommitted, session_link));
}

void
le_session_wait(LeSession *session, LeEntry *entry, const LeCommand *cmd, LeTime now)
{
	assert(entry->waiter != NULL && session->id == cmd->session);
	entry->waiter->session = cmd->session;
	entry->waiter->sessno = cmd->sessno;
	entry->waiter->request = cmd->request;
	entry->waiter->xact = cmd->xact;
	entry->waiter->subxact = cmd->subxact;
	entry->waiter->until = cmd->wait == LE_WAIT_FOREVER ? LE_NEVER : le_add(now, cmd->wait);
	session->waiting_on = entry;
}

/*
 * Ends the wait of a session.  A place stays; the entry of a blocked call ends.  The caller must call
 * le_settle_ended() afterwards.
 */
static void
session_stop_waiting(LeCore *core, LeSession *session, LeEnd how, LeTime now)
{
	LeEntry *entry = session->waiting_on;

	if (entry == NULL)
		return;
	assert(entry->state == LE_STATE_QUEUED && entry->waiter->session == session->id);
	if (entry->place)
	{
		/* the place was kept alive by the wait, so its own TTL begins now */
		le_answer(core, entry, LE_NOT_GRANTED, 0);
		entry->waiter->until = LE_NEVER;
		if (le_entry_named_lease(entry) == NULL)
			le_entry_renew(core, entry, now);
		le_entry_arm(core, entry);
	}
	else
		le_entry_end_only(core, entry, how, 0, now);
	session->waiting_on = NULL;
}

void
le_core_stop_waiting(LeCore *core, uint64_t id, uint32_t sessno, LeTime now)
{
	LeEntry *before = core->ended;

	assert(sessno < core->max_sessions && core->sessions[sessno].id == id);
	session_stop_waiting(core, &core->sessions[sessno], LE_END_TIMEOUT, now);
	le_settle_ended(core, before, now);
}

/*
 * Ends a session, with its wait and its bound entries.  Its uncommitted holds count as committed, and
 * its other entries continue without a session.  Returns false if some entries are left for the next
 * batch; if "all" is set, none are.
 */
static bool
session_end(LeCore *core, LeSession *session, bool all, LeTime now)
{
	LeEntry *before = core->ended;
	LeTime closed_until = core->limits.expiry_grace > 0 ? le_add(now, core->limits.expiry_grace) : 0;

	session_stop_waiting(core, session, LE_END_SESSION, now);
	session_forget_holds(core, session);
	while (!le_link_empty(&session->entries) && (all || !le_core_is_full(core)))
	{
		LeEntry *entry = le_container(session->entries.next, LeEntry, session_link);

		core->work++;
		session->bound -= le_entry_is_bound(entry);
		le_unlink(&entry->session_link);
		entry->session = 0;
		if (le_entry_is_bound(entry) && entry->state != LE_STATE_LAPSED)
			le_entry_end_only(core, entry, LE_END_SESSION, closed_until, now);
	}
	le_settle_ended(core, before, now);
	if (!le_link_empty(&session->entries))
		return false;
	assert(le_link_empty(&session->uncommitted) && session->waiting_on == NULL);
	assert(session->bound == 0);
	session->id = 0;
	return true;
}

/*
 * Records a request of this session in this transaction.  Holds from earlier transactions of the
 * session are committed, because an UNDO of such a transaction would have preceded this request.
 */
LeSession *
le_session_touch(LeCore *core, uint64_t id, uint32_t sessno, uint32_t xact, LeTime now)
{
	LeSession *session = &core->sessions[sessno];

	assert(sessno < core->max_sessions && id != 0);
	if (session->id != id)
	{
		if (session->id != 0)
			(void) session_end(core, session, true, now);
		session->id = id;
		session->xact = xact;
	}
	else if (session->xact != xact)
	{
		session_forget_holds(core, session);
		session->xact = xact;
	}
	return session;
}

/* SESSION_END: ends a session, in steps (LeReply.next).  Must not fail. */
void
le_apply_session_end(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	LeSession *session = &core->sessions[cmd->sessno];

	if (session->id == cmd->session)
		reply->next = !session_end(core, session, false, now);
}

bool
le_core_end_is_quiet(const LeCore *core, uint64_t id, uint32_t sessno)
{
	const LeSession *session = &core->sessions[sessno];

	return session->id != id || (session->waiting_on == NULL && session->bound == 0);
}

bool
le_core_has_to_undo(const LeCore *core, const LeCommand *cmd)
{
	const LeSession *session = &core->sessions[cmd->sessno];

	if (session->id != cmd->session || session->xact != cmd->xact)
		return false;
	for (const LeLink *link = session->uncommitted.next; link != &session->uncommitted; link = link->next)
	{
		const LeUncommitted *hold = le_container(link, LeUncommitted, session_link);

		if (hold->subxact >= cmd->subxact && (hold->entry->state != LE_STATE_QUEUED || hold->entry->place))
			return true;
	}
	return false;
}

/*
 * UNDO: undoes this transaction's acquires with number cmd->subxact or higher, in steps
 * (LeReply.next).  Must not fail.
 */
void
le_apply_undo(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	LeSession *session = &core->sessions[cmd->sessno];
	LeEntry *before = core->ended;

	if (session->id != cmd->session || session->xact != cmd->xact)
		return;
	if (session->waiting_on != NULL && session->waiting_on->waiter->xact == cmd->xact &&
		session->waiting_on->waiter->subxact >= cmd->subxact)
		session_stop_waiting(core, session, LE_END_UNDONE, now);

	/* undo the transaction's holds; an entry ends with its last hold */
	for (LeLink *link = session->uncommitted.next; link != &session->uncommitted;)
	{
		LeUncommitted *hold = le_container(link, LeUncommitted, session_link);
		LeEntry *entry = hold->entry;

		link = link->next;
		if (hold->subxact < cmd->subxact)
			continue;
		if (le_core_is_full(core))
		{
			reply->next = 1;
			break;
		}
		le_uncommitted_remove(core, hold);
		if (entry->state == LE_STATE_LAPSED)
			continue;
		if (entry->hold_count > 1)
		{
			entry->hold_count--;
			if (entry->state == LE_STATE_HELD)
				le_slot_dirty(core, entry->slot);
			else if (entry->place)
				le_place_dirty(core, entry);
			continue;
		}

		/* the end of the entry removes all its holds, so continue with a hold of another entry */
		while (link != &session->uncommitted &&
			   le_group_lead(le_container(link, LeUncommitted, session_link)->entry) == le_group_lead(entry))
			link = link->next;
		le_entry_end_only(core, entry, LE_END_UNDONE, 0, now);
	}
	le_settle_ended(core, before, now);
}

/*
 * Returns whether this entry is a holder of the session.  A LAPSED entry counts, because it still has a
 * slot, perhaps because the session itself fences it.
 */
static bool
is_held_by(const LeEntry *entry, const LeLock *lock, uint64_t session)
{
	return entry != NULL && le_entry_has_slot(entry) && entry->lock == lock && entry->session == session;
}

/*
 * Returns whether the session has a slot of this lock.  A lock may have very many holders, and a
 * session very many locks.  Therefore both lists are walked in parallel until the shorter one ends.
 */
bool
le_held_by_session(const LeCore *core, const LeLock *lock, const LeCommand *cmd)
{
	const LeLink *entries = &core->sessions[cmd->sessno].entries, *link = entries->next;

	for (LeSlot *slot = lock->slots; slot != NULL && link != entries; slot = slot->next, link = link->next)
	{
		if (is_held_by(le_slot_holder(slot), lock, cmd->session) ||
			is_held_by(le_container(link, LeEntry, session_link), lock, cmd->session))
			return true;
	}
	return false;
}

static LeEntry *
newer_of_session(LeEntry *newest, LeEntry *entry, const LeLock *lock, const LeCommand *cmd)
{
	if (!is_held_by(entry, lock, cmd->session) || entry->state == LE_STATE_LAPSED ||
		(cmd->before != 0 && entry->token >= cmd->before))
		return newest;
	return newest == NULL || entry->token > newest->token ? entry : newest;
}

LeEntry *
le_newest_of_session(const LeCore *core, const LeCommand *cmd)
{
	const LeLock *lock = le_core_find_lock(core, cmd->kind, cmd->name);
	const LeLink *entries = &core->sessions[cmd->sessno].entries, *link = entries->next;
	LeEntry *newest = NULL;

	if (lock == NULL || cmd->session == 0)
		return NULL;

	/* walk both lists in parallel, as in le_held_by_session() */
	for (LeSlot *slot = lock->slots; slot != NULL && link != entries; slot = slot->next, link = link->next)
	{
		newest = newer_of_session(newest, le_slot_holder(slot), lock, cmd);
		newest = newer_of_session(newest, le_container(link, LeEntry, session_link), lock, cmd);
	}
	return newest;
}

bool
le_core_end_is_heavy(const LeCore *core, uint64_t session, uint32_t sessno)
{
	const LeSession *s = &core->sessions[sessno];
	uint32_t n = 0;

	if (s->id != session)
		return false;
	for (const LeLink *link = s->entries.next; link != &s->entries && n < LE_FEW; link = link->next)
		n++;
	for (const LeLink *link = s->uncommitted.next; link != &s->uncommitted && n < LE_FEW; link = link->next)
		n++;
	return n == LE_FEW;
}

LeEntry *
le_core_waiting_on(const LeCore *core, uint64_t session, uint32_t sessno)
{
	assert(sessno < core->max_sessions);
	return core->sessions[sessno].id == session ? core->sessions[sessno].waiting_on : NULL;
}

uint32_t
le_core_bound_to(const LeCore *core, uint64_t session, uint32_t sessno)
{
	return core->sessions[sessno].id == session ? core->sessions[sessno].bound : 0;
}
