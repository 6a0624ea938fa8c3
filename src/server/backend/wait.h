/*
 * backend/wait.h
 *		What bounds the waits of one call, whatever it is that it waits for.
 */
#ifndef LE_WAIT_H
#define LE_WAIT_H

#include "shared/shmem.h"

/* How a wait that may do without what it waits for has ended. */
typedef enum LeWaitEnd
{
	LE_WAIT_DONE, /* with that */
	LE_WAIT_OVER  /* the caller's own wait was over before */
} LeWaitEnd;

typedef struct LeWait
{
	LeTime began_at;
	LeTime limit_at;        /* the end of the caller's own wait; LE_NEVER */
	LeTime lock_timeout_at; /* when that strikes; LE_NEVER */
	LeTime next_look_at;    /* of a look at the client */
	LeTime absent_at;       /* the last turn without a manager; 0: there was one */
	LeTime absent_us;       /* for how long there has been no manager */
	LeTime patience_us;     /* how much of that is borne */
} LeWait;

/*
 * A call begins that waits so long by itself; LE_WAIT_FOREVER: it has no limit
 * of its own.  "for_lock": it waits for others who hold a lock.
 */
extern void le_wait_begin(LeWait *wait, LeTime at_most_us, bool for_lock);

/* Has the caller's own wait been over for that long? */
extern bool le_wait_is_over(const LeWait *wait, LeTime now, LeTime grace_us);

/*
 * One turn of the wait: sleeps until then at most, or until somebody wakes
 * this process.  Errors: 55P03 lock_timeout; 57P03 there has been no manager of
 * this database (NULL: has no entry) for too long; all that an interrupt may be,
 * the loss of the client among them.
 */
extern void le_wait_turn(LeWait *wait, LeDatabase *db, LeTime until);

/* A turn that looks by itself after a while: sooner in a wait that is young.  Errors as above. */
extern void le_wait_poll(LeWait *wait, LeDatabase *db);

/* If there is no manager now: error 57P03, with the cause that can be seen. */
extern void le_raise_if_no_manager(const LeWait *wait);

/* Ask for a manager if there is none.  May not fail: a commit asks as well. */
extern void le_want_manager(LeDatabase *db);

/*
 * A manager that lives takes a request in less than LE_TAKE_GRACE, and answers
 * it in less than LE_ANSWER_GRACE, however busy the machine and its disk are.
 * A call whose own wait has been over for longer does without its answer.
 */
#define LE_TAKE_GRACE   (2 * LE_SECOND)
#define LE_ANSWER_GRACE (5 * LE_SECOND)

#endif /* LE_WAIT_H */
