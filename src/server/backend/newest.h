/*
 * backend/newest.h
 *		The newest item of each name in a list of the transaction.
 *
 * A transaction's list has its newest item first, and a rollback to a savepoint takes
 * items off its head.  So each item can point to the next older one of the same
 * hash, and the index to the newest one: an item that is taken off hands on to that.
 */
#ifndef LE_NEWEST_H
#define LE_NEWEST_H

#include "core/command.h"

/* An index, in TopTransactionContext; NULL: nothing was listed yet. */
typedef struct newest_hash *LeNewest;

/* Different names may hash alike: whoever follows the items compares them. */
extern uint64_t le_newest_hash(LeText name, uint64_t seed);

/* The newest item of this hash; NULL: there is none. */
extern void *le_newest(LeNewest index, uint64_t hash);

/* Room for items of this hash.  May fail; then le_newest_set() cannot. */
extern void le_newest_reserve(LeNewest *index, uint64_t hash);

/* This item is the newest of its hash now; NULL: there is none any more. */
extern void le_newest_set(LeNewest index, uint64_t hash, void *item);

#endif /* LE_NEWEST_H */
