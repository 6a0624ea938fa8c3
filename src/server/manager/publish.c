/*
 * manager/publish.c
 *		Publishes the figures that views read without asking the manager, after
 *		each batch.
 */
#include "postgres.h"

#include "manager/memory.h"
#include "manager/publish.h"
#include "manager/state.h"

/* Adds the growth of one counter to shared memory, if it has grown.  Most batches change few counters. */
static void
publish(pg_atomic_uint64 *counter, int64_t now, int64_t *seen)
{
	if (now == *seen)
		return;
	Assert(now > *seen);
	pg_atomic_fetch_add_u64(counter, now - *seen);
	*seen = now;
}

#define PUBLISH(counter) publish(&le_mgr.db->counters.counter, now->counter, &le_mgr.seen.counter)

/*
 * Adds the growth of one histogram to shared memory.  Most batches change at most one bucket of one
 * histogram.
 */
static void
publish_durations(LeDurationCounters *counters, const LeDurations *now, LeDurations *seen)
{
	int64 more = now->count - seen->count;

	if (more == 0)
		return;
	Assert(more > 0 && now->sum >= seen->sum);
	for (int i = 0; i <= LE_DURATION_BOUNDS; i++)
	{
		Assert(now->n[i] >= seen->n[i]);
		more -= now->n[i] - seen->n[i];
		if (now->n[i] != seen->n[i])
			pg_atomic_fetch_add_u64(&counters->n[i], now->n[i] - seen->n[i]);
	}
	Assert(more == 0); /* each duration is in one bucket */
	pg_atomic_fetch_add_u64(&counters->sum, now->sum - seen->sum);
	*seen = *now;
}

/* Publishes the wall-clock time at which the oldest wait began; 0 = no entry waits. */
static void
publish_oldest_wait(void)
{
	LeTime oldest = le_core_oldest_wait(le_mgr.core);
	LeTime now;

	if (oldest == LE_NEVER)
	{
		pg_atomic_write_u64(&le_mgr.db->oldest_wait, 0);
		return;
	}
	now = core_now();
	Assert(oldest <= now && le_core_queued(le_mgr.core) > 0);
	pg_atomic_write_u64(&le_mgr.db->oldest_wait, (uint64) (le_wall(now) + oldest - now));
}

void
le_publish(void)
{
	const LeStats *now = le_core_stats(le_mgr.core);

	PUBLISH(grants);
	PUBLISH(waits);
	PUBLISH(handoffs);
	PUBLISH(expiries);
	PUBLISH(timeouts);
	PUBLISH(undone);
	PUBLISH(elected);
	for (int i = 0; i < LE_DURATION_TYPES; i++)
		publish_durations(&le_mgr.db->counters.durations[i], &now->durations[i], &le_mgr.seen.durations[i]);
	if ((int64) pg_atomic_read_u64(&le_shared->incarnation) < le_mgr.meta.incarnation)
		pg_atomic_write_u64(&le_shared->incarnation, le_mgr.meta.incarnation);
	pg_atomic_write_u64(&le_mgr.db->revision, le_core_next_revision(le_mgr.core));
	pg_atomic_write_u64(&le_mgr.db->locks, le_core_lock_count(le_mgr.core));
	pg_atomic_write_u64(&le_mgr.db->held, le_core_held(le_mgr.core));
	pg_atomic_write_u64(&le_mgr.db->queued, le_core_queued(le_mgr.core));
	publish_oldest_wait();
	pg_atomic_write_u64(&le_mgr.db->memory, le_memory_used());
}
