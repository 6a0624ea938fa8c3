/*
 * backend/durability.h
 *		Makes a session wait until a reply is as durable as synchronous_commit requires.
 */
#ifndef LE_DURABILITY_H
#define LE_DURABILITY_H

#include "core/command.h"

/* Returns whether this session's requests need a flush of the WAL before they return. */
extern bool le_needs_flush(void);
/* Returns whether this session's requests also wait for synchronous standbys, if there are any. */
extern bool le_needs_standby(void);

/* Returns whether a release needs a flush or a standby's confirmation before its call or commit returns. */
extern bool le_release_waits(void);

/*
 * Raises 57P03 if lock_election.min_durability = remote, a command of this type needs a synchronous standby,
 * and none is defined.
 */
extern void le_check_standby_defined(LeCommandType type);

/*
 * Wait until this reply is as durable as synchronous_commit requires, then check whether the lease has
 * expired meanwhile.  If it has expired, le_durable_in_time() returns false and le_wait_durable() raises
 * LE001 for this name.  If the wait is cancelled, both raise an error; a renewal then remains in effect on
 * this server, but its caller must not rely on it.
 */
extern bool le_durable_in_time(const LeReply *reply);
extern void le_wait_durable(const LeReply *reply, const char *what, LeText name);

/*
 * Waits until the synchronous standbys have confirmed this LSN at the level of synchronous_commit, or until
 * the given time of le_clock().  Returns whether they have confirmed it, or no confirmation is required.
 */
extern bool le_confirmed_by(uint64_t lsn, LeTime until);

/* Returns the remaining validity that this reply grants, in microseconds, or LE_NEVER. */
extern LeTime le_valid_for(const LeReply *reply);

/*
 * Waits until the releases of a commit are as durable as synchronous_commit requires.  lsn: the LSN that must
 * become durable; 0 = none.  Must not fail, because the transaction has committed.  If the wait is cancelled,
 * issues the same warning as PostgreSQL does at a commit.
 */
extern void le_wait_durable_commit(uint64_t lsn);

/*
 * Issues a warning after a commit, where an error would become a PANIC.  If the warning contains characters
 * that do not exist in the client's encoding, for example in the name of the procedure that commits, it is
 * only logged.
 */
extern void le_warn_committed(int sqlstate, const char *message, const char *detail, const char *hint);

#endif /* LE_DURABILITY_H */
