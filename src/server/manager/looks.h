/*
 * manager/looks.h
 *		Requests that need not write, during an outage.
 */
#ifndef LE_MANAGER_LOOKS_H
#define LE_MANAGER_LOOKS_H

#include "manager/state.h"

/*
 * Returns whether the requests or mail of a batch may have to write.  Renewals that have to write become
 * known only when they are applied.
 */
extern bool le_take_may_write(const Batch *batch);

/* Called in a batch with looks_only: takes and applies the requests that need not write. */
extern void le_take_looks(Batch *batch);

#endif /* LE_MANAGER_LOOKS_H */
