/*
 * backend/durability.h
 *		Makes a session wait until a reply is as durable as synchronous_commit asks for.
 */
#ifndef LE_DURABILITY_H
#define LE_DURABILITY_H

#include "core/command.h"

/* Must this session's requests be flushed before they are answered? */
extern bool le_needs_flush(void);
/* Must they be on a standby, if there are synchronous ones? */
extern bool le_needs_standby(void);

/* Must a release be flushed, or confirmed by a standby, before its call or commit returns? */
extern bool le_release_waits(void);

/*
 * With lock_election.min_durability = remote, raises 57P03 if a command of this type needs a
 * synchronous standby and none is defined.
 */
extern void le_check_standby_defined(LeCommandType type);

/*
 * Wait until this reply is as durable as synchronous_commit asks for, then check that the lease has
 * not expired meanwhile.  If it has, le_durable_in_time() returns false and le_wait_durable()
 * raises LE001 for this name.  A cancelled wait raises an error.  A renewal remains in effect on
 * this server all the same, but its caller must not rely on it.
 */
extern bool le_durable_in_time(const LeReply *reply);
extern void le_wait_durable(const LeReply *reply, const char *what, LeText name);

/*
 * Waits until the synchronous standbys have confirmed this LSN, as far as synchronous_commit asks
 * for that, or until that moment of le_clock().  Returns whether they have.
 */
extern bool le_confirmed_by(uint64_t lsn, LeTime until);

/* Returns what is left now of the validity that this reply grants: microseconds, or LE_NEVER. */
extern LeTime le_valid_for(const LeReply *reply);

/*
 * Does the same for the releases of a commit, which depend on this LSN; 0 = on none.  Must not
 * fail: the transaction is committed.  A cancelled wait ends with PostgreSQL's warning.
 */
extern void le_wait_durable_commit(uint64_t lsn);

/*
 * Issues a warning after the commit, where an error would become a PANIC.  Such an error can occur
 * if a text, such as the name of the procedure that commits, has characters that do not exist in
 * the client's encoding; then the warning goes only to the log.
 */
extern void le_warn_committed(int sqlstate, const char *message, const char *detail, const char *hint);

#endif /* LE_DURABILITY_H */
