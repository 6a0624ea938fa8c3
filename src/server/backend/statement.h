/*
 * statement.h
 *		The statements of this session: which queries and utility commands
 *		are under way.
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

#endif /* LE_STATEMENT_H */
