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
 * after a minute.  Of several names, cmd->name becomes the one that the answer
 * is about.
 */
extern void le_request(LeCommand *cmd, LeReply *reply, bool snapshot_kept);

/* Who leads an election; the candidate lasts until the next request. */
typedef struct LeLeader
{
	TimestampTz since;
	LeText candidate;
} LeLeader;

/* A CHECK of whoever holds the command's name; the reply tells his term. */
extern void le_request_leader(LeCommand *cmd, LeReply *reply, LeLeader *leader);

/* What the changes of elections rest on that can be seen now. */
extern void le_request_changes(LeReply *reply);

/* A page of the live state, see shared/look.h, from a cursor on. */
typedef struct LeLook
{
	LeKind kind;
	LeText name; /* data NULL: all locks */
	LeLookCursor from;
} LeLook;

/*
 * LE_REQUEST_LOOK or LE_REQUEST_LOOK_LEASES: returns the page, which lasts until
 * the next request, and moves the cursor to where the next one begins.
 */
extern LeText le_request_look(LeRequestType type, LeLook *look);

/* Mailbox: cannot fail. */
extern void le_mail_undo(uint32 xact, uint32 subxact);
extern void le_mail(uint32 flag);

/* The manager has done all that this session has sent it; wait for that.  May be cancelled. */
extern bool le_slot_is_quiet(void);
extern void le_slot_await_quiet(void);

#endif /* LE_REQUEST_H */
