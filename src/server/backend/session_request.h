/*
 * backend/session_request.h
 *		The backend's side of a request.
 */
#ifndef LE_SESSION_REQUEST_H
#define LE_SESSION_REQUEST_H

#include "backend/sync_body.h"
#include "shared/names.h"
#include "shared/shmem.h"

/*
 * Send a command and wait for its answer.  Fills in session, transaction and
 * request number.  May be cancelled, at any time; what it was about to get is
 * then undone with the (sub)transaction.  Errors that the manager answers are
 * raised here.  "snapshot_kept": the wait holds a snapshot, say so in the log
 * after a minute.  Of several names, cmd->name becomes the one that the answer
 * is about.
 */
extern void le_request(LeCommand *cmd, LeReply *reply, bool snapshot_kept);

/*
 * The same for a command without a wait of its own: waits until "until", a moment of le_clock(), for the answer to
 * be durable, and returns whether it is.
 */
extern bool le_request_until(LeCommand *cmd, LeReply *reply, LeTime until);

/*
 * The same for a command that asks for each of its names: answers has room for all
 * of them, and is filled if the reply is LE_OK.  cmd->each is set, and there is a
 * name.  The wait holds its snapshot, for it is no longer than one batch.
 */
extern void le_request_each(LeCommand *cmd, LeReply *reply, LeEachAnswer *answers);

/* The leader of an election; the candidate lasts until the next request. */
typedef struct LeLeader
{
	TimestampTz since;
	LeText candidate;
} LeLeader;

/* A CHECK of the holder of the command's name; the reply has the term. */
extern void le_request_leader(LeCommand *cmd, LeReply *reply, LeLeader *leader);

/* The LSN of the newest change of an election that can be seen now, in the reply. */
extern void le_request_changes(LeReply *reply);

/* A page of the live state, see shared/page_format.h, from a cursor on. */
typedef struct LePageRequest
{
	LeKind kind;
	LeText name; /* data NULL: all */
	LePageCursor from;
} LePageRequest;

/*
 * Returns the page, which lasts until the next request, and moves the cursor to where
 * the next one begins.
 */
extern LeText le_request_page(LePageRequest *page);

/*
 * One request of a lease_sync(), see backend/session_sync.c.  Waits until "until", a moment of le_clock(),
 * for its answer to be durable.  An error that the manager answers is not raised.
 */
extern void le_request_sync(LeSync *sync, LeTime until);

/* Raise an error that the manager has answered; the hint that goes with it, or NULL. */
extern void le_raise_answer(int sqlstate, const char *message);
extern const char *le_answer_hint(int sqlstate);

/* Has the manager done all that this session has sent it?  And the wait for that, which may be cancelled. */
extern bool le_mailbox_is_quiet(void);
extern void le_mailbox_await_quiet(void);

#endif /* LE_SESSION_REQUEST_H */
