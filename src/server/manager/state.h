/*
 * manager/state.h
 *		Declares the state of the manager, and functions that query it.
 */
#ifndef LE_MANAGER_STATE_H
#define LE_MANAGER_STATE_H

#include "access/xlogdefs.h"

#include "core/core.h"
#include "core/life.h"
#include "core/pause.h"
#include "shared/shmem.h"
#include "store/store.h"

/*
 * Maximum number of entries granted or ended in one batch, where its work can be cut into steps: normally,
 * and while the manager backs off from heavy work.
 */
#define WORK_A_BATCH     200
#define WORK_BACKING_OFF 50
/*
 * After a batch with heavy work, only light work is served for BACKOFF_TIMES times the duration of the batch,
 * but for at most BACKOFF_AT_MOST.
 */
#define BACKOFF_TIMES   2
#define BACKOFF_AT_MOST (100 * LE_MS)
/* Maximum number of timers handled in one batch. */
#define EXPIRE_A_BATCH 1000
/* Delay of a retry after a failure that no request caused. */
#define RETRY_AFTER (1 * LE_SECOND)
/* While there are deadlines, the manager wakes up at least this often, so that it notices a pause. */
#define HEARTBEAT (1 * LE_SECOND)

/* A reply that is sent after the commit. */
typedef struct CommitAnswer
{
	uint32 proc;
	uint32 number;
	bool confirm; /* the session must wait for a standby, even if the request wrote nothing */
	LeReply reply;
} CommitAnswer;

/*
 * The mail that this batch has read from one mailbox.  Mail that the batch leaves for later is removed from
 * this struct, but stays in the mailbox.
 */
typedef struct Mail
{
	uint32 proc;
	uint32 flags;
	uint64 undo;
	bool async;         /* the releases are asynchronous, so no COMMIT waits for them */
	bool released;      /* COMMIT must wait for the flush of a release */
	uint32 released_to; /* number of bytes of the releases that have been applied */
} Mail;

/*
 * One batch.  The caller of le_batch_run() sets the first part; le_batch_run() sets the rest.
 */
typedef struct Batch
{
	/* --- set by the caller --- */
	uint32 *procs;     /* mailboxes to serve, in the order described in take.c; has room for all mailboxes */
	int n;             /* length of procs */
	LeTime horizon;    /* by le_clock(); everything that was posted by then is in procs */
	LeTime rung_until; /* by le_clock(); requests posted later must wait for the next batch */
	bool expire;       /* expire, after the requests, everything that is due at the horizon */
	bool async_only;   /* apply only asynchronous releases: the first part of a replay */
	bool looks_only;   /* serve only requests that need not write, during an outage */

	/* --- set by the batch --- */
	LeTime began_at;   /* start of the batch, by le_clock() */
	LeTime now;        /* the same moment on the core's clock */
	bool backing_off;  /* heavy work is deferred, because the manager backs off */
	bool heavy;        /* heavy work has been done */
	bool files_differ; /* the tables were replaced since they were loaded, so nothing was written */
	bool begun;        /* the transaction of the batch has begun */
	bool locked;       /* the batch has locked the tables, so that other sessions cannot prevent its writes */
	bool applied;      /* requests may have been applied, so the core may be ahead of the tables */
	bool explained;    /* the batch failed because nothing at all can be written now */
	CommitAnswer *answers;
	int nanswers;
	Mail *mails;
	int nmails;
	uint32 *fresh; /* mailboxes whose requests this batch has taken */
	int nfresh;
} Batch;

/* The result of a batch. */
typedef enum BatchEnd
{
	BATCH_DONE,
	BATCH_LOCKED,      /* nothing was applied, because another session has locked the tables */
	BATCH_FAILED,      /* rolled back, or failed after its replies; the core must be loaded again */
	BATCH_UNWRITABLE,  /* as BATCH_FAILED, but because nothing can be written, not because of a request */
	BATCH_FILES_DIFFER /* as BATCH_FAILED, but because the tables were replaced: run the batch again after a
					    * load */
} BatchEnd;

/* State of an outage, in which nothing can be written, see manager/outage.c.  Times are by le_clock(). */
typedef struct Outage
{
	LeTime since;      /* 0 = no outage */
	LeTime core_since; /* "since" on the core's clock */
	bool failed;       /* a batch has failed, so a failed retry requires a load; otherwise the tables are only
					    * locked */
	LeTime try_at;     /* time of the next try, even if no session wakes up the manager */
} Outage;

/* State of the core in memory. */
typedef enum CoreState
{
	CORE_STALE,   /* unusable until the next load: a batch has failed, or nothing was loaded yet */
	CORE_LOADED,  /* agrees with the tables, but lacks the requests that wait in mailboxes */
	CORE_SERVING, /* agrees with the tables, and has the requests that wait in mailboxes */
	CORE_DROPPED  /* unusable, because the extension was dropped */
} CoreState;

typedef struct Manager
{
	LeDatabase *db;
	LeCore *core;
	CoreState core_state; /* changed only by set_core_state() */
	MemoryContext core_context;
	MemoryContext batch_context;
	LeMeta meta;
	XLogRecPtr changes_lsn; /* LSN of the newest changes of elections, or of the load */
	XLogRecPtr loaded_lsn;  /* LSN of the load that built the core; differs for each load */
	int64 incarnation;      /* incarnation of this manager, reported to clients of leases; differs for each
							 * manager */
	LeStats seen;           /* the core's counters when they were last published */
	LePause pause;          /* pauses so far; the core's clock is le_clock() minus their length */
	LeLife life;            /* this manager's life and earlier ones: see core/life.h */
	LeTime life_began;      /* start of this life, on the core's clock */

	uint32 *taken;       /* number of the last request that was taken, by proc number */
	uint32 *looked;      /* number of the newest request that a looks_only batch has seen, by proc number */
	LeTime retry_at;     /* when to check all mailboxes again; 0 = not needed */
	LeTime expire_after; /* nothing expires before this time, which is set after a failure that no request
						  * caused */
	Outage outage;

	uint32 *deferred; /* mailboxes whose heavy work was deferred, in the order of their turns */
	int ndeferred;
	LeTime backoff_until;  /* heavy work is deferred until this time */
	LeTime light_seen_at;  /* start of the last batch with light work */
	LeTime heavy_began_at; /* start of the last batch with heavy work */

	/* memory for the lists of a batch */
	CommitAnswer *answers;
	Mail *mails;
	uint32 *fresh;
} Manager;

extern Manager le_mgr;

/* Initializes le_mgr.  Called once, when the manager starts. */
extern void le_state_init(LeDatabase *db);

/* Returns whether the core agrees with the tables. */
static inline bool
core_is_loaded(void)
{
	return le_mgr.core_state == CORE_LOADED || le_mgr.core_state == CORE_SERVING;
}

/* Sets core_state; the only place that changes it. */
static inline void
set_core_state(CoreState to)
{
	Assert(le_mgr.core_state != CORE_DROPPED);
	Assert(to != CORE_LOADED || le_mgr.core_state == CORE_STALE);
	Assert(to != CORE_SERVING || le_mgr.core_state == CORE_LOADED);
	Assert(to != CORE_DROPPED || le_mgr.core_state == CORE_STALE);
	le_mgr.core_state = to;
}

/* Returns the core's time, which is le_clock() minus the length of all pauses so far. */
static inline LeTime
core_now(void)
{
	return le_pause_time(&le_mgr.pause, le_clock());
}

/* Returns how long this manager has run until "now", on the core's clock.  Outages do not count. */
static inline LeTime
uptime(LeTime now)
{
	LeTime until = le_mgr.outage.since != 0 ? le_mgr.outage.core_since : now;

	return Max(until - le_mgr.life_began, 0);
}

static inline LeMailbox *
mailbox_of(uint32 proc)
{
	Assert(proc < (uint32) le_shared->max_sessions);
	return le_mailbox(le_mgr.db, proc);
}

/*
 * Returns whether the newest request of a mailbox has no reply yet. le_mgr.taken shows whether it was taken.
 */
static inline bool
is_unanswered(LeMailbox *box)
{
	return pg_atomic_read_u32(&box->posted) != pg_atomic_read_u32(&box->answered);
}

/*
 * Returns whether there is mail that ends the session, or rolls back all or part of its transaction.  No call
 * waits for a request in a mailbox with such mail.
 */
static inline bool
mail_ends_wait(LeMailbox *box)
{
	return (pg_atomic_read_u32(&box->mail) & LE_MAIL_SESSION_END) != 0 || pg_atomic_read_u64(&box->undo) != 0;
}

#endif /* LE_MANAGER_STATE_H */
