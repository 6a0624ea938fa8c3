/*
 * backend/look.h
 *		A session reads the pages of the live state.
 */
#ifndef LE_BACKEND_LOOK_H
#define LE_BACKEND_LOOK_H

#include "shared/look.h"

/* Call back for every named lease. */
typedef void (*LeLookLeaseCallback)(void *arg, const LeLookLease *lease);
extern void le_look_leases(LeLookLeaseCallback callback, void *arg);

/* Call back for every holder and waiter of all locks, or of the one with this name. */
typedef void (*LeLookCallback)(void *arg, const LeLookItem *item);
extern void le_look(LeKind kind, LeText name, LeLookCallback callback, void *arg);

#endif /* LE_BACKEND_LOOK_H */
