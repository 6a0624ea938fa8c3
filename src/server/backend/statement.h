/*
 * backend/statement.h
 *		Tracks the statements of this session: which queries and utility commands are running, and
 *		what comes before and after them in the transaction.
 */
#ifndef LE_STATEMENT_H
#define LE_STATEMENT_H

#include "executor/execdesc.h"

/* Called from _PG_init, once per process. */
extern void le_statement_init(void);

/* Nesting depth of the utility commands that are running. */
extern int le_utility_nesting;

/* A query that the executor is running, and those around it. */
typedef struct LeRunningQuery
{
	QueryDesc *desc;
	bool finishing; /* all rows are read; its AFTER triggers run */
	struct LeRunningQuery *outer;
} LeRunningQuery;

/* The innermost running query, or NULL. */
extern LeRunningQuery *le_running_query;

/* Has an earlier statement of the client run in this transaction, and one with a snapshot? */
extern bool le_transaction_has_run;
extern bool le_transaction_has_snapshot;

/*
 * Has the client bound a statement that reads tables, but not run it yet?  Such a statement runs
 * with the snapshot that was taken when it was bound.
 */
extern bool le_bound_statement_reads(void);

/* Has this statement already warned the client about an old snapshot? */
extern bool le_statement_warned;

/* Does the statement read tables?  Tables that it only inserts into do not count. */
extern bool le_statement_reads(const PlannedStmt *stmt);

/*
 * Is it certain that the transaction ends with the client's current statement?  It is not for the
 * statement of a portal, unless the client's Sync has already arrived, nor in a process without a
 * client.
 */
extern bool le_transaction_ends_here(void);

#endif /* LE_STATEMENT_H */
