/*
 * core/struct.c
 *		Pools, the heap of deadlines, and hashes.
 *
 * Everything grows in a reserve function only, so that nothing that is called
 * from le_core_apply() can run out of memory.
 */
#include "internal.h"

#define CHUNK_OBJECTS 256
#define FIRST_BUCKETS 1024

/* --- pools --- */

void
le_pool_init(LePool *pool, size_t size)
{
	memset(pool, 0, sizeof(*pool));
	pool->size = size;
}

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
	chunk = core->env.alloc(core->env.arg, pool->size * CHUNK_OBJECTS);
	if (chunk == NULL)
		return false;
	memset(chunk, 0, pool->size * CHUNK_OBJECTS);
	pool->chunks[pool->nchunks++] = chunk;

	/* the lowest place is taken first */
	for (int i = CHUNK_OBJECTS - 1; i >= 0; i--)
	{
		void **object = (void **) (chunk + pool->size * (size_t) i);

		*object = pool->free_list;
		pool->free_list = object;
	}
	pool->nfree += CHUNK_OBJECTS;
	return true;
}

/* After this, n calls of le_pool_get() succeed. */
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

/* A zeroed object; le_pool_reserve() has made sure that there is one. */
void *
le_pool_get(LePool *pool)
{
	void *object = pool->free_list;

	assert(object != NULL && pool->nfree > 0);
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
le_pool_at(const LePool *pool, uint32_t place)
{
	assert(place < le_pool_indexes(pool));
	return pool->chunks[place / CHUNK_OBJECTS] + pool->size * (place % CHUNK_OBJECTS);
}

void
le_pool_destroy(LeCore *core, LePool *pool)
{
	for (uint32_t i = 0; i < pool->nchunks; i++)
		core->env.free(core->env.arg, pool->chunks[i]);
	if (pool->chunks != NULL)
		core->env.free(core->env.arg, pool->chunks);
	le_pool_init(pool, pool->size);
}

/* --- the heap of deadlines --- */

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
heap_place(LeHeap *heap, uint32_t i, LeTimer *timer)
{
	heap->items[i] = timer;
	timer->pos = i + 1;
}

static void
heap_up(LeHeap *heap, uint32_t i, LeTimer *timer)
{
	while (i > 0 && heap->items[(i - 1) / 2]->at > timer->at)
	{
		heap_place(heap, i, heap->items[(i - 1) / 2]);
		i = (i - 1) / 2;
	}
	heap_place(heap, i, timer);
}

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
		heap_place(heap, i, heap->items[child]);
		i = child;
	}
	heap_place(heap, i, timer);
}

/* Arm the timer, or move it; LE_NEVER clears it. */
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
	assert(heap->items[i] == timer);
	last = heap->items[--heap->len];
	timer->pos = 0;
	if (last == timer)
		return;
	if (last->at < timer->at)
		heap_up(heap, i, last);
	else
		heap_down(heap, i, last);
}

/* --- hashes --- */

static inline uint64_t
rotl(uint64_t x, int b)
{
	return (x << b) | (x >> (64 - b));
}

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
 * SipHash-1-3 (Aumasson and Bernstein, 2012, with one and three rounds):
 * names come from callers, who must not be able to make them collide.
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

/* Revisions are given out in sequence by the core, not chosen by callers. */
uint32_t
le_hash_id(int64_t id)
{
	return (uint32_t) (((uint64_t) id * UINT64_C(0x9e3779b97f4a7c15)) >> 32);
}

/* Those of a group share their token: each is found by its lock's name as well. */
static uint32_t
hash_token(int64_t token, uint32_t name_hash)
{
	return le_hash_id(token) ^ name_hash;
}

/*
 * All hashes, one way to grow: allocate, move every chain, free the old
 * one.  A macro because the chains run through different structs.
 */
#define DEFINE_GROW(fn, Type, table, buckets, count, next_field, hash_of)                                    \
	static bool fn(LeCore *core)                                                                             \
	{                                                                                                        \
		uint32_t n = core->buckets ? core->buckets * 2 : FIRST_BUCKETS;                                      \
		Type **t;                                                                                            \
                                                                                                             \
		if (core->buckets != 0 && core->count < core->buckets)                                               \
			return true;                                                                                     \
		t = core->env.alloc(core->env.arg, n * sizeof(Type *));                                              \
		if (t == NULL)                                                                                       \
			return false;                                                                                    \
		memset(t, 0, n * sizeof(Type *));                                                                    \
		for (uint32_t i = 0; i < core->buckets; i++)                                                         \
		{                                                                                                    \
			for (Type *o = core->table[i], *next; o != NULL; o = next)                                       \
			{                                                                                                \
				Type **bucket = &t[(hash_of) & (n - 1)];                                                     \
                                                                                                             \
				next = o->next_field;                                                                        \
				o->next_field = *bucket;                                                                     \
				*bucket = o;                                                                                 \
			}                                                                                                \
		}                                                                                                    \
		if (core->table != NULL)                                                                             \
			core->env.free(core->env.arg, core->table);                                                      \
		core->table = t;                                                                                     \
		core->buckets = n;                                                                                   \
		return true;                                                                                         \
	}                                                                                                        \
	struct LeCore

DEFINE_GROW(grow_locks, LeLock, lock_hash, lock_buckets, lock_count, hash_next, o->hash);
DEFINE_GROW(grow_tokens, LeEntry, token_hash, token_buckets, token_count, token_next,
			hash_token(o->token, o->lock->hash));
DEFINE_GROW(grow_leases, LeLease, lease_hash, lease_buckets, lease_count, hash_next, le_hash_id(o->id));
DEFINE_GROW(grow_roles, LeRole, role_hash, role_buckets, roles.used, hash_next, le_hash_id(o->id));

DEFINE_GROW(grow_acquirers, LeAcquirer, acquirer_hash, acquirer_buckets, acquirer_count, hash_next, o->hash);

bool
le_acquirer_hash_reserve(LeCore *core)
{
	return grow_acquirers(core);
}

bool
le_hashes_reserve(LeCore *core)
{
	return grow_locks(core) && grow_tokens(core) && grow_leases(core) && grow_roles(core);
}

void
le_lock_hash_add(LeCore *core, LeLock *lock)
{
	LeLock **bucket = &core->lock_hash[lock->hash & (core->lock_buckets - 1)];

	lock->hash_next = *bucket;
	*bucket = lock;
	core->lock_count++;
}

void
le_lock_hash_remove(LeCore *core, LeLock *lock)
{
	LeLock **p = &core->lock_hash[lock->hash & (core->lock_buckets - 1)];

	while (*p != lock)
		p = &(*p)->hash_next;
	*p = lock->hash_next;
	core->lock_count--;
}

LeLock *
le_core_find_lock(const LeCore *core, LeKind kind, LeText name)
{
	uint32_t hash = (uint32_t) le_hash_name(core, kind, name);
	LeLock *lock;

	if (core->lock_buckets == 0)
		return NULL;
	for (lock = core->lock_hash[hash & (core->lock_buckets - 1)]; lock != NULL; lock = lock->hash_next)
	{
		if (lock->hash == hash && lock->kind == kind &&
			le_text_equal(le_text(lock->name, lock->name_len), name))
			return lock;
	}
	return NULL;
}

static LeEntry **
token_bucket(const LeCore *core, int64_t token, uint32_t name_hash)
{
	return &core->token_hash[hash_token(token, name_hash) & (core->token_buckets - 1)];
}

void
le_token_hash_add(LeCore *core, LeEntry *entry)
{
	LeEntry **bucket = token_bucket(core, entry->token, entry->lock->hash);

	entry->token_next = *bucket;
	*bucket = entry;
	core->token_count++;
}

void
le_token_hash_remove(LeCore *core, LeEntry *entry)
{
	LeEntry **p = token_bucket(core, entry->token, entry->lock->hash);

	while (*p != entry)
		p = &(*p)->token_next;
	*p = entry->token_next;
	core->token_count--;
}

LeEntry *
le_core_find_token(const LeCore *core, int64_t token)
{
	for (uint32_t i = 0; i < core->token_buckets; i++)
	{
		for (LeEntry *entry = core->token_hash[i]; entry != NULL; entry = entry->token_next)
		{
			if (entry->token == token)
				return entry;
		}
	}
	return NULL;
}

LeEntry *
le_find_at(const LeCore *core, int64_t token, uint32_t name_hash)
{
	LeEntry *entry = core->token_buckets > 0 ? *token_bucket(core, token, name_hash) : NULL;

	while (entry != NULL && (entry->token != token || entry->lock->hash != name_hash))
		entry = entry->token_next;
	return entry;
}

LeEntry *
le_core_find_entry(const LeCore *core, LeKind kind, LeText name, int64_t token)
{
	LeEntry *entry = le_find_at(core, token, (uint32_t) le_hash_name(core, kind, name));

	while (entry != NULL && !(entry->token == token && entry->lock->kind == kind &&
							  le_text_equal(le_text(entry->lock->name, entry->lock->name_len), name)))
		entry = entry->token_next;
	return entry;
}

void
le_lease_hash_add(LeCore *core, LeLease *lease)
{
	LeLease **bucket = &core->lease_hash[le_hash_id(lease->id) & (core->lease_buckets - 1)];

	lease->hash_next = *bucket;
	*bucket = lease;
	core->lease_count++;
}

void
le_lease_hash_remove(LeCore *core, LeLease *lease)
{
	LeLease **p = &core->lease_hash[le_hash_id(lease->id) & (core->lease_buckets - 1)];

	while (*p != lease)
		p = &(*p)->hash_next;
	*p = lease->hash_next;
	core->lease_count--;
}

LeLease *
le_core_find_lease(const LeCore *core, int64_t id)
{
	LeLease *lease;

	if (core->lease_buckets == 0)
		return NULL;
	for (lease = core->lease_hash[le_hash_id(id) & (core->lease_buckets - 1)];
		 lease != NULL && lease->id != id; lease = lease->hash_next)
		;
	return lease;
}
