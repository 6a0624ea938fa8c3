/*
 * backend/xactstate.h
 *		Tracks what the current transaction has done to locks.  backend/xact.c resets this at its
 *		end.
 */
#ifndef LE_XACTSTATE_H
#define LE_XACTSTATE_H

typedef struct LeXactState
{
	uint32 number;   /* number of the newest transaction that has acquired; odd */
	bool is_open;    /* an acquire was sent */
	bool is_touched; /* an acquire, a release or a fence: PREPARE is refused */
	bool has_fence;  /* a fence is held or being taken */
} LeXactState;

extern LeXactState le_xact;

/*
 * Return the number of this session's current transaction.  A transaction is open from its first
 * acquire on, which le_xact_open() announces in the mailbox.
 */
extern uint32 le_xact_open(void);
extern uint32 le_xact_number(void);

/* Returns the number of its next acquire. */
extern uint32 le_xact_acquire(void);

/*
 * Notes that this transaction holds a fence, or is about to take one.  From now on the manager
 * looks for the fence, and is told when the transaction ends.
 */
extern void le_xact_fencing(void);

/*
 * Forgets the acquires of a subtransaction that rolls back, and of those within it.  Returns the
 * number of the first one, or 0.  Must not fail: aborts call it.
 */
extern uint32 le_xact_forget_acquires(SubTransactionId subxact);

#endif /* LE_XACTSTATE_H */
