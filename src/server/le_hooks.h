/*
 * le_hooks.h
 *		What lock_election sees of the commands of a session.
 */
#ifndef LE_HOOKS_H
#define LE_HOOKS_H

#include "executor/execdesc.h"

/* From _PG_init; once per process. */
extern void le_hooks_init(void);

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

/* Has this transaction, or a subtransaction of it that lives, created the extension? */
extern bool le_created_in_this_transaction(void);

#endif /* LE_HOOKS_H */
