/*
 * backend/newest.h
 *		An index of the newest item of each name in a list of the transaction.
 *
 * A transaction's list has its newest item first, and a rollback to a savepoint removes items from
 * its head.  So each item can point to the next older one of the same hash, and the index to the
 * newest one: when an item is removed, the index moves on to the next older one.
 */
#ifndef LE_NEWEST_H
#define LE_NEWEST_H

#include "core/command.h"

/* An index, in TopTransactionContext; NULL until something is listed. */
typedef struct newest_hash *LeNewest;

/* Hashes a name.  Different names may have the same hash, so callers that follow the items compare names. */
extern uint64_t le_newest_hash(LeText name, uint64_t seed);

/* Returns the newest item of this hash, or NULL. */
extern void *le_newest(LeNewest index, uint64_t hash);

/* Makes room for items of this hash.  May fail; afterwards le_newest_set() cannot. */
extern void le_newest_reserve(LeNewest *index, uint64_t hash);

/* Makes this the newest item of its hash; NULL = no item is left. */
extern void le_newest_set(LeNewest index, uint64_t hash, void *item);

#endif /* LE_NEWEST_H */
