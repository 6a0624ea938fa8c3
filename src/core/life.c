/*
 * core/life.c
 *		Records how long managers have run: see core/life.h.
 */
#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "life.h"

void
le_life_begin(LeLife *life)
{
	bool counts = life->uptime * LE_LIFE_TICK >= LE_LIFE_LEAST;

	assert(life->nstarts <= LE_LIFE_STARTS);
	if (life->nstarts == 0)
		life->nstarts = 1;
	else
	{
		life->number += life->uptime > 0 ? life->uptime : 1;
		if (counts && life->nstarts < LE_LIFE_STARTS)
			life->nstarts++;
		else if (counts)
			memmove(life->starts, life->starts + 1, (LE_LIFE_STARTS - 1) * sizeof(life->starts[0]));
	}

	/* overwrites the previous life if that was too short to be kept */
	life->starts[life->nstarts - 1] = life->number;
	life->uptime = 0;
}

LeTime
le_life_since(const LeLife *life, uint32_t number)
{
	uint32_t low = 0, high = life->nstarts;

	/* find the first life that began after the life with this number */
	while (low < high)
	{
		uint32_t mid = (low + high) / 2;

		if ((int32_t) (life->starts[mid] - number) <= 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low < life->nstarts ? (LeTime) (life->number - life->starts[low]) * LE_LIFE_TICK : 0;
}
