/*
 * manager/fillpage.h
 *		The manager fills the pages of the live state.
 */
#ifndef LE_MANAGER_PAGE_H
#define LE_MANAGER_PAGE_H

#include "core/core.h"
#include "shared/page.h"

/*
 * LE_REQUEST_PAGE, LE_REQUEST_LEASE_PAGE: put a page into the mailbox, and where
 * the next one begins.
 */
extern void le_page_fill(const LeCore *core, LeMailbox *box, LeTime now);
extern void le_page_fill_leases(const LeCore *core, LeMailbox *box, LeTime now);

/*
 * LE_REQUEST_LEADER: a CHECK of the leader's term, so that it is answered with
 * its batch.  First find the term, then put the leader into the mailbox as he is at that
 * moment, behind the election's name: the request can be read again.
 */
extern void le_page_find_leader(const LeCore *core, LeCommand *cmd);
extern void le_page_put_leader(const LeCore *core, const LeCommand *cmd, LeMailbox *box, LeTime now);

#endif /* LE_MANAGER_PAGE_H */
