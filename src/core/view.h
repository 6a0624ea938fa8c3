/*
 * core/view.h
 *		Finds the objects of a core, and returns simple facts about its state.
 */
#ifndef LE_VIEW_H
#define LE_VIEW_H

#include "objects.h"

/* Returns the entry with this token in this lock; the entries of a group share their token. */
extern LeEntry *le_core_find_entry(const LeCore *core, LeKind kind, LeText name, int64_t token);
extern LeLease *le_core_find_lease(const LeCore *core, int64_t id);
extern LeLock *le_core_find_lock(const LeCore *core, LeKind kind, LeText name);

/*
 * Locks by index, for paging.  Indexes run from 0 to le_core_lock_indexes() - 1, and a lock never
 * changes its index.  NULL = there is no lock at this index.
 */
extern uint32_t le_core_lock_indexes(const LeCore *core);
extern LeLock *le_core_lock_at(const LeCore *core, uint32_t index);

/* Named leases by index, in the same way as locks. */
extern uint32_t le_core_lease_indexes(const LeCore *core);
extern LeLease *le_core_lease_at(const LeCore *core, uint32_t index);

/* Returns the number of locks. */
extern uint64_t le_core_lock_count(const LeCore *core);

/* Returns the time until le_entry_deadline(), at least 0; LE_NEVER = the entry is bound. */
extern LeTime le_entry_time_left(const LeEntry *entry, LeTime now);
/* Returns the entry's named lease; NULL = none. */
extern LeLease *le_entry_named_lease(const LeEntry *entry);
/*
 * le_entry_counts_once() returns whether the entry counts as one hold no matter how often it is
 * acquired, as entries on a named lease and of elections do. le_entry_holds() returns the number of
 * holds.
 */
extern bool le_entry_counts_once(const LeEntry *entry);
extern uint32_t le_entry_holds(const LeEntry *entry);

/* Raises the revision that the next request will get; a lower value is ignored. */
extern void le_core_raise_revision(LeCore *core, int64_t revision);

/*
 * le_core_is_full() returns whether this batch has done its share of work (LeLimits.work), so that
 * the rest must wait for the next batch. le_core_worked() adds work that the core does not see,
 * such as reads of its state.
 */
extern bool le_core_is_full(const LeCore *core);
extern void le_core_worked(LeCore *core, uint32_t work);

/* --- for the core alone --- */

extern void le_reply_time(LeReply *reply, const LeEntry *entry, LeTime now);

extern uint64_t le_entry_lsn(const LeEntry *entry);

#endif /* LE_VIEW_H */
