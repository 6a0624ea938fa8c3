/*
 * manager/internal.h
 *		What the files of the manager's work share: take.c takes and applies
 *		requests, batch.c runs a batch, replay.c one that has failed, answer.c answers,
 *		reload.c builds the state from the tables, leave.c does what is left to do.
 */
#ifndef LE_BATCH_INTERNAL_H
#define LE_BATCH_INTERNAL_H

#include "access/xlogdefs.h"

#include "core/pause.h"
#include "manager/batch.h"

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

/* A mailbox as it was read. */
typedef struct Mail
{
	uint32 proc;
	uint32 flags;
	uint64 undo;
	bool async;         /* nobody waits for these releases */
	bool released;      /* with something that has to last */
	uint32 released_to; /* so far its releases are applied */
} Mail;

typedef struct Manager
{
	LeDatabase *db;
	LeCore *core;
	MemoryContext core_context;
	MemoryContext batch_context;
	LeMeta meta;
	LeTime taken_at;        /* by le_clock(): when the batch was begun */
	LeTime rung_until;      /* whoever has rung by then is in it; what is posted later is for the next */
	XLogRecPtr changes_lsn; /* of the newest changes of elections */
	uint32 *listed;         /* by proc number: in the list of that number */
	uint32 list_number;
	uint32 *taken;    /* by proc number: the request last taken */
	uint32 *deferred; /* procs with heavy work that no batch had room for, in the order of their turns */
	int ndeferred;
	LeTime backoff_until;  /* deferred work waits until then */
	LeTime light_seen_at;  /* begin of the last batch with light work */
	LeTime heavy_began_at; /* begin of the last batch with heavy work */
	LePause pause;         /* of le_clock(), what does not count */

	bool limited;        /* what is allocated is bounded by lock_election.max_memory */
	bool core_valid;     /* memory agrees with the tables */
	bool reenter;        /* waiting requests are not in the core yet */
	LeTime retry_at;     /* look at all mailboxes again; 0: no need */
	LeTime expire_after; /* back-off of what has no request to blame */

	/* the batch */
	CommitAnswer *answers;
	int nanswers;
	Mail *mails;
	int nmails;
	uint32 *fresh; /* procs whose request was taken in it */
	int nfresh;
	bool async_only;  /* asynchronous releases alone */
	bool backing_off; /* heavy work is deferred */
	bool heavy;       /* it has done heavy work */
	bool rewritten;   /* the tables are other ones */
	bool gone;        /* the extension was dropped */
	LeStats seen;     /* core's counters already published */
} Manager;

extern Manager le_mgr;

static inline LeTime
core_now(void)
{
	return le_pause_time(&le_mgr.pause, le_clock());
}

static inline LeMailbox *
mailbox_of(uint32 proc)
{
	return le_mailbox(le_mgr.db, proc);
}

/* --- manager/batch.c --- */

/*
 * One batch: apply, write, answer.  expire: also what was due at the horizon, until
 * which all that was posted is in procs.  False: it has failed and left no trace,
 * *error says why, and the core is not to be used before le_batch_reload().
 */
extern bool le_batch_try(const uint32 *procs, int n, bool expire, LeTime horizon, ErrorData **error);

/* --- manager/answer.c --- */

/* Answer the request with this number, if it is still waited for. */
extern void le_batch_answer(uint32 proc, uint32 number, const LeReply *reply);
/* Answer the newest request of this proc with an error. */
extern void le_batch_answer_error(uint32 proc, int sqlstate, const char *message);
/* What these mailboxes have asked for could not be written. */
extern void le_answer_failed(const uint32 *procs, int n, const ErrorData *error);
/* Tell the session how many locks are bound to it. */
extern void le_answer_bound(LeMailbox *box);
extern bool le_batch_confirms(const LeMailbox *box, const LeReply *reply);
/* A release that its session does not wait for, because nothing rests on it. */
extern bool le_batch_may_return(const LeReply *reply, bool durable_release, bool need_standby);

/* --- manager/mailbox.c --- */

/* Has its mailbox an asynchronous release? */
extern bool le_take_has_async(uint32 proc);
/* Look at all mailboxes again after RETRY_AFTER; another failure before that does not put it off. */
extern void le_retry_later(void);

/* --- manager/take.c --- */

/*
 * Take the mail and the requests of these mailboxes, and apply them.  Heavy work that the
 * batch has no room for is deferred; le_take_deferred() puts it in front of these n
 * when its turn has come, and returns how many there are.
 */
extern void le_take(const uint32 *procs, int n, LeTime now);
extern int le_take_deferred(uint32 *procs, int n);
/* After a batch; is heavy work deferred now? */
extern void le_take_back_off(void);
extern bool le_take_is_backing_off(void);

/*
 * Add all that have rung to these n, each once, and put renewals first: what
 * they keep alive does not end because of another request that is handled with
 * them.  Returns how many there are.
 */
extern int le_take_rung(uint32 *procs, int n);

/*
 * Take the requests that waited before the core was loaded, in their old order.
 * Nothing is granted before all of them are back.
 */
extern void le_take_waiting(LeTime now);

/* --- manager/publish.c --- */

/* Put the core's counters where the views read them. */
extern void le_publish(void);

/* --- manager/chore.c --- */

/* Work in a transaction, which it commits itself; an error is logged, and undoes it. */
extern void le_chore(void (*work)(void));

/* --- manager/txn.c --- */

/* Begin a transaction; commit it, with or without a flush: where it ends in the WAL. */
extern void le_batch_begin(void);
extern XLogRecPtr le_batch_commit(bool flush);
/* A record that means nothing; its end is behind all that was written before. */
extern XLogRecPtr le_batch_log_nothing(void);

/* --- manager/reload.c --- */

/* As the settings are now. */
extern void le_batch_set_limits(LeCore *core, int work);

/* Does the state take more than lock_election.max_memory?  Only a load can have done that. */
extern bool le_memory_is_exceeded(void);

/* Load again after a failed batch; false: *error says why it is not possible. */
extern bool le_batch_reload(ErrorData **error);

#endif /* LE_BATCH_INTERNAL_H */
