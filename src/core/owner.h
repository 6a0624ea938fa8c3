/*
 * core/owner.h
 *		Finds holders by their lock and their named owner or lease.  For the core alone.
 */
#ifndef LE_OWNER_H
#define LE_OWNER_H

#include "objects.h"

extern void le_owner_add(LeCore *core, LeEntry *entry);
extern void le_owner_remove(LeCore *core, LeEntry *entry);
extern bool le_owner_is_shared(const LeEntry *holder, uint64_t session);
extern LeEntry *le_lock_owned(const LeCore *core, const LeLock *lock, uint32_t role, LeText owner,
							  const LeLease *lease, uint64_t session);

extern LeStatus le_reentry_status(const LeEntry *holder, LeMode mode, const LeLease *lease, LeTime ttl);

#endif /* LE_OWNER_H */
