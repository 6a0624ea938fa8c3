/*
 * due.h
 *		Computes when work is due, and makes work due.  The caller holds the
 *		session's mutex.
 */
#ifndef LE_CLIENT_DUE_H
#define LE_CLIENT_DUE_H

#include "types.h"

/* Returns the time at which the next turn is due, in ns; 0 = now, LE_NEVER = never. */
extern int64_t le_due(le_session *s);
/* Returns whether waiting holds or observers need notifications. */
extern bool le_is_curious(const le_session *s);
/* Returns whether the session should listen to its lease's channel. */
extern bool le_wants_channel(const le_session *s);
/* Returns the time at which LISTEN or UNLISTEN must be sent, in ns; LE_NEVER = never. */
extern int64_t le_listen_due(const le_session *s);
/*
 * Returns the time at which waits fail because option listen is 1 and LISTEN
 * does not work, in ns; LE_NEVER = never.
 */
extern int64_t le_patience(const le_session *s);
/* Returns the time at which the session thread has work next, in ns; 0 = now. */
extern int64_t le_next_work(le_session *s);
/* Wakes up the session thread if it has work before the time until which it sleeps. */
extern void le_wake_net(le_session *s);
/* Handles a notification on a channel. */
extern void le_hear(le_session *s, const char *channel);
/* Makes the observers of a channel read changes at once; NULL = all observers. */
extern void le_observers_due(le_session *s, const char *channel);

#endif /* LE_CLIENT_DUE_H */
