/*
 * manager/manager.h
 *		The manager of one database: its state, and the functions that its files share.
 *
 *	manager.c	the process: start, main loop, sleep, exit
 *	replay.c	runs batches, and repeats a failed batch mailbox by mailbox
 *	batch.c		one batch: apply, write, reply
 *	take.c		order of service; applies requests and mail to the core
 *	apply.c		applies one command
 *	sync.c		applies one lease_sync()
 *	answer.c	finds mailboxes with work, and replies to them
 *	memory.c	memory of the core, and its limit
 *	reload.c	builds the core from the tables: at the start, and after a failed batch
 *	outage.c	handles the time in which nothing can be written
 *	looks.c		serves the requests that need not write, during an outage
 *	txn.c		transactions
 *	leave.c		work to be done before the process exits
 *	chores.c	work between batches: overdue fences, history, size of the tables
 *	deadlock.c	finds cycles of connections that wait for each other
 *	fillpage.c	pages of the live state, for views
 *	publish.c	counters, for views
 *	hints.c		hints, for the notifier
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

/* Maximum number of entries granted or ended in one batch, where its work can be cut into steps. */
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
	bool confirm; /* a standby must have received it, even if the request wrote nothing */
	LeReply reply;
} CommitAnswer;

/*
 * The mail of one mailbox, as this batch has read it.  Mail that the batch does not apply is removed from
 * here, and stays in the mailbox.
 */
typedef struct Mail
{
	uint32 proc;
	uint32 flags;
	uint64 undo;
	bool async;         /* its releases are asynchronous, so no COMMIT waits for them */
	bool released;      /* its COMMIT must wait for the flush of a release */
	uint32 released_to; /* number of bytes of its releases that have been applied */
} Mail;

/*
 * One batch.  The caller of le_batch_run() sets the first part; le_batch_run() resets the rest, which take.c
 * and batch.c then fill in.
 */
typedef struct Batch
{
	/* --- set by the caller --- */
	uint32 *procs;     /* mailboxes to serve, in the order described in take.c; has room for all mailboxes */
	int n;             /* length of procs */
	LeTime horizon;    /* by le_clock(); everything that was posted by then is in procs */
	LeTime rung_until; /* by le_clock(); requests posted later must wait for the next batch */
	bool expire;       /* at the end, expire everything that is due at the horizon */
	bool async_only;   /* apply only asynchronous releases: the first part of a replay */
	bool looks_only;   /* serve only requests that need not write, during an outage */

	/* --- set by the batch --- */
	LeTime began_at;   /* start of the batch, by le_clock() */
	LeTime now;        /* the same moment on the core's clock */
	bool backing_off;  /* heavy work is deferred, because the manager backs off */
	bool heavy;        /* heavy work has been done */
	bool files_differ; /* the tables were replaced since they were loaded, so nothing was written */
	bool begun;        /* its transaction has begun */
	bool locked;       /* it has locked the tables, so that other sessions cannot prevent its writes */
	bool applied;      /* the core may be ahead of the tables */
	bool explained;    /* it failed because nothing at all can be written now */
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
	BATCH_UNWRITABLE,  /* the same, not because of a request but because nothing can be written */
	BATCH_FILES_DIFFER /* as BATCH_FAILED, because the tables were replaced: run it again after a load */
} BatchEnd;

/* State of an outage, in which nothing can be written, see manager/outage.c.  Times are by le_clock(). */
typedef struct Outage
{
	LeTime since;      /* 0 = no outage */
	LeTime core_since; /* the same moment on the core's clock */
	bool failed;       /* a batch has failed, so that a retry may cost a load; otherwise the tables are only
					    * locked */
	LeTime try_at;     /* when to retry, even if no session wakes the manager up */
} Outage;

/* State of the core in memory. */
typedef enum CoreState
{
	CORE_STALE,   /* unusable until the next load, because a batch has failed or nothing was loaded yet */
	CORE_LOADED,  /* agrees with the tables, but lacks the requests that wait in mailboxes */
	CORE_SERVING, /* also has the requests that wait in mailboxes */
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
	LePause pause;          /* pauses; the core's clock is le_clock() without them */
	LeLife life;            /* this manager's life and earlier ones: see core/life.h */
	LeTime life_began;      /* start of this life, on the core's clock */

	uint32 *taken;       /* by proc number: number of the request that was last taken */
	uint32 *looked;      /* by proc number: number of the newest request that a looks_only batch has seen */
	LeTime retry_at;     /* when to check all mailboxes again; 0 = not needed */
	LeTime expire_after; /* nothing expires before this time, which is set after a failure that no request
						  * caused */
	Outage outage;

	uint32 *deferred; /* mailboxes whose heavy work had to wait, in the order of their turns */
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

/* Returns the core's time: le_clock() without pauses. */
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
 * Returns whether there is mail that ends the session, or all or part of its transaction.  While such mail is
 * unread, the session posts no request, so a request that is still there is not waited for.
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
 * Serves these mailboxes in one or more batches. procs must have room for all mailboxes.  Must not fail,
 * because these sessions get no other reply: if a request cannot be written, its reply is the error.
 */
extern void le_serve(uint32 *procs, int n);

/* --- manager/batch.c --- */

/* Initializes le_mgr.  Called once, when the manager starts. */
extern void le_batch_init(LeDatabase *db);

/*
 * Runs one batch: applies, writes, replies.  Unless the result is BATCH_DONE, *error is the cause; after
 * BATCH_LOCKED it may be NULL.
 */
extern BatchEnd le_batch_run(Batch *batch, ErrorData **error);

/*
 * Detects that the manager was suspended, and if so moves all deadlines by the length of the pause.
 * slept_until: when the manager intended to wake up; 0 = it did not sleep. procs: mailboxes that have rung.
 */
extern void le_batch_check_stall(LeTime slept_until, const uint32 *procs, int n);

/* When the manager must wake up, by le_clock(), and for what. */
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

/* Returns whether there are releases that were replied to but not written yet. */
extern bool le_batch_has_later(void);

/* Returns when to run a batch even if no session wakes the manager up. */
extern Wakeup le_batch_next_wakeup(void);

/* --- manager/take.c --- */

/* Called before a batch: puts the deferred mailboxes in front of the others, unless the manager backs off. */
extern void le_take_deferred(Batch *batch);

/* Called before a batch: adds the mailboxes that have rung by now, each at most once. */
extern void le_take_rung(Batch *batch);

/*
 * Called in a batch: takes the requests that waited before the core was loaded, in their old order.  Nothing
 * is granted before all of them have been taken.
 */
extern void le_take_waiting(Batch *batch);

/* Called in a batch: takes and applies the mail and the requests of its mailboxes. */
extern void le_take(Batch *batch);

/*
 * Called in a batch: takes the request of a mailbox, if it is new, and applies it or replies to it.  An error
 * fails the batch, and untake() in batch.c gives the request back.
 */
extern void le_take_request(Batch *batch, uint32 proc);

/*
 * Called after a batch: if its work was heavy, makes the manager serve only light work for a while.  Must not
 * fail, because it runs after a commit.
 */
extern void le_take_back_off(const Batch *batch);

/* Returns whether heavy work is deferred now. */
extern bool le_take_is_backing_off(void);

/* --- manager/apply.c --- */

/*
 * Applies a command that has at most one name.  A renewal may need a write although the batch has not locked
 * the tables: then they are locked now.  If that is not possible, the renewal is valid for a shorter time.
 */
extern void le_apply_one(Batch *batch, const LeCommand *cmd, LeReply *reply);

/* --- manager/sync.c --- */

/*
 * le_sync_renew() renews the lease of a lease_sync(), before anything expires. le_sync_take() carries out the
 * call, later in the batch.
 */
extern void le_sync_renew(Batch *batch, uint32 proc);
extern void le_sync_take(Batch *batch, uint32 proc);

/* --- manager/looks.c --- */

/*
 * Returns whether a batch may have to write.  It does not notice renewals that have to write, which become
 * known only when they are applied.
 */
extern bool le_take_may_write(const Batch *batch);

/* Called in a batch with looks_only: takes and applies the requests that need not write. */
extern void le_take_looks(Batch *batch);

/* --- manager/answer.c --- */

/*
 * Puts into procs all mailboxes of this database that have a request or mail, even if they have not rung.
 * Returns their number.
 */
extern int le_mailboxes_with_work(uint32 *procs);

/* Returns whether the mailbox has an asynchronous release. */
extern bool le_mailbox_has_async(uint32 proc);
/*
 * Makes the manager check all mailboxes again after RETRY_AFTER.  Further calls before then do not delay that
 * check.  Must not fail, because an error is being handled.
 */
extern void le_mailboxes_retry_later(void);

/*
 * Functions that reply.  They are called after a commit and in error handlers, so none of them allocates
 * memory or raises an error.
 */

/*
 * Replies to the request with this number, if its session still waits for it. as_of: the moment, by
 * le_clock(), from which the time left in the reply counts.  Must not fail.
 */
extern void le_answer_request(uint32 proc, uint32 number, const LeReply *reply, LeTime as_of);

/*
 * Does the same at the commit of this batch, because the reply depends on rows that the batch writes.
 * confirm: a standby must have received it, even if the request wrote nothing.
 */
extern void le_answer_at_commit(Batch *batch, uint32 proc, uint32 number, const LeReply *reply, bool confirm);

/* Replies to the newest request of this proc, for which its session no longer waits.  Must not fail. */
extern void le_answer_withdrawn(uint32 proc);

/* Replies with an error to the newest request of this proc.  Must not fail. */
extern void le_answer_error(uint32 proc, int sqlstate, const char *message);

/*
 * Replies with a deadlock error to a process that waits for itself. detail has one line for each process in
 * the cycle.  Must not fail.
 */
extern void le_answer_deadlock(uint32 proc, const StringInfoData *detail);

/*
 * Replies with this error to the mailboxes of a failed batch.  Must not fail, because an error is being
 * handled.
 */
extern void le_answer_failed(const uint32 *procs, int n, const ErrorData *error);
/* Does the same for one mailbox, if its newest request is still the one with this number. */
extern void le_answer_failed_one(uint32 proc, uint32 number, const ErrorData *error);

/* Asserts that each of these mailboxes is listed once. */
#ifdef USE_ASSERT_CHECKING
extern void le_assert_procs(const uint32 *procs, int n);
#else
#define le_assert_procs(procs, n) ((void) 0)
#endif

/* Publishes in the mailbox how many locks are bound to its session.  Must not fail. */
extern void le_publish_bound(LeMailbox *box);

/* Returns whether this reply must wait for a standby.  Must not fail. */
extern bool le_answer_needs_standby(const LeMailbox *box, const LeReply *reply);

/* Returns whether this release may return before its WAL record is flushed.  Must not fail. */
extern bool le_answer_may_return(const LeReply *reply, bool durable_release, bool need_standby);

/* --- manager/outage.c --- */

/*
 * Begin or continue an outage. le_outage_locked(): the tables are locked, or, if error is not NULL, could not
 * be locked because of that error. le_outage_failed(): a batch has failed with this error.
 */
extern void le_outage_locked(const ErrorData *error);
extern void le_outage_failed(const ErrorData *error);
/*
 * Ends the outage, if there is one, because a batch was written, or has locked its tables if locks were the
 * only reason.
 */
extern void le_outage_over(void);

/*
 * Returns whether a batch that writes may be run.  To find out during an outage, it may write the row of
 * table meta.
 */
extern bool le_outage_allows_batch(void);

/*
 * Returns whether this error means that nothing at all can be written. has_xid: whether its transaction has
 * an id.
 */
extern bool le_outage_explains(const ErrorData *error, bool has_xid);

/*
 * Records the error of a failed batch for health() if the server is the cause, even if other batches may
 * succeed.
 */
extern void le_outage_note(const ErrorData *error);

/* Returns whether this request only reads the state or renews. */
extern bool le_request_looks(const LeMailbox *box);

/*
 * Called in an outage, after a batch with looks_only: replies with the error to the requests that the batch
 * did not serve and that have waited long enough.
 */
extern void le_outage_refuse(const Batch *batch);

/*
 * Called in an outage. le_outage_end_calls() replies to the calls whose own wait has timed out,
 * le_outage_withdraw() to one call that was withdrawn.
 */
extern void le_outage_end_calls(void);
extern void le_outage_withdraw(uint32 proc);
/*
 * Called in the first batch that may write: ends the waits, in the core, of calls that got their reply during
 * the outage.
 */
extern void le_outage_end_waits(LeTime now);

/* --- manager/reload.c --- */

/*
 * Loads the state for the first time.  Returns false if the extension is not installed in this database.  May
 * raise an error, which ends the worker; then another worker is started.
 */
extern bool le_load_first(void);

/* Returns whether this transaction of a session is still open, or was rolled back but that mail is unread. */
extern bool le_load_uncommitted(void *arg, uint64 session, uint32 xact);

/* Sets the limits of a core from the current settings. */
extern void le_load_limits(LeCore *core, int work);

/* Loads the state again after a failed batch.  If that fails, returns false and sets *error. */
extern bool le_load_again(ErrorData **error);

/* --- manager/memory.c --- */

/* The memory of a core.  The last two functions are those of LeEnv. */
extern MemoryContext le_memory_new_context(void);
extern void *le_memory_alloc(void *arg, size_t size);
extern void le_memory_free(void *arg, void *p);

/* Returns the memory of the state, in bytes. */
extern Size le_memory_used(void);

/*
 * Reserves memory for everything that the command may add.  Returns LE_LIMIT_MEMORY or LE_LIMIT_HISTORY if
 * there is no room for it.
 */
extern LeStatus le_memory_reserve(const LeCommand *cmd);

/* Called after a load: warns if the state takes more memory than the limit. */
extern void le_memory_warn(void);

/* --- manager/txn.c --- */

/*
 * le_txn_begin() begins a transaction. le_txn_commit() commits it, with or without a flush, and returns the
 * end of its WAL record.
 */
extern void le_txn_begin(void);
extern XLogRecPtr le_txn_commit(bool flush);
/*
 * Locks the tables, so that other sessions' locks cannot block or delay the writes of this batch.  Does not
 * wait: returns false if another session has locked one of the tables, or waits to.
 */
extern bool le_txn_lock_tables(Batch *batch);
/*
 * Called in PG_CATCH, in a transaction or not: logs the error if "log" is set, and rolls back.  Returns a
 * copy of the error, in the batch's memory context.
 */
extern ErrorData *le_txn_failed(bool log);
/*
 * Writes a WAL record that has no effect, and returns its LSN, which is after everything that was written
 * before.  Must not fail, because it runs after a commit.
 */
extern XLogRecPtr le_txn_log_nothing(void);

/*
 * Runs work() in a transaction, which work() commits.  Must not fail, because it serves no request: an error
 * in work() is logged and rolled back.
 */
extern void le_txn_chore(void (*work)(void));

/* --- manager/leave.c --- */

/*
 * Ends every wait with an error because the extension was dropped.  Must not fail, because the waiters would
 * otherwise never be woken up.
 */
extern void le_leave_dropped(void);

/* Carries out all asynchronous releases before the manager exits. slept_until: see le_batch_check_stall(). */
extern void le_leave_in_order(uint32 *procs, LeTime slept_until);

/*
 * Writes the releases that were replied to but not written.  Takes no more requests, because the tokens of
 * the next manager must be higher.  If the write fails, each of these locks stays held until its TTL ends.
 */
extern void le_leave_serving_nobody(uint32 *procs);

/* --- manager/chores.c --- */

/*
 * Terminates connections whose fence on a holder still exists lock_election.fence_timeout after the end of
 * that holder.
 */
extern void le_fence_end_overdue(LeCore *core, LeTime now);

/*
 * Measures the tables, for the view, and rewrites one that consists mostly of dead rows.  Must not fail or
 * wait, because locks are more urgent: an error is logged.  Returns when to call it again, by le_clock().
 */
extern LeTime le_shrink_tend(void);

/*
 * Starts to count the size of the history.  Every change of this manager, including those of its load, has a
 * number of at least next_change.
 */
extern void le_history_begin(int64_t next_change);

/*
 * Called before a batch writes its changes of elections: allocates the memory that le_history_written()
 * needs.
 */
extern void le_history_reserve(LeCore *core);

/*
 * Counts the changes of elections that a batch has written.  Must not fail: le_history_reserve() has
 * allocated the memory.
 */
extern void le_history_written(LeCore *core);

/* Returns whether the history of the command's role may grow (lock_election.max_history_per_role). */
extern bool le_history_admits(const LeCommand *cmd);

/*
 * Deletes some rows older than lock_election.history_retention, if it is time for that.  Must not fail,
 * because locks are more urgent: an error is logged.  Returns when to call it again, by le_clock().
 */
extern LeTime le_history_tend(void);

/*
 * Records how long this manager has run, as long as there is a lease that the next manager would charge with
 * that time (core/life.h).  Must not fail, because locks are more urgent: an error is logged.  Returns when to
 * call it again, by le_clock().
 */
extern LeTime le_life_tend(void);

/* --- manager/deadlock.c --- */

/* Notes that this process asks whether it is part of a deadlock. */
extern void le_deadlock_ask(uint32 proc);

/* Returns when to search for deadlocks; LE_NEVER if no process has asked. */
extern LeTime le_deadlock_next_search(void);

/*
 * Searches for deadlocks, starting at all processes that have asked.  One process of each cycle gets an
 * error, see le_answer_deadlock().
 */
extern void le_deadlock_search(const LeCore *core);

/* --- manager/fillpage.c --- */

/* LE_REQUEST_PAGE: puts a page into the mailbox, and the position at which the next page begins. */
extern void le_page_fill(const LeCore *core, LeMailbox *box, LeTime now);

/*
 * LE_REQUEST_LEADER is a CHECK of the leader's term, so that its reply is given with the batch.
 * le_page_find_leader() sets the term in the command. le_page_put_leader() then puts the leader of that
 * moment into the mailbox, after the election's name, so that the request can be read again.
 */
extern void le_page_find_leader(const LeCore *core, LeCommand *cmd);
extern void le_page_put_leader(const LeCore *core, const LeCommand *cmd, LeMailbox *box, LeTime now);

/*
 * LEASE_HOLDS, called after it was applied: puts a page into the mailbox, after the name of its cursor.  Adds
 * to the reply the LSN on which the page depends.
 */
extern void le_page_put_holds(const LeCore *core, const LeCommand *cmd, LeMailbox *box, LeTime now,
							  LeReply *reply);

/* --- manager/publish.c --- */

/*
 * Copies the core's counters to shared memory, where views read them.  Must not fail, because it runs after a
 * commit.
 */
extern void le_publish(void);

/* --- manager/hints.c --- */

/*
 * Adds hints for the grants and changes of a committed batch. lsn: the end of its commit record.  Must not
 * fail or wait, because a hint must not delay a reply.
 */
extern void le_hints_of_batch(LeCore *core, XLogRecPtr lsn);

/*
 * Starts a notifier if there is something to send and no notifier runs.  Returns when to call it again, by
 * le_clock().
 */
extern LeTime le_hints_tend(void);

/* Ends the manager's notifier.  Must not fail, because the process is exiting. */
extern void le_hints_leave(void);

#endif /* LE_MANAGER_H */
