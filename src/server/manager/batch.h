/*
 * manager/batch.h
 *		Runs a batch, and decides when the next one is due.
 */
#ifndef LE_MANAGER_BATCH_H
#define LE_MANAGER_BATCH_H

#include "manager/state.h"

/*
 * Runs one batch: applies requests, writes the changed rows, and replies.  Unless the result is BATCH_DONE,
 * sets *error to the cause; after BATCH_LOCKED, *error may be NULL.
 */
extern BatchEnd le_batch_run(Batch *batch, ErrorData **error);

/*
 * Detects that the manager was suspended, and if so moves all deadlines by the length of the pause.
 * slept_until: when the manager intended to wake up; 0 = it did not sleep. procs: mailboxes that have rung.
 */
extern void le_batch_check_stall(LeTime slept_until, const uint32 *procs, int n);

/* Time, by le_clock(), at which the manager must wake up, and the reason why (for the log). */
typedef struct Wakeup
{
	LeTime at;
	const char *why;
} Wakeup;

static inline void
wake_earlier(Wakeup *wakeup, LeTime at, const char *why)
{
	if (at < wakeup->at)
		*wakeup = (Wakeup){at, why};
}

/* Returns whether any release got a reply but is not written yet. */
extern bool le_batch_has_later(void);

/* Returns when to run the next batch even if no session wakes up the manager. */
extern Wakeup le_batch_next_wakeup(void);

#endif /* LE_MANAGER_BATCH_H */
