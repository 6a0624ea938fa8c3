/*
 * shared/fault_worker.c
 *		A background worker that runs SQL statements as a scheduler does, for tests only.
 *
 * An example of a scheduler: with cron.use_background_workers, pg_cron runs all statements of a job in one
 * transaction, each in its own portal, without a client.  None of the server's own extensions does that, so
 * the tests need this worker.
 *
 *	le_fault_worker(sql text)
 *		Starts the worker in this database.  It runs the statements and exits.
 */
#include "postgres.h"

#ifdef LE_FAULTS

#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "parser/analyze.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"

#include "shared/compat.h"
#include "shared/fault.h"
#include "shared/worker.h"

LE_FUNCTION(le_fault_worker);

/* Runs a statement in its own portal, which is not visible, as pg_cron does. */
static void
run_statement(RawStmt *statement, const char *sql)
{
	Portal portal = CreatePortal("", true, true);
	DestReceiver *nowhere = CreateDestReceiver(DestNone);
	List *queries, *plans;
	int16 format = 0;

	PushActiveSnapshot(GetTransactionSnapshot());
	queries = pg_analyze_and_rewrite_fixedparams(statement, sql, NULL, 0, NULL);
	plans = pg_plan_queries(queries, sql, 0, NULL);
	PopActiveSnapshot();
	portal->visible = false;
	PortalDefineQuery(portal, NULL, sql, CreateCommandTag(statement->stmt), plans, NULL);
	PortalStart(portal, NULL, 0, InvalidSnapshot);
	PortalSetResultFormat(portal, 1, &format);
	le_run_portal(portal, nowhere);
	PortalDrop(portal, false);
	CommandCounterIncrement();
}

/* Runs the statements in bgw_extra.  This is the entry point of the worker. */
void
le_fault_worker_main(Datum arg)
{
	const char *sql = MyBgworkerEntry->bgw_extra;
	ListCell *lc;

	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(DatumGetObjectId(arg), InvalidOid, 0);
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	pgstat_report_activity(STATE_RUNNING, sql);
	foreach (lc, pg_parse_query(sql))
		run_statement(lfirst_node(RawStmt, lc), sql);
	CommitTransactionCommand();
	proc_exit(0);
}

/* Implements le_fault_worker(sql). */
Datum
le_fault_worker(PG_FUNCTION_ARGS)
{
	BackgroundWorker worker = {0};

	le_worker_init(&worker, "test", "le_fault_worker_main");
	worker.bgw_main_arg = ObjectIdGetDatum(MyDatabaseId);
	text_to_cstring_buffer(PG_GETARG_TEXT_PP(0), worker.bgw_extra, sizeof(worker.bgw_extra));
	if (!RegisterDynamicBackgroundWorker(&worker, NULL))
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_RESOURCES), errmsg("could not register the worker")));
	PG_RETURN_VOID();
}

#endif /* LE_FAULTS */
