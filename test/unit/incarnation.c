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
	is_int(next((LeStart){.time = 5000 * MINUTE + 7}), 5000, "the first one: the minutes");
	is_int(next((LeStart){.stored = 5000, .time = 9000 * MINUTE}), 9000, "each start: the minutes");
	is_int(next((LeStart){.stored = 9000, .time = 9000 * MINUTE}), 9001, "twice in a minute: one more");
	is_int(next((LeStart){.stored = 9000, .time = 100 * MINUTE}), 9001, "whatever the clock says");
	is_int(next((LeStart){.stored = 9000, .time = -100 * MINUTE}), 9001,
		   "or one from before the first minute");
	is_int(next((LeStart){.time = -1}), 1, "which can begin with it as well");
	is_int(next((LeStart){.stored = 9000, .time = 10 * MINUTE, .timelines = 1}), 9000 + 10 + 128,
		   "the clock's minutes are counted from 0, also past another history");
	is_int(next((LeStart){.stored = 5, .stored_at = 8990 * MINUTE, .time = 9000 * MINUTE, .timelines = 1}),
		   9000 + 128, "where what was stored is behind the clock, from the clock");
	is_int(next((LeStart){.stored = 5000, .floor = 7001, .time = 100 * MINUTE}), 7001,
		   "restored from a dump: at least what that had");
}

/* Within one incarnation the later start begins further on. */
static void
test_places(void)
{
	LeTime minute = 9000 * MINUTE;
	int64_t none = INT64_C(9000) << LE_COUNTER_BITS, last = 0;
	bool upward = true;

	is_int(le_first_revision(9000, -1), none + 1, "before the first minute it begins with 1");
	for (LeTime time = 0; time < MINUTE; time += LE_SECOND)
	{
		int64_t first = le_first_revision(9000, time);

		upward = upward && first - last > 10000;
		last = first;
	}
	ok(upward, "far ahead of the clock it begins further on each second of a minute");
	for (LeTime time = minute - 160 * MINUTE + LE_SECOND; time < minute + MINUTE; time += LE_SECOND)
	{
		int64_t first = le_first_revision(9000, time);

		upward = upward && first - last > 10000;
		last = first;
	}
	ok(upward, "each second it begins beyond what is handed out in a second");
	ok(last < none + LE_COUNTER_MAX / 8 * 7, "and an eighth of the counter is left");
	is_int(le_first_revision(9000, minute + 100 * MINUTE) >> LE_COUNTER_BITS, 9000, "in any case");
}

/* A copy of the files is put back: what its server has done since is not stored. */
static void
test_copy_put_back(void)
{
	LeTime copied = 9000 * MINUTE;
	LeStart discarded = {.stored = 9000, .stored_at = copied, .time = copied + MINUTE};
	LeStart again = discarded;

	again.time += 5 * MINUTE;
	ok(next(again) > next(discarded), "a copy that is put back minutes later is ahead");
	again.time = discarded.time + LE_SECOND;
	is_int(next(again), next(discarded), "within a minute it has the same incarnation");
	ok(le_first_revision(next(again), again.time) > le_first_revision(next(discarded), discarded.time),
	   "and begins beyond the other one");

	/* ahead of the clock, for it was taken twice in a minute */
	discarded.stored = 9002;
	discarded.time = copied + MINUTE - LE_SECOND;
	again = discarded;
	again.time += 2 * LE_SECOND;
	is_int(next(again), next(discarded), "also in the next minute, where it is ahead of the clock");
	ok(le_first_revision(next(again), again.time) > le_first_revision(next(discarded), discarded.time),
	   "and begins beyond the other one");
}

/* By how many minutes exactly, for every part that counts. */
static void
test_steps(void)
{
	LeStart start = {.stored = 9500, .stored_at = 9000 * MINUTE, .timelines = 1};

	for (int minutes = -1; minutes < 4; minutes++)
	{
		start.time = (9000 + minutes) * MINUTE;
		is_int(next(start), 9500 + (minutes > 0 ? minutes : 0) + 128,
			   "ahead of the clock each minute counts");
	}
	start.time = 9001 * MINUTE - 1;
	is_int(next(start), 9500 + 128, "that is over");
	for (uint32_t timelines = 1; timelines < 4; timelines++)
	{
		start.timelines = timelines;
		is_int(next(start), 9500 + 128 * timelines, "and each timeline, in the same way");
	}
	for (uint32_t timelines = 999; timelines < 1002; timelines++)
	{
		start.timelines = timelines;
		is_int(next(start), 9500 + 128 * (timelines < 1000 ? timelines : 1000), "up to a thousand");
	}
	start = (LeStart){.stored = 1000000, .timelines = 1};
	for (int minutes = 65535; minutes < 65538; minutes++)
	{
		start.time = minutes * MINUTE;
		is_int(next(start), 1000000 + (minutes < 65536 ? minutes : 65536) + 128, "no more than 45 days");
	}
	start = (LeStart){.stored = 10, .stored_at = 9000 * MINUTE, .time = 9000 * MINUTE, .floor = 9130};
	for (start.timelines = 0; start.timelines < 3; start.timelines++)
		is_int(next(start), start.timelines < 2 ? 9130 : 9256, "the floor counts where it is higher");
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

	ok(is_far_enough(start), "promoted: past what the other one may have counted");
	start.time = 20000 * MINUTE;
	ok(is_far_enough(start), "by the clock as well");

	/* the old primary starts anew, which nobody learns, and is replaced in the same minute */
	start = lost;
	start.timelines = 1;
	promoted = next(start);
	ok(promoted > next(lost) + 60, "past a start in this very minute that was lost");
	again = (LeStart){
		.stored = promoted, .stored_at = start.time, .time = start.time + LE_SECOND, .timelines = 1};
	ok(next(again) > promoted + 60, "and once more");
}

/* Two recoveries to one point in time: the second discards what the first has done. */
static void
test_recovered_twice(void)
{
	LeTime stored_at = 5000 * MINUTE;

	for (int ahead = 0; ahead < 3; ahead++)
	{
		/* of a server that has run for long; was promoted just before; is far ahead of the clock */
		int64_t stored = ahead == 0 ? 5000 : ahead == 1 ? 5128 : 100000;
		LeStart first = {
			.stored = stored, .stored_at = stored_at, .time = stored_at + 90 * MINUTE, .timelines = 1};
		LeStart second = first;
		int64_t used = next(first) + 60;

		second.timelines = 2;
		ok(next(second) > used,
		   "the second one knows of the first one's timeline: it is beyond all its starts");
		second.timelines = 1;
		for (int minutes = 1; minutes < 200; minutes++)
		{
			second.time = first.time + minutes * MINUTE;
			if (next(second) <= next(first) + minutes - 1)
				ok(false, "a later one is ahead by the time between them");
		}
		ok(true, "one that does not know is ahead by the time between them");
		second.time = first.time + LE_SECOND;
		ok(le_first_revision(next(second), second.time) > le_first_revision(next(first), first.time),
		   "if that is not a minute, by the second");
	}
}

/* A failover, another one, and a recovery to before both. */
static void
test_before_failover(void)
{
	LeStart standby = {.stored = 5000, .stored_at = 5000 * MINUTE, .time = 5010 * MINUTE, .timelines = 1};
	LeStart recovered = standby;
	int64_t used = 0;

	for (int i = 0; i < 2; i++)
	{
		used = next(standby) + 30; /* starts since */
		standby.stored = used;
		standby.stored_at = standby.time;
		standby.time += 2 * MINUTE;
	}
	recovered.time = standby.time;
	recovered.timelines = 3;
	ok(next(recovered) > used, "a recovery to before two failovers is beyond both");
	recovered.timelines = 100000;
	ok(next(recovered) < 5010 + 200000, "a timeline's number that is out of all proportion uses up little");
}

/* Its clock was wrong when the incarnation was stored, or is. */
static void
test_wrong_clock(void)
{
	LeStart start = {.stored = 900000, .stored_at = 0, .time = 900100 * MINUTE, .timelines = 1};

	ok(next(start) < 900100 + 70000, "a clock that was wrong once uses up little");
	start = (LeStart){.stored = 900000, .stored_at = 900000 * MINUTE, .time = 100, .timelines = 1};
	ok(is_far_enough(start) && next(start) < 900000 + 200, "a clock that is behind is no step back");
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
