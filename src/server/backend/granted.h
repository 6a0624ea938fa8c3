/*
 * backend/granted.h
 *		Remembers this session's latest grants, so that it can release them without asking the
 *		manager.
 *
 * A release does not have to be durable when its call returns (docs/design/guarantees.md), because the caller
 * only needs to know whether the lock was held until now.  The session that acquired the lock can determine
 * this by itself: the manager raises the epoch of a name before it reports the end of a holder to any
 * process, so the lock is held as long as the epoch has not changed since the grant.  In this case the
 * session returns without asking the manager, and mails the release at its commit, see backend/pending.h.
 *
 * The result is correct even if the manager ends the hold at the same moment: the lock was held when
 * release_lock() was called, and is not held when release_lock() returns.
 */
#ifndef LE_GRANTED_H
#define LE_GRANTED_H

#include "core/command.h"

/* Remembers a grant.  The grant must be durable, because the session will rely on it. */
extern void le_granted_note(const LeCommand *cmd, const LeReply *reply);

/*
 * Returns whether cmd releases a remembered grant whose lock is still held.  If it returns true, it has
 * called le_pending_begin_async(), and the caller must add the release with le_pending_add_async().  The
 * session's mailbox must be quiet (le_pending_is_free()): the manager has then processed all rollbacks and
 * earlier releases of this session, and has raised the epochs of their names.
 */
extern bool le_granted_take(const LeCommand *cmd);

#endif /* LE_GRANTED_H */
