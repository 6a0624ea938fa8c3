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

/* Mailbox: cannot fail. */
extern void le_mail_undo(uint32 xact, uint32 subxact);
extern void le_mail(uint32 flag);

#endif /* LE_REQUEST_H */
