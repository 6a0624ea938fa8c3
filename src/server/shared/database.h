/*
 * shared/database.h
 *		Declares database entries: the state of the manager of each database, and the rules for starting and
 *		stopping the manager.
 *
 * The launcher, the managers, sessions and commands such as DROP DATABASE all change entries, but only through
 * the functions below, which assert the old state first.
 */
#ifndef LE_DATABASE_H
#define LE_DATABASE_H

#include "datatype/timestamp.h"
#include "port/atomics.h"

#include "core/command.h"
#include "core/epoch.h"
#include "core/objects.h"

/*
 *	FREE -> IDLE		a session, a command or the launcher needs an entry
 *	IDLE -> STARTING	the launcher is about to register a worker
 *	STARTING -> RUNNING the worker has found the extension and loaded its tables
 *	STARTING, RUNNING -> IDLE	the worker has left, or could not be registered
 *	IDLE -> FREE		no session is attached, and no manager is needed
 */
typedef enum LeDbState
{
	LE_DB_FREE = 0,
	LE_DB_IDLE,
	LE_DB_STARTING,
	LE_DB_RUNNING
} LeDbState;

/* The reason why the last worker left.  The launcher uses it to decide when to start the next one. */
typedef enum LeDbExit
{
	LE_EXIT_NONE = 0,     /* there was no worker, or the last one was asked to leave */
	LE_EXIT_NO_EXTENSION, /* the extension is missing: start the next worker only if it is wanted */
	LE_EXIT_ERROR,        /* the worker failed: start the next one after a back-off */
	LE_EXIT_NO_WORKER     /* a worker could not be registered: retry after a back-off */
} LeDbExit;

typedef struct LeDurationCounters
{
	pg_atomic_uint64 n[LE_DURATION_BOUNDS + 1]; /* number of durations in each bucket, as in LeDurations */
	pg_atomic_uint64 sum;
} LeDurationCounters;

typedef struct LeCounters
{
	pg_atomic_uint64 requests[LE_CMD_FENCE_ENDED + 1]; /* number of requests, by LeCommandType */
	pg_atomic_uint64 grants;
	pg_atomic_uint64 waits;
	pg_atomic_uint64 handoffs;
	pg_atomic_uint64 expiries;
	pg_atomic_uint64 timeouts;
	pg_atomic_uint64 undone;
	pg_atomic_uint64 elected;
	pg_atomic_uint64 batches; /* number of batches that had changes to write */
	pg_atomic_uint64 failed_batches;
	pg_atomic_uint64 key_violations; /* number of batches that failed because of a violated unique key */
	pg_atomic_uint64 xids;
	pg_atomic_uint64 rows;
	pg_atomic_uint64 flushes;
	pg_atomic_uint64 stalls;
	pg_atomic_uint64 hints_sent;
	pg_atomic_uint64 hints_dropped;
	pg_atomic_uint64 write_us; /* time spent on writing and committing, in microseconds */
	LeDurationCounters durations[LE_DURATION_TYPES];
	pg_atomic_uint64 reset_at; /* time of the last reset, TimestampTz */
} LeCounters;

/* Value of LeHint.kind if a lease has news.  It is no LeKind. */
#define LE_HINT_LEASE 0

/*
 * A hint about an event that a client may wait for: a grant to a queue place, a change of an election, or
 * news of a lease.
 */
typedef struct LeHint
{
	int64 token;     /* token of the granted place, term of the election, or number of the lease */
	uint64 sequence; /* number of this hint in the database */
	int64 change;    /* number of the election's change; 0 = not an election */
	int64 previous;  /* number of the previous change of the same election */
	uint8 how;       /* LeHow of the change; 0 = a queue place was granted */
	uint8 kind;      /* LeKind, or LE_HINT_LEASE (then there is no name) */
	uint16 name_len;
	char name[LE_MAX_NAME];
} LeHint;

/*
 * Hints on their way from the manager to the notifier.  The ring has one writer and one reader:
 *
 *	1.	The manager fills in hints[pushed % LE_HINTS].  If the ring is full (pushed - sent == LE_HINTS), the
 *		manager drops the hint instead.  It increments pushed, and sets the notifier's latch.
 *	2.	The notifier copies the hints from sent up to pushed, flushes the WAL up to lsn, sends the hints, and
 *		increases sent once its transaction has ended.  It copies hints and increases sent under
 *		LeShared.lock, and only while it is registered in the entry as the notifier.
 *
 * The contents of the ring outlive both processes.
 */
#define LE_HINTS 2048

typedef struct LeHintRing
{
	pg_atomic_uint64 pushed;
	pg_atomic_uint64 sent;
	uint64 sequence;      /* sequence number of the newest hint, including dropped hints */
	pg_atomic_uint64 lsn; /* LSN on which the newest hint depends */
	LeHint hints[LE_HINTS];
} LeHintRing;

/* Flag in LeDatabase.stack: the manager was not woken up for the mailboxes on the stack. */
#define LE_STACK_SILENT 0x80000000

#define LE_DB_TABLES 3

typedef struct LeDatabase
{
	/* --- protected by LeShared.lock; changed only by shared/database.c --- */
	Oid dboid;
	LeDbState state;
	LeDbExit exit;
	bool wanted;     /* a manager is needed */
	bool created;    /* the extension was created after the last worker started: start the next one at once */
	bool leave;      /* the worker is asked to leave */
	int reserved_by; /* pid of a backend that keeps managers from starting, as DROP DATABASE does; 0 = none */
	int attached;    /* number of sessions that have a mailbox of this entry */
	bool has_mailboxes; /* the mailboxes are initialized; never reset */
	int worker_pid;     /* pid of the worker; 0 = none, or it has not started yet */
	int manager_proc;   /* proc number of the worker; -1 = none */
	int notifier_pid;   /* pid of the notifier; 0 = none */
	int notifier_proc;  /* proc number of the notifier; -1 = none */
	TimestampTz started;

	/* --- not protected by a lock --- */
	pg_atomic_uint32 stack;    /* proc number + 1 of the newest mailbox | LE_STACK_SILENT; 0 = empty */
	pg_atomic_uint32 asleep;   /* 1: the manager must be woken up to check the stack */
	pg_atomic_uint32 recheck;  /* 1: the extension may have been dropped */
	pg_atomic_uint32 running;  /* 1: state is RUNNING; for readers without the lock */
	pg_atomic_uint32 loading;  /* 1: the worker is reading the tables, and is not RUNNING yet */
	pg_atomic_uint32 fences;   /* number of transactions that hold, or are taking, fences */
	pg_atomic_uint64 revision; /* the next revision; only for views */
	pg_atomic_uint64 memory;   /* memory that the state uses, in bytes; only for views */
	pg_atomic_uint64 locks;
	pg_atomic_uint64 held; /* number of holders and of entries in queues */
	pg_atomic_uint64 queued;
	pg_atomic_uint64 oldest_wait; /* start of the oldest wait for a lock, TimestampTz; 0 = none */
	pg_atomic_uint64 table_bytes[LE_DB_TABLES]; /* sizes of tables slot, lease and queue in bytes */

	/* the current outage, for health(): see manager/outage.c */
	pg_atomic_uint64 outage_since;     /* start of the outage, TimestampTz; 0 = none; written last */
	pg_atomic_uint64 outage_failed_at; /* time of the last failed batch, by le_clock(); 0 = none */
	pg_atomic_uint32 outage_sqlstate;
	pg_atomic_uint32 outage_pid; /* pid of a process that has locked the tables; 0 = unknown */

	/*
	 * for health(): the first commit that is still unconfirmed although its session has stopped waiting for
	 * standbys; see backend/durability.c
	 */
	pg_atomic_uint64 unconfirmed_since; /* start of the wait, by le_clock(); 0 = none; written last */
	pg_atomic_uint64 unconfirmed_lsn;
	pg_atomic_uint32 unconfirmed_mode; /* mode of the wait: SYNC_REP_WAIT_WRITE, ..FLUSH or ..APPLY */
	LeCounters counters;
	uint32 epochs[LE_EPOCH_WORDS]; /* see core/epoch.h; written by the manager's core */
	LeHintRing ring;
} LeDatabase;

struct LeMailbox;

/*
 * Initializes an entry.  Called while shared memory is created, and when the entry is assigned to another
 * database.
 */
extern void le_database_init(LeDatabase *db);

/*
 * The caller of each of the following functions holds LeShared.lock exclusively, unless the function's
 * comment says otherwise.
 */

/*
 * Returns the entry of a database.  If there is none, creates it if "create" is true.  Returns NULL if there
 * is no entry, or if all lock_election.max_databases entries are in use.  If "create" is false, a shared lock
 * is enough.
 */
extern LeDatabase *le_database_find(Oid dboid, bool create);

/* --- called by the launcher --- */

/* IDLE -> STARTING: called before the launcher registers a worker. */
extern void le_database_starting(LeDatabase *db);

/* Returns whether an ended session has left mail for a manager.  There must be no attached session. */
extern bool le_database_has_mail(LeDatabase *db);

/* IDLE -> FREE: called when the entry is no longer needed.  There must be no attached session. */
extern void le_database_free(LeDatabase *db);

/* --- called by the worker --- */

/* Registers this process as the worker. */
extern void le_database_enter(LeDatabase *db);

/* STARTING -> RUNNING: called when the worker has loaded the tables. */
extern void le_database_running(LeDatabase *db);

/*
 * STARTING, RUNNING -> IDLE: called when the worker leaves, or when the launcher has found it dead or could
 * not register it.
 */
extern void le_database_stopped(LeDatabase *db, LeDbExit why);

/* --- called by any process --- */

/* Records that a manager is needed. */
extern void le_database_want(LeDatabase *db);

/*
 * Records that the extension was created, so that a manager is started even if earlier managers did not find
 * the extension.
 */
extern void le_database_created(LeDatabase *db);

/*
 * Prevents managers from starting, on behalf of process pid.  A running worker stays unless it is asked to
 * leave.  With pid 0, managers may start again, and a request to leave is cancelled unless the worker has
 * already left.
 */
extern void le_database_reserve(LeDatabase *db, int pid);
/* Asks the worker to leave.  The worker finishes its work first, see manager/manager.c. */
extern void le_database_ask_to_leave(LeDatabase *db);

/*
 * Registers this process as the database's notifier, or unregisters it.  Unregistering must not fail, because
 * it runs at exit.
 */
extern void le_database_notifier_enter(LeDatabase *db);
extern void le_database_notifier_leave(LeDatabase *db);

/* --- called by a session --- */

/* Counts a session that has taken a mailbox of this entry. */
extern void le_database_attach(LeDatabase *db);

/*
 * Informs the manager by mail that the session of this mailbox has ended or is about to end.  Must not fail,
 * because it runs at exit.
 */
extern void le_database_detach(struct LeMailbox *box);

/* Resets the counters with atomic writes, so it needs no lock. */
extern void le_counters_reset(LeCounters *counters);

#endif /* LE_DATABASE_H */
