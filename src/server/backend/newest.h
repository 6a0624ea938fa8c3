/*
 * backend/newest.h
 *		Maintains an index of a list of items, such as the fences of a transaction.  The index finds the
 *		newest item with a given name.
 *
 * The list begins with its newest item, and a rollback to a savepoint removes items from its head.  So each
 * item points to the next older item with the same hash, and the index points to the newest item with each
 * hash.  When an item is removed, the index is set to the next older item.
 */
#ifndef LE_NEWEST_H
#define LE_NEWEST_H

#include "core/command.h"

/* An index, allocated in TopTransactionContext; NULL until the first item is added. */
typedef struct newest_hash *LeNewest;

/*
 * Returns the hash of a name.  Different names may have the same hash, so callers must compare the names of
 * the items that they find.
 */
extern uint64_t le_newest_hash(LeText name, uint64_t seed);

/* Returns the newest item with this hash, or NULL. */
extern void *le_newest(LeNewest index, uint64_t hash);

/* Reserves memory for items with this hash.  May fail; afterwards le_newest_set() cannot fail. */
extern void le_newest_reserve(LeNewest *index, uint64_t hash);

/* Makes this item the newest one with its hash; NULL = no item is left. */
extern void le_newest_set(LeNewest index, uint64_t hash, void *item);

#endif /* LE_NEWEST_H */
