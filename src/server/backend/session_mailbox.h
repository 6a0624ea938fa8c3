/*
 * backend/session_mailbox.h
 *		Attaches a session to its mailbox in shared memory, and sends mail.
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
 * Takes this backend's mailbox, unless the backend already has it.  Returns LE_WAIT_OVER if the caller's wait
 * ended before the manager had processed the mail of the mailbox's previous session.  Errors: 53400 if more
 * than lock_election.max_databases databases would be in use; 57P03 if no manager is running to process that
 * mail; the manager's own error if it cannot process the mail.
 */
extern LeWaitEnd le_attach(LeWait *wait);

/* This backend's mailbox; NULL = not attached. */
extern LeMailbox *le_my_mailbox;
/* Returns the entry of this backend's database.  The backend must be attached. */
extern LeDatabase *le_my_database(void);

/*
 * Ends this session for DISCARD ALL, and with it the locks that are bound to the connection.  The
 * connection's next request begins a new session.
 */
extern void le_session_reset(void);

/*
 * Send mail to the manager.  le_mail_undo() undoes all acquires of this transaction with number "first" or
 * higher; le_mail() raises a flag, LE_MAIL_*.  Must not fail, because aborts call these functions.
 */
extern void le_mail_undo(uint32 xact, uint32 first);
extern void le_mail(uint32 flag);

#endif /* LE_SESSION_MAILBOX_H */
