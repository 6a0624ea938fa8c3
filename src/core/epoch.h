/*
 * core/epoch.h
 *		Counters by which sessions can tell, without a request, that a lock is
 *		no longer held.
 *
 * LeEnv.epochs are LE_EPOCHS counters, each for the names with some hash.  A counter
 * is raised when a holder of such a name ends, lapses, or gets another TTL, and all are
 * raised when a core is created; none is ever 0.  The reply about a grant contains its
 * epoch.  If a session later finds that epoch unchanged, the lock is still held, by all
 * that the core has applied so far.
 *
 * Names share an epoch: it may be raised because of another name.
 *
 * One more, LE_EPOCH_LOSSES, is raised when anything on a lease ends that its client did not
 * ask for.  If a client that was told the news of a lease finds it unchanged, nothing of what
 * the lease held then has been lost since.
 */
#ifndef LE_EPOCH_H
#define LE_EPOCH_H

#define LE_EPOCHS       4096
#define LE_EPOCH_LOSSES LE_EPOCHS
#define LE_EPOCH_WORDS  (LE_EPOCHS + 1)

#endif /* LE_EPOCH_H */
