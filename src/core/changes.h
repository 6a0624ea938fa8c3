/*
 * core/changes.h
 *		Collects the changes of elections in a batch.  For the core alone.
 */
#ifndef LE_CHANGES_H
#define LE_CHANGES_H

#include "stored.h"

/* Reserve changes, and add them to the list that is written to the history with the batch. */
extern bool le_changes_reserve(LeCore *core);
extern void le_change_add(LeCore *core, const LeEntry *entry, LeHow how, char *dropped, LeTime now);
extern void le_change_ended(LeCore *core, const LeEntry *entry, LeEnd how, LeTime now);
extern void le_change_lost(LeCore *core, LeLock *lock, const LeStoredEntry *row, LeEnd how, LeTime elected_at,
						   LeTime now);

#endif /* LE_CHANGES_H */
