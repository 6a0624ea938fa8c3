/*
 * core/acquire.h
 *		Applies ACQUIRE of one name.  For the core alone.
 */
#ifndef LE_ACQUIRE_H
#define LE_ACQUIRE_H

#include "role.h"
#include "state.h"

/* The outcome of a new request for one name. */
typedef enum LeWay
{
	LE_WAY_REFUSED,  /* an error, or not admitted and not allowed to wait */
	LE_WAY_REENTERS, /* the request becomes one more hold of a holder */
	LE_WAY_PLACE,    /* the request gets the queue place of an earlier copy of it */
	LE_WAY_GRANTED,
	LE_WAY_WAITS
} LeWay;

typedef struct LeDecision
{
	LeWay way;
	LeStatus status;
	bool blocked;   /* the lock does not admit the request now */
	LeEntry *entry; /* REENTERS: the holder; PLACE: the place */
} LeDecision;

extern LeDecision le_acquire_decide(const LeCore *core, const LeSession *session, const LeLock *lock,
									const LeCommand *cmd, const LeLease *lease, LeUsage taken, LeTime now);

/* Parts of ACQUIRE, which core/group.c uses, too. */
extern LeStatus le_acquire_lease(const LeCore *core, const LeCommand *cmd, LeTime now, LeLease **lease);
extern LeStatus le_acquire_use(const LeLock *lock, const LeCommand *cmd);
extern LeEntrySpec le_acquire_spec(LeCore *core, const LeCommand *cmd, LeLease *lease);
extern void le_requeue_stored(LeCore *core, LeEntry *entry, const LeCommand *cmd, LeTime now, LeReply *reply);
extern bool le_acquire_admitted(const LeLock *lock, const LeCommand *cmd, LeTime now);
extern LeEntry *le_same_place(const LeCore *core, const LeLock *lock, const LeLease *lease,
							  const LeCommand *cmd);
extern void le_place_again(LeCore *core, LeEntry *entry, const LeCommand *cmd, LeTime now, LeReply *reply);

/* Applies the command. */
extern void le_apply_acquire(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply);

#endif /* LE_ACQUIRE_H */
