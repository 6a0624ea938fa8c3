/*
 * sql/sql.h
 *		Declarations shared by the files that implement SQL functions.
 */
#ifndef LE_SQL_H
#define LE_SQL_H

#include "fmgr.h"
#include "nodes/execnodes.h"

#include "core/command.h"

/*
 * A row that a function returns.  It is initialized with {0}, and its columns are added in the order in which
 * SQL declares them.  If newer SQL declares more columns, they are NULL.
 */
#define LE_TUPLE_COLUMNS 32

typedef struct LeTuple
{
	int n;
	Datum values[LE_TUPLE_COLUMNS];
	bool nulls[LE_TUPLE_COLUMNS];
} LeTuple;

/* Adds the next column. */
extern void le_tuple_add(LeTuple *tuple, Datum value);
/* Adds a column that is NULL if "given" is false. */
extern void le_tuple_add_if(LeTuple *tuple, bool given, Datum value);
/* Add a column that is NULL if there is no text. */
extern void le_tuple_add_text(LeTuple *tuple, LeText text);
extern void le_tuple_add_string(LeTuple *tuple, const char *string);

/* Return the row as the function's result, or add the row to the function's result set. */
extern Datum le_tuple_datum(FunctionCallInfo fcinfo, LeTuple *tuple);
extern void le_tuple_put(ReturnSetInfo *rsinfo, LeTuple *tuple);

/* Raises an error if the status of this reply is an error for every command. */
extern void le_check_reply(const LeCommand *cmd, const LeReply *reply);

/*
 * Issues a notice that two calls with the same owner hold this lock.  Each caller may believe that it holds
 * the lock alone.
 */
extern void le_notice_shared_owner(const LeCommand *cmd);

/*
 * Returns the detail of an error LE001: how cmd's token ended and, if the caller may see it, who holds the
 * lock now.  Sends a request and catches errors, so it must not be called within ereport().
 */
extern char *le_lost_detail(const LeCommand *cmd, const LeReply *reply);
/* Raises LE001 for a token that is neither held nor queued, or that was evicted. */
extern void le_raise_lost_token(const LeCommand *cmd, const LeReply *reply);
/* Returns the detail of LE001 for a wait that ended before its caller got a token. */
extern const char *le_lost_wait_detail(const LeReply *reply);
/* Returns the detail of LE001 for a named lease, or NULL if nothing is known about it. */
extern char *le_lost_lease_detail(const LeCommand *cmd, const LeReply *reply);

/*
 * Returns whether the caller may see owner, token and connection of a holder with this role.  The caller
 * needs membership in the role or in pg_read_all_stats.
 */
extern bool le_may_see_details(Oid role);

/* Raises 42501, because the lease belongs to another role. */
extern void le_raise_other_lease(int64 lease);

/*
 * Calls le_wait_durable() without a deadline.  The holder must be fenced or have ended already, so that it
 * cannot expire during the wait.
 */
extern void le_wait_durable_fenced(const LeCommand *cmd, LeReply *reply);

/* Returns whether this release may take effect at once, instead of at the commit. */
extern bool le_release_is_final(FunctionCallInfo fcinfo);

/* The kinds of acquires, with the order of arguments.  Only functions with six arguments have "wait". */
typedef enum LeAsk
{
	LE_ASK_LOCK,   /* name, ttl, [wait,] mode, owner, lease */
	LE_ASK_LOCKS,  /* names, ttl, [wait,] mode, owner, lease */
	LE_ASK_PERMIT, /* name, permits, ttl, [wait,] owner, lease */
	LE_ASK_LEADER  /* election, candidate, ttl, [wait,] owner, lease */
} LeAsk;

/* Reads the first argument, and sets the command's kind. */
extern void le_arg_names_of(FunctionCallInfo fcinfo, LeAsk ask, LeCommand *cmd);

/* Reads all arguments of an acquire into an empty command. */
extern void le_arg_ask(FunctionCallInfo fcinfo, LeAsk ask, LeCommand *cmd);

/*
 * Sends an ACQUIRE or AWAIT and waits for the grant, without this statement's snapshot if possible.  Returns
 * whether the snapshot was given up.  On return, the grant or place is durable.
 */
extern bool le_wait_for(FunctionCallInfo fcinfo, LeCommand *cmd, LeReply *reply);

/* Implement the SQL functions that acquire locks, and those that enter queues. */
extern Datum le_acquire(FunctionCallInfo fcinfo, LeAsk ask);
extern Datum le_enqueue(FunctionCallInfo fcinfo, LeAsk ask);

/* Implements await_lock(), await_locks() and await_leadership(): name or names, token, wait. */
extern Datum le_await(FunctionCallInfo fcinfo, LeAsk ask);

/*
 * Implement the SQL functions that locks and elections have in common.  Each reads the arguments of its SQL
 * function, which begin with name and token, or election and term.  Only le_release() gets them in cmd.
 */
extern Datum le_renew(FunctionCallInfo fcinfo, LeKind kind);
extern Datum le_release(FunctionCallInfo fcinfo, LeCommand *cmd);
extern Datum le_held(FunctionCallInfo fcinfo, LeKind kind);
extern Datum le_fence(FunctionCallInfo fcinfo, LeKind kind);
extern Datum le_evict(FunctionCallInfo fcinfo, LeKind kind);
extern Datum le_force(FunctionCallInfo fcinfo, LeKind kind);

/*
 * Issues a warning after a grant if the transaction continues to read with a snapshot that is older than the
 * grant.  Must not be called if the wait gave up its snapshot.
 */
extern void le_warn_old_snapshot(FunctionCallInfo fcinfo, const LeCommand *cmd, const LeReply *reply);

/*
 * Returns whether the caller may change the holds of cmd's name.  The caller needs membership in
 * pg_signal_backend, or in the roles of all holders.  In the first case sets cmd->any_role, otherwise writes
 * those roles that the caller has to cmd->value.
 */
extern bool le_may_manage(LeCommand *cmd);

#endif /* LE_SQL_H */
