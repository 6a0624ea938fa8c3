/*
 * backend/client.h
 *		The client's socket: is the client still there?
 */
#ifndef LE_CLIENT_H
#define LE_CLIENT_H

/* Is the client still there?  If not, the next CHECK_FOR_INTERRUPTS() ends the session. */
extern void le_client_look(void);

/* The same in a wait, during which a host that falls silent is noticed as well; and its end, which may not fail. */
extern void le_client_look_in_wait(void);
extern void le_client_wait_over(void);

/*
 * After each request: is any lock bound to this connection?  "granted": the answer
 * that is about to be sent grants one more.
 */
extern void le_client_hold(bool bound, bool granted);

/* A statement begins, so the client has read the answer before. */
extern void le_client_statement(void);

#endif /* LE_CLIENT_H */
