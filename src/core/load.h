/*
 * core/load.h
 *		What stored rows mean.  The store yields the rows of its tables as they
 *		are; the core decides what is still true of them.
 *
 * A load is a sequence of calls:
 *
 *	1.	le_core_load_begin() on an empty core whose limits are set.
 *	2.	le_core_load_lease() for each lease: others hang on them.
 *	3.	le_core_load_slot() for each slot, in any order.
 *	4.	le_core_load_place() for each queue place, by token.
 *	5.	The waiters of old post again, as ACQUIRE with their revisions, in that
 *		order.
 *	6.	le_core_load_done().  Nobody is granted anything before: it might belong
 *		to somebody who is still to come.
 *
 * What cannot go on is loaded as ended, and its row is dirty: the next batch
 * writes that.
 */
#ifndef LE_LOAD_H
#define LE_LOAD_H

#include "core.h"
#include "life.h"

/* A moment on the core's clock and on the wall clock of the rows, both in microseconds. */
typedef struct LeClock
{
	LeTime now;
	int64_t wall; /* INT64_MAX: never; INT64_MIN: before all */
} LeClock;

/* A hold whose transaction was open when the row was written. */
typedef struct LeStoredHold
{
	uint64_t session;
	uint32_t xact;
	uint32_t subxact;
} LeStoredHold;

/*
 * A row of a slot, or of a queue place.  The texts are needed during the call
 * only.
 */
typedef struct LeStoredEntry
{
	LeKind kind;
	LeText name;
	LeMode mode; /* 0: a free slot; then all fields are 0 but
								 * the ones of every slot */
	LeText owner;
	LeText value;
	uint64_t session; /* 0: gone */
	int64_t token;
	int64_t lease;
	int32_t permits;
	LeTime ttl;
	int64_t since; /* wall time: acquired; a place: entered the queue */
	LeText acquirer;
	LeText uncommitted; /* of LeStoredHold, one after the other,
								 * perhaps not aligned */
	uint64_t locator;
	int64_t expires_at; /* wall time, for the views of a standby alone; 0: not known */
	uint16_t member;    /* a place of several names: which-th, from 1; else 0 */

	/* of every slot */
	int32_t slot;         /* number */
	int64_t closed_until; /* wall time; 0: open */
	uint32_t role;        /* of a free slot: whose holder left it closed */

	/* of a holder, or a place */
	int32_t holds;
	LeTime
		time_left; /* of a lease of its own, or evicted, see LeSaved; of a lapsed holder in the table -end */
	uint32_t life; /* LeLife.number of when that was so */

	/* of a holder */
	LeEnd end;    /* how it has ended, where only a fence keeps it */
	bool evicted; /* renewed no more */
} LeStoredEntry;

typedef struct LeStoredLease
{
	int64_t id;
	LeTime ttl;
	LeTime time_left;   /* see LeSaved */
	uint32_t life;      /* LeLife.number of when that was so */
	int64_t expires_at; /* wall time: for people who look */
	uint32_t role;
	LeText owner;
	uint64_t locator;
} LeStoredLease;

/*
 * What a load asks of its environment.  Whether a token is fenced it asks by
 * LeEnv.
 */
typedef struct LeLoadEnv
{
	void *arg;

	/* When the load began.  Time left is measured from here for every row; at
	 * the time of each row it would make leases shorter on every reload. */
	LeClock clock;

	/* Every row counts as written at this LSN. */
	uint64_t lsn;

	/* This life of a manager, to which the core keeps the pointer.  NULL: the first of all. */
	const LeLife *life;

	/* This database is a copy: its locks are held in the original. */
	bool copied;

	/* The core whose batch could not be written: deadlines are what they were
	 * there, on the same clock.  NULL: a manager starts, and leases begin
	 * again. */
	LeCore *failed;

	/* Is this session still connected?  Its dense number. */
	bool (*alive)(void *arg, uint64_t session, uint32_t *sessno);

	/* May this transaction of a session that is connected still roll back, or
	 * has it, and the core is still to be told? */
	bool (*uncommitted)(void *arg, uint64_t session, uint32_t xact);
} LeLoadEnv;

typedef enum LeLoadStatus
{
	LE_LOADED,
	LE_LOADED_RIVAL, /* there are two holders where there can be one */
	LE_LOAD_INVALID, /* not a row that this core has written */
	LE_LOAD_NO_MEMORY
} LeLoadStatus;

/* The steps above. */
extern void le_core_load_begin(LeCore *core, const LeLoadEnv *env);
extern LeLoadStatus le_core_load_lease(LeCore *core, const LeStoredLease *row);
/* RIVAL: *newest is the token of the one that stays; the others have ended. */
extern LeLoadStatus le_core_load_slot(LeCore *core, const LeStoredEntry *row, int64_t *newest);
extern LeLoadStatus le_core_load_place(LeCore *core, const LeStoredEntry *row);
extern void le_core_load_done(LeCore *core, LeTime now);

/* Whether a core may have written this row of a slot. */
extern bool le_stored_slot_valid(const LeStoredEntry *row);

#endif /* LE_LOAD_H */
