/*
 * core/load.h
 *		Builds a core from stored rows.  The store passes the rows of its tables unchanged,
 *		and the core decides which of them are still valid.
 *
 * A load is a sequence of calls:
 *
 *	1.	le_core_load_begin() on an empty core whose limits are set.
 *	2.	le_core_load_lease() for each lease, before the entries on it.
 *	3.	le_core_load_slot() for each slot, in any order.
 *	4.	le_core_load_place() for each queue place, in order of tokens.
 *	5.	Sessions that were waiting post their requests again, as ACQUIRE with
 *		their old revisions, in the order of these revisions.
 *	6.	le_core_load_done().  Nothing is granted before this call, because a
 *		waiter that is first in its queue may not have posted yet.
 *
 * Entries and leases that cannot continue are loaded as ended, and their rows
 * are dirty: the next batch writes them.
 */
#ifndef LE_LOAD_H
#define LE_LOAD_H

#include "stored.h"

typedef enum LeLoadStatus
{
	LE_LOADED,
	LE_LOADED_RIVAL, /* two rows have incompatible holders */
	LE_LOAD_INVALID, /* no core can have written this row */
	LE_LOAD_NO_MEMORY
} LeLoadStatus;

/* The steps listed at the top. */
extern void le_core_load_begin(LeCore *core, const LeLoadEnv *env);
extern LeLoadStatus le_core_load_lease(LeCore *core, const LeStoredLease *row);
/* If the result is LE_LOADED_RIVAL, *newest is the token of the holder that stays; its rivals have ended. */
extern LeLoadStatus le_core_load_slot(LeCore *core, const LeStoredEntry *row, int64_t *newest);
extern LeLoadStatus le_core_load_place(LeCore *core, const LeStoredEntry *row);
extern void le_core_load_done(LeCore *core, LeTime now);

/* Returns whether a core can have written this row of a slot. */
extern bool le_stored_slot_valid(const LeStoredEntry *row);

#endif /* LE_LOAD_H */
