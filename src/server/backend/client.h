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
 * le_client_look_in_wait() checks the client during a wait, and sets socket options that detect a host that
 * stops responding.  le_client_wait_over() resets these options after the wait; it must not fail.
 */
extern void le_client_look_in_wait(void);
extern void le_client_wait_over(void);

/*
 * Adjusts the socket's options after a request.  bound: whether any lock is bound to this connection.
 * granted: whether the reply, which the client has not received yet, grants such a lock.
 */
extern void le_client_hold(bool bound, bool granted);

/*
 * Adjusts the socket's options when a statement begins, because the client has then read the result of the
 * previous statement.  mailbox: this backend's mailbox; NULL = none.
 */
extern void le_client_statement(LeMailbox *mailbox);

#endif /* LE_CLIENT_H */
