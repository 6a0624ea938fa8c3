/*
 * le_hints.h
 *		The manager's side of the hints for those who wait outside of the
 *		server, and the names of the channels.
 */
#ifndef LE_HINTS_H
#define LE_HINTS_H

#include "le_shmem.h"

/* "le_" and 32 hexadecimal digits */
#define LE_CHANNEL_SIZE (3 + 32 + 1)

/*
 * The channel of a lock or an election: the same for the same name for ever,
 * so that a client can compute it, too.  It is "le_" and the first 32
 * hexadecimal digits of the SHA-256 of "lock " or "election " and the name.
 */
extern void le_channel_name(LeKind ns, LeText name, char *channel);

/* What is said of a change: "elected", "resigned", ... */
extern const char *le_how_name(LeHow how);

/* --- in the manager --- */

extern void le_hints_init(LeDatabase *db);

/* The batch is committed: announce what it granted.  Never fails or waits. */
extern void le_hints_of_batch(LeCore *core);

/*
 * See to it that a notifier runs if there is something to send.  Returns when
 * to look again, as le_clock() tells.
 */
extern LeTime le_hints_tend(void);

/* The manager leaves, and so does its notifier. */
extern void le_hints_leave(void);

#endif /* LE_HINTS_H */
