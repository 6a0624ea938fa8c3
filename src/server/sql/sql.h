/*
 * sql/sql.h
 *		What the files of SQL functions share.
 */
#ifndef LE_SQL_H
#define LE_SQL_H

#include "fmgr.h"
#include "nodes/execnodes.h"

#include "core/command.h"

/*
 * A row that a function returns.  It begins empty ({0}); columns are added in the order that SQL declares.
 * Columns that newer SQL expects beyond them are NULL.
 */
#define LE_TUPLE_COLUMNS 32

typedef struct LeTuple
{
	int n;
	Datum values[LE_TUPLE_COLUMNS];
	bool nulls[LE_TUPLE_COLUMNS];
} LeTuple;

/* The next column. */
extern void le_tuple_add(LeTuple *tuple, Datum value);
/* The column is NULL unless the value is given. */
extern void le_tuple_add_if(LeTuple *tuple, bool given, Datum value);
/* The column is NULL where there is no text. */
extern void le_tuple_add_text(LeTuple *tuple, LeText text);
extern void le_tuple_add_string(LeTuple *tuple, const char *string);

/* The row as the function's result, and as one row of its set. */
extern Datum le_tuple_datum(FunctionCallInfo fcinfo, LeTuple *tuple);
extern void le_tuple_put(ReturnSetInfo *rsinfo, LeTuple *tuple);

/* Raise the error of this answer, if it is an error whatever was asked. */
extern void le_check_reply(const LeCommand *cmd, const LeReply *reply);

/* A notice: two calls that name one owner hold this lock together. */
extern void le_notice_shared_owner(const LeCommand *cmd);

/*
 * The detail of LE001: what has become of the token that cmd came with, and
 * who holds the lock now, as far as the caller may know it.  Asks the manager,
 * so not within ereport(): an error there is caught.
 */
extern char *le_lost_detail(const LeCommand *cmd, const LeReply *reply);
/* Error LE001 of a token that neither holds nor waits, or was evicted. */
extern void le_raise_lost_token(const LeCommand *cmd, const LeReply *reply);
/* The same of a wait that has ended before it had a token. */
extern const char *le_lost_wait_detail(const LeReply *reply);
/* The same of a named lease; NULL: nothing is known. */
extern char *le_lost_lease_detail(const LeCommand *cmd, const LeReply *reply);

/* Members of the role, and of pg_read_all_stats: owner, token and connection are for them. */
extern bool le_may_see_details(Oid role);

/* 42501: that lease belongs to another role. */
extern void le_raise_other_lease(int64 lease);

/* le_wait_durable() for a holder that nothing can end meanwhile, or that has ended. */
extern void le_wait_durable_fenced(const LeCommand *cmd, LeReply *reply);

/* May this release take effect at once?  Nothing of the transaction can follow it. */
extern bool le_release_is_final(FunctionCallInfo fcinfo);

/* The kinds of an acquire, with the order of their arguments.  Functions with six arguments have "wait". */
typedef enum LeAsk
{
	LE_ASK_LOCK,   /* name, ttl, [wait,] mode, owner, lease */
	LE_ASK_LOCKS,  /* names, ttl, [wait,] mode, owner, lease */
	LE_ASK_PERMIT, /* name, permits, ttl, [wait,] owner, lease */
	LE_ASK_LEADER  /* election, candidate, ttl, [wait,] owner, lease */
} LeAsk;

/* Reads the first argument, and with it which kind the command is for. */
extern void le_arg_names_of(FunctionCallInfo fcinfo, LeAsk ask, LeCommand *cmd);

/* Reads all arguments of an acquire into an empty command. */
extern void le_arg_ask(FunctionCallInfo fcinfo, LeAsk ask, LeCommand *cmd);

/*
 * Send an ACQUIRE or AWAIT and wait for its grant, if it says so without the
 * snapshot of this statement; returns whether that was given up.  The grant, or
 * the place, is durable; errors are raised.
 */
extern bool le_wait_for(FunctionCallInfo fcinfo, LeCommand *cmd, LeReply *reply);

/* Acquire, or enter the queue: all of an SQL function, with its answer. */
extern Datum le_acquire(FunctionCallInfo fcinfo, LeAsk ask);
extern Datum le_enqueue(FunctionCallInfo fcinfo, LeAsk ask);

/* await_lock() and the like: name or names, token, wait. */
extern Datum le_await(FunctionCallInfo fcinfo, LeAsk ask);

/*
 * What locks and elections have in common.  They read their arguments, which begin
 * with name and token, or election and term; but le_release() finds them read.
 */
extern Datum le_renew(FunctionCallInfo fcinfo, LeKind kind);
extern Datum le_release(FunctionCallInfo fcinfo, LeCommand *cmd);
extern Datum le_held(FunctionCallInfo fcinfo, LeKind kind);
extern Datum le_fence(FunctionCallInfo fcinfo, LeKind kind);
extern Datum le_evict(FunctionCallInfo fcinfo, LeKind kind);
extern Datum le_force(FunctionCallInfo fcinfo, LeKind kind);

/*
 * After a grant: warn if what follows reads with a snapshot that is older.  Not
 * after a wait that gave its snapshot up.
 */
extern void le_warn_old_snapshot(FunctionCallInfo fcinfo, const LeCommand *cmd, const LeReply *reply);

/*
 * May the caller change the holds of cmd's name?  Members of pg_signal_backend may
 * (cmd->any_role), and members of all holders' roles, which go into cmd->value.
 */
extern bool le_may_manage(LeCommand *cmd);

#endif /* LE_SQL_H */
