/*
 * manager/internal.h
 *		What the files of the manager's work share: take.c takes and applies
 *		requests, batch.c writes and answers, reload.c builds the state from the
 *		tables.
 */
#ifndef LE_BATCH_INTERNAL_H
#define LE_BATCH_INTERNAL_H

#include "access/xlogdefs.h"

#include "core/pause.h"
#include "manager/batch.h"

/* Entries that are granted or ended in one batch, where it can be cut into steps. */
#define WORK_A_BATCH 200
#define WORK_AT_REST 50
/* After what was much the manager does only what is little, for so many times as long, and not for longer than that. */
#define REST_TIMES   2
#define REST_AT_MOST (100 * LE_MS)
/* Items that expire in one batch at most. */
#define EXPIRE_A_BATCH 1000
/* Back-off after a failure that no request caused. */
#define RETRY_AFTER (1 * LE_SECOND)
/* While there are deadlines, the manager wakes this often: to notice a pause. */
#define HEARTBEAT (1 * LE_SECOND)

/* An answer that goes out after the commit. */
typedef struct Deferred
{
	uint32 proc;
	uint32 number;
	bool confirm; /* a standby has to see it too, though it may write nothing */
	LeReply reply;
} Deferred;

/* What the last request of a session has extended, for as long as it may be taken back. */
typedef struct Extended
{
	uint32 number;         /* of the request */
	LeExtension extension; /* id 0: nothing */
} Extended;

/* A mailbox as it was read. */
typedef struct Mail
{
	uint32 proc;
	uint32 flags;
	uint64 undo;
	bool told;          /* nobody waits for these releases */
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
	uint32 *taken; /* by proc number: the request last taken */
	uint32 *aside; /* procs with more to do than a batch had room for, in the order of their turns */
	int naside;
	LeTime rest_until;  /* until then they wait */
	LeTime little_at;   /* when something else was taken */
	LeTime much_at;     /* when the last batch of them began */
	Extended *extended; /* by proc number */
	LePause pause;      /* of le_clock(), what does not count */

	bool limited;        /* what is allocated is bounded by lock_election.max_memory */
	int64 left_out;      /* rows that a load had no memory for */
	int left_out_of;     /* with this limit, MB */
	LeTime left_out_at;  /* when it looks whether there is room for them */
	bool core_valid;     /* memory agrees with the tables */
	bool reenter;        /* waiting requests are not in the core yet */
	LeTime retry_at;     /* look at all slots again; 0: no need */
	LeTime expire_after; /* back-off of what has no request to blame */

	/* the batch */
	Deferred *deferred;
	int ndeferred;
	Mail *mails;
	int nmails;
	uint32 *fresh; /* procs whose request was taken in it */
	int nfresh;
	bool told_only; /* it does nothing but releases that were told */
	bool resting;   /* it is one of those that do only what is little */
	bool much;      /* it has taken something that is more than a little work */
	bool rewritten; /* the tables are other ones */
	bool gone;      /* the extension was dropped */
	LeStats seen;   /* core's counters already published */
} Manager;

extern Manager le_mgr;

static inline LeTime
core_now(void)
{
	return le_pause_time(&le_mgr.pause, le_clock());
}

static inline LeRequestSlot *
slot_of(uint32 proc)
{
	return le_slot(le_mgr.db, proc);
}

/* --- manager/batch.c --- */

/* Answer the request with this number, if it is still waited for. */
extern void le_batch_answer(uint32 proc, uint32 number, const LeReply *reply);
extern bool le_batch_confirms(const LeRequestSlot *slot, const LeReply *reply);
/* A release that its session does not wait for, because nothing rests on it. */
extern bool le_batch_may_return(const LeReply *reply, bool durable_release, bool need_standby);
/* Answer the newest request of this proc with an error. */
extern void le_batch_answer_error(uint32 proc, int sqlstate, const char *message);

/* --- manager/take.c --- */

/*
 * Take the mail and the requests of these slots, and apply them.  What is too much
 * for this batch is put aside; le_take_aside() puts it in front of these n when its
 * time has come, and returns how many there are.
 */
extern void le_take(const uint32 *procs, int n, LeTime now);
/* Has its mailbox a release that was told to be made? */
extern bool le_take_is_told(uint32 proc);
extern int le_take_aside(uint32 *procs, int n);
/* The manager is shared by time: after a batch with much work come only those who have little to ask for. */
extern void le_take_rest(void);
extern bool le_take_rests(void);

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

/* --- manager/batch.c, manager/reload.c --- */

/* Begin a transaction; commit it, with or without a flush: where it ends in the WAL. */
extern void le_batch_begin(void);
extern XLogRecPtr le_batch_commit(bool flush);
/* A record that means nothing; its end is behind all that was written before. */
extern XLogRecPtr le_batch_log_nothing(void);

/* As the settings are now. */
extern void le_batch_set_limits(LeCore *core, int work);

/* Has a load left rows out for which there may be room now? */
extern bool le_batch_has_room(void);

/* Look at all slots again after RETRY_AFTER; another failure before that does not put it off. */
extern void le_retry_later(void);

/* Load again after a failed batch; false: *error says why it is not possible. */
extern bool le_batch_reload(ErrorData **error);

#endif /* LE_BATCH_INTERNAL_H */
