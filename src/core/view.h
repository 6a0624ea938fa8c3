/*
 * core/view.h
 *		What a core has: its objects, how to find them, and its statistics.
 *
 * Views, the store and tests read them; only src/core changes them.  LeRow is the
 * exception: the store keeps there where a row is.
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

/* Where a slot's, a lease's or a queue place's row is.  The store fills the locator. */
typedef struct LeRow
{
	uint64_t locator : 57; /* the row's TID */
	uint64_t later : 1;    /* a slot's: released, and need not be written yet, see core/later.c */
	uint64_t listed : 1;   /* a slot's: among the idle rows */
	uint64_t reused : 1;   /* ... and written since it was listed */
	uint64_t kept : 1;     /* ... not handed over at once */
	uint64_t recycled : 1; /* of another lock until this batch: its key is new */
	uint64_t on_disk : 1;
	uint64_t dirty : 1;
} LeRow;

/*
 * What the row of a lease, own or named, says of the time that is left.  A raise is the row of a
 * renewal, with all of the TTL and the number of this life: it may not be flushed yet.  Until it
 * is, the other fields are what a crash would leave.
 */
typedef struct LeSaved
{
	LeTime left;   /* time left when the row was written, or at the end of that life */
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
	uint32_t pos; /* index in the heap + 1; 0: not armed */
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
 * Entries that are granted together or not at all, one in each of several
 * locks, all with one token; only while they wait.
 */
struct LeGroup
{
	LeEntry *members; /* the first one carries the wait, and is announced */
	LeEntry *blocked; /* this one was not ready when last looked */
	LeGroup *settle_next;
};

/* Text about who has acquired: one record for all entries with the same text. */
struct LeAcquirer
{
	LeHashLink hash_link;
	uint32_t hash;
	uint32_t entries; /* that have it */
	uint8_t len;
	char text[]; /* not terminated */
};

/* Room for one holder of a lock; it owns a row. */
struct LeSlot
{
	LeLock *lock;
	LeSlot *next; /* in lock->slots */
	LeSlot *dirty_next;
	union /* le_slot_holder() tells which */
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
	uint8_t mode : 4;   /* LeMode of its holders; 0: none */
	uint8_t doomed : 1; /* to be freed with the batch */
	uint8_t doom_listed : 1;
	uint8_t unsettled : 1; /* granting goes on in the next batch */
	LeSlot *slots;
	LeSlot *free_slots;
	int32_t next_number; /* of the next new slot */
	int32_t permits;     /* how many at a time; 0: not used so */
	int32_t held;        /* number of holders */
	uint32_t waiting;    /* length of queue */
	LeLink queue;        /* of LeWaiter.queue_link, by revision */
	LeTime closed_until; /* no grant before; 0: none */
	uint32_t closed_by;  /* role of the holder that left it closed, which it counts for */
	uint32_t mark;       /* of the search for deadlocks, which is not the core's; 0 at first */
	LeTimer timer;       /* closed_until or lingering */
	union
	{
		LeLock *doomed_next; /* while doom_listed */
		int64_t last_change; /* else, of an election; 0: not known */
	};
};

/*
 * A request that may hold, or holds, a lock.  What only some states know is
 * named by state; an ENDED entry keeps what it had.
 */
struct LeEntry
{
	LeLink lease_link;   /* in lease->entries while on a named lease */
	LeLink news_link;    /* in lease->news while on a lease, and not LAPSED */
	uint64_t news;       /* number under which it is there */
	LeLink session_link; /* in the session's entries */
	union
	{
		LeHashLink token_link; /* in the hash of tokens */
		LeEntry *ended_next;   /* ENDED */
	};
	LeLock *lock;
	LeWaiter *waiter;           /* NULL: it does not wait, and has not waited in this batch */
	LeLease *lease;             /* NULL: a lease of its own */
	LeUncommitted *uncommitted; /* holds; NULL: all are committed */
	char *owner;                /* NULL: the session */
	char *value;
	LeAcquirer *acquirer; /* NULL: not known */
	int64_t token;
	LeTime ttl;      /* LE_TTL_BOUND: as long as its session */
	LeTime deadline; /* end of its own lease, or evicted; else LE_NEVER */
	LeSlot *slot;    /* HELD and LAPSED, as the next one */
	LeTime acquired_at;
	union
	{
		struct /* QUEUED and HELD */
		{
			LeHashBackLink owner_link; /* HELD: in the hash of named owners */
			LeSaved saved;             /* of its own lease, or evicted */
		};
		struct /* LAPSED */
		{
			LeLink lapsed_link;  /* in core->lapsed */
			LeTime closed_until; /* no next grant before; 0: none */
			LeTime lapsed_at;    /* since when, or overdue last */
		};
	};
	LeTimer timer;
	uint64_t lsn;     /* of the row's newest version */
	uint64_t session; /* who asked; 0: gone */
	uint32_t sessno;
	uint32_t role;
	uint32_t hold_count : 31; /* LE_MAX_HOLDS */
	uint32_t evicted : 1;     /* HELD: renewed no more, it has a deadline of its own */
	uint32_t value_len : 13;  /* LE_MAX_VALUE */
	uint32_t mode : 2;
	uint32_t state : 3;   /* LeState */
	uint32_t end : 4;     /* LeEnd: why it lapsed or ended */
	uint32_t place : 1;   /* a queue place, not a blocked call */
	uint32_t grouped : 1; /* QUEUED with others, or was until its batch */
	uint32_t owner_len : 8;
};

/* Where the grant of a place is announced. */
typedef enum LeTells
{
	LE_TELLS_NAME = 0, /* on the channel of its name */
	LE_TELLS_LEASE,    /* on that of its named lease */
	LE_TELLS_BOTH,     /* after a load: how the place was taken is not stored */
	LE_TELLS_NOBODY    /* its lease's client has been told of the grant by a reply */
} LeTells;

/*
 * What an entry has only while it waits: from its request, unless that is
 * granted at once, to the end of the batch in which it leaves the queue.
 */
struct LeWaiter
{
	LeEntry *entry;
	LeWaiter *left_next; /* in the list of those that have left their queues */
	LeLink queue_link;   /* in lock->queue */
	LeLink waits_link;   /* of a lock, not an election: in core->waits */
	LeGroup *group;      /* while grouped */
	LeEntry *group_next;
	LeTime since;        /* entered the queue */
	LeRow row;           /* a place's */
	LeEntry *dirty_next; /* in the list of dirty places */

	/* who is to be answered; session 0: nobody */
	uint64_t session;
	uint32_t sessno;
	uint32_t request;
	uint32_t xact;
	uint32_t subxact;
	LeTime until;

	/* the answer */
	LeEntry *answer_next;
	int64_t answer_token;
	uint8_t answer; /* LeStatus */
	bool answering; /* in the list of answers */
	bool joined;    /* LeReply.shared_owner */

	uint16_t member; /* grouped: the which-th of the names it is, from 1; else 0 */
	uint8_t tells;   /* LeTells */
};

/* One hold of an entry, taken in a transaction that may still roll back. */
struct LeUncommitted
{
	LeEntry *entry;
	LeUncommitted *next;  /* in entry->uncommitted */
	LeUncommitted **link; /* what points to this one there */
	LeLink session_link;  /* in the session's holds */
	uint64_t session;
	uint32_t xact;
	uint32_t subxact;
};

/* The end of something on a lease that its client has not asked for: news for that client. */
typedef struct LeLoss
{
	uint64_t number;
	int64_t token;
	uint8_t how; /* LeEnd */
} LeLoss;

/* So many of the newest losses of a lease are kept. */
#define LE_LOSSES 8

struct LeLease
{
	LeHashLink hash_link;
	LeLease *dirty_next;
	LeLink entries;
	LeLink news;              /* the same entries but LAPSED ones, by number: see core/news.c */
	LeLoss losses[LE_LOSSES]; /* a ring */
	uint32_t nlosses;         /* so many ever */
	uint64_t forgotten;       /* number of the newest loss that the ring has lost; 0: none */
	uint64_t newest;          /* number of its newest news; 0: none */
	int64_t last_call;        /* highest number of a call, see le_core_take_call() */
	int64_t call_before;      /* ... before the batch in which that has come */
	uint64_t call_batch;      /* number of that batch */
	bool granted_here;        /* by this manager: it knows all calls that there were */
	int64_t id;
	LeTime ttl;
	LeTime deadline;
	LeSaved saved;
	LeTimer timer;
	uint64_t lsn;
	uint32_t role;
	uint32_t evicted; /* of its entries */
	uint8_t owner_len;
	uint8_t how;   /* LeEnd: why it is draining */
	bool draining; /* over for good, but not all that hangs on it has ended yet */
	bool ended;
	bool for_group; /* of a group alone: its id is their token, and it
								 * ends with the last of them */
	char *owner;
	LeRow row;
};

/* --- looking --- */

/* The entry with this token in this lock; those of a group share theirs. */
extern LeEntry *le_core_find_entry(const LeCore *core, LeKind kind, LeText name, int64_t token);
/* The entry that this session's blocked call waits for; NULL: it has none. */
extern LeEntry *le_core_waiting_on(const LeCore *core, uint64_t session, uint32_t sessno);
/* How many locks and places end with this session. */
extern uint32_t le_core_bound_to(const LeCore *core, uint64_t session, uint32_t sessno);
extern LeLease *le_core_find_lease(const LeCore *core, int64_t id);

/*
 * News of a lease: what has become of all that hangs on it, in the order in which it happened, for a
 * client that has seen them up to a number.  Numbers begin again with each manager.
 *
 *	le_news_after	the entry after this one, NULL: the first that is news since then; NULL: no more.
 *					It has entered or was granted.  *walked grows by the entries that were looked at.
 *	le_news_loss	the i-th loss since then, NULL: no more
 *	le_news_kept	are all losses since then still known?
 */
extern LeEntry *le_news_after(const LeLease *lease, uint64_t seen, const LeEntry *after, uint32_t *walked);
extern const LeLoss *le_news_loss(const LeLease *lease, uint64_t seen, uint32_t i);
extern bool le_news_kept(const LeLease *lease, uint64_t seen);
extern LeLock *le_core_find_lock(const LeCore *core, LeKind kind, LeText name);

/*
 * Locks by index, for paging: indexes run from 0 to le_core_lock_indexes() - 1, a
 * lock keeps its index for life, NULL: nothing there.
 */
extern uint32_t le_core_lock_indexes(const LeCore *core);
extern LeLock *le_core_lock_at(const LeCore *core, uint32_t index);

/* Leases the same way. */
extern uint32_t le_core_lease_indexes(const LeCore *core);
extern LeLease *le_core_lease_at(const LeCore *core, uint32_t index);

/* How many locks there are, and what has happened since the start. */
extern uint64_t le_core_lock_count(const LeCore *core);
/* Entries that have a slot, and those that are queued. */
extern uint64_t le_core_held(const LeCore *core);
extern uint64_t le_core_queued(const LeCore *core);
/*
 * When the first of all that wait for a lock has entered its queue; LE_NEVER: none
 * waits.  After a load places come before blocked calls.
 */
extern LeTime le_core_oldest_wait(const LeCore *core);
extern const LeStats *le_core_stats(const LeCore *core);

/* Does the entry take a slot of its lock?  HELD and LAPSED. */
static inline bool
le_entry_has_slot(const LeEntry *entry)
{
	return entry->state == LE_STATE_HELD || entry->state == LE_STATE_LAPSED;
}

/* Leases whose rows are of an earlier life: while there are any, the uptime is recorded. */
extern uint32_t le_core_unmarked(const LeCore *core);
/* What a row that is written now says of a lease: time left, and in which life. */
extern LeSaved le_core_saved(const LeCore *core, const LeSaved *saved, LeTime ttl);

/* Does its time run by itself, and not with a lease that others hang on? */
static inline bool
le_entry_has_own_time(const LeEntry *entry)
{
	return entry->lease == NULL || entry->evicted;
}

/* When its time is over, unless it is renewed; LE_NEVER when bound. */
static inline LeTime
le_entry_deadline(const LeEntry *entry)
{
	return le_entry_has_own_time(entry) ? entry->deadline : entry->lease->deadline;
}

/* Time left until then. */
extern LeTime le_entry_time_left(const LeEntry *entry, LeTime now);
/* The named lease that it hangs on; NULL: none. */
extern LeLease *le_entry_named_lease(const LeEntry *entry);
/* Acquired again, on a named lease or in an election, it is held once. */
extern bool le_entry_counts_once(const LeEntry *entry);
extern uint32_t le_entry_holds(const LeEntry *entry);

/* The row of a holder, or of a place. */
static inline const LeRow *
le_entry_row(const LeEntry *entry)
{
	return le_entry_has_slot(entry) ? &entry->slot->row : &entry->waiter->row;
}

/* Does this batch write anything that an answer about the entry rests on: its row, or that of its lease? */
static inline bool
le_entry_is_dirty(const LeEntry *entry)
{
	return le_entry_row(entry)->dirty || (entry->lease != NULL && entry->lease->row.dirty);
}

/* NULL: it is free. */
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
