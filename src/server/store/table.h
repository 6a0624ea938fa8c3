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
 * The columns of the tables, in their order.  What a version appends comes after
 * those of 1.0 and may be missing, see shared/library_version.h: it is read with
 * le_store_is_null().
 */

/* _lock_election.slot */
enum
{
	SLOT_TOKEN,
	SLOT_ACQUIRED_AT,
	SLOT_TTL,       /* LE_TTL_BOUND: as long as the session */
	SLOT_TIME_LEFT, /* of its own lease with a TTL; else 0; of a
								 * holder that has ended, and is only fenced:
								 * -LeEnd */
	SLOT_LEASE,
	SLOT_SESSION, /* 0: gone */
	SLOT_ROLE,
	SLOT_SLOT,
	SLOT_HOLDS,
	SLOT_PERMITS,
	SLOT_KIND, /* LeKind */
	SLOT_MODE, /* LeMode; 0: free */
	SLOT_EXPIRES_AT,
	SLOT_CLOSED_UNTIL,
	SLOT_NAME,
	SLOT_OWNER,
	SLOT_VALUE,
	SLOT_UNCOMMITTED, /* array of LeStoredHold */
	SLOT_ACQUIRER,
	SLOT_COLUMNS_1_0,
	SLOT_COLUMNS = SLOT_COLUMNS_1_0
};

/* _lock_election.lease */
enum
{
	LEASE_ID,
	LEASE_TTL,
	LEASE_TIME_LEFT,
	LEASE_EXPIRES_AT,
	LEASE_ROLE,
	LEASE_OWNER,
	LEASE_COLUMNS_1_0,
	LEASE_COLUMNS = LEASE_COLUMNS_1_0
};

/* _lock_election.queue */
enum
{
	QUEUE_TOKEN,
	QUEUE_ENTERED_AT,
	QUEUE_TTL, /* LE_TTL_BOUND: as long as the session */
	QUEUE_LEASE,
	QUEUE_SESSION, /* 0: gone */
	QUEUE_ROLE,
	QUEUE_PERMITS,
	QUEUE_HOLDS,
	QUEUE_MEMBER, /* of several names: which-th, from 1; else 0 */
	QUEUE_KIND,   /* LeKind */
	QUEUE_MODE,   /* LeMode */
	QUEUE_NAME,
	QUEUE_OWNER,
	QUEUE_VALUE,
	QUEUE_UNCOMMITTED, /* array of LeStoredHold */
	QUEUE_ACQUIRER,
	QUEUE_COLUMNS_1_0,
	QUEUE_COLUMNS = QUEUE_COLUMNS_1_0
};

/* _lock_election.history */
enum
{
	HISTORY_CHANGE,
	HISTORY_TERM,
	HISTORY_ELECTED_AT,
	HISTORY_AT,
	HISTORY_ROLE, /* of the leader: whose allowance it takes */
	HISTORY_HOW,  /* LeHow */
	HISTORY_ELECTION,
	HISTORY_CANDIDATE,
	HISTORY_COLUMNS_1_0,
	HISTORY_COLUMNS = HISTORY_COLUMNS_1_0
};

/* --- store/table.c: a table and its rows --- */

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

extern Oid le_store_schema;
extern StoreTable le_slot_table;
extern StoreTable le_lease_table;
extern StoreTable le_queue_table;
extern StoreTable le_history_table;

/* Raise the error for a row that le_table_put() or le_table_delete() has refused; whose row it is. */
extern LE_NORETURN void le_store_row_changed(StoreTable *table, const char *whose);

/* One column of a row that is formed: NULL where there is no text. */
extern void le_store_set_text(Datum *values, bool *nulls, int column, const char *data, Size len);
/* Name, owner, value, uncommitted holds and acquirer: five columns, in this order in both tables of entries. */
extern void le_store_set_texts(Datum *values, bool *nulls, int name_column, const LeEntry *entry);

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

/* NULL is no text; the row is not one that the manager has written. */
extern LeText le_store_read_text(TupleTableSlot *tuple, int column);
extern LE_NORETURN void le_store_invalid_row(Relation rel, const TupleTableSlot *tuple);

static inline bool
le_store_is_null(const TupleTableSlot *tuple, int column)
{
	return column >= tuple->tts_tupleDescriptor->natts || tuple->tts_isnull[column];
}

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
