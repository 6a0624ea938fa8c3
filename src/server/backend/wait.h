/*
 * backend/wait.h
 *		The limits of all waits of one call, whatever it waits for.
 */
#ifndef LE_WAIT_H
#define LE_WAIT_H

#include "shared/shmem.h"

/* How a wait ended that may end without success. */
typedef enum LeWaitEnd
{
	LE_WAIT_DONE, /* with success */
	LE_WAIT_OVER  /* the caller's own wait ended first */
} LeWaitEnd;

typedef struct LeWait
{
	LeTime began_at;
	LeTime limit_at;        /* end of the caller's own wait, or LE_NEVER */
	LeTime lock_timeout_at; /* when lock_timeout expires, or LE_NEVER */
	LeTime next_look_at;    /* next check of the client's socket */
	LeTime absent_at;       /* last turn without a manager; 0 = there was one */
	LeTime absent_us;       /* time without a manager so far */
	LeTime patience_us;     /* limit of absent_us */
} LeWait;

/*
 * Begins the waits of a call whose own wait lasts at most at_most_us; LE_WAIT_FOREVER = it has no
 * limit of its own.  "for_lock": it waits for other holders of a lock.
 */
extern void le_wait_begin(LeWait *wait, LeTime at_most_us, bool for_lock);

/* Did the caller's own wait end at least grace_us ago? */
extern bool le_wait_is_over(const LeWait *wait, LeTime now, LeTime grace_us);

/*
 * Runs one turn of the wait: sleeps until "until" at the latest, or until this process is woken up.
 * Errors: 55P03 lock_timeout; 57P03 there has been no manager of this database for too long (NULL:
 * the database has no entry); all errors of interrupts, including the loss of the client.
 */
extern void le_wait_turn(LeWait *wait, LeDatabase *db, LeTime until);

/* Runs a turn that ends by itself after a while, sooner in a wait that has just begun.  Errors as above. */
extern void le_wait_poll(LeWait *wait, LeDatabase *db);

/* Raises error 57P03, with its visible cause, if no manager is running now. */
extern void le_raise_if_no_manager(const LeWait *wait);

/* Asks for a manager if none is running.  Must not fail: commits call it, too. */
extern void le_want_manager(LeDatabase *db);

/*
 * A working manager takes a request in less than LE_TAKE_GRACE, and replies in less than
 * LE_ANSWER_GRACE, however busy the machine and its disk are.  A call whose own wait ended longer
 * ago than that returns without the reply.
 */
#define LE_TAKE_GRACE   (2 * LE_SECOND)
#define LE_ANSWER_GRACE (5 * LE_SECOND)

#endif /* LE_WAIT_H */
