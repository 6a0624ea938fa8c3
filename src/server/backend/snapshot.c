/*
 * backend/snapshot.c
 *		Lets a call wait without a snapshot, where that is provably safe.
 *
 * While a snapshot is held, VACUUM cannot remove rows and CREATE INDEX CONCURRENTLY cannot finish, in the
 * whole database.  A statement that consists only of a call of this extension needs its snapshot only until
 * the call begins, because its arguments have been evaluated by then.
 *
 * The conditions are narrow on purpose.  A query around the call (through a function, a cursor, EXPLAIN or a
 * trigger) may continue to read with its snapshot after the wait, and would miss rows that VACUUM has removed
 * meanwhile.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_proc.h"
#include "commands/trigger.h"
#include "executor/execdesc.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "nodes/plannodes.h"
#include "nodes/primnodes.h"
#include "storage/proc.h"
#include "tcop/pquery.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"

#include "backend/snapshot.h"
#include "backend/statement.h"

/*
 * Returns true unless the function is one of PostgreSQL's own immutable functions.  Any other function may
 * read tables or call further functions.
 */
static bool
is_mutable_or_foreign(Oid function, void *context)
{
	return function >= FirstNormalObjectId || func_volatile(function) != PROVOLATILE_IMMUTABLE;
}

/*
 * Returns whether a target list applies anything other than PostgreSQL's own immutable functions to its
 * rows.  Client libraries use such functions to convert an interval to a number.
 */
static bool
computes_more(Node *node, void *context)
{
	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_List:
		case T_TargetEntry:
		case T_Var:
		case T_Const:
			break;
		case T_FuncExpr:
		case T_OpExpr:
			if (check_functions_in_node(node, is_mutable_or_foreign, context))
				return true;
			break;
		default:
			return true;
	}
	return expression_tree_walker(node, computes_more, context);
}

/* Returns whether each target is a plain column. */
static bool
are_columns(const List *targets)
{
	const ListCell *cell;

	foreach (cell, targets)
	{
		if (!IsA(lfirst_node(TargetEntry, cell)->expr, Var))
			return false;
	}
	return true;
}

/* Parts that a statement may have besides the call. */
typedef enum Beside
{
	BESIDE_NOTHING,
	BESIDE_FROM,    /* the call may be in FROM, so that its rows are sent after it has returned */
	BESIDE_COMPUTED /* the call may be in FROM, and expressions that use its rows may fail after the call */
} Beside;

/*
 * If the FROM clause is a single function call, and its rows are used only as "beside" allows, returns the
 * expression of the call.  Otherwise returns NULL.
 */
static Node *
only_function(const FunctionScan *scan, Beside beside)
{
	const RangeTblFunction *function;
	List *targets = scan->scan.plan.targetlist;

	if (scan->scan.plan.qual != NIL || scan->scan.plan.initPlan != NIL || scan->funcordinality ||
		list_length(scan->functions) != 1)
		return NULL;
	if (beside == BESIDE_COMPUTED ? computes_more((Node *) targets, NULL) : !are_columns(targets))
		return NULL;
	function = linitial_node(RangeTblFunction, scan->functions);
	return function->funcexpr;
}

/*
 * Returns the only expression of a plan.  The plan must be a single Result without input or, if "beside"
 * allows that, one function in FROM.  Returns NULL for any other plan.
 */
static Node *
only_target(const PlannedStmt *stmt, Beside beside)
{
	Plan *plan;

	if (stmt == NULL || stmt->commandType != CMD_SELECT || stmt->subplans != NIL || stmt->hasModifyingCTE ||
		stmt->rowMarks != NIL)
		return NULL;
	plan = stmt->planTree;
	if (beside != BESIDE_NOTHING && IsA(plan, FunctionScan))
		return only_function((const FunctionScan *) plan, beside);
	if (!IsA(plan, Result) || plan->lefttree != NULL || plan->righttree != NULL || plan->qual != NIL ||
		plan->initPlan != NIL || ((Result *) plan)->resconstantqual != NULL ||
		list_length(plan->targetlist) != 1)
		return NULL;
	return (Node *) linitial_node(TargetEntry, plan->targetlist)->expr;
}

/*
 * Returns whether this is the only snapshot on the stack.  Code that runs outside of a portal (the fast path,
 * input functions, the planner) may open cursors, but it then has a snapshot of its own.
 */
static bool
only_active_snapshot(Snapshot snapshot)
{
	bool only;

	Assert(snapshot != NULL);
	if (!ActiveSnapshotSet() || GetActiveSnapshot() != snapshot)
		return false;

	/* popping does not free the snapshot, because the query has registered it */
	PopActiveSnapshot();
	only = !ActiveSnapshotSet();
	PushActiveSnapshot(snapshot);
	return only;
}

/*
 * Returns whether the client's statement consists only of this call and the parts that "beside" allows.  If
 * so, nothing else of the statement can run after the call.
 */
static bool
call_is_bare(FunctionCallInfo fcinfo, Beside beside)
{
	QueryDesc *query;
	Node *call = fcinfo->flinfo->fn_expr;

	if (le_running_query == NULL || le_running_query->outer != NULL || le_utility_nesting != 0 ||
		call == NULL || !IsA(call, FuncExpr))
		return false;
	query = le_running_query->desc;
	if (ActivePortal == NULL || ActivePortal->queryDesc != query ||
		ActivePortal->strategy != PORTAL_ONE_SELECT)
		return false;

	/* the query of a cursor WITH HOLD may run within the commit */
	if (ActivePortal->cursorOptions & CURSOR_OPT_HOLD)
		return false;
	if (!only_active_snapshot(query->snapshot))
		return false;

	/* a deferred trigger runs outside of any other query, so check for it separately */
	if (DatumGetInt32(DirectFunctionCall1(pg_trigger_depth, (Datum) 0)) != 0)
		return false;
	return only_target(query->plannedstmt, beside) == call;
}

static bool
is_alone(FunctionCallInfo fcinfo, Beside beside)
{
	return !IsInTransactionBlock(true) && !le_transaction_has_run && le_transaction_ends_here() &&
		   call_is_bare(fcinfo, beside);
}

bool
le_call_is_alone(FunctionCallInfo fcinfo)
{
	return is_alone(fcinfo, BESIDE_FROM);
}

bool
le_call_is_computed_with(FunctionCallInfo fcinfo)
{
	return is_alone(fcinfo, BESIDE_COMPUTED);
}

bool
le_snapshot_give_up(FunctionCallInfo fcinfo)
{
	Snapshot snapshot;

	if (IsolationUsesXactSnapshot() || !call_is_bare(fcinfo, BESIDE_NOTHING))
		return false;
	InvalidateCatalogSnapshot();
	snapshot = le_running_query->desc->snapshot;

	/*
	 * No other snapshot is on the stack.  Also require that the query's snapshot was pushed only once, that
	 * only the query and its executor state have registered it, and that no other snapshot is registered.
	 */
	if (snapshot->active_count != 1 || snapshot->regd_count > 2 || !ThereAreNoPriorRegisteredSnapshots())
		return false;
	Assert(!TransactionIdIsValid(MyProc->xmin) ||
		   TransactionIdPrecedesOrEquals(MyProc->xmin, snapshot->xmin));
	MyProc->xmin = InvalidTransactionId;
	return true;
}

void
le_snapshot_take(void)
{
	(void) GetTransactionSnapshot();
	Assert(TransactionIdIsValid(MyProc->xmin));
}

/*
 * Returns whether the transaction's snapshot is older than the grant, at REPEATABLE READ and stricter levels,
 * where the whole transaction reads with the snapshot of its first statement.  Returns false if this is the
 * first statement and the call did not wait, because only changes made during the call can then be missed.
 */
static bool
xact_snapshot_is_stale(FunctionCallInfo fcinfo, bool waited)
{
	return waited || le_transaction_has_snapshot || !call_is_bare(fcinfo, BESIDE_NOTHING);
}

bool
le_snapshot_is_stale(FunctionCallInfo fcinfo, bool waited)
{
	/* the transaction reads nothing after the call */
	if (le_call_is_alone(fcinfo))
		return false;
	if (IsolationUsesXactSnapshot())
		return xact_snapshot_is_stale(fcinfo, waited);
	for (LeRunningQuery *query = le_running_query; query != NULL; query = query->outer)
	{
		if (query->finishing)
			continue;
		if (le_statement_reads(query->desc->plannedstmt))
			return true;

		/* a function that is not volatile reads with its caller's snapshot */
		if (query->outer != NULL && query->desc->snapshot == query->outer->desc->snapshot)
			return true;
	}
	return le_bound_statement_reads();
}
