/*
 * core/view.h
 *		The objects of a core, how to find them, and its statistics.
 *
 * Views, the store and tests read the objects; only src/core changes them.  LeRow is the
 * exception: the store records there where a row is.
 */
#ifndef LE_VIEW_H
#define LE_VIEW_H

#include "command.h"
#include "list.h"
#include "stats.h"

/*
 * The life of an entry.  le_entry_set_state() is the only function that
 * changes it, and it asserts the state that it comes from:
 *
 *				+----> QUEUED ----+
 *				|		 |		  v
 *			   NEW ------|-----> HELD ----> LAPSED
 *						 v		  v			  v
 *					   ENDED	ENDED		ENDED
 */
typedef enum LeState
{
	LE_STATE_NEW = 0, /* just allocated */
	LE_STATE_QUEUED,  /* in its lock's queue */
	LE_STATE_HELD,    /* has a slot */
	LE_STATE_LAPSED,  /* has ended, but is fenced and keeps its slot */
	LE_STATE_ENDED    /* freed by le_core_batch_done() */
} LeState;

/* The row of a slot, a lease or a queue place.  The store sets the locator. */
typedef struct LeRow
{
	uint64_t locator : 56; /* the row's TID */
	uint64_t stale : 1;    /* slot: still to be written, because the lock has another number of permits now */
	uint64_t later : 1;    /* slot: released, and to be written later, see core/later.c */
	uint64_t listed : 1;   /* slot: in the ring of idle rows, see core/recycle.c */
	uint64_t reused : 1;   /* ... and became idle again since it was listed */
	uint64_t kept : 1;     /* slot: its name had lost its row; not handed over at once */
	uint64_t recycled : 1; /* slot: taken from another lock in this batch, so its key is new */
	uint64_t on_disk : 1;
	uint64_t dirty : 1;
} LeRow;

/*
 * What the row of a lease, own or named, records of the time left.  A raise is a row written by a
 * renewal, with the full TTL and the number of this life.  It may not be flushed yet: until it
 * is, the other fields are what a crash would leave.
 */
typedef struct LeSaved
{
	LeTime left;   /* time left when the row was written, and also at the end of that life */
	uint32_t life; /* LeLife.number of the life in which it was written */
	bool raised;   /* a raise was written, or is to be written with this batch */
} LeSaved;

typedef enum LeTimerType
{
	LE_TIMER_ENTRY,
	LE_TIMER_LOCK,
	LE_TIMER_LEASE
} LeTimerType;

typedef struct LeTimer
{
	LeTime at;
	uint32_t pos; /* index in the heap + 1; 0 = not armed */
	uint8_t type; /* LeTimerType */
} LeTimer;

typedef struct LeEntry LeEntry;
typedef struct LeWaiter LeWaiter;
typedef struct LeSlot LeSlot;
typedef struct LeLock LeLock;
typedef struct LeLease LeLease;
typedef struct LeUncommitted LeUncommitted;
typedef struct LeGroup LeGroup;
typedef struct LeAcquirer LeAcquirer;
typedef struct LeCore LeCore;

/*
 * Waiting entries that are granted together or not at all, one in each of several locks, all with
 * one token.
 */
struct LeGroup
{
	LeEntry *members; /* linked by group_next; the first one carries the wait, and is announced */
	LeEntry *blocked; /* the member that was not ready at the last check */
	LeGroup *settle_next;
};

/* A text that describes an acquirer: one record for all entries with the same text. */
struct LeAcquirer
{
	LeHashLink hash_link;
	uint32_t hash;
	uint32_t entries; /* number of entries that refer to it */
	uint8_t len;
	char text[]; /* not terminated */
};

/* Room for one holder of a lock; it owns a row. */
struct LeSlot
{
	LeLock *lock;
	LeSlot *next; /* in lock->slots */
	LeSlot *dirty_next;
	union /* le_slot_holder() tells them apart */
	{
		LeEntry *holder;
		LeSlot *free_next; /* in lock->free_slots */
	};
	LeRow row;
	int32_t number; /* from 0 */
	bool free;      /* in lock->free_slots */
	bool drop;      /* delete the row */
};

struct LeLock
{
	LeHashLink hash_link;
	char *name; /* not terminated */
	uint32_t hash;
	uint16_t name_len;
	uint8_t kind;       /* LeKind */
	uint8_t mode : 4;   /* LeMode of its holders; 0 = none */
	uint8_t doomed : 1; /* to be freed with the batch */
	uint8_t doom_listed : 1;
	uint8_t unsettled : 1; /* more is to be granted in the next batch */
	LeSlot *slots;
	LeSlot *free_slots;
	int32_t next_number; /* number of the next new slot */
	int32_t permits;     /* number of permits; 0 = not in use with permits */
	int32_t held;        /* number of holders */
	uint32_t waiting;    /* length of queue */
	LeLink queue;        /* of LeWaiter.queue_link, by revision */
	LeTime closed_until; /* no grant before this moment; 0 = open */
	uint32_t closed_by;  /* role of the holder that closed it, for which the closed name counts */
	uint32_t mark;       /* for the environment's search for deadlocks; 0 at first */
	LeTimer timer;       /* for closed_until, lingering, or unsettled */
	union
	{
		LeLock *doomed_next; /* while doom_listed */
		int64_t last_change; /* otherwise: number of the election's last change; 0 = not known */
	};
};

/*
 * A request that waits for a lock, or holds it.  Fields that only some states use name these
 * states; an ENDED entry keeps its old values.
 */
struct LeEntry
{
	LeLink lease_link;   /* in lease->entries while on a lease */
	LeLink news_link;    /* in lease->news while on a lease, and not LAPSED */
	uint64_t news;       /* number of its news there */
	LeLink session_link; /* in the session's entries */
	union
	{
		LeHashLink token_link; /* in the hash of tokens */
		LeEntry *ended_next;   /* ENDED */
	};
	LeLock *lock;
	LeWaiter *waiter;           /* NULL = it does not wait, and has not waited in this batch */
	LeLease *lease;             /* NULL = a lease of its own */
	LeUncommitted *uncommitted; /* uncommitted holds; NULL = all are committed */
	char *owner;                /* NULL = the session */
	char *value;
	LeAcquirer *acquirer; /* NULL = not known */
	int64_t token;
	LeTime ttl;      /* LE_TTL_BOUND: as long as its session */
	LeTime deadline; /* end of its own lease, or of an evicted holder; otherwise LE_NEVER */
	LeSlot *slot;    /* HELD and LAPSED, like the next field */
	LeTime acquired_at;
	union
	{
		struct /* QUEUED and HELD */
		{
			LeHashBackLink owner_link; /* HELD: in the hash of named owners */
			LeSaved saved;             /* of its own lease, or of an evicted holder */
		};
		struct /* LAPSED */
		{
			LeLink lapsed_link;  /* in core->lapsed */
			LeTime closed_until; /* the name stays closed until then; 0 = it does not */
			LeTime lapsed_at;    /* when it lapsed, or was last returned by le_core_overdue() */
		};
	};
	LeTimer timer;
	uint64_t lsn;     /* LSN of the row's newest version */
	uint64_t session; /* session that asked; 0 = it has ended */
	uint32_t sessno;
	uint32_t role;
	uint32_t hold_count : 31; /* LE_MAX_HOLDS */
	uint32_t evicted : 1;     /* HELD: not renewed any more, has a deadline of its own */
	uint32_t value_len : 13;  /* LE_MAX_VALUE */
	uint32_t mode : 2;
	uint32_t state : 3;   /* LeState */
	uint32_t end : 4;     /* LeEnd: why it lapsed or ended */
	uint32_t place : 1;   /* a queue place, not a blocked call */
	uint32_t grouped : 1; /* entered in a group, in which it is while QUEUED */
	uint32_t owner_len : 8;
};

/* Where the grant of a place is announced. */
typedef enum LeTells
{
	LE_TELLS_NAME = 0, /* on the channel of its name */
	LE_TELLS_LEASE,    /* on the channel of its named lease */
	LE_TELLS_BOTH,     /* on both, after a load: how the place was taken is not stored */
	LE_TELLS_NOBODY    /* nowhere: a reply has told the client of its lease */
} LeTells;

/*
 * The part of an entry that exists only while it waits: from its request, unless that is granted
 * at once, to the end of the batch in which it leaves the queue.
 */
struct LeWaiter
{
	LeEntry *entry;
	LeWaiter *left_next; /* in core->left */
	LeLink queue_link;   /* in lock->queue */
	LeLink waits_link;   /* in core->waits; of a lock, not an election */
	LeGroup *group;      /* while grouped */
	LeEntry *group_next;
	LeTime since;        /* when it entered the queue */
	LeRow row;           /* of a place */
	LeEntry *dirty_next; /* in core->dirty_places */

	/* the call that gets the reply; session 0 = none */
	uint64_t session;
	uint32_t sessno;
	uint32_t request;
	uint32_t xact;
	uint32_t subxact;
	LeTime until;

	/* the reply */
	LeEntry *answer_next;
	int64_t answer_token;
	uint8_t answer; /* LeStatus */
	bool answering; /* in core->answers */
	bool joined;    /* LeReply.shared_owner */

	uint16_t member; /* grouped: position of its name in the command, from 1; otherwise 0 */
	uint8_t tells;   /* LeTells */
};

/* One hold of an entry, taken in a transaction that may still roll back. */
struct LeUncommitted
{
	LeEntry *entry;
	LeUncommitted *next;  /* in entry->uncommitted */
	LeUncommitted **link; /* the pointer to this one there */
	LeLink session_link;  /* in the session's uncommitted holds */
	uint64_t session;
	uint32_t xact;
	uint32_t subxact;
};

/* The end of something on a lease that its client did not ask for: news for that client. */
typedef struct LeLoss
{
	uint64_t number;
	int64_t token;
	uint8_t how; /* LeEnd */
} LeLoss;

/* Number of newest losses of a lease that are kept. */
#define LE_LOSSES 8

struct LeLease
{
	LeHashLink hash_link;
	LeLease *dirty_next;
	LeLink entries;
	LeLink news;              /* its entries except LAPSED ones, by number: see core/news.c */
	LeLoss losses[LE_LOSSES]; /* ring buffer */
	uint32_t nlosses;         /* number of losses ever */
	uint64_t forgotten;       /* number of the newest loss dropped from the ring; 0 = none */
	uint64_t newest;          /* number of its newest news; 0 = none */
	int64_t last_call;        /* highest number of a call, see le_core_take_call() */
	int64_t call_before;      /* ... before the batch of that call */
	uint64_t call_batch;      /* number of that batch */
	bool granted_here;        /* granted by this manager, which knows all its calls */
	int64_t id;
	LeTime ttl;
	LeTime deadline;
	LeSaved saved;
	LeTimer timer;
	uint64_t lsn;
	uint32_t role;
	uint32_t evicted; /* number of its entries that are evicted */
	uint8_t owner_len;
	uint8_t how;   /* LeEnd: why it is draining */
	bool draining; /* it has ended, but not all of its entries have */
	bool ended;
	bool for_group; /* of a group alone: its id is the group's token, and it ends with the last entry */
	char *owner;
	LeRow row;
};

/* --- looking --- */

/* Returns the entry with this token in this lock; the entries of a group share their token. */
extern LeEntry *le_core_find_entry(const LeCore *core, LeKind kind, LeText name, int64_t token);
/* Returns the entry that this session's blocked call waits for; NULL = none. */
extern LeEntry *le_core_waiting_on(const LeCore *core, uint64_t session, uint32_t sessno);
/* Returns the number of locks and places that end with this session. */
extern uint32_t le_core_bound_to(const LeCore *core, uint64_t session, uint32_t sessno);
extern LeLease *le_core_find_lease(const LeCore *core, int64_t id);

/*
 * News of a lease: what has happened to its entries, in that order, for a client that has seen the
 * news up to a number.  Numbers begin again with each manager.
 *
 *	le_news_after	the entry after this one; NULL: the first that is news since then.  NULL = no more.
 *					It was created, granted or evicted.  *walked grows by the entries examined.
 *	le_news_loss	the i-th loss since then; NULL = no more
 *	le_news_kept	are all losses since then still known?
 */
extern LeEntry *le_news_after(const LeLease *lease, uint64_t seen, const LeEntry *after, uint32_t *walked);
extern const LeLoss *le_news_loss(const LeLease *lease, uint64_t seen, uint32_t i);
extern bool le_news_kept(const LeLease *lease, uint64_t seen);
extern LeLock *le_core_find_lock(const LeCore *core, LeKind kind, LeText name);

/*
 * Locks by index, for paging: indexes run from 0 to le_core_lock_indexes() - 1, and a lock keeps
 * its index for life.  NULL = no lock there.
 */
extern uint32_t le_core_lock_indexes(const LeCore *core);
extern LeLock *le_core_lock_at(const LeCore *core, uint32_t index);

/* Leases in the same way. */
extern uint32_t le_core_lease_indexes(const LeCore *core);
extern LeLease *le_core_lease_at(const LeCore *core, uint32_t index);

/* Returns the number of locks. */
extern uint64_t le_core_lock_count(const LeCore *core);
/* The number of entries that have a slot, and of those that are queued. */
extern uint64_t le_core_held(const LeCore *core);
extern uint64_t le_core_queued(const LeCore *core);
/*
 * Returns when the first of all entries that wait for a lock entered its queue; LE_NEVER = none
 * waits.  After a load, places come before blocked calls. le_core_stats() returns the counters.
 */
extern LeTime le_core_oldest_wait(const LeCore *core);
extern const LeStats *le_core_stats(const LeCore *core);

/* Does the entry take a slot of its lock?  HELD and LAPSED ones do. */
static inline bool
le_entry_has_slot(const LeEntry *entry)
{
	return entry->state == LE_STATE_HELD || entry->state == LE_STATE_LAPSED;
}

/* Returns how many leases have rows of an earlier life: while there are any, the uptime is recorded. */
extern uint32_t le_core_unmarked(const LeCore *core);
/* Returns what a row that is written now records of a lease. */
extern LeSaved le_core_saved(const LeCore *core, const LeSaved *saved, LeTime ttl);

/* Does the entry have a deadline of its own, and not that of a lease which entries share? */
static inline bool
le_entry_has_own_time(const LeEntry *entry)
{
	return entry->lease == NULL || entry->evicted;
}

/* Returns when the entry expires, unless it is renewed; LE_NEVER when bound. */
static inline LeTime
le_entry_deadline(const LeEntry *entry)
{
	return le_entry_has_own_time(entry) ? entry->deadline : entry->lease->deadline;
}

/* Returns the time left until then. */
extern LeTime le_entry_time_left(const LeEntry *entry, LeTime now);
/* Returns the entry's named lease; NULL = none. */
extern LeLease *le_entry_named_lease(const LeEntry *entry);
/*
 * Is the entry held once, even if it is acquired again?  Those on a named lease or of an election
 * are. le_entry_holds() returns the number of holds.
 */
extern bool le_entry_counts_once(const LeEntry *entry);
extern uint32_t le_entry_holds(const LeEntry *entry);

/* The row of a holder, or of a place. */
static inline const LeRow *
le_entry_row(const LeEntry *entry)
{
	return le_entry_has_slot(entry) ? &entry->slot->row : &entry->waiter->row;
}

/* Does this batch write anything that a reply about the entry depends on: its row, or that of its lease? */
static inline bool
le_entry_is_dirty(const LeEntry *entry)
{
	return le_entry_row(entry)->dirty || (entry->lease != NULL && entry->lease->row.dirty);
}

/* Returns the holder of a slot; NULL = it is free. */
static inline LeEntry *
le_slot_holder(const LeSlot *slot)
{
	return slot->free ? NULL : slot->holder;
}

/* The entry of a link in a lock's queue. */
static inline LeEntry *
le_queued(const LeLink *link)
{
	return le_container(link, LeWaiter, queue_link)->entry;
}

#endif /* LE_VIEW_H */
