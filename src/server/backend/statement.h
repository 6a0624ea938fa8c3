/*
 * backend/statement.h
 *		Tracks the statements of this session: which queries and utility commands are running, and whether
 *		other statements come before or after them in the transaction.
 */
#ifndef LE_STATEMENT_H
#define LE_STATEMENT_H

#include "executor/execdesc.h"

/* Installs hooks and callbacks.  Called by _PG_init(). */
extern void le_statement_init(void);

/* Nesting depth of the utility commands that are running; 0 = none. */
extern int le_utility_nesting;

/* A query that the executor is running. */
typedef struct LeRunningQuery
{
	QueryDesc *desc;
	bool finishing; /* all rows have been read, and its AFTER triggers are running */
	struct LeRunningQuery *outer;
} LeRunningQuery;

/* The innermost running query, or NULL. */
extern LeRunningQuery *le_running_query;

/*
 * whether an earlier statement of the client has run in this transaction, and whether any such statement used
 * a snapshot
 */
extern bool le_transaction_has_run;
extern bool le_transaction_has_snapshot;

/*
 * Returns whether the client has bound a statement that reads tables, but has not run it yet.  Such a
 * statement runs with the snapshot that was taken when it was bound.
 */
extern bool le_bound_statement_reads(void);

/* whether the client was already warned about an old snapshot in this statement */
extern bool le_statement_warned;

/* Returns whether the statement reads tables.  Tables that it only inserts into do not count. */
extern bool le_statement_reads(const PlannedStmt *stmt);

/*
 * Returns whether the transaction certainly ends with the client's current statement.  Returns false for a
 * statement of the extended protocol, unless the client's Sync has already arrived, and in a process without
 * a client.
 */
extern bool le_transaction_ends_here(void);

#endif /* LE_STATEMENT_H */
