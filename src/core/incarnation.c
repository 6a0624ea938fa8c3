/*
 * core/incarnation.c
 *		Chooses the incarnation and the first revision at each start of a manager, so that
 *		tokens keep growing.
 *
 * The stored state may be older than the newest tokens, because older files were restored,
 * a standby was promoted, or a backup was recovered.  Therefore each start skips all
 * incarnations that other histories of this database may have used.  It estimates them from
 * the stored incarnation, the clock and the timeline:
 *
 *	-	An older copy of the files is restored: the discarded history used at most the
 *		incarnation of the minute of its last start, unless it was started more than once a
 *		minute.  The clock is past that minute now.
 *	-	A standby is promoted: the old primary may have been started after the last change
 *		that the standby received.  Each of these starts used the next incarnation or that
 *		of its minute.  TIMELINE_STEP leaves room for that many starts.
 *	-	The server is recovered to a point before a failover, or again to the same point:
 *		the archive shows which timelines existed, and each of them adds TIMELINE_STEP.  If
 *		two recoveries do not know of each other, the later one is ahead by the minutes
 *		between them.
 *	-	A dump is restored: the incarnation is at least one more than that in the dump.
 */
#include "command.h"
#include "incarnation.h"

#define MINUTE (60 * LE_SECOND)

/* Incarnations to skip per timeline, beyond those that another history may have used. */
#define TIMELINE_STEP 128
#define MAX_TIMELINES 1000

/* Maximum number of minutes to skip, 45 days, so that a wrong clock cannot exhaust the incarnations. */
#define MAX_PASSED (INT64_C(1) << 16)

/* If an incarnation is ahead of the clock by less than this, its first counter value grows with the clock. */
#define MAX_AHEAD (160 * MINUTE)
#define QUARTER   (LE_COUNTER_MAX / 4)

static int64_t
minutes_of(LeTime time)
{
	return time > 0 ? time / MINUTE : 0;
}

/*
 * Returns an incarnation above those of other histories that continue from the same stored state.  A
 * later history is ahead of an earlier one by the minutes between them, even if the stored incarnation
 * is ahead of the clock.  It is also ahead by TIMELINE_STEP for each timeline that it knows of, because
 * each timeline may have used as many incarnations as the step leaves room for.
 */
static int64_t
past_other_timelines(const LeStart *start)
{
	int64_t minutes = minutes_of(start->time);
	int64_t passed = minutes - minutes_of(start->stored_at);
	int64_t timelines = start->timelines < MAX_TIMELINES ? start->timelines : MAX_TIMELINES;
	int64_t known = start->stored;

	if (passed > 0)
		known += passed < MAX_PASSED ? passed : MAX_PASSED;
	if (known < minutes)
		known = minutes;
	return known + timelines * TIMELINE_STEP;
}

int64_t
le_next_incarnation(const LeStart *start)
{
	int64_t minutes = minutes_of(start->time);
	int64_t next = start->stored + 1;

	if (start->timelines > 0)
		next = past_other_timelines(start);
	if (next < minutes)
		next = minutes;
	return next > start->floor ? next : start->floor;
}

/*
 * Histories that continue from the same stored state may begin with the same incarnation.  They begin
 * within the minute of the incarnation or, if the incarnation is ahead of the clock, before that
 * minute.  The later history begins with a higher counter, because the first counter value grows
 * faster than tokens are assigned.  If the incarnation is ahead of the clock by MAX_AHEAD or more, as
 * after a promotion, the first value grows by a million per second and starts again each minute.  If
 * it is less far ahead, the value grows by 14,000 per second, and within the minute of the incarnation
 * by 500,000.  An eighth of the counter is left for tokens.
 */
int64_t
le_first_revision(int64_t incarnation, LeTime time)
{
	LeTime ahead = incarnation * MINUTE - time;
	int64_t offset;

	if (ahead >= MAX_AHEAD)
		offset = (time > 0 ? time % MINUTE : 0) * QUARTER / MINUTE;
	else if (ahead > 0)
		offset = QUARTER + (MAX_AHEAD - ahead) * (2 * QUARTER) / MAX_AHEAD;
	else
		offset = 3 * QUARTER + (-ahead < MINUTE ? -ahead : MINUTE) * (QUARTER / 2) / MINUTE;
	assert(offset >= 0 && offset < LE_COUNTER_MAX);
	return (incarnation << LE_COUNTER_BITS) + offset + 1;
}
