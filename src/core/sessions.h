/*
 * core/sessions.h
 *		Keeps the entries and waits of each session, and ends sessions.
 */
#ifndef LE_SESSIONS_H
#define LE_SESSIONS_H

#include "objects.h"

/* Returns the entry that this session's blocked call waits for; NULL = none. */
extern LeEntry *le_core_waiting_on(const LeCore *core, uint64_t session, uint32_t sessno);
/* Returns the number of entries that are bound to this session. */
extern uint32_t le_core_bound_to(const LeCore *core, uint64_t session, uint32_t sessno);

/*
 * Ends the wait of this session's call, which already got its reply.  A place stays; any other entry
 * ends.  Must not fail.
 */
extern void le_core_stop_waiting(LeCore *core, uint64_t session, uint32_t sessno, LeTime now);

/* Returns whether this session has no wait and no bound entry, so that its end would change no lock. */
extern bool le_core_end_is_quiet(const LeCore *core, uint64_t session, uint32_t sessno);

/* Returns whether this UNDO would end a hold or a place, rather than only a wait. */
extern bool le_core_has_to_undo(const LeCore *core, const LeCommand *cmd);

/*
 * Returns whether this session has at least LE_FEW entries and holds.  If so, the end of the session
 * or of its transaction is heavy.
 */
extern bool le_core_end_is_heavy(const LeCore *core, uint64_t session, uint32_t sessno);

/* --- for the core alone --- */

typedef struct LeSession LeSession; /* core/state.h */

/*
 * Records a request of this session in this transaction.  The request implies that an older session
 * with the same sessno, and an older transaction of the same session, have ended.  Returns the
 * session.
 */
extern LeSession *le_session_touch(LeCore *core, uint64_t session, uint32_t sessno, uint32_t xact,
								   LeTime now);
/* Makes the session's call wait for this entry. */
extern void le_session_wait(LeSession *session, LeEntry *entry, const LeCommand *cmd, LeTime now);
/*
 * le_held_by_session() returns whether the session has a slot of this lock. le_newest_of_session()
 * returns the newest holder of the session in this lock that has not ended; NULL = none.
 */
extern bool le_held_by_session(const LeCore *core, const LeLock *lock, const LeCommand *cmd);
extern LeEntry *le_newest_of_session(const LeCore *core, const LeCommand *cmd);

/* Apply the commands. */
extern void le_apply_undo(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply);
extern void le_apply_session_end(LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply);

#endif /* LE_SESSIONS_H */
