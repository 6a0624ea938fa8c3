/*
 * objects.h
 *		Sessions and holds as objects: memory, references, the mutex.
 */
#ifndef LE_CLIENT_OBJECTS_H
#define LE_CLIENT_OBJECTS_H

#include "types.h"

/* Creates a session with these options, but not its threads.  Returns NULL if out of memory or descriptors. */
extern le_session *le_session_new(const le_options *options);
/* Lock and unlock the session's mutex, and drop a reference. */
extern void le_lock(const le_session *s);
extern void le_unlock(const le_session *s);
extern void le_session_unref(le_session *s); /* not locked */
/* Returns whether this process is a child that was forked after le_open. */
extern bool le_in_child(const le_session *s);
/*
 * Returns whether the session has a lease that, as far as the session knows, has not ended.
 * May be called without the mutex.
 */
extern bool le_is_alive(const le_session *s);
/* Starts a thread that blocks all signals. */
extern bool le_start_thread(pthread_t *thread, void *(*run)(void *), void *arg);

/* Creates a hold that is not queued yet.  Returns NULL if out of memory. */
extern le_hold *le_hold_alloc(le_session *s, le_kind kind, const char *const *names, int n,
							  const char *candidate);
extern void le_hold_free(le_hold *hold);
/* Locked.  Drops a reference. */
extern void le_hold_unref(le_hold *hold);

#endif /* LE_CLIENT_OBJECTS_H */
