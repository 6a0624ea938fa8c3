/*
 * store/store.h
 *		Reads and writes the durable record of the locks.  No other code accesses the tables.
 *
 * Terms:
 *
 *	-	Table: a table of schema _lock_election.  slot, lease and queue contain the state, and history the
 *		changes of elections; meta and incarnation_floor have one row each.
 *	-	Row: the row of a slot, a lease or a queue place, which are objects of the core.  The core keeps the
 *		row's TID (LeRow.locator) and whether the row is dirty.  The store writes dirty rows and makes no
 *		decisions.
 *	-	Slot: room for one holder of a lock.  Most locks have one slot; locks with permits have several.  The
 *		slot's row exists as long as the lock, and can then be reused for another lock (core/recycle.c).  A
 *		PostgreSQL "tuple table slot" is called tuple here.
 *	-	Page: a block of a table, as in PostgreSQL.  (For pages of the live state, see shared/page_format.h.)
 *
 * A batch is one transaction of the manager.  It writes slots, leases, places and changes of elections, in
 * this order (le_store_write()), and then the incarnation, if it has changed (le_store_write_meta()).  The
 * manager does not reply before the commit; see le_txn_commit() in manager/txn.c for how far the commit
 * record is flushed.
 *
 * All functions run in the manager, inside a transaction.  They raise errors as usual, and the caller then
 * discards the batch.  They allocate memory in the current memory context, which the caller resets.
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
	Oid database; /* OID of the database in which the row was written; another OID: this database is a copy */
	int64 incarnation;
	int64 taken_at; /* time at which the incarnation was taken, TimestampTz */
	uint32 timeline;
	uint64 boot; /* LeShared.boot when the last manager ran */
	int64 floor; /* highest incarnation that was restored from a dump */

	/* state of the last manager, see core/life.h */
	uint32 life;   /* number of the last manager's life */
	uint32 uptime; /* recorded run time of that life, in ticks */
	LeText lives;  /* numbers of the newest manager runs ("lives"), as in LeLife.starts */
} LeMeta;

/* Looks up the tables.  Returns false if the extension is not installed in this database. */
extern bool le_store_find(void);

/*
 * Claims the tables for this process, which becomes the only one that writes them.  Raises 55P03 if another
 * process keeps its claim for longer than lock_timeout.  Renews the active snapshot, which must be the only
 * one.
 */
extern void le_store_claim(void);

/*
 * Returns whether this process has claimed the tables that le_store_find() found last.  Returns false after
 * the extension was dropped and created again.
 */
extern bool le_store_is_claimed(void);

/*
 * Locks, until the end of the transaction, the tables that a load reads, because a batch may write any of
 * them.  Does not wait: returns false if another process has a conflicting lock on one of these tables, or
 * waits for such a lock.
 */
extern bool le_store_lock(void);
/* Returns whether this is the OID of one of the store's tables. */
extern bool le_store_has_table(Oid table);

/*
 * Opens the tables that are to be written, and locks them for writing.  Returns false if they were rewritten,
 * or dropped and created, since they were loaded; the caller must then reload them.  Raises 55P03 if another
 * process keeps a conflicting lock for longer than lock_timeout.
 */
extern bool le_store_open(LeCore *core);
extern void le_store_close(void);

/* Read or write the single row of table meta. */
extern void le_store_read_meta(LeMeta *meta);
extern void le_store_write_meta(const LeMeta *meta);
/*
 * Writes table meta, but not table incarnation_floor.  The caller must not have changed the incarnation in
 * meta, because pg_dump saves only incarnation_floor.  Returns false if another process has locked table
 * meta.
 */
extern bool le_store_write_life(const LeMeta *meta);

/*
 * Loads all rows into a core, in the order that core/load.h requires.  failed: the core of the batch that
 * failed, or NULL if a manager starts.  Returns false if the rows are not where the failed core has recorded
 * them; the caller must then load all rows, into another core.  Raises an error for a row that the core
 * rejects.  Takes a new active snapshot, like le_store_claim().
 */
extern bool le_store_load(LeCore *core, LeCore *failed);

/*
 * Starts recording the rows that a batch updates or deletes.  Called when the batch begins, after all earlier
 * batches were committed.
 */
extern void le_store_begin_batch(void);

/*
 * Writes all dirty slots, places and leases, and all changes of elections.  Returns the number of rows.
 * Requires le_store_open().
 */
extern int le_store_write(LeCore *core, LeTime now);

/*
 * le_store_shrink() rewrites those of the tables slot, lease and queue that consist mostly of dead rows, see
 * store/shrink.c, and writes the size of each table to bytes.  Skips a table that another process has locked.
 * Called between two batches; the core must match the tables.  Keeps the new locators in "context" until the
 * transaction has committed and le_store_shrunk() passes them to the core.  le_store_shrunk() must not fail,
 * because the core would then have outdated locators.
 */
extern void le_store_shrink(LeCore *core, MemoryContext context, uint64 *bytes);
extern void le_store_shrunk(void);

/*
 * The history of elections, see store/historyrows.c.  le_store_scan_history() reads, in order, the changes of
 * an election with numbers above "after".  It can be called in any backend, and uses the active snapshot.
 */
typedef struct LeStoredChange
{
	int64 number;
	int64 term;
	TimestampTz elected_at;
	TimestampTz at;
	LeHow how;
	Oid role; /* role of the leader; the row counts against this role's limit */
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
	/* the name is also in the index */
	return LE_HISTORY_ROW + 2 * (int64) election_len + candidate_len;
}

/*
 * Deletes expired rows from the given number of pages, beginning with page *from.  Sets *from to the page at
 * which the next call must continue; 0 = the last page was reached.  Calls the callback for each row on these
 * pages, and passes whether the row was deleted.
 */
typedef void (*LeHistorySeen)(Oid role, int64 change, int64 bytes, bool deleted);
extern void le_store_prune_history(TimestampTz before, uint32 pages, uint32 *from, LeHistorySeen seen);

/*
 * Calls the callback for every slot in the table that is held or closed, to show it on a standby.  Can be
 * called in any backend, and uses the active snapshot.
 */
extern void le_store_scan(void (*callback)(void *arg, const LeStoredEntry *row), void *arg);

#endif /* LE_STORE_H */
