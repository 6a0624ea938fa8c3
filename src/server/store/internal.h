/*
 * store/internal.h
 *		What the files of the store share with each other only.
 */
#ifndef LE_STORE_INTERNAL_H
#define LE_STORE_INTERNAL_H

#include "access/tableam.h"
#include "executor/tuptable.h"
#include "utils/timestamp.h"

#include "shared/shmem.h"
#include "store/store.h"
#include "store/table.h"

/*
 * The columns of the tables, in their order.  What a version appends comes after
 * those of 1.0 and may be missing, see shared/version.h: it is read with
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

extern Oid le_store_schema;
extern StoreTable le_slot_table;
extern StoreTable le_lease_table;
extern StoreTable le_queue_table;
extern StoreTable le_history_table;

/* What le_table_put() and le_table_delete() have found; whose row it is. */
extern LE_NORETURN void le_store_row_changed(StoreTable *table, const char *whose);

/* store/row.c */

/* One column of a row that is formed: NULL where there is no text. */
extern void le_store_set_text(Datum *values, bool *nulls, int column, const char *data, Size len);
/* Name, owner, value, uncommitted holds and acquirer: five columns, in this order in both tables of entries. */
extern void le_store_set_texts(Datum *values, bool *nulls, int name_column, const LeEntry *entry);

/* store/leaserows.c */
extern int le_store_write_leases(LeCore *core, const LeClock *clock);
extern bool le_store_load_leases(const LeRowReader *reader, LeCore *failed);

/* store/placerows.c */
extern int le_store_write_places(LeCore *core, const LeClock *clock);
extern bool le_store_load_places(const LeRowReader *reader, LeCore *failed);

/* store/historyrows.c */
extern int le_store_write_changes(LeCore *core, const LeClock *clock);

/* store/readback.c */

/* Where a row is, or may be. */
typedef struct LeSpot
{
	uint64 locator : 63;
	uint64 sure : 1; /* it has to be there */
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
/* False: they are not where they should be; all has to be read. */
extern bool le_rows_end(LeRows *rows);

/* store/row.c: NULL is no text; the row is not one that we have written */
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

#endif /* LE_STORE_INTERNAL_H */
