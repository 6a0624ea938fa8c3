/*
 * backend/xactstate.h
 *		Tracks the acquires, releases and fences of the current transaction.  backend/xact.c resets this state
 *		at the end of the transaction.
 */
#ifndef LE_XACTSTATE_H
#define LE_XACTSTATE_H

typedef struct LeXactState
{
	uint32 number;   /* number of the session's newest transaction that has sent an acquire; odd */
	bool is_open;    /* this transaction has sent an acquire */
	bool is_touched; /* the transaction has acquired, released or fenced: PREPARE is rejected */
	bool has_fence;  /* a fence is held or being taken */
} LeXactState;

extern LeXactState le_xact;

/*
 * Return the number of this session's current transaction.  le_xact_open() is for a transaction that
 * acquires: it also announces the number in the mailbox, at the first acquire.
 */
extern uint32 le_xact_open(void);
extern uint32 le_xact_number(void);

/* Counts one more acquire of the transaction, and returns its number. */
extern uint32 le_xact_acquire(void);

/*
 * Records that this transaction holds a fence or is about to take one.  From now on the manager checks for
 * the fence, and is notified when the transaction ends.
 */
extern void le_xact_fencing(void);

/*
 * Forgets the acquires of a subtransaction that rolls back and of those nested in it.  Returns the number of
 * the first of these acquires, or 0.  Must not fail, because aborts call it.
 */
extern uint32 le_xact_forget_acquires(SubTransactionId subxact);

#endif /* LE_XACTSTATE_H */
