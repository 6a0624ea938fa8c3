/*
 * backend/client.h
 *		Checks on the client's socket whether the client is still connected.
 */
#ifndef LE_CLIENT_H
#define LE_CLIENT_H

/* Checks whether the client is still connected.  If not, the next CHECK_FOR_INTERRUPTS() ends the session. */
extern void le_client_look(void);

/*
 * Does the same during a wait, and sets up the socket so that a host that falls silent is noticed,
 * too.  le_client_wait_over() ends that; it must not fail.
 */
extern void le_client_look_in_wait(void);
extern void le_client_wait_over(void);

/*
 * Called after each request with whether any lock is bound to this connection.  "granted": the
 * reply that is about to be sent to the client grants one more.
 */
extern void le_client_hold(bool bound, bool granted);

/* Notes that a statement begins: the client has read the result of the statement before. */
extern void le_client_statement(void);

#endif /* LE_CLIENT_H */
