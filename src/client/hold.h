/*
 * hold.h
 *		Waits for holds.
 */
#ifndef LE_CLIENT_HOLD_H
#define LE_CLIENT_HOLD_H

#include "types.h"

/* Waits until the hold is no longer WAITING, at most until the given time (ns of le_now_ns()). */
extern le_status le_hold_wait(le_hold *hold, int64_t until, le_error *error);

#endif /* LE_CLIENT_HOLD_H */
