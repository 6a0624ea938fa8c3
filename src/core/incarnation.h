/*
 * core/incarnation.h
 *		Chooses the incarnation and the first revision at the start of a manager.
 */
#ifndef LE_INCARNATION_H
#define LE_INCARNATION_H

#include "command.h"

/*
 * The data from which a starting manager chooses its incarnation.  Incarnations follow the number of
 * minutes since 2025-01-01, so that the server does not assign tokens again after an older state was
 * restored.  Times are microseconds since 2025-01-01.
 */
typedef struct LeStart
{
	int64_t stored;     /* stored incarnation; 0 = none */
	LeTime stored_at;   /* time at which the stored incarnation was chosen */
	int64_t floor;      /* minimum incarnation to use; 0 = no minimum */
	LeTime time;        /* latest known time: from the clock, or from a replayed commit or checkpoint */
	uint32_t timelines; /* number of timelines that the server has begun since the stored one */
} LeStart;

/* Returns the incarnation that this start must use. */
extern int64_t le_next_incarnation(const LeStart *start);
/* Returns the first revision of an incarnation that starts at this time. */
extern int64_t le_first_revision(int64_t incarnation, LeTime time);

#endif /* LE_INCARNATION_H */
