/*
 * backend/durability.h
 *		A session waits until an answer is as durable as synchronous_commit
 *		asks for.
 */
#ifndef LE_DURABILITY_H
#define LE_DURABILITY_H

#include "core/command.h"

/* Do this session's requests have to be flushed before they are answered? */
extern bool le_needs_flush(void);
/* Do they have to be on a standby, if there are synchronous ones? */
extern bool le_needs_standby(void);

/* Does a release wait until it is flushed, or on a standby?  If not, nobody waits for it. */
extern bool le_release_waits(void);

/* lock_election.min_durability = remote: 57P03 for what needs a synchronous standby while none is defined. */
extern void le_check_standby_defined(LeCommandType type);

/*
 * Wait until this reply is as durable as synchronous_commit asks for, then check
 * that the lease has not ended meanwhile.  If it has, le_durable_in_time() answers
 * false and le_wait_durable() raises LE001 for this name.  A wait that is cancelled
 * is an error.  A renewal counts on this server all the same; its caller does not
 * count on it.
 */
extern bool le_durable_in_time(const LeReply *reply);
extern void le_wait_durable(const LeReply *reply, const char *what, LeText name);

/*
 * Have the synchronous standbys confirmed this LSN by then, as far as synchronous_commit asks for that?
 * Waits until they have, or until that moment of le_clock().
 */
extern bool le_confirmed_by(uint64_t lsn, LeTime until);

/* What is left now of the time that this reply tells: microseconds, or LE_NEVER. */
extern LeTime le_valid_for(const LeReply *reply);

/*
 * The same for the releases of a commit, which rest on this LSN; 0: on none.  May not
 * fail: the transaction is committed.  A wait that is cancelled ends with PostgreSQL's
 * warning.
 */
extern void le_wait_durable_commit(uint64_t lsn);

/*
 * A warning after the commit, when an error would be a PANIC.  One comes where a
 * text, such as the name of the procedure that commits, has characters that the
 * client's encoding has not: then the warning is in the log alone.
 */
extern void le_warn_committed(int sqlstate, const char *message, const char *detail, const char *hint);

#endif /* LE_DURABILITY_H */
