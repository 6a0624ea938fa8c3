/*
 * backend/newest.c
 *		Maintains an index of a list of items, such as the fences of a transaction.  The index finds the
 *		newest item with a given name.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "utils/memutils.h"

#include "backend/newest.h"

/* Initial capacity of an index, in items; it grows when needed. */
#define FEW_ITEMS 8

typedef struct Newest
{
	uint64 hash;
	void *item; /* newest item with this hash; NULL = a rollback has removed all of them */
	char status;
} Newest;

#define SH_PREFIX         newest
#define SH_ELEMENT_TYPE   Newest
#define SH_KEY_TYPE       uint64
#define SH_KEY            hash
#define SH_HASH_KEY(t, k) ((uint32) (k))
#define SH_EQUAL(t, a, b) ((a) == (b))
#define SH_SCOPE          static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

uint64_t
le_newest_hash(LeText name, uint64_t seed)
{
	return hash_bytes_extended((const unsigned char *) name.data, (int) name.len, seed);
}

void *
le_newest(LeNewest index, uint64_t hash)
{
	const Newest *newest = index != NULL ? newest_lookup(index, hash) : NULL;

	return newest != NULL ? newest->item : NULL;
}

void
le_newest_reserve(LeNewest *index, uint64_t hash)
{
	Newest *newest;
	bool found;

	if (*index == NULL)
		*index = newest_create(TopTransactionContext, FEW_ITEMS, NULL);
	newest = newest_insert(*index, hash, &found);
	if (!found)
		newest->item = NULL;
}

void
le_newest_set(LeNewest index, uint64_t hash, void *item)
{
	Newest *newest = newest_lookup(index, hash);

	Assert(newest != NULL);
	newest->item = item;
}
