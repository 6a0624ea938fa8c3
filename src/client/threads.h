/*
 * threads.h
 *		Functions of the session's threads.
 */
#ifndef LE_CLIENT_THREADS_H
#define LE_CLIENT_THREADS_H

#include "types.h"

/* --- engine.c --- */

/* Main function of the session thread */
extern void *le_net_main(void *session);
/*
 * Requests a lease for the session.  The calling thread owns the connection.
 * Returns false and sets net.error if no lease was granted.
 */
extern bool le_grant(le_session *s);

/* --- dispatch.c --- */

/* Main function of the callback thread */
extern void *le_dispatch_main(void *session);

/* --- observe.c --- */

/*
 * Reads and reports changes for one observer that is due, and returns true.  If
 * none is due, returns false, and moves *next to the time at which the first
 * one will be due, if that time is earlier.  Called by the callback thread,
 * which holds the mutex at entry and exit.
 */
extern bool le_observe_work(le_session *s, int64_t *next);

#endif /* LE_CLIENT_THREADS_H */
