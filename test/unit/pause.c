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

/* It does not run for so long; returns by how much deadlines move. */
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
	is_int(core_time(), LE_SECOND, "it counts");
	is_int(stop_for(5 * LE_SECOND), 5 * LE_SECOND, "more is one");
	is_int(core_time(), LE_SECOND, "of which nothing counts");
}

static void
test_since(void)
{
	start();
	now += 5 * LE_SECOND;
	is_int(le_pause_since(&pause, 0, LE_NEVER, now), START, "a busy process was last seen when it looked");
	is_int(le_pause_since(&pause, START + LE_SECOND, LE_NEVER, now), START + LE_SECOND,
		   "one that slept, when it wanted to wake up");
	is_int(le_pause_since(&pause, now + LE_SECOND, LE_NEVER, now), now, "which may be later than it did");
	is_int(le_pause_since(&pause, now + LE_SECOND, START + 2 * LE_SECOND, now), START + 2 * LE_SECOND,
		   "or when a request rang, and nobody looked");
	is_int(le_pause_since(&pause, START + LE_SECOND, START + 2 * LE_SECOND, now), START + LE_SECOND,
		   "whichever was first");
	is_int(le_pause_since(&pause, now, START - LE_SECOND, now), now,
		   "a ring before the last look says nothing");
}

/* A disk that stalls for each flush: a dead holder's lease has to end some time. */
static void
test_in_row(void)
{
	start();
	for (int i = 0; i < LE_PAUSES_IN_ROW; i++)
	{
		is_int(stop_for(3 * LE_SECOND), 3 * LE_SECOND, "one of the first pauses in a row");
		run_for(100 * LE_MS);
	}
	is_int(stop_for(3 * LE_SECOND), 2 * LE_SECOND, "a second of each further one counts");
	run_for(100 * LE_MS);
	is_int(stop_for(3 * LE_SECOND), 2 * LE_SECOND, "of each");
	run_for(LE_PAUSE);
	is_int(stop_for(3 * LE_SECOND), 3 * LE_SECOND, "until it has run for a second");
	is_int(core_time(), LE_PAUSES_IN_ROW * 100 * LE_MS + 2 * LE_SECOND + 100 * LE_MS + LE_PAUSE,
		   "what counted is what passed for leases");
}

static void
test_broken(void)
{
	start();
	run_for(LE_SECOND);
	le_pause_broken(&pause);
	run_for(500 * LE_MS);
	is_int(le_pause_mended(&pause, now), 0, "a batch that fails and is read back costs time that counts");
	is_int(core_time(), 1500 * LE_MS, "from when it began");

	le_pause_broken(&pause);
	run_for(100 * LE_MS);
	le_pause_refused(&pause);
	run_for(300 * LE_MS);
	is_int(le_pause_mended(&pause, now), 400 * LE_MS, "no time counts in which requests were refused");
	is_int(core_time(), 1500 * LE_MS, "however short");

	run_for(100 * LE_MS);
	le_pause_broken(&pause);
	le_pause_broken(&pause);
	is_int(stop_for(4 * LE_SECOND), 0, "a stop meanwhile");
	le_pause_broken(&pause);
	now += LE_SECOND;
	is_int(le_pause_mended(&pause, now), 5 * LE_SECOND, "is not counted twice");
	is_int(core_time(), 1600 * LE_MS, "nor is the way back");
	is_int(le_pause_seen(&pause, pause.seen_at, now), 0, "the next batch sees nothing of it");
	is_int(le_pause_mended(&pause, now + LE_SECOND), 0, "what was not broken is not mended");

	start();
	le_pause_broken(&pause);
	le_pause_refused(&pause);
	run_for(100 * LE_MS);
	is_int(le_pause_mended(&pause, now), 100 * LE_MS, "requests were refused for a moment");
	le_pause_broken(&pause);
	run_for(200 * LE_MS);
	is_int(le_pause_mended(&pause, now), 0, "the next time they are not: that counts");
	le_pause_broken(&pause);
	run_for(LE_PAUSE);
	is_int(le_pause_mended(&pause, now), 0, "for as long as a pause may be");
	le_pause_broken(&pause);
	run_for(LE_PAUSE);
	now++;
	is_int(le_pause_mended(&pause, now), LE_PAUSE + 1, "and no longer");
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
