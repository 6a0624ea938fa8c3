/*
 * shared/flush_delay.c
 *		Group commit: delays a flush, so that more sessions share it, see shared/flush_delay.h.
 */
#include "postgres.h"

#include "shared/flush_delay.h"
#include "shared/shmem.h"
#include "shared/sleep.h"

/* Upper limit in microseconds of the duration of a flush; a longer flush counts as this long. */
#define LONGEST_FLUSH (10 * LE_MS)
/* Maximum number of flushes without a delay after a useless delay (see shared/flush_delay.h). */
#define LONGEST_BACKOFF 63

bool
le_flush_group_is_there(void)
{
	LeFlush *flush = &le_shared->flush;

	return pg_atomic_read_u32(&flush->waiting) >= pg_atomic_read_u32(&flush->expected);
}

void
le_flush_delay(uint32 me)
{
	LeFlush *flush = &le_shared->flush;
	uint32 took_us = pg_atomic_read_u32(&flush->took_us), undelayed = pg_atomic_read_u32(&flush->undelayed);
	uint32 backoff = pg_atomic_read_u32(&flush->backoff);
	LeTime now, end_at;

	/* 1. return if all expected sessions wait already, or if there is no time left for a delay */
	if (le_flush_group_is_there())
		return;
	now = le_clock();
	end_at =
		Min(now + took_us / LE_FLUSH_DELAY_PART, (LeTime) pg_atomic_read_u64(&flush->ended_at) + took_us);
	if (end_at <= now)
		return;
	Assert(end_at - now <= (LeTime) took_us && took_us <= LONGEST_FLUSH);

	/* 2. skip this delay if earlier delays were useless */
	if (undelayed > 0)
	{
		pg_atomic_write_u32(&flush->undelayed, undelayed - 1);
		return;
	}

	/* 3. wait; the manager wakes up this process when the group is complete */
	pg_atomic_exchange_u32(&flush->delaying, me);
	for (; now < end_at; now = le_clock())
	{
		le_sleep_reset();
		if (le_flush_group_is_there())
			break;
		le_sleep(end_at - now);
	}
	pg_atomic_write_u32(&flush->delaying, 0);

	/* 4. record whether the delay was useless */
	backoff = le_flush_group_is_there() ? 0 : Min(backoff * 2 + 1, LONGEST_BACKOFF);
	pg_atomic_write_u32(&flush->backoff, backoff);
	pg_atomic_write_u32(&flush->undelayed, backoff);
}

void
le_flush_learn(LeTime took_us, const uint32 *procs, int n)
{
	LeFlush *flush = &le_shared->flush;
	uint32 round = pg_atomic_fetch_add_u32(&flush->rounds, 1);
	uint32 smoothed_us = pg_atomic_read_u32(&flush->took_us), in_both = 0;
	uint32 last = pg_atomic_read_u32(&flush->last_group), in_either;

	Assert(took_us >= 0 && n >= 0 && n <= le_shared->max_sessions);
	for (int i = 0; i < n; i++)
	{
		LeProcess *process = &le_shared->processes[procs[i]];

		in_both += process->flush_round == round;
		process->flush_round = round + 1;
	}
	in_either = last + n - in_both;
	Assert(in_both <= (uint32) n && in_either <= last + n);
	pg_atomic_write_u32(&flush->expected, in_either);
	pg_atomic_write_u32(&flush->last_group, n);
	pg_atomic_write_u64(&flush->ended_at, (uint64) le_clock());
	smoothed_us = (uint32) ((smoothed_us * 7 + Min(took_us, LONGEST_FLUSH)) / 8);
	Assert(smoothed_us <= LONGEST_FLUSH);
	pg_atomic_write_u32(&flush->took_us, smoothed_us);
}
