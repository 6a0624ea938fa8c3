/*
 * state.h
 *		Changes the states of a session and of its holds.  The caller holds the
 *		session's mutex.
 */
#ifndef LE_CLIENT_STATE_H
#define LE_CLIENT_STATE_H

#include "types.h"

/* Sets the session's state, and queues the events that report it. */
extern void le_set_state(le_session *s, le_state state);
/* Ends the session and all its holds, because the lease has ended. */
extern void le_end(le_session *s, const char *sqlstate, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Ends the session if its deadline has passed.  Returns whether this call has ended it. */
extern bool le_check_deadline(le_session *s);
/* Records a renewal that was sent at sent_at and is valid for validity ns from that time. */
extern void le_renewed(le_session *s, int64_t sent_at, int64_t validity);
/* Records a failure to renew or connect.  Returns the time of the next attempt, in ns. */
extern int64_t le_failed(le_session *s, const le_error *why);
/* Sets the state that the application sees to OVER. */
extern void le_hold_over(le_hold *hold, const le_error *error);
/* Sets the state that the application sees to HELD. */
extern void le_hold_held(le_hold *hold);
/* Ends the wait of a hold if its time limit has passed. */
extern void le_hold_check_until(le_hold *hold, int64_t now);
extern int64_t le_hold_ends(const le_hold *hold); /* returns the time limit of its wait, in ns */
/* Removes a hold from the session's lists when it has neither a grant nor a place on the server. */
extern void le_hold_done(le_hold *hold);
/* Wakes up the threads that wait for the hold. */
extern void le_hold_changed(le_hold *hold);

#endif /* LE_CLIENT_STATE_H */
