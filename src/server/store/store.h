/*
 * store/store.h
 *		The durable record: the only code that touches the tables.
 *
 *	Table	one of schema _lock_election: slot, lease and queue have the state, history the
 *			changes of elections; meta and incarnation_floor have one row each.
 *	Row		one object of the core: a slot, a lease, a queue place.  The core keeps the row's
 *			TID (LeRow.locator) and says whether it is dirty; the store writes what is dirty
 *			and decides nothing.
 *	Slot	room for one holder of a lock: most locks have one, locks with permits several.  Its
 *			row stays while the lock lives, and is given to another lock after that
 *			(core/recycle.c).  A PostgreSQL "tuple table slot" is called tuple here.
 *	Page	a block of a table, as in PostgreSQL.  (A page of the live state is shared/page_format.h.)
 *
 * A batch is one transaction of the manager, and writes in this order: slots, leases, places,
 * changes of elections (le_store_write()), the incarnation if it is a new one
 * (le_store_write_meta()).  Nothing is answered before its commit; how far its record is
 * flushed is told at le_txn_commit() in manager/txn.c.
 *
 * All functions run in the manager, inside a transaction, and raise errors as
 * usual; the caller throws the batch away then.  What they allocate is left to
 * the memory context that the caller resets.  le_store_find() comes first.
 */
#ifndef LE_STORE_H
#define LE_STORE_H

#include "core/core.h"
#include "core/load.h"
#include "shared/database.h"

/* The row of _lock_election.meta. */
typedef struct LeMeta
{
	Oid database; /* another one: this is a copy */
	int64 incarnation;
	int64 taken_at; /* TimestampTz: when it was taken */
	uint32 timeline;
	uint64 boot; /* LeShared.boot of the last manager */
	int64 floor; /* highest incarnation that a dump carried */

	/* of the last manager, see core/life.h */
	uint32 life;   /* number of its life */
	uint32 uptime; /* ticks */
	LeText lives;  /* numbers of it and of those before, as in LeLife.starts */
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

/* Has this process claimed the tables that le_store_find() has found?  Not after DROP and CREATE EXTENSION. */
extern bool le_store_is_claimed(void);

/*
 * Lock the tables that a load reads, as a batch may write any of them, for the rest of the transaction.  Waits for
 * nobody.  False: somebody else has locked one of them, or waits to.
 */
extern bool le_store_lock(void);
/* Is this one of the tables? */
extern bool le_store_has_table(Oid table);

/*
 * Open the tables that are to be written and take the locks for that.  False:
 * they were rewritten, or dropped and created, since they were loaded: reload.
 * Errors with 55P03 if somebody else keeps a lock for longer than
 * lock_timeout.
 */
extern bool le_store_open(LeCore *core);
extern void le_store_close(void);

/* The one row of table meta. */
extern void le_store_read_meta(LeMeta *meta);
extern void le_store_write_meta(const LeMeta *meta);
/* The same without what pg_dump carries, which has not changed.  False: somebody has locked the table. */
extern bool le_store_write_life(const LeMeta *meta);

/*
 * Load all rows into a core, in the order that core/load.h wants.  failed: the core of the
 * batch that failed; NULL: a manager starts.  False: the rows are not where that core has
 * left them, so they have to be read once more, all of them, into another core.  A row that
 * the core refuses is an error.  Renews the active snapshot, as le_store_claim() does.
 */
extern bool le_store_load(LeCore *core, LeCore *failed);

/* A batch begins, and all before it were committed: what it leaves is counted from here. */
extern void le_store_begin_batch(void);

/*
 * Write all dirty slots, places and leases; returns the number of rows.  Wants
 * le_store_open().
 */
extern int le_store_write(LeCore *core, LeTime now);

/*
 * Write those of the tables slot, lease and queue anew that are mostly dead rows, see
 * store/shrink.c, and tell how large each is; one that somebody has locked stays as it
 * is.  To be called between two batches; the core is that of the tables.
 * le_store_shrunk() tells it, once that is committed, where its rows are; until then
 * they are kept in context.  That one sets locators alone.
 * May not fail: rows would be written where they were before.
 */
extern void le_store_shrink(LeCore *core, MemoryContext context, uint64 *bytes);
extern void le_store_shrunk(void);

/*
 * The history of elections, see store/historyrows.c.  In any backend, in order,
 * under the active snapshot: the changes of an election after one of them.
 */
typedef struct LeStoredChange
{
	int64 number;
	int64 term;
	TimestampTz elected_at;
	TimestampTz at;
	LeHow how;
	Oid role; /* of the leader: whose allowance it takes */
	LeText election;
	LeText candidate;
} LeStoredChange;

extern void le_store_scan_history(LeText election, int64 after,
								  void (*callback)(void *arg, const LeStoredChange *change), void *arg);

/* About what a row of the history takes on the disk. */
#define LE_HISTORY_ROW 120

static inline int64
le_store_history_bytes(uint32 election_len, uint32 candidate_len)
{
	/* the name is in the index as well */
	return LE_HISTORY_ROW + 2 * (int64) election_len + candidate_len;
}

/*
 * Delete what is older on so many pages, from that page on, which moves to
 * where to go on the next time; 0: that was the last page.  Tells of each row on
 * them whose it is, and whether it was deleted.
 */
typedef void (*LeHistorySeen)(Oid role, int64 change, int64 bytes, bool deleted);
extern void le_store_prune_history(TimestampTz before, uint32 pages, uint32 *from, LeHistorySeen seen);

/*
 * Called for every slot in the table that is held or closed, in any backend, under the active
 * snapshot: what a standby can show.
 */
extern void le_store_scan(void (*callback)(void *arg, const LeStoredEntry *row), void *arg);

#endif /* LE_STORE_H */
