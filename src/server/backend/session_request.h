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
 * Sends a command and waits for the reply.  Fills in session, transaction and request number.  May
 * be cancelled at any time; a grant that was under way is then undone with the (sub)transaction.
 * Raises the errors that the manager replies with.  "snapshot_kept": the wait holds a snapshot, so
 * log that after a minute.  For several names, cmd->name becomes the one that the reply is about.
 */
extern void le_request(LeCommand *cmd, LeReply *reply, bool snapshot_kept);

/*
 * Does the same for a command without a wait of its own, but waits for the reply to become durable
 * only until "until", a moment of le_clock().  Returns whether it is durable.
 */
extern bool le_request_until(LeCommand *cmd, LeReply *reply, LeTime until);

/*
 * Does the same for a command with "each", which asks for each of its names: answers has room for
 * all of them, and is filled if the reply is LE_OK.  There must be at least one name.  The wait
 * keeps its snapshot, because it lasts no longer than one batch.
 */
extern void le_request_each(LeCommand *cmd, LeReply *reply, LeEachAnswer *answers);

/* The leader of an election; candidate is valid until the next request. */
typedef struct LeLeader
{
	TimestampTz since;
	LeText candidate;
} LeLeader;

/* Sends a CHECK of the holder of the command's name; the reply has the term. */
extern void le_request_leader(LeCommand *cmd, LeReply *reply, LeLeader *leader);

/* Gets the LSN of the newest visible change of an election, in the reply. */
extern void le_request_changes(LeReply *reply);

/* Asks for a page of the live state, beginning at a cursor, see shared/page_format.h. */
typedef struct LePageRequest
{
	LeKind kind;
	LeText name; /* data NULL: all names */
	LePageCursor from;
} LePageRequest;

/*
 * Returns the page, which is valid until the next request, and moves the cursor to where the next
 * one begins.
 */
extern LeText le_request_page(LePageRequest *page);

/*
 * Sends one request of a lease_sync(), see backend/session_sync.c.  Waits until "until", a moment
 * of le_clock(), for the reply to become durable.  Does not raise an error that the manager replies
 * with.
 */
extern void le_request_sync(LeSync *sync, LeTime until);

/*
 * le_raise_answer() raises an error that the manager replied with; le_answer_hint() returns the
 * hint that goes with it, or NULL.
 */
extern void le_raise_answer(int sqlstate, const char *message);
extern const char *le_answer_hint(int sqlstate);

/*
 * Has the manager processed everything that this session has sent?  le_mailbox_await_quiet() waits
 * for that, and may be cancelled.
 */
extern bool le_mailbox_is_quiet(void);
extern void le_mailbox_await_quiet(void);

#endif /* LE_SESSION_REQUEST_H */
