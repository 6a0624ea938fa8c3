/*
 * backend/xact.h
 *		What transactions do to locks: undo of acquires, ends of fences.
 */
#ifndef LE_XACT_H
#define LE_XACT_H

#include "core/core.h"

/*
 * The number of this session's current transaction.  It is open from its first
 * acquire on, which le_xact_open() announces.
 */
extern uint32 le_xact_open(void);
extern uint32 le_xact_number(void);

/* The number of its next acquire. */
extern uint32 le_xact_acquire(void);

/* Something was acquired, released or fenced: PREPARE is refused. */
extern void le_xact_touched(void);

/*
 * This transaction holds a fence, or is about to take one.  From now on the
 * manager looks for it, and it is told when the transaction ends.
 */
extern void le_xact_fencing(void);

/* From _PG_init; once per process. */
extern void le_xact_init(void);

#endif /* LE_XACT_H */
