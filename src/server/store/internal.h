/*
 * store/internal.h
 *		What the files of the store share with each other only.
 */
#ifndef LE_STORE_INTERNAL_H
#define LE_STORE_INTERNAL_H

#include "access/htup_details.h"
#include "executor/tuptable.h"
#include "nodes/execnodes.h"
#include "storage/itemptr.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "shared/compat.h"
#include "shared/shmem.h"
#include "store/store.h"

#define STORE_NAME "lock_election" /* of the extension and of its schema */

/* The columns of lock_election.slot, in their order. */
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
	SLOT_CLOSED_UNTIL,
	SLOT_NAME,
	SLOT_OWNER,
	SLOT_VALUE,
	SLOT_UNCOMMITTED, /* array of UncommittedHold */
	SLOT_COLUMNS
};

/* The columns of lock_election.lease, in their order. */
enum
{
	LEASE_ID,
	LEASE_TTL,
	LEASE_TIME_LEFT,
	LEASE_ROLE,
	LEASE_OWNER,
	LEASE_COLUMNS
};

/* The columns of lock_election.queue, in their order. */
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
	QUEUE_COLUMNS
};

/* A hold whose transaction was open when the row was written. */
typedef struct UncommittedHold
{
	uint64 session;
	uint32 xact;
	uint32 subxact;
} UncommittedHold;

/* The core's clock beside the wall clock that is stored. */
typedef struct Clock
{
	LeTime now;
	TimestampTz wall;
} Clock;

/* Uncommitted holds that were read and are still open. */
typedef struct OpenHolds
{
	LeCommand *items; /* for le_core_load_hold() */
	int n;
	int max;
} OpenHolds;

/* Which tables they are. */
typedef struct StoreTables
{
	Oid nspoid;
	Oid slot_oid;
	Oid lease_oid;
	Oid queue_oid;
	Oid history_oid;
	Oid meta_oid;
	Oid floor_oid;
	LeRelFileNumber slot_file; /* the tables' files when they were loaded */
	LeRelFileNumber lease_file;
	LeRelFileNumber queue_file;
} StoreTables;

extern StoreTables le_store_tables;

/* Raises an error unless the table has the shape that the store writes. */
extern void le_store_check_slot_table(Relation rel);
extern void le_store_check_lease_table(Relation rel);
extern void le_store_check_queue_table(Relation rel);
extern void le_store_check_shape(Relation rel, const Oid *types, int columns);

/* To be written; NULL: moved, dropped, or rewritten since it was loaded. */
extern Relation le_store_open_loaded(Oid oid, LeRelFileNumber file);

/*
 * Before an update or delete by TID: is there a row at all, and is there room
 * for its next version of this length?  False: there is no such row.
 */
extern bool le_store_prepare_page(Relation rel, const ItemPointerData *tid, Size len);

/* store/lease.c */
extern bool le_store_open_leases(LeCore *core);
extern void le_store_close_leases(void);
extern int le_store_write_leases(LeCore *core, CommandId cid);
extern int64 le_store_load_leases(LeCore *core, const LeLoadHooks *hooks, LeTime now);
extern LE_NORETURN void le_store_wrong_table(Relation rel);

/* store/queue.c */
extern bool le_store_open_queue(LeCore *core);
extern void le_store_close_queue(void);
extern int le_store_write_places(LeCore *core, const Clock *clock, CommandId cid);
extern int64 le_store_load_places(LeCore *core, const LeLoadHooks *hooks, const Clock *clock,
								  OpenHolds *holds);

/* store/history.c */
extern int le_store_write_changes(LeCore *core, const Clock *clock);

/* store/load.c */
extern LeText le_store_read_text(TupleTableSlot *tuple, int column);
extern void le_store_collect_holds(OpenHolds *holds, const LeLoadHooks *hooks, const LeCommand *of,
								   LeText uncommitted);

static inline LeTime
le_store_from_wall(const Clock *clock, TimestampTz t)
{
	if (TIMESTAMP_IS_NOEND(t))
		return LE_NEVER;
	if (TIMESTAMP_IS_NOBEGIN(t))
		return 0;
	return clock->now + (t - clock->wall);
}

static inline TimestampTz
le_store_to_wall(const Clock *clock, LeTime t)
{
	if (t - clock->now >= END_TIMESTAMP - clock->wall)
		return DT_NOEND;
	return clock->wall + (t - clock->now);
}

static inline uint64
le_store_pack_tid(const ItemPointerData *tid)
{
	return ((uint64) ItemPointerGetBlockNumber(tid) << 16) | ItemPointerGetOffsetNumber(tid);
}

static inline void
le_store_unpack_tid(uint64 locator, ItemPointer tid)
{
	ItemPointerSet(tid, (BlockNumber) (locator >> 16), (OffsetNumber) (locator & 0xffff));
}

#endif /* LE_STORE_INTERNAL_H */
