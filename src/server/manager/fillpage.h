/*
 * manager/fillpage.h
 *		Pages of the live state, for views.
 */
#ifndef LE_MANAGER_FILLPAGE_H
#define LE_MANAGER_FILLPAGE_H

#include "core/core.h"
#include "shared/shmem.h"

/* LE_REQUEST_PAGE: puts a page into the mailbox, and the position at which the next page begins. */
extern void le_page_fill(const LeCore *core, LeMailbox *box, LeTime now);

/*
 * LE_REQUEST_LEADER is a CHECK of the leader's term, so that its reply is given with the batch.
 * le_page_find_leader() sets the term in the command. le_page_put_leader() then puts the leader of that
 * moment into the mailbox, after the election's name, so that the request can be read again.
 */
extern void le_page_find_leader(const LeCore *core, LeCommand *cmd);
extern void le_page_put_leader(const LeCore *core, const LeCommand *cmd, LeMailbox *box, LeTime now);

/*
 * LEASE_HOLDS, called after it was applied: puts a page into the mailbox, after the name of its cursor.  Adds
 * to the reply the LSN on which the page depends.
 */
extern void le_page_put_holds(const LeCore *core, const LeCommand *cmd, LeMailbox *box, LeTime now,
							  LeReply *reply);

#endif /* LE_MANAGER_FILLPAGE_H */
