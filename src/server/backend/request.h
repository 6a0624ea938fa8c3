/*
 * backend/request.h
 *		The backend's side of a request.
 */
#ifndef LE_REQUEST_H
#define LE_REQUEST_H

#include "shared/shmem.h"

/*
 * Send a command and wait for its answer.  Fills in session, transaction and
 * request number.  May be cancelled, at any time; what it was about to get is
 * then undone with the (sub)transaction.  Errors that the manager answers are
 * raised here.  "snapshot_kept": the wait holds a snapshot, say so in the log
 * after a minute.
 */
extern void le_request(LeCommand *cmd, LeReply *reply, bool snapshot_kept);

/* A page of the live state, see shared/look.h. */
extern uint32 le_request_look(LeRequestType type, LeCommand *cmd, LeReply *reply, char **page);

/* A commit does not wait longer than this for its releases to be applied. */
#define LE_RELEASE_TIMEOUT (5 * LE_SECOND)

/*
 * Release at a commit: never fails, cannot be interrupted.  Waits until the
 * manager has applied it or says that it cannot yet; or, where there is no
 * manager, until give_up: then the next manager applies it.  False: it could
 * not even be posted.
 */
extern bool le_request_release_many(const char *payload, uint32 len, int count, LeTime give_up);

/* Mailbox: cannot fail. */
extern void le_mail_undo(uint32 xact, uint32 subxact);
extern void le_mail(uint32 flag);

#endif /* LE_REQUEST_H */
