/*
 * core/check.h
 *		Checks a core, for tests.
 */
#ifndef LE_CHECK_H
#define LE_CHECK_H

#include "objects.h"

/* Checks every internal invariant, for tests.  A violation aborts with a message. */
extern void le_core_check(const LeCore *core);
/* Check a reply of le_core_apply() or of le_entry_answer().  Must be called before the core changes again. */
extern void le_core_check_reply(const LeCore *core, const LeCommand *cmd, LeTime now, const LeReply *reply);
extern void le_core_check_answer(const LeCore *core, const LeEntry *entry, LeTime now, const LeReply *reply);

#endif /* LE_CHECK_H */
