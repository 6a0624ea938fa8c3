/*
 * statement.h
 *		The statements of this session: which queries and utility commands
 *		are under way, and what the client sends next.
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

/* A statement of the client has run before this one in the same transaction. */
extern bool le_transaction_has_run;

/*
 * Does the transaction end with the client's statement that is running now?
 * False where that is not known: for the statement of a portal, unless the
 * client's Sync has come already, and where there is no client.
 */
extern bool le_transaction_ends_here(void);

#endif /* LE_STATEMENT_H */
