/*
 * core/later.h
 *		Releases whose rows are written later.
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
 * possible.  The slot must not have been dirty in this batch before.
 */
extern void le_write_later(LeCore *core, LeSlot *slot, int64_t token, LeTime now);

/*
 * Functions for a core whose batch has failed. le_later_sort() sorts its releases; it must be called
 * once, before le_was_released(). le_was_released() returns whether the holder in this row was released
 * in an earlier batch, even if the release has not been written.
 */
extern void le_later_sort(LeCore *core);
extern bool le_was_released(const LeCore *failed, const LeStoredEntry *row);

/*
 * Records, during a load, the release of a row that le_was_released() has found, so that another load
 * finds it, too, if no batch has succeeded by then.
 */
extern void le_later_go_on(LeCore *core, const LeStoredEntry *row);

/*
 * Finishes a batch, after its replies: forgets all releases, unless some released rows are still to be
 * written (any_left).
 */
extern void le_later_batch_done(LeCore *core, bool any_left);

#endif /* LE_LATER_H */
