/*
 * statement.c
 *		The statements of this session: how deep utility commands are nested,
 *		which queries run, and DISCARD ALL.
 *
 * backend/snapshot.c needs the first two to prove that a waiting statement can
 * give its snapshot up.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "tcop/utility.h"

#include "backend/session.h"
#include "backend/statement.h"
#include "shared/compat.h"
#include "shared/shmem.h"

int le_utility_nesting = 0;
LeRunningQuery *le_running_query = NULL;

static ProcessUtility_hook_type prev_utility = NULL;
static ExecutorRun_hook_type prev_executor_run = NULL;
static ExecutorFinish_hook_type prev_executor_finish = NULL;

static void
run_command(PlannedStmt *pstmt, const char *query, bool read_only_tree, ProcessUtilityContext context,
			ParamListInfo params, QueryEnvironment *env, DestReceiver *dest, QueryCompletion *qc)
{
	le_utility_nesting++;
	PG_TRY();
	{
		if (prev_utility)
			prev_utility(pstmt, query, read_only_tree, context, params, env, dest, qc);
		else
			standard_ProcessUtility(pstmt, query, read_only_tree, context, params, env, dest, qc);
	}
	PG_FINALLY();
	{
		le_utility_nesting--;
	}
	PG_END_TRY();
}

static void
le_statement_utility(PlannedStmt *pstmt, const char *query, bool read_only_tree,
					 ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *env,
					 DestReceiver *dest, QueryCompletion *qc)
{
	Node *node = pstmt->utilityStmt;
	bool discard_all = IsA(node, DiscardStmt) && ((DiscardStmt *) node)->target == DISCARD_ALL;

	run_command(pstmt, query, read_only_tree, context, params, env, dest, qc);

	/* DISCARD ALL drops cached plans: node may be gone. */
	if (discard_all && le_shared != NULL)
		le_session_reset();
}

static void
le_executor_run(LE_EXECUTOR_RUN_ARGS)
{
	LeRunningQuery query = {.desc = queryDesc, .outer = le_running_query};

	le_running_query = &query;
	PG_TRY();
	{
		if (prev_executor_run)
			prev_executor_run(LE_EXECUTOR_RUN_PASS);
		else
			standard_ExecutorRun(LE_EXECUTOR_RUN_PASS);
	}
	PG_FINALLY();
	{
		le_running_query = query.outer;
	}
	PG_END_TRY();
}

static void
le_executor_finish(QueryDesc *queryDesc)
{
	LeRunningQuery query = {.desc = queryDesc, .finishing = true, .outer = le_running_query};

	le_running_query = &query;
	PG_TRY();
	{
		if (prev_executor_finish)
			prev_executor_finish(queryDesc);
		else
			standard_ExecutorFinish(queryDesc);
	}
	PG_FINALLY();
	{
		le_running_query = query.outer;
	}
	PG_END_TRY();
}

void
le_statement_init(void)
{
	prev_utility = ProcessUtility_hook;
	ProcessUtility_hook = le_statement_utility;
	prev_executor_run = ExecutorRun_hook;
	ExecutorRun_hook = le_executor_run;
	prev_executor_finish = ExecutorFinish_hook;
	ExecutorFinish_hook = le_executor_finish;
}
