/*
 * backend/xact.h
 *		What transactions do to locks: undo of acquires, ends of fences.
 */
#ifndef LE_XACT_H
#define LE_XACT_H

#include "core/core.h"

/*
 * The number under which this session's current transaction acquires; from
 * its first acquire on it is open.
 */
extern uint32 le_xact_open(void);
extern uint32 le_xact_number(void);

/* Something was acquired, released or fenced: PREPARE is refused. */
extern void le_xact_touched(void);

/*
 * This transaction holds, or is about to take, a fence: the manager is to look
 * for it from now on, and is told when the transaction ends.
 */
extern void le_xact_fencing(void);

extern void le_xact_init(void);

#endif /* LE_XACT_H */
