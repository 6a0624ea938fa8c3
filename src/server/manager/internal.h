/*
 * manager/internal.h
 *		What the files of the manager's work share: manager/take.c takes and applies
 *		requests, manager/batch.c writes and answers, manager/reload.c builds the state from
 *		the tables.
 */
#ifndef LE_BATCH_INTERNAL_H
#define LE_BATCH_INTERNAL_H

#include "access/xlogdefs.h"

#include "manager/batch.h"

/* Items that expire in one batch at most. */
#define EXPIRE_A_BATCH 1000
/* What failed without a request to blame is tried again after this long. */
#define RETRY_AFTER (1 * LE_SECOND)
/* With deadlines about, the manager wakes this often to see that it runs. */
#define HEARTBEAT (1 * LE_SECOND)
/* A pause longer than this moves the deadlines. */
#define STALL             (1 * LE_SECOND)
#define MAX_STALLS_IN_ROW 3 /* with less than a second between them */

/* An answer that goes out after the commit. */
typedef struct Deferred
{
	uint32 proc;
	uint32 number;
	bool confirm; /* a standby has to see it too, though it may write nothing */
	LeReply reply;
} Deferred;

/* A mailbox as it was read. */
typedef struct Mail
{
	uint32 proc;
	uint32 flags;
	uint64 undo;
} Mail;

typedef struct Manager
{
	LeDatabase *db;
	int index; /* of db */
	LeCore *core;
	MemoryContext core_context;
	MemoryContext batch_context;
	LeMeta meta;
	uint32 *taken;        /* by proc number: the request last taken */
	LeTime shift;         /* of the core's clock behind le_clock() */
	LeTime awake_at;      /* when it was last seen running */
	LeTime stalled_until; /* the end of the last pause */
	int stalls_in_row;

	bool core_valid;     /* memory agrees with the tables */
	bool reenter;        /* waiting requests are not in the core yet */
	LeTime broken_at;    /* since when not valid */
	LeTime retry_at;     /* look at all slots again; 0: no need */
	LeTime expire_after; /* back-off of what has no request to blame */

	/* the batch */
	Deferred *deferred;
	int ndeferred;
	Mail *mails;
	int nmails;
	uint32 *fresh; /* procs whose request was taken in it */
	int nfresh;
	bool flush;     /* somebody asks for it */
	bool rewritten; /* the tables are other ones */
	bool gone;      /* the extension was dropped */
	LeStats seen;   /* core's counters already published */
} Manager;

extern Manager le_mgr;

static inline LeTime
core_now(void)
{
	return le_clock() - le_mgr.shift;
}

static inline LeRequestSlot *
slot_of(uint32 proc)
{
	return &le_shared->slots[proc];
}

extern void le_batch_answer(uint32 proc, uint32 number, const LeReply *reply);
extern void le_batch_answer_error(uint32 proc, int sqlstate, const char *message);
extern void le_batch_put_error(LeRequestSlot *slot, int sqlstate, const char *message);

/* --- manager/take.c --- */

extern void le_take(const uint32 *procs, int n, LeTime now);

/*
 * Requests that waited before the core was loaded, in their old order.  Only
 * when all are back is anybody granted anything.
 */
extern void le_take_waiting(LeTime now);

/* --- manager/batch.c, manager/reload.c --- */

extern void le_batch_begin(void);
extern XLogRecPtr le_batch_commit(bool flush);
extern void le_batch_publish(void);

/* Load again after a failed batch; false: *error says why it is not possible. */
extern bool le_batch_reload(ErrorData **error);

#endif /* LE_BATCH_INTERNAL_H */
