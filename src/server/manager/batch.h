/*
 * manager/batch.h
 *		One batch.
 */
#ifndef LE_MANAGER_BATCH_H
#define LE_MANAGER_BATCH_H

#include "manager/state.h"

/*
 * Runs one batch: applies, writes, replies.  Unless the result is BATCH_DONE, *error is the cause; after
 * BATCH_LOCKED it may be NULL.
 */
extern BatchEnd le_batch_run(Batch *batch, ErrorData **error);

/*
 * Detects that the manager was suspended, and if so moves all deadlines by the length of the pause.
 * slept_until: when the manager intended to wake up; 0 = it did not sleep. procs: mailboxes that have rung.
 */
extern void le_batch_check_stall(LeTime slept_until, const uint32 *procs, int n);

/* When the manager must wake up, by le_clock(), and for what. */
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

/* Returns whether there are releases that were replied to but not written yet. */
extern bool le_batch_has_later(void);

/* Returns when to run a batch even if no session wakes the manager up. */
extern Wakeup le_batch_next_wakeup(void);

#endif /* LE_MANAGER_BATCH_H */
