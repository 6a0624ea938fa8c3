/*
 * shared/shmem.h
 *		Shared memory of backends, managers and the launcher.
 *
 * A client has several names, depending on the point of view:
 *
 *	connection	of the client to the server; ttl => NULL binds a lock to it
 *	backend		PostgreSQL's process that serves the connection
 *	proc number	index of the backend's PGPROC; a later backend may get the same one
 *	session		what the manager knows: the generation of a proc number, and that
 *				number.  DISCARD ALL begins another session on the connection.
 *	mailbox		the session's room in shared memory: one for each database and proc
 *				number
 *
 * A slot is none of these: it is the room of a lock for one holder (core/view.h).
 *
 * A request goes from a backend to the manager of its database and back through the backend's mailbox,
 * without a lock:
 *
 *	1.	The backend waits until the mailbox is quiet: its last request is answered, and no rollback or awaited
 *		releases are left in its mail.  Then it fills in the request and sets posted to the request's number.
 *		A new session first waits until the mailbox of the previous session is cleared.
 *	2.	It rings (le_ring): unless the mailbox is linked already, it links it into its database's stack by
 *		compare-and-swap, and wakes up the manager, unless that was already woken up for the stack.  A release
 *		that nobody waits for is rung softly: the manager is woken up only if it would not look by itself
 *		within LE_NAP (LeDatabase.asleep), or if there is a waiter in a queue.  Otherwise the stack's head
 *		notes that the manager was not woken up (LE_STACK_SILENT), so that the next ring does it.
 *	3.	The manager takes the whole stack with one exchange.  For each mailbox it clears linked first and then
 *		looks: mail, then request.  So it sees everything that was stored before a ring, with this look or
 *		with the next one, because a ring after this look links the mailbox again.
 *	4.	The manager stores the reply, sets answered to the request's number, and wakes up the backend; if the
 *		reply waits for a flush of the WAL, the flusher wakes it up, see shared/flush.h.  A request that has
 *		to wait is answered in a later batch; until then the mailbox keeps its revision, so that a new manager
 *		can put it back into its place in the queue.
 *	5.	The backend reads the reply once answered equals posted.
 *
 * Each database has a mailbox for each proc number.  So if a manager is stuck, the mail of an ended session
 * blocks only later sessions of the same database, which could do nothing without that manager anyway.
 *
 * Mail reports events whose sending must not fail: rollback of a (sub)transaction, releases of a commit, end
 * of a fence, end of the session, and "this session has waited for deadlock_timeout".
 *
 *	1.	The backend stores the mail, or raises its flag, and rings.  Mails of one kind coalesce: an undo that
 *		is not read yet is merged into the next one.
 *	2.	The manager applies mail before the session's request.  An asynchronous release (backend/granted.h)
 *		comes before all new requests of its batch, of all sessions.
 *	3.	It clears applied mail once its batch is committed: a batch that fails finds the mail again.  Releases
 *		are cleared first, right after the commit, because they must not be applied twice.  The end of a fence
 *		is cleared when it is read, because another one may follow, and is put back if the batch fails.
 *	4.	The backend posts no request while a rollback or awaited releases are unread (step 1 above).  So "all
 *		acquires from number N on" never applies to a later request.
 *
 * How a process sleeps and is woken up is described in shared/sleep.h.
 */
#ifndef LE_SHMEM_H
#define LE_SHMEM_H

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "storage/dsm.h"
#include "storage/lwlock.h"

#include "core/command.h"
#include "shared/database.h"

/* the longest name, owner, value and acquirer, and the rest of a page item */
#define LE_PAYLOAD_SIZE 4880
#define LE_MESSAGE_SIZE 256

/* A session number: the generation of its proc number, and in the low LE_PROC_BITS bits that number. */
#define LE_PROC_BITS             20
#define le_session_proc(session) ((uint32) ((session) & ((UINT64CONST(1) << LE_PROC_BITS) - 1)))

/* Each type uses its own members of LeMailbox, for the request and for the reply. */
typedef enum LeRequestType
{
	LE_REQUEST_COMMAND = 1, /* one core command */
	LE_REQUEST_PAGE,        /* a page of the live state, see shared/page_format.h */
	LE_REQUEST_LEADER,      /* a CHECK of the leader of this election */
	LE_REQUEST_CHANGES,     /* LSN of the newest visible change of an election */
	LE_REQUEST_SYNC         /* lease_sync(): a KEEP_ALIVE with a body, see shared/sync_format.h */
} LeRequestType;

/* A text of a request: part of the mailbox's payload. */
typedef struct LeTextSpan
{
	uint16 at;
	uint16 len;
	bool given; /* false: NULL */
} LeTextSpan;

/*
 * The position where a page of the live state begins.  It names the last item of the page before instead of a
 * count: holders and waiters come and go between two pages, and each one that stays must be listed once.
 */
typedef struct LePageCursor
{
	int64 index;     /* of the lock or lease; -1: no more pages */
	int64 last;      /* last item listed of that lock: a waiter's token, or -1 - a holder's slot; 0: none */
	int64 token;     /* of that item */
	uint32 position; /* of that waiter in its queue; 0: a holder */
} LePageCursor;

/* One of the releases that a transaction makes at its commit. */
typedef struct LeReleaseItem
{
	int64 token;
	int64 lease; /* lease of the client that releases; 0: none */
	int64 hold_for_us;
	uint32 role;
	uint32 holds;
	uint16 name_len;
	uint8 kind;
	/* the name follows; the next item begins at a multiple of 8 */
} LeReleaseItem;

/*
 * The releases of a commit, see shared/releases.h: the items are in data, or if they do not fit there, in a
 * segment of dynamic shared memory.
 */
#define LE_RELEASES_SIZE 1024

typedef struct LeReleases
{
	dsm_handle segment; /* DSM_HANDLE_INVALID: the items are in data */
	uint32 len;
	uint32 xact;
	bool need_standby;    /* synchronous_commit is above local */
	bool durable_release; /* lock_election.durable_release */
	bool async;           /* release_lock() has returned already, and nobody waits; false: COMMIT waits */
	uint32 done;          /* written by the manager: bytes of items that are applied and committed */
	uint64 lsn;           /* written by the manager: LSN of these; 0: none of them has to be durable */
	char data[LE_RELEASES_SIZE] pg_attribute_aligned(8);
} LeReleases;

/* Mail: flags that a session raises for its manager. */
#define LE_MAIL_SESSION_END 0x01 /* the backend is gone */
#define LE_MAIL_FENCE_ENDED 0x02 /* the session has released a fence */
#define LE_MAIL_WAITS_LONG  0x04 /* the session has waited long, and asks for a search for deadlocks */
#define LE_MAIL_RELEASED    0x08 /* LeMailbox.releases has the releases of a commit */

/* Notes from the manager to a waiting backend. */
/* the requested lock is held by the same session */
#define LE_NOTE_OWN_SESSION 0x01
/* the mail cannot be applied now: sqlstate and message say why */
#define LE_NOTE_UNREAD 0x02
/* the extension was dropped: the releases of the commit are discarded */
#define LE_NOTE_GONE 0x04

/* Special value of an LSN: the LSN of the batch, which is in the reply. */
#define LE_LSN_OF_BATCH PG_UINT64_MAX

/* The reply to lease_sync(), without its results and the news. */
typedef struct LeSyncTold
{
	int64 incarnation; /* of the manager */
	uint64 seen;       /* number of the newest news that the client has now been told */
	uint64 begun;      /* number of the newest news when the listing of everything on the lease began */
	bool from_start;   /* the news begin with a listing of everything on the lease */
	bool more;         /* there are more news to fetch */
	uint32 losses;     /* value of LE_EPOCH_LOSSES when the news were listed */
	uint64 lease_lsn;  /* LSN of the row of the lease; or LE_LSN_OF_BATCH */
	bool applied;      /* false: the call was old, and none of its items was carried out */
} LeSyncTold;

typedef struct LeMailbox
{
	/* --- written by the backend that owns the mailbox --- */
	uint64 session; /* 0: free; cleared by the manager */
	int database;   /* index in LeShared.databases; never changes */
	int pid;
	pg_atomic_uint32 posted;    /* number of the newest request */
	pg_atomic_uint32 given_up;  /* number of the newest request whose caller left before the reply */
	pg_atomic_uint32 open_xact; /* number of the open transaction, if it has acquired; 0: none */
	pg_atomic_uint64 undo;      /* mail: transaction << 32 | its first acquire to be undone; 0: none */
	pg_atomic_uint32 mail;      /* LE_MAIL_* */
	pg_atomic_uint32 releasing; /* 1: an asynchronous release is not posted yet */
	LeRequestType type;
	union
	{
		LeCommand command; /* COMMAND, LEADER, SYNC: everything but its texts */
		struct
		{
			LeKind kind;       /* kind of name, if that is given; or LE_PAGE_LEASES */
			LePageCursor from; /* position where the page begins */
		} page;                /* PAGE */
	};
	LeTextSpan name;  /* COMMAND, LEADER; PAGE: list only this lock */
	LeTextSpan owner; /* COMMAND */
	LeTextSpan value;
	LeTextSpan acquirer;  /* COMMAND: only of an ACQUIRE */
	uint32 body_at;       /* of a request with a body: its position in the payload, or */
	uint32 body_handle;   /* its segment, see shared/names.h */
	bool need_flush;      /* synchronous_commit is not off */
	bool need_standby;    /* synchronous_commit is above local */
	bool durable_release; /* lock_election.durable_release */
	uint32 sync_items;    /* SYNC: number of items */
	LeTime posted_at;
	pg_atomic_uint64 confirming_since; /* start of its wait for a standby, by le_clock(); 0: no wait */
	bool confirming_replay; /* it waits until the standby has replayed the commit, which may take long */
	LeReleases releases;    /* owned by the manager while LE_MAIL_RELEASED is set */

	/* --- written by the process that links the mailbox --- */
	pg_atomic_uint32 linked;
	uint32 next; /* proc number + 1 */

	/* --- written by the manager --- */
	/*
	 * While the manager has nothing to answer, the backend resets some of these: note, revision and sqlstate
	 * when it posts, released_lsn when it mails releases, bound when it attaches.  Before and during a wait
	 * it also clears flags of note.
	 */
	pg_atomic_uint32 answered;
	pg_atomic_uint32 deferred; /* number of the last request that was deferred */
	pg_atomic_uint32 note;     /* LE_NOTE_* */
	pg_atomic_uint32 bound;    /* number of locks bound to this connection */
	int64 revision;            /* of the waiting request; 0: none */
	uint64 released_lsn;       /* LSN of the releases of its commit; 0: none of them has to be durable */
	LeReply reply;             /* COMMAND, LEADER, SYNC */
	union
	{
		LePageCursor next_page;   /* PAGE: position where the next page begins */
		TimestampTz leader_since; /* LEADER */
		LeSyncTold sync;          /* SYNC */
	};
	LeTime reply_as_of; /* moment for which the reply states the time left, by le_clock() */
	int sqlstate;       /* 0: no error; else the request failed */
	char message[LE_MESSAGE_SIZE];
	uint32 answer_at;  /* position and length in the payload: of a page or news, */
	uint32 answer_len; /* the leader's candidate, or the detail of a deadlock */

	/* the texts of a request, or its reply */
	char payload[LE_PAYLOAD_SIZE] pg_attribute_aligned(8);
} LeMailbox;

/* State of a proc number that does not depend on the database of its process. */
typedef struct LeProcess
{
	pg_atomic_uint32 bell; /* see shared/sleep.h */
	uint64 generation;     /* generation of its newest session; written by the process */

	/* --- see shared/flush.h --- */
	pg_atomic_uint32 present;      /* 1: the process can be named the flusher */
	pg_atomic_uint32 flush_linked; /* 1: the process is in the stack of those that wait */
	uint32 flush_next;             /* proc number + 1 */
	uint32 flush_round;            /* number of the last flush that served it */
	uint64 flush_lsn;              /* LSN up to which it needs the WAL flushed */
} LeProcess;

/* The processes that wait for a flush of the WAL, see shared/flush.h. */
typedef struct LeFlush
{
	pg_atomic_uint32 stack;   /* proc number + 1 of the newest; 0: empty */
	pg_atomic_uint32 waiting; /* number of processes in the stack */
	pg_atomic_uint32 flusher; /* proc number + 1; 0: nobody flushes */
	pg_atomic_uint64 wanted;  /* LSN up to which to flush */
	pg_atomic_uint32 rounds;  /* number of flushes so far */

	/* --- see shared/flush_delay.h --- */
	pg_atomic_uint32 delaying;   /* proc number + 1 of a flusher that waits for others; 0: none */
	pg_atomic_uint32 took_us;    /* duration of a flush, smoothed */
	pg_atomic_uint32 last_group; /* number of sessions that the last flush served */
	pg_atomic_uint32 expected;   /* number of sessions expected next: the union of the last two groups */
	pg_atomic_uint32 undelayed;  /* number of flushes that are not to be delayed, from now on */
	pg_atomic_uint32 backoff;    /* initial value of undelayed */
	pg_atomic_uint64 ended_at;   /* end of the last flush, by le_clock() */
} LeFlush;

typedef struct LeShared
{
	LWLock *lock;
	uint64 boot;                  /* time at which it was created, which identifies it; not 0 */
	uint8 channel_key[32];        /* random; the channels of leases are derived from it */
	TimestampTz checkpoint_at;    /* last checkpoint before boot, on a standby by its primary's clock */
	pg_atomic_uint64 incarnation; /* highest incarnation that any database has had */
	pg_atomic_uint32 many_fences; /* fences of transactions with many, see backend/session_fence.c */
	int max_sessions;
	int max_databases;
	int launcher_pid;  /* under lock */
	int launcher_proc; /* -1: none */
	LeFlush flush;
	LeDatabase *databases;
	LeProcess *processes; /* by proc number */
	LeMailbox *mailboxes; /* see le_mailbox() */
} LeShared;

extern LeShared *le_shared; /* NULL: library not preloaded */

static inline LeMailbox *
le_mailbox(const LeDatabase *db, uint32 proc)
{
	return &le_shared->mailboxes[(Size) (db - le_shared->databases) * le_shared->max_sessions + proc];
}

static inline uint32
le_mailbox_proc(const LeMailbox *box)
{
	return (uint32) (box - le_mailbox(&le_shared->databases[box->database], 0));
}

/* Called from _PG_init, while shared_preload_libraries are loaded. */
extern void le_shmem_init_hooks(void);

/* Returns the time of a monotonic clock, in microseconds. */
extern LeTime le_clock(void);

/*
 * Returns the time of day at a moment of le_clock(), in the manager.  The same moment gives the same time of
 * day, unless the system's time was set in between.
 */
extern TimestampTz le_wall(LeTime now);

static inline LeText
le_mailbox_text(const LeMailbox *box, LeTextSpan span)
{
	return (LeText){span.given ? box->payload + span.at : NULL, span.len};
}

/* Step 2 above.  Must not fail: it is called for mail, too. */
extern void le_ring(LeMailbox *box);

/* After a batch the manager looks once more by itself, within this time; after that it has to be woken up. */
#define LE_NAP (5 * LE_MS)

/*
 * The same for a release that nobody waits for: a manager that will look by itself within LE_NAP is not woken
 * up, unless there is a waiter in a queue, which may wait for just this release.  A later ring wakes up the
 * manager for both.  Must not fail.
 */
extern void le_ring_softly(LeMailbox *box);

/*
 * Step 3: takes the whole stack, oldest first.  Returns the number of proc numbers in procs, which must have
 * room for all of them.
 */
extern int le_take_stack(LeDatabase *db, uint32 *procs);

/*
 * Clears the mailbox of a session that has ended, once nothing in it matters any more, for the next session.
 */
extern void le_mailbox_clear(LeMailbox *box);

/* Initializes the mailboxes of a database entry that is used for the first time. */
extern void le_mailboxes_init(LeDatabase *db);

#endif /* LE_SHMEM_H */
