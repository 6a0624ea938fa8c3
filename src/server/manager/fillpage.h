/*
 * manager/fillpage.h
 *		Fills pages of the live state, for views.
 */
#ifndef LE_MANAGER_FILLPAGE_H
#define LE_MANAGER_FILLPAGE_H

#include "core/core.h"
#include "shared/shmem.h"

/* Serves LE_REQUEST_PAGE: stores in the mailbox a page, and the position at which the next page begins. */
extern void le_page_fill(const LeCore *core, LeMailbox *box, LeTime now);

/*
 * Serve LE_REQUEST_LEADER, which the core applies as a CHECK of the current leader's term.
 * le_page_find_leader() sets this term in the command.  After the CHECK, le_page_put_leader() stores the
 * leader in the mailbox, behind the election's name, which may be read again.
 */
extern void le_page_find_leader(const LeCore *core, LeCommand *cmd);
extern void le_page_put_leader(const LeCore *core, const LeCommand *cmd, LeMailbox *box, LeTime now);

/*
 * Called after LEASE_HOLDS was applied: stores a page in the mailbox, behind the name of the cursor.  Adds to
 * the reply the LSN on which the page depends.
 */
extern void le_page_put_holds(const LeCore *core, const LeCommand *cmd, LeMailbox *box, LeTime now,
							  LeReply *reply);

#endif /* LE_MANAGER_FILLPAGE_H */
