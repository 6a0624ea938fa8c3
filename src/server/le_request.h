/*
 * le_request.h
 *		The backend's side of a request.
 */
#ifndef LE_REQUEST_H
#define LE_REQUEST_H

#include "access/xlogdefs.h"

#include "le_shmem.h"

/*
 * Attach this backend to its database's manager, or make sure that it is.
 * Errors: 55000 library not preloaded, extension created in this transaction;
 * 25006 on a standby; 53400 more than lock_election.max_databases databases.
 */
extern void le_attach(void);

/* This backend's slot; NULL while not attached. */
extern LeRequestSlot *le_my_slot(void);

/*
 * Send a command and wait for its answer.  Fills in session, transaction and
 * request number.  May be cancelled, at any time; what it was about to get is
 * then undone with the (sub)transaction.  Errors that the manager answers are
 * raised here.  "snapshot_kept": the wait holds a snapshot, say so in the log
 * after a minute.
 */
extern void le_request(LeCommand *cmd, LeReply *reply, bool snapshot_kept);

/* A page of the live state, see le_look.h. */
extern uint32 le_request_look(LeRequestKind kind, LeCommand *cmd, LeReply *reply, char **page);

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

/*
 * Wait until what this reply says is as durable as synchronous_commit asks
 * for; then check that the lease has not ended meanwhile (false; LE001).
 */
extern bool le_durable_in_time(const LeReply *reply);
extern void le_wait_durable(const LeReply *reply, const char *what, LeText name);

/* DISCARD ALL: this connection's locks end, and it is another session. */
extern void le_session_reset(void);

/* Keepalive probes on the client's socket for as long as a lock hangs on it. */
extern void le_watch_client(bool hold);

#endif /* LE_REQUEST_H */
