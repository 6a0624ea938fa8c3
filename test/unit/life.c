/* The recorded run times of managers, and their effect on leases. */
/* Promises: L */
#include <string.h>

#include "core/life.h"
#include "tap.h"

static LeLife life;

/* The next manager runs for so long, as far as that is recorded.  Returns its number. */
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
	is_int(live(0), 0, "the first life");
	is_int(le_life_since(&life, 0), 0, "takes nothing off its own rows");
	is_int(live(0), 1, "a life of which nothing was recorded has a number of its own");
	is_int(le_life_since(&life, 0), 0, "and the one after it takes nothing off");
}

static void
test_sum(void)
{
	uint32_t first, second, third;

	memset(&life, 0, sizeof(life));
	first = live(3 * LE_SECOND);
	second = live(2 * LE_SECOND);
	is_int(le_life_since(&life, first), 0, "the life that runs is for its uptime to count");
	third = live(5 * LE_SECOND);
	is_int(le_life_since(&life, first), 2 * LE_SECOND, "a row of the first life: the second has run since");
	is_int(le_life_since(&life, second), 0, "a row of the second: none has ended since");
	(void) live(0);
	is_int(le_life_since(&life, first), 7 * LE_SECOND, "a row of the first life: two have run since");
	is_int(le_life_since(&life, second), 5 * LE_SECOND, "of the second: one");
	is_int(le_life_since(&life, third), 0, "of the third: none");
}

/* Too short ones are not counted, however many there are, and keep no other out. */
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
	is_int(le_life_since(&life, row), 0, "lives that are too short take nothing off");
	is_int(life.nstarts, 2, "and need no room");
	(void) live(LE_LIFE_LEAST);
	(void) live(0);
	is_int(le_life_since(&life, row), LE_LIFE_LEAST, "one that is not does");
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
	is_int(life.nstarts, LE_LIFE_STARTS, "as many starts as there is room for");
	is_int(le_life_since(&life, row), (LE_LIFE_STARTS - 2) * LE_SECOND, "all of them count");
	for (int i = 0; i < 10; i++)
		(void) live(LE_SECOND);
	is_int(life.nstarts, LE_LIFE_STARTS, "the oldest go");
	is_int(le_life_since(&life, row), (LE_LIFE_STARTS - 1) * LE_SECOND,
		   "a row that is older counts what is left");
	is_int(le_life_since(&life, later), 9 * LE_SECOND, "a newer one all");
	ok(le_life_since(&life, row) >= LE_SAVE_INTERVAL,
	   "which is longer than any lease of a row that is not written anew");
}

/* Numbers go round, after 49 days of recorded time. */
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
	ok(life.number < row, "the number has gone round");
	is_int(le_life_since(&life, row), 2 * LE_SECOND, "what has run since is counted all the same");
	is_int(le_life_since(&life, life.number), 0, "and nothing for a row of now");
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
