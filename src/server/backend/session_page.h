/*
 * backend/session_page.h
 *		Reads the live state, page by page.
 */
#ifndef LE_SESSION_PAGE_H
#define LE_SESSION_PAGE_H

#include "shared/page_format.h"

/*
 * Calls the callback for every holder and waiter of the lock or election with this name, or of all locks or
 * elections if no name is given.  With kind LE_PAGE_LEASES, calls it for every named lease.
 */
typedef void (*LePageCallback)(void *arg, const LePageItem *item);
extern void le_page_each(LeKind kind, LeText name, LePageCallback callback, void *arg);

/*
 * Gets one page of the entries of a lease with cmd, a LEASE_HOLDS command.  Calls the callback for each item,
 * and changes cmd into the command for the next page; cmd->from is 0 after the last page.  copy: a buffer of
 * LE_PAYLOAD_SIZE bytes, to which cmd points until the last page.
 */
extern void le_page_holds(LeCommand *cmd, LeReply *reply, char *copy, LePageCallback callback, void *arg);

#endif /* LE_SESSION_PAGE_H */
