/*
 * core/containers.c
 *		Pools, the heap of timers, and hash tables.
 *
 * Only the reserve functions allocate memory, so that functions called from
 * le_core_apply() cannot run out of memory.
 */
#include "containers.h"
#include "state.h"

#define CHUNK_OBJECTS 256
#define FIRST_BUCKETS 1024

/* --- memory --- */

void
le_free_array(LeCore *core, void *array)
{
	if (array != NULL)
		core->env.free(core->env.arg, array);
}

void
le_free_text(LeCore *core, char **text)
{
	if (*text != NULL)
		core->env.free(core->env.arg, *text);
	*text = NULL;
}

/* --- pools --- */

void
le_pool_init(LePool *pool, size_t size)
{
	assert(pool->chunks == NULL && pool->used == 0); /* the core has been zeroed */
	pool->size = size;
}

/* Adds room for more objects.  Existing objects keep their addresses.  Returns false if out of memory. */
static bool
pool_add_chunk(LeCore *core, LePool *pool)
{
	char *chunk;

	if (pool->nchunks == pool->max_chunks)
	{
		uint32_t max = pool->max_chunks ? pool->max_chunks * 2 : 16;
		char **chunks = core->env.alloc(core->env.arg, max * sizeof(char *));

		if (chunks == NULL)
			return false;
		if (pool->chunks != NULL)
		{
			memcpy(chunks, pool->chunks, pool->nchunks * sizeof(char *));
			core->env.free(core->env.arg, pool->chunks);
		}
		pool->chunks = chunks;
		pool->max_chunks = max;
	}

	/* allocate the chunk, and zero its objects */
	chunk = core->env.alloc(core->env.arg, pool->size * CHUNK_OBJECTS);
	if (chunk == NULL)
		return false;
	memset(chunk, 0, pool->size * CHUNK_OBJECTS);
	pool->chunks[pool->nchunks++] = chunk;

	/* link the objects in reverse, so that the one with the lowest index is used first */
	for (int i = CHUNK_OBJECTS - 1; i >= 0; i--)
	{
		void **object = (void **) (chunk + pool->size * (size_t) i);

		*object = pool->free_list;
		pool->free_list = object;
	}
	pool->nfree += CHUNK_OBJECTS;
	return true;
}

/* Reserves n objects, so that n calls of le_pool_get() succeed.  Returns false if out of memory. */
bool
le_pool_reserve(LeCore *core, LePool *pool, uint32_t n)
{
	while (pool->nfree < n)
	{
		if (!pool_add_chunk(core, pool))
			return false;
	}
	return true;
}

/* Returns a zeroed object, which le_pool_reserve() has reserved. */
void *
le_pool_get(LePool *pool)
{
	void *object = pool->free_list;

	assert(object != NULL && pool->nfree > 0 && pool->used + pool->nfree == le_pool_indexes(pool));
	pool->free_list = *(void **) object;
	pool->nfree--;
	pool->used++;
	memset(object, 0, pool->size);
	return object;
}

void
le_pool_put(LePool *pool, void *object)
{
	assert(pool->used > 0);
	assert(object != NULL && object != pool->free_list);
	memset(object, 0, pool->size);
	*(void **) object = pool->free_list;
	pool->free_list = object;
	pool->nfree++;
	pool->used--;
}

uint32_t
le_pool_indexes(const LePool *pool)
{
	return pool->nchunks * CHUNK_OBJECTS;
}

void *
le_pool_at(const LePool *pool, uint32_t index)
{
	assert(index < le_pool_indexes(pool));
	return pool->chunks[index / CHUNK_OBJECTS] + pool->size * (index % CHUNK_OBJECTS);
}

void
le_pool_destroy(LeCore *core, LePool *pool)
{
	for (uint32_t i = 0; i < pool->nchunks; i++)
		core->env.free(core->env.arg, pool->chunks[i]);
	if (pool->chunks != NULL)
		core->env.free(core->env.arg, pool->chunks);
}

/* --- the heap of timers --- */

bool
le_heap_reserve(LeCore *core, uint32_t cap)
{
	LeHeap *heap = &core->heap;
	uint32_t new_cap = heap->cap ? heap->cap : CHUNK_OBJECTS;
	LeTimer **items;

	if (cap <= heap->cap)
		return true;
	while (new_cap < cap)
		new_cap *= 2;
	items = core->env.alloc(core->env.arg, new_cap * sizeof(LeTimer *));
	if (items == NULL)
		return false;
	if (heap->items != NULL)
	{
		memcpy(items, heap->items, heap->len * sizeof(LeTimer *));
		core->env.free(core->env.arg, heap->items);
	}
	heap->items = items;
	heap->cap = new_cap;
	return true;
}

static void
heap_put(LeHeap *heap, uint32_t i, LeTimer *timer)
{
	assert(i < heap->len);
	heap->items[i] = timer;
	timer->pos = i + 1;
}

static void
heap_up(LeHeap *heap, uint32_t i, LeTimer *timer)
{
	while (i > 0 && heap->items[(i - 1) / 2]->at > timer->at)
	{
		heap_put(heap, i, heap->items[(i - 1) / 2]);
		i = (i - 1) / 2;
	}
	heap_put(heap, i, timer);
}

/* Puts a timer at this index of the heap, or below this index if a child fires before the timer. */
static void
heap_down(LeHeap *heap, uint32_t i, LeTimer *timer)
{
	for (;;)
	{
		uint32_t child = 2 * i + 1;

		if (child >= heap->len)
			break;
		if (child + 1 < heap->len && heap->items[child + 1]->at < heap->items[child]->at)
			child++;
		if (heap->items[child]->at >= timer->at)
			break;
		heap_put(heap, i, heap->items[child]);
		i = child;
	}
	heap_put(heap, i, timer);
}

/* Arms a timer, or changes its time; LE_NEVER disarms it. */
void
le_timer_set(LeCore *core, LeTimer *timer, LeTime at)
{
	LeHeap *heap = &core->heap;

	if (at == LE_NEVER)
	{
		le_timer_clear(core, timer);
		return;
	}
	if (timer->pos == 0)
	{
		assert(heap->len < heap->cap);
		timer->at = at;
		heap->len++;
		heap_up(heap, heap->len - 1, timer);
	}
	else if (at < timer->at)
	{
		timer->at = at;
		heap_up(heap, timer->pos - 1, timer);
	}
	else if (at > timer->at)
	{
		timer->at = at;
		heap_down(heap, timer->pos - 1, timer);
	}
}

void
le_timer_clear(LeCore *core, LeTimer *timer)
{
	LeHeap *heap = &core->heap;
	LeTimer *last;
	uint32_t i;

	if (timer->pos == 0)
		return;
	i = timer->pos - 1;
	assert(i < heap->len && heap->items[i] == timer);
	last = heap->items[--heap->len];
	timer->pos = 0;
	if (last == timer)
		return;
	if (last->at < timer->at)
		heap_up(heap, i, last);
	else
		heap_down(heap, i, last);
}

/* --- hash tables --- */

static inline uint64_t
rotl(uint64_t x, int b)
{
	return (x << b) | (x >> (64 - b));
}

/* One round of SipHash. */
static inline void
sip_round(uint64_t v[4])
{
	v[0] += v[1];
	v[1] = rotl(v[1], 13) ^ v[0];
	v[0] = rotl(v[0], 32);
	v[2] += v[3];
	v[3] = rotl(v[3], 16) ^ v[2];
	v[0] += v[3];
	v[3] = rotl(v[3], 21) ^ v[0];
	v[2] += v[1];
	v[1] = rotl(v[1], 17) ^ v[2];
	v[2] = rotl(v[2], 32);
}

/*
 * SipHash-1-3 (Aumasson and Bernstein, 2012, with one and three rounds).  Callers choose names, and
 * must not be able to create collisions.
 */
uint64_t
le_hash_name(const LeCore *core, LeKind kind, LeText name)
{
	uint64_t k0 = core->env.seed[0], k1 = core->env.seed[1] ^ (uint64_t) kind;
	uint64_t v[4] = {k0 ^ UINT64_C(0x736f6d6570736575), k1 ^ UINT64_C(0x646f72616e646f6d),
					 k0 ^ UINT64_C(0x6c7967656e657261), k1 ^ UINT64_C(0x7465646279746573)};
	uint64_t tail = (uint64_t) name.len << 56;
	uint32_t i = 0;

	for (; i + 8 <= name.len; i += 8)
	{
		uint64_t word;

		memcpy(&word, name.data + i, 8);
		v[3] ^= word;
		sip_round(v);
		v[0] ^= word;
	}
	for (int shift = 0; i < name.len; i++, shift += 8)
		tail |= (uint64_t) (unsigned char) name.data[i] << shift;
	v[3] ^= tail;
	sip_round(v);
	v[0] ^= tail;
	v[2] ^= 0xff;
	for (int round = 0; round < 3; round++)
		sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* Returns a simple hash of an id.  It is enough, because callers cannot choose ids. */
uint32_t
le_hash_id(int64_t id)
{
	return (uint32_t) (((uint64_t) id * UINT64_C(0x9e3779b97f4a7c15)) >> 32);
}

uint32_t
le_owner_hash(const LeCore *core, const LeLock *lock, uint32_t role, LeText owner)
{
	return (uint32_t) le_hash_name(core, lock->kind, owner) + lock->hash + le_hash_id(role);
}

uint32_t
le_hash_token(int64_t token, uint32_t name_hash)
{
	return le_hash_id(token) ^ name_hash;
}

/* Returns the hash of a link's key in its hash table. */
static uint32_t
hash_of(const LeCore *core, LeHashId id, const LeHashLink *link)
{
	const LeEntry *entry;

	switch (id)
	{
		case LE_HASH_LOCKS:
			return le_container(link, LeLock, hash_link)->hash;
		case LE_HASH_TOKENS:
			entry = le_container(link, LeEntry, token_link);
			return le_hash_token(entry->token, entry->lock->hash);
		case LE_HASH_LEASES:
			return le_hash_id(le_container(link, LeLease, hash_link)->id);
		case LE_HASH_OWNERS:
			entry = le_container(link, LeEntry, owner_link.link);
			return le_owner_hash(core, entry->lock, entry->role, le_text(entry->owner, entry->owner_len));
		case LE_HASH_ROLES:
			return le_hash_id(le_container(link, LeRole, hash_link)->id);
		default:
			assert(id == LE_HASH_ACQUIRERS);
			return le_container(link, LeAcquirer, hash_link)->hash;
	}
}

/* Makes a bucket, or the next pointer of a link, point to this link.  Sets this link's back pointer. */
static void
point_to(LeHashId id, LeHashLink **from, LeHashLink *link)
{
	*from = link;
	if (id == LE_HASH_OWNERS && link != NULL)
		((LeHashBackLink *) link)->back = from;
}

static void
chain_add(LeHashId id, LeHashLink **bucket, LeHashLink *link)
{
	point_to(id, &link->next, *bucket);
	point_to(id, bucket, link);
}

/* Doubles the table.  All doublings together move each link about once.  Returns false if out of memory. */
static bool
grow(LeCore *core, LeHashId id)
{
	LeHash *table = &core->hashes[id];
	LeHash larger = {.size = table->size > 0 ? table->size * 2 : FIRST_BUCKETS, .count = table->count};

	larger.buckets = core->env.alloc(core->env.arg, larger.size * sizeof(LeHashLink *));
	if (larger.buckets == NULL)
		return false;
	memset(larger.buckets, 0, larger.size * sizeof(LeHashLink *));
	le_hash_foreach_all(link, next, core, id)
		chain_add(id, &larger.buckets[hash_of(core, id, link) & (larger.size - 1)], link);
	if (table->buckets != NULL)
		core->env.free(core->env.arg, table->buckets);
	*table = larger;
	return true;
}

bool
le_hashes_reserve(LeCore *core)
{
	for (LeHashId id = 0; id < LE_HASHES; id++)
	{
		if (core->hashes[id].count >= core->hashes[id].size && !grow(core, id))
			return false;
	}
	return true;
}

void
le_hashes_destroy(LeCore *core)
{
	for (LeHashId id = 0; id < LE_HASHES; id++)
	{
		if (core->hashes[id].buckets != NULL)
			core->env.free(core->env.arg, core->hashes[id].buckets);
	}
}

void
le_hash_add(LeCore *core, LeHashId id, LeHashLink *link)
{
	LeHash *table = &core->hashes[id];

	/* a command with several names may fill a table beyond its size; the next reserve doubles the table */
	assert(table->size > 0);
	chain_add(id, &table->buckets[hash_of(core, id, link) & (table->size - 1)], link);
	table->count++;
}

void
le_hash_remove(LeCore *core, LeHashId id, LeHashLink *link)
{
	LeHash *table = &core->hashes[id];
	LeHashLink **from;

	if (id == LE_HASH_OWNERS)
	{
		from = ((LeHashBackLink *) link)->back;
		assert(from != NULL && *from == link);
		((LeHashBackLink *) link)->back = NULL;
	}
	else
	{
		from = &table->buckets[hash_of(core, id, link) & (table->size - 1)];
		while (*from != link)
			from = &(*from)->next;
	}
	assert(table->count > 0);
	point_to(id, from, link->next);
	table->count--;
}
