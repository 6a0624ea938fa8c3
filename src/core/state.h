/*
 * core/state.h
 *		The state of a core.  For the core alone.
 */
#ifndef LE_STATE_H
#define LE_STATE_H

#include <assert.h>
#include <string.h>

#include "env.h"
#include "objects.h"
#include "stored.h"

/* A pool of objects of one size, each with a stable address and a small index. */
typedef struct LePool
{
	size_t size; /* bytes per object */
	char **chunks;
	uint32_t nchunks;
	uint32_t max_chunks;
	uint32_t used;   /* objects in use */
	void *free_list; /* linked through the first word of each object */
	uint32_t nfree;
} LePool;

typedef struct LeHeap
{
	LeTimer **items;
	uint32_t len;
	uint32_t cap;
} LeHeap;

/* The hash tables; hash_of() in containers.c computes the hash of each table's key. */
typedef enum LeHashId
{
	LE_HASH_LOCKS,
	LE_HASH_TOKENS,
	LE_HASH_LEASES,
	LE_HASH_OWNERS, /* with back links, so that removal does not walk the chain: an owner may have very many
					 * holders in one lock */
	LE_HASH_ROLES,
	LE_HASH_ACQUIRERS,
	LE_HASHES
} LeHashId;

typedef struct LeHash
{
	LeHashLink **buckets;
	uint32_t size; /* number of buckets, a power of two; 0 before the first reserve */
	uint32_t count;
} LeHash;

/* A session's entries and uncommitted holds. */
typedef struct LeSession
{
	uint64_t id; /* 0 = no session */
	uint32_t xact;
	uint32_t bound; /* number of entries that end with the session */
	LeLink entries;
	LeLink uncommitted;  /* uncommitted holds */
	LeEntry *waiting_on; /* entry that the session's blocked call waits for; NULL = none */
} LeSession;

/* Preallocated copies of a command's texts, used in the order in which they were made. */
typedef struct LePrealloc
{
	char **items;
	uint32_t cap;
	uint32_t n;
	uint32_t taken;
} LePrealloc;

/* A role's usage. */
typedef struct LeRole
{
	LeHashLink hash_link;
	uint32_t id;
	uint32_t entries; /* number of entries, including closed names */
	uint32_t leases;
	uint64_t bytes; /* approximate memory of the role's entries and leases */
} LeRole;

/* A record of how and when a holder, a place or a lease ended. */
typedef struct LeEnding
{
	int64_t token;
	LeTime at;
	uint32_t role;
	uint8_t how; /* LeEnd */
} LeEnding;

/* Number of newest endings that are kept, to report how a token or a lease ended. */
#define LE_ENDINGS 1024

/* Minimum idle time of a row in the ring before it is given to another lock; microseconds. */
#define LE_IDLE_BEFORE_RECYCLED (100 * LE_MS)
/* Size of the ring of idle rows. */
#define LE_MAX_IDLE 4096
/* Size of the hash table of names that have lost their rows to other locks. */
#define LE_MAX_LOST 8192
/* Maximum number of releases whose rows are not written yet. */
#define LE_MAX_LATER 4096

/* Idle rows of slots that have no holder, see core/recycle.c. */
typedef struct LeIdleRows
{
	struct
	{
		LeSlot *slot;
		LeTime since;
	} ring[LE_MAX_IDLE];
	uint32_t first;
	uint32_t n;
	uint32_t lost[LE_MAX_LOST];
} LeIdleRows;

typedef struct LeReleased
{
	int64_t token;
	uint64_t name_hash;
} LeReleased;

/* Releases whose rows are written later, see core/later.c. */
typedef struct LeLater
{
	LeReleased items[LE_MAX_LATER];
	uint32_t n;
	uint32_t answered; /* number of items whose replies were sent with earlier batches */
	LeTime since;      /* time of the oldest release */
} LeLater;

/* The state of a core. */
struct LeCore
{
	LeEnv env;
	LeLimits limits;
	LeStats stats;
	int64_t next_revision;
	LeSession *sessions;
	uint32_t max_sessions;

	LePool locks, slots, entries, waiters, uncommitted, leases, groups, roles, change_pool;
	LeHeap heap;
	uint32_t queued;       /* number of QUEUED entries in all locks */
	LeLink waits;          /* waiters for locks (not elections), in order of arrival */
	uint32_t candidates;   /* number of election entries */
	bool loading;          /* true from le_core_load_begin() to le_core_load_done() */
	LeGroup *loaded_group; /* group of the queue place that the load has read last */
	LeLoadEnv load;        /* environment of the load */

	const LeLife *life; /* this manager's life, see core/life.h */
	LeTime uptime;      /* how long this life has lasted so far; set by le_core_set_uptime() */
	uint32_t unmarked;  /* number of leases, own and named, whose rows were written in an earlier life */
	bool unwritable;    /* rows cannot be written now */
	bool wanted_to_write;

	LeHash hashes[LE_HASHES];

	/* copies of the command's texts, made by le_core_reserve() */
	LePrealloc prealloc_names, prealloc_owners;
	char *prealloc_value;
	LeAcquirer *prealloc_acquirer; /* NULL = a record with this text exists already */

	int64_t work;   /* work done so far in this batch, see LeLimits.work */
	LeTime horizon; /* only deadlines up to this moment count as passed */

	uint64_t lease_ended_lsn; /* LSN of the newest batch in which a lease ended */
	uint64_t news;            /* number of the newest news item of all leases; a load after a failed batch
							   * continues the count */
	uint64_t batches;         /* number of finished batches */
	int64_t releaser;         /* lease of the client whose RELEASE is being applied; 0 = none */

	LeEnding endings[LE_ENDINGS]; /* ring buffer, see nendings */
	uint64_t nendings;            /* number of endings recorded so far */

	LeIdleRows idle;
	LeLater later;

	/* effects of the batch */
	LeSlot *dirty_slots;
	LeLease *dirty_leases;
	LeEntry *dirty_places;
	LeEntry *answers;
	LeEntry **answers_tail; /* replies are sent in the order of the grants */
	LeChange *changes;
	LeChange **changes_tail;
	LeEntry *ended;
	LeWaiter *left; /* waiters whose entries left the queues in this batch */
	LeLock *doomed; /* unused locks; each is freed at the end of the batch unless it is used again */
	LeLink lapsed;  /* LAPSED entries, in order of lapsed_at */

	LeGroup *to_settle; /* groups that have left their queues, so their locks must be settled */
};

/* The properties of a new entry, from a command or from a row. */
typedef struct LeEntrySpec
{
	LeMode mode;
	bool place; /* a queue place, not a blocked call */
	LeTime ttl; /* microseconds; ignored if lease is set */
	int64_t token;
	LeLease *lease; /* NULL = the entry has a lease of its own */
	LeText owner, value, acquirer;
	uint32_t role;
	uint64_t session; /* 0 = the session has ended */
	uint32_t sessno;
} LeEntrySpec;

/* --- small helpers --- */

static inline LeText
le_text(const char *data, uint32_t len)
{
	return (LeText){data, len};
}

static inline bool
le_text_equal(LeText a, LeText b)
{
	return (a.data == NULL) == (b.data == NULL) && a.len == b.len &&
		   (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

static inline bool
le_is_over(const LeCore *core, LeTime deadline, LeTime now)
{
	return deadline <= now && deadline <= core->horizon;
}

#endif /* LE_STATE_H */
