/*
 * ownership.h
 *		Lets one thread at a time own the connection.  The caller holds the
 *		session's mutex, which is unlocked during waits and statements.
 */
#ifndef LE_CLIENT_OWNERSHIP_H
#define LE_CLIENT_OWNERSHIP_H

#include "types.h"

/* Waits for session.changed, at most until the given time (ns of le_now_ns()). */
extern void le_wait_changed(le_session *s, int64_t until);
/* Returns whether a thread can take the connection now.  A renewal that is due has priority. */
extern bool le_is_free(const le_session *s);
/* Ends the calling thread's ownership of the connection (session.busy). */
extern void le_give(le_session *s);
/*
 * Waits until the connection is free, at most until the given time (ns of
 * le_now_ns()), and makes the calling thread its owner.
 */
extern le_status le_take(le_session *s, int64_t until, le_error *error);
/*
 * Takes the connection and runs a statement like le_exec.  Retries after
 * temporary errors, for at most call_ms.  Returns NULL and sets the error after
 * a failure.
 */
extern PGresult *le_ask(le_session *s, const char *sql, int n, const char *const *values, le_error *error);

#endif /* LE_CLIENT_OWNERSHIP_H */
