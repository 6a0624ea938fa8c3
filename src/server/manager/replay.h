/*
 * manager/replay.h
 *		Serves mailboxes, and repeats a failed batch mailbox by mailbox.
 */
#ifndef LE_MANAGER_REPLAY_H
#define LE_MANAGER_REPLAY_H

/*
 * Serves these mailboxes in one or more batches. procs must have room for all mailboxes.  Must not fail,
 * because these sessions get no other reply: if a request cannot be written, its reply is the error.
 */
extern void le_serve(uint32 *procs, int n);

#endif /* LE_MANAGER_REPLAY_H */
