/*
 * manager/manager.h
 *		The manager of one database: its state, and what its files do for each other.
 *
 *	manager.c	the process: start, loop, sleep, leave
 *	replay.c	runs batches, and does again what one has failed to do
 *	batch.c		one batch: apply, write, answer
 *	take.c		who is served in which order; requests and mail are applied to the core
 *	apply.c		one command; sync.c: the parts of a lease_sync()
 *	answer.c	which mailboxes have something for the manager, and answers to them
 *	memory.c	the core's memory, and its limit
 *	reload.c	builds the core from the tables: at the start, and after a failed batch
 *	outage.c	what is done while nothing can be written; looks.c: what is served then
 *	txn.c		transactions
 *	leave.c		what is left to do before the process ends
 *	chores.c	what is done between batches: fences, the history, the size of the tables
 *	deadlock.c	cycles of connections that wait for each other
 *	fillpage.c, publish.c, hints.c	what others are shown and told
 */
#ifndef LE_MANAGER_H
#define LE_MANAGER_H

#include "postgres.h"

#include "access/xlogdefs.h"
#include "lib/stringinfo.h"

#include "core/core.h"
#include "core/life.h"
#include "core/pause.h"
#include "shared/fault.h"
#include "shared/page_format.h"
#include "shared/settings.h"
#include "shared/shmem.h"
#include "shared/sleep.h"
#include "store/store.h"

/* Entries that are granted or ended in one batch, where it can be cut into steps. */
#define WORK_A_BATCH     200
#define WORK_BACKING_OFF 50
/*
 * After a batch with heavy work only light work is served, for BACKOFF_TIMES times as long as it took and
 * BACKOFF_AT_MOST (us) at most.
 */
#define BACKOFF_TIMES   2
#define BACKOFF_AT_MOST (100 * LE_MS)
/* Items that expire in one batch at most. */
#define EXPIRE_A_BATCH 1000
/* Back-off after a failure that no request caused. */
#define RETRY_AFTER (1 * LE_SECOND)
/* While there are deadlines, the manager wakes this often: to notice a pause. */
#define HEARTBEAT (1 * LE_SECOND)

/* An answer that goes out after the commit. */
typedef struct CommitAnswer
{
	uint32 proc;
	uint32 number;
	bool confirm; /* a standby has to see it too, though it may write nothing */
	LeReply reply;
} CommitAnswer;

/* A mailbox's mail as it was read: what of it is not applied by this batch is taken off again. */
typedef struct Mail
{
	uint32 proc;
	uint32 flags;
	uint64 undo;
	bool async;         /* nobody waits for these releases */
	bool released;      /* with something that has to last */
	uint32 released_to; /* so far its releases are applied */
} Mail;

/*
 * One batch.  Who starts it says what to do; le_batch_run() resets the rest, which
 * take.c and batch.c fill in.
 */
typedef struct Batch
{
	/* what to do */
	uint32 *procs;     /* mailboxes to serve, see the order in take.c; there is room for all */
	int n;             /* of them */
	LeTime horizon;    /* by le_clock(): all that was posted until then is in procs */
	LeTime rung_until; /* by le_clock(): what is posted later is for the next batch */
	bool expire;       /* end what was due at the horizon, after all else */
	bool async_only;   /* asynchronous releases alone: so a replay begins */
	bool looks_only;   /* what need not write alone: in an outage */

	/* what it does */
	LeTime began_at;   /* by le_clock() */
	LeTime now;        /* the same moment by the core's clock */
	bool backing_off;  /* heavy work is deferred */
	bool heavy;        /* it has done heavy work */
	bool files_differ; /* the tables are not those that were loaded: nothing was written */
	bool begun;        /* its transaction */
	bool locked;       /* it has locked the tables against all that keeps it from writing */
	bool applied;      /* the core may be ahead of the tables */
	bool explained;    /* it has failed as nothing at all can be written */
	CommitAnswer *answers;
	int nanswers;
	Mail *mails;
	int nmails;
	uint32 *fresh; /* procs whose request was taken in it */
	int nfresh;
} Batch;

/* How a batch has ended. */
typedef enum BatchEnd
{
	BATCH_DONE,
	BATCH_LOCKED,      /* no trace, and the core is as it was: somebody has locked the tables */
	BATCH_FAILED,      /* no trace, or all it has done; the core needs a reload */
	BATCH_UNWRITABLE,  /* the same, but for no fault of a request: nothing can be written */
	BATCH_FILES_DIFFER /* the same, but for no fault of a request: after a reload it can be run again */
} BatchEnd;

/* While nothing can be written: see manager/outage.c.  Times are of le_clock(). */
typedef struct Outage
{
	LeTime since;      /* 0: there is none */
	LeTime core_since; /* on the core's clock */
	bool failed;       /* a batch has failed, so that a try may cost a load: not only locked tables */
	LeTime try_at;     /* when to try again, even if nobody rings */
} Outage;

/* State of the core in memory. */
typedef enum CoreState
{
	CORE_STALE,   /* nothing before the next load: a batch has failed, or there was none yet */
	CORE_LOADED,  /* it agrees with the tables, but for the requests that wait in mailboxes */
	CORE_SERVING, /* these are in it, too */
	CORE_DROPPED  /* nothing any more: the extension was dropped */
} CoreState;

typedef struct Manager
{
	LeDatabase *db;
	LeCore *core;
	CoreState core_state; /* set_core_state() changes it */
	MemoryContext core_context;
	MemoryContext batch_context;
	LeMeta meta;
	XLogRecPtr changes_lsn; /* of the newest changes of elections */
	XLogRecPtr loaded_lsn;  /* of the load that has made the core: no other has the same */
	int64 incarnation;      /* of this manager, as clients of leases hear of it: no other has the same */
	LeStats seen;           /* core's counters already published */
	LePause pause;          /* of le_clock(), what does not count */
	LeLife life;            /* this one, and those before: see core/life.h */
	LeTime life_began;      /* on the core's clock */

	uint32 *taken;       /* by proc number: the request last taken */
	uint32 *looked;      /* and the newest one there, when a batch with looks_only came to it */
	LeTime retry_at;     /* look at all mailboxes again; 0: no need */
	LeTime expire_after; /* back-off of what has no request to blame */
	Outage outage;

	uint32 *deferred; /* procs with heavy work that no batch had room for, in the order of their turns */
	int ndeferred;
	LeTime backoff_until;  /* deferred work waits until then */
	LeTime light_seen_at;  /* begin of the last batch with light work */
	LeTime heavy_began_at; /* begin of the last batch with heavy work */

	/* room for what a batch remembers */
	CommitAnswer *answers;
	Mail *mails;
	uint32 *fresh;
} Manager;

extern Manager le_mgr;

/* Does the core agree with the tables? */
static inline bool
core_is_loaded(void)
{
	return le_mgr.core_state == CORE_LOADED || le_mgr.core_state == CORE_SERVING;
}

/* The one place that changes it. */
static inline void
set_core_state(CoreState to)
{
	Assert(le_mgr.core_state != CORE_DROPPED);
	Assert(to != CORE_LOADED || le_mgr.core_state == CORE_STALE);
	Assert(to != CORE_SERVING || le_mgr.core_state == CORE_LOADED);
	Assert(to != CORE_DROPPED || le_mgr.core_state == CORE_STALE);
	le_mgr.core_state = to;
}

/* The core's time: le_clock() without pauses. */
static inline LeTime
core_now(void)
{
	return le_pause_time(&le_mgr.pause, le_clock());
}

/* For how long this manager has run until then, on the core's clock, which pauses set back; without outages. */
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

/* Its newest request has no answer yet; take.c says whether it was taken. */
static inline bool
is_unanswered(LeMailbox *box)
{
	return pg_atomic_read_u32(&box->posted) != pg_atomic_read_u32(&box->answered);
}

/*
 * Has mail come that ends the session, or all or some of its transaction?  A session posts no
 * request over that, so nobody waits for the answer of one that is there.
 */
static inline bool
mail_ends_wait(LeMailbox *box)
{
	return (pg_atomic_read_u32(&box->mail) & LE_MAIL_SESSION_END) != 0 || pg_atomic_read_u64(&box->undo) != 0;
}

/* --- manager/manager.c --- */

/* Entry point of the worker; the argument is the database's OID. */
extern PGDLLEXPORT void le_manager_main(Datum arg);

/* --- manager/replay.c --- */

/*
 * Apply what these mailboxes ask for, end what is due, write, answer.  procs has room for
 * all mailboxes.  May not fail, as nobody else would answer: what cannot be written is
 * answered with the error.
 */
extern void le_serve(uint32 *procs, int n);

/* --- manager/batch.c --- */

/* Once, when the manager starts. */
extern void le_batch_init(LeDatabase *db);

/* One batch: apply, write, answer.  Unless it is BATCH_DONE, *error says why. */
extern BatchEnd le_batch_run(Batch *batch, ErrorData **error);

/*
 * Has the manager run without a pause until now, asleep or not?  A pause moves all
 * deadlines.  slept_until: when it meant to wake up; 0: it did not sleep.
 */
extern void le_batch_check_stall(LeTime slept_until, const uint32 *procs, int n);

/* When to wake up, by le_clock(), and what for. */
typedef struct Wakeup
{
	LeTime at;
	const char *why;
} Wakeup;

static inline void
wake_earlier(Wakeup *wakeup, LeTime at, const char *why)
{
	if (at < wakeup->at)
		*wakeup = (Wakeup){at, why};
}

/* Are there releases that a batch has answered and not written? */
extern bool le_batch_has_later(void);

/* When to run a batch even if nobody rings. */
extern Wakeup le_batch_next_wakeup(void);

/* --- manager/take.c --- */

/*
 * Before a batch: put the mailboxes whose heavy work was deferred in front of the others, if
 * their turn has come.
 */
extern void le_take_deferred(Batch *batch);

/* Before a batch: add all that have rung by now, each once. */
extern void le_take_rung(Batch *batch);

/*
 * In a batch: take the requests that waited before the core was loaded, in their old
 * order.  Nothing is granted before all of them are back.
 */
extern void le_take_waiting(Batch *batch);

/* In a batch: take the mail and the requests of its mailboxes, and apply them. */
extern void le_take(Batch *batch);

/*
 * In a batch: take the request of a mailbox, if there is a new one, and apply or answer it.  An error fails
 * the batch, and untake() in batch.c gives the request back.
 */
extern void le_take_request(Batch *batch, uint32 proc);

/* After a batch, if its work was heavy: serve only light work for a while.  May not fail: it runs after a commit. */
extern void le_take_back_off(const Batch *batch);

/* Is heavy work deferred now? */
extern bool le_take_is_backing_off(void);

/* --- manager/apply.c --- */

/*
 * Apply a command to one name or none.  A renewal that has to write, in a batch that has not expected that,
 * locks the tables now; if they cannot be locked, it is valid for less.
 */
extern void le_apply_one(Batch *batch, const LeCommand *cmd, LeReply *reply);

/* --- manager/sync.c --- */

/* In a batch: renew the lease of a lease_sync(), before anything expires; then carry all of it out. */
extern void le_sync_renew(Batch *batch, uint32 proc);
extern void le_sync_take(Batch *batch, uint32 proc);

/* --- manager/looks.c --- */

/* Before a batch: may it have to write?  Renewals tell that only when they are applied. */
extern bool le_take_may_write(const Batch *batch);

/* In a batch with looks_only: take the requests that need not write, and apply them. */
extern void le_take_looks(Batch *batch);

/* --- manager/answer.c --- */

/* All mailboxes of this database with something in them, rung or not. */
extern int le_mailboxes_with_work(uint32 *procs);

/* Has its mailbox an asynchronous release? */
extern bool le_mailbox_has_async(uint32 proc);
/*
 * Look at all mailboxes again after RETRY_AFTER; another failure before that does not put it
 * off.  May not fail: an error is being handled.
 */
extern void le_mailboxes_retry_later(void);

/*
 * Answers.  They are given after a commit, and in handlers of errors: none of these functions
 * allocates or raises anything.
 */

/*
 * Answer the request with this number, if it is still waited for.  as_of: what the reply tells of the
 * time left was so then, by le_clock().  May not fail.
 */
extern void le_answer_request(uint32 proc, uint32 number, const LeReply *reply, LeTime as_of);

/*
 * The same with the commit of this batch: the reply rests on what it writes.  confirm: a standby has to
 * see it, though it may write nothing.
 */
extern void le_answer_at_commit(Batch *batch, uint32 proc, uint32 number, const LeReply *reply, bool confirm);

/* Answer the newest request of this proc, for which nobody waits any more.  May not fail. */
extern void le_answer_withdrawn(uint32 proc);

/* Answer the newest request of this proc with an error.  May not fail. */
extern void le_answer_error(uint32 proc, int sqlstate, const char *message);

/*
 * This process waits for itself and gives up: detail has a line for each process of the cycle.
 * May not fail.
 */
extern void le_answer_deadlock(uint32 proc, const StringInfoData *detail);

/* Refuse to these mailboxes what could not be written.  May not fail: an error is being handled. */
extern void le_answer_failed(const uint32 *procs, int n, const ErrorData *error);
/* The same for one mailbox, if its newest request is still that of this number. */
extern void le_answer_failed_one(uint32 proc, uint32 number, const ErrorData *error);

/* For assertions: none of these mailboxes is there twice. */
#ifdef USE_ASSERT_CHECKING
extern void le_assert_procs(const uint32 *procs, int n);
#else
#define le_assert_procs(procs, n) ((void) 0)
#endif

/* Tell the session how many locks are bound to it.  May not fail. */
extern void le_publish_bound(LeMailbox *box);

/* Does this answer have to wait for a standby?  May not fail. */
extern bool le_answer_needs_standby(const LeMailbox *box, const LeReply *reply);

/* May this release return before its record is flushed?  May not fail. */
extern bool le_answer_may_return(const LeReply *reply, bool durable_release, bool need_standby);

/* --- manager/outage.c --- */

/*
 * An outage begins, or goes on: the tables are locked, or could not be locked because of this error, unless that is
 * NULL; a batch has failed with this error.
 */
extern void le_outage_locked(const ErrorData *error);
extern void le_outage_failed(const ErrorData *error);
/* A batch was written, or its tables locked where that was all. */
extern void le_outage_over(void);

/* May a batch be run that writes?  In an outage this may write the row of meta, to see. */
extern bool le_outage_allows_batch(void);

/* Does this error, of a transaction that has an id or not, say that nothing at all can be written? */
extern bool le_outage_explains(const ErrorData *error, bool has_xid);

/* A batch has failed, and others may not: health() tells it all the same, if the server is why. */
extern void le_outage_note(const ErrorData *error);

/* Does this request look, or renew, and nothing else? */
extern bool le_request_looks(const LeMailbox *box);

/*
 * In an outage, after a batch with looks_only: refuse the requests that it has left, if they have waited for long
 * enough.
 */
extern void le_outage_refuse(const Batch *batch);

/* In an outage: answer calls whose own wait is over; or one that is given up. */
extern void le_outage_end_calls(void);
extern void le_outage_withdraw(uint32 proc);
/* In the first batch that may write: the core is told of them. */
extern void le_outage_end_waits(LeTime now);

/* --- manager/reload.c --- */

/*
 * Load the state for the first time.  False: the extension is not installed
 * here.  Errors are for the caller: the worker starts again.
 */
extern bool le_load_first(void);

/* Is this transaction of a session open still, or rolled back with the mail unread? */
extern bool le_load_uncommitted(void *arg, uint64 session, uint32 xact);

/* Set the limits of a core as the settings are now. */
extern void le_load_limits(LeCore *core, int work);

/* Load again after a failed batch; false: *error says why it is not possible. */
extern bool le_load_again(ErrorData **error);

/* --- manager/memory.c --- */

/* Allocate and free for a core: LeEnv. */
extern MemoryContext le_memory_new_context(void);
extern void *le_memory_alloc(void *arg, size_t size);
extern void le_memory_free(void *arg, void *p);

/* What the state takes, in bytes. */
extern Size le_memory_used(void);

/* Reserve what the command may add.  LE_LIMIT_MEMORY, LE_LIMIT_HISTORY: there is no room for it. */
extern LeStatus le_memory_reserve(const LeCommand *cmd);

/* After a load: warn if the state takes more than that. */
extern void le_memory_warn(void);

/* --- manager/txn.c --- */

/* Begin a transaction; commit it, with or without a flush: where it ends in the WAL. */
extern void le_txn_begin(void);
extern XLogRecPtr le_txn_commit(bool flush);
/*
 * Lock the tables, so that what is written from now on does not have to wait, and can be written as far as locks
 * go.  Returns at once; false: somebody else has locked one of them, or waits to.
 */
extern bool le_txn_lock_tables(Batch *batch);
/*
 * In PG_CATCH, in a transaction or not: log the error, or not, and leave no trace of
 * the work.  Returns the error, in the batch's context.
 */
extern ErrorData *le_txn_failed(bool log);
/*
 * Log a record that means nothing; its end is behind all that was written before.  May not fail: it
 * runs after a commit.
 */
extern XLogRecPtr le_txn_log_nothing(void);

/*
 * Work in a transaction, which it commits itself.  May not fail, as no request is to blame: an
 * error of the work is logged, and undoes it.
 */
extern void le_txn_chore(void (*work)(void));

/* --- manager/leave.c --- */

/* The extension was dropped: end every wait with an error.  May not fail: nobody else tells them. */
extern void le_leave_dropped(void);

/*
 * The manager leaves in order: make all releases that sessions have answered.  slept_until:
 * see le_batch_check_stall().
 */
extern void le_leave_in_order(uint32 *procs, LeTime slept_until);

/*
 * It leaves before it takes anything more, as the next manager's tokens are to be higher: write the
 * releases that are answered.  Should that fail, such a lock is held until its TTL ends.
 */
extern void le_leave_serving_nobody(uint32 *procs);

/* --- manager/chores.c --- */

/*
 * Terminate the connections that fence, for longer than
 * lock_election.fence_timeout, a holder that has ended.
 */
extern void le_fence_end_overdue(LeCore *core, LeTime now);

/*
 * Look how large the tables are, for the view, and write one anew that is mostly
 * dead rows.  May not fail or wait, as locks come first: an error is logged.  Returns when
 * to call it again, by le_clock().
 */
extern LeTime le_shrink_tend(void);

/* A manager has loaded its state: its changes, those of the load included, are numbered from this one on. */
extern void le_history_begin(int64_t next_change);

/* A batch is about to write its changes of elections: memory for what le_history_written() counts. */
extern void le_history_reserve(LeCore *core);

/* A batch has written its changes of elections.  May not fail: le_history_reserve() has been called for them. */
extern void le_history_written(LeCore *core);

/* May this command lead to more history of its role (lock_election.max_history_per_role)? */
extern bool le_history_admits(const LeCommand *cmd);

/*
 * Delete some rows older than lock_election.history_retention, if it is time for
 * that.  May not fail, as locks come first: an error is logged.  Returns when to call it
 * again, by le_clock().
 */
extern LeTime le_history_tend(void);

/*
 * Record for how long this manager has run, while there is a lease that the next one would charge with
 * that (core/life.h).  May not fail, as locks come first: an error is logged.  Returns when to call it
 * again, by le_clock().
 */
extern LeTime le_life_tend(void);

/* --- manager/deadlock.c --- */

/* This process asks whether it waits for itself. */
extern void le_deadlock_ask(uint32 proc);

/* When to search for all who have asked; LE_NEVER: nobody has. */
extern LeTime le_deadlock_next_search(void);

/* Search for all who have asked; one process of each cycle gets an error, see le_answer_deadlock(). */
extern void le_deadlock_search(const LeCore *core);

/* --- manager/fillpage.c --- */

/* LE_REQUEST_PAGE: put a page into the mailbox, and where the next one begins. */
extern void le_page_fill(const LeCore *core, LeMailbox *box, LeTime now);

/*
 * LE_REQUEST_LEADER: a CHECK of the leader's term, so that it is answered with
 * its batch.  First find the term, then put the leader into the mailbox as he is at that
 * moment, behind the election's name: the request can be read again.
 */
extern void le_page_find_leader(const LeCore *core, LeCommand *cmd);
extern void le_page_put_leader(const LeCore *core, const LeCommand *cmd, LeMailbox *box, LeTime now);

/*
 * LEASE_HOLDS, which was applied: put a page into the mailbox, behind the name of its
 * cursor, and what the page rests on into the reply.
 */
extern void le_page_put_holds(const LeCore *core, const LeCommand *cmd, LeMailbox *box, LeTime now,
							  LeReply *reply);

/* --- manager/publish.c --- */

/* Put the core's counters where the views read them.  May not fail: it runs after a commit. */
extern void le_publish(void);

/* --- manager/hints.c --- */

/*
 * The batch is committed, with the end of its record at this LSN: announce what it
 * granted.  May not fail or wait, as a hint must not cost an answer.
 */
extern void le_hints_of_batch(LeCore *core, XLogRecPtr lsn);

/*
 * Start a notifier if there is something to send and none runs.  Returns when to
 * look again, by le_clock().
 */
extern LeTime le_hints_tend(void);

/* The manager leaves: end its notifier.  May not fail: the process ends. */
extern void le_hints_leave(void);

#endif /* LE_MANAGER_H */
