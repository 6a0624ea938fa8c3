/*
 * backend/granted.h
 *		Remembers this session's latest grants, so that it can release them without asking the
 *		manager.
 *
 * A release need not be durable when its call returns (docs/design/guarantees.md): the caller only
 * wants to know whether the lock was held until now.  A session that acquired the lock itself can
 * tell: the manager raises the epoch of a name before it reports the end of a holder to anybody, so
 * while the epoch is that of the grant, the lock is held.  The session then returns the result
 * itself, and mails the release with its commit, see backend/pending.h.
 *
 * The manager may be ending the lock at this very moment.  Then both are true: the lock was held
 * when release_lock() was called, and is not when that returns.
 */
#ifndef LE_GRANTED_H
#define LE_GRANTED_H

#include "core/command.h"

/* Remembers a grant.  Its durability is confirmed, so the session may rely on it. */
extern void le_granted_note(const LeCommand *cmd, const LeReply *reply);

/*
 * Does cmd release a remembered grant whose lock is still held?  Then this function has called
 * le_pending_begin_async(), and the caller lists the release with le_pending_add_async().  The
 * session's mailbox must be quiet (le_pending_is_free()), so that a rollback of the grant, or an
 * earlier release, has already raised the epoch.
 */
extern bool le_granted_take(const LeCommand *cmd);

#endif /* LE_GRANTED_H */
