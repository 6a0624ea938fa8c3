/*
 * manager/chores.h
 *		Work between batches.
 */
#ifndef LE_MANAGER_CHORES_H
#define LE_MANAGER_CHORES_H

#include "core/core.h"

/*
 * Terminates connections whose fence on a holder still exists lock_election.fence_timeout after the end of
 * that holder.
 */
extern void le_fence_end_overdue(LeCore *core, LeTime now);

/*
 * Measures the tables, for the view, and rewrites one that consists mostly of dead rows.  Must not fail or
 * wait, because locks are more urgent: an error is logged.  Returns when to call it again, by le_clock().
 */
extern LeTime le_shrink_tend(void);

/*
 * Starts to count the size of the history.  Every change of this manager, including those of its load, has a
 * number of at least next_change.
 */
extern void le_history_begin(int64_t next_change);

/*
 * Called before a batch writes its changes of elections: allocates the memory that le_history_written()
 * needs.
 */
extern void le_history_reserve(LeCore *core);

/*
 * Counts the changes of elections that a batch has written.  Must not fail: le_history_reserve() has
 * allocated the memory.
 */
extern void le_history_written(LeCore *core);

/* Returns whether the history of the command's role may grow (lock_election.max_history_per_role). */
extern bool le_history_admits(const LeCommand *cmd);

/*
 * Deletes some rows older than lock_election.history_retention, if it is time for that.  Must not fail,
 * because locks are more urgent: an error is logged.  Returns when to call it again, by le_clock().
 */
extern LeTime le_history_tend(void);

/*
 * Records how long this manager has run, as long as there is a lease that the next manager would charge with
 * that time (core/life.h).  Must not fail, because locks are more urgent: an error is logged.  Returns when to
 * call it again, by le_clock().
 */
extern LeTime le_life_tend(void);

#endif /* LE_MANAGER_CHORES_H */
