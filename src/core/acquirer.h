/*
 * core/acquirer.h
 *		Stores the texts that describe acquirers.  For the core alone.
 */
#ifndef LE_ACQUIRER_H
#define LE_ACQUIRER_H

#include "objects.h"

/*
 * le_acquirer_get() returns the record of a text with one more reference.  If there is no record,
 * it creates one in memory that le_acquirers_reserve() has allocated.
 */
extern bool le_acquirers_reserve(LeCore *core, LeText text);
extern LeAcquirer *le_acquirer_get(LeCore *core, LeText text);
extern LeAcquirer *le_acquirer_find(const LeCore *core, LeText text);
/* Drops one entry's reference to this record.  Frees the record with the last reference. */
extern void le_acquirer_drop(LeCore *core, LeAcquirer *acquirer);
extern void le_acquirers_destroy(LeCore *core);

#endif /* LE_ACQUIRER_H */
