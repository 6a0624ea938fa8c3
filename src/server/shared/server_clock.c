/*
 * shared/server_clock.c
 *		Reads the clocks.  A point in time is a number of microseconds of this server's monotonic clock.
 */
#include "postgres.h"

#include <time.h>

#include "utils/timestamp.h"

#include "shared/shmem.h"

LeTime
le_clock(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (LeTime) ts.tv_sec * LE_SECOND + ts.tv_nsec / 1000;
}

/*
 * Microseconds: if the difference between the clocks changes by more, the time of day was set.  The value
 * exceeds the time between the readings of both clocks on a busy machine.
 */
#define WALL_STEP (1 * LE_SECOND)

/*
 * Adds the difference between the time of day and the monotonic clock.  The difference is constant until the
 * time of day is set, because both clocks are slewed in the same way.
 */
TimestampTz
le_wall(LeTime now)
{
	static int64 distance;
	int64 measured = GetCurrentTimestamp() - now;

	if (measured - distance > WALL_STEP || distance - measured > WALL_STEP)
		distance = measured;
	Assert(now > 0 && distance >= measured - WALL_STEP && distance <= measured + WALL_STEP);
	return now + distance;
}
