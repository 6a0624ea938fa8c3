/*
 * core/entry.h
 *		The life of one entry.  For the core alone.
 */
#ifndef LE_ENTRY_H
#define LE_ENTRY_H

#include "state.h"

/* None of these functions can fail: the memory that they need is reserved. */
extern LeEntry *le_entry_new(LeCore *core, LeLock *lock, const LeEntrySpec *spec);
extern void le_waiter_new(LeCore *core, LeEntry *entry, LeTime since);
extern void le_entry_set_state(LeEntry *entry, LeState from, LeState to);
extern void le_entry_queue(LeCore *core, LeEntry *entry, LeTime now);
extern void le_entry_grant(LeCore *core, LeEntry *entry, LeTime now);
extern bool le_entry_reenter(LeCore *core, LeEntry *holder, LeTime ttl, LeTime now);
extern void le_entry_renew(LeCore *core, LeEntry *entry, LeTime now);
extern void le_entry_arm(LeCore *core, LeEntry *entry);
extern void le_entry_lapse(LeCore *core, LeEntry *entry, LeEnd how, LeTime closed_until, LeTime since);
extern void le_entry_finish(LeCore *core, LeEntry *entry, LeEnd how, LeTime closed_until, LeTime now);
/* Frees the entry, its owner and its value, and drops its acquirer. */
extern void le_entry_free(LeCore *core, LeEntry *entry);

extern void le_answer(LeCore *core, LeEntry *entry, LeStatus status, int64_t token);

/* Mark the row of a place, or of a holder or a place, to be written with the batch. */
extern void le_place_dirty(LeCore *core, LeEntry *entry);
extern void le_entry_row_dirty(LeCore *core, LeEntry *entry);

#endif /* LE_ENTRY_H */
