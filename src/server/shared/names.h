/*
 * shared/names.h
 *		The bodies of requests, on their way from a backend to the manager; and
 *		those with the names of several locks, and what is answered for each of them.
 */
#ifndef LE_NAMES_H
#define LE_NAMES_H

#include "shared/shmem.h"

/* What a request with "each" is answered for one of its names. */
typedef struct LeEachAnswer
{
	int64 token;
	uint32 position; /* in the queue, from 1; 0: not in it */
	uint32 holds;    /* CHECK: of the holder */
	uint8 status;    /* LeStatus */
	bool own_session;
	bool reentrant;
	bool shared_owner;
} LeEachAnswer;

/*
 * A body is what a request has beside its command and texts: in the mailbox's payload,
 * or where it does not fit there in a segment of dynamic shared memory, which lasts until
 * le_body_done() or the end of the statement.  It begins with room for the answers.
 */

/*
 * Backend: room for a body of this size, behind the "at" bytes of the payload that are taken; in
 * the first "most" bytes of the payload, or in a segment.  The mailbox's session and its command's
 * number are set.
 */
extern char *le_body_new(LeMailbox *box, uint32 at, Size size, Size most);
/* Backend: the body of the request that was answered. */
extern const char *le_body_mine(const LeMailbox *box);
/* Backend: the request is over.  May not fail: errors and exits call it. */
extern void le_body_done(void);

/*
 * Manager: the body, where it is or copied into the current context.  NULL: the request was
 * withdrawn meanwhile.
 */
extern const char *le_body_get(const LeMailbox *box);
/*
 * Manager: put the answers at the begin of the body, where the backend reads them once the request
 * is answered.  The rest stays, for a batch that fails is made again.
 */
extern void le_body_answer(LeMailbox *box, const void *answers, Size size);

/*
 * The body of a command for several names: with "each" one LeEachAnswer and a token for each; then
 * the names.
 */
extern void le_names_put(LeMailbox *box, const LeCommand *cmd, uint32 len);
extern bool le_names_get(const LeMailbox *box, LeCommand *cmd);

/*
 * Manager: dsm_attach(), which leaves its mark if it fails.  No transaction is
 * open that would remove that, and then the segment could not be attached again.
 */
extern dsm_segment *le_segment_attach(dsm_handle handle);

#endif /* LE_NAMES_H */
