/*
 * core/command.c
 *		What is asked of a lock: acquire, and all that is done with a token.
 */
#include "core_internal.h"

/* --- acquire --- */

/* How long it holds; what is bound to a connection ends with the server. */
void
le_reply_time(LeReply *reply, const LeEntry *entry, LeTime now)
{
	reply->valid_for = le_entry_time_left(entry, now);
	reply->bound = reply->valid_for == LE_NEVER;
}

/* The parts of a reply that tell of a holder. */
static void
reply_holder(LeReply *reply, const LeEntry *holder, LeTime now)
{
	reply->token = holder->token;
	le_reply_time(reply, holder, now);
	if (le_entry_lsn(holder) > reply->lsn)
		reply->lsn = le_entry_lsn(holder);
}

/* An earlier change of this batch may still tell the old value. */
static void
proclaim(LeCore *core, LeEntry *holder, const LeCommand *cmd, LeTime now)
{
	char *old = holder->value;

	le_role_add(core, holder->role, (LeUsage){.bytes = cmd->value.len});
	le_role_remove(core, holder->role, (LeUsage){.bytes = holder->value_len});
	holder->value = core->prealloc_value;
	holder->value_len = (uint16_t) cmd->value.len;
	core->prealloc_value = NULL;
	le_slot_dirty(core, holder->slot);
	le_change_add(core, holder, LE_HOW_PROCLAIMED, old, now);
}

/* May the role replace the holder's value by this one? */
static LeStatus
admits_value(const LeCore *core, const LeEntry *holder, LeText value)
{
	LeUsage more = {.bytes = value.len > holder->value_len ? value.len - holder->value_len : 0};

	return le_role_admits(core, holder->role, more);
}

/* ... or one more hold, beside others that may still roll back?  They are remembered one by one. */
LeStatus
le_reentry_admits(const LeCore *core, const LeEntry *holder, const LeCommand *cmd)
{
	LeStatus status = admits_value(core, holder, cmd->value);

	if (status != LE_OK || holder->uncommitted == NULL)
		return status;
	return le_role_admits(core, holder->role, le_usage_of_hold());
}

/* A re-entrant acquire, which le_reentry_status() and le_reentry_admits() allow. */
void
le_reentry_apply(LeCore *core, LeEntry *holder, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	if (le_entry_reenter(core, holder, cmd->ttl, now))
	{
		reply->counted = true;
		le_uncommitted_add(core, holder, cmd->session, cmd->sessno, cmd->xact, cmd->subxact);
	}
	if (cmd->value.data != NULL && !le_text_equal(le_text(holder->value, holder->value_len), cmd->value))
		proclaim(core, holder, cmd, now);
	core->stats.grants++;
	reply_holder(reply, holder, now);
	reply->reentrant = true;
	reply->shared_owner = le_owner_is_shared(holder, cmd->session);
	reply->wrote |= holder->slot->row.dirty;
}

/* A holder without a named owner that this request may be one more hold of. */
static bool
is_unnamed_holder(const LeEntry *holder, const LeLock *lock, const LeCommand *cmd)
{
	return holder->lock == lock && holder->state == LE_STATE_HELD && holder->owner == NULL &&
		   holder->role == cmd->role && !le_entry_is_ending(holder);
}

/* It has an uncommitted hold of this session. */
static bool
has_hold_of(const LeEntry *entry, uint64_t session)
{
	for (const LeUncommitted *hold = entry->uncommitted; hold != NULL; hold = hold->next)
	{
		if (hold->session == session)
			return true;
	}
	return false;
}

/* The one that this very transaction has acquired; as in le_held_by_session(). */
static LeEntry *
held_by_transaction(const LeLock *lock, const LeSession *session, const LeCommand *cmd)
{
	const LeLink *link = session->uncommitted.next;

	for (LeSlot *slot = lock->slots; slot != NULL && link != &session->uncommitted;
		 slot = slot->next, link = link->next)
	{
		LeEntry *entry = le_container(link, LeUncommitted, session_link)->entry;
		LeEntry *holder = le_slot_holder(slot);

		if (is_unnamed_holder(entry, lock, cmd))
			return entry;
		if (holder != NULL && is_unnamed_holder(holder, lock, cmd) && has_hold_of(holder, cmd->session))
			return holder;
	}
	return NULL;
}

/*
 * The holder that this request is one more hold of: that of the same named
 * owner; if it names none, of the same named lease; if neither, the one that it
 * names, or that of this very transaction.  Permits count each for itself.
 */
LeEntry *
le_reentry_find(const LeCore *core, const LeLock *lock, const LeSession *session, const LeCommand *cmd,
				const LeLease *lease)
{
	LeEntry *holder;

	if (cmd->enqueue || cmd->mode == LE_MODE_PERMIT || lock->held == 0)
		return NULL;
	holder = le_lock_owned(core, lock, cmd->role, cmd->owner, lease, cmd->session);
	if (holder != NULL || cmd->owner.data != NULL)
		return holder;
	holder = cmd->reenter != 0 ? le_core_find_entry(core, cmd->kind, cmd->name, cmd->reenter) : NULL;
	if (holder != NULL && holder->session == cmd->session && is_unnamed_holder(holder, lock, cmd))
		return holder;
	return held_by_transaction(lock, session, cmd);
}

/* A name is used in one way at a time. */
LeStatus
le_acquire_use(const LeLock *lock, const LeCommand *cmd)
{
	if (lock->held == 0 && lock->waiting == 0)
		return LE_OK;
	if ((lock->permits > 0) != (cmd->mode == LE_MODE_PERMIT))
		return LE_BAD_MODE;

	/* the number may have been changed while a waiter of old was queued */
	if (cmd->mode == LE_MODE_PERMIT && lock->permits != cmd->permits && cmd->revision == 0)
		return LE_BAD_PERMITS;
	return LE_OK;
}

/* Also after it has lapsed: then a fence keeps it, maybe this session's. */
static bool
is_held_by(const LeEntry *entry, const LeLock *lock, uint64_t session)
{
	return entry != NULL && le_entry_has_slot(entry) && entry->lock == lock && entry->session == session;
}

/*
 * A lock may have very many holders, and a session very many locks: both lists
 * are walked at once, to the end of the shorter one.
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

void
le_acquire_wait(LeSession *session, LeEntry *entry, const LeCommand *cmd, LeTime now)
{
	entry->waiter->session = cmd->session;
	entry->waiter->sessno = cmd->sessno;
	entry->waiter->request = cmd->request;
	entry->waiter->xact = cmd->xact;
	entry->waiter->subxact = cmd->subxact;
	entry->waiter->until = cmd->wait == LE_WAIT_FOREVER ? LE_NEVER : le_add(now, cmd->wait);
	session->waiting_on = entry;
}

/*
 * A waiter that comes back after a reload finds its request stored already: it
 * had been written when the manager ended, and only the answer was missing.
 * Its hold may have been loaded with the row; other sessions of the same owner
 * may have uncommitted holds of their own.
 */
void
le_acquire_entered(LeCore *core, LeEntry *entry, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	if (!has_hold_of(entry, cmd->session))
		le_uncommitted_add(core, entry, cmd->session, cmd->sessno, cmd->xact, cmd->subxact);
	reply->status = entry->state == LE_STATE_LAPSED ? LE_LOST
					: entry->state == LE_STATE_HELD ? LE_OK
													: LE_QUEUED;
	reply->counted = true;
	reply_holder(reply, entry, now);
}

/*
 * Such a waiter may also have been granted as one more hold of its owner's
 * holder.  While it waited, its session had no hold of that, unless it had been
 * its own queue place, which has one from the beginning.
 */
static LeEntry *
find_joined(const LeCore *core, const LeLock *lock, const LeCommand *cmd, const LeLease *lease)
{
	LeEntry *holder = lock->held > 0 && cmd->mode != LE_MODE_PERMIT
						  ? le_lock_owned(core, lock, cmd->role, cmd->owner, lease, cmd->session)
						  : NULL;

	if (holder == NULL || !has_hold_of(holder, cmd->session))
		return NULL;
	return holder->session == cmd->session && holder->hold_count < 2 ? NULL : holder;
}

/* May this request have its slot now, if nobody waits before it? */
bool
le_acquire_admitted(const LeLock *lock, const LeCommand *cmd, LeTime now)
{
	if (lock == NULL)
		return true;
	if (lock->waiting > 0)
		return false;
	if (cmd->mode == LE_MODE_PERMIT && lock->permits == 0)
		return lock->closed_until <= now;
	return le_lock_admits(lock, cmd->mode, now);
}

/* The request becomes a holder, if it is admitted, or enters the queue. */
static void
enter(LeCore *core, LeSession *session, const LeCommand *cmd, LeLease *lease, bool admitted, LeTime now,
	  LeReply *reply)
{
	LeLock *lock = le_lock_get(core, cmd->kind, cmd->name);
	LeEntry *entry;

	if (cmd->mode == LE_MODE_PERMIT && lock->permits == 0)
		lock->permits = cmd->permits;
	entry = le_entry_new(core, lock, cmd, lease);
	entry->place = cmd->enqueue;
	le_uncommitted_add(core, entry, cmd->session, cmd->sessno, cmd->xact, cmd->subxact);
	reply->token = entry->token;
	reply->counted = true;
	if (admitted)
	{
		le_entry_grant(core, entry, now);
		le_lock_timer(core, lock, now);
		le_reply_time(reply, entry, now);
		le_epoch_reply(core, reply, entry);
		reply->wrote = true;
		return;
	}
	core->stats.waits++;
	le_waiter_new(core, entry, cmd->since != 0 ? cmd->since : now);
	if (cmd->enqueue)
	{
		if (lease == NULL && cmd->ttl != LE_TTL_BOUND)
			entry->deadline = le_add(now, cmd->ttl);
		le_place_dirty(core, entry);
		reply->status = LE_QUEUED;
		reply->position = lock->waiting + 1;
		le_reply_time(reply, entry, now);
		reply->wrote = true;
	}
	else
	{
		le_acquire_wait(session, entry, cmd, now);
		reply->status = LE_WAITING;
	}
	le_entry_queue(core, entry, now);
	if (cmd->revision != 0)
		le_lock_settle(core, lock, now);
}

/*
 * The named lease that a request is to hang on, NULL if it names none.  That of
 * a waiter that comes back was there once, and ends in its turn.
 */
LeStatus
le_acquire_lease(const LeCore *core, const LeCommand *cmd, LeTime now, LeLease **lease)
{
	*lease = NULL;
	if (cmd->lease == 0)
		return LE_OK;
	*lease = le_core_find_lease(core, cmd->lease);
	if (*lease == NULL || (*lease)->for_group || (*lease)->ending)
		return cmd->revision != 0 ? LE_LOST : LE_NO_LEASE;

	/* what has waited before may find its lease overdue: it ends with this batch */
	if (cmd->revision == 0 && le_is_over(core, (*lease)->deadline, now))
		return LE_NO_LEASE;
	return (*lease)->role != cmd->role ? LE_DENIED : LE_OK;
}

/* The same lease asks for the same thing once more; two owners on one lease are two. */
static bool
is_same_place(const LeCore *core, const LeEntry *entry, const LeLock *lock, const LeLease *lease,
			  const LeCommand *cmd)
{
	return entry->lock == lock && entry->lease == lease && entry->state == LE_STATE_QUEUED && entry->place &&
		   entry->grouped == (cmd->nnames > 0) && entry->mode == cmd->mode &&
		   le_text_equal(le_text(entry->owner, entry->owner_len), cmd->owner) &&
		   le_text_equal(le_text(entry->value, entry->value_len), cmd->value) &&
		   (cmd->nnames == 0 || le_group_has_names(core, entry, cmd));
}

/* The place that this request has taken in this lock already, on its named lease. */
LeEntry *
le_same_place(const LeCore *core, const LeLock *lock, const LeLease *lease, const LeCommand *cmd)
{
	const LeLink *link = lock->queue.next, *other = lease->entries.next;

	/* to the end of the shorter list: both may be very long */
	for (; link != &lock->queue && other != &lease->entries; link = link->next, other = other->next)
	{
		LeEntry *queued = le_queued(link);
		LeEntry *leased = le_container(other, LeEntry, lease_link);

		if (is_same_place(core, queued, lock, lease, cmd))
			return queued;
		if (is_same_place(core, leased, lock, lease, cmd))
			return leased;
	}
	return NULL;
}

/* It must not go with an earlier request that may still roll back. */
void
le_place_again(LeCore *core, LeEntry *entry, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	uint32_t position = 1;

	if (entry->uncommitted != NULL)
	{
		entry->hold_count++;
		reply->counted = true;
		le_uncommitted_add(core, entry, cmd->session, cmd->sessno, cmd->xact, cmd->subxact);
		le_place_dirty(core, entry);
		reply->wrote = true;
	}
	for (const LeLink *link = entry->lock->queue.next; link != &entry->waiter->queue_link; link = link->next)
		position++;
	if (position > reply->position)
		reply->position = position;
	reply_holder(reply, entry, now);
}

/*
 * On a named lease a place is taken once, and what is held already is held: a
 * client that does not know what became of its request sends it again.
 */
static bool
enqueue_again(LeCore *core, LeLock *lock, LeLease *lease, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	LeEntry *entry = le_lock_owned(core, lock, cmd->role, cmd->owner, lease, cmd->session);

	if (entry != NULL && entry->lease == lease)
	{
		reply->status = le_reentry_status(entry, cmd->mode, lease, cmd->ttl);
		if (reply->status == LE_OK)
			le_reentry_apply(core, entry, cmd, now, reply);
		return true;
	}
	entry = le_same_place(core, lock, lease, cmd);
	if (entry == NULL)
		return false;
	reply->status = LE_QUEUED;
	le_place_again(core, entry, cmd, now, reply);
	return true;
}

void
le_apply_acquire(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	LeSession *session = le_session_touch(core, cmd->session, cmd->sessno, cmd->xact, now);
	LeLease *lease;
	LeLock *lock;
	LeEntry *entry;
	bool admitted;

	reply->status = le_acquire_lease(core, cmd, now, &lease);
	if (reply->status != LE_OK)
		return;
	if (cmd->revision != 0)
	{
		entry = le_core_find_entry(core, cmd->kind, cmd->name, cmd->revision);
		lock = le_core_find_lock(core, cmd->kind, cmd->name);
		if (entry == NULL && lock != NULL && !cmd->enqueue)
			entry = find_joined(core, lock, cmd, lease);
		if (entry != NULL)
		{
			le_acquire_entered(core, entry, cmd, now, reply);
			return;
		}
	}
	lock = le_core_find_lock(core, cmd->kind, cmd->name);
	if (lock != NULL)
	{
		reply->status = le_acquire_use(lock, cmd);
		reply->permits = lock->permits;
		if (reply->status != LE_OK)
			return;
		if (cmd->enqueue && lease != NULL && cmd->mode != LE_MODE_PERMIT && cmd->revision == 0 &&
			enqueue_again(core, lock, lease, cmd, now, reply))
			return;
		entry = cmd->revision != 0 ? NULL : le_reentry_find(core, lock, session, cmd, lease);
		if (entry != NULL)
		{
			reply->status = le_reentry_status(entry, cmd->mode, lease, cmd->ttl);
			if (reply->status == LE_OK)
				reply->status = le_reentry_admits(core, entry, cmd);
			if (reply->status == LE_OK)
				le_reentry_apply(core, entry, cmd, now, reply);
			return;
		}
	}

	/* a waiter of old goes to its place, and is granted from there */
	admitted = cmd->revision == 0 && le_acquire_admitted(lock, cmd, now);
	if (!admitted && !cmd->enqueue)
	{
		reply->own_session = lock != NULL && le_held_by_session(core, lock, cmd);
		if (cmd->wait == 0)
		{
			reply->status = LE_NOT_GRANTED;
			return;
		}
		if (cmd->reenter != 0)
		{
			reply->status = LE_LOST;
			return;
		}
	}
	if (!admitted && core->limits.waiters_per_lock > 0 && cmd->revision == 0 &&
		lock->waiting >= core->limits.waiters_per_lock)
	{
		reply->status = LE_LIMIT_WAITERS;
		return;
	}
	if (cmd->revision == 0)
		reply->status = le_role_admits(core, cmd->role, le_usage_of_command(cmd));
	if (reply->status != LE_OK)
		return;

	enter(core, session, cmd, lease, admitted, now, reply);
}

/* --- commands on a token --- */

/* The reply rests on this entry's row, which may still have to be written with this batch. */
static void
reply_row(LeReply *reply, const LeEntry *entry)
{
	reply->lsn = le_entry_lsn(entry);
	reply->wrote = le_entry_has_slot(entry) ? entry->slot->row.dirty : entry->waiter->row.dirty;
}

/*
 * The entry of this token if it is of this name and the caller's role; else
 * reply says what is wrong.
 */
static LeEntry *
find_own(LeCore *core, const LeCommand *cmd, LeReply *reply)
{
	LeEntry *entry = le_core_find_entry(core, cmd->kind, cmd->name, cmd->token);

	reply->status = LE_NOT_HELD;
	if (entry == NULL || entry->state == LE_STATE_LAPSED || le_entry_is_ending(entry))
		return NULL;
	if (entry->state == LE_STATE_QUEUED && !entry->place)
		return NULL;
	if (entry->role != cmd->role)
	{
		reply->status = LE_DENIED;
		return NULL;
	}
	reply->status = LE_OK;
	reply->token = entry->token;
	reply_row(reply, entry);
	return entry;
}

/* The renewal of an entry may be a write of the lease that it hangs on. */
static bool
lease_is_dirty(const LeEntry *entry)
{
	return entry->lease != NULL && entry->lease->row.dirty;
}

void
le_apply_renew(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	LeEntry *entry = find_own(core, cmd, reply);

	if (entry == NULL)
		return;
	if (entry->state == LE_STATE_QUEUED)
	{
		reply->status = LE_QUEUED;
		return;
	}
	if (cmd->ttl != 0 && (le_entry_named_lease(entry) != NULL || entry->ttl == LE_TTL_BOUND))
	{
		reply->status = LE_BAD_TTL;
		return;
	}
	if (cmd->ttl != 0 && entry->lease != NULL)
		le_lease_set_ttl(core, entry->lease, cmd->ttl);
	else if (cmd->ttl != 0 && cmd->ttl != entry->ttl)
	{
		entry->ttl = cmd->ttl;
		le_epoch_raise(core, entry->lock->hash);
		entry->saved_left = entry->ttl;
		le_slot_dirty(core, entry->slot);
	}
	le_entry_renew(core, entry, now);
	le_reply_time(reply, entry, now);
	reply->wrote = entry->slot->row.dirty || lease_is_dirty(entry);
}

static LeEntry *
newer_of_session(LeEntry *newest, LeEntry *entry, const LeLock *lock, const LeCommand *cmd)
{
	if (!is_held_by(entry, lock, cmd->session) || entry->state == LE_STATE_LAPSED ||
		(cmd->before != 0 && entry->token >= cmd->before))
		return newest;
	return newest == NULL || entry->token > newest->token ? entry : newest;
}

/* The newest hold of this lock that this connection acquired. */
static LeEntry *
find_of_session(const LeCore *core, const LeCommand *cmd)
{
	const LeLock *lock = le_core_find_lock(core, cmd->kind, cmd->name);
	const LeLink *entries = &core->sessions[cmd->sessno].entries, *link = entries->next;
	LeEntry *newest = NULL;

	if (lock == NULL || cmd->session == 0)
		return NULL;

	/* as in le_held_by_session() */
	for (LeSlot *slot = lock->slots; slot != NULL && link != entries; slot = slot->next, link = link->next)
	{
		newest = newer_of_session(newest, le_slot_holder(slot), lock, cmd);
		newest = newer_of_session(newest, le_container(link, LeEntry, session_link), lock, cmd);
	}
	return newest;
}

void
le_apply_release(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	LeCommand by_token = *cmd;
	LeEntry *entry;
	LeTime closed_until = 0;
	uint32_t holds = cmd->holds > 0 ? cmd->holds : 1;

	if (cmd->session != 0)
		le_session_touch(core, cmd->session, cmd->sessno, cmd->xact, now);
	if (cmd->token == 0)
	{
		entry = find_of_session(core, cmd);
		if (entry == NULL)
		{
			reply->status = LE_NOT_HELD;
			return;
		}
		by_token.token = entry->token;
	}
	entry = find_own(core, &by_token, reply);
	if (entry == NULL)
		return;
	reply->bound = le_entry_time_left(entry, now) == LE_NEVER;
	reply->wrote = true;
	reply->may_return = le_entry_ends_soon(entry);
	if (entry->state == LE_STATE_HELD && le_entry_holds(entry) > holds && !cmd->all_holds)
	{
		entry->hold_count -= holds;
		le_slot_dirty(core, entry->slot);
		return;
	}
	if (entry->state == LE_STATE_HELD && cmd->hold_for > 0)
		closed_until = le_add(entry->acquired_at, cmd->hold_for);
	if (closed_until <= now)
		closed_until = 0;
	else
	{
		/* the name stays closed, whatever its holder was bound to */
		reply->bound = false;
		reply->may_return = false;
	}
	le_entry_end(core, entry, LE_END_RELEASED, closed_until, now);
}

/*
 * One wait at a time keeps a place: the newest, because a client that has lost
 * its connection comes back before the server knows of that.
 */
static void
displace_waiter(LeCore *core, LeEntry *entry, LeReply *reply)
{
	LeSession *session = &core->sessions[entry->waiter->sessno];

	if (entry->waiter->session == 0)
		return;
	assert(session->id == entry->waiter->session && session->waiting_on == entry);
	session->waiting_on = NULL;
	reply->displaced_session = entry->waiter->session;
	reply->displaced_sessno = entry->waiter->sessno;
	reply->displaced_request = entry->waiter->request;
}

void
le_apply_await(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	LeSession *session = le_session_touch(core, cmd->session, cmd->sessno, cmd->xact, now);
	LeEntry *entry = find_own(core, cmd, reply);

	if (entry == NULL)
	{
		if (reply->status == LE_NOT_HELD)
			reply->status = LE_LOST;
		return;
	}
	le_entry_renew(core, entry, now);
	le_reply_time(reply, entry, now);
	reply->wrote |= lease_is_dirty(entry);
	if (entry->state == LE_STATE_HELD)
		return;
	reply->status = LE_QUEUED;
	reply->own_session = le_held_by_session(core, entry->lock, cmd);
	entry = le_group_lead(entry);
	if (cmd->wait != 0 && !entry->waiter->answering)
	{
		displace_waiter(core, entry, reply);
		le_acquire_wait(session, entry, cmd, now);
		reply->status = LE_WAITING;
	}
	le_entry_arm(core, entry);
}

void
le_apply_check(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	LeEntry *entry = cmd->token != 0 ? le_core_find_entry(core, cmd->kind, cmd->name, cmd->token)
									 : find_of_session(core, cmd);

	reply->status = LE_NOT_HELD;
	if (entry == NULL || entry->state == LE_STATE_LAPSED || le_entry_is_ending(entry) ||
		(entry->state == LE_STATE_QUEUED && !entry->place))
		return;
	if (cmd->role != 0 && entry->role != cmd->role)
	{
		reply->status = LE_DENIED;
		return;
	}
	reply->status = entry->state == LE_STATE_HELD ? LE_OK : LE_QUEUED;
	reply->token = entry->token;
	le_reply_time(reply, entry, now);
	reply->holds = le_entry_holds(entry);
	reply->own_session =
		entry->state == LE_STATE_HELD && entry->owner == NULL && entry->session == cmd->session;
	reply_row(reply, entry);
}

void
le_apply_proclaim(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	LeEntry *entry = find_own(core, cmd, reply);

	if (entry == NULL)
		return;
	if (entry->state != LE_STATE_HELD)
	{
		reply->status = LE_NOT_HELD;
		return;
	}
	reply->status = admits_value(core, entry, cmd->value);
	if (reply->status != LE_OK)
		return;
	proclaim(core, entry, cmd, now);
	reply->wrote = true;
}

void
le_apply_set_permits(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	LeLock *lock = le_core_find_lock(core, cmd->kind, cmd->name);

	reply->status = LE_NOT_HELD;
	if (lock == NULL || (lock->held == 0 && lock->waiting == 0))
		return;
	reply->status = LE_BAD_MODE;
	if (lock->permits == 0)
		return;
	reply->status = LE_OK;
	reply->permits = lock->permits;
	lock->permits = cmd->permits;

	/* slots are in the order of their numbers, the newest first */
	for (LeSlot *slot = lock->slots; slot != NULL; slot = slot->next)
	{
		if (le_slot_holder(slot) == NULL || (cmd->from != 0 && slot->number >= cmd->from))
			continue;
		if (le_core_is_full(core))
		{
			reply->next = (int64_t) slot->number + 1;
			break;
		}
		le_slot_dirty(core, slot);
		core->work++;
	}
	reply->wrote = true;
	le_lock_settle(core, lock, now);
}
