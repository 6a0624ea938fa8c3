/*
 * shared/names.h
 *		The names of a request for several locks, on their way from a backend
 *		to the manager, and what is answered for each of them.
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
 * Backend: put the command's names into the mailbox's payload, behind the len
 * bytes that are there already, or where they do not fit into a segment of
 * dynamic shared memory, which lasts until le_names_done() or the end of the
 * statement.  The mailbox's session and the command's number are set.
 * le_names_done() may not fail: errors and exits call it.
 */
extern void le_names_put(LeMailbox *box, const LeCommand *cmd, uint32 len);
extern void le_names_done(void);

/* Backend: the answers to a request with "each", until le_names_done(). */
extern const LeEachAnswer *le_names_answers(const LeMailbox *box);

/*
 * Manager: read the names, and the tokens of a request with "each", into the
 * current context.  False: the request was withdrawn meanwhile.
 */
extern bool le_names_get(const LeMailbox *box, LeCommand *cmd);

/*
 * Manager: store the answers to a request with "each", where its backend reads them
 * once it is answered.  The names stay, for a batch that fails is made again.
 */
extern void le_names_put_answers(LeMailbox *box, const LeEachAnswer *answers);

/*
 * Manager: dsm_attach(), which leaves its mark if it fails.  No transaction is
 * open that would remove that, and then the segment could not be attached again.
 */
extern dsm_segment *le_segment_attach(dsm_handle handle);

#endif /* LE_NAMES_H */
