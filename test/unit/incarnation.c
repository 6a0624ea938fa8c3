/* The first token after a start: tokens grow whatever was lost or restored. */
/* Promises: T */
#include "fixture.h"

#define MINUTE (60 * LE_SECOND)

static int64_t
next(LeStart start)
{
	return le_next_incarnation(&start);
}

static void
test_one_server(void)
{
	is_int(next((LeStart){.time = 5000 * MINUTE + 7}), 5000,
		   "the first incarnation is the minutes of the clock");
	is_int(next((LeStart){.stored = 5000, .time = 9000 * MINUTE}), 9000,
		   "a later incarnation is the minutes of the clock");
	is_int(next((LeStart){.stored = 9000, .time = 9000 * MINUTE}), 9001,
		   "a second start in a minute is one more");
	is_int(next((LeStart){.stored = 9000, .time = 100 * MINUTE}), 9001,
		   "a start with a clock that is behind is one more");
	is_int(next((LeStart){.stored = 9000, .time = -100 * MINUTE}), 9001,
		   "a start with a clock before the first minute is one more");
	is_int(next((LeStart){.time = -1}), 1, "the first start with a clock before the first minute is 1");
	is_int(next((LeStart){.stored = 9000, .time = 10 * MINUTE, .timelines = 1}), 9000 + 10 + 128,
		   "after a change of the timeline, the minutes of the clock and 128 are added");
	is_int(next((LeStart){.stored = 5, .stored_at = 8990 * MINUTE, .time = 9000 * MINUTE, .timelines = 1}),
		   9000 + 128,
		   "after a change of the timeline, 128 is added to the minutes if the stored value is behind them");
	is_int(next((LeStart){.stored = 5000, .floor = 7001, .time = 100 * MINUTE}), 7001,
		   "a start after a restored dump is at least its floor");
}

/* Within one incarnation, a later start begins with a higher counter. */
static void
test_places(void)
{
	LeTime minute = 9000 * MINUTE;
	int64_t none = INT64_C(9000) << LE_COUNTER_BITS, last = 0;
	bool upward = true;

	is_int(le_first_revision(9000, -1), none + 1, "before the first minute, the counter begins with 1");
	for (LeTime time = 0; time < MINUTE; time += LE_SECOND)
	{
		int64_t first = le_first_revision(9000, time);

		upward = upward && first - last > 10000;
		last = first;
	}
	ok(upward, "far ahead of the clock, the counter begins higher in each second of a minute");
	for (LeTime time = minute - 160 * MINUTE + LE_SECOND; time < minute + MINUTE; time += LE_SECOND)
	{
		int64_t first = le_first_revision(9000, time);

		upward = upward && first - last > 10000;
		last = first;
	}
	ok(upward, "in each second, the counter begins above all revisions of the previous second");
	ok(last < none + LE_COUNTER_MAX / 8 * 7, "at least an eighth of the counter is left");
	is_int(le_first_revision(9000, minute + 100 * MINUTE) >> LE_COUNTER_BITS, 9000,
		   "the revision always has the given incarnation");
}

/* A copy of the files is restored: what its server has done since the copy is not stored. */
static void
test_copy_put_back(void)
{
	LeTime copied = 9000 * MINUTE;
	LeStart discarded = {.stored = 9000, .stored_at = copied, .time = copied + MINUTE};
	LeStart again = discarded;

	again.time += 5 * MINUTE;
	ok(next(again) > next(discarded), "a copy that is restored minutes later has a higher incarnation");
	again.time = discarded.time + LE_SECOND;
	is_int(next(again), next(discarded), "a copy that is restored within a minute has the same incarnation");
	ok(le_first_revision(next(again), again.time) > le_first_revision(next(discarded), discarded.time),
	   "a copy that is restored within a minute begins with a higher counter");

	/* ahead of the clock, because it was copied twice in a minute */
	discarded.stored = 9002;
	discarded.time = copied + MINUTE - LE_SECOND;
	again = discarded;
	again.time += 2 * LE_SECOND;
	is_int(next(again), next(discarded),
		   "a copy that is ahead of the clock has the same incarnation in the next minute");
	ok(le_first_revision(next(again), again.time) > le_first_revision(next(discarded), discarded.time),
	   "a copy that is ahead of the clock begins with a higher counter");
}

/* Checks the exact number of minutes for every part of the sum. */
static void
test_steps(void)
{
	LeStart start = {.stored = 9500, .stored_at = 9000 * MINUTE, .timelines = 1};

	for (int minutes = -1; minutes < 4; minutes++)
	{
		start.time = (9000 + minutes) * MINUTE;
		is_int(next(start), 9500 + (minutes > 0 ? minutes : 0) + 128,
			   "ahead of the clock, each minute is added");
	}
	start.time = 9001 * MINUTE - 1;
	is_int(next(start), 9500 + 128, "only whole minutes are added");
	for (uint32_t timelines = 1; timelines < 4; timelines++)
	{
		start.timelines = timelines;
		is_int(next(start), 9500 + 128 * timelines, "each timeline is added");
	}
	for (uint32_t timelines = 999; timelines < 1002; timelines++)
	{
		start.timelines = timelines;
		is_int(next(start), 9500 + 128 * (timelines < 1000 ? timelines : 1000),
			   "at most 1000 timelines are added");
	}
	start = (LeStart){.stored = 1000000, .timelines = 1};
	for (int minutes = 65535; minutes < 65538; minutes++)
	{
		start.time = minutes * MINUTE;
		is_int(next(start), 1000000 + (minutes < 65536 ? minutes : 65536) + 128, "at most 45 days are added");
	}
	start = (LeStart){.stored = 10, .stored_at = 9000 * MINUTE, .time = 9000 * MINUTE, .floor = 9130};
	for (start.timelines = 0; start.timelines < 3; start.timelines++)
		is_int(next(start), start.timelines < 2 ? 9130 : 9256, "the floor counts if it is higher");
}

/* At least (max(stored, minutes) / 64 + 2) * 64. */
static bool
is_far_enough(LeStart start)
{
	int64_t known = start.time / MINUTE > start.stored ? start.time / MINUTE : start.stored;

	return next(start) >= (known / 64 + 2) * 64;
}

static void
test_promotion(void)
{
	LeStart start = {.stored = 9000, .time = 100 * MINUTE, .timelines = 1};
	LeStart lost = {.stored = 5000, .stored_at = 5000 * MINUTE, .time = 9000 * MINUTE};
	LeStart again;
	int64_t promoted;

	ok(is_far_enough(start),
	   "a promoted standby is above all incarnations that the old primary can have used");
	start.time = 20000 * MINUTE;
	ok(is_far_enough(start), "a promoted standby is above the minutes of the clock");

	/* The old primary restarts, which no standby learns, and is replaced in the same minute. */
	start = lost;
	start.timelines = 1;
	promoted = next(start);
	ok(promoted > next(lost) + 60, "a promoted standby is above a lost start of the same minute");
	again = (LeStart){
		.stored = promoted, .stored_at = start.time, .time = start.time + LE_SECOND, .timelines = 1};
	ok(next(again) > promoted + 60, "a second promotion is above a lost start of the same minute");
}

/* Two recoveries to the same point in time: the second one discards what the first one has done. */
static void
test_recovered_twice(void)
{
	LeTime stored_at = 5000 * MINUTE;

	for (int ahead = 0; ahead < 3; ahead++)
	{
		/*
		 * a server that has run for long; one that was promoted just before; one that is far ahead of the
		 * clock
		 */
		int64_t stored = ahead == 0 ? 5000 : ahead == 1 ? 5128 : 100000;
		LeStart first = {
			.stored = stored, .stored_at = stored_at, .time = stored_at + 90 * MINUTE, .timelines = 1};
		LeStart second = first;
		int64_t used = next(first) + 60;

		second.timelines = 2;
		ok(next(second) > used,
		   "a second recovery that knows the first one's timeline is above all its starts");
		second.timelines = 1;
		for (int minutes = 1; minutes < 200; minutes++)
		{
			second.time = first.time + minutes * MINUTE;
			if (next(second) <= next(first) + minutes - 1)
				ok(false, "a second recovery is ahead by the time between both");
		}
		ok(true,
		   "a second recovery that does not know the first one's timeline is ahead by the time between both");
		second.time = first.time + LE_SECOND;
		ok(le_first_revision(next(second), second.time) > le_first_revision(next(first), first.time),
		   "a second recovery within a minute begins with a higher counter");
	}
}

/* Two failovers, and a recovery to a time before both. */
static void
test_before_failover(void)
{
	LeStart standby = {.stored = 5000, .stored_at = 5000 * MINUTE, .time = 5010 * MINUTE, .timelines = 1};
	LeStart recovered = standby;
	int64_t used = 0;

	for (int i = 0; i < 2; i++)
	{
		used = next(standby) + 30; /* later starts */
		standby.stored = used;
		standby.stored_at = standby.time;
		standby.time += 2 * MINUTE;
	}
	recovered.time = standby.time;
	recovered.timelines = 3;
	ok(next(recovered) > used, "a recovery to a time before two failovers is above both");
	recovered.timelines = 100000;
	ok(next(recovered) < 5010 + 200000, "an absurd number of the timeline uses up few incarnations");
}

/* The clock was wrong when the incarnation was stored, or is wrong now. */
static void
test_wrong_clock(void)
{
	LeStart start = {.stored = 900000, .stored_at = 0, .time = 900100 * MINUTE, .timelines = 1};

	ok(next(start) < 900100 + 70000, "a clock that was wrong once uses up few incarnations");
	start = (LeStart){.stored = 900000, .stored_at = 900000 * MINUTE, .time = 100, .timelines = 1};
	ok(is_far_enough(start) && next(start) < 900000 + 200,
	   "a clock that is behind does not lower the incarnation");
}

int
main(void)
{
	test_one_server();
	test_places();
	test_copy_put_back();
	test_steps();
	test_promotion();
	test_recovered_twice();
	test_before_failover();
	test_wrong_clock();
	return done_testing();
}
