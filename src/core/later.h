/*
 * core/later.h
 *		Postpones writing the rows of released locks.
 */
#ifndef LE_LATER_H
#define LE_LATER_H

#include "stored.h"

/*
 * le_core_later_since() returns the time of the oldest release that is not written yet; LE_NEVER =
 * none. le_core_write_now() marks all of them to be written with this batch.
 */
extern LeTime le_core_later_since(const LeCore *core);
extern void le_core_write_now(LeCore *core);

/* --- for the core alone --- */

/*
 * Postpones writing the row of a slot that the release of this token has freed, if that is
 * possible.  The slot must not have been dirty in this batch before the release.
 */
extern void le_write_later(LeCore *core, LeSlot *slot, int64_t token, LeTime now);

/*
 * Functions for a core whose batch has failed. le_later_sort() sorts the releases of that core; the
 * caller must call it once, before le_was_released(). le_was_released() returns whether the holder in
 * this row was released in an earlier batch, even if the release has not been written.
 */
extern void le_later_sort(LeCore *core);
extern bool le_was_released(const LeCore *failed, const LeStoredEntry *row);

/*
 * Keeps, during a load, the record of the release if le_was_released() finds this row.  If the
 * first batch after the load fails, too, the next load needs the record again.
 */
extern void le_later_go_on(LeCore *core, const LeStoredEntry *row);

/*
 * Finishes a batch, after its replies: forgets all releases, unless some released rows are still to be
 * written (any_left).
 */
extern void le_later_batch_done(LeCore *core, bool any_left);

#endif /* LE_LATER_H */
