/*
 * backend/wait.h
 *		Limits all waits of a call.
 */
#ifndef LE_WAIT_H
#define LE_WAIT_H

#include "shared/shmem.h"

/* The two ways in which a wait can end. */
typedef enum LeWaitEnd
{
	LE_WAIT_DONE, /* the condition was met */
	LE_WAIT_OVER  /* the caller's wait ended first */
} LeWaitEnd;

typedef struct LeWait
{
	LeTime began_at;
	LeTime limit_at;        /* end of the caller's wait, or LE_NEVER */
	LeTime lock_timeout_at; /* time at which lock_timeout expires, or LE_NEVER */
	LeTime next_look_at;    /* time of the next check of the client's socket */
	LeTime absent_at;       /* time of the last turn, if no manager was running then; otherwise 0 */
	LeTime absent_us;       /* time without a manager so far, in microseconds */
	LeTime patience_us;     /* upper limit of absent_us */
} LeWait;

/*
 * Begins the waits of a call.  at_most_us: maximum length of the caller's wait, from the call's arguments;
 * LE_WAIT_FOREVER = no limit.  for_lock: whether the call may wait for holders of a lock.
 */
extern void le_wait_begin(LeWait *wait, LeTime at_most_us, bool for_lock);

/* Returns whether the caller's wait ended at least grace_us ago. */
extern bool le_wait_is_over(const LeWait *wait, LeTime now, LeTime grace_us);

/*
 * Runs one turn of a wait loop: sleeps until this process is woken up, but at most until "until".  Errors:
 * 55P03 because of lock_timeout; 57P03 if this database has had no manager for too long; all errors of
 * interrupts, including the loss of the client.  db NULL: does not check for a manager.
 */
extern void le_wait_turn(LeWait *wait, LeDatabase *db, LeTime until);

/*
 * Runs a turn that sleeps for a limited time, which grows during the wait.  Raises the errors of
 * le_wait_turn().
 */
extern void le_wait_poll(LeWait *wait, LeDatabase *db);

/* Raises error 57P03, with the known cause, if no manager is running now. */
extern void le_raise_if_no_manager(const LeWait *wait);

/* Requests a manager if none is running.  Must not fail, because it is called at commit, too. */
extern void le_want_manager(LeDatabase *db);

/*
 * A working manager takes a request in less than LE_TAKE_GRACE, and replies in less than LE_ANSWER_GRACE,
 * even if the machine and its disk are busy.  If this time has passed since the end of the caller's wait, the
 * call returns without the reply.
 */
#define LE_TAKE_GRACE   (2 * LE_SECOND)
#define LE_ANSWER_GRACE (5 * LE_SECOND)

#endif /* LE_WAIT_H */
