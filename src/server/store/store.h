/*
 * store/store.h
 *		The durable record: the only code that accesses the tables.
 *
 * Terms:
 *
 *	-	Table: a table of schema _lock_election.  slot, lease and queue have the state, history the
 *		changes of elections; meta and incarnation_floor have one row each.
 *	-	Row: the row of one object of the core: a slot, a lease, a queue place.  The core keeps the
 *		row's TID (LeRow.locator) and whether it is dirty; the store writes dirty rows and decides
 *		nothing.
 *	-	Slot: room for one holder of a lock; most locks have one, locks with permits several.  Its
 *		row stays while the lock lives, and is given to another lock after that (core/recycle.c).  A
 *		PostgreSQL "tuple table slot" is called tuple here.
 *	-	Page: a block of a table, as in PostgreSQL.  (shared/page_format.h has pages of the live
 *		state.)
 *
 * A batch is one transaction of the manager, and writes in this order: slots, leases, places,
 * changes of elections (le_store_write()), the incarnation if it is a new one
 * (le_store_write_meta()).  The manager does not reply before the commit; see le_txn_commit() in
 * manager/txn.c for how far the commit's record is flushed.
 *
 * All functions run in the manager, inside a transaction, and raise errors as usual; the caller
 * then throws the batch away.  Their allocations stay in the memory context that the caller resets.
 * le_store_find() must be called first.
 */
#ifndef LE_STORE_H
#define LE_STORE_H

#include "core/core.h"
#include "core/load.h"
#include "shared/database.h"

/* The row of _lock_election.meta. */
typedef struct LeMeta
{
	Oid database; /* if not this database, this is a copy */
	int64 incarnation;
	int64 taken_at; /* TimestampTz: when the incarnation was taken */
	uint32 timeline;
	uint64 boot; /* LeShared.boot of the last manager */
	int64 floor; /* highest incarnation restored from a dump */

	/* of the last manager, see core/life.h */
	uint32 life;   /* number of its life */
	uint32 uptime; /* ticks */
	LeText lives;  /* numbers of that life and of earlier ones, as in LeLife.starts */
} LeMeta;

/* Looks up the tables.  Returns false if the extension is not installed in this database (any more). */
extern bool le_store_find(void);

/*
 * Claims the tables, as the one process that writes them; 55P03 if another one still does.  Renews
 * the active snapshot, which must be the only one.
 */
extern void le_store_claim(void);

/*
 * Has this process claimed the tables that le_store_find() has found?  False after DROP and CREATE
 * EXTENSION.
 */
extern bool le_store_is_claimed(void);

/*
 * Locks the tables that a load reads, since a batch may write any of them, for the rest of the
 * transaction.  Does not wait: returns false if somebody else has locked one of them, or waits to.
 */
extern bool le_store_lock(void);
/* Is this one of the tables? */
extern bool le_store_has_table(Oid table);

/*
 * Opens the tables that are to be written and locks them for that.  Returns false if they were
 * rewritten, or dropped and created, since they were loaded: reload.  Raises 55P03 if somebody else
 * keeps a lock for longer than lock_timeout.
 */
extern bool le_store_open(LeCore *core);
extern void le_store_close(void);

/* Read or write the one row of table meta. */
extern void le_store_read_meta(LeMeta *meta);
extern void le_store_write_meta(const LeMeta *meta);
/*
 * Writes meta without the incarnation_floor, which pg_dump carries and which has not changed.
 * Returns false if somebody has locked the table.
 */
extern bool le_store_write_life(const LeMeta *meta);

/*
 * Loads all rows into a core, in the order that core/load.h wants.  failed: the core of the batch
 * that failed; NULL = a manager starts.  Returns false if the rows are not where that core has left
 * them: then all must be read again, into another core.  Raises an error for a row that the core
 * rejects.  Renews the active snapshot, as le_store_claim() does.
 */
extern bool le_store_load(LeCore *core, LeCore *failed);

/*
 * Called when a batch begins, after all earlier ones were committed.  Starts the record of the rows
 * that the batch updates or deletes.
 */
extern void le_store_begin_batch(void);

/* Writes all dirty slots, places and leases.  Returns the number of rows.  Requires le_store_open(). */
extern int le_store_write(LeCore *core, LeTime now);

/*
 * Rewrites those of the tables slot, lease and queue that consist mostly of dead rows, see
 * store/shrink.c, and puts the size of each into bytes; a table that somebody has locked is left
 * alone.  Called between two batches; the core is that of the tables.  After the commit,
 * le_store_shrunk() tells the core where its rows are; until then the new locators are kept in
 * context.  le_store_shrunk() only sets locators, and must not fail: rows would be written to their
 * old places.
 */
extern void le_store_shrink(LeCore *core, MemoryContext context, uint64 *bytes);
extern void le_store_shrunk(void);

/*
 * The history of elections, see store/historyrows.c.  le_store_scan_history() reads the changes of
 * an election after a given one, in order, in any backend, under the active snapshot.
 */
typedef struct LeStoredChange
{
	int64 number;
	int64 term;
	TimestampTz elected_at;
	TimestampTz at;
	LeHow how;
	Oid role; /* the leader's role, whose limit the row counts for */
	LeText election;
	LeText candidate;
} LeStoredChange;

extern void le_store_scan_history(LeText election, int64 after,
								  void (*callback)(void *arg, const LeStoredChange *change), void *arg);

/* Approximate size of a row of the history on disk, in bytes. */
#define LE_HISTORY_ROW 120

static inline int64
le_store_history_bytes(uint32 election_len, uint32 candidate_len)
{
	/* the name is in the index, too */
	return LE_HISTORY_ROW + 2 * (int64) election_len + candidate_len;
}

/*
 * Deletes older rows on the given number of pages, beginning at page *from, and sets *from to where
 * to go on the next time; 0 = that was the last page.  Reports each row on these pages: its role,
 * and whether it was deleted.
 */
typedef void (*LeHistorySeen)(Oid role, int64 change, int64 bytes, bool deleted);
extern void le_store_prune_history(TimestampTz before, uint32 pages, uint32 *from, LeHistorySeen seen);

/*
 * Calls back for every slot in the table that is held or closed, in any backend, under the active
 * snapshot, to show it on a standby.
 */
extern void le_store_scan(void (*callback)(void *arg, const LeStoredEntry *row), void *arg);

#endif /* LE_STORE_H */
