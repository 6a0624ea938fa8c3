/*
 * store/lend.h
 *		Rows of locks that nobody uses, to be written anew for others.
 */
#ifndef LE_STORE_LEND_H
#define LE_STORE_LEND_H

#include "core/core.h"

/* A row is lent that was left alone for so long. */
#define LE_IDLE_BEFORE_LENT (100 * LE_MS)
/* So many are remembered. */
#define LE_MAX_IDLE 4096

/* A load begins: slots of another core are not known any more. */
extern void le_lend_reset(void);

/* A batch begins whose dirty slots are these. */
extern void le_lend_begin(LeSlot *dirty);

/* The slot's row was written as free. */
extern void le_lend_add(LeSlot *slot, LeTime now);

/* A slot whose row this one, which has none, is to take over; NULL: none. */
extern LeSlot *le_lend_take(LeSlot *to, LeTime now);

#endif /* LE_STORE_LEND_H */
