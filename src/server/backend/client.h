/*
 * backend/client.h
 *		Checks through the client's socket whether the client is still connected.
 */
#ifndef LE_CLIENT_H
#define LE_CLIENT_H

#include "shared/shmem.h"

/* Checks whether the client is still connected.  If not, the next CHECK_FOR_INTERRUPTS() ends the session. */
extern void le_client_look(void);

/*
 * Makes the same check during a wait, and configures the socket so that a host that stops responding is
 * detected, too. le_client_wait_over() undoes that at the end of the wait, and must not fail.
 */
extern void le_client_look_in_wait(void);
extern void le_client_wait_over(void);

/*
 * Called after each request.  "bound": a lock is bound to this connection.  "granted": the reply that is
 * about to be sent to the client grants such a lock.
 */
extern void le_client_hold(bool bound, bool granted);

/*
 * Called when a statement begins: the client has then read the result of the previous statement.  mailbox: that
 * of this backend; NULL = none.
 */
extern void le_client_statement(LeMailbox *mailbox);

#endif /* LE_CLIENT_H */
