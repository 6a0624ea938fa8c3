/*
 * backend/session_mailbox.h
 *		A session's mailbox in shared memory.
 */
#ifndef LE_SESSION_MAILBOX_H
#define LE_SESSION_MAILBOX_H

#include "backend/wait.h"
#include "shared/shmem.h"

/*
 * Can this backend use locks at all?  Errors: 55000 library not preloaded,
 * extension created in this transaction; 25006 on a standby.
 */
extern void le_check_can_attach(void);

/*
 * Take this backend's mailbox, or make sure that it has one.  LE_WAIT_OVER: the caller's
 * own wait has ended before what the session before has left there was read.
 * Errors: 53400 more than lock_election.max_databases databases; 57P03 there is
 * no manager to read it; what keeps the manager from it.
 */
extern LeWaitEnd le_attach(LeWait *wait);

/* This backend's mailbox; NULL while not attached. */
extern LeMailbox *le_my_mailbox;
/* The entry of its database; it is attached. */
extern LeDatabase *le_my_database(void);

/* DISCARD ALL: this connection's locks end, and it is another session. */
extern void le_session_reset(void);

/*
 * Mail to the manager.  May not fail: called by aborts.  Undo all acquires of this
 * transaction from that number on; and raise a flag, LE_MAIL_*.
 */
extern void le_mail_undo(uint32 xact, uint32 first);
extern void le_mail(uint32 flag);

#endif /* LE_SESSION_MAILBOX_H */
