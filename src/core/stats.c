/*
 * core/stats.c
 *		Counts waits, holds and terms that have ended, by duration, and returns the
 *		numbers of current holders and waiters.
 */
#include "state.h"
#include "stats.h"

const LeTime le_duration_bounds[LE_DURATION_BOUNDS] = {
	100,
	300,
	1 * LE_MS,
	3 * LE_MS,
	10 * LE_MS,
	30 * LE_MS,
	100 * LE_MS,
	300 * LE_MS,
	1 * LE_SECOND,
	3 * LE_SECOND,
	10 * LE_SECOND,
	30 * LE_SECOND,
	60 * LE_SECOND,
	300 * LE_SECOND,
	1800 * LE_SECOND,
	3600 * LE_SECOND,
	21600 * LE_SECOND,
	86400 * LE_SECOND,
};

/*
 * Counts a duration.  Does nothing during a load, because the previous core may have counted the
 * ends that occur in the load.  A duration may be slightly negative after a long load: see
 * le_pause_mended().
 */
static void
count(LeCore *core, LeDurationType type, LeTime length)
{
	LeDurations *durations = &core->stats.durations[type];
	int bucket = 0;

	if (core->loading)
		return;
	if (length < 0)
		length = 0;
	while (bucket < LE_DURATION_BOUNDS && length > le_duration_bounds[bucket])
		bucket++;
	assert(bucket <= LE_DURATION_BOUNDS);
	durations->n[bucket]++;
	durations->count++;
	durations->sum += length;
}

void
le_count_wait(LeCore *core, const LeEntry *entry, bool granted, LeTime now)
{
	assert(entry->state == LE_STATE_QUEUED);
	if (entry->lock->kind == LE_KIND_LOCK)
		count(core, granted ? LE_DURATION_WAIT : LE_DURATION_FRUITLESS_WAIT, now - entry->waiter->since);
}

void
le_count_hold(LeCore *core, const LeEntry *entry, LeTime now)
{
	assert(entry->state == LE_STATE_HELD);
	count(core, entry->lock->kind == LE_KIND_LOCK ? LE_DURATION_HOLD : LE_DURATION_TERM,
		  now - entry->acquired_at);
}

uint64_t
le_core_held(const LeCore *core)
{
	return core->hashes[LE_HASH_TOKENS].count - core->queued;
}

uint64_t
le_core_queued(const LeCore *core)
{
	return core->queued;
}

LeTime
le_core_oldest_wait(const LeCore *core)
{
	if (le_link_empty(&core->waits))
		return LE_NEVER;
	return le_container(core->waits.next, LeWaiter, waits_link)->since;
}

const LeStats *
le_core_stats(const LeCore *core)
{
	return &core->stats;
}
