/*
 * backend/session_mailbox.h
 *		A session's mailbox in shared memory.
 */
#ifndef LE_SESSION_MAILBOX_H
#define LE_SESSION_MAILBOX_H

#include "backend/wait.h"
#include "shared/shmem.h"

/*
 * Raises an error if this backend cannot use locks: 55000 if the library is not preloaded or the
 * extension was created in this transaction; 25006 on a standby.
 */
extern void le_check_can_attach(void);

/*
 * Takes this backend's mailbox, unless it has it already.  Returns LE_WAIT_OVER if the caller's own
 * wait ended before the manager had read what the previous session left in the mailbox.  Errors:
 * 53400 more than lock_election.max_databases databases; 57P03 no manager is running to read it;
 * any error that keeps the manager from reading it.
 */
extern LeWaitEnd le_attach(LeWait *wait);

/* This backend's mailbox; NULL while not attached. */
extern LeMailbox *le_my_mailbox;
/* Returns the entry of its database.  The backend must be attached. */
extern LeDatabase *le_my_database(void);

/* For DISCARD ALL: ends this connection's locks, and makes it another session. */
extern void le_session_reset(void);

/*
 * Mail to the manager.  Both must not fail: aborts call them.  le_mail_undo() undoes all acquires
 * of this transaction from that number on; le_mail() raises a flag, LE_MAIL_*.
 */
extern void le_mail_undo(uint32 xact, uint32 first);
extern void le_mail(uint32 flag);

#endif /* LE_SESSION_MAILBOX_H */
