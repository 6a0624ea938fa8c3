/*
 * core/pause.c
 *		Measures pauses, which do not count against leases.
 */
#include <string.h>

#include "pause.h"

void
le_pause_init(LePause *pause, LeTime clock)
{
	memset(pause, 0, sizeof(*pause));
	pause->seen_at = clock;
}

LeTime
le_pause_since(const LePause *pause, LeTime slept_until, LeTime rang_at, LeTime clock)
{
	LeTime since = slept_until == 0 ? pause->seen_at : slept_until < clock ? slept_until : clock;

	/* a request tried to wake up the process at rang_at, but the process did not run */
	if (rang_at > pause->seen_at && rang_at < since)
		since = rang_at;
	return since;
}

LeTime
le_pause_seen(LePause *pause, LeTime since, LeTime clock)
{
	LeTime gap = clock - since;

	pause->seen_at = clock;

	/* during an outage, le_pause_mended() counts the whole time */
	if (gap <= LE_PAUSE || pause->broken_at != 0)
		return 0;
	pause->in_row = since - pause->ended_at < LE_PAUSE ? pause->in_row + 1 : 1;
	if (pause->in_row > LE_PAUSES_IN_ROW)
		gap -= LE_PAUSE;
	assert(gap > 0);
	pause->lost += gap;
	pause->ended_at = clock;
	return gap;
}

void
le_pause_broken(LePause *pause)
{
	if (pause->broken_at == 0)
		pause->broken_at = pause->seen_at;
}

void
le_pause_refused(LePause *pause)
{
	pause->refused = true;
}

LeTime
le_pause_mended(LePause *pause, LeTime clock)
{
	LeTime gap = pause->broken_at != 0 ? clock - pause->broken_at : 0;

	if (gap <= LE_PAUSE && !pause->refused)
		gap = 0;
	pause->lost += gap;
	pause->broken_at = 0;
	pause->refused = false;
	pause->seen_at = clock;
	return gap;
}
