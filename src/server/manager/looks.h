/*
 * manager/looks.h
 *		Serves requests that need not write, during an outage.
 */
#ifndef LE_MANAGER_LOOKS_H
#define LE_MANAGER_LOOKS_H

#include "manager/state.h"

/*
 * Returns whether the requests or mail of a batch may have to write.  Whether a renewal has to write is known
 * only when it is applied.
 */
extern bool le_take_may_write(const Batch *batch);

/* Called in a batch with looks_only: takes and applies the requests that need not write. */
extern void le_take_looks(Batch *batch);

#endif /* LE_MANAGER_LOOKS_H */
