/*
 * store/table.h
 *		One table of the store: its shape, its key, and its rows by TID.
 *
 * A row is found by the TID that the core keeps for it (LeRow).  Only the
 * manager writes, so a TID stays right until the table is rewritten, which
 * le_table_open_loaded() notices by the table's file.
 */
#ifndef LE_STORE_TABLE_H
#define LE_STORE_TABLE_H

#include "executor/tuptable.h"
#include "nodes/execnodes.h"
#include "storage/itemptr.h"
#include "utils/rel.h"

#include "core/core.h"
#include "shared/compat.h"

#define STORE_EXTENSION "lock_election"
#define STORE_SCHEMA    "_lock_election" /* of the tables */

/* REINDEX CONCURRENTLY has the key twice for a while, or more often after failures. */
#define MAX_KEY_INDEXES 8
#define MAX_KEY_COLUMNS 3

typedef struct StoreTable
{
	const char *name;
	const Oid *types; /* of the columns, in their order */
	int columns;
	int least;             /* columns in the oldest SQL that is served */
	const AttrNumber *key; /* columns of the unique key, from 1 */
	int nkey;              /* 0: no key, and no index at all */

	Oid oid;              /* found by le_store_find() */
	LeRowType type;       /* of its rows in the core; not of the history and the small ones */
	LeRelFileNumber file; /* when it was loaded */
	bool known;           /* all that is in it was loaded: nobody else has written */
	uint64 *left;         /* TIDs of the rows that the batch has updated or deleted */
	int nleft;
	int max_left;

	/* while it is open to be written */
	Relation rel;
	TupleTableSlot *tuple;
	CommandId cid;
	int nindexes;
	Relation indexes[MAX_KEY_INDEXES];
	IndexInfo *infos[MAX_KEY_INDEXES];
} StoreTable;

/* The table does not look as this version expects: an error. */
extern LE_NORETURN void le_table_wrong(Relation rel);

/* Open it to be read; an error if it has another shape.  To be closed with table_close(). */
extern Relation le_table_open_to_read(const StoreTable *table, LOCKMODE lockmode);

/* The same to be loaded: from now on the TIDs of this file are known. */
extern Relation le_table_open_to_load(StoreTable *table);

/*
 * Open it to be written: rows by TID only if it is the table that was loaded.
 * False: moved, dropped, or rewritten since then.
 */
extern bool le_table_open_loaded(StoreTable *table);
extern void le_table_open(StoreTable *table);
extern void le_table_close(StoreTable *table);

/*
 * Insert the row, or update it where it is on disk.  When it is inserted, or was
 * another lock's (LeRow.recycled), PostgreSQL checks that nobody else has its key.
 * False: the row was changed by somebody else.
 */
extern bool le_table_put(StoreTable *table, LeRow *row, Datum *values, bool *nulls);
extern bool le_table_delete(StoreTable *table, LeRow *row);

static inline void
le_table_tid(uint64 locator, ItemPointer tid)
{
	ItemPointerSet(tid, (BlockNumber) (locator >> 16), (OffsetNumber) (locator & 0xffff));
}

static inline uint64
le_table_locator(const ItemPointerData *tid)
{
	return ((uint64) ItemPointerGetBlockNumber(tid) << 16) | ItemPointerGetOffsetNumber(tid);
}

#endif /* LE_STORE_TABLE_H */
