/*
 * core/epoch.h
 *		Counters by which a session can check, without a request, that its lock is still
 *		held.
 *
 * LeEnv.epochs has LE_EPOCHS counters.  The hash of a name determines which counter is the *epoch*
 * of the name.  An epoch is incremented when a holder of one of its names ends, lapses, or gets
 * another TTL.  All counters are incremented when a core is created.  No counter is ever 0.  The
 * reply about a grant contains the epoch of the name.  If a session later finds the epoch
 * unchanged, nothing that the core has applied so far has ended the hold.
 *
 * Several names share an epoch, so the epoch of a name may be incremented because of another name.
 *
 * One more counter, LE_EPOCH_LOSSES, is incremented when an entry on a lease ends without a
 * request from its client.  If a client finds this counter unchanged since it read the news
 * of its lease, nothing on the lease has been lost since then.
 */
#ifndef LE_EPOCH_H
#define LE_EPOCH_H

#include "objects.h"

#define LE_EPOCHS       4096
#define LE_EPOCH_LOSSES LE_EPOCHS
#define LE_EPOCH_WORDS  (LE_EPOCHS + 1)

/* --- for the core alone --- */

/* Increments the epoch of this hash, so that sessions no longer rely on remembered grants of its names. */
extern void le_epoch_raise(LeCore *core, uint32_t hash);
/* Increments the epoch of losses, because an entry on a lease has ended without a request from its client. */
extern void le_epoch_raise_losses(LeCore *core);
/* Increments the epochs of all names, and that of losses. */
extern void le_epoch_raise_all(LeCore *core);
/* Sets the epoch of the entry's name in the reply if the entry is HELD. */
extern void le_epoch_reply(const LeCore *core, LeReply *reply, const LeEntry *entry);

#endif /* LE_EPOCH_H */
