/*
 * manager/gather.h
 *		A pause between two batches, for more requests to join the next one.
 */
#ifndef LE_GATHER_H
#define LE_GATHER_H

#include "core/core.h"

/* After a batch of the requests in these n slots. */
extern void le_gather(const uint32 *procs, int n);

#endif /* LE_GATHER_H */
