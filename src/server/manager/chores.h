/*
 * manager/chores.h
 *		Does work between batches.
 */
#ifndef LE_MANAGER_CHORES_H
#define LE_MANAGER_CHORES_H

#include "core/core.h"

/* Terminates each connection whose fence has outlived the fenced holder by lock_election.fence_timeout. */
extern void le_fence_end_overdue(LeCore *core, LeTime now);

/*
 * Measures the tables, for views, and rewrites a table that consists mostly of dead rows.  Must not fail or
 * wait: an error is logged.  Returns when to call it again, by le_clock().
 */
extern LeTime le_shrink_tend(void);

/*
 * Starts to count the size of the history.  next_change: lower limit of the numbers of all changes that this
 * manager makes, in its load or later.
 */
extern void le_history_begin(int64_t next_change);

/*
 * Allocates the memory that le_history_written() needs.  Called before a batch writes its changes of
 * elections.
 */
extern void le_history_reserve(LeCore *core);

/*
 * After a batch has written changes of elections, adds their sizes to the sizes of the roles' histories.
 * Must not fail: le_history_reserve() has allocated the memory.
 */
extern void le_history_written(LeCore *core);

/* Returns whether the command may add to the history of its role (lock_election.max_history_per_role). */
extern bool le_history_admits(const LeCommand *cmd);

/*
 * Deletes some rows older than lock_election.history_retention, if a step is due.  Must not fail: an error is
 * logged.  Returns when to call it again, by le_clock().
 */
extern LeTime le_history_tend(void);

/*
 * Records how long this manager has run, if the next manager would subtract that time from any lease
 * (core/life.h).  Must not fail: an error is logged.  Returns when to call it again, by le_clock().
 */
extern LeTime le_life_tend(void);

#endif /* LE_MANAGER_CHORES_H */
