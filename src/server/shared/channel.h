/*
 * shared/channel.h
 *		Computes the names of the channels on which hints are sent.
 */
#ifndef LE_CHANNEL_H
#define LE_CHANNEL_H

#include "core/command.h"

/* "le_" and 32 hexadecimal digits */
#define LE_CHANNEL_SIZE (3 + 32 + 1)

/*
 * Computes the name of the channel of a lock or an election: "le_" and the first 32 hexadecimal digits of the
 * SHA-256 of "lock " or "election " and the name, in the database's encoding.  Clients can compute it, too.
 */
extern void le_channel_name(LeKind kind, LeText name, char *channel);

/*
 * Computes the name of the channel on which the client of a lease is notified of news.  The name cannot be
 * guessed, and changes whenever the server starts.
 */
extern void le_channel_of_lease(int64_t lease, char *channel);

#endif /* LE_CHANNEL_H */
