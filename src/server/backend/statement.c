/*
 * backend/statement.c
 *		Tracks the statements of this session: how deep utility commands are nested, which queries
 *		are running, and whether the transaction has more statements.  Rejects some commands, and
 *		handles DISCARD ALL.
 *
 * backend/snapshot.c uses this to prove that a waiting statement can give up its snapshot, and that a call is
 * the only action of its transaction.
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "tcop/dest.h"
#include "tcop/pquery.h"
#include "tcop/utility.h"
#include "utils/portal.h"

#include "backend/client.h"
#include "backend/guard.h"
#include "backend/session_mailbox.h"
#include "backend/statement.h"
#include "backend/xactstate.h"
#include "shared/compat.h"
#include "shared/shmem.h"

int le_utility_nesting = 0;
LeRunningQuery *le_running_query = NULL;
bool le_transaction_has_run = false;
bool le_transaction_has_snapshot = false;
bool le_statement_warned = false;

/* A statement that reads tables and has been bound, but has not run. */
typedef struct LeBound
{
	struct LeBound *older;
	const QueryDesc *desc; /* only for comparison: it may have been freed */
} LeBound;

static LeBound *bound = NULL; /* allocated in TopTransactionContext */

static ProcessUtility_hook_type prev_utility = NULL;
static ExecutorStart_hook_type prev_executor_start = NULL;
static ExecutorRun_hook_type prev_executor_run = NULL;
static ExecutorFinish_hook_type prev_executor_finish = NULL;
static ExecutorEnd_hook_type prev_executor_end = NULL;

/* Type of the protocol message that ends an implicit transaction. */
#define MESSAGE_SYNC 'S'

/*
 * In the simple protocol, a message with one statement is a transaction, and a message with several
 * statements is a transaction block.  In the extended protocol the transaction lasts until Sync.  A client
 * that sends a single statement sends Sync in the same packet; in a pipeline, another message precedes Sync.
 */
bool
le_transaction_ends_here(void)
{
	if (whereToSendOutput != DestRemote || MyProcPort == NULL || ActivePortal == NULL)
		return false;

	/* a portal that is not visible in pg_cursors belongs to the simple protocol */
	return !ActivePortal->visible || le_next_message() == MESSAGE_SYNC;
}

/*
 * Records the end of a client's statement.  Ignores a nested statement, and also the ROLLBACK of a failed
 * transaction, because transaction_ended() ran when the transaction failed, and does not run again.
 */
static void
statement_ended(bool has_snapshot)
{
	if (le_running_query != NULL || le_utility_nesting != 0 || !IsTransactionState())
		return;
	le_transaction_has_run = true;
	le_transaction_has_snapshot |= has_snapshot;
	le_statement_warned = false;
}

bool
le_statement_reads(const PlannedStmt *stmt)
{
	int index = 0;
	ListCell *lc;

	foreach (lc, stmt->rtable)
	{
		index++;
		if (lfirst_node(RangeTblEntry, lc)->rtekind == RTE_RELATION &&
			!(stmt->commandType == CMD_INSERT && !stmt->hasModifyingCTE && le_statement_writes(stmt, index)))
			return true;
	}
	return false;
}

bool
le_bound_statement_reads(void)
{
	return bound != NULL;
}

/* Removes a statement from the list of bound statements, because it runs or is dropped. */
static void
bound_remove(const QueryDesc *desc)
{
	for (LeBound **b = &bound; *b != NULL; b = &(*b)->older)
	{
		LeBound *found = *b;

		if (found->desc != desc)
			continue;
		*b = found->older;
		pfree(found);
		return;
	}
}

/* Runs around each utility command: guards the tables, counts the nesting depth, and handles DISCARD ALL. */
static void
le_statement_utility(PlannedStmt *pstmt, const char *query, bool read_only_tree,
					 ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *env,
					 DestReceiver *dest, QueryCompletion *qc)
{
	Node *node = pstmt->utilityStmt;
	bool discard_all = IsA(node, DiscardStmt) && ((DiscardStmt *) node)->target == DISCARD_ALL;
	bool has_snapshot = PlannedStmtRequiresSnapshot(pstmt);

	/* checks before the command runs */
	le_guard_tables(node);
	if (discard_all && (le_xact.is_open || le_xact.is_touched))
		ereport(
			ERROR,
			(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
			 errmsg("DISCARD ALL cannot run in a transaction that has acquired, released or fenced a lock")));
	le_client_statement(le_my_mailbox);
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
		Assert(le_utility_nesting > 0);
		le_utility_nesting--;
		statement_ended(has_snapshot);
	}
	PG_END_TRY();

	/* after the command: node may have been freed, because DISCARD ALL drops cached plans */
	if (discard_all && le_shared != NULL)
		le_session_reset();
}

/*
 * Adds a statement that reads tables to the list of bound statements.  It is not known yet whether the
 * statement will run at once.
 */
static void
le_executor_start(QueryDesc *queryDesc, int flags)
{
	if (prev_executor_start)
		prev_executor_start(queryDesc, flags);
	else
		standard_ExecutorStart(queryDesc, flags);

	if (le_running_query == NULL && le_utility_nesting == 0 && le_statement_reads(queryDesc->plannedstmt))
	{
		LeBound *b = MemoryContextAlloc(TopTransactionContext, sizeof(LeBound));

		b->older = bound;
		b->desc = queryDesc;
		bound = b;
	}
}

static void
le_executor_end(QueryDesc *queryDesc)
{
	bound_remove(queryDesc);
	if (prev_executor_end)
		prev_executor_end(queryDesc);
	else
		standard_ExecutorEnd(queryDesc);
}

/* Runs around each query: maintains the list of running queries. */
static void
le_executor_run(LE_EXECUTOR_RUN_ARGS)
{
	LeRunningQuery query = {.desc = queryDesc, .outer = le_running_query};

	bound_remove(queryDesc);
	le_client_statement(le_my_mailbox);
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
		Assert(le_running_query == &query);
		le_running_query = query.outer;
		statement_ended(true);
	}
	PG_END_TRY();
}

/* Runs around the AFTER triggers of a query, when all its rows have been read. */
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
		Assert(le_running_query == &query);
		le_running_query = query.outer;
	}
	PG_END_TRY();
}

/* Forgets the transaction's statements.  Must not fail, because the transaction has ended. */
static void
transaction_ended(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
		return;
	le_transaction_has_run = le_transaction_has_snapshot = false;
	bound = NULL;
}

void
le_statement_init(void)
{
	RegisterXactCallback(transaction_ended, NULL);
	prev_utility = ProcessUtility_hook;
	ProcessUtility_hook = le_statement_utility;
	prev_executor_start = ExecutorStart_hook;
	ExecutorStart_hook = le_executor_start;
	prev_executor_end = ExecutorEnd_hook;
	ExecutorEnd_hook = le_executor_end;
	prev_executor_run = ExecutorRun_hook;
	ExecutorRun_hook = le_executor_run;
	prev_executor_finish = ExecutorFinish_hook;
	ExecutorFinish_hook = le_executor_finish;
}
