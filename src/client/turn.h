/*
 * turn.h
 *		Turns.  Locked at entry and exit, not in between.
 */
#ifndef LE_CLIENT_TURN_H
#define LE_CLIENT_TURN_H

#include "types.h"

/* Runs a turn. */
extern void le_turn(le_session *s);
/*
 * Called after something was queued.  Runs a turn if the connection is free;
 * otherwise another thread will do so.
 */
extern void le_turn_join(le_session *s);

#endif /* LE_CLIENT_TURN_H */
