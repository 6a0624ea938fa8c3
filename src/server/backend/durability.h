/*
 * backend/durability.h
 *		Makes a session wait until a reply is as durable as synchronous_commit asks for.
 */
#ifndef LE_DURABILITY_H
#define LE_DURABILITY_H

#include "core/command.h"

/* Returns whether this session's requests need a flush of the WAL before they return. */
extern bool le_needs_flush(void);
/* Returns whether they also need the confirmation of a standby, if there are synchronous standbys. */
extern bool le_needs_standby(void);

/* Returns whether a release needs a flush or a standby's confirmation before its call or commit returns. */
extern bool le_release_waits(void);

/*
 * With lock_election.min_durability = remote, raises 57P03 if a command of this type needs a
 * synchronous standby and none is defined.
 */
extern void le_check_standby_defined(LeCommandType type);

/*
 * Wait until this reply is as durable as synchronous_commit asks for, then check that the lease has not
 * expired meanwhile.  If it has, le_durable_in_time() returns false and le_wait_durable() raises LE001 for
 * this name.  A cancelled wait raises an error.  Even then a renewal remains in effect on this server, but
 * its caller must not rely on it.
 */
extern bool le_durable_in_time(const LeReply *reply);
extern void le_wait_durable(const LeReply *reply, const char *what, LeText name);

/*
 * Waits until the synchronous standbys have confirmed this LSN at the level of synchronous_commit, or until
 * the given time of le_clock().  Returns whether they have confirmed it, or need not.
 */
extern bool le_confirmed_by(uint64_t lsn, LeTime until);

/* Returns the remaining validity that this reply grants, in microseconds, or LE_NEVER. */
extern LeTime le_valid_for(const LeReply *reply);

/*
 * Waits until the releases of a commit are as durable as synchronous_commit asks for.  lsn: the LSN on which
 * they depend; 0 = none.  Must not fail, because the transaction has committed.  A cancelled wait ends with
 * PostgreSQL's warning.
 */
extern void le_wait_durable_commit(uint64_t lsn);

/*
 * Issues a warning after a commit, where an error would become a PANIC.  The warning cannot be sent if it
 * contains characters that do not exist in the client's encoding, for example in the name of the procedure
 * that commits.  Then it goes only to the log.
 */
extern void le_warn_committed(int sqlstate, const char *message, const char *detail, const char *hint);

#endif /* LE_DURABILITY_H */
