/*
 * manager/batch.h
 *		The manager's work: a batch of requests, applied, written, answered.
 */
#ifndef LE_BATCH_H
#define LE_BATCH_H

#include "shared/shmem.h"
#include "store/store.h"

/* Once, when the manager starts. */
extern void le_batch_init(LeDatabase *db);

/*
 * Load the state for the first time.  False: the extension is not installed
 * here.  Errors are for the caller: the worker starts again.
 */
extern bool le_batch_load(void);

/*
 * Apply what these mailboxes ask for, end what is due, write, answer.  Never
 * fails: what cannot be written is answered with the error.  procs has room
 * for all mailboxes.
 */
extern void le_batch_run(uint32 *procs, int n);

/* All mailboxes of this database with something in them, rung or not. */
extern int le_batch_all_mailboxes(uint32 *procs);

/* Has a batch found that the extension was dropped? */
extern bool le_batch_is_gone(void);

/* The extension was dropped: end every wait with an error. */
extern void le_batch_gone(void);

/* It leaves in order: make all releases that sessions have answered. */
extern void le_batch_leave(uint32 *procs);

/*
 * Has the manager run without a pause until now, asleep or not?  A pause moves all
 * deadlines.  slept_until: when it meant to wake up; 0: it did not sleep.
 */
extern void le_batch_check_stall(LeTime slept_until, const uint32 *procs, int n);

/* When to run a batch even if nobody rings, by le_clock(). */
extern LeTime le_batch_next_wakeup(void);

#endif /* LE_BATCH_H */
