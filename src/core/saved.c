/*
 * core/saved.c
 *		Records the time left in the rows of leases: see core/life.h.
 */
#include "life.h"
#include "saved.h"
#include "state.h"
#include "view.h"

/* --- the row --- */

/* Records that the row is written in this life, so that core->unmarked does not count it. */
static void
mark(LeCore *core, LeSaved *saved)
{
	if (saved->life != core->life->number)
	{
		assert(core->unmarked > 0);
		core->unmarked--;
	}
	saved->life = core->life->number;
	saved->raised = false;
}

void
le_saved_set(LeCore *core, LeSaved *saved, LeTime left)
{
	mark(core, saved);
	saved->left = left;
}

void
le_saved_fix(LeCore *core, LeSaved *saved, LeTime left)
{
	if (!saved->raised)
		le_saved_set(core, saved, left);
}

void
le_saved_load(LeCore *core, LeSaved *saved, LeSaved as)
{
	assert(core->loading && saved->life == core->life->number && as.left >= 0);
	*saved = as;
	if (saved->life != core->life->number)
		core->unmarked++;
}

void
le_saved_forget(LeCore *core, LeSaved *saved)
{
	mark(core, saved);
}

LeSaved
le_core_saved(const LeCore *core, const LeSaved *saved, LeTime ttl)
{
	return saved->raised ? (LeSaved){.left = ttl, .life = core->life->number} : *saved;
}

uint32_t
le_core_unmarked(const LeCore *core)
{
	return core->unmarked;
}

/* --- renewals --- */

static bool
is_flushed(const LeCore *core, uint64_t lsn)
{
	return core->env.flushed == NULL || core->env.flushed(core->env.arg, lsn);
}

/*
 * Implements step 3 of core/life.h.  The row of a lease with a long TTL may contain a reduced time
 * left, so a renewal must restore the full TTL in it, too.  While a raise (LeSaved) is not flushed, no
 * other raise is written, because it would be identical.
 */
bool
le_saved_renew(LeCore *core, LeSaved *saved, LeTime ttl, bool dirty, uint64_t lsn)
{
	if (saved->raised && !dirty && is_flushed(core, lsn))
		le_saved_set(core, saved, ttl);
	if (saved->raised || (saved->life == core->life->number && saved->left >= ttl))
		return false;
	core->wanted_to_write |= core->unwritable;
	if (core->unwritable)
		return false;

	/* the last row may not be flushed, so a crash may leave an older one */
	if (dirty || !is_flushed(core, lsn))
		saved->left = 0;
	saved->raised = true;
	return true;
}

bool
le_core_wanted_to_write(LeCore *core)
{
	bool wanted = core->wanted_to_write;

	core->wanted_to_write = false;
	return wanted;
}

LeTime
le_crash_left(const LeCore *core, const LeSaved *saved)
{
	LeTime gone = 0;

	if (saved->life != core->life->number)
		gone = le_life_since(core->life, saved->life) + core->uptime + LE_LIFE_TICK;
	return saved->left > gone ? saved->left - gone : 0;
}

void
le_reply_validity(const LeCore *core, LeReply *reply, const LeSaved *saved, LeTime ttl)
{
	LeTime left = le_crash_left(core, saved);

	reply->valid_least = left < ttl ? left : ttl;
	reply->valid_for = saved->raised ? ttl : reply->valid_least;
	reply->raised = reply->valid_least < reply->valid_for;
}

LeTime
le_lease_evicted_left(const LeLease *lease, LeTime now)
{
	LeTime least = LE_NEVER;

	for (const LeLink *link = lease->entries.next; lease->evicted > 0 && link != &lease->entries;
		 link = link->next)
	{
		const LeEntry *entry = le_container(link, LeEntry, lease_link);

		if (entry->evicted && le_entry_time_left(entry, now) < least)
			least = le_entry_time_left(entry, now);
	}
	return least;
}

void
le_reply_lease_validity(const LeCore *core, LeReply *reply, const LeLease *lease, LeTime now)
{
	LeTime most = le_lease_evicted_left(lease, now);

	le_reply_validity(core, reply, &lease->saved, lease->ttl);
	reply->valid_lease = reply->valid_for;
	if (reply->valid_least > most)
		reply->valid_least = most;
	if (reply->valid_for > most)
		reply->valid_for = most;
	reply->raised = reply->valid_least < reply->valid_for;
}

bool
le_extend(LeCore *core, LeTime ttl, LeTime now, LeTime *own_ttl, LeTime *deadline, LeSaved *saved)
{
	bool longer = ttl > *own_ttl;

	if (longer)
		*own_ttl = ttl;
	if (le_add(now, ttl) > *deadline)
		*deadline = le_add(now, ttl);

	/* the row of a lease with a short TTL always contains the full TTL */
	if (*own_ttl <= LE_SAVE_INTERVAL || *deadline - now >= *own_ttl)
		saved->raised = true;
	else
		le_saved_set(core, saved, *deadline - now);
	return longer;
}
