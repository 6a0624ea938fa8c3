/*
 * backend/statement.h
 *		The statements of this session: which queries and utility commands
 *		are under way, and what comes before and after in the transaction.
 */
#ifndef LE_STATEMENT_H
#define LE_STATEMENT_H

#include "executor/execdesc.h"

/* From _PG_init; once per process. */
extern void le_statement_init(void);

/* How many utility commands are under way. */
extern int le_utility_nesting;

/* A query that the executor runs, and those around it. */
typedef struct LeRunningQuery
{
	QueryDesc *desc;
	bool finishing; /* has read all; its AFTER triggers run */
	struct LeRunningQuery *outer;
} LeRunningQuery;

/* The innermost; NULL: none. */
extern LeRunningQuery *le_running_query;

/* Has a statement of the client run before this one in the same transaction; and one with a snapshot? */
extern bool le_transaction_has_run;
extern bool le_transaction_has_snapshot;

/*
 * Has the client bound a statement that reads tables, and not run it yet?  Such a
 * statement runs with the snapshot of its binding.
 */
extern bool le_bound_statement_reads(void);

/* This statement has warned the client of an old snapshot already. */
extern bool le_statement_warned;

/* Does the statement read tables?  Those that it inserts into do not count. */
extern bool le_statement_reads(const PlannedStmt *stmt);

/*
 * Does the transaction certainly end with the client's statement that is running
 * now?  Not certain, so false: the statement of a portal, unless the client's Sync
 * has come already, and a process without a client.
 */
extern bool le_transaction_ends_here(void);

#endif /* LE_STATEMENT_H */
