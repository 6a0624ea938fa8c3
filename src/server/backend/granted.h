/*
 * backend/granted.h
 *		What this session was granted last, so that it can release that without
 *		asking.
 *
 * A release waits for nothing (docs/design/guarantees.md): its caller only wants to know
 * whether the lock was held until now.  A session that acquired it by itself knows
 * that: the epoch of the name, which the manager raises before anybody is told that
 * a holder has ended, is still that of the grant.  So it answers by itself, and
 * mails the release with its commit, see backend/pending.h.
 *
 * The manager may be ending the lock in this very moment.  Then both are true: the
 * lock was held when release_lock() was called, and is not when that returns.
 */
#ifndef LE_GRANTED_H
#define LE_GRANTED_H

#include "core/command.h"

/* An acquire was granted, and its durability is confirmed: the session may count on it. */
extern void le_granted_note(const LeCommand *cmd, const LeReply *reply);

/*
 * Is the release that cmd asks for one of such a grant, whose lock is held until now?
 * Then the caller lists it with le_pending_add_async(); le_pending_begin_async() has been
 * called.  The session's mailbox
 * has to be quiet (le_pending_is_free()): so a rollback of the grant, or a release
 * before, has raised the epoch.
 */
extern bool le_granted_take(const LeCommand *cmd);

#endif /* LE_GRANTED_H */
