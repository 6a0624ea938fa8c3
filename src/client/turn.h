/*
 * turn.h
 *		Runs turns.  The session's mutex is held at entry and exit, but not
 *		during the call of the server.
 */
#ifndef LE_CLIENT_TURN_H
#define LE_CLIENT_TURN_H

#include "types.h"

/* Runs a turn: one call of lease_sync(). */
extern void le_turn(le_session *s);
/*
 * Called after something was queued.  Runs a turn if the connection is free;
 * otherwise the session thread will run one.
 */
extern void le_turn_join(le_session *s);

#endif /* LE_CLIENT_TURN_H */
