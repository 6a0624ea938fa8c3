/*
 * core/core_internal.h
 *		Declarations that only the files of the core share.
 */
#ifndef LE_CORE_INTERNAL_H
#define LE_CORE_INTERNAL_H

#include <assert.h>
#include <string.h>

#include "core.h"
#include "life.h"
#include "load.h"

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
	LE_HASH_OWNERS, /* has back links, because an owner may have very many holders in one lock */
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
	uint64_t bytes; /* approximate memory of everything that the role has */
} LeRole;

/* How a holder, a place or a lease ended, and when. */
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
	uint32_t answered; /* number of items whose replies were given with earlier batches */
	LeTime since;      /* time of the oldest release */
} LeLater;

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

	const LeLife *life; /* life of this manager */
	LeTime uptime;      /* set by le_core_set_uptime() */
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
	uint64_t nendings;            /* number of endings noted so far */

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
	LeLock *doomed; /* unused locks, which are freed with the batch unless they are used again */
	LeLink lapsed;  /* LAPSED entries, in order of lapsed_at */

	LeGroup *to_settle; /* groups that have left their queues, so that their locks must be settled */
};

/* --- core/later.c --- */

/*
 * Postpones writing the row of a slot that the release of this token has freed, if that is
 * possible.  The slot must not have been dirty in this batch before.
 */
extern void le_write_later(LeCore *core, LeSlot *slot, int64_t token, LeTime now);

/*
 * Functions for a core whose batch has failed. le_later_sort() sorts its releases; it is called
 * once. le_was_released() returns whether the holder in this row was released in an earlier batch,
 * even if the release has not been written.
 */
extern void le_later_sort(LeCore *core);
extern bool le_was_released(const LeCore *failed, const LeStoredEntry *row);

/*
 * Called during a load: records the release of a row that le_was_released() has found, so that
 * another load finds it, too, if no batch has succeeded by then.
 */
extern void le_later_go_on(LeCore *core, const LeStoredEntry *row);

/*
 * Called at the end of a batch, after its replies. any_left: whether some released rows are still
 * to be written.
 */
extern void le_later_batch_done(LeCore *core, bool any_left);

/* --- core/stats.c --- */

/* Counts the wait of a queued entry that is about to be granted or to end. */
extern void le_count_wait(LeCore *core, const LeEntry *entry, bool granted, LeTime now);
/* Counts the hold of a holder that is about to end or lapse. */
extern void le_count_hold(LeCore *core, const LeEntry *entry, LeTime now);

/* --- core/containers.c: pools, heap, lists, hashes --- */

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

static inline LeTime
le_add(LeTime a, LeTime b)
{
	return a > LE_NEVER - b ? LE_NEVER : a + b;
}

/*
 * Returns when the time left must be saved next, or LE_NEVER if the TTL is too short to need that.
 * The time left in the row was correct at (deadline - left), which is when the lease was last
 * renewed or its time left was last saved.
 */
static inline LeTime
le_save_at(LeTime ttl, LeTime deadline, const LeSaved *saved)
{
	LeTime left = saved->raised ? ttl : saved->left;

	return ttl > LE_SAVE_INTERVAL ? le_add(deadline - left, LE_SAVE_INTERVAL) : LE_NEVER;
}

/* --- core/saved.c: the time left, as the rows of leases record it --- */

/* Records this time left and the number of this life.  The caller must have the row written. */
extern void le_saved_set(LeCore *core, LeSaved *saved, LeTime left);
/* Does the same for an entry that is no longer renewed.  Keeps a raise, because it may not be flushed yet. */
extern void le_saved_fix(LeCore *core, LeSaved *saved, LeTime left);
/* Records what a load has read from the row. */
extern void le_saved_load(LeCore *core, LeSaved *saved, LeSaved as);
/* Notes that the lease no longer has a row, so that it no longer counts as unmarked. */
extern void le_saved_forget(LeCore *core, LeSaved *saved);
/*
 * Records a renewal of a lease whose row was last written at this LSN. Returns whether the row must
 * be written again, as a raise.
 */
extern bool le_saved_renew(LeCore *core, LeSaved *saved, LeTime ttl, bool dirty, uint64_t lsn);
/* Returns how much time a lease with this row would have left if the server crashed now. */
extern LeTime le_crash_left(const LeCore *core, const LeSaved *saved);

/* Fills in how long a renewed lease is valid after its row is flushed, and before. */
extern void le_reply_validity(const LeCore *core, LeReply *reply, const LeSaved *saved, LeTime ttl);

/*
 * le_reply_lease_validity() does the same for a lease that entries share.  Its client applies the
 * reply to all of them, so the reply gives no more time than the evicted holder that ends first has
 * left. le_lease_evicted_left() returns that time; LE_NEVER = no holder is evicted.
 */
extern void le_reply_lease_validity(const LeCore *core, LeReply *reply, const LeLease *lease, LeTime now);
extern LeTime le_lease_evicted_left(const LeLease *lease, LeTime now);

/*
 * Extends a lease so that it lasts at least this TTL from now on, and from each later renewal.  The
 * caller must have its row written.  Returns whether the TTL has changed.
 */
extern bool le_extend(LeCore *core, LeTime ttl, LeTime now, LeTime *own_ttl, LeTime *deadline,
					  LeSaved *saved);

/*
 * Returns le_save_at() of a holder or a place, or LE_NEVER if it is on a shared lease: then the time
 * left is stored in the lease's row.
 */
static inline LeTime
le_entry_save_at(const LeEntry *entry)
{
	return le_entry_has_own_time(entry) && (entry->state == LE_STATE_HELD || entry->place)
			   ? le_save_at(entry->ttl, entry->deadline, &entry->saved)
			   : LE_NEVER;
}

/* --- core/epoch.c --- */

/* Raises the epoch of this hash, so that sessions no longer trust what they remember of its holders. */
extern void le_epoch_raise(LeCore *core, uint32_t hash);
/* Raises the epoch of losses, because something on a lease has ended without a request from its client. */
extern void le_epoch_raise_losses(LeCore *core);
/* Raises the epochs of all names, and that of losses. */
extern void le_epoch_raise_all(LeCore *core);
/* Puts the epoch of the entry's name into the reply if the entry is HELD. */
extern void le_epoch_reply(const LeCore *core, LeReply *reply, const LeEntry *entry);

/* --- core/lock.c, core/entry.c, core/settle.c --- */

/*
 * Returns whether the entry's lease is draining.  Commands that name the entry's token then no
 * longer find it.
 */
static inline bool
le_entry_is_draining(const LeEntry *entry)
{
	return entry->lease != NULL && entry->lease->draining;
}

/* Returns whether the entry ends with its session. */
static inline bool
le_entry_is_bound(const LeEntry *entry)
{
	return entry->ttl == LE_TTL_BOUND;
}

/* Returns how an entry ends at its deadline. */
static inline LeEnd
le_end_by_time(const LeEntry *entry)
{
	return entry->evicted ? LE_END_EVICTED : LE_END_EXPIRED;
}

/* Called when the entry ends or lapses, so that its lease no longer counts it as evicted. */
static inline void
le_entry_not_evicted(LeEntry *entry)
{
	if (entry->lease != NULL)
		entry->lease->evicted -= entry->evicted;
	entry->evicted = false;
}

/* Returns the lock of this name.  Creates the lock if there is none. */
extern LeLock *le_lock_get(LeCore *core, LeKind kind, LeText name);

/* The properties of a new entry, from a command or from a row. */
typedef struct LeEntrySpec
{
	LeMode mode;
	bool place; /* a queue place, not a blocked call */
	LeTime ttl; /* microseconds; ignored if there is a lease */
	int64_t token;
	LeLease *lease; /* NULL = the entry has a lease of its own */
	LeText owner, value, acquirer;
	uint32_t role;
	uint64_t session; /* 0 = the session has ended */
	uint32_t sessno;
} LeEntrySpec;

/*
 * The life of an entry.  None of these functions can fail: a fenced holder lapses instead of ending.
 * le_entry_end_only() ends one of several entries; the caller must call le_settle_ended() after the
 * last one.
 */
extern LeEntry *le_entry_new(LeCore *core, LeLock *lock, const LeEntrySpec *spec);
extern void le_waiter_new(LeCore *core, LeEntry *entry, LeTime since);
extern void le_entry_set_state(LeEntry *entry, LeState from, LeState to);
extern void le_entry_queue(LeCore *core, LeEntry *entry, LeTime now);
extern void le_entry_grant(LeCore *core, LeEntry *entry, LeTime now);
extern void le_entry_end(LeCore *core, LeEntry *entry, LeEnd how, LeTime closed_until, LeTime now);
extern void le_entry_end_only(LeCore *core, LeEntry *entry, LeEnd how, LeTime closed_until, LeTime now);
extern void le_entry_lapse(LeCore *core, LeEntry *entry, LeEnd how, LeTime closed_until, LeTime since);
extern void le_settle_ended(LeCore *core, const LeEntry *before, LeTime now);
extern void le_entry_arm(LeCore *core, LeEntry *entry);

/*
 * Gives this reply to the call that waits for the entry, if there is one.  The reply is sent with
 * the batch.
 */
extern void le_answer(LeCore *core, LeEntry *entry, LeStatus status, int64_t token);
extern const bool le_modes_compatible[LE_MODE_PERMIT + 1][LE_MODE_PERMIT + 1];
extern bool le_lock_admits(const LeLock *lock, LeMode mode, LeTime now);
extern void le_lock_settle(LeCore *core, LeLock *lock, LeTime now);
extern void le_lock_arm(LeCore *core, LeLock *lock, LeTime now);
/*
 * Closes the lock until this moment; 0 = does nothing.  The closed name counts against the limits of this
 * role, which is that of the holder that has ended.
 */
extern void le_lock_close(LeCore *core, LeLock *lock, LeTime until, uint32_t role);
extern void le_lock_open(LeCore *core, LeLock *lock);
extern void le_entry_finish(LeCore *core, LeEntry *entry, LeEnd how, LeTime closed_until, LeTime now);
extern bool le_entry_reenter(LeCore *core, LeEntry *holder, LeTime ttl, LeTime now);
extern void le_entry_renew(LeCore *core, LeEntry *entry, LeTime now);

/*
 * le_slot_dirty() and le_place_dirty() have a row written with the batch. le_slot_add_free() makes
 * a slot free.
 */
extern void le_slot_dirty(LeCore *core, LeSlot *slot);
extern void le_slot_add_free(LeLock *lock, LeSlot *slot);
/* Returns a slot for one more holder. */
extern LeSlot *le_slot_take(LeCore *core, LeLock *lock);
extern void le_place_dirty(LeCore *core, LeEntry *entry);
/* Has the row of a holder or a place written with the batch. */
extern void le_entry_row_dirty(LeCore *core, LeEntry *entry);

/* --- core/news.c --- */

/* Adds a news item if the entry is on a lease: the entry was created, granted or evicted.  Must not fail. */
extern void le_news_add(LeCore *core, LeEntry *entry);
/*
 * Called by a load after a failed batch: copy the calls of a lease, and the number of the newest
 * news, from the failed core.
 */
extern void le_news_load_lease(LeCore *core, LeLease *lease, const LeLease *failed);
extern void le_news_load_begin(LeCore *core);
/*
 * Removes an entry that ends or lapses from its lease's news.  Adds a loss, unless the client asked
 * for that end.  Must not fail.
 */
extern void le_news_end(LeCore *core, LeEntry *entry, LeEnd how);

/* --- core/leases.c --- */

/* End a lease, handle its timer, renew it, have its row written, and arm its timer. */
extern void le_lease_end(LeCore *core, LeLease *lease, LeEnd how, LeTime now);
extern void le_lease_due(LeCore *core, LeLease *lease, LeTime now);
extern void le_lease_renew(LeCore *core, LeLease *lease, LeTime now);
extern void le_lease_dirty(LeCore *core, LeLease *lease);
extern void le_lease_arm(LeCore *core, LeLease *lease);
extern void le_lease_close(LeCore *core, LeLease *lease, LeEnd how);

/* Create a lease, then start it.  The last two functions are only for the lease of a single group. */
extern LeLease *le_lease_new(LeCore *core, int64_t id, LeTime ttl, uint32_t role);
extern void le_lease_start(LeCore *core, LeLease *lease, LeTime now);
extern void le_lease_set_ttl(LeCore *core, LeLease *lease, LeTime ttl);
extern void le_lease_extend(LeCore *core, LeLease *lease, LeTime ttl, LeTime now);

/* --- core/together.c, core/group.c: several locks at once --- */

/*
 * Returns whether each member of a waiting group is the first of its queue and admitted.  If so, the
 * group can be granted as a whole.
 */
extern bool le_group_ready(LeGroup *group, LeTime now);
extern void le_group_grant(LeCore *core, LeGroup *group, LeTime now);
/* Grants the group led by this entry.  Returns the number of new holders. */
extern uint32_t le_group_grant_members(LeCore *core, LeEntry *first, LeTime now);
extern void le_group_end(LeCore *core, LeGroup *group, LeEnd how, LeTime now);
extern LeEntry *le_group_lead(LeEntry *entry);
extern bool le_group_has_names(const LeCore *core, const LeEntry *entry, const LeCommand *cmd);
extern void le_group_load(LeCore *core, LeEntry *entry);

/* --- core/owner.c --- */

/* The holders by lock and named owner or lease, used to find the holder that a request re-enters. */
extern void le_owner_add(LeCore *core, LeEntry *entry);
extern void le_owner_remove(LeCore *core, LeEntry *entry);
extern bool le_owner_is_shared(const LeEntry *holder, uint64_t session);
extern LeEntry *le_lock_owned(const LeCore *core, const LeLock *lock, uint32_t role, LeText owner,
							  const LeLease *lease, uint64_t session);

/*
 * Returns LE_OK if a request of this mode, lease and TTL may be one more hold of this holder, else
 * an error.
 */
extern LeStatus le_reentry_status(const LeEntry *holder, LeMode mode, const LeLease *lease, LeTime ttl);

/* --- core/role.c --- */

/* A role's usage, counted as its limits count it. */
typedef struct LeUsage
{
	uint32_t entries;
	uint32_t leases;
	size_t bytes;
} LeUsage;

extern void le_role_add(LeCore *core, uint32_t id, LeUsage usage);
extern void le_role_remove(LeCore *core, uint32_t id, LeUsage usage);
/* Returns LE_OK if the role may have this much more, else the status of the limit that would be exceeded. */
extern LeStatus le_role_admits(const LeCore *core, uint32_t id, LeUsage usage);

/*
 * Return the usage of an entry, a lease, an uncommitted hold, a closed name and an ACQUIRE, and the
 * sum and the difference of two usages.
 */
extern LeUsage le_usage_of_entry(uint32_t name_len, uint32_t owner_len, uint32_t value_len);
extern LeUsage le_usage_of_lease(uint32_t owner_len);
extern LeUsage le_usage_of_hold(void);
extern LeUsage le_usage_of_closed(uint32_t name_len);
extern LeUsage le_usage_of_command(const LeCommand *cmd);
extern LeUsage le_usage_sum(LeUsage a, LeUsage b);
extern LeUsage le_usage_less(LeUsage a, LeUsage b);

/* --- core/acquirer.c --- */

/*
 * Records of acquirers, by text. le_acquirers_reserve() allocates the record that le_acquirer_get()
 * may need.
 */
extern bool le_acquirers_reserve(LeCore *core, LeText text);
extern LeAcquirer *le_acquirer_get(LeCore *core, LeText text);
extern LeAcquirer *le_acquirer_find(const LeCore *core, LeText text);
/* Drops one entry's reference to this record.  Frees the record with the last reference. */
extern void le_acquirer_drop(LeCore *core, LeAcquirer *acquirer);
extern void le_acquirers_destroy(LeCore *core);

/* --- core/changes.c --- */

/* The list of changes to be written to the history. */
extern bool le_changes_reserve(LeCore *core);
extern void le_change_add(LeCore *core, const LeEntry *entry, LeHow how, char *dropped, LeTime now);
extern void le_change_ended(LeCore *core, const LeEntry *entry, LeEnd how, LeTime now);
extern void le_change_lost(LeCore *core, LeLock *lock, const LeStoredEntry *row, LeEnd how, LeTime elected_at,
						   LeTime now);

/* --- core/uncommitted.c --- */

/* Holds of transactions that may still roll back. */
extern void le_uncommitted_add(LeCore *core, LeEntry *entry, uint64_t session, uint32_t sessno, uint32_t xact,
							   uint32_t subxact);
extern void le_uncommitted_take(LeCore *core, LeEntry *entry, const LeCommand *cmd, LeReply *reply);
extern void le_uncommitted_remove(LeCore *core, LeUncommitted *hold);
extern void le_uncommitted_move(LeEntry *to, LeEntry *from);
extern bool le_has_hold_of(const LeEntry *entry, uint64_t session);

/* --- core/reentry.c: one more hold of a holder --- */

extern LeEntry *le_reentry_find(const LeCore *core, const LeLock *lock, const LeSession *session,
								const LeCommand *cmd, const LeLease *lease);
extern LeEntry *le_reentry_joined(const LeCore *core, const LeLock *lock, const LeCommand *cmd,
								  const LeLease *lease);
extern LeStatus le_hold_check(const LeCore *core, const LeEntry *entry, LeUsage taken);
extern LeStatus le_reentry_check(const LeCore *core, const LeEntry *holder, const LeCommand *cmd,
								 const LeLease *lease, LeUsage taken);
extern void le_reentry_apply(LeCore *core, LeEntry *holder, const LeCommand *cmd, LeTime now, LeReply *reply);
extern void le_reply_holder(LeReply *reply, const LeEntry *holder, LeTime now);
/* Check whether a holder's value may be replaced, and replace it. */
extern LeStatus le_holder_admits_value(const LeCore *core, const LeEntry *holder, LeText value);
extern void le_holder_proclaim(LeCore *core, LeEntry *holder, const LeCommand *cmd, LeTime now);

/* --- core/acquire.c --- */

/* The outcome of a new request for one name. */
typedef enum LeWay
{
	LE_WAY_REFUSED,  /* an error, or not admitted and not allowed to wait */
	LE_WAY_REENTERS, /* one more hold of a holder */
	LE_WAY_PLACE,    /* the request already has this queue place */
	LE_WAY_GRANTED,
	LE_WAY_WAITS
} LeWay;

typedef struct LeDecision
{
	LeWay way;
	LeStatus status;
	bool blocked;   /* the lock does not admit the request now */
	LeEntry *entry; /* REENTERS: the holder; PLACE: the place */
} LeDecision;

extern LeDecision le_acquire_decide(const LeCore *core, const LeSession *session, const LeLock *lock,
									const LeCommand *cmd, const LeLease *lease, LeUsage taken, LeTime now);

/* The parts of an acquire. */
extern LeStatus le_acquire_lease(const LeCore *core, const LeCommand *cmd, LeTime now, LeLease **lease);
extern LeStatus le_acquire_use(const LeLock *lock, const LeCommand *cmd);
extern LeEntrySpec le_acquire_spec(LeCore *core, const LeCommand *cmd, LeLease *lease);
extern void le_requeue_stored(LeCore *core, LeEntry *entry, const LeCommand *cmd, LeTime now, LeReply *reply);
extern bool le_acquire_admitted(const LeLock *lock, const LeCommand *cmd, LeTime now);
extern LeEntry *le_same_place(const LeCore *core, const LeLock *lock, const LeLease *lease,
							  const LeCommand *cmd);
extern void le_place_again(LeCore *core, LeEntry *entry, const LeCommand *cmd, LeTime now, LeReply *reply);

/* --- the function of each command --- */

/* Applies a command.  Must not fail: le_core_reserve() has allocated what it needs. */
typedef void LeApply(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply);

/*
 * core/core.c: reports how the command's token or lease ended, if that is remembered and the role
 * is the same
 */
extern void le_reply_ending(const LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply);

/* core/acquire.c, core/group.c */
extern LeApply le_apply_acquire, le_apply_acquire_group, le_apply_await_group;

/* core/token.c */
extern LeApply le_apply_await, le_apply_renew, le_apply_release, le_apply_check, le_apply_proclaim;
/* core/force.c */
extern LeApply le_apply_force, le_apply_evict, le_apply_set_permits, le_apply_force_role;
/* core/leases.c */
extern LeApply le_apply_grant_lease, le_apply_lease;
/* core/sessions.c */
extern LeApply le_apply_undo, le_apply_session_end;

/* --- core/core.c --- */

/* Frees the entry, its owner and its value, and drops its acquirer. */
extern void le_entry_free(LeCore *core, LeEntry *entry);

/* --- core/reserve.c --- */

/* Reserve memory for entries or a lease, from a command or rows.  Return false if out of memory. */
extern bool le_reserve_entries(LeCore *core, LeKind kind, const LeText *names, uint32_t n,
							   const LeEntrySpec *spec);
extern bool le_reserve_lease(LeCore *core, LeText owner);
/*
 * le_prealloc_free() frees the copies of texts that no command has used; le_prealloc_take() uses
 * the next one.
 */
extern void le_prealloc_free(LeCore *core);
extern char *le_prealloc_take(LePrealloc *texts);

/* --- core/view.c --- */

/* Remembers how this token or lease ended, for later requests that refer to it. */
extern void le_note_ending(LeCore *core, int64_t token, uint32_t role, LeEnd how, LeTime now);

extern void le_reply_time(LeReply *reply, const LeEntry *entry, LeTime now);

/* Returns the LSN of the newest write that the entry depends on. */
extern uint64_t le_entry_lsn(const LeEntry *entry);

/* --- core/sessions.c --- */

/*
 * Notes a request of this session and transaction.  An older session with this number, and an older
 * transaction of this session, have ended.  Returns the session.
 */
extern LeSession *le_session_touch(LeCore *core, uint64_t session, uint32_t sessno, uint32_t xact,
								   LeTime now);
/* Makes the session's call wait for this entry. */
extern void le_session_wait(LeSession *session, LeEntry *entry, const LeCommand *cmd, LeTime now);
/*
 * le_held_by_session() returns whether the session has a slot of this lock. le_newest_of_session()
 * returns its newest holder that has not ended; NULL = none.
 */
extern bool le_held_by_session(const LeCore *core, const LeLock *lock, const LeCommand *cmd);
extern LeEntry *le_newest_of_session(const LeCore *core, const LeCommand *cmd);

#endif /* LE_CORE_INTERNAL_H */
