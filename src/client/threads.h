/*
 * threads.h
 *		The session's threads and their work.
 */
#ifndef LE_CLIENT_THREADS_H
#define LE_CLIENT_THREADS_H

#include "types.h"

/* --- engine.c --- */

/* Main function of the session thread */
extern void *le_net_main(void *session);
/* Busy.  Requests a lease for the session.  Returns false and sets net.error if none was granted. */
extern bool le_grant(le_session *s);

/* --- dispatch.c --- */

/* Main function of the callback thread */
extern void *le_dispatch_main(void *session);

/* --- observe.c --- */

/*
 * Locked at entry and exit; called by the callback thread.  Reads and reports
 * changes for one observer that is due, and returns true.  If no observer is
 * due, returns false, and sets *next to the time at which the first one will
 * be, if that is earlier.
 */
extern bool le_observe_work(le_session *s, int64_t *next);

#endif /* LE_CLIENT_THREADS_H */
