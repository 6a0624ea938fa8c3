/*
 * manager/take.h
 *		Takes requests and mail in a batch.
 */
#ifndef LE_MANAGER_TAKE_H
#define LE_MANAGER_TAKE_H

#include "manager/state.h"

/*
 * Puts the deferred mailboxes in front of the others, unless the manager backs off.  Called before a batch.
 */
extern void le_take_deferred(Batch *batch);

/* Adds the mailboxes that have rung by now, each at most once.  Called before a batch. */
extern void le_take_rung(Batch *batch);

/*
 * Takes the requests that waited before the core was loaded, in their old order.  Nothing is granted before
 * all of them have been taken.
 */
extern void le_take_waiting(Batch *batch);

/* Takes and applies the mail and the requests of the batch's mailboxes. */
extern void le_take(Batch *batch);

/*
 * Takes the request of a mailbox, if it is new, and applies it or replies to it.  An error fails the batch,
 * and untake() in batch.c marks the request as not taken.
 */
extern void le_take_request(Batch *batch, uint32 proc);

/*
 * Makes the manager serve only light work for a while, if the work of this batch was heavy.  Must not fail,
 * because it runs after a commit.
 */
extern void le_take_back_off(const Batch *batch);

/* Returns whether heavy work is deferred now. */
extern bool le_take_is_backing_off(void);

#endif /* LE_MANAGER_TAKE_H */
