/*
 * core/objects.h
 *		The types of the objects of a core, and of its statistics.
 *
 * Views, the store and tests read the objects; only src/core changes them.  The one
 * exception is LeRow, in which the store records where a row is.
 */
#ifndef LE_OBJECTS_H
#define LE_OBJECTS_H

#include "command.h"
#include "list.h"

/*
 * The states of an entry. le_entry_set_state() is the only function that
 * changes an entry's state, and it asserts the old state:
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
	LE_STATE_HELD,    /* holds a slot of its lock */
	LE_STATE_LAPSED,  /* has ended, but is fenced and keeps its slot */
	LE_STATE_ENDED    /* has ended; freed by le_core_batch_done() */
} LeState;

/* State of the table row of a slot, a lease or a queue place.  The store sets the locator. */
typedef struct LeRow
{
	uint64_t locator : 56; /* the row's TID */
	uint64_t stale : 1;    /* slot: must still be written, because the lock's number of permits has changed */
	uint64_t later : 1;    /* slot: its release is written in a later batch, see core/later.c */
	uint64_t listed : 1;   /* slot: in the ring of idle rows, see core/recycle.c */
	uint64_t reused : 1;   /* slot: was used and became idle again while it was in the ring of idle rows */
	uint64_t kept : 1;     /* slot: another lock has taken the previous row of this name, so this row is not
							* recycled at once */
	uint64_t recycled : 1; /* slot: taken from another lock in this batch, so its key has changed */
	uint64_t on_disk : 1;
	uint64_t dirty : 1;
} LeRow;

/*
 * The time left that is recorded in the row of a lease, own or named.  A raise is a write of this row
 * by a renewal, with the full TTL and the number of this life.  Until the raise is flushed, the other
 * fields describe the row that a crash would leave.
 */
typedef struct LeSaved
{
	LeTime left;   /* time left when the row was written, counted from the end of that life */
	uint32_t life; /* LeLife.number of the life in which the row was written */
	bool raised;   /* a renewal wrote a raise, or writes it with this batch */
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
typedef struct LeCore LeCore; /* core/state.h */

/*
 * Waiting entries of one request for several locks, one entry in each lock, all with one token.
 * They are granted together or not at all.
 */
struct LeGroup
{
	LeEntry *members; /* linked by group_next; the first member is the one that the blocked call waits for,
					   * and whose grant is announced */
	LeEntry *blocked; /* the member that was not ready at the last check; NULL = none */
	LeGroup *settle_next;
};

/* The text that describes an acquirer.  All entries with the same text share one record. */
struct LeAcquirer
{
	LeHashLink hash_link;
	uint32_t hash;
	uint32_t entries; /* number of entries that refer to it */
	uint8_t len;
	char text[]; /* not null-terminated */
};

/* Room for one holder of a lock.  Each slot has a row. */
struct LeSlot
{
	LeLock *lock;
	LeSlot *next; /* in lock->slots */
	LeSlot *dirty_next;
	union /* "free" determines which member is valid */
	{
		LeEntry *holder;
		LeSlot *free_next; /* in lock->free_slots */
	};
	LeRow row;
	int32_t number; /* number within the lock, from 0 */
	bool free;      /* in lock->free_slots */
	bool drop;      /* the row must be deleted */
};

struct LeLock
{
	LeHashLink hash_link;
	char *name; /* not null-terminated */
	uint32_t hash;
	uint16_t name_len;
	uint8_t kind;       /* LeKind */
	uint8_t mode : 4;   /* LeMode of the holders; 0 = no holder */
	uint8_t doomed : 1; /* to be freed at the end of the batch */
	uint8_t doom_listed : 1;
	uint8_t unsettled : 1; /* more waiters can be granted in the next batch */
	LeSlot *slots;
	LeSlot *free_slots;
	int32_t next_number; /* number that the next new slot gets */
	int32_t permits;     /* number of permits; 0 = the lock is not used with permits */
	int32_t held;        /* number of holders */
	uint32_t waiting;    /* length of the queue */
	LeLink queue;        /* list of LeWaiter.queue_link, in order of revisions */
	LeTime closed_until; /* no grant before this moment; 0 = open */
	uint32_t closed_by;  /* role of the holder whose end closed the name, which counts against the limits of
						  * this role */
	uint32_t mark;       /* used by the environment's deadlock search; initially 0 */
	LeTimer timer;       /* fires at closed_until, when the rows of an unused lock have lingered, or while
						  * unsettled */
	union
	{
		LeLock *doomed_next; /* while doom_listed: next lock in core->doomed */
		int64_t last_change; /* while not doom_listed: number of the election's last change; 0 = not known */
	};
};

/*
 * A request that waits for a lock or holds it.  If only some states use a field, its comment names
 * these states.  An ENDED entry keeps its old values.
 */
struct LeEntry
{
	LeLink lease_link;   /* in lease->entries while the entry is on a lease */
	LeLink news_link;    /* in lease->news while the entry is on a lease and not LAPSED */
	uint64_t news;       /* number of the entry's newest news item */
	LeLink session_link; /* in the entries of the session */
	union
	{
		LeHashLink token_link; /* in the hash of tokens */
		LeEntry *ended_next;   /* ENDED: in core->ended */
	};
	LeLock *lock;
	LeWaiter *waiter;           /* NULL = the entry does not wait, and has not waited in this batch */
	LeLease *lease;             /* NULL = the entry has a lease of its own */
	LeUncommitted *uncommitted; /* list of uncommitted holds; NULL = all holds are committed */
	char *owner;                /* named owner; NULL = the session is the owner */
	char *value;
	LeAcquirer *acquirer; /* NULL = unknown */
	int64_t token;
	LeTime ttl;      /* LE_TTL_BOUND = the entry ends with its session */
	LeTime deadline; /* end of the entry's own lease, or of an evicted holder; LE_NEVER = none */
	LeSlot *slot;    /* HELD and LAPSED only, like acquired_at */
	LeTime acquired_at;
	union
	{
		struct /* QUEUED and HELD */
		{
			LeHashBackLink owner_link; /* HELD: in the hash of named owners */
			LeSaved saved;             /* time left of its own lease, or of an evicted holder, as recorded in
										* the row */
		};
		struct /* LAPSED */
		{
			LeLink lapsed_link;  /* in core->lapsed */
			LeTime closed_until; /* time until which the name stays closed; 0 = not closed */
			LeTime lapsed_at;    /* when it lapsed, or was last returned by le_core_overdue() */
		};
	};
	LeTimer timer;
	uint64_t lsn;     /* LSN of the row's newest version */
	uint64_t session; /* session that made the request; 0 = the session has ended */
	uint32_t sessno;
	uint32_t role;
	uint32_t hold_count : 31; /* number of holds, up to LE_MAX_HOLDS */
	uint32_t evicted : 1;     /* HELD: the holder is not renewed any more, and has a deadline of its own */
	uint32_t value_len : 13;  /* bytes, up to LE_MAX_VALUE */
	uint32_t mode : 2;
	uint32_t state : 3;   /* LeState */
	uint32_t end : 4;     /* LeEnd: why it lapsed or ended */
	uint32_t place : 1;   /* a queue place, not a blocked call */
	uint32_t grouped : 1; /* the request was for several names; QUEUED: in a group */
	uint32_t owner_len : 8;
};

/* Where the grant of a place is announced. */
typedef enum LeTells
{
	LE_TELLS_NAME = 0, /* on the channel of its name */
	LE_TELLS_LEASE,    /* on the channel of its named lease */
	LE_TELLS_BOTH,     /* on both; set by a load, because the choice is not stored */
	LE_TELLS_NOBODY    /* nowhere, because the client has learned of the grant from a reply about its lease */
} LeTells;

/*
 * The part of an entry that exists only while the entry waits.  It is created with the request,
 * unless the request is granted at once, and freed at the end of the batch in which the entry
 * leaves the queue.
 */
struct LeWaiter
{
	LeEntry *entry;
	LeWaiter *left_next; /* in core->left */
	LeLink queue_link;   /* in lock->queue */
	LeLink waits_link;   /* in core->waits, unless the lock is an election */
	LeGroup *group;      /* set while the entry is in a group */
	LeEntry *group_next;
	LeTime since;        /* when the entry entered the queue */
	LeRow row;           /* row of a place */
	LeEntry *dirty_next; /* in core->dirty_places */

	/* the call that gets the reply; session 0 = no call */
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
	bool answering; /* in core->answers, the list of replies */
	bool joined;    /* value for LeReply.shared_owner */

	uint16_t member; /* grouped: position of the name in the command, from 1; otherwise 0 */
	uint8_t tells;   /* LeTells */
};

/* One hold of an entry, taken in a transaction that may still roll back. */
struct LeUncommitted
{
	LeEntry *entry;
	LeUncommitted *next;  /* in entry->uncommitted */
	LeUncommitted **link; /* the pointer to this hold: entry->uncommitted, or next of another hold */
	LeLink session_link;  /* in the session's uncommitted holds */
	uint64_t session;
	uint32_t xact;
	uint32_t subxact;
};

/*
 * A report that a holder or place on a lease has ended without a request from the lease's client.  The
 * client receives it as news.
 */
typedef struct LeLoss
{
	uint64_t number;
	int64_t token;
	uint8_t how; /* LeEnd */
} LeLoss;

/* Number of a lease's newest losses that are kept. */
#define LE_LOSSES 8

struct LeLease
{
	LeHashLink hash_link;
	LeLease *dirty_next;
	LeLink entries;
	LeLink news; /* entries except LAPSED ones, in order of their news numbers: see core/news.c */
	LeLoss losses[LE_LOSSES]; /* ring buffer */
	uint32_t nlosses;         /* number of losses since the lease was created or loaded */
	uint64_t forgotten;       /* number of the newest loss that was dropped from the ring; 0 = none */
	uint64_t newest;          /* number of the newest news item; 0 = none */
	int64_t last_call;        /* highest number of a call so far, see le_core_take_call() */
	int64_t call_before;      /* value of last_call before batch call_batch */
	uint64_t call_batch;      /* number of the batch that last changed last_call */
	bool granted_here;        /* this manager granted the lease, so it knows all calls on the lease */
	int64_t id;
	LeTime ttl;
	LeTime deadline;
	LeSaved saved;
	LeTimer timer;
	uint64_t lsn;
	uint32_t role;
	uint32_t evicted; /* number of the lease's evicted entries */
	uint8_t owner_len;
	uint8_t how;   /* LeEnd: why the lease is draining */
	bool draining; /* the lease has ended, but some of its entries have not */
	bool ended;
	bool for_group; /* the lease belongs to a single group: its id is the group's token, and it ends with the
					 * last entry */
	char *owner;
	LeRow row;
};

/* A change of an election, which is written and announced with its batch. */
typedef struct LeChange
{
	struct LeChange *next;
	LeLock *lock;
	const char *value; /* the leader's value after this change, or at the end of its term */
	char *dropped;     /* a value that is freed at the end of the batch; NULL = none */
	int64_t number;    /* number of the change, which is a revision */
	int64_t previous;  /* number of the election's previous change; 0 = not known */
	int64_t term;
	LeTime elected_at;
	LeTime at;
	uint32_t role; /* role of the leader */
	uint16_t value_len;
	uint8_t how; /* LeHow */
	bool place;  /* the leader was elected from a queue place */
} LeChange;

/* --- statistics --- */

/* Histograms of durations.  Election candidates can wait for days, so only waits for locks are counted. */
typedef enum LeDurationType
{
	LE_DURATION_WAIT,           /* duration of waits, from entering a queue to the grant */
	LE_DURATION_FRUITLESS_WAIT, /* duration of waits, from entering a queue to leaving it without a grant */
	LE_DURATION_HOLD,           /* how long locks and permits were held, from grant to end */
	LE_DURATION_TERM,           /* how long leaders led, from election to end */
	LE_DURATION_TYPES
} LeDurationType;

#define LE_DURATION_BOUNDS 18

typedef struct LeDurations
{
	int64_t n[LE_DURATION_BOUNDS + 1]; /* number of durations up to the i-th bound and above the one before;
									    * last element: durations above all bounds */
	int64_t count;                     /* number of all durations */
	LeTime sum;
} LeDurations;

typedef struct LeStats
{
	int64_t grants;
	int64_t waits;    /* acquires that were queued */
	int64_t handoffs; /* grants to waiters */
	int64_t expiries;
	int64_t timeouts;
	int64_t undone;
	int64_t elected; /* terms that began */
	LeDurations durations[LE_DURATION_TYPES];
} LeStats;

/* --- simple functions of one object --- */

/* Returns whether the entry has a slot of its lock: it is HELD or LAPSED. */
static inline bool
le_entry_has_slot(const LeEntry *entry)
{
	return entry->state == LE_STATE_HELD || entry->state == LE_STATE_LAPSED;
}

/* Returns whether the entry has a deadline of its own, rather than that of a lease that entries share. */
static inline bool
le_entry_has_own_time(const LeEntry *entry)
{
	return entry->lease == NULL || entry->evicted;
}

/* Returns when the entry expires unless it is renewed; LE_NEVER = it is bound. */
static inline LeTime
le_entry_deadline(const LeEntry *entry)
{
	return le_entry_has_own_time(entry) ? entry->deadline : entry->lease->deadline;
}

/* Returns the row of a holder or a place. */
static inline const LeRow *
le_entry_row(const LeEntry *entry)
{
	return le_entry_has_slot(entry) ? &entry->slot->row : &entry->waiter->row;
}

/*
 * Returns whether this batch writes the entry's row or that of its lease.  A reply about the entry
 * depends on both.
 */
static inline bool
le_entry_is_dirty(const LeEntry *entry)
{
	return le_entry_row(entry)->dirty || (entry->lease != NULL && entry->lease->row.dirty);
}

/* Returns the holder of a slot; NULL = the slot is free. */
static inline LeEntry *
le_slot_holder(const LeSlot *slot)
{
	return slot->free ? NULL : slot->holder;
}

/* Returns the entry of a link in a lock's queue. */
static inline LeEntry *
le_queued(const LeLink *link)
{
	return le_container(link, LeWaiter, queue_link)->entry;
}

/*
 * Returns whether the entry's lease is draining.  If so, commands with the entry's token do not find
 * the entry.
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

/* Returns the LeEnd of an entry that ends because its deadline has passed. */
static inline LeEnd
le_end_by_time(const LeEntry *entry)
{
	return entry->evicted ? LE_END_EVICTED : LE_END_EXPIRED;
}

#endif /* LE_OBJECTS_H */
