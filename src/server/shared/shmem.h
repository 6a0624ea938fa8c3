/*
 * shared/shmem.h
 *		What backends, managers and the launcher share.
 *
 * A request goes from a backend to the manager of its database and back
 * through the backend's slot, without a lock:
 *
 *	1.	The backend waits until the slot is quiet: the last request answered,
 *		the mailbox empty.  Then it fills in the request and sets posted to
 *		the request's number.  A new backend waits, before its first one, until
 *		the slot of the one before it is cleared and not linked any more.
 *	2.	It rings (le_ring): if the slot is not linked, it links it into its
 *		database's stack by compare-and-swap, and sets the manager's latch if
 *		the stack was empty.
 *	3.	The manager takes the whole stack with one exchange, and for each slot
 *		clears linked first and then looks: mailbox, then request.  Whatever
 *		is stored before a ring is therefore seen: either by this look or by
 *		the next, because the ring after it links the slot again.
 *	4.	The manager stores the reply, sets answered to the request's number
 *		and the backend's latch.  A request that has to wait is answered in a
 *		later batch; its revision is noted in the slot, so that a new manager
 *		can put it back to its place.
 *	5.	The backend reads the reply once answered equals posted.
 *
 * The mailbox tells ends: of a (sub)transaction that rolled back, of a fence,
 * of the session; that a wait has become a long one, and that an answer was not
 * confirmed.  Posting cannot fail.  Mails coalesce; the manager clears what it
 * has read only after its batch is committed, and a request is not posted over a
 * rollback or an unconfirmed answer (step 1), so "everything from subtransaction
 * N on" and "my last request" never reach a later one.  The end of a fence is
 * cleared when it is read, as another may follow, and put back if the batch
 * fails.
 */
#ifndef LE_SHMEM_H
#define LE_SHMEM_H

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "storage/lwlock.h"

#include "core/core.h"

/* name, owner and value at their longest, and what a page says of them */
#define LE_PAYLOAD_SIZE 4736
#define LE_MESSAGE_SIZE 256

/* A session: generation of its proc number, and that number. */
#define LE_PROC_BITS             20
#define le_session_proc(session) ((uint32) ((session) & ((UINT64CONST(1) << LE_PROC_BITS) - 1)))

/* What can be asked beyond the core's commands. */
typedef enum LeRequestType
{
	LE_REQUEST_COMMAND = 1,  /* one core command */
	LE_REQUEST_RELEASE_MANY, /* payload: LeReleaseItem + name, repeated */
	LE_REQUEST_LOOK,         /* a page of the live state */
	LE_REQUEST_LOOK_LEASES,  /* ... of the leases */
	LE_REQUEST_LEADER,       /* a CHECK of whoever holds this name, see shared/look.h */
	LE_REQUEST_CHANGES       /* what the changes of elections that can be seen rest on */
} LeRequestType;

/* One of the releases that a transaction makes at its commit. */
typedef struct LeReleaseItem
{
	int64 token;
	int64 hold_for;
	uint32 role;
	uint32 holds;
	uint16 name_len;
	uint8 kind;
	/* the name follows; the next item begins at a multiple of 8 */
} LeReleaseItem;

/* Mailbox flags. */
#define LE_MAIL_SESSION_END 0x01 /* the backend is gone */
#define LE_MAIL_FENCE_ENDED 0x02 /* it has released a fence */
#define LE_MAIL_BLOCKED     0x04 /* it has waited long: is it a deadlock? */
#define LE_MAIL_UNCONFIRMED 0x08 /* its last answer was not confirmed by a standby */

/* Notes from the manager to a backend that waits. */
/* the lock is held by this very session */
#define LE_NOTE_OWN_SESSION 0x01
/* its mail or its commit's releases cannot be applied now: sqlstate, message */
#define LE_NOTE_UNREAD 0x02
/* its answer is on its way to the disk */
#define LE_NOTE_SOON 0x04

typedef struct LeRequestSlot
{
	/* --- written by the backend that owns the slot --- */
	uint64 session;    /* 0: free; cleared by the manager */
	uint32 generation; /* of this proc number */
	int database;      /* index in LeShared.databases */
	int pid;
	pg_atomic_uint32 posted;    /* number of the newest request */
	pg_atomic_uint32 open_xact; /* its transaction that has acquired; 0 */
	pg_atomic_uint64 undo;      /* mailbox: xact << 32 | subxact; 0: none */
	pg_atomic_uint32 mail;      /* mailbox: LE_MAIL_* */
	LeRequestType type;
	LeCommand command;   /* texts are in the payload, in order: name,
								 * owner, value; data is not NULL if present */
	uint32 names_at;     /* of several names: where in the payload, or */
	uint32 names_handle; /* in which segment, see shared/names.h */
	bool need_flush;     /* synchronous_commit is not off */
	bool need_standby;   /* it is above local */
	LeTime posted_at;

	/* --- written by whoever wakes the process of this number --- */
	pg_atomic_uint32 bell; /* see shared/shmem.c */

	/* --- written by whoever links it --- */
	pg_atomic_uint32 linked;
	uint32 next; /* proc number + 1 */

	/* --- written by the manager --- */
	pg_atomic_uint32 answered;
	pg_atomic_uint32 note; /* LE_NOTE_* */
	int64 revision;        /* of the waiting request; 0 */
	LeReply reply;
	LeTime reply_at; /* monotonic */
	int sqlstate;    /* 0: none, else the request failed */
	char message[LE_MESSAGE_SIZE];
	uint32 payload_len; /* of a page */

	/* request, or answer of a look, or detail of a deadlock */
	char payload[LE_PAYLOAD_SIZE] pg_attribute_aligned(8);
} LeRequestSlot;

/*
 * The manager of a database.  The state changes under LeShared.lock:
 *
 *	FREE -> IDLE		a backend or the launcher needs an entry
 *	IDLE -> STARTING	the launcher has registered the worker
 *	STARTING -> RUNNING the worker has found the extension and loaded
 *	STARTING, RUNNING -> IDLE	the worker has left, see exit
 *	IDLE -> FREE		nobody is attached, no extension
 */
typedef enum LeDbState
{
	LE_DB_FREE = 0,
	LE_DB_IDLE,
	LE_DB_STARTING,
	LE_DB_RUNNING
} LeDbState;

typedef enum LeDbExit
{
	LE_EXIT_NONE = 0,     /* never started, or asked to leave */
	LE_EXIT_NO_EXTENSION, /* do not start again unless wanted */
	LE_EXIT_ERROR         /* start again, after a back-off */
} LeDbExit;

typedef struct LeCounters
{
	pg_atomic_uint64 requests[LE_CMD_FENCE_ENDED + 1]; /* by LeCommandType */
	pg_atomic_uint64 grants;
	pg_atomic_uint64 waits;
	pg_atomic_uint64 handoffs;
	pg_atomic_uint64 expiries;
	pg_atomic_uint64 timeouts;
	pg_atomic_uint64 undone;
	pg_atomic_uint64 batches; /* with something to write */
	pg_atomic_uint64 failed_batches;
	pg_atomic_uint64 xids;
	pg_atomic_uint64 rows;
	pg_atomic_uint64 flushes;
	pg_atomic_uint64 stalls;
	pg_atomic_uint64 hints_sent;
	pg_atomic_uint64 hints_dropped;
	pg_atomic_uint64 write_us; /* time spent in writing and committing */
	pg_atomic_uint64 reset_at; /* TimestampTz */
} LeCounters;

/* What happened that somebody outside of the server may wait for. */
typedef struct LeHint
{
	int64 token;     /* of a queue place that was granted, or a term */
	uint64 sequence; /* of the database's hints */
	int64 change;    /* of an election: its number; else 0 */
	int64 previous;  /* number of that election's change before */
	uint8 how;       /* LeHow; 0: a queue place was granted */
	uint8 kind;      /* LeKind */
	uint16 name_len;
	char name[LE_MAX_NAME];
} LeHint;

/*
 * Hints on their way from the manager to the notifier, one writer and one
 * reader:
 *
 *	1.	The manager fills hints[pushed % LE_HINTS] in, unless the ring is full
 *		(pushed - sent == LE_HINTS): then the hint is dropped.  It raises
 *		pushed, and sets the notifier's latch.
 *	2.	The notifier copies hints from sent up to pushed, sends them, and
 *		raises sent once its transaction has ended.  It does both under
 *		LeShared.lock, and only while the entry says that it is the notifier.
 *
 * What is in the ring outlives both.
 */
#define LE_HINTS 2048

typedef struct LeHintRing
{
	pg_atomic_uint64 pushed;
	pg_atomic_uint64 sent;
	uint64 sequence; /* of the newest hint, dropped ones included */
	LeHint hints[LE_HINTS];
} LeHintRing;

typedef struct LeDatabase
{
	/* --- under LeShared.lock --- */
	Oid dboid;
	LeDbState state;
	LeDbExit exit;
	bool wanted;     /* somebody waits for a manager */
	bool leave;      /* the worker is asked to leave */
	int reserved_by; /* pid of a backend that keeps it from starting
								 * (DROP DATABASE and the like); 0 */
	int attached;    /* sessions with a slot here */
	int worker_pid;
	int worker_proc;   /* -1: none */
	int notifier_pid;  /* 0: none */
	int notifier_proc; /* -1: none */
	TimestampTz started;

	/* --- without a lock --- */
	pg_atomic_uint32 stack;    /* proc number + 1 of the newest; 0: empty */
	pg_atomic_uint32 recheck;  /* the extension may be gone */
	pg_atomic_uint32 running;  /* state == RUNNING, for a quick look */
	pg_atomic_uint32 fences;   /* transactions that hold or take fences */
	pg_atomic_uint64 revision; /* next one, for the view */
	pg_atomic_uint64 memory;   /* bytes, for the view */
	pg_atomic_uint64 locks;
	LeCounters counters;
	LeHintRing ring;
} LeDatabase;

typedef struct LeShared
{
	LWLock *lock;
	uint64 boot;                  /* this life of the shared memory; not 0 */
	pg_atomic_uint64 incarnation; /* highest that any database has had */
	int max_slots;
	int max_databases;
	int launcher_pid;  /* under lock */
	int launcher_proc; /* -1: none */
	LeDatabase *databases;
	LeRequestSlot *slots; /* by proc number */
} LeShared;

extern LeShared *le_shared; /* NULL: library not preloaded */

extern void le_shmem_init_hooks(void);

/* Monotonic clock, microseconds. */
extern LeTime le_clock(void);

/*
 * In the manager: the time of day at this moment of its clock.  What is asked
 * for twice is answered alike, unless somebody has set the time of day.
 */
extern TimestampTz le_wall(LeTime now);

/* Wake a process by its proc number; -1: nobody. */
extern void le_wake(int proc);

/*
 * The other side: sleep until then.  As with a latch, first comes
 * le_sleep_reset(), then a look at what is waited for, then le_sleep(), which
 * returns when the time is over, or before that for any reason or none.  Exits
 * if the postmaster is gone.
 */
extern void le_sleep_reset(void);
extern void le_sleep(LeTime at_most);
extern void le_wake_launcher(void);

/* Step 2 above. */
extern void le_ring(LeRequestSlot *slot);

extern void le_counters_reset(LeCounters *counters);
extern int le_take_stack(LeDatabase *db, uint32 *procs);
extern void le_slot_clear(LeRequestSlot *slot);
extern void le_database_unlink_all(LeDatabase *db);
extern void le_database_clear_slots(LeDatabase *db);

/*
 * The entry of a database, made if there is none; -1: all
 * lock_election.max_databases are in use.  Caller holds LeShared.lock
 * exclusively.
 */
extern int le_database_find(Oid dboid, bool create);

#endif /* LE_SHMEM_H */
