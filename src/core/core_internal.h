/*
 * core/core_internal.h
 *		What the files of the core share with each other only.
 */
#ifndef LE_CORE_INTERNAL_H
#define LE_CORE_INTERNAL_H

#include <assert.h>
#include <string.h>

#include "core.h"
#include "life.h"
#include "load.h"

/* Objects of one size with stable addresses and small numbers (indexes). */
typedef struct LePool
{
	size_t size; /* of an object */
	char **chunks;
	uint32_t nchunks;
	uint32_t max_chunks;
	uint32_t used;   /* objects in use */
	void *free_list; /* linked through the first word */
	uint32_t nfree;
} LePool;

typedef struct LeHeap
{
	LeTimer **items;
	uint32_t len;
	uint32_t cap;
} LeHeap;

/* The hash tables; hash_of() in containers.c has the key of each. */
typedef enum LeHashId
{
	LE_HASH_LOCKS,
	LE_HASH_TOKENS,
	LE_HASH_LEASES,
	LE_HASH_OWNERS, /* of back links: an owner may have very many holders in one lock */
	LE_HASH_ROLES,
	LE_HASH_ACQUIRERS,
	LE_HASHES
} LeHashId;

typedef struct LeHash
{
	LeHashLink **buckets;
	uint32_t size; /* a power of two; 0 before the first reserve */
	uint32_t count;
} LeHash;

/* A session's entries and uncommitted holds. */
typedef struct LeSession
{
	uint64_t id; /* 0: none */
	uint32_t xact;
	uint32_t bound; /* entries that end with it */
	LeLink entries;
	LeLink uncommitted;  /* holds */
	LeEntry *waiting_on; /* what its blocked call waits for */
} LeSession;

/* Copies of a command's texts, to be taken in their order. */
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
	uint32_t entries; /* closed names count */
	uint32_t leases;
	uint64_t bytes; /* of both, about */
} LeRole;

/* An end of a holder, a place or a lease. */
typedef struct LeEnding
{
	int64_t token;
	LeTime at;
	uint32_t role;
	uint8_t how; /* LeEnd */
} LeEnding;

/* The newest ends that are kept, to tell what has become of a token. */
#define LE_ENDINGS 1024

/* How long a row is idle before another lock takes it over. */
#define LE_IDLE_BEFORE_RECYCLED (100 * LE_MS)
/* Idle rows that are remembered. */
#define LE_MAX_IDLE 4096
/* Names that are remembered to have lost their rows, by their hashes. */
#define LE_MAX_LOST 8192
/* Releases that wait to be written, at most. */
#define LE_MAX_LATER 4096

/* Rows that nobody uses, see core/recycle.c. */
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
	uint32_t answered; /* of them: those of earlier batches */
	LeTime since;      /* of the oldest */
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
	uint32_t queued;       /* entries in state QUEUED, all locks */
	LeLink waits;          /* those that wait for locks, as they came */
	uint32_t candidates;   /* entries of elections */
	bool loading;          /* from le_core_load_begin() to le_core_load_done() */
	LeGroup *loaded_group; /* while loading: of the place that was read last */
	LeLoadEnv load;        /* of the rows while loading */

	const LeLife *life; /* of this manager */
	LeTime uptime;      /* of this life, as le_core_set_uptime() has told it */
	uint32_t unmarked;  /* leases, own and named, whose rows are of an earlier life */
	bool unwritable;    /* no row can be written now */
	bool wanted_to_write;

	LeHash hashes[LE_HASHES];

	/* copies of the command's texts, made by le_core_reserve() */
	LePrealloc prealloc_names, prealloc_owners;
	char *prealloc_value;
	LeAcquirer *prealloc_acquirer; /* NULL: there is one with this text */

	int64_t work;   /* of this batch, see LeLimits */
	LeTime horizon; /* no deadline after this has passed */

	uint64_t lease_ended_lsn; /* of the newest batch in which a lease has ended */
	uint64_t news;            /* number of the newest news of all leases; a load after a failure goes on */
	uint64_t batches;         /* that are done */
	int64_t releaser;         /* lease whose client the RELEASE under way comes from; 0 */

	LeEnding endings[LE_ENDINGS]; /* a ring */
	uint64_t nendings;            /* so many ever */

	LeIdleRows idle;
	LeLater later;

	/* effects of the batch */
	LeSlot *dirty_slots;
	LeLease *dirty_leases;
	LeEntry *dirty_places;
	LeEntry *answers;
	LeEntry **answers_tail; /* answers go out in the order of the grants */
	LeChange *changes;
	LeChange **changes_tail;
	LeEntry *ended;
	LeWaiter *left; /* their entries have left the queues */
	LeLock
		*doomed;   /* locks that nobody needs any more, freed with the batch unless they are taken up again */
	LeLink lapsed; /* entries in state LAPSED, by lapsed_at */

	LeGroup *to_settle; /* groups that have left their queues: their locks are
								 * to be settled */
};

/* --- core/later.c --- */

/*
 * The release of this token has freed a slot that was not dirty in this batch: its row need
 * not be written with it, if nobody has been granted the slot meanwhile.
 */
extern void le_write_later(LeCore *core, LeSlot *slot, int64_t token, LeTime now);

/*
 * Of a core whose batch has failed: sort the tokens, once; then: was this one released in an
 * earlier batch, and is its row perhaps not written?
 */
extern void le_later_sort(LeCore *core);
extern bool le_was_released(const LeCore *failed, const LeStoredEntry *row);

/* While loading: a row that is free because of that is so for the next load too, until a batch is done. */
extern void le_later_go_on(LeCore *core, const LeStoredEntry *row);

/* At the end of a batch: what is left is answered. */
extern void le_later_batch_done(LeCore *core, bool any_left);

/* --- core/stats.c --- */

/* A queued entry is about to be granted, or to end without that. */
extern void le_count_wait(LeCore *core, const LeEntry *entry, bool granted, LeTime now);
/* A holder ends. */
extern void le_count_hold(LeCore *core, const LeEntry *entry, LeTime now);

/* --- core/containers.c: pools, heap, lists, hashes --- */

/* Objects of one size: reserve, then get without fail; each keeps its index for life. */
extern void le_pool_init(LePool *pool, size_t size);
extern bool le_pool_reserve(LeCore *core, LePool *pool, uint32_t n);
extern void *le_pool_get(LePool *pool);
extern void le_pool_put(LePool *pool, void *object);
extern uint32_t le_pool_indexes(const LePool *pool);
extern void *le_pool_at(const LePool *pool, uint32_t index);
extern void le_pool_destroy(LeCore *core, LePool *pool);

/* The heap of timers: the earliest is the first of its items. */
extern bool le_heap_reserve(LeCore *core, uint32_t cap);
extern void le_timer_set(LeCore *core, LeTimer *timer, LeTime at);
extern void le_timer_clear(LeCore *core, LeTimer *timer);

/* NULL is nothing to free; the text is NULL afterwards. */
extern void le_free_array(LeCore *core, void *array);
extern void le_free_text(LeCore *core, char **text);

/* The hash tables; le_hashes_reserve() makes room for one more in each. */
extern uint64_t le_hash_name(const LeCore *core, LeKind kind, LeText name);
extern uint32_t le_hash_id(int64_t id);
/* A named owner of a lock, to find a holder that re-enters. */
extern uint32_t le_owner_hash(const LeCore *core, const LeLock *lock, uint32_t role, LeText owner);
extern bool le_hashes_reserve(LeCore *core);
extern void le_hashes_destroy(LeCore *core);
extern void le_hash_add(LeCore *core, LeHashId id, LeHashLink *link);
extern void le_hash_remove(LeCore *core, LeHashId id, LeHashLink *link);
/* Entries of a group share their token: each is found by its lock's name as well. */
extern uint32_t le_hash_token(int64_t token, uint32_t name_hash);

/* The chain with everything of this hash; other hashes are in it too. */
static inline LeHashLink *
le_hash_chain(const LeCore *core, LeHashId id, uint32_t hash)
{
	const LeHash *table = &core->hashes[id];

	return table->size > 0 ? table->buckets[hash & (table->size - 1)] : NULL;
}

#define le_hash_foreach(it, core, id, hash)                                                                  \
	for (LeHashLink *it = le_hash_chain(core, id, hash); it != NULL; it = it->next)

/* Everything in the table; the loop may free "it". */
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
 * The time left that a row has was right at deadline less that: when the lease was renewed, or its
 * time left saved.  When it is to be saved next; LE_NEVER: the row says enough.
 */
static inline LeTime
le_save_at(LeTime ttl, LeTime deadline, const LeSaved *saved)
{
	LeTime left = saved->raised ? ttl : saved->left;

	return ttl > LE_SAVE_INTERVAL ? le_add(deadline - left, LE_SAVE_INTERVAL) : LE_NEVER;
}

/* --- core/saved.c: what rows say of the time that leases have left --- */

/* The row has this much, and is of this life; it is to be written. */
extern void le_saved_set(LeCore *core, LeSaved *saved, LeTime left);
/* The same of one that is renewed no more.  An earlier raise may not be flushed: it stays one. */
extern void le_saved_fix(LeCore *core, LeSaved *saved, LeTime left);
/* As a load has read it. */
extern void le_saved_load(LeCore *core, LeSaved *saved, LeSaved as);
/* The lease has no row any more. */
extern void le_saved_forget(LeCore *core, LeSaved *saved);
/* The lease was renewed; its row was written last at this LSN.  Returns whether the row is to be raised. */
extern bool le_saved_renew(LeCore *core, LeSaved *saved, LeTime ttl, bool dirty, uint64_t lsn);
/* What would be left of a lease with this row after a crash at this moment. */
extern LeTime le_crash_left(const LeCore *core, const LeSaved *saved);

/* A renewal was applied: how long the lease is valid, once the row is flushed, and before that. */
extern void le_reply_validity(const LeCore *core, LeReply *reply, const LeSaved *saved, LeTime ttl);

/*
 * The same of a lease: its client believes it of all that hangs on it, so no longer than the first of
 * its evicted holders (LE_NEVER: it has none) may work.
 */
extern void le_reply_lease_validity(const LeCore *core, LeReply *reply, const LeLease *lease, LeTime now);
extern LeTime le_lease_evicted_left(const LeLease *lease, LeTime now);

/*
 * At least this TTL from now on, and from each renewal: the lease is never made shorter.
 * Its row is to be written.  Returns whether the TTL is another one.
 */
extern bool le_extend(LeCore *core, LeTime ttl, LeTime now, LeTime *own_ttl, LeTime *deadline,
					  LeSaved *saved);

/* As le_save_at(), for a holder or a place; a lease that others hang on saves its own. */
static inline LeTime
le_entry_save_at(const LeEntry *entry)
{
	return le_entry_has_own_time(entry) && (entry->state == LE_STATE_HELD || entry->place)
			   ? le_save_at(entry->ttl, entry->deadline, &entry->saved)
			   : LE_NEVER;
}

/* --- core/epoch.c --- */

/* Invalidate what sessions remember of holders in this bucket. */
extern void le_epoch_raise(LeCore *core, uint32_t hash);
/* Something on a lease has ended that its client has not asked for. */
extern void le_epoch_raise_losses(LeCore *core);
/* Those of all names, and of the losses. */
extern void le_epoch_raise_all(LeCore *core);
/* The epoch in which this entry holds, if it does. */
extern void le_epoch_reply(const LeCore *core, LeReply *reply, const LeEntry *entry);

/* --- core/entry.c: how entries enter, are granted and end --- */

/* Is the lease that it hangs on draining?  Then it is nobody's already. */
static inline bool
le_entry_is_draining(const LeEntry *entry)
{
	return entry->lease != NULL && entry->lease->draining;
}

/* Does the entry end with its session? */
static inline bool
le_entry_is_bound(const LeEntry *entry)
{
	return entry->ttl == LE_TTL_BOUND;
}

/* How an entry ends when its time is over. */
static inline LeEnd
le_end_by_time(const LeEntry *entry)
{
	return entry->evicted ? LE_END_EVICTED : LE_END_EXPIRED;
}

/* It ends, or lapses: its lease does not count it any more. */
static inline void
le_entry_not_evicted(LeEntry *entry)
{
	if (entry->lease != NULL)
		entry->lease->evicted -= entry->evicted;
	entry->evicted = false;
}

/* The lock of that name, made if there is none. */
extern LeLock *le_lock_get(LeCore *core, LeKind kind, LeText name);

/* A new entry, as a command asks for it or a row tells of it. */
typedef struct LeEntrySpec
{
	LeMode mode;
	bool place; /* in the queue, not in a call that waits */
	LeTime ttl; /* unless it hangs on a named lease */
	int64_t token;
	LeLease *lease; /* NULL: a lease of its own */
	LeText owner, value, acquirer;
	uint32_t role;
	uint64_t session; /* 0: gone */
	uint32_t sessno;
} LeEntrySpec;

/*
 * The life of an entry.  None of these may fail: a fenced holder that ends lapses instead.
 * le_entry_end_only() is for several at once: le_settle_ended() has to follow.
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

/* Answer the waiter of an entry, if there is one, with the batch. */
extern void le_answer(LeCore *core, LeEntry *entry, LeStatus status, int64_t token);
extern const bool le_modes_compatible[LE_MODE_PERMIT + 1][LE_MODE_PERMIT + 1];
extern bool le_lock_admits(const LeLock *lock, LeMode mode, LeTime now);
extern void le_lock_settle(LeCore *core, LeLock *lock, LeTime now);
extern void le_lock_arm(LeCore *core, LeLock *lock, LeTime now);
/* A holder of this role leaves it closed until then; 0: open.  It counts for that role. */
extern void le_lock_close(LeCore *core, LeLock *lock, LeTime until, uint32_t role);
extern void le_lock_open(LeCore *core, LeLock *lock);
extern void le_entry_finish(LeCore *core, LeEntry *entry, LeEnd how, LeTime closed_until, LeTime now);
extern bool le_entry_reenter(LeCore *core, LeEntry *holder, LeTime ttl, LeTime now);
extern void le_entry_renew(LeCore *core, LeEntry *entry, LeTime now);

/* Its row has to be written. */
extern void le_slot_dirty(LeCore *core, LeSlot *slot);
extern void le_slot_add_free(LeLock *lock, LeSlot *slot);
extern void le_place_dirty(LeCore *core, LeEntry *entry);
/* The row of a holder, or of a place. */
extern void le_entry_row_dirty(LeCore *core, LeEntry *entry);

/* --- core/news.c --- */

/* The entry has entered, or was granted: news for its lease, if it has one.  May not fail. */
extern void le_news_add(LeCore *core, LeEntry *entry);
/* What a load takes over of a lease, and of the number of the newest news, from the core that has failed. */
extern void le_news_load_lease(LeCore *core, LeLease *lease, const LeLease *failed);
extern void le_news_load_begin(LeCore *core);
/* It leaves its lease, or lapses; a loss, unless the lease's client has asked for that.  May not fail. */
extern void le_news_end(LeCore *core, LeEntry *entry, LeEnd how);

/* --- core/leases.c --- */

/* The end of a lease, and what is due at its deadline. */
extern void le_lease_end(LeCore *core, LeLease *lease, LeEnd how, LeTime now);
extern void le_lease_due(LeCore *core, LeLease *lease, LeTime now);
extern void le_lease_renew(LeCore *core, LeLease *lease, LeTime now);
extern void le_lease_dirty(LeCore *core, LeLease *lease);
extern void le_lease_arm(LeCore *core, LeLease *lease);

/* A lease is made, then started; a group's belongs to that alone. */
extern LeLease *le_lease_new(LeCore *core, int64_t id, LeTime ttl, uint32_t role);
extern void le_lease_start(LeCore *core, LeLease *lease, LeTime now);
extern void le_lease_set_ttl(LeCore *core, LeLease *lease, LeTime ttl);
extern void le_lease_extend(LeCore *core, LeLease *lease, LeTime ttl, LeTime now);

/* --- core/together.c, core/group.c: several locks at once --- */

/* A group that waits: is each member the first of its queue?  Then it is granted as a whole. */
extern bool le_group_ready(LeGroup *group, LeTime now);
extern void le_group_grant(LeCore *core, LeGroup *group, LeTime now);
/* All members of the group that begins with this one become holders; how many they are. */
extern uint32_t le_group_grant_members(LeCore *core, LeEntry *first, LeTime now);
extern void le_group_end(LeCore *core, LeGroup *group, LeEnd how, LeTime now);
extern LeEntry *le_group_lead(LeEntry *entry);
extern bool le_group_has_names(const LeCore *core, const LeEntry *entry, const LeCommand *cmd);
extern void le_group_load(LeCore *core, LeEntry *entry);

/* --- core/owner.c --- */

/* Named owners, and leases, by lock: to find a holder that re-enters. */
extern void le_owner_add(LeCore *core, LeEntry *entry);
extern void le_owner_remove(LeCore *core, LeEntry *entry);
extern bool le_owner_is_shared(const LeEntry *holder, uint64_t session);
extern LeEntry *le_lock_owned(const LeCore *core, const LeLock *lock, uint32_t role, LeText owner,
							  const LeLease *lease, uint64_t session);

/* May a request of this mode, lease and TTL be one more hold of this holder? */
extern LeStatus le_reentry_status(const LeEntry *holder, LeMode mode, const LeLease *lease, LeTime ttl);

/* --- core/role.c --- */

/* A role's use of its limits. */
typedef struct LeUsage
{
	uint32_t entries;
	uint32_t leases;
	size_t bytes;
} LeUsage;

extern void le_role_add(LeCore *core, uint32_t id, LeUsage usage);
extern void le_role_remove(LeCore *core, uint32_t id, LeUsage usage);
/* May this role have so much more?  LE_OK, or which limit is in the way. */
extern LeStatus le_role_admits(const LeCore *core, uint32_t id, LeUsage usage);

/* Usage by an entry, a lease, one more uncommitted hold, a closed name, an ACQUIRE; by two; by one less a part. */
extern LeUsage le_usage_of_entry(uint32_t name_len, uint32_t owner_len, uint32_t value_len);
extern LeUsage le_usage_of_lease(uint32_t owner_len);
extern LeUsage le_usage_of_hold(void);
extern LeUsage le_usage_of_closed(uint32_t name_len);
extern LeUsage le_usage_of_command(const LeCommand *cmd);
extern LeUsage le_usage_sum(LeUsage a, LeUsage b);
extern LeUsage le_usage_less(LeUsage a, LeUsage b);

/* --- core/acquirer.c --- */

/* The record of this text; reserve makes one where there is none, for le_acquirer_get(). */
extern bool le_acquirers_reserve(LeCore *core, LeText text);
extern LeAcquirer *le_acquirer_get(LeCore *core, LeText text);
extern LeAcquirer *le_acquirer_find(const LeCore *core, LeText text);
/* One entry less has it. */
extern void le_acquirer_drop(LeCore *core, LeAcquirer *acquirer);
extern void le_acquirers_destroy(LeCore *core);

/* --- core/changes.c --- */

/* The list of changes for the history. */
extern bool le_changes_reserve(LeCore *core);
extern void le_change_add(LeCore *core, const LeEntry *entry, LeHow how, char *dropped, LeTime now);
extern void le_change_ended(LeCore *core, const LeEntry *entry, LeEnd how, LeTime now);
extern void le_change_lost(LeCore *core, LeLock *lock, const LeStoredEntry *row, LeEnd how, LeTime elected_at,
						   LeTime now);

/* --- core/uncommitted.c --- */

/* Holds of a transaction that may still roll back. */
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
/* A holder's value. */
extern LeStatus le_holder_admits_value(const LeCore *core, const LeEntry *holder, LeText value);
extern void le_holder_proclaim(LeCore *core, LeEntry *holder, const LeCommand *cmd, LeTime now);

/* --- core/acquire.c --- */

/* What becomes of a new request for one name. */
typedef enum LeWay
{
	LE_WAY_REFUSED,  /* an error, or it must not wait */
	LE_WAY_REENTERS, /* one more hold of a holder */
	LE_WAY_PLACE,    /* a queue place that it has already */
	LE_WAY_GRANTED,
	LE_WAY_WAITS
} LeWay;

typedef struct LeDecision
{
	LeWay way;
	LeStatus status;
	bool blocked;   /* it is not admitted now */
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

/* --- what carries out each command --- */

/* May not fail: le_core_reserve() has allocated what it needs. */
typedef void LeApply(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply);

/* core/core.c: tell how the command's token or lease has ended, if that is remembered and was the same role's */
extern void le_reply_ending(const LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply);

/* core/acquire.c, core/group.c */
extern LeApply le_apply_acquire, le_apply_acquire_group, le_apply_await_group;

/* core/command.c */
extern LeApply le_apply_await, le_apply_renew, le_apply_release, le_apply_check, le_apply_proclaim,
	le_apply_set_permits;
/* Does the command name this role as one that the caller has the right for? */
extern bool le_command_manages(const LeCommand *cmd, uint32_t role);
/* core/force.c */
extern LeApply le_apply_force, le_apply_evict, le_apply_force_role;
/* core/leases.c */
extern LeApply le_apply_grant_lease, le_apply_lease;
/* core/sessions.c */
extern LeApply le_apply_undo, le_apply_session_end;

/* --- core/core.c --- */

/* Frees the entry, its owner and its value. */
extern void le_entry_free(LeCore *core, LeEntry *entry);

/* --- core/reserve.c --- */

/* For commands that make an entry or a lease, and for their rows; false: out of memory. */
extern bool le_reserve_entries(LeCore *core, LeKind kind, const LeText *names, uint32_t n,
							   const LeEntrySpec *spec);
extern bool le_reserve_lease(LeCore *core, LeText owner);
/* The copies of texts that they make, until a command takes them. */
extern void le_prealloc_free(LeCore *core);
extern char *le_prealloc_take(LePrealloc *texts);

/* --- core/view.c --- */

/* Remember how this token has ended, for those who come with it. */
extern void le_note_ending(LeCore *core, int64_t token, uint32_t role, LeEnd how, LeTime now);

extern void le_reply_time(LeReply *reply, const LeEntry *entry, LeTime now);

/* The newest write that the entry rests on. */
extern uint64_t le_entry_lsn(const LeEntry *entry);

/* --- core/sessions.c --- */

/* A request of this session and transaction has come: an older session or transaction is over. */
extern LeSession *le_session_touch(LeCore *core, uint64_t session, uint32_t sessno, uint32_t xact,
								   LeTime now);
/* Its call waits for this entry from now on. */
extern void le_session_wait(LeSession *session, LeEntry *entry, const LeCommand *cmd, LeTime now);
/* Does the session have a slot of this lock?  Its newest holder that has not ended; NULL: none. */
extern bool le_held_by_session(const LeCore *core, const LeLock *lock, const LeCommand *cmd);
extern LeEntry *le_newest_of_session(const LeCore *core, const LeCommand *cmd);

#endif /* LE_CORE_INTERNAL_H */
