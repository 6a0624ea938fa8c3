/*
 * backend/session_request.h
 *		Sends requests to the manager, and waits for the replies.
 */
#ifndef LE_SESSION_REQUEST_H
#define LE_SESSION_REQUEST_H

#include "backend/sync_body.h"
#include "shared/names.h"
#include "shared/shmem.h"

/* Maximum time that a commit waits until its releases are applied. */
#define LE_RELEASE_TIMEOUT (5 * LE_SECOND)

/*
 * Sends a command and waits for the reply.  Fills in the command's session, transaction and request number.
 * Can be cancelled at any time; the rollback of the (sub)transaction then undoes a grant.  If the manager
 * replies with an error, raises it.  snapshot_kept: the session keeps its snapshot during the wait; a wait of
 * more than a minute is then logged.  For a command with several names, sets cmd->name to the name that the
 * reply is about.
 */
extern void le_request(LeCommand *cmd, LeReply *reply, bool snapshot_kept);

/*
 * Sends a command that does not wait for a lock.  Waits until its reply is durable, or until the given time
 * of le_clock().  Returns whether the reply is durable.
 */
extern bool le_request_until(LeCommand *cmd, LeReply *reply, LeTime until);

/*
 * Sends a command with "each", which acts on each of its names separately.  There must be at least one name.
 * answers has room for a result for each name, and is filled in if the reply is LE_OK.  The session keeps its
 * snapshot during the wait, because the wait lasts for at most one batch.
 */
extern void le_request_each(LeCommand *cmd, LeReply *reply, LeEachAnswer *answers);

/* The leader of an election.  candidate is valid until the next request. */
typedef struct LeLeader
{
	TimestampTz since;
	LeText candidate;
} LeLeader;

/* Sends a CHECK of the holder of the command's name.  The reply contains the term. */
extern void le_request_leader(LeCommand *cmd, LeReply *reply, LeLeader *leader);

/* Sets reply->lsn to the LSN of the newest visible change of any election. */
extern void le_request_changes(LeReply *reply);

/* A request for the page of the live state that begins at a cursor; see shared/page_format.h. */
typedef struct LePageRequest
{
	LeKind kind;
	LeText name; /* data NULL: all names */
	LePageCursor from;
} LePageRequest;

/*
 * Returns the requested page, which is valid until the next request, and moves the cursor to the next page.
 */
extern LeText le_request_page(LePageRequest *page);

/*
 * Sends one request of a lease_sync(), see backend/session_sync.c.  Waits for its reply to become durable
 * until the given time of le_clock().  If the manager replies with an error, stores it in *sync instead of
 * raising it.
 */
extern void le_request_sync(LeSync *sync, LeTime until);

/*
 * le_raise_answer() raises the error that the manager replied with.  le_answer_hint() returns the hint for
 * that error, or NULL.
 */
extern void le_raise_answer(int sqlstate, const char *message);
extern const char *le_answer_hint(int sqlstate);

/*
 * le_mailbox_is_quiet() returns whether the manager has processed everything that this session has sent.
 * le_mailbox_await_quiet() waits for that, and can be cancelled.
 */
extern bool le_mailbox_is_quiet(void);
extern void le_mailbox_await_quiet(void);

#endif /* LE_SESSION_REQUEST_H */
