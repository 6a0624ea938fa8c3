/*
 * session.h
 *		A session's slot in shared memory.
 */
#ifndef LE_SESSION_H
#define LE_SESSION_H

#include "shared/shmem.h"

/* A caller waits this long for a manager to start, unless its own wait is
 * shorter. */
#define LE_MANAGER_START_TIMEOUT (5 * LE_SECOND)

/*
 * Attach this backend to its database's manager, or make sure that it is.
 * Errors: 55000 library not preloaded, extension created in this transaction;
 * 25006 on a standby; 53400 more than lock_election.max_databases databases.
 */
extern void le_attach(void);

/* This backend's slot; NULL while not attached. */
extern LeRequestSlot *le_my_slot;
/* The entry of its database; it is attached. */
extern LeDatabase *le_my_database(void);

/* Ask for a manager if there is none. */
extern void le_want_manager(LeDatabase *db);

/*
 * One turn of a wait.  Returns after the latch was set or the time ran out;
 * *down_since keeps track of how long there has been no manager.  57P03 when that
 * is longer than patience.
 */
extern void le_wait_turn(LeDatabase *db, long timeout_ms, LeTime *down_since, LeTime patience);

/* DISCARD ALL: this connection's locks end, and it is another session. */
extern void le_session_reset(void);

/*
 * The client's socket in a wait: look whether the client is still there, with
 * probes so that a host that falls silent is noticed as well; look without probes;
 * the wait is over.
 */
extern void le_watch_client_in_wait(void);
extern void le_look_at_client(void);
extern void le_unwatch_client(void);
extern bool le_client_is_watched(void);

/* Keepalive probes on the client's socket for as long as a lock hangs on it. */
extern void le_watch_client(bool hold);

#endif /* LE_SESSION_H */
