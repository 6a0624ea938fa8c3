/*
 * core/core.h
 *		The lock state machine: who holds what, who waits, in which order.
 *
 * Plain C11.  No PostgreSQL header, no clock, no I/O: time is an input, and
 * what has to be written or answered is left in lists for the surroundings
 * (the manager process, the unit tests, the simulator) to carry out.
 *
 * One command is handled in two steps:
 *
 *	1.	le_core_reserve() makes sure that everything the command may need is
 *		allocated.  It may fail, and then nothing has changed.
 *	2.	le_core_apply() carries the command out.  It cannot fail for want of
 *		memory; whatever it says is an answer.
 *
 * Commands and expiries are collected into a batch.  At the end of the batch
 * the surroundings write all dirty slots and leases to stable storage, give
 * the answers, and call le_core_batch_done().  If the writing fails, the whole
 * core is thrown away and loaded anew.
 *
 * Times are microseconds on a monotonic clock that the surroundings choose;
 * durations are microseconds too.
 */
#ifndef LE_CORE_H
#define LE_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "list.h"

#define LE_MAX_NAME  255  /* bytes of a lock or election name */
#define LE_MAX_OWNER 255  /* bytes of an owner */
#define LE_MAX_VALUE 4096 /* bytes of a candidate */
#define LE_MAX_NAMES 1000 /* names in one command */
#define LE_FEW       16   /* entries whose end is no work to speak of */

#define LE_MAX_ACQUIRER 127 /* bytes of what is kept of an acquirer */

#define LE_MS     INT64_C(1000)
#define LE_SECOND INT64_C(1000000)
#define LE_NEVER  INT64_MAX

/* The TTL of an entry that lives as long as its connection. */
#define LE_TTL_BOUND INT64_C(-1)
/* The wait of a request that waits without limit. */
#define LE_WAIT_FOREVER INT64_C(-1)

/*
 * An unused slot's row lingers this long before it is deleted; those of one
 * step go together, in one batch.
 */
#define LE_LINGER      (1 * LE_SECOND)
#define LE_LINGER_STEP (100 * LE_MS)
/* A lapsed but fenced holder is asked about again after this long at most. */
#define LE_FENCE_RETRY (1 * LE_SECOND)
/*
 * Of leases longer than this the time left is saved when they have not been
 * renewed for so long, so that restarts cannot keep a dead lease alive; the
 * renewal after that is written before it is answered.
 */
#define LE_SAVE_INTERVAL (300 * LE_SECOND)

/* Revision = incarnation << LE_COUNTER_BITS | counter; stays below 2^53. */
#define LE_COUNTER_BITS    28
#define LE_COUNTER_MAX     ((INT64_C(1) << LE_COUNTER_BITS) - 1)
#define LE_INCARNATION_MAX ((INT64_C(1) << (53 - LE_COUNTER_BITS)) - 1)
/* As far as it can be advanced by hand: a million incarnations are left. */
#define LE_ADVANCE_MAX ((LE_INCARNATION_MAX + 1 - (INT64_C(1) << 20)) << LE_COUNTER_BITS)

typedef int64_t LeTime;

typedef struct LeText
{
	const char *data; /* NULL: absent */
	uint32_t len;
} LeText;

typedef enum LeKind
{
	LE_KIND_LOCK = 1,
	LE_KIND_ELECTION = 2
} LeKind;

typedef enum LeMode
{
	LE_MODE_EXCLUSIVE = 1,
	LE_MODE_SHARED = 2,
	LE_MODE_PERMIT = 3
} LeMode;

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

typedef enum LeEnd
{
	LE_END_NONE = 0,
	LE_END_RELEASED,
	LE_END_EXPIRED,
	LE_END_REVOKED, /* its lease was revoked */
	LE_END_FORCED,
	LE_END_UNDONE,  /* its (sub)transaction rolled back */
	LE_END_SESSION, /* its connection ended */
	LE_END_TIMEOUT, /* its wait ran out */
	LE_END_REPLACED /* granted as one more hold of the same owner */
} LeEnd;

typedef enum LeStatus
{
	LE_OK = 0,       /* done; granted; true */
	LE_WAITING,      /* the answer comes with a later batch */
	LE_NOT_GRANTED,  /* not within the wait: SQL NULL */
	LE_NOT_HELD,     /* no such holder or queue place: SQL false */
	LE_LOST,         /* was there and ended while it waited: LE001 */
	LE_QUEUED,       /* a queue place that is not granted yet */
	LE_DENIED,       /* another role's: 42501 */
	LE_BAD_MODE,     /* one name used in two ways: 22023 */
	LE_BAD_PERMITS,  /* another number of permits in use: 22023 */
	LE_BAD_UPGRADE,  /* shared holder asks for exclusive: 22023 */
	LE_BAD_GROUP,    /* the same owner holds some of the names already,
								 * with another token: 22023 */
	LE_BAD_TTL,      /* bound and unbound mixed, or a lease's own
								 * TTL given: 22023 */
	LE_NO_LEASE,     /* the named lease is gone: LE001 */
	LE_LIMIT_LOCKS,  /* max_locks_per_role: 53400 */
	LE_LIMIT_LEASES, /* max_leases_per_role: 53400 */
	LE_LIMIT_BYTES,  /* max_memory_per_role: 53400 */
	LE_LIMIT_WAITERS /* max_waiters_per_lock: 53400 */
} LeStatus;

typedef enum LeCommandType
{
	LE_CMD_ACQUIRE = 1, /* also permits and campaigns */
	LE_CMD_AWAIT,       /* wait for a queue place to be granted */
	LE_CMD_RENEW,
	LE_CMD_RELEASE,  /* also resign, and leaving the queue */
	LE_CMD_CHECK,    /* is this token a holder, or queued?  Token 0:
								 * the session's own; role 0: anybody's */
	LE_CMD_FORCE,    /* end all holders of a name, and open it */
	LE_CMD_PROCLAIM, /* change a holder's value */
	LE_CMD_SET_PERMITS,
	LE_CMD_GRANT_LEASE,
	LE_CMD_KEEP_ALIVE,
	LE_CMD_REVOKE_LEASE,
	LE_CMD_LEASE_TTL,
	LE_CMD_FORCE_ROLE, /* end all that a role has */
	LE_CMD_ADVANCE,    /* the next revision is to be this one at least */
	LE_CMD_UNDO,       /* a (sub)transaction rolled back */
	LE_CMD_SESSION_END,
	LE_CMD_FENCE_ENDED /* a fence may have ended: ask again */
} LeCommandType;

/*
 * One command.  Fields that a command does not use are zero.
 *
 * session is never reused; sessno is its dense number (0 <= sessno <
 * max_sessions), used by one session at a time: SESSION_END for the old one
 * comes before the first command of the next.
 */
typedef struct LeCommand
{
	LeCommandType type;
	LeKind kind; /* lock or election */
	LeText name;
	const LeText *names; /* ACQUIRE, AWAIT, RELEASE and CHECK of several, each
								 * once: instead of name */
	uint32_t nnames;     /* 0: name alone */
	LeMode mode;
	int32_t permits;  /* for LE_MODE_PERMIT and SET_PERMITS */
	LeTime ttl;       /* LE_TTL_BOUND, or > 0; RENEW: 0 keeps it */
	LeTime wait;      /* 0: do not wait; LE_WAIT_FOREVER; ACQUIRE and
								 * AWAIT */
	bool enqueue;     /* ACQUIRE: enter the queue, answer at once */
	bool all_holds;   /* RELEASE */
	uint32_t holds;   /* RELEASE: so many of them; 0: one */
	int64_t from;     /* FORCE, FORCE_ROLE, SET_PERMITS, REVOKE_LEASE: go on from here, as the
								 * reply before has said; 0: begin */
	LeTime hold_for;  /* RELEASE: 0 or > 0, counted from acquisition */
	int64_t token;    /* 0: RELEASE of the session's own */
	int64_t revision; /* ACQUIRE: 0, or the one that a waiter had
								 * before a reload.  ADVANCE: the next */
	LeTime since;     /* ACQUIRE with revision: when it entered the queue;
								 * 0: now */
	int64_t before;   /* CHECK with token 0: of the session's own the
								 * newest before this one; 0: of all */
	int64_t reenter;  /* ACQUIRE: 0, or the session's own holder that
								 * it is one more hold of; of one name, it does
								 * not wait for that one */
	int64_t lease;    /* 0: a lease of its own */
	LeText owner;     /* data NULL: this connection */
	LeText value;     /* ACQUIRE of an election, PROCLAIM */
	LeText acquirer;  /* ACQUIRE: the connection that asks, for people who look; it decides nothing */
	uint32_t role;
	bool any_role; /* FORCE: the caller checked the rights */
	uint64_t session;
	uint32_t sessno;
	uint32_t xact;    /* transaction number within the session */
	uint32_t subxact; /* subtransaction number within it, from 1 */
	uint32_t request; /* the requester's number for this request */
} LeCommand;

typedef struct LeReply
{
	LeStatus status;
	int64_t token;     /* granted or queued */
	int64_t lease;     /* GRANT_LEASE: its id */
	int64_t revision;  /* ADVANCE: the next */
	LeTime valid_for;  /* time left; LE_NEVER when bound */
	uint32_t position; /* ACQUIRE, LE_QUEUED: in the queue, from 1; of
								 * several names the one farthest back */
	uint32_t holds;    /* CHECK: of the entry */
	int32_t ended;     /* FORCE, FORCE_ROLE: how many */
	bool reopened;     /* FORCE: the name was closed */
	int64_t next;      /* FORCE, FORCE_ROLE, SET_PERMITS, REVOKE_LEASE, UNDO,
								 * SESSION_END: there is more to do: the
								 * same command again, from here; 0: done */
	uint8_t ending;    /* LOST, NOT_HELD, NO_LEASE: how it ended (LeEnd); LE_END_NONE:
								 * that is not known, or not for this role */
	LeTime ending_ago;
	int32_t permits;   /* SET_PERMITS, LE_BAD_PERMITS: that were in use */
	uint32_t which;    /* several names: index of the one that the error,
								 * or own_session, refers to */
	bool own_session;  /* WAITING: behind a holder of this very session;
								 * CHECK: held by it without a named owner */
	bool reentrant;    /* one more hold of a lock already held */
	bool shared_owner; /* one more hold by this named owner, of what another
								 * connection acquired */
	bool waited;       /* set by the manager: came with a later batch */
	bool counted;      /* the grant added an uncommitted hold: UNDO removes
								 * it, and its row tells a reload of it */
	bool bound;        /* it tells only of what ends with the connection, and
								 * so with the server: nothing has to last */
	uint64_t lsn;      /* newest write that the answer rests on; 0: the
								 * batch itself or none */
	bool wrote;        /* the answer rests on this batch's writes */
	uint32_t epoch;    /* a grant's: which one, see core/epoch.h, and what */
	uint32_t epoch_is; /* it is; 0: that is not known */
	bool may_return;   /* RELEASE, REVOKE_LEASE: nothing rests on it.  If a crash
								 * brings back what it has ended, that is held for its
								 * TTL once more: LE_SAVE_INTERVAL at most */

	/* AWAIT has taken the place's wait over from this request, whose answer
	 * is LE_QUEUED; session 0: from nobody */
	uint64_t displaced_session;
	uint32_t displaced_sessno;
	uint32_t displaced_request;
} LeReply;

/* Where a slot's, a lease's or a queue place's row is.  The store fills the locator. */
typedef struct LeRow
{
	uint64_t locator : 58; /* the row's TID */
	uint64_t listed : 1;   /* a slot's: among the idle rows */
	uint64_t reused : 1;   /* ... and written since it was listed */
	uint64_t kept : 1;     /* ... not handed over at once */
	uint64_t recycled : 1; /* of another lock until this batch: its key is new */
	uint64_t on_disk : 1;
	uint64_t dirty : 1;
} LeRow;

typedef enum LeTimerType
{
	LE_TIMER_ENTRY,
	LE_TIMER_LOCK,
	LE_TIMER_LEASE
} LeTimerType;

typedef struct LeTimer
{
	LeTime at;
	uint32_t pos; /* place in the heap + 1; 0: not armed */
	uint8_t type; /* LeTimerType */
} LeTimer;

typedef struct LeEntry LeEntry;
typedef struct LeWaiter LeWaiter;
typedef struct LeSlot LeSlot;
typedef struct LeLock LeLock;
typedef struct LeLease LeLease;
typedef struct LeHold LeHold;
typedef struct LeGroup LeGroup;
typedef struct LeChange LeChange;
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
	LeGroup *passed_next;
};

/* Who has acquired: one record for all entries with the same text. */
struct LeAcquirer
{
	LeHashLink hash_link;
	uint32_t hash;
	uint32_t entries; /* that have it */
	uint8_t len;
	char text[]; /* not terminated */
};

/* One place in a lock that one holder can have; it owns a row. */
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
	LeLink session_link; /* in the session's entries */
	union
	{
		LeHashLink token_link; /* in the hash of tokens */
		LeEntry *ended_next;   /* ENDED */
	};
	LeLock *lock;
	LeWaiter *waiter; /* NULL: it does not wait, and has not waited in this batch */
	LeLease *lease;   /* NULL: a lease of its own */
	LeHold *holds;    /* the uncommitted ones */
	char *owner;      /* NULL: the session */
	char *value;
	LeAcquirer *acquirer; /* NULL: not known */
	int64_t token;
	LeTime ttl;      /* LE_TTL_BOUND: as long as its session */
	LeTime deadline; /* end of its own lease; LE_NEVER */
	LeSlot *slot;    /* HELD and LAPSED, as the next one */
	LeTime acquired_at;
	union
	{
		struct /* HELD */
		{
			LeHashBackLink owner_link; /* in the hash of named owners */
			LeTime saved_at;           /* renewed, or its time left written */
			LeTime saved_left;         /* time left for its row */
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
	uint32_t hold_count;
	uint32_t value_len : 13; /* LE_MAX_VALUE */
	uint32_t mode : 2;
	uint32_t state : 3;   /* LeState */
	uint32_t end : 4;     /* LeEnd: why it lapsed or ended */
	uint32_t place : 1;   /* a queue place, not a blocked call */
	uint32_t grouped : 1; /* QUEUED with others, or was until its batch */
	uint32_t owner_len : 8;
};

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
};

/* One hold of an entry, taken in a transaction that may still roll back. */
struct LeHold
{
	LeEntry *entry;
	LeHold *next;        /* in entry->holds */
	LeHold **link;       /* what points to this one there */
	LeLink session_link; /* in the session's holds */
	uint64_t session;
	uint32_t xact;
	uint32_t subxact;
};

/* What happened to an election. */
typedef enum LeHow
{
	LE_HOW_ELECTED = 1,
	LE_HOW_PROCLAIMED, /* the leader's value is another one */
	LE_HOW_RESIGNED,   /* from here on: the term has ended */
	LE_HOW_EXPIRED,
	LE_HOW_REVOKED,
	LE_HOW_FORCED,
	LE_HOW_UNDONE,      /* its transaction rolled back */
	LE_HOW_DISCONNECTED /* its connection ended */
} LeHow;

/* A change of an election, to be written and told with its batch. */
struct LeChange
{
	LeChange *next;
	LeLock *lock;
	const char *value; /* the leader's, from then on or up to the end */
	char *dropped;     /* a value that goes with the batch */
	int64_t number;    /* a revision */
	int64_t previous;  /* number of the election's change before; 0: not known */
	int64_t term;
	LeTime elected_at;
	LeTime at;
	uint32_t role; /* of the leader */
	uint16_t value_len;
	uint8_t how; /* LeHow */
	bool place;  /* elected from a queue place */
};

struct LeLease
{
	LeHashLink hash_link;
	LeLease *dirty_next;
	LeLink entries;
	int64_t id;
	LeTime ttl;
	LeTime deadline;
	LeTime saved_at;
	LeTime saved_left;
	LeTimer timer;
	uint64_t lsn;
	uint32_t role;
	uint8_t owner_len;
	uint8_t how; /* LeEnd: why it is ending */
	bool ending; /* for good, but not all that hangs on it has ended yet */
	bool ended;
	bool for_group; /* of a group alone: its id is their token, and it
								 * ends with the last of them */
	char *owner;
	LeRow row;
};

/* What the core asks of its surroundings. */
typedef struct LeEnv
{
	void *arg;
	void *(*alloc)(void *arg, size_t size); /* NULL when out of memory */
	void (*free)(void *arg, void *p);

	/*
	 * Is this token fenced by somebody right now?  Asked before a holder is
	 * ended by anything.  NULL: never.
	 */
	bool (*fenced)(void *arg, int64_t token);
	uint64_t seed[2]; /* of the hash of names, kept from callers so
								 * that nobody can make names collide */
	uint32_t *epochs; /* see core/epoch.h; NULL: nobody looks */
} LeEnv;

typedef struct LeLimits
{
	int64_t waiters_per_lock; /* 0: no limit */
	int64_t locks_per_role;   /* 0: no limit; held or waiting */
	int64_t leases_per_role;  /* 0: no limit */
	int64_t bytes_per_role;   /* 0: no limit; of all of these */
	int64_t work;             /* entries that are granted or ended in one batch, where
								 * that can be cut into steps; 0: no limit */
	LeTime expiry_grace;      /* from an expiry, or a connection's end, to
								 * the next grant */
} LeLimits;

/*
 * Histograms of how long things took.  Candidates of elections stand by for
 * days, so only waits for locks are counted.
 */
typedef enum LeDurationType
{
	LE_DURATION_WAIT,           /* from entering a queue to the grant */
	LE_DURATION_FRUITLESS_WAIT, /* to any other end */
	LE_DURATION_HOLD,           /* of a lock or permit, from the grant to the end */
	LE_DURATION_TERM,           /* of a leader, the same */
	LE_DURATION_TYPES
} LeDurationType;

#define LE_DURATION_BOUNDS 18
extern const LeTime le_duration_bounds[LE_DURATION_BOUNDS];

typedef struct LeDurations
{
	int64_t n[LE_DURATION_BOUNDS + 1]; /* at most that bound, and more than the one before; last: longer */
	int64_t count;                     /* all */
	LeTime sum;
} LeDurations;

typedef struct LeStats
{
	int64_t grants;
	int64_t waits;    /* acquires that had to queue */
	int64_t handoffs; /* grants to a waiter */
	int64_t expiries;
	int64_t timeouts;
	int64_t undone;
	int64_t elected; /* terms that have begun */
	LeDurations durations[LE_DURATION_TYPES];
} LeStats;

/* --- life of a core --- */

/*
 * sessno of its sessions is below max_sessions.  The first revision that it gives
 * out is next_revision.  NULL: out of memory.
 */
extern LeCore *le_core_create(const LeEnv *env, uint32_t max_sessions, int64_t next_revision);
extern void le_core_destroy(LeCore *core);
extern void le_core_set_limits(LeCore *core, const LeLimits *limits);

/* The revision that the next request will get. */
extern int64_t le_core_next_revision(const LeCore *core);

/* Raise it; a lower value is ignored. */
extern void le_core_raise_revision(LeCore *core, int64_t revision);

/*
 * What a starting manager knows of its predecessors.  Incarnations start from a
 * minute count, so that restored older state does not hand tokens out again.
 * Times are counted from 2025-01-01.
 */
typedef struct LeStart
{
	int64_t stored;     /* incarnation; 0: none */
	LeTime stored_at;   /* when that one was taken */
	int64_t floor;      /* at least this one; 0: none */
	LeTime time;        /* the latest that anything here tells */
	uint32_t timelines; /* of the server since the stored one; 0: it is the same */
} LeStart;

/* The incarnation of this start. */
extern int64_t le_next_incarnation(const LeStart *start);
/* And the first revision in it, at this time. */
extern int64_t le_first_revision(int64_t incarnation, LeTime time);

/* --- commands --- */

/* The two steps of a command, see the top.  reserve: false if out of memory. */
extern bool le_core_reserve(LeCore *core, const LeCommand *cmd);
extern void le_core_apply(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply);

/*
 * A lease has ended only if its deadline has passed by this time, though that of
 * the commands, and of le_core_expire(), is later: what keeps the lease alive may
 * still come.
 */
extern void le_core_set_horizon(LeCore *core, LeTime horizon);

/*
 * End what is due at the horizon, at most max items.  now is the time of the
 * batch's commands: what is granted in the place of what ends holds from then on.
 * Returns how many were handled; call again (after writing) while it returns max.
 */
extern int le_core_expire(LeCore *core, LeTime now, int max);

/* When le_core_expire() has something to do next; LE_NEVER: nothing. */
extern LeTime le_core_next_deadline(const LeCore *core);

/*
 * A holder that has ended this long ago and is still fenced; it is not
 * returned again before as much time has passed once more.  NULL: none.
 */
extern LeEntry *le_core_overdue(LeCore *core, LeTime timeout, LeTime now);

/*
 * This batch has done its share (LeLimits.work): what has not been begun is for
 * the next.  Looking at the state is work as well.
 */
extern bool le_core_is_full(const LeCore *core);
extern void le_core_worked(LeCore *core, uint32_t work);

/* Has this session more than a few entries or holds, so that its end is much work, or that of its transaction? */
extern bool le_core_end_is_heavy(const LeCore *core, uint64_t session, uint32_t sessno);

/* --- effects of the batch --- */

/* Slots whose row has to be written, updated or (drop, or no holder and no
 * linger) deleted.  A walk: first, then slot->dirty_next. */
extern LeSlot *le_core_dirty_slots(LeCore *core);
extern LeLease *le_core_dirty_leases(LeCore *core);

/* Before that: give the rows of idle locks to slots that have none, see core/recycle.c. */
extern void le_core_recycle_rows(LeCore *core, LeTime now);

/* Entries whose queue row has to be written (QUEUED places) or deleted. */
extern LeEntry *le_core_dirty_places(LeCore *core);

/* What happened to elections, in order: walk by next. */
extern LeChange *le_core_changes(LeCore *core);

/* Entries whose waiter gets an answer: walk by answer_next, and read it with
 * le_entry_answer(). */
extern LeEntry *le_core_answers(LeCore *core);
extern void le_entry_answer(const LeCore *core, const LeEntry *entry, LeTime now, LeReply *reply);

/* The batch is on stable storage (at this LSN) and answered. */
extern void le_core_batch_done(LeCore *core, uint64_t lsn);

/* --- looking --- */

/* An entry with this token; those of a group share theirs.  Looks at all: for tests. */
extern LeEntry *le_core_find_token(const LeCore *core, int64_t token);
/* The one that is in this lock. */
extern LeEntry *le_core_find_entry(const LeCore *core, LeKind kind, LeText name, int64_t token);
/* What the blocked call of this session waits for; NULL: it has none. */
extern LeEntry *le_core_waiting_on(const LeCore *core, uint64_t session, uint32_t sessno);
/* How many locks and places end with this session. */
extern uint32_t le_core_bound_to(const LeCore *core, uint64_t session, uint32_t sessno);
extern LeLease *le_core_find_lease(const LeCore *core, int64_t id);
extern LeLock *le_core_find_lock(const LeCore *core, LeKind kind, LeText name);

/*
 * Locks by place, for paging: places run from 0 to le_core_lock_indexes() - 1, a
 * lock keeps its place for life, NULL: nothing there.
 */
extern uint32_t le_core_lock_indexes(const LeCore *core);
extern LeLock *le_core_lock_at(const LeCore *core, uint32_t place);

/* Leases the same way. */
extern uint32_t le_core_lease_indexes(const LeCore *core);
extern LeLease *le_core_lease_at(const LeCore *core, uint32_t place);

/*
 * What has a row in one of the three tables, by index: slots, leases, queue
 * places.  NULL: nothing there, or it is not on disk.  Also what ends with this
 * batch: a batch that fails leaves its row where it was.
 */
typedef enum LeRowType
{
	LE_ROW_SLOT,
	LE_ROW_LEASE,
	LE_ROW_PLACE
} LeRowType;

extern uint32_t le_core_row_indexes(const LeCore *core, LeRowType type);
extern LeRow *le_core_row_at(LeCore *core, LeRowType type, uint32_t index);

/* How many locks there are, and what has happened since the start. */
extern uint64_t le_core_bytes(const LeCore *core);
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

/* It takes a slot of its lock: it is HELD or LAPSED. */
static inline bool
le_entry_has_slot(const LeEntry *entry)
{
	return entry->state == LE_STATE_HELD || entry->state == LE_STATE_LAPSED;
}

/* Time left of an entry's lease, own or named; LE_NEVER when bound. */
extern LeTime le_entry_time_left(const LeEntry *entry, LeTime now);
/* The named lease that it hangs on; NULL: none. */
extern LeLease *le_entry_named_lease(const LeEntry *entry);
/* Acquired again, on a named lease or in an election, it is held once. */
extern bool le_entry_counts_once(const LeEntry *entry);
extern uint32_t le_entry_holds(const LeEntry *entry);

/* Checks every internal invariant; aborts with a message.  For tests. */
extern void le_core_check(const LeCore *core);

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

#endif /* LE_CORE_H */
