/*
 * core/reentry.h
 *		Adds one more hold to a holder (re-entry).  For the core alone.
 */
#ifndef LE_REENTRY_H
#define LE_REENTRY_H

#include "role.h"
#include "state.h"

extern LeEntry *le_reentry_find(const LeCore *core, const LeLock *lock, const LeSession *session,
								const LeCommand *cmd, const LeLease *lease);
extern LeEntry *le_reentry_joined(const LeCore *core, const LeLock *lock, const LeCommand *cmd,
								  const LeLease *lease);
extern LeStatus le_hold_check(const LeCore *core, const LeEntry *entry, LeUsage taken);
extern LeStatus le_reentry_check(const LeCore *core, const LeEntry *holder, const LeCommand *cmd,
								 const LeLease *lease, LeUsage taken);
extern void le_reentry_apply(LeCore *core, LeEntry *holder, const LeCommand *cmd, LeTime now, LeReply *reply);
extern void le_reply_holder(LeReply *reply, const LeEntry *holder, LeTime now);
/* Check whether a holder's value may be replaced, and replace it. */
extern LeStatus le_holder_admits_value(const LeCore *core, const LeEntry *holder, LeText value);
extern void le_holder_proclaim(LeCore *core, LeEntry *holder, const LeCommand *cmd, LeTime now);

#endif /* LE_REENTRY_H */
