/*
 * backend/granted.h
 *		Remembers this session's latest grants, so that it can release them without asking the
 *		manager.
 *
 * A release does not have to be durable when its call returns (docs/design/guarantees.md), because the caller
 * only needs to know whether the lock was held until now.  The session that acquired the lock can determine
 * this by itself: the manager raises the epoch of a name before it reports the end of a holder to any
 * process, so the lock is held as long as the epoch has not changed since the grant.  If so, the session
 * returns the result without asking the manager, and mails the release at its commit, see backend/pending.h.
 *
 * The manager may end the hold at the same moment.  The result is correct even then: the lock was held when
 * release_lock() was called, and is not held when it returns.
 */
#ifndef LE_GRANTED_H
#define LE_GRANTED_H

#include "core/command.h"

/* Remembers a grant.  The grant must be durable, because the session will rely on it. */
extern void le_granted_note(const LeCommand *cmd, const LeReply *reply);

/*
 * Returns whether cmd releases a remembered grant whose lock is still held.  If so, this function has called
 * le_pending_begin_async(), and the caller must list the release with le_pending_add_async().  The session's
 * mailbox must be quiet (le_pending_is_free()), so that a rollback of the grant or an earlier release has
 * already raised the epoch.
 */
extern bool le_granted_take(const LeCommand *cmd);

#endif /* LE_GRANTED_H */
