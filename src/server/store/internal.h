/*
 * store/internal.h
 *		What the files of the store share with each other only.
 */
#ifndef LE_STORE_INTERNAL_H
#define LE_STORE_INTERNAL_H

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

/* lock_election.slot */
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
	SLOT_UNCOMMITTED, /* array of UncommittedHold */
	SLOT_COLUMNS_1_0,
	SLOT_COLUMNS = SLOT_COLUMNS_1_0
};

/* lock_election.lease */
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

/* lock_election.queue */
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
	QUEUE_UNCOMMITTED, /* array of UncommittedHold */
	QUEUE_COLUMNS_1_0,
	QUEUE_COLUMNS = QUEUE_COLUMNS_1_0
};

/* lock_election.history */
enum
{
	HISTORY_CHANGE,
	HISTORY_TERM,
	HISTORY_ELECTED_AT,
	HISTORY_AT,
	HISTORY_HOW, /* LeHow */
	HISTORY_ELECTION,
	HISTORY_CANDIDATE,
	HISTORY_COLUMNS_1_0,
	HISTORY_COLUMNS = HISTORY_COLUMNS_1_0
};

typedef LeStoredHold UncommittedHold;
typedef LeClock Clock;

extern Oid le_store_schema;
extern StoreTable le_slot_table;
extern StoreTable le_lease_table;
extern StoreTable le_queue_table;
extern StoreTable le_history_table;

/* What le_table_put() and le_table_delete() have found; whose row it is. */
extern LE_NORETURN void le_store_row_changed(const StoreTable *table, const char *whose);

/* store/lease.c */
extern int le_store_write_leases(LeCore *core, const Clock *clock);
extern void le_store_load_leases(const LeRowReader *reader);

/* store/queue.c */
extern int le_store_write_places(LeCore *core, const Clock *clock);
extern void le_store_load_places(const LeRowReader *reader);

/* store/history.c */
extern int le_store_write_changes(LeCore *core, const Clock *clock);

/* store/load.c */
extern LeText le_store_read_text(TupleTableSlot *tuple, int column);
extern LE_NORETURN void le_store_invalid_row(Relation rel, const TupleTableSlot *tuple);

static inline bool
le_store_is_null(const TupleTableSlot *tuple, int column)
{
	return column >= tuple->tts_tupleDescriptor->natts || tuple->tts_isnull[column];
}

static inline TimestampTz
le_store_to_wall(const Clock *clock, LeTime t)
{
	if (t - clock->now >= END_TIMESTAMP - clock->wall)
		return DT_NOEND;
	return clock->wall + (t - clock->now);
}

#endif /* LE_STORE_INTERNAL_H */
