/*
 * store/table.h
 *		What the files of the store share: tables, their columns, their rows by TID.
 *
 * A row is found by the TID that the core keeps for it (LeRow).  Only the
 * manager writes, so a TID stays right until the table is rewritten, which
 * le_table_open_loaded() notices by the table's file.
 */
#ifndef LE_STORE_TABLE_H
#define LE_STORE_TABLE_H

#include "access/tableam.h"
#include "nodes/execnodes.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "shared/compat.h"
#include "store/store.h"

/* --- columns --- */

/*
 * A column, and the field for it in the struct of a row: LeStoredEntry (slots and
 * places), LeStoredLease, LeStoredChange or LeMeta.  Zero stands for NULL where the
 * field is a time, or a text (data NULL); and a field is zero where the row has NULL, or
 * the table no such column: what a version appends comes after the columns of 1.0, see
 * shared/library_version.h.
 */
typedef struct StoreColumn
{
	Oid type;
	uint16 at; /* of the field */
	uint16 size;
} StoreColumn;

/* --- store/table.c: a table and its rows --- */

#define STORE_EXTENSION "lock_election"
#define STORE_SCHEMA    "_lock_election" /* of the tables */

/* REINDEX CONCURRENTLY has the key twice for a while, or more often after failures. */
#define MAX_KEY_INDEXES 8
#define MAX_KEY_COLUMNS 3
#define MAX_COLUMNS     32

typedef struct StoreTable
{
	const char *name;
	const StoreColumn *column; /* in their order */
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
/* Unless it is not open. */
extern void le_table_close(StoreTable *table);

/*
 * Insert the row, or update it where it is on disk.  When it is inserted, or was
 * another lock's (LeRow.recycled), PostgreSQL checks that nobody else has its key.
 * False: the row was changed by somebody else.
 */
extern bool le_table_put(StoreTable *table, LeRow *row, const void *fields);
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

extern Oid le_store_schema;
extern StoreTable le_slot_table;
extern StoreTable le_lease_table;
extern StoreTable le_queue_table;
extern StoreTable le_history_table;

/* Raise the error for a row that le_table_put() or le_table_delete() has refused; whose row it is. */
extern LE_NORETURN void le_store_row_changed(StoreTable *table, const char *whose);

/*
 * The values of a row from the fields of its struct; and the fields, which begin zeroed,
 * from a row: texts point into it.
 */
extern void le_table_form(const StoreTable *table, const void *fields, Datum *values, bool *nulls);
extern void le_table_read(const StoreTable *table, TupleTableSlot *tuple, void *fields);

/* What the rows of a slot and of a place tell of an entry; the uncommitted holds last until the next call. */
extern LeStoredEntry le_store_entry(const LeCore *core, const LeEntry *entry);

/* --- store/readback.c: reading the rows of a table --- */

/* Where a row is, or may be. */
typedef struct LeSpot
{
	uint64 locator : 63;
	uint64 sure : 1; /* the row has to be there */
	LeRow *row;      /* the core's; NULL: the batch has left it */
} LeSpot;

/* All that the core knows of a table, and what the batch has left there, in the order of the TIDs. */
extern LeSpot *le_known_spots(const StoreTable *table, LeCore *core, uint32 *n);

/* Reading the rows of a table, one after the other. */
typedef struct LeRows
{
	StoreTable *table;
	Relation rel;
	TupleTableSlot *tuple; /* the row that was read */
	TableScanDesc scan;    /* NULL: those at known places */
	BlockNumber blocks;
	LeSpot *spots;
	uint32 nspots;
	uint32 next;
	bool lost; /* one is not where it has to be */
} LeRows;

/* failed: the core of a batch that failed; NULL: read all. */
extern void le_rows_begin(LeRows *rows, StoreTable *table, LeCore *failed);
extern bool le_rows_next(LeRows *rows);
/* The core's answer to the row that was read: an error unless it is loaded. */
extern void le_rows_taken(const LeRows *rows, LeLoadStatus status);
/* False: they are not where they should be; all has to be read. */
extern bool le_rows_end(LeRows *rows);

/* The manager has not written this row: an error. */
extern LE_NORETURN void le_store_invalid_row(Relation rel, const TupleTableSlot *tuple);

static inline TimestampTz
le_store_to_wall(const LeClock *clock, LeTime t)
{
	if (t - clock->now >= END_TIMESTAMP - clock->wall)
		return DT_NOEND;
	return clock->wall + (t - clock->now);
}

/* --- store/slotrows.c, leaserows.c, placerows.c, historyrows.c: the rows of a table each --- */

/* Write those that are dirty; returns how many. */
extern int le_store_write_slots(LeCore *core, const LeClock *clock);
extern int le_store_write_leases(LeCore *core, const LeClock *clock);
extern int le_store_write_places(LeCore *core, const LeClock *clock);
extern int le_store_write_changes(LeCore *core, const LeClock *clock);

/* Give all to a core.  False: they are not where the core of the failed batch has left them. */
extern bool le_store_load_slots(LeCore *core, LeCore *failed);
extern bool le_store_load_leases(LeCore *core, LeCore *failed);
extern bool le_store_load_places(LeCore *core, LeCore *failed);

#endif /* LE_STORE_TABLE_H */
