/* How much of the elapsed time counts against leases. */
/* Promises: L */
#include "core/pause.h"
#include "tap.h"

#define START (1000 * LE_SECOND)

static LePause pause;
static LeTime now;

static void
start(void)
{
	now = START;
	le_pause_init(&pause, now);
}

/* Simulates a stop of this length; returns by how much deadlines move. */
static LeTime
stop_for(LeTime time)
{
	LeTime since = now;

	now += time;
	return le_pause_seen(&pause, since, now);
}

static void
run_for(LeTime time)
{
	now += time;
	le_pause_seen(&pause, now, now);
}

static LeTime
core_time(void)
{
	return le_pause_time(&pause, now) - START;
}

static void
test_stopped(void)
{
	start();
	is_int(stop_for(LE_SECOND), 0, "a second is no pause");
	is_int(core_time(), LE_SECOND, "a second without a run counts");
	is_int(stop_for(5 * LE_SECOND), 5 * LE_SECOND, "more than a second is a pause");
	is_int(core_time(), LE_SECOND, "a pause does not count");
}

static void
test_since(void)
{
	start();
	now += 5 * LE_SECOND;
	is_int(le_pause_since(&pause, 0, LE_NEVER, now), START, "a busy process was last seen at its last check");
	is_int(le_pause_since(&pause, START + LE_SECOND, LE_NEVER, now), START + LE_SECOND,
		   "a sleeping process was last seen when it should have woken up");
	is_int(le_pause_since(&pause, now + LE_SECOND, LE_NEVER, now), now,
		   "a process that woke up early was last seen now");
	is_int(le_pause_since(&pause, now + LE_SECOND, START + 2 * LE_SECOND, now), START + 2 * LE_SECOND,
		   "a sleeping process was last seen when a request rang");
	is_int(le_pause_since(&pause, START + LE_SECOND, START + 2 * LE_SECOND, now), START + LE_SECOND,
		   "the earlier of ring and wake-up counts");
	is_int(le_pause_since(&pause, now, START - LE_SECOND, now), now,
		   "a ring before the last check does not count");
}

/* A disk stalls for each flush: the lease of a dead holder must nevertheless end at some time. */
static void
test_in_row(void)
{
	start();
	for (int i = 0; i < LE_PAUSES_IN_ROW; i++)
	{
		is_int(stop_for(3 * LE_SECOND), 3 * LE_SECOND, "the first pauses in a row do not count");
		run_for(100 * LE_MS);
	}
	is_int(stop_for(3 * LE_SECOND), 2 * LE_SECOND, "a second of a further pause in a row counts");
	run_for(100 * LE_MS);
	is_int(stop_for(3 * LE_SECOND), 2 * LE_SECOND, "a second of each further pause in a row counts");
	run_for(LE_PAUSE);
	is_int(stop_for(3 * LE_SECOND), 3 * LE_SECOND, "a pause after a second of run time does not count");
	is_int(core_time(), LE_PAUSES_IN_ROW * 100 * LE_MS + 2 * LE_SECOND + 100 * LE_MS + LE_PAUSE,
		   "the counted time is the time that has passed for leases");
}

static void
test_broken(void)
{
	start();
	run_for(LE_SECOND);
	le_pause_broken(&pause);
	run_for(500 * LE_MS);
	is_int(le_pause_mended(&pause, now), 0, "the time of a failed batch and its reload counts");
	is_int(core_time(), 1500 * LE_MS, "the time of a failed batch counts from its begin");

	le_pause_broken(&pause);
	run_for(100 * LE_MS);
	le_pause_refused(&pause);
	run_for(300 * LE_MS);
	is_int(le_pause_mended(&pause, now), 400 * LE_MS, "time in which requests were rejected does not count");
	is_int(core_time(), 1500 * LE_MS, "a short time in which requests were rejected does not count");

	run_for(100 * LE_MS);
	le_pause_broken(&pause);
	le_pause_broken(&pause);
	is_int(stop_for(4 * LE_SECOND), 0,
		   "a stop while requests are rejected does not move deadlines by itself");
	le_pause_broken(&pause);
	now += LE_SECOND;
	is_int(le_pause_mended(&pause, now), 5 * LE_SECOND, "a stop while requests are rejected is counted once");
	is_int(core_time(), 1600 * LE_MS, "the time of the reload does not count");
	is_int(le_pause_seen(&pause, pause.seen_at, now), 0, "the next batch sees no pause");
	is_int(le_pause_mended(&pause, now + LE_SECOND), 0, "mending without a failure moves no deadline");

	start();
	le_pause_broken(&pause);
	le_pause_refused(&pause);
	run_for(100 * LE_MS);
	is_int(le_pause_mended(&pause, now), 100 * LE_MS,
		   "a short time in which requests were rejected moves deadlines");
	le_pause_broken(&pause);
	run_for(200 * LE_MS);
	is_int(le_pause_mended(&pause, now), 0, "a later failure without rejected requests counts");
	le_pause_broken(&pause);
	run_for(LE_PAUSE);
	is_int(le_pause_mended(&pause, now), 0, "a failure up to the length of a pause counts");
	le_pause_broken(&pause);
	run_for(LE_PAUSE);
	now++;
	is_int(le_pause_mended(&pause, now), LE_PAUSE + 1, "a failure longer than a pause does not count");
}

int
main(void)
{
	test_stopped();
	test_since();
	test_in_row();
	test_broken();
	return done_testing();
}
