/*
 * core/containers.h
 *		Pools, the heap of timers, and hash tables.  For the core alone.
 */
#ifndef LE_CONTAINERS_H
#define LE_CONTAINERS_H

#include "state.h"

/*
 * Pools. le_pool_get() cannot fail after le_pool_reserve().  An object keeps its index until it is
 * put back.
 */
extern void le_pool_init(LePool *pool, size_t size);
extern bool le_pool_reserve(LeCore *core, LePool *pool, uint32_t n);
extern void *le_pool_get(LePool *pool);
extern void le_pool_put(LePool *pool, void *object);
extern uint32_t le_pool_indexes(const LePool *pool);
extern void *le_pool_at(const LePool *pool, uint32_t index);
extern void le_pool_destroy(LeCore *core, LePool *pool);

/* The heap of timers: items[0] is the earliest. */
extern bool le_heap_reserve(LeCore *core, uint32_t cap);
extern void le_timer_set(LeCore *core, LeTimer *timer, LeTime at);
extern void le_timer_clear(LeCore *core, LeTimer *timer);

/* Free an array or a text, which may be NULL. le_free_text() sets the text to NULL. */
extern void le_free_array(LeCore *core, void *array);
extern void le_free_text(LeCore *core, char **text);

/* The hash tables. le_hashes_reserve() makes room for one more link in each table. */
extern uint64_t le_hash_name(const LeCore *core, LeKind kind, LeText name);
extern uint32_t le_hash_id(int64_t id);
/* Returns the hash of a named owner in a lock.  It is used to find the holder that a request re-enters. */
extern uint32_t le_owner_hash(const LeCore *core, const LeLock *lock, uint32_t role, LeText owner);
extern bool le_hashes_reserve(LeCore *core);
extern void le_hashes_destroy(LeCore *core);
extern void le_hash_add(LeCore *core, LeHashId id, LeHashLink *link);
extern void le_hash_remove(LeCore *core, LeHashId id, LeHashLink *link);
/*
 * Returns the hash of a token.  It includes the lock's name, because the entries of a group share
 * their token.
 */
extern uint32_t le_hash_token(int64_t token, uint32_t name_hash);

/* Returns the chain that has all links with this hash.  It may have links with other hashes, too. */
static inline LeHashLink *
le_hash_chain(const LeCore *core, LeHashId id, uint32_t hash)
{
	const LeHash *table = &core->hashes[id];

	return table->size > 0 ? table->buckets[hash & (table->size - 1)] : NULL;
}

#define le_hash_foreach(it, core, id, hash)                                                                  \
	for (LeHashLink *it = le_hash_chain(core, id, hash); it != NULL; it = it->next)

/* Iterates over all links of the table; the loop may free "it". */
#define le_hash_foreach_all(it, nxt, core, id)                                                               \
	for (uint32_t bucket_ = 0; bucket_ < (core)->hashes[id].size; bucket_++)                                 \
		for (LeHashLink *it = (core)->hashes[id].buckets[bucket_], *nxt;                                     \
			 it != NULL && (nxt = it->next, true); it = nxt)

#endif /* LE_CONTAINERS_H */
