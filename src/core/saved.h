/*
 * core/saved.h
 *		Records the time left in the rows of leases: see core/life.h.
 */
#ifndef LE_SAVED_H
#define LE_SAVED_H

#include "objects.h"

/*
 * Returns the number of leases whose rows were written in an earlier life.  While it is not 0, the
 * uptime must be recorded.
 */
extern uint32_t le_core_unmarked(const LeCore *core);
/* Returns the time left and the life that the row of a lease records if it is written now. */
extern LeSaved le_core_saved(const LeCore *core, const LeSaved *saved, LeTime ttl);

/* Returns whether any renewal since the last call would have written a row if the core had been writable. */
extern bool le_core_wanted_to_write(LeCore *core);

/* --- for the core alone --- */

/* Records this time left and the number of this life.  The caller must mark the row as dirty. */
extern void le_saved_set(LeCore *core, LeSaved *saved, LeTime left);
/*
 * Like le_saved_set(), for an entry that is no longer renewed.  Does nothing while a raise (LeSaved)
 * may not be flushed yet.
 */
extern void le_saved_fix(LeCore *core, LeSaved *saved, LeTime left);
/* Records the time left and the life that a load has read from the row. */
extern void le_saved_load(LeCore *core, LeSaved *saved, LeSaved as);
/* Records that the lease no longer has a row, so that le_core_unmarked() does not count it. */
extern void le_saved_forget(LeCore *core, LeSaved *saved);
/*
 * Records a renewal of a lease whose row was last written at this LSN. Returns whether the row must
 * be written again, as a raise.
 */
extern bool le_saved_renew(LeCore *core, LeSaved *saved, LeTime ttl, bool dirty, uint64_t lsn);
/* Returns the time that a lease with this row would have left if the server crashed now. */
extern LeTime le_crash_left(const LeCore *core, const LeSaved *saved);

/* Sets in the reply how long a renewed lease is valid, before and after its row is flushed. */
extern void le_reply_validity(const LeCore *core, LeReply *reply, const LeSaved *saved, LeTime ttl);

/*
 * le_reply_lease_validity() does the same as le_reply_validity() for a lease that entries share.  Its
 * client applies the reply to all of them, so the reply contains at most the time that is left until
 * the first of its evicted holders ends. le_lease_evicted_left() returns that time; LE_NEVER = no
 * holder is evicted.
 */
extern void le_reply_lease_validity(const LeCore *core, LeReply *reply, const LeLease *lease, LeTime now);
extern LeTime le_lease_evicted_left(const LeLease *lease, LeTime now);

/*
 * Extends a lease so that it lasts at least this TTL from now on, and from each later renewal.  The
 * caller must mark its row as dirty.  Returns whether the TTL has changed.
 */
extern bool le_extend(LeCore *core, LeTime ttl, LeTime now, LeTime *own_ttl, LeTime *deadline,
					  LeSaved *saved);

/*
 * Returns when the time left must be saved next, or LE_NEVER if the TTL is so short that the time
 * left is never saved.  The time left in the row was correct at (deadline - left), which is when
 * the lease was last renewed or its time left was last saved.
 */
static inline LeTime
le_save_at(LeTime ttl, LeTime deadline, const LeSaved *saved)
{
	LeTime left = saved->raised ? ttl : saved->left;

	return ttl > LE_SAVE_INTERVAL ? le_add(deadline - left, LE_SAVE_INTERVAL) : LE_NEVER;
}

/*
 * Returns le_save_at() of a holder or a place, or LE_NEVER if it is on a shared lease: then the time
 * left is stored in the lease's row.
 */
static inline LeTime
le_entry_save_at(const LeEntry *entry)
{
	return le_entry_has_own_time(entry) && (entry->state == LE_STATE_HELD || entry->place)
			   ? le_save_at(entry->ttl, entry->deadline, &entry->saved)
			   : LE_NEVER;
}

#endif /* LE_SAVED_H */
