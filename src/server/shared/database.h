/*
 * shared/database.h
 *		The entry of a database: which manager serves it, and who may start or
 *		stop one.
 *
 * The launcher, the managers, sessions and commands such as DROP DATABASE all
 * change an entry.  They do it by the functions below, which change the state
 * in one place and assert the state it had.
 */
#ifndef LE_DATABASE_H
#define LE_DATABASE_H

#include "datatype/timestamp.h"
#include "port/atomics.h"

#include "core/command.h"
#include "core/epoch.h"
#include "core/stats.h"

/*
 *	FREE -> IDLE		a session, a command or the launcher needs an entry
 *	IDLE -> STARTING	the launcher registers a worker
 *	STARTING -> RUNNING the worker has found the extension and loaded its tables
 *	STARTING, RUNNING -> IDLE	the worker has left, or could not be registered
 *	IDLE -> FREE		no session is attached and nobody needs a manager
 */
typedef enum LeDbState
{
	LE_DB_FREE = 0,
	LE_DB_IDLE,
	LE_DB_STARTING,
	LE_DB_RUNNING
} LeDbState;

/* Why the last worker left; the launcher decides by it when to start another. */
typedef enum LeDbExit
{
	LE_EXIT_NONE = 0,     /* there was none, or it was asked to leave */
	LE_EXIT_NO_EXTENSION, /* do not start again unless wanted */
	LE_EXIT_ERROR,        /* start again, after a back-off */
	LE_EXIT_NO_WORKER     /* no worker could be registered: the same */
} LeDbExit;

typedef struct LeDurationCounters
{
	pg_atomic_uint64 n[LE_DURATION_BOUNDS + 1]; /* as in LeDurations */
	pg_atomic_uint64 sum;
} LeDurationCounters;

typedef struct LeCounters
{
	pg_atomic_uint64 requests[LE_CMD_FENCE_ENDED + 1]; /* by LeCommandType */
	pg_atomic_uint64 grants;
	pg_atomic_uint64 waits;
	pg_atomic_uint64 handoffs;
	pg_atomic_uint64 expiries;
	pg_atomic_uint64 timeouts;
	pg_atomic_uint64 undone;
	pg_atomic_uint64 elected;
	pg_atomic_uint64 batches; /* with something to write */
	pg_atomic_uint64 failed_batches;
	pg_atomic_uint64 key_violations; /* of those, by the unique key of a table */
	pg_atomic_uint64 xids;
	pg_atomic_uint64 rows;
	pg_atomic_uint64 flushes;
	pg_atomic_uint64 stalls;
	pg_atomic_uint64 hints_sent;
	pg_atomic_uint64 hints_dropped;
	pg_atomic_uint64 write_us; /* time spent in writing and committing */
	LeDurationCounters durations[LE_DURATION_TYPES];
	pg_atomic_uint64 reset_at; /* TimestampTz */
} LeCounters;

/* In the place of a hint's kind: a lease has news. */
#define LE_HINT_LEASE 0

/*
 * An event that a client may wait for: a grant to a queue place, a change of an election, or news of
 * a lease.
 */
typedef struct LeHint
{
	int64 token;     /* of a queue place that was granted, a term, or a lease */
	uint64 sequence; /* of the database's hints */
	int64 change;    /* of an election: its number; else 0 */
	int64 previous;  /* number of that election's change before */
	uint8 how;       /* LeHow; 0: a queue place was granted */
	uint8 kind;      /* LeKind, or LE_HINT_LEASE, which has no name */
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
 *	2.	The notifier copies hints from sent up to pushed, flushes the WAL up to
 *		lsn, sends them, and raises sent once its transaction has ended.  It does both under
 *		LeShared.lock, and only while the entry says that it is the notifier.
 *
 * What is in the ring outlives both.
 */
#define LE_HINTS 2048

typedef struct LeHintRing
{
	pg_atomic_uint64 pushed;
	pg_atomic_uint64 sent;
	uint64 sequence;      /* of the newest hint, dropped ones included */
	pg_atomic_uint64 lsn; /* of the newest hint */
	LeHint hints[LE_HINTS];
} LeHintRing;

/* Flag in the head of LeDatabase.stack: the manager was not woken for what is on it. */
#define LE_STACK_SILENT 0x80000000

#define LE_DB_TABLES 3

typedef struct LeDatabase
{
	/* --- under LeShared.lock; changed only by shared/database.c --- */
	Oid dboid;
	LeDbState state;
	LeDbExit exit;
	bool wanted;        /* somebody waits for a manager */
	bool created;       /* the extension was created since the last worker began: no back-off */
	bool leave;         /* the worker is asked to leave */
	int reserved_by;    /* pid of a backend that keeps a manager from starting
						* (DROP DATABASE and the like); 0: nobody */
	int attached;       /* sessions with a mailbox here */
	bool has_mailboxes; /* they are initialised; for good */
	int worker_pid;     /* 0: none, or it has not begun */
	int manager_proc;   /* -1: none */
	int notifier_pid;   /* 0: none */
	int notifier_proc;  /* -1: none */
	TimestampTz started;

	/* --- without a lock --- */
	pg_atomic_uint32 stack;    /* proc number + 1 of the newest, and LE_STACK_SILENT; 0: empty */
	pg_atomic_uint32 asleep;   /* the manager does not look at the stack by itself */
	pg_atomic_uint32 recheck;  /* the extension may be gone */
	pg_atomic_uint32 running;  /* state == RUNNING, for a quick look */
	pg_atomic_uint32 loading;  /* the worker reads the tables before that */
	pg_atomic_uint32 fences;   /* transactions that hold or take fences */
	pg_atomic_uint64 revision; /* next one, for the view */
	pg_atomic_uint64 memory;   /* bytes, for the view */
	pg_atomic_uint64 locks;
	pg_atomic_uint64 held; /* holders, and entries in queues */
	pg_atomic_uint64 queued;
	pg_atomic_uint64 oldest_wait;               /* TimestampTz; 0: nobody waits for a lock */
	pg_atomic_uint64 table_bytes[LE_DB_TABLES]; /* size of tables slot, lease, queue, for the view */

	/* an outage, see manager/outage.c; for health() */
	pg_atomic_uint64 outage_since;     /* TimestampTz; 0: there is none.  Written last */
	pg_atomic_uint64 outage_failed_at; /* le_clock(): a batch failed last; 0: never */
	pg_atomic_uint32 outage_sqlstate;
	pg_atomic_uint32 outage_pid; /* has locked the tables; 0: not known */

	/* the first wait for standbys that was given up and is not confirmed, see backend/durability.c; for health() */
	pg_atomic_uint64 unconfirmed_since; /* le_clock(); 0: there was none.  Written last */
	pg_atomic_uint64 unconfirmed_lsn;
	pg_atomic_uint32 unconfirmed_mode; /* PostgreSQL's SYNC_REP_WAIT_... */
	LeCounters counters;
	uint32 epochs[LE_EPOCH_WORDS]; /* written by the manager's core */
	LeHintRing ring;
} LeDatabase;

struct LeMailbox;

/* While shared memory is made. */
extern void le_database_init(LeDatabase *db);

/* The caller of what follows holds LeShared.lock exclusively, unless it says otherwise. */

/*
 * The entry of a database, made if there is none; NULL: there is none, or all
 * lock_election.max_databases are in use.  Unless it may be made, a shared lock is enough.
 */
extern LeDatabase *le_database_find(Oid dboid, bool create);

/* --- the launcher's --- */

/* IDLE -> STARTING: the launcher is about to register a worker. */
extern void le_database_starting(LeDatabase *db);

/* Has an ended session left something for a manager?  No session is attached. */
extern bool le_database_has_mail(LeDatabase *db);

/* IDLE -> FREE.  No session is attached. */
extern void le_database_free(LeDatabase *db);

/* --- the worker's --- */

/* The worker has begun: this process. */
extern void le_database_enter(LeDatabase *db);

/* STARTING -> RUNNING */
extern void le_database_running(LeDatabase *db);

/*
 * STARTING, RUNNING -> IDLE: the worker has left, or the launcher has found it
 * dead or could not register it.
 */
extern void le_database_stopped(LeDatabase *db, LeDbExit why);

/* --- anybody's --- */

/* Somebody waits for a manager. */
extern void le_database_want(LeDatabase *db);

/* The extension was created: somebody wants a manager, whatever those before it have found. */
extern void le_database_created(LeDatabase *db);

/*
 * Keep managers from starting, for process pid.  The worker that is there stays,
 * unless it is asked to leave.  pid 0: managers may start again, and one that
 * has not followed such a request yet may stay.
 */
extern void le_database_reserve(LeDatabase *db, int pid);
/* It finishes what is under way first, see manager/manager.c. */
extern void le_database_ask_to_leave(LeDatabase *db);

/* This process is the notifier of the database; and it is not any more, which may not fail: called by exits. */
extern void le_database_notifier_enter(LeDatabase *db);
extern void le_database_notifier_leave(LeDatabase *db);

/* --- a session's --- */

/* A session takes a mailbox of this entry. */
extern void le_database_attach(LeDatabase *db);

/* The session of this mailbox has ended, or is about to: tell the manager by mail.  May not fail: called by exits. */
extern void le_database_detach(struct LeMailbox *box);

/* Needs no lock. */
extern void le_counters_reset(LeCounters *counters);

#endif /* LE_DATABASE_H */
