/*
 * core/effects.h
 *		The effects of a batch of commands and expiries: rows to write, replies to send,
 *		changes to announce.
 *
 * At the end of a batch the environment walks these lists, each from its first object to
 * NULL: it writes the dirty rows and the changes, sends the replies, and calls
 * le_core_batch_done().
 */
#ifndef LE_EFFECTS_H
#define LE_EFFECTS_H

#include "objects.h"

/*
 * These functions walk the lists.  Each function returns the object that follows "after", or the
 * first object if "after" is NULL.  The result NULL means that there are no more objects.
 */

/* Slots whose row must be written, or deleted if "drop" is set. */
extern LeSlot *le_next_dirty_slot(const LeCore *core, const LeSlot *after);

/* Leases whose row must be written, or deleted if "ended" is set. */
extern LeLease *le_next_dirty_lease(const LeCore *core, const LeLease *after);

/* Entries whose queue row must be written if they are QUEUED, or else deleted. */
extern LeEntry *le_next_dirty_place(const LeCore *core, const LeEntry *after);

/* Changes of elections, in order. */
extern LeChange *le_next_change(const LeCore *core, const LeChange *after);

/*
 * Entries whose waiter gets a reply, in the order of the replies. le_entry_answer() fills in the reply
 * of one of them.
 */
extern LeEntry *le_next_answer(const LeCore *core, const LeEntry *after);
extern void le_entry_answer(const LeCore *core, const LeEntry *entry, LeTime now, LeReply *reply);

/*
 * Finishes a batch that is committed and replied to. lsn is the end of its WAL record, which may not be
 * flushed yet; 0 = the batch wrote nothing.  Must not fail, because the replies have been sent.
 */
extern void le_core_batch_done(LeCore *core, uint64_t lsn);

/*
 * The rows of the three tables, by the index of their object: a slot, a lease or a queue place.  NULL =
 * there is no object at this index, or its row is not on disk.  Objects that end with this batch are
 * included, because their rows remain if the batch fails.
 */
typedef enum LeRowType
{
	LE_ROW_SLOT,
	LE_ROW_LEASE,
	LE_ROW_PLACE
} LeRowType;

extern uint32_t le_core_row_indexes(const LeCore *core, LeRowType type);
extern LeRow *le_core_row_at(LeCore *core, LeRowType type, uint32_t index);

#endif /* LE_EFFECTS_H */
