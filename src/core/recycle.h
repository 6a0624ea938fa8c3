/*
 * core/recycle.h
 *		Recycles rows: uses the rows of unused locks for other locks.
 */
#ifndef LE_RECYCLE_H
#define LE_RECYCLE_H

#include "objects.h"

/*
 * Gives rows of idle locks to slots that have no row.  Must be called at the end of a batch, before its
 * rows are written.
 */
extern void le_core_recycle_rows(LeCore *core, LeTime now);

#endif /* LE_RECYCLE_H */
