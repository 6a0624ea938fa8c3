/*
 * shared/shmem.h
 *		Declares the shared memory of backends, managers and the launcher.
 *
 * A client has several names, depending on the point of view:
 *
 *	connection	of the client to the server; ttl => NULL binds a lock to it
 *	backend		PostgreSQL's process that serves the connection
 *	proc number	index of the backend's PGPROC; a later backend may get the same one
 *	session		the manager's view of a connection: the generation of a proc number, and that
 *				number.  DISCARD ALL begins another session on the connection.
 *	mailbox		the session's area in shared memory: one for each database and proc
 *				number
 *
 * In contrast, a slot is room in a lock for one holder (core/objects.h).
 *
 * A request passes from a backend to the manager of its database, and its reply back, through the backend's
 * mailbox, without a lock:
 *
 *	1.	The backend waits until the mailbox is quiet, that is, until its last request has a reply and its mail
 *		contains neither a rollback nor awaited releases.  Then it fills in the request and sets posted to the
 *		request's number.  A new session first waits until the mailbox of the previous session is cleared.
 *	2.	It rings (le_ring): it links the mailbox into its database's stack by compare-and-swap, unless the
 *		mailbox is already linked, and wakes up the manager, unless the manager was already woken up for this
 *		stack.  For a release that no caller waits for, it rings softly (le_ring_softly): it wakes up the
 *		manager only if the manager would not check the stack by itself within LE_NAP (LeDatabase.asleep), or
 *		if there is a waiter in a queue.  Otherwise it sets LE_STACK_SILENT in the stack's head to record that
 *		the manager was not woken up, so that the next ring wakes it up.
 *	3.	The manager takes the whole stack with one exchange.  For each mailbox it first clears "linked", then
 *		reads the mail, then the request.  So it sees everything that was stored before a ring, either now or
 *		the next time, because a later ring links the mailbox again.
 *	4.	The manager stores the reply, sets answered to the request's number, and wakes up the backend.  If the
 *		reply needs a flush of the WAL, the flusher wakes up the backend instead (shared/flush.h).  A request
 *		that has to wait gets its reply in a later batch; until then the mailbox contains the request's
 *		revision, so that a new manager can put the request back into its place in the queue.
 *	5.	The backend reads the reply once answered equals posted.
 *
 * Each database has a mailbox for each proc number.  So if a manager is stuck, the mail of an ended session
 * blocks only later sessions of the same database.
 *
 * Mail reports events whose sending must not fail: rollback of a (sub)transaction, releases of a commit, end
 * of a fence, end of the session, and "this session has waited for deadlock_timeout".
 *
 *	1.	The backend stores the mail, or raises its flag, and rings.  Mails of one kind coalesce: an undo that
 *		has not been read yet is merged with the next one.
 *	2.	The manager applies mail before the session's request.  Asynchronous releases (backend/granted.h) are
 *		applied before all new requests of the batch, those of other sessions included.
 *	3.	The manager clears applied mail only after its batch has committed, so that the mail is found again if
 *		the batch fails.  Releases are cleared first, right after the commit, because they must not be applied
 *		twice.  The flag for the end of a fence is cleared when it is read, because another fence may end
 *		during the batch.  It is set again if the batch fails.
 *	4.	The backend posts no request while the manager has not read a rollback or awaited releases (step 1
 *		above).  So an undo of "all acquires with number N or higher" never applies to a later
 *		request.
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

/* bytes; must hold the longest name, owner, value and acquirer, and the fixed part of a page item */
#define LE_PAYLOAD_SIZE 4880
#define LE_MESSAGE_SIZE 256

/*
 * A session number consists of the generation of its proc number and, in the low LE_PROC_BITS bits, that proc
 * number.
 */
#define LE_PROC_BITS             20
#define le_session_proc(session) ((uint32) ((session) & ((UINT64CONST(1) << LE_PROC_BITS) - 1)))

/* The type of a request; it determines which members of LeMailbox the request and its reply use. */
typedef enum LeRequestType
{
	LE_REQUEST_COMMAND = 1, /* one core command */
	LE_REQUEST_PAGE,        /* a page of the live state, see shared/page_format.h */
	LE_REQUEST_LEADER,      /* a CHECK of the current leader of an election */
	LE_REQUEST_CHANGES,     /* a query of the LSN of the newest visible change of an election */
	LE_REQUEST_SYNC         /* lease_sync(): a KEEP_ALIVE with a body, see shared/sync_format.h */
} LeRequestType;

/* Offset and length of one of a request's texts in the mailbox's payload. */
typedef struct LeTextSpan
{
	uint16 at;
	uint16 len;
	bool given; /* false: the text is NULL */
} LeTextSpan;

/*
 * The position at which a page of the live state begins.  It identifies the last item of the previous page
 * instead of counting items: items may be added and removed between two pages, but each remaining one must be
 * listed exactly once.
 */
typedef struct LePageCursor
{
	int64 index; /* index of the lock or lease; -1: no more pages */
	int64 last;  /* last listed item of the lock: a waiter's token, or (-1 - slot) of a holder; 0 = none */
	int64 token; /* token of the last listed item */
	uint32 position; /* position of the last listed waiter in its queue; 0: the item is a holder */
} LePageCursor;

/* A release that takes effect at the commit of its transaction. */
typedef struct LeReleaseItem
{
	int64 token;
	int64 lease; /* lease of the releasing client; 0 = none */
	int64 hold_for_us;
	uint32 role;
	uint32 holds;
	uint16 name_len;
	uint8 kind;
	/* The name follows; the next item begins at a multiple of 8. */
} LeReleaseItem;

/*
 * The releases of a commit, see shared/releases.h.  The items are in data or, if they do not fit there, in a
 * segment of dynamic shared memory.
 */
#define LE_RELEASES_SIZE 1024

typedef struct LeReleases
{
	dsm_handle segment; /* segment with the items; DSM_HANDLE_INVALID: they are in data */
	uint32 len;
	uint32 xact;
	bool need_standby;    /* synchronous_commit is above local */
	bool durable_release; /* value of lock_election.durable_release */
	bool async;  /* true: release_lock() has returned, and COMMIT does not wait; false: COMMIT waits */
	uint32 done; /* written by the manager: bytes of the items that are applied and committed */
	uint64 lsn;  /* written by the manager: LSN of the applied items; 0: none of them has to be durable */
	char data[LE_RELEASES_SIZE] pg_attribute_aligned(8);
} LeReleases;

/* Mail flags, which a session sets for its manager. */
#define LE_MAIL_SESSION_END 0x01 /* the session has ended */
#define LE_MAIL_FENCE_ENDED 0x02 /* the session has released a fence */
#define LE_MAIL_WAITS_LONG  0x04 /* the session waited for deadlock_timeout and asks for a deadlock search */
#define LE_MAIL_RELEASED    0x08 /* LeMailbox.releases contains the releases of a commit */

/* Note flags, with which the manager informs a waiting backend. */
/* the requested lock is held by the same session */
#define LE_NOTE_OWN_SESSION 0x01
/* the mail cannot be applied now; sqlstate and message contain the reason */
#define LE_NOTE_UNREAD 0x02
/* the extension was dropped: the releases of the commit are discarded */
#define LE_NOTE_GONE 0x04

/* Special LSN value: use the LSN of the batch, which is in the reply. */
#define LE_LSN_OF_BATCH PG_UINT64_MAX

/* The reply to lease_sync(), without the results of its items and the news. */
typedef struct LeSyncTold
{
	int64 incarnation; /* incarnation of the manager */
	uint64 seen;       /* sequence number of the newest news item in this reply and all earlier ones */
	uint64 begun;      /* sequence number of the newest news item when the listing of the whole lease began */
	bool from_start;   /* the news begins with a listing of everything on the lease */
	bool more;         /* there is more news to fetch */
	uint32 losses;     /* value of LE_EPOCH_LOSSES when the news was listed */
	uint64 lease_lsn;  /* LSN of the lease's row, or LE_LSN_OF_BATCH */
	bool applied;      /* false: the call was old, so no item was carried out */
} LeSyncTold;

typedef struct LeMailbox
{
	/* --- written by the backend that owns the mailbox --- */
	uint64 session; /* session number; 0 = free; cleared by the manager */
	int database;   /* index in LeShared.databases; never changes */
	int pid;
	pg_atomic_uint32 posted;    /* number of the newest request */
	pg_atomic_uint32 given_up;  /* number of the newest request whose caller has stopped waiting */
	pg_atomic_uint32 open_xact; /* number of the open transaction, once it has acquired a lock; 0 = none */
	pg_atomic_uint64 undo;      /* mail: transaction << 32 | number of its first acquire to undo; 0 = none */
	pg_atomic_uint32 mail;      /* LE_MAIL_* */
	pg_atomic_uint32 releasing; /* 1: the session may be about to mail an asynchronous release */
	LeRequestType type;
	union
	{
		LeCommand command; /* COMMAND, LEADER, SYNC: the core command without its texts */
		struct
		{
			LeKind kind;       /* kind of the given name, if any; or LE_PAGE_LEASES */
			LePageCursor from; /* position at which the page begins */
		} page;                /* PAGE: the page to return */
	};
	LeTextSpan name;  /* COMMAND, LEADER: the name; PAGE: list only this lock */
	LeTextSpan owner; /* COMMAND */
	LeTextSpan value;
	LeTextSpan acquirer;  /* COMMAND: only for ACQUIRE */
	uint32 body_at;       /* offset of the request's body in the payload, unless it is in a segment */
	uint32 body_handle;   /* segment of the body, see shared/names.h; DSM_HANDLE_INVALID = none */
	bool need_flush;      /* the reply must wait for a flush of the WAL (le_needs_flush()) */
	bool need_standby;    /* synchronous_commit is above local */
	bool durable_release; /* value of lock_election.durable_release */
	uint32 sync_items;    /* SYNC: number of items */
	LeTime posted_at;
	pg_atomic_uint64 confirming_since; /* start of a wait for a standby, by le_clock(); 0 = none */
	bool confirming_replay;            /* the wait for the standby lasts until it has replayed the commit */
	LeReleases releases;               /* owned by the manager while LE_MAIL_RELEASED is set */

	/* --- written by the process that links the mailbox --- */
	pg_atomic_uint32 linked;
	uint32 next; /* next mailbox in the stack: proc number + 1; 0 = end */

	/* --- written by the manager --- */
	/*
	 * While no request is waiting for a reply, the backend resets some of these members: note, revision and
	 * sqlstate when it posts, released_lsn when it mails releases, bound when it attaches.  Before and during
	 * a wait it also clears flags in note.
	 */
	pg_atomic_uint32 answered;
	pg_atomic_uint32 deferred; /* number of the newest request that the manager deferred */
	pg_atomic_uint32 note;     /* LE_NOTE_* */
	pg_atomic_uint32 bound;    /* number of locks bound to this connection */
	int64 revision;            /* revision of the waiting request; 0 = none */
	uint64 released_lsn;       /* LSN of the releases that were mailed; 0: none of them has to be durable */
	LeReply reply;             /* reply to a COMMAND, LEADER or SYNC */
	union
	{
		LePageCursor next_page;   /* PAGE: position at which the next page begins */
		TimestampTz leader_since; /* LEADER: start of the leader's term */
		LeSyncTold sync;          /* SYNC: reply to lease_sync() */
	};
	LeTime reply_as_of; /* time at which the durations in the reply begin, by le_clock() */
	int sqlstate;       /* 0 = no error; otherwise the request failed */
	char message[LE_MESSAGE_SIZE];
	uint32 answer_at;  /* payload offset of the page, the news, the candidate or the deadlock details */
	uint32 answer_len; /* length in bytes of the data at answer_at */

	/* the texts of a request or, later, of its reply */
	char payload[LE_PAYLOAD_SIZE] pg_attribute_aligned(8);
} LeMailbox;

/* State of a process, indexed by its proc number.  Unlike a mailbox, it does not depend on a database. */
typedef struct LeProcess
{
	pg_atomic_uint32 bell; /* see shared/sleep.h */
	uint64 generation;     /* generation of the newest session of this proc number; written by that session */

	/* --- see shared/flush.h --- */
	pg_atomic_uint32 present;      /* 1: the process can be named the flusher */
	pg_atomic_uint32 flush_linked; /* 1: the process is in the stack of waiting processes */
	uint32 flush_next;             /* next process in the stack: proc number + 1; 0 = end */
	uint32 flush_round;            /* number of the last flush that served this process */
	uint64 flush_lsn;              /* LSN up to which this process needs the WAL flushed */
} LeProcess;

/* The processes that wait for a flush of the WAL, see shared/flush.h. */
typedef struct LeFlush
{
	pg_atomic_uint32 stack;   /* proc number + 1 of the newest process; 0 = empty */
	pg_atomic_uint32 waiting; /* number of processes in the stack */
	pg_atomic_uint32 flusher; /* proc number + 1 of the flusher; 0 = none */
	pg_atomic_uint64 wanted;  /* LSN up to which to flush */
	pg_atomic_uint32 rounds;  /* number of flushes so far */

	/* --- see shared/flush_delay.h --- */
	pg_atomic_uint32 delaying;   /* proc number + 1 of a flusher that delays its flush; 0 = none */
	pg_atomic_uint32 took_us;    /* smoothed duration of a flush, in microseconds */
	pg_atomic_uint32 last_group; /* number of sessions that the last flush served */
	pg_atomic_uint32 expected;   /* number of sessions expected next: the union of the last two groups */
	pg_atomic_uint32 undelayed;  /* count of upcoming flushes that are not delayed */
	pg_atomic_uint32 backoff;    /* value to which undelayed was last set */
	pg_atomic_uint64 ended_at;   /* end of the last flush, by le_clock() */
} LeFlush;

typedef struct LeShared
{
	LWLock *lock;
	uint64 boot;                  /* time of creation, which identifies this shared memory; never 0 */
	uint8 channel_key[32];        /* random; the channels of leases are derived from it */
	TimestampTz checkpoint_at;    /* time of the last checkpoint before boot, by the primary's clock */
	pg_atomic_uint64 incarnation; /* highest incarnation of any database so far */
	pg_atomic_uint32 many_fences; /* number of fences of transactions with many (backend/session_fence.c) */
	int max_sessions;
	int max_databases;
	int launcher_pid;  /* protected by lock; 0 = none */
	int launcher_proc; /* -1 = none */
	LeFlush flush;
	LeDatabase *databases;
	LeProcess *processes; /* indexed by proc number */
	LeMailbox *mailboxes; /* see le_mailbox() */
} LeShared;

extern LeShared *le_shared; /* NULL: the library is not preloaded */

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

/* Returns the time of a monotonic clock, in microseconds. */
extern LeTime le_clock(void);

/*
 * Returns the time of day that corresponds to a time of le_clock().  The same argument gives the same result,
 * unless the system clock was set in between.
 */
extern TimestampTz le_wall(LeTime now);

static inline LeText
le_mailbox_text(const LeMailbox *box, LeTextSpan span)
{
	return (LeText){span.given ? box->payload + span.at : NULL, span.len};
}

/*
 * Step 2 above: links the mailbox, and wakes up the manager if necessary.  Must not fail, because mail must
 * always be sent.
 */
extern void le_ring(LeMailbox *box);

/* For this time after a batch, the manager checks the stack again by itself.  Later, it must be woken up. */
#define LE_NAP (5 * LE_MS)

/*
 * Rings for a release that no caller waits for.  Does not wake up a manager that will check the stack by
 * itself within LE_NAP, unless there are waiters, which may be waiting for this release.  The next le_ring()
 * wakes up the manager for this mailbox as well.  Must not fail.
 */
extern void le_ring_softly(LeMailbox *box);

/*
 * Step 3: takes the whole stack.  Stores the proc numbers in procs, oldest first, and returns their number.
 * procs must have room for LeShared.max_sessions of them.
 */
extern int le_take_stack(LeDatabase *db, uint32 *procs);

/* Clears the mailbox of an ended session for the next session, when its contents are no longer needed. */
extern void le_mailbox_clear(LeMailbox *box);

/*
 * Initializes the mailboxes of a database entry when the entry is first used.  Until then they use no memory,
 * because the system allocates a page only when it is first written to.
 */
extern void le_mailboxes_init(LeDatabase *db);

#endif /* LE_SHMEM_H */
