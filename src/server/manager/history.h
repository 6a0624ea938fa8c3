/*
 * manager/history.h
 *		The manager's care for the history of elections.
 */
#ifndef LE_HISTORY_H
#define LE_HISTORY_H

#include "core/core.h"

/* A batch has written changes of elections. */
extern void le_history_written(void);

/*
 * Delete some rows older than lock_election.history_retention, if it is time for
 * that.  Never fails.  Returns when to call it again, by le_clock().
 */
extern LeTime le_history_tend(void);

#endif /* LE_HISTORY_H */
