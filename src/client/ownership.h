/*
 * ownership.h
 *		The ownership of the connection.
 */
#ifndef LE_CLIENT_OWNERSHIP_H
#define LE_CLIENT_OWNERSHIP_H

#include "types.h"

/* Locked at entry and exit.  Waits for session.changed until a point of le_now_ns() at the latest. */
extern void le_wait_changed(le_session *s, int64_t until);
/* Locked.  Returns whether the connection can be taken.  It cannot while a renewal is due, which goes first. */
extern bool le_is_free(const le_session *s);
/* Locked.  Gives up the ownership of the connection (session.busy). */
extern void le_give(le_session *s);
/*
 * Locked at entry and exit.  Waits until the connection is free, at most until
 * a point of le_now_ns(), and takes it.
 */
extern le_status le_take(le_session *s, int64_t until, le_error *error);
/*
 * Locked at entry and exit.  Runs a statement like le_exec, and retries it
 * after temporary errors and reconnects, for at most call_ms.  Returns NULL
 * after an error.
 */
extern PGresult *le_ask(le_session *s, const char *sql, int n, const char *const *values, le_error *error);

#endif /* LE_CLIENT_OWNERSHIP_H */
