/*
 * shared/names.h
 *		Passes the bodies of requests from a backend to the manager, and the results back.
 */
#ifndef LE_NAMES_H
#define LE_NAMES_H

#include "shared/shmem.h"

/* The result of a request with "each" for a single name. */
typedef struct LeEachAnswer
{
	int64 token;
	uint32 position; /* position in the queue, from 1; 0 = not in a queue */
	uint32 holds;    /* CHECK: number of the holder's holds */
	uint8 status;    /* LeStatus */
	bool own_session;
	bool reentrant;
	bool shared_owner;
} LeEachAnswer;

/*
 * A body is the part of a request that is neither its command nor its texts.  It is in the mailbox's payload
 * or, if it does not fit there, in a segment of dynamic shared memory.  The segment exists until
 * le_body_done() or the end of the statement.  A body begins with room for the results.
 */

/*
 * Backend: returns memory for a body of "size" bytes.  The caller must have set the mailbox's session and the
 * number of its command.  The body follows the first "at" bytes of the payload, which are in use, if it then
 * ends within the first "most" bytes of the payload.  Otherwise the body is in a segment.
 */
extern char *le_body_new(LeMailbox *box, uint32 at, Size size, Size most);
/* Backend: returns the body of its own request, from which it reads the results. */
extern const char *le_body_mine(const LeMailbox *box);
/*
 * Backend: frees the body at the end of the request.  Must not fail, because it is called at exit and after
 * errors.
 */
extern void le_body_done(void);

/*
 * Manager: returns the body, in place or copied into the current memory context.  Returns NULL if the request
 * was withdrawn.
 */
extern const char *le_body_get(const LeMailbox *box);
/*
 * Manager: writes the results to the start of the body, where the backend reads them when the reply arrives.
 * Leaves the rest of the body unchanged, because it is read again if the batch fails.
 */
extern void le_body_answer(LeMailbox *box, const void *answers, Size size);

/*
 * Write and read the body of a command for several names, in the format that shared/names.c describes.
 * le_names_get() returns false if the request was withdrawn.
 */
extern void le_names_put(LeMailbox *box, const LeCommand *cmd, uint32 len);
extern bool le_names_get(const LeMailbox *box, LeCommand *cmd);

/*
 * Manager: attaches a segment.  If dsm_attach() fails halfway, detaches the segment again, because the abort
 * of a transaction would not detach it, and a segment cannot be attached twice.
 */
extern dsm_segment *le_segment_attach(dsm_handle handle);

#endif /* LE_NAMES_H */
