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

/* Upper limit of entries granted or ended in one batch, where its work can be cut into steps. */
#define WORK_A_BATCH     200
#define WORK_BACKING_OFF 50
/*
 * After a batch with heavy work, only light work is served for BACKOFF_TIMES times as long as the batch took,
 * but for at most BACKOFF_AT_MOST.
 */
#define BACKOFF_TIMES   2
#define BACKOFF_AT_MOST (100 * LE_MS)
/* Upper limit of items that expire in one batch. */
#define EXPIRE_A_BATCH 1000
/* Time before a retry after a failure that no request caused. */
#define RETRY_AFTER (1 * LE_SECOND)
/* While there are deadlines, the manager wakes up at least this often, so that it notices a pause. */
#define HEARTBEAT (1 * LE_SECOND)

/* A reply that is sent after the commit. */
typedef struct CommitAnswer
{
	uint32 proc;
	uint32 number;
	bool confirm; /* a standby must have received it, even if it wrote nothing */
	LeReply reply;
} CommitAnswer;

/*
 * The mail of one mailbox as this batch read it.  Mail that the batch does not apply is removed from here
 * again, and stays in the mailbox.
 */
typedef struct Mail
{
	uint32 proc;
	uint32 flags;
	uint64 undo;
	bool async;         /* asynchronous releases: no COMMIT waits for them */
	bool released;      /* its COMMIT has to wait for the flush of a release */
	uint32 released_to; /* bytes of its releases that are applied */
} Mail;

/*
 * One batch.  The caller of le_batch_run() fills in the first part; le_batch_run() resets the rest, and
 * take.c and batch.c fill it in.
 */
typedef struct Batch
{
	/* --- filled in by the caller --- */
	uint32 *procs;     /* mailboxes to serve, see the order in take.c; has room for all mailboxes */
	int n;             /* length of procs */
	LeTime horizon;    /* by le_clock(): everything posted until then is in procs */
	LeTime rung_until; /* by le_clock(): requests posted later wait for the next batch */
	bool expire;       /* at the end, expire everything that was due at the horizon */
	bool async_only;   /* asynchronous releases only: the first part of a replay */
	bool looks_only;   /* only requests that need not write: in an outage */

	/* --- filled in by the batch --- */
	LeTime began_at;   /* by le_clock() */
	LeTime now;        /* the same moment on the core's clock */
	bool backing_off;  /* heavy work is deferred */
	bool heavy;        /* heavy work has been done */
	bool files_differ; /* the tables are not the loaded ones, so nothing was written */
	bool begun;        /* its transaction is open */
	bool locked;       /* it has locked the tables, so no lock of others can keep it from writing */
	bool applied;      /* the core may be ahead of the tables */
	bool explained;    /* it failed because nothing at all can be written */
	CommitAnswer *answers;
	int nanswers;
	Mail *mails;
	int nmails;
	uint32 *fresh; /* procs whose request this batch has taken */
	int nfresh;
} Batch;

/* The result of a batch. */
typedef enum BatchEnd
{
	BATCH_DONE,
	BATCH_LOCKED,      /* nothing was applied: another session has locked the tables */
	BATCH_FAILED,      /* rolled back, or failed after its replies; the core needs a reload */
	BATCH_UNWRITABLE,  /* the same, but no request is to blame: nothing can be written */
	BATCH_FILES_DIFFER /* the same, but no request is to blame: can be run again after a reload */
} BatchEnd;

/* State of an outage, in which nothing can be written: see manager/outage.c.  Times are by le_clock(). */
typedef struct Outage
{
	LeTime since;      /* 0: no outage */
	LeTime core_since; /* the same moment on the core's clock */
	bool failed;       /* a batch has failed, so a retry may cost a load: not only locked tables */
	LeTime try_at;     /* when to retry, even if no session wakes the manager up */
} Outage;

/* State of the core in memory. */
typedef enum CoreState
{
	CORE_STALE,   /* unusable until the next load: a batch has failed, or nothing was loaded yet */
	CORE_LOADED,  /* agrees with the tables, but lacks the requests that wait in mailboxes */
	CORE_SERVING, /* has these requests as well */
	CORE_DROPPED  /* unusable: the extension was dropped */
} CoreState;

typedef struct Manager
{
	LeDatabase *db;
	LeCore *core;
	CoreState core_state; /* changed only by set_core_state() */
	MemoryContext core_context;
	MemoryContext batch_context;
	LeMeta meta;
	XLogRecPtr changes_lsn; /* LSN of the newest changes of elections */
	XLogRecPtr loaded_lsn;  /* LSN of the load that built the core; differs for each load */
	int64 incarnation;      /* of this manager, as told to clients of leases; differs for each manager */
	LeStats seen;           /* the core's counters as last published */
	LePause pause;          /* pauses, which the core's clock leaves out of le_clock() */
	LeLife life;            /* this manager's life and earlier ones: see core/life.h */
	LeTime life_began;      /* on the core's clock */

	uint32 *taken;       /* by proc number: number of the request last taken */
	uint32 *looked;      /* by proc number: newest request when a looks_only batch saw the mailbox */
	LeTime retry_at;     /* when to look at all mailboxes again; 0: no need */
	LeTime expire_after; /* no expiry before then: back-off after a failure that no request caused */
	Outage outage;

	uint32 *deferred; /* procs whose heavy work no batch had room for, in the order of their turns */
	int ndeferred;
	LeTime backoff_until;  /* heavy work is deferred until then */
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

/* Returns whether the newest request of a mailbox is unanswered; take.c knows whether it was taken. */
static inline bool
is_unanswered(LeMailbox *box)
{
	return pg_atomic_read_u32(&box->posted) != pg_atomic_read_u32(&box->answered);
}

/*
 * Returns whether there is mail that ends the session, or all or part of its transaction.  A session posts no
 * request while such mail is unread, so nobody waits for the reply to a request that is still there.
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
 * Serves these mailboxes in one or more batches.  procs must have room for all mailboxes.  Must not fail,
 * because nobody else would reply: a request that cannot be written gets the error as its reply.
 */
extern void le_serve(uint32 *procs, int n);

/* --- manager/batch.c --- */

/* Initializes le_mgr, once, when the manager starts. */
extern void le_batch_init(LeDatabase *db);

/*
 * Runs one batch: applies, writes, replies.  Unless the result is BATCH_DONE, *error says why; after
 * BATCH_LOCKED it may be NULL.
 */
extern BatchEnd le_batch_run(Batch *batch, ErrorData **error);

/*
 * Detects that the manager was suspended, and if so moves all deadlines by the length of the pause.
 * slept_until: when the manager meant to wake up, 0 if it did not sleep.  procs: mailboxes that have rung.
 */
extern void le_batch_check_stall(LeTime slept_until, const uint32 *procs, int n);

/* When to wake up, by le_clock(), and why. */
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

/* Returns whether a batch has answered releases without writing them. */
extern bool le_batch_has_later(void);

/* Returns when to run a batch even if no session wakes the manager up. */
extern Wakeup le_batch_next_wakeup(void);

/* --- manager/take.c --- */

/*
 * Called before a batch: puts deferred mailboxes in front of the others, unless the manager is backing off.
 */
extern void le_take_deferred(Batch *batch);

/* Called before a batch: adds all mailboxes that have rung by now, each at most once. */
extern void le_take_rung(Batch *batch);

/*
 * Called in a batch: takes the requests that waited before the core was loaded, in their old order.  Nothing
 * is granted before all of them are back.
 */
extern void le_take_waiting(Batch *batch);

/* Called in a batch: takes the mail and the requests of its mailboxes, and applies them. */
extern void le_take(Batch *batch);

/*
 * Called in a batch: takes the request of a mailbox, if there is a new one, and applies or answers it.  An
 * error fails the batch, and untake() in batch.c gives the request back.
 */
extern void le_take_request(Batch *batch, uint32 proc);

/*
 * Called after a batch: if its work was heavy, serves only light work for a while.  Must not fail: it runs
 * after a commit.
 */
extern void le_take_back_off(const Batch *batch);

/* Returns whether heavy work is deferred now. */
extern bool le_take_is_backing_off(void);

/* --- manager/apply.c --- */

/*
 * Applies a command that has at most one name.  A renewal may turn out to need a write in a batch that did
 * not expect one: then the tables are locked now, and if that is not possible, the renewal is valid for less
 * time.
 */
extern void le_apply_one(Batch *batch, const LeCommand *cmd, LeReply *reply);

/* --- manager/sync.c --- */

/*
 * Renews the lease of a lease_sync(), before anything expires; and later in the batch, carries out the call.
 */
extern void le_sync_renew(Batch *batch, uint32 proc);
extern void le_sync_take(Batch *batch, uint32 proc);

/* --- manager/looks.c --- */

/*
 * Returns whether a batch may have to write.  Renewals that have to write are found only when they are
 * applied.
 */
extern bool le_take_may_write(const Batch *batch);

/* Called in a batch with looks_only: takes the requests that need not write, and applies them. */
extern void le_take_looks(Batch *batch);

/* --- manager/answer.c --- */

/*
 * Puts all mailboxes of this database that have a request or mail, rung or not, into procs.  Returns their
 * number.
 */
extern int le_mailboxes_with_work(uint32 *procs);

/* Returns whether the mailbox has an asynchronous release. */
extern bool le_mailbox_has_async(uint32 proc);
/*
 * Makes the manager look at all mailboxes again after RETRY_AFTER; further failures before that do not delay
 * it.  Must not fail: an error is being handled.
 */
extern void le_mailboxes_retry_later(void);

/*
 * Replies.  They are sent after a commit, and in error handlers: none of these functions allocates memory or
 * raises an error.
 */

/*
 * Answers the request with this number, if it is still waited for.  as_of: the moment, by le_clock(), for
 * which the reply states the time left.  Must not fail.
 */
extern void le_answer_request(uint32 proc, uint32 number, const LeReply *reply, LeTime as_of);

/*
 * The same, at the commit of this batch, because the reply rests on rows that the batch writes.  confirm: a
 * standby must have received it, even if the request wrote nothing.
 */
extern void le_answer_at_commit(Batch *batch, uint32 proc, uint32 number, const LeReply *reply, bool confirm);

/* Answers the newest request of this proc, for which nobody waits any more.  Must not fail. */
extern void le_answer_withdrawn(uint32 proc);

/* Answers the newest request of this proc with an error.  Must not fail. */
extern void le_answer_error(uint32 proc, int sqlstate, const char *message);

/*
 * Answers the request of a process that waits for itself with a deadlock error.  detail has a line for each
 * process of the cycle.  Must not fail.
 */
extern void le_answer_deadlock(uint32 proc, const StringInfoData *detail);

/* Replies with the error to the mailboxes of a failed batch.  Must not fail: an error is being handled. */
extern void le_answer_failed(const uint32 *procs, int n, const ErrorData *error);
/* The same for one mailbox, if its newest request is still the one with this number. */
extern void le_answer_failed_one(uint32 proc, uint32 number, const ErrorData *error);

/* Asserts that each of these mailboxes is listed once. */
#ifdef USE_ASSERT_CHECKING
extern void le_assert_procs(const uint32 *procs, int n);
#else
#define le_assert_procs(procs, n) ((void) 0)
#endif

/* Tells the session how many locks are bound to it.  Must not fail. */
extern void le_publish_bound(LeMailbox *box);

/* Returns whether this reply has to wait for a standby.  Must not fail. */
extern bool le_answer_needs_standby(const LeMailbox *box, const LeReply *reply);

/* Returns whether this release may return before its record is flushed.  Must not fail. */
extern bool le_answer_may_return(const LeReply *reply, bool durable_release, bool need_standby);

/* --- manager/outage.c --- */

/*
 * Begins or continues an outage.  Locked: the tables are locked, or if error is not NULL, could not be locked
 * because of that error.  Failed: a batch has failed with this error.
 */
extern void le_outage_locked(const ErrorData *error);
extern void le_outage_failed(const ErrorData *error);
/*
 * Ends the outage, if there is one: a batch was written, or if locks were the only reason, it locked its
 * tables.
 */
extern void le_outage_over(void);

/*
 * Returns whether a batch that writes may be run.  In an outage it may write the row of table meta to find
 * out.
 */
extern bool le_outage_allows_batch(void);

/*
 * Returns whether this error means that nothing at all can be written.  has_xid: its transaction has an id.
 */
extern bool le_outage_explains(const ErrorData *error, bool has_xid);

/*
 * Records the error of a failed batch for health(), if the server is the cause, even if other batches may
 * succeed.
 */
extern void le_outage_note(const ErrorData *error);

/* Returns whether this request only looks or renews. */
extern bool le_request_looks(const LeMailbox *box);

/*
 * Called in an outage, after a batch with looks_only: refuses the requests that the batch has left and that
 * have waited long enough.
 */
extern void le_outage_refuse(const Batch *batch);

/* Called in an outage: answers calls whose own wait has timed out, or one call that is given up. */
extern void le_outage_end_calls(void);
extern void le_outage_withdraw(uint32 proc);
/* Called in the first batch that may write: tells the core which calls were answered in the outage. */
extern void le_outage_end_waits(LeTime now);

/* --- manager/reload.c --- */

/*
 * Loads the state for the first time.  Returns false if the extension is not installed in this database.  May
 * raise an error, which ends the worker; another one is started.
 */
extern bool le_load_first(void);

/* Returns whether this transaction of a session is still open, or rolled back and its mail unread. */
extern bool le_load_uncommitted(void *arg, uint64 session, uint32 xact);

/* Sets the limits of a core according to the current settings. */
extern void le_load_limits(LeCore *core, int work);

/*
 * Loads the state again after a failed batch.  If that is not possible, returns false, and *error says why.
 */
extern bool le_load_again(ErrorData **error);

/* --- manager/memory.c --- */

/* Memory of a core; alloc and free are functions of LeEnv. */
extern MemoryContext le_memory_new_context(void);
extern void *le_memory_alloc(void *arg, size_t size);
extern void le_memory_free(void *arg, void *p);

/* Returns the memory that the state takes, in bytes. */
extern Size le_memory_used(void);

/*
 * Reserves memory for whatever the command may add.  Returns LE_LIMIT_MEMORY or LE_LIMIT_HISTORY if there is
 * no room for it.
 */
extern LeStatus le_memory_reserve(const LeCommand *cmd);

/* Called after a load: warns if the state takes more memory than the limit. */
extern void le_memory_warn(void);

/* --- manager/txn.c --- */

/* Begin a transaction; and commit it, with or without a flush.  The commit returns its end in the WAL. */
extern void le_txn_begin(void);
extern XLogRecPtr le_txn_commit(bool flush);
/*
 * Locks the tables, so that no lock of others can block or delay the writes of this batch.  Returns at once;
 * false if another session has locked one of the tables, or waits to.
 */
extern bool le_txn_lock_tables(Batch *batch);
/*
 * Called in PG_CATCH, in a transaction or not: logs the error if asked to, and rolls back.  Returns a copy of
 * the error, in the batch's memory context.
 */
extern ErrorData *le_txn_failed(bool log);
/*
 * Writes a WAL record without effect, and returns its LSN, which is behind everything that was written
 * before.  Must not fail: it runs after a commit.
 */
extern XLogRecPtr le_txn_log_nothing(void);

/*
 * Runs "work" in a transaction, which "work" commits.  Must not fail, because no request is to blame: an
 * error in "work" is logged and rolled back.
 */
extern void le_txn_chore(void (*work)(void));

/* --- manager/leave.c --- */

/*
 * Ends every wait with an error because the extension was dropped.  Must not fail: the waiters would never be
 * woken up.
 */
extern void le_leave_dropped(void);

/*
 * Carries out all asynchronous releases before the manager exits.  slept_until: see le_batch_check_stall().
 */
extern void le_leave_in_order(uint32 *procs, LeTime slept_until);

/*
 * Writes the releases that were answered unwritten, and takes nothing more, because the next manager's tokens
 * must be higher.  If that fails, each of these locks stays held until its TTL ends.
 */
extern void le_leave_serving_nobody(uint32 *procs);

/* --- manager/chores.c --- */

/*
 * Terminates connections that have fenced a holder for longer than lock_election.fence_timeout after its end.
 */
extern void le_fence_end_overdue(LeCore *core, LeTime now);

/*
 * Measures the tables, for the view, and rewrites one that consists mostly of dead rows.  Must not fail or
 * wait, because locks come first: an error is logged.  Returns when to call it again, by le_clock().
 */
extern LeTime le_shrink_tend(void);

/*
 * Starts the count of the history: all changes of this manager, those of its load included, have numbers from
 * next_change on.
 */
extern void le_history_begin(int64_t next_change);

/* Called before a batch writes its changes of elections: allocates memory for le_history_written(). */
extern void le_history_reserve(LeCore *core);

/*
 * Counts the changes of elections that a batch has written.  Must not fail: le_history_reserve() was called
 * before.
 */
extern void le_history_written(LeCore *core);

/* Returns whether the history of the command's role has room (lock_election.max_history_per_role). */
extern bool le_history_admits(const LeCommand *cmd);

/*
 * Deletes some rows older than lock_election.history_retention, if it is time for that.  Must not fail,
 * because locks come first: an error is logged.  Returns when to call it again, by le_clock().
 */
extern LeTime le_history_tend(void);

/*
 * Records how long this manager has run, as long as there is a lease that the next manager would charge with
 * that time (core/life.h).  Must not fail, because locks come first: an error is logged.  Returns when to
 * call it again, by le_clock().
 */
extern LeTime le_life_tend(void);

/* --- manager/deadlock.c --- */

/* Notes that this process asks whether it waits for itself. */
extern void le_deadlock_ask(uint32 proc);

/* Returns when to search for deadlocks; LE_NEVER if no process has asked. */
extern LeTime le_deadlock_next_search(void);

/*
 * Searches from all processes that have asked.  One process of each cycle gets an error, see
 * le_answer_deadlock().
 */
extern void le_deadlock_search(const LeCore *core);

/* --- manager/fillpage.c --- */

/* LE_REQUEST_PAGE: puts a page into the mailbox, and the position where the next page begins. */
extern void le_page_fill(const LeCore *core, LeMailbox *box, LeTime now);

/*
 * LE_REQUEST_LEADER is a CHECK of the leader's term, so that it is answered with its batch.  First find the
 * term; then put the leader of that moment into the mailbox, behind the election's name, so that the request
 * can be read again.
 */
extern void le_page_find_leader(const LeCore *core, LeCommand *cmd);
extern void le_page_put_leader(const LeCore *core, const LeCommand *cmd, LeMailbox *box, LeTime now);

/*
 * LEASE_HOLDS, after it was applied: puts a page into the mailbox, behind the name of its cursor, and the LSN
 * that the page rests on into the reply.
 */
extern void le_page_put_holds(const LeCore *core, const LeCommand *cmd, LeMailbox *box, LeTime now,
							  LeReply *reply);

/* --- manager/publish.c --- */

/*
 * Copies the core's counters to shared memory, where the views read them.  Must not fail: it runs after a
 * commit.
 */
extern void le_publish(void);

/* --- manager/hints.c --- */

/*
 * Announces the grants of a committed batch.  lsn: the end of its commit record.  Must not fail or wait,
 * because a hint must not delay a reply.
 */
extern void le_hints_of_batch(LeCore *core, XLogRecPtr lsn);

/*
 * Starts a notifier if there is something to send and none runs.  Returns when to call it again, by
 * le_clock().
 */
extern LeTime le_hints_tend(void);

/* Ends the manager's notifier.  Must not fail: the process is exiting. */
extern void le_hints_leave(void);

#endif /* LE_MANAGER_H */
