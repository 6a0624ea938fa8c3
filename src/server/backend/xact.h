/*
 * backend/xact.h
 *		What transactions do to locks: undo of acquires, releases at commit,
 *		ends of fences.
 */
#ifndef LE_XACT_H
#define LE_XACT_H

#include "core/core.h"

/*
 * The number under which this session's current transaction acquires; from
 * its first acquire on it is open.
 */
extern uint32 le_xact_open(void);
extern uint32 le_xact_number(void);

/* Something was acquired, released or fenced: PREPARE is refused. */
extern void le_xact_touched(void);

/*
 * This transaction holds, or is about to take, a fence: the manager is to look
 * for it from now on, and is told when the transaction ends.
 */
extern void le_xact_fencing(void);

/* A release that happens at commit. */
extern void le_pending_add(int64 token, LeKind kind, LeText name, LeTime hold_for, uint32 holds,
						   bool unnamed);
/* How many holds of this token and name are to be released. */
extern int64 le_pending_count(int64 token, LeText name);
/* May there be any of this token, whatever its name? */
extern bool le_pending_any(int64 token);
/* The token of this connection's own pending release of a name; 0: none. */
extern int64 le_pending_own(LeKind kind, LeText name);
/* Acquired again: take back the releases of this token and name. */
extern void le_pending_cancel(int64 token, LeText name);

/*
 * A request's worth of releases that a commit could not tell the manager;
 * false: there are none.  The caller posts them.
 */
extern bool le_unsent_take(char *payload, uint32 *len);

extern void le_xact_init(void);

#endif /* LE_XACT_H */
