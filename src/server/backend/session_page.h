/*
 * backend/session_page.h
 *		Reads the live state, page by page.
 */
#ifndef LE_SESSION_PAGE_H
#define LE_SESSION_PAGE_H

#include "shared/page_format.h"

/*
 * Calls back for every holder and waiter of the lock or election with this name; without a name,
 * for all of this kind.  LE_PAGE_LEASES: for every named lease.
 */
typedef void (*LePageCallback)(void *arg, const LePageItem *item);
extern void le_page_each(LeKind kind, LeText name, LePageCallback callback, void *arg);

/*
 * Sends cmd, a LEASE_HOLDS, to get one page of the entries of a lease, calls back for each item,
 * and changes cmd into the command for the next page: "from" is 0 after the last one.  copy has
 * room for LE_PAYLOAD_SIZE bytes; the caller keeps it until the last page.
 */
extern void le_page_holds(LeCommand *cmd, LeReply *reply, char *copy, LePageCallback callback, void *arg);

#endif /* LE_SESSION_PAGE_H */
