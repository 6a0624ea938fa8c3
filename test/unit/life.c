/* The recorded run times of managers, and their effect on leases. */
/* Promises: L */
#include <string.h>

#include "core/life.h"
#include "tap.h"

static LeLife life;

/* Simulates a manager whose recorded run time is this.  Returns its number. */
static uint32_t
live(LeTime recorded)
{
	le_life_begin(&life);
	life.uptime = (uint32_t) (recorded / LE_LIFE_TICK);
	return life.number;
}

static void
test_first(void)
{
	memset(&life, 0, sizeof(life));
	is_int(live(0), 0, "the first life has number 0");
	is_int(le_life_since(&life, 0), 0, "no recorded time has passed for rows of the first life");
	is_int(live(0), 1, "a life of which nothing was recorded has a number of its own");
	is_int(le_life_since(&life, 0), 0, "no recorded time has passed after a life without a record");
}

static void
test_sum(void)
{
	uint32_t first, second, third;

	memset(&life, 0, sizeof(life));
	first = live(3 * LE_SECOND);
	second = live(2 * LE_SECOND);
	is_int(le_life_since(&life, first), 0, "the time of the running life is not counted");
	third = live(5 * LE_SECOND);
	is_int(le_life_since(&life, first), 2 * LE_SECOND,
		   "rows of the first life: the second life has run since");
	is_int(le_life_since(&life, second), 0, "rows of the second life: no life has ended since");
	(void) live(0);
	is_int(le_life_since(&life, first), 7 * LE_SECOND, "rows of the first life: two lives have run since");
	is_int(le_life_since(&life, second), 5 * LE_SECOND, "rows of the second life: one life has run since");
	is_int(le_life_since(&life, third), 0, "rows of the third life: no recorded time");
}

/* Lives that are too short are not counted, whatever their number, and need no room. */
static void
test_too_short(void)
{
	uint32_t row;

	memset(&life, 0, sizeof(life));
	(void) live(0);
	row = live(LE_SECOND);
	for (int i = 0; i < 2 * LE_LIFE_STARTS; i++)
		(void) live(LE_LIFE_LEAST - LE_LIFE_TICK);
	(void) live(0);
	is_int(le_life_since(&life, row), 0, "lives that are too short are not counted");
	is_int(life.nstarts, 2, "lives that are too short need no room");
	(void) live(LE_LIFE_LEAST);
	(void) live(0);
	is_int(le_life_since(&life, row), LE_LIFE_LEAST, "a life of the least length is counted");
}

static void
test_full(void)
{
	uint32_t row, later;

	memset(&life, 0, sizeof(life));
	row = live(LE_SECOND);
	for (int i = 0; i < LE_LIFE_STARTS - 2; i++)
		(void) live(LE_SECOND);
	later = live(LE_SECOND);
	is_int(life.nstarts, LE_LIFE_STARTS, "all starts are kept until the array is full");
	is_int(le_life_since(&life, row), (LE_LIFE_STARTS - 2) * LE_SECOND, "all kept lives are counted");
	for (int i = 0; i < 10; i++)
		(void) live(LE_SECOND);
	is_int(life.nstarts, LE_LIFE_STARTS, "the oldest starts are dropped when the array is full");
	is_int(le_life_since(&life, row), (LE_LIFE_STARTS - 1) * LE_SECOND,
		   "for a row older than the kept starts, all kept lives are counted");
	is_int(le_life_since(&life, later), 9 * LE_SECOND, "for a newer row, all later lives are counted");
	ok(le_life_since(&life, row) >= LE_SAVE_INTERVAL,
	   "the kept lives are longer than any remaining time that is not saved again");
}

/* The numbers of lives overflow, after 49 days of recorded time. */
static void
test_round(void)
{
	uint32_t row;

	memset(&life, 0, sizeof(life));
	(void) live(0);
	life.number = UINT32_MAX - 2000;
	life.starts[0] = life.number;
	row = live(LE_SECOND);
	(void) live(2 * LE_SECOND);
	(void) live(0);
	ok(life.number < row, "the number has overflowed");
	is_int(le_life_since(&life, row), 2 * LE_SECOND, "the lives since are counted across the overflow");
	is_int(le_life_since(&life, life.number), 0, "no time is counted for a row of the current life");
}

int
main(void)
{
	test_first();
	test_sum();
	test_too_short();
	test_full();
	test_round();
	return done_testing();
}
