/*
 * shared/shmem.h
 *		What backends, managers and the launcher share.
 *
 * One client has several names, by what it is looked at:
 *
 *	connection	of the client to the server; ttl => NULL binds a lock to it
 *	backend		PostgreSQL's process of the connection
 *	proc number	index of the backend's PGPROC; the next backend may get it
 *	session		what the manager knows: generation of the proc number, and that
 *				number.  DISCARD ALL begins another session of the connection.
 *	mailbox		the session's room in shared memory: one for each database and proc
 *				number
 *
 * A slot is none of them: it is the room of a lock for one holder (core/view.h).
 *
 * A request goes from a backend to the manager of its database and back
 * through the backend's mailbox, without a lock:
 *
 *	1.	The backend waits until the mailbox is quiet: its last request is answered,
 *		and no rollback or awaited releases are left in its mail.  Then it fills
 *		in the request and sets posted to the request's number.  A new session first
 *		waits until the mailbox of the session before it is cleared.
 *	2.	It rings (le_ring): unless the mailbox is linked, it links it into its
 *		database's stack by compare-and-swap, and wakes the manager, unless that was
 *		woken for the stack already.  A release that nobody waits for is rung
 *		softly: the manager is woken only if it would not look by itself within
 *		LE_NAP (LeDatabase.asleep), or if somebody is in a queue.  Then the stack's
 *		head says that the manager was not woken (LE_STACK_SILENT), so that the
 *		next ring does it.
 *	3.	The manager takes the whole stack with one exchange.  For each mailbox it
 *		clears linked first and then looks: mail, then request.  So it sees
 *		whatever is stored before a ring: by this look or by the next, because the
 *		ring after this look links the mailbox again.
 *	4.	The manager stores the reply, sets answered to the request's number, and
 *		wakes the backend; where the answer waits for a flush of the WAL, the flusher
 *		wakes it, see shared/flush.h.  A request that has to wait is answered in a
 *		later batch; until then the mailbox keeps its revision, so that a new manager
 *		can put it back to its place in the queue.
 *	5.	The backend reads the reply once answered equals posted.
 *
 * Each database has a mailbox for each proc number.  So what an ended session has
 * left for a manager that is stuck is in the way of later sessions of this database
 * alone, which could do nothing without that manager.
 *
 * Mail tells of events whose sending may not fail: rollback of a (sub)transaction,
 * releases of a commit, end of a fence, end of the session, and "this session has
 * waited for deadlock_timeout".
 *
 *	1.	The backend stores the mail, or raises its flag, and rings.  Mails of one
 *		kind coalesce: an undo that is not read yet becomes a part of the next one.
 *	2.	The manager applies mail before the session's request.  An asynchronous
 *		release (backend/granted.h) comes before all new requests of its batch, of
 *		all sessions.
 *	3.	It clears what it has applied once its batch is committed: a batch that fails
 *		finds it again.  Releases are cleared at once then, as they must not be
 *		applied twice.  The end of a fence is cleared when it is read, as another may
 *		follow, and put back if the batch fails.
 *	4.	The backend posts no request over a rollback or awaited releases (step 1
 *		above).  So "all acquires from number N on" never reaches a later request.
 *
 * How a process sleeps and is woken is in shared/sleep.h.
 */
#ifndef LE_SHMEM_H
#define LE_SHMEM_H

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "storage/dsm.h"
#include "storage/lwlock.h"

#include "core/command.h"
#include "shared/database.h"

/* name, owner, value and acquirer at their longest, and what a page says of them */
#define LE_PAYLOAD_SIZE 4880
#define LE_MESSAGE_SIZE 256

/* A session: generation of its proc number, and that number. */
#define LE_PROC_BITS             20
#define le_session_proc(session) ((uint32) ((session) & ((UINT64CONST(1) << LE_PROC_BITS) - 1)))

/* Each type has its own members of LeMailbox, for the request and for the answer. */
typedef enum LeRequestType
{
	LE_REQUEST_COMMAND = 1, /* one core command */
	LE_REQUEST_PAGE,        /* a page of the live state, see shared/page_format.h */
	LE_REQUEST_LEADER,      /* a CHECK of the leader of this election */
	LE_REQUEST_CHANGES,     /* LSN of the newest change of an election that can be seen */
	LE_REQUEST_SYNC         /* lease_sync(): a KEEP_ALIVE with a body, see shared/sync_format.h */
} LeRequestType;

/* A text of a request: a piece of the mailbox's payload. */
typedef struct LeTextSpan
{
	uint16 at;
	uint16 len;
	bool given; /* false: NULL */
} LeTextSpan;

/*
 * Where a page of the live state begins.  It names the last item of the page
 * before, not how many there were: holders and waiters come and go between two
 * pages, and those that stay are to be given once.
 */
typedef struct LePageCursor
{
	int64 index;     /* of the lock or lease; -1: that was all */
	int64 last;      /* item given of that lock: a waiter's token, -1 - a
				  * holder's slot; 0: none yet */
	int64 token;     /* of that item */
	uint32 position; /* of that waiter; 0: a holder */
} LePageCursor;

/* One of the releases that a transaction makes at its commit. */
typedef struct LeReleaseItem
{
	int64 token;
	int64 lease; /* that of the client which releases; 0 */
	int64 hold_for_us;
	uint32 role;
	uint32 holds;
	uint16 name_len;
	uint8 kind;
	/* the name follows; the next item begins at a multiple of 8 */
} LeReleaseItem;

/*
 * What a commit releases, see shared/releases.h: the items are here, or where
 * they do not fit in a segment of dynamic shared memory.
 */
#define LE_RELEASES_SIZE 1024

typedef struct LeReleases
{
	dsm_handle segment; /* DSM_HANDLE_INVALID: they are in data */
	uint32 len;
	uint32 xact;
	bool need_standby;    /* synchronous_commit is above local */
	bool durable_release; /* the setting */
	bool async;           /* release_lock() has answered already, and nobody waits; false: COMMIT waits */
	uint32 done;          /* by the manager: bytes of items that are applied, and committed */
	uint64 lsn;           /* ... LSN of those; 0: none that lasts */
	char data[LE_RELEASES_SIZE] pg_attribute_aligned(8);
} LeReleases;

/* Mail: flags that a session raises for its manager. */
#define LE_MAIL_SESSION_END 0x01 /* the backend is gone */
#define LE_MAIL_FENCE_ENDED 0x02 /* the session has released a fence */
#define LE_MAIL_WAITS_LONG  0x04 /* the session has waited long: is there a deadlock? */
#define LE_MAIL_RELEASED    0x08 /* a commit has released what is in LeMailbox.releases */

/* Notes from the manager to a backend that waits. */
/* the lock is held by the session that asks */
#define LE_NOTE_OWN_SESSION 0x01
/* mail cannot be applied now: sqlstate and message say why */
#define LE_NOTE_UNREAD 0x02
/* the extension was dropped: the releases of the commit are thrown away */
#define LE_NOTE_GONE 0x04

/* In the place of an LSN: that of the batch, which the reply has. */
#define LE_LSN_OF_BATCH PG_UINT64_MAX

/* What lease_sync() is told, beside its results and the news. */
typedef struct LeSyncTold
{
	int64 incarnation; /* of the manager */
	uint64 seen;       /* number of the newest news that was told */
	uint64 begun;      /* of the newest news when a page began with all that hangs on the lease */
	bool from_start;   /* the news begin with all that hangs on the lease */
	bool more;         /* there are more news */
	uint32 losses;     /* LE_EPOCH_LOSSES, when that was told */
	uint64 lease_lsn;  /* of the row of the lease; LE_LSN_OF_BATCH: of this batch */
	bool applied;      /* false: the call was old, and none of its items was carried out */
} LeSyncTold;

typedef struct LeMailbox
{
	/* --- written by the backend that owns the mailbox --- */
	uint64 session; /* 0: free; cleared by the manager */
	int database;   /* index in LeShared.databases; never changes */
	int pid;
	pg_atomic_uint32 posted;    /* number of the newest request */
	pg_atomic_uint32 given_up;  /* number of the newest request whose caller left without its answer */
	pg_atomic_uint32 open_xact; /* number of the open transaction that has acquired; 0: none */
	pg_atomic_uint64 undo;      /* mail: transaction << 32 | its first acquire that is void; 0: none */
	pg_atomic_uint32 mail;      /* LE_MAIL_* */
	pg_atomic_uint32 releasing; /* a release is answered and not posted yet */
	LeRequestType type;
	union
	{
		LeCommand command; /* COMMAND, LEADER, SYNC: all but its texts */
		struct
		{
			LeKind kind;       /* of name, if that is given; LE_PAGE_LEASES */
			LePageCursor from; /* where the page begins */
		} page;                /* PAGE */
	};
	LeTextSpan name;  /* COMMAND, LEADER; PAGE: of this lock alone */
	LeTextSpan owner; /* COMMAND */
	LeTextSpan value;
	LeTextSpan acquirer;  /* COMMAND: of an ACQUIRE */
	uint32 body_at;       /* of a request with a body: where in the payload, or */
	uint32 body_handle;   /* in which segment, see shared/names.h */
	bool need_flush;      /* synchronous_commit is not off */
	bool need_standby;    /* synchronous_commit is above local */
	bool durable_release; /* the setting */
	uint32 sync_items;    /* SYNC: how many */
	LeTime posted_at;
	pg_atomic_uint64 confirming_since; /* since when it waits for a standby, by le_clock(); 0: it does not */
	bool confirming_replay;            /* ... to have replayed the commit, which may take long */
	LeReleases releases;               /* the manager's while LE_MAIL_RELEASED is set */

	/* --- written by the process that links the mailbox --- */
	pg_atomic_uint32 linked;
	uint32 next; /* proc number + 1 */

	/* --- written by the manager --- */
	/*
	 * While the manager has nothing to answer, the backend resets some of it: note, revision and sqlstate
	 * when it posts, released_lsn when it mails releases, bound when it attaches.  Before and in a wait
	 * it also clears flags of note.
	 */
	pg_atomic_uint32 answered;
	pg_atomic_uint32 deferred; /* number of the request that was last deferred */
	pg_atomic_uint32 note;     /* LE_NOTE_* */
	pg_atomic_uint32 bound;    /* locks that are bound to this connection */
	int64 revision;            /* of the waiting request; 0 */
	uint64 released_lsn;       /* LSN of its commit's releases; 0: none that lasts */
	LeReply reply;             /* COMMAND, LEADER, SYNC */
	union
	{
		LePageCursor next_page;   /* PAGE: where the next page begins */
		TimestampTz leader_since; /* LEADER */
		LeSyncTold sync;          /* SYNC */
	};
	LeTime reply_as_of; /* its time left was so then, by le_clock() */
	int sqlstate;       /* 0: none, else the request failed */
	char message[LE_MESSAGE_SIZE];
	uint32 answer_at;  /* where in the payload: a page, also of LEASE_HOLDS, news, */
	uint32 answer_len; /* the leader's candidate, the detail of a deadlock */

	/* the texts of a request, or its answer */
	char payload[LE_PAYLOAD_SIZE] pg_attribute_aligned(8);
} LeMailbox;

/* The part of a proc number that does not depend on the database of its process. */
typedef struct LeProcess
{
	pg_atomic_uint32 bell; /* see shared/sleep.h */
	uint64 generation;     /* of its newest session; written by the process */

	/* --- see shared/flush.h --- */
	pg_atomic_uint32 present;      /* the process can be named the flusher */
	pg_atomic_uint32 flush_linked; /* the process is in the stack of those that wait */
	uint32 flush_next;             /* proc number + 1 */
	uint32 flush_round;            /* the last flush that was for it */
	uint64 flush_lsn;              /* how far the WAL has to be flushed for it */
} LeProcess;

/* The processes that wait for a flush of the WAL, see shared/flush.h. */
typedef struct LeFlush
{
	pg_atomic_uint32 stack;   /* proc number + 1 of the newest; 0: empty */
	pg_atomic_uint32 waiting; /* how many are in it */
	pg_atomic_uint32 flusher; /* proc number + 1; 0: nobody flushes */
	pg_atomic_uint64 wanted;  /* how far to flush */
	pg_atomic_uint32 rounds;  /* flushes so far */

	/* --- see shared/flush_delay.h --- */
	pg_atomic_uint32 delaying;   /* proc number + 1 of a flusher that waits for others; 0 */
	pg_atomic_uint32 took_us;    /* by a flush, smoothed */
	pg_atomic_uint32 last_group; /* sessions that the last flush was for */
	pg_atomic_uint32 expected;   /* the union of the last two groups */
	pg_atomic_uint32 undelayed;  /* flushes that are not delayed from now on */
	pg_atomic_uint32 backoff;    /* as many as those were at first */
	pg_atomic_uint64 ended_at;   /* the last flush, by le_clock() */
} LeFlush;

typedef struct LeShared
{
	LWLock *lock;
	uint64 boot;                  /* this life of the shared memory; not 0 */
	uint8 channel_key[32];        /* random: channels of leases are made from it */
	TimestampTz checkpoint_at;    /* the last one before it, on a standby by its primary's clock */
	pg_atomic_uint64 incarnation; /* highest that any database has had */
	pg_atomic_uint32 many_fences; /* fences of all transactions that have many, see backend/session_fence.c */
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

/* From _PG_init, while shared_preload_libraries are loaded. */
extern void le_shmem_init_hooks(void);

/* Monotonic clock, microseconds. */
extern LeTime le_clock(void);

/*
 * In the manager: the time of day at this moment of le_clock().  The same moment
 * gives the same time of day, unless somebody has set the time of day meanwhile.
 */
extern TimestampTz le_wall(LeTime now);

static inline LeText
le_mailbox_text(const LeMailbox *box, LeTextSpan span)
{
	return (LeText){span.given ? box->payload + span.at : NULL, span.len};
}

/* Step 2 above.  May not fail: mail is rung as well. */
extern void le_ring(LeMailbox *box);

/* A manager that has had something to do looks again after this time; later it has to be woken. */
#define LE_NAP (5 * LE_MS)

/*
 * The same for a release that nobody waits for: a manager that will look by itself
 * within LE_NAP is not woken, unless somebody is in a queue and may wait for just
 * this release.  A later ring wakes it for both.  May not fail.
 */
extern void le_ring_softly(LeMailbox *box);

/*
 * Step 3: take the whole stack, oldest first.  Returns how many proc numbers were
 * put into procs, which has room for all of them.
 */
extern int le_take_stack(LeDatabase *db, uint32 *procs);

/* The mailbox's session has ended, and nothing in it matters any more: the next session may take it. */
extern void le_mailbox_clear(LeMailbox *box);

/* The mailboxes of an entry that is used for the first time. */
extern void le_mailboxes_init(LeDatabase *db);

#endif /* LE_SHMEM_H */
