/*
 * store/store.h
 *		The durable record: the only code that touches the tables.
 *
 * All functions run in the manager, inside a transaction, and raise errors as
 * usual; the caller throws the batch away then.  What they allocate is left to
 * the memory context that the caller resets.  le_store_find() comes first.
 */
#ifndef LE_STORE_H
#define LE_STORE_H

#include "core/core.h"

/* The row of lock_election.meta. */
typedef struct LeMeta
{
	Oid database; /* another one: this is a copy */
	int64 incarnation;
	int64 next_revision; /* valid if clean */
	uint32 timeline;
	bool clean;  /* the last manager left in order */
	uint64 boot; /* LeShared.boot of the last manager */
	int64 floor; /* highest incarnation that a dump carried */
} LeMeta;

/*
 * Look the tables up.  False: the extension is not installed in this
 * database (any more).
 */
extern bool le_store_find(void);

/*
 * Be the one process that writes them; 55P03 if another one still is.  Renews
 * the active snapshot, which has to be the only one.
 */
extern void le_store_claim(void);

/*
 * Open the tables that are to be written and take the locks for that.  False:
 * they were rewritten, or dropped and created, since they were loaded: reload.
 * Errors with 55P03 if somebody else keeps a lock for longer than
 * lock_timeout.
 */
extern bool le_store_open(LeCore *core);
extern void le_store_close(void);

extern void le_store_read_meta(LeMeta *meta);
extern void le_store_write_meta(const LeMeta *meta);

/*
 * Load all rows into an empty core.  Those that cannot go on are loaded as
 * free and dirty: with "drop_all" (the database is a copy) every holder, all
 * leases having ended; and every connection-bound one whose session alive()
 * does not know.
 * uncommitted() is asked for each uncommitted hold whether its transaction is
 * still open, or has rolled back and waits in the mailbox.
 * Returns the highest token found.
 */
typedef struct LeLoadHooks
{
	bool drop_all;
	bool (*alive)(uint64 session);
	bool (*uncommitted)(uint64 session, uint32 xact);
	/* a holder whose session is gone, but that somebody fences, stays */
	bool (*fenced)(int64 token); /* NULL: never */
	/* time left of a token in the manager's memory; NULL or false: take the
	 * row's, or the full TTL where renewals are not saved.  What has another
	 * TTL in memory was renewed in the batch that failed: that did not happen. */
	bool (*time_left)(int64 token, LeTime ttl, LeTime *left);
	bool (*lease_time_left)(int64 lease, LeTime ttl, LeTime *left);
} LeLoadHooks;

extern int64 le_store_load(LeCore *core, const LeLoadHooks *hooks, LeTime now);

/*
 * Write all dirty slots, places and leases; returns the number of rows.  Wants
 * le_store_open().
 */
extern int le_store_write(LeCore *core, LeTime now);

/*
 * Called for every held slot in the table, in any backend, under the active
 * snapshot: what a standby can show.
 */
typedef struct LeStoredSlot
{
	LeKind kind;
	LeText name;
	int32 slot;
	LeMode mode;
	LeText owner; /* data NULL: a connection */
	LeText value;
	Oid role;
	int64 token;
	int64 lease;
	int32 holds;
	bool lapsed; /* has ended, and is only fenced */
	TimestampTz acquired_at;
} LeStoredSlot;

/*
 * The history of elections, see store/history.c.  In any backend, in order,
 * under the active snapshot: the changes of an election after one of them.
 */
typedef struct LeStoredChange
{
	int64 number;
	int64 term;
	TimestampTz elected_at;
	TimestampTz at;
	LeHow how;
	Datum candidate; /* text */
} LeStoredChange;

extern void le_store_scan_history(LeText election, int64 after,
								  void (*callback)(void *arg, const LeStoredChange *change), void *arg);

/*
 * Delete what is older on so many pages, from that page on, which moves to
 * where to go on the next time; 0: that was the last page.
 */
extern void le_store_prune_history(TimestampTz before, uint32 pages, uint32 *from);
extern bool le_store_has_history(void);

extern void le_store_scan(void (*callback)(void *arg, const LeStoredSlot *slot), void *arg);

#endif /* LE_STORE_H */
