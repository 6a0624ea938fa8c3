/*
 * manager/history.h
 *		The manager's care for the history of elections.
 */
#ifndef LE_HISTORY_H
#define LE_HISTORY_H

#include "core/core.h"

/* A manager has loaded its state: its changes are numbered from this one on. */
extern void le_history_begin(int64_t next_change);

/* A batch has written its changes of elections. */
extern void le_history_written(LeCore *core);

/* May this command lead to more history of its role (lock_election.max_history_per_role)? */
extern bool le_history_admits(const LeCommand *cmd);

/*
 * Delete some rows older than lock_election.history_retention, if it is time for
 * that.  Never fails.  Returns when to call it again, by le_clock().
 */
extern LeTime le_history_tend(void);

#endif /* LE_HISTORY_H */
