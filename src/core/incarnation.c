/*
 * core/incarnation.c
 *		Which incarnation a start takes, so that tokens go on upward.
 */
#include "internal.h"

/*
 * A promoted server does not know how often its predecessor has started since
 * its last word, and each of those starts may have taken the minutes of its
 * time, up to this one.  So it goes past the minutes as well, and far enough.
 */
int64_t
le_next_incarnation(const LeStart *start)
{
	int64_t known = start->stored > start->minutes ? start->stored : start->minutes;
	int64_t next = start->stored + 1;

	if (start->clean && !start->promoted && start->floor == 0)
		return start->stored;
	if (start->promoted)
		next = (known / 64 + 2) * 64;
	if (next < start->minutes)
		next = start->minutes;
	return next > start->floor ? next : start->floor;
}
