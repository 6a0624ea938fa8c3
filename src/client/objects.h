/*
 * objects.h
 *		Creates, frees and reference-counts le_session and le_hold objects, and locks
 *		the session's mutex.
 */
#ifndef LE_CLIENT_OBJECTS_H
#define LE_CLIENT_OBJECTS_H

#include "types.h"

/*
 * Creates a session with these options, but does not start its threads.
 * Returns NULL if out of memory or descriptors.
 */
extern le_session *le_session_new(const le_options *options);
/* Lock the session's mutex, unlock it, and drop a reference to the session. */
extern void le_lock(const le_session *s);
extern void le_unlock(const le_session *s);
extern void le_session_unref(le_session *s); /* the caller must not hold the mutex */
/* Returns whether this process was forked after the session was opened. */
extern bool le_in_child(const le_session *s);
/*
 * Returns whether the session has a lease that has not ended, as far as the
 * session knows.  May be called without the mutex.
 */
extern bool le_is_alive(const le_session *s);
/* Starts a thread that blocks all signals. */
extern bool le_start_thread(pthread_t *thread, void *(*run)(void *), void *arg);

/* Creates a hold, but does not queue its request.  Returns NULL if out of memory. */
extern le_hold *le_hold_alloc(le_session *s, le_kind kind, const char *const *names, int n,
							  const char *candidate);
extern void le_hold_free(le_hold *hold);
/* Drops a reference to the hold.  The caller holds the session's mutex. */
extern void le_hold_unref(le_hold *hold);

#endif /* LE_CLIENT_OBJECTS_H */
