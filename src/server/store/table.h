/*
 * store/table.h
 *		Declares what the files of the store share: tables, their columns, and functions for their rows.
 *
 * A row is found by the TID that the core keeps for it (LeRow).  Only the manager writes, so a TID stays
 * valid until the table is rewritten.  le_table_open_loaded() detects a rewrite, because the table then has
 * another file.
 */
#ifndef LE_STORE_TABLE_H
#define LE_STORE_TABLE_H

#include "access/tableam.h"
#include "nodes/execnodes.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "core/core.h"
#include "core/load.h"
#include "shared/compat.h"

/* --- columns --- */

/*
 * A column, and its field in the struct of a row: LeStoredEntry (slots and places), LeStoredLease,
 * LeStoredChange or LeMeta.  If the field is a time or a text (data NULL), zero means NULL.  A field is zero
 * if the row contains NULL, or if the table has no such column.  Columns that newer versions have added come
 * after the columns of version 1.0, see shared/library_version.h.
 */
typedef struct StoreColumn
{
	Oid type;
	uint16 at; /* offset of the field in the struct */
	uint16 size;
} StoreColumn;

/* --- store/table.c: a table, and its rows --- */

#define STORE_EXTENSION "lock_election"
#define STORE_SCHEMA    "_lock_election" /* schema of the tables */

/*
 * Upper limit of the number of indexes of a table.  REINDEX CONCURRENTLY temporarily creates a second index
 * of the key, and leaves it behind if it fails.
 */
#define MAX_KEY_INDEXES 8
#define MAX_KEY_COLUMNS 3
#define MAX_COLUMNS     32

typedef struct StoreTable
{
	const char *name;
	const StoreColumn *column; /* in the order of the table's columns */
	int columns;
	int least;             /* number of columns in the oldest supported SQL version */
	const AttrNumber *key; /* columns of the unique key, counted from 1 */
	int nkey;              /* number of key columns; 0 = the table has neither a key nor an index */

	Oid oid;        /* set by le_store_find() */
	LeRowType type; /* type of the table's rows in the core; unused for the history and the small tables */
	LeRelFileNumber file; /* the table's file when it was loaded */
	bool known;           /* all rows were loaded, and no write by another process was detected */
	uint64 *left;         /* TIDs of the rows that the current batch has updated or deleted */
	int nleft;
	int max_left;

	/* set while the table is open for writing */
	Relation rel;
	TupleTableSlot *tuple;
	int nindexes;
	Relation indexes[MAX_KEY_INDEXES];
	IndexInfo *infos[MAX_KEY_INDEXES];
} StoreTable;

/* Raises an error, because the table does not have the shape that this version expects. */
extern LE_NORETURN void le_table_wrong(Relation rel);

/*
 * Opens a table for reading.  Raises an error if it has an unexpected shape.  The caller closes it with
 * table_close().
 */
extern Relation le_table_open_to_read(const StoreTable *table, LOCKMODE lockmode);

/* Opens a table for loading.  Records the table's current file, for which the loaded TIDs are valid. */
extern Relation le_table_open_to_load(StoreTable *table);

/*
 * Open a table for writing.  To write rows by TID, call le_table_open_loaded(): it returns false if the table
 * was moved, dropped or rewritten since it was loaded.
 */
extern bool le_table_open_loaded(StoreTable *table);
extern void le_table_open(StoreTable *table);
/* Closes the table if it is open. */
extern void le_table_close(StoreTable *table);

/*
 * le_table_put() inserts the row, or updates it if it is on disk.  le_table_delete() deletes it.  If the row
 * is inserted, or was taken over from another lock (LeRow.recycled), PostgreSQL checks that its key is
 * unique.  Both functions return false if another process has changed the row.
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

/*
 * Raises the error for a row that le_table_put() or le_table_delete() could not change.  whose: the owner of
 * the row, for the message.
 */
extern LE_NORETURN void le_store_row_changed(StoreTable *table, const char *whose);

/*
 * le_table_form() computes the values of a row from the fields of its struct.  le_table_read() sets the
 * fields, which must be zero, from a row; texts point into the row.
 */
extern void le_table_form(const StoreTable *table, const void *fields, Datum *values, bool *nulls);
extern void le_table_read(const StoreTable *table, TupleTableSlot *tuple, void *fields);

/*
 * Returns the fields of an entry that rows of slots and rows of places have in common.  Its list of
 * uncommitted holds is valid until the next call.
 */
extern LeStoredEntry le_store_entry(const LeCore *core, const LeEntry *entry);

/* --- store/readback.c: reads the rows of a table --- */

/* A TID at which there is, or may be, a row. */
typedef struct LeSpot
{
	uint64 locator : 63;
	uint64 sure : 1; /* a row must exist there */
	LeRow *row;      /* the core's copy of this row; NULL = the batch has updated or deleted the row */
} LeSpot;

/*
 * Returns, in the order of TIDs, the spots of all rows of the table that the core knows, and of the rows that
 * the batch has updated or deleted.  Sets *n to the number of spots.
 */
extern LeSpot *le_known_spots(const StoreTable *table, LeCore *core, uint32 *n);

/* State of a pass over the rows of a table. */
typedef struct LeRows
{
	StoreTable *table;
	Relation rel;
	TupleTableSlot *tuple; /* the row that was read last */
	TableScanDesc scan;    /* NULL = only the rows in spots are read */
	BlockNumber blocks;
	LeSpot *spots;
	uint32 nspots;
	uint32 next;
	bool lost; /* a row that must exist was missing */
} LeRows;

/*
 * le_rows_begin() begins to read the rows of a table.  failed: the core of the batch that failed; NULL = read
 * all rows.  le_rows_next() reads the next row, and returns false if there is none.
 */
extern void le_rows_begin(LeRows *rows, StoreTable *table, LeCore *failed);
extern bool le_rows_next(LeRows *rows);
/* Checks the core's status for the row that was read.  Raises an error unless the row was loaded. */
extern void le_rows_taken(const LeRows *rows, LeLoadStatus status);
/*
 * Ends reading.  Returns false if a row that must exist was missing; the caller must then start again, which
 * reads all rows.
 */
extern bool le_rows_end(LeRows *rows);

/* Raises an error, because the manager cannot have written this row. */
extern LE_NORETURN void le_store_invalid_row(Relation rel, const TupleTableSlot *tuple);

static inline TimestampTz
le_store_to_wall(const LeClock *clock, LeTime t)
{
	if (t - clock->now >= END_TIMESTAMP - clock->wall)
		return DT_NOEND;
	return clock->wall + (t - clock->now);
}

/* --- store/slotrows.c, leaserows.c, placerows.c, historyrows.c: the rows of one table each --- */

/* Write the dirty rows, or the changes of elections.  Return the number of rows. */
extern int le_store_write_slots(LeCore *core, const LeClock *clock);
extern int le_store_write_leases(LeCore *core, const LeClock *clock);
extern int le_store_write_places(LeCore *core, const LeClock *clock);
extern int le_store_write_changes(LeCore *core, const LeClock *clock);

/*
 * Load the rows of one table into a core.  Return false if the rows are not where the core of the failed
 * batch has recorded them.
 */
extern bool le_store_load_slots(LeCore *core, LeCore *failed);
extern bool le_store_load_leases(LeCore *core, LeCore *failed);
extern bool le_store_load_places(LeCore *core, LeCore *failed);

#endif /* LE_STORE_TABLE_H */
