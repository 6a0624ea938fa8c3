/*
 * core/stored.h
 *		Types for stored rows, and the environment of a load.
 */
#ifndef LE_STORED_H
#define LE_STORED_H

#include "life.h"
#include "objects.h"

/* The same moment on the core's clock and on the wall clock of the rows, both in microseconds. */
typedef struct LeClock
{
	LeTime now;
	int64_t wall; /* INT64_MAX = never; INT64_MIN = before everything else */
} LeClock;

/* A hold whose transaction was open when the row was written. */
typedef struct LeStoredHold
{
	uint64_t session;
	uint32_t xact;
	uint32_t subxact;
} LeStoredHold;

/* A row of a slot or of a queue place.  Its texts must stay valid only during the call. */
typedef struct LeStoredEntry
{
	LeKind kind;
	LeText name;
	LeMode mode; /* 0 = a free slot: all fields are 0 except the name and those that are set for every slot */
	LeText owner;
	LeText value;
	uint64_t session; /* 0 = the session has ended */
	int64_t token;
	int64_t lease;
	int32_t permits;
	LeTime ttl;
	int64_t since; /* wall time at which the lock was acquired or, for a place, the queue was entered */
	LeText acquirer;
	LeText uncommitted; /* array of LeStoredHold, which may be unaligned */
	uint64_t locator;
	int64_t expires_at; /* wall time, for the views of a standby only; 0 = not known */
	uint16_t member;    /* place of several names: position of this name, from 1; otherwise 0 */

	/* set for every slot */
	int32_t slot;         /* number of the slot */
	int64_t closed_until; /* wall time; 0 = open */
	uint32_t role;        /* free slot: role of the holder whose end closed the name */

	/* set for holders and places */
	int32_t holds;
	LeTime time_left; /* time until the entry's own lease expires or the evicted holder ends, see LeSaved;
					   * for a lapsed holder, the table's column contains -1 times the field "end" */
	uint32_t life;    /* LeLife.number of the life in which time_left was written */

	/* set for holders only */
	LeEnd end;    /* how a lapsed holder ended; LE_END_NONE = it has not ended */
	bool evicted; /* the holder is not renewed any more */
} LeStoredEntry;

typedef struct LeStoredLease
{
	int64_t id;
	LeTime ttl;
	LeTime time_left;   /* see LeSaved */
	uint32_t life;      /* LeLife.number of the life in which time_left was written */
	int64_t expires_at; /* wall time, only for people who read the table */
	uint32_t role;
	LeText owner;
	uint64_t locator;
} LeStoredLease;

/* The environment of a load, which also uses LeEnv.fenced. */
typedef struct LeLoadEnv
{
	void *arg;

	/* When the load began.  The time left of each row counts from this moment. */
	LeClock clock;

	/* LSN at which every row is assumed to have been written. */
	uint64_t lsn;

	/* The life of this manager.  The core keeps the pointer.  NULL = this is the first life. */
	const LeLife *life;

	/* Whether this database is a copy, whose locks are held in the original only. */
	bool copied;

	/*
	 * The core whose batch could not be written; the load copies deadlines from it, on the same clock.
	 * NULL = a manager is starting, so all leases begin again.
	 */
	LeCore *failed;

	/* Returns whether this session is still connected, and if so, sets its sessno. */
	bool (*alive)(void *arg, uint64_t session, uint32_t *sessno);

	/*
	 * Returns whether this transaction of a connected session may still roll back, or has rolled back and
	 * the core does not know about it yet.
	 */
	bool (*uncommitted)(void *arg, uint64_t session, uint32_t xact);
} LeLoadEnv;

#endif /* LE_STORED_H */
