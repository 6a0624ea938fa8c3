/*
 * backend/session_page.h
 *		Reads the live state, page by page.
 */
#ifndef LE_SESSION_PAGE_H
#define LE_SESSION_PAGE_H

#include "shared/page_format.h"

/*
 * Calls back for every holder and waiter of the lock or election with this name, or of all locks or elections
 * if no name is given.  Kind LE_PAGE_LEASES: calls back for every named lease.
 */
typedef void (*LePageCallback)(void *arg, const LePageItem *item);
extern void le_page_each(LeKind kind, LeText name, LePageCallback callback, void *arg);

/*
 * Sends cmd, a LEASE_HOLDS, to get one page of the entries of a lease.  Calls back for each item, and changes
 * cmd into the command for the next page; its "from" is 0 after the last page.  copy has room for
 * LE_PAYLOAD_SIZE bytes, and the caller must keep it until the last page.
 */
extern void le_page_holds(LeCommand *cmd, LeReply *reply, char *copy, LePageCallback callback, void *arg);

#endif /* LE_SESSION_PAGE_H */
