/*
 * core/epoch.h
 *		How others can tell, without asking, that a lock is held no more.
 *
 * LeEnv.epochs are LE_EPOCHS counts, each for the names with some hash.  One is
 * raised when a holder of such a name ends, lapses, or gets another TTL, and all are
 * when a core is created; none is ever 0.  A reply that tells of a holder tells its
 * epoch.  Whoever has that and finds it unchanged knows: what it was granted is held,
 * as far as the core has come.
 *
 * Names share an epoch: it may be raised for another one's sake.
 *
 * One more, LE_EPOCH_LOSSES, is raised when anything on a lease ends that its client has not
 * asked for.  Whoever has been told the news of a lease and finds it unchanged knows: nothing
 * of what the lease held then was lost since.
 */
#ifndef LE_EPOCH_H
#define LE_EPOCH_H

#define LE_EPOCHS       4096
#define LE_EPOCH_LOSSES LE_EPOCHS
#define LE_EPOCH_WORDS  (LE_EPOCHS + 1)

#endif /* LE_EPOCH_H */
