/*
 * backend/xactstate.h
 *		What the current transaction has done to locks so far.  backend/xact.c ends it.
 */
#ifndef LE_XACTSTATE_H
#define LE_XACTSTATE_H

typedef struct LeXactState
{
	uint32 number;   /* of the newest transaction that has acquired; odd */
	bool is_open;    /* an acquire was sent */
	bool is_touched; /* an acquire, a release or a fence: PREPARE is refused */
	bool has_fence;  /* a fence is held, or is being taken */
} LeXactState;

extern LeXactState le_xact;

/*
 * The number of this session's current transaction.  It is open from its first
 * acquire on, which le_xact_open() announces in the mailbox.
 */
extern uint32 le_xact_open(void);
extern uint32 le_xact_number(void);

/* The number of its next acquire. */
extern uint32 le_xact_acquire(void);

/*
 * This transaction holds a fence, or is about to take one.  From now on the
 * manager looks for it, and it is told when the transaction ends.
 */
extern void le_xact_fencing(void);

/*
 * A subtransaction rolls back: forget its acquires, and those of subtransactions
 * within it.  Returns the number of the first one; 0: it has none.  May not fail:
 * called by an abort.
 */
extern uint32 le_xact_forget_acquires(SubTransactionId subxact);

#endif /* LE_XACTSTATE_H */
