/*
 * shared/names.h
 *		The names of a request for several locks, on their way from a backend
 *		to the manager.
 */
#ifndef LE_NAMES_H
#define LE_NAMES_H

#include "shared/shmem.h"

/*
 * Backend: put the command's names into the mailbox's payload, behind the len
 * bytes that are there already, or where they do not fit into a segment of
 * dynamic shared memory, which lasts until le_names_done() or the end of the
 * statement.  The mailbox's session and the command's number are set.
 * le_names_done() may not fail: errors and exits call it.
 */
extern void le_names_put(LeMailbox *box, const LeCommand *cmd, uint32 len);
extern void le_names_done(void);

/* Manager: read the names into the current context.  NULL: the request was withdrawn meanwhile. */
extern LeText *le_names_get(const LeMailbox *box);

/*
 * Manager: dsm_attach(), which leaves its mark if it fails.  No transaction is
 * open that would remove that, and then the segment could not be attached again.
 */
extern dsm_segment *le_segment_attach(dsm_handle handle);

#endif /* LE_NAMES_H */
