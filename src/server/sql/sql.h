/*
 * sql/sql.h
 *		What the files of SQL functions share.
 */
#ifndef LE_SQL_H
#define LE_SQL_H

#include "fmgr.h"

#include "core/core.h"

/* Raises the error that this answer is, if it is one whatever was asked. */
extern void le_check_reply(const LeCommand *cmd, const LeReply *reply);

extern void le_raise_other_lease(int64 lease);

/* A lease to hang on, 0 if null; LE001 where there can be none. */
extern int64 le_lease_arg(FunctionCallInfo fcinfo, int number);

/*
 * A release that waits for the commit; false: not held.  And whether one is to
 * take effect at once.
 */
extern bool le_release_at_commit(LeCommand *cmd);
extern bool le_release_is_final(FunctionCallInfo fcinfo);
extern bool le_release_now(LeCommand *cmd);

/* Acquire as cmd says; the answer of the SQL function: the token, or NULL. */
extern Datum le_acquire(FunctionCallInfo fcinfo, LeCommand *cmd);

/*
 * What locks and elections have in common, by the first arguments of both: name
 * and token, or election and term.  Of le_release(), le_enqueue() and le_force()
 * the caller reads the arguments.
 */
extern Datum le_renew(FunctionCallInfo fcinfo, LeKind kind);
extern Datum le_release(FunctionCallInfo fcinfo, LeCommand *cmd);
extern Datum le_held(FunctionCallInfo fcinfo, LeKind kind);
extern Datum le_fence(FunctionCallInfo fcinfo, LeKind kind);
extern Datum le_enqueue(FunctionCallInfo fcinfo, LeCommand *cmd);
extern Datum le_await(FunctionCallInfo fcinfo, LeKind kind);
extern int64 le_force(LeKind kind, LeText name);

/* A wait has ended with a grant, and the statement reads with what is older. */
extern void le_warn_old_snapshot(const LeCommand *cmd);

/*
 * May the caller end, or change, what the holders of this name have?  Members
 * of pg_signal_backend may, and members of all holders' roles.
 */
extern bool le_may_manage(LeKind kind, LeText name);

#endif /* LE_SQL_H */
