/*
 * backend/session_page.h
 *		A session reads the pages of the live state.
 */
#ifndef LE_SESSION_PAGE_H
#define LE_SESSION_PAGE_H

#include "shared/page_format.h"

/*
 * Call back for every holder and waiter of the lock or election with this name; without
 * a name, of all of them.  LE_PAGE_LEASES: for every named lease.
 */
typedef void (*LePageCallback)(void *arg, const LePageItem *item);
extern void le_page_each(LeKind kind, LeText name, LePageCallback callback, void *arg);

/*
 * Ask by a LEASE_HOLDS for one page of what hangs on a lease, call back for each item of it, and
 * make of the command that for the next page: "from" is 0 after the last one.  copy has
 * room for LE_PAYLOAD_SIZE bytes, and stays until then.
 */
extern void le_page_holds(LeCommand *cmd, LeReply *reply, char *copy, LePageCallback callback, void *arg);

#endif /* LE_SESSION_PAGE_H */
