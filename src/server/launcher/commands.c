/*
 * launcher/commands.c
 *		Commands that need a database without sessions, such as DROP DATABASE:
 *		the manager has to leave, and must not come back before the command
 *		ends.  See "reserving a database".
 *
 * What a transaction has to do at its end is kept in "pending" and done by a
 * transaction callback: that runs after ERROR and FATAL too, and at a commit
 * others can already see what the transaction has done.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/procarray.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/syscache.h"
#include "utils/wait_event.h"

#include "launcher/commands.h"
#include "launcher/launcher.h"
#include "shared/compat.h"
#include "shared/fault.h"
#include "shared/shmem.h"
#include "shared/sleep.h"

/* How long a command waits for a manager to leave, and how often it looks */
#define RESERVE_TIMEOUT (5 * LE_SECOND)
#define RESERVE_POLL_MS 5

static ProcessUtility_hook_type prev_utility = NULL;

/* A database that a (sub)transaction keeps managers from starting in. */
typedef struct LeReservation
{
	struct LeReservation *older;
	Oid dboid;
	SubTransactionId subxact; /* later subtransactions have higher numbers */
} LeReservation;

/* To be done at the end of this transaction. */
static struct
{
	bool any;                    /* anything at all, also that pg_database may have changed */
	LeReservation *reservations; /* in TopTransactionContext */
	Oid dropped_database;
} pending;

/* A command that needs a database without sessions */
typedef struct LeDatabaseCommand
{
	const char *name; /* of that database */
	bool copy;        /* the right to copy is enough */
	bool force;       /* sessions will be ended */
	bool drop;
	bool in_block; /* allowed in a transaction block */
} LeDatabaseCommand;

/* --- reserving a database -------------------------------------------------- */

/*
 * A command that needs a database without sessions takes these steps:
 *
 *	1.	reserved_by = this process: from now on no manager is started.  That
 *		harms nobody, so it is done even if the command is going to fail.
 *	2.	If no client is in the database, or the command ends their sessions
 *		(FORCE): leave = true; wait until the worker's process is gone.
 *		Otherwise the command is likely to fail, and the locks of clients that
 *		stay are not disturbed for that.  But PostgreSQL waits for 5 s for
 *		clients that are about to leave; meanwhile the launcher watches, and
 *		sends the worker after the last of them.
 *	3.	Whatever has been reached after RESERVE_TIMEOUT, run the command.  Its
 *		own check decides, and says in PostgreSQL's words what is in the way.
 *	4.	At the end of the transaction, or when the subtransaction rolls back,
 *		reserved_by is cleared.
 *
 * Of two commands for one database, the later takes reserved_by over.  The earlier
 * one is past its check by then, or waits like the later one does.
 */

/* The option of this name; NULL: it is not given. */
static DefElem *
find_option(List *options, const char *name)
{
	ListCell *lc;

	foreach (lc, options)
	{
		if (strcmp(lfirst_node(DefElem, lc)->defname, name) == 0)
			return lfirst_node(DefElem, lc);
	}
	return NULL;
}

/* Does the statement need a database without sessions?  Fills in which one, and what it does with it. */
static bool
database_command(Node *node, LeDatabaseCommand *command)
{
	DefElem *template;
	const char *name;

	switch (nodeTag(node))
	{
		/* the database has to go, or to be moved */
		case T_DropdbStmt:
			*command =
				(LeDatabaseCommand){.name = ((DropdbStmt *) node)->dbname,
									.force = find_option(((DropdbStmt *) node)->options, "force") != NULL,
									.drop = true};
			return true;

		case T_AlterDatabaseStmt:
			*command = (LeDatabaseCommand){.name = ((AlterDatabaseStmt *) node)->dbname};
			return find_option(((AlterDatabaseStmt *) node)->options, "tablespace") != NULL;

		/* the database gets another name */
		case T_RenameStmt:
			*command = (LeDatabaseCommand){.name = ((RenameStmt *) node)->subname, .in_block = true};
			return ((RenameStmt *) node)->renameType == OBJECT_DATABASE;

		/* the database is copied */
		case T_CreatedbStmt:
			template = find_option(((CreatedbStmt *) node)->options, "template");
			name = template != NULL && template->arg != NULL ? defGetString(template) : "template1";
			*command = (LeDatabaseCommand){.name = name, .copy = true};
			return true;

		default:
			return false;
	}
}

/* May the caller create a database as a copy of this one? */
static bool
may_copy(Oid dboid)
{
	HeapTuple tuple;
	bool createdb = false, template = false;

	if (superuser())
		return true;

	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(GetUserId()));
	if (HeapTupleIsValid(tuple))
	{
		createdb = ((Form_pg_authid) GETSTRUCT(tuple))->rolcreatedb;
		ReleaseSysCache(tuple);
	}
	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(dboid));
	if (HeapTupleIsValid(tuple))
	{
		template = ((Form_pg_database) GETSTRUCT(tuple))->datistemplate;
		ReleaseSysCache(tuple);
	}
	return createdb && (template || le_database_owner(dboid, GetUserId()));
}

/* What this transaction remembers of the database; NULL: it has not reserved it. */
static LeReservation *
find_reservation(Oid dboid)
{
	LeReservation *reservation = pending.reservations;

	while (reservation != NULL && reservation->dboid != dboid)
		reservation = reservation->older;
	return reservation;
}

#ifdef USE_ASSERT_CHECKING
/* An entry is reserved by this process only while the transaction remembers it, so that step 4 is to come. */
static void
assert_reservations(void)
{
	for (int i = 0; i < le_shared->max_databases; i++)
	{
		const LeDatabase *db = &le_shared->databases[i];

		Assert(db->reserved_by != MyProcPid || find_reservation(db->dboid) != NULL);
	}
}
#else
#define assert_reservations() ((void) 0)
#endif

/*
 * Reserve the database's entry, and ask its worker to leave if that is allowed;
 * its notifier goes with it.  True: there is none of them any more.
 */
static bool
reserve_entry(Oid dboid, bool ask, int *worker_pid, int *notifier_pid)
{
	LeDatabase *db;
	bool idle = true;

	Assert(OidIsValid(dboid) && !LWLockHeldByMe(le_shared->lock));

	LWLockAcquire(le_shared->lock, LW_EXCLUSIVE);
	db = le_database_find(dboid, true);
	if (db != NULL) /* else: the launcher has no room either */
	{
		le_database_reserve(db, MyProcPid);
		idle = db->state == LE_DB_IDLE;
		if (db->notifier_pid != 0)
			*notifier_pid = db->notifier_pid;
		if (!idle)
		{
			*worker_pid = db->worker_pid;
			if (ask)
				le_database_ask_to_leave(db);
		}
	}
	assert_reservations();
	LWLockRelease(le_shared->lock);

	/* A worker says that it leaves some time before its process ends. */
	return idle && (*worker_pid == 0 || BackendPidGetProc(*worker_pid) == NULL) &&
		   (*notifier_pid == 0 || BackendPidGetProc(*notifier_pid) == NULL);
}

/* Step 4 is to come; of several of one database the outermost counts. */
static void
remember_reservation(Oid dboid)
{
	LeReservation *reservation;

	if (find_reservation(dboid) != NULL)
		return;
	reservation = MemoryContextAlloc(TopTransactionContext, sizeof(LeReservation));
	*reservation = (LeReservation){pending.reservations, dboid, GetCurrentSubTransactionId()};
	pending.reservations = reservation;
	pending.any = true;
}

/* Steps 1 to 3 of "reserving a database". */
static void
reserve_database(Oid dboid, bool force)
{
	LeTime give_up_at = le_clock() + RESERVE_TIMEOUT;
	bool ask = force || !le_client_connected(dboid, MyProcPid);
	int worker_pid = 0;
	int notifier_pid = 0;

	le_wait_events_init(LE_WAIT_LOCK);
	remember_reservation(dboid);
	while (!reserve_entry(dboid, ask, &worker_pid, &notifier_pid) && le_clock() < give_up_at)
	{
		if (!ask)
		{
			le_wake_launcher();
			break;
		}
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, RESERVE_POLL_MS,
						 le_wait_event(LE_WAIT_DATABASE));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

/* Reserve the command's database, if the command has a chance. */
static void
prepare_database_command(const LeDatabaseCommand *command, ProcessUtilityContext context)
{
	Oid dboid;

	/* These are going to fail. */
	if (RecoveryInProgress() ||
		(!command->in_block && (context != PROCESS_UTILITY_TOPLEVEL || IsInTransactionBlock(true))))
		return;

	dboid = get_database_oid(command->name, true);
	if (!OidIsValid(dboid) || (dboid == MyDatabaseId && !command->copy))
		return;
	if (!(command->copy ? may_copy(dboid) : le_database_owner(dboid, GetUserId())))
		return;

	reserve_database(dboid, command->force);
	LE_FAULT("reserve-taken");
	if (command->drop)
		pending.dropped_database = dboid;
}

/*
 * Step 4: give back the reservations of this subtransaction, and of those inside it; the launcher looks anew.  May not
 * fail: it is over.
 */
static void
release_reservations(SubTransactionId subxact, bool committed)
{
	Assert(!committed || subxact == TopSubTransactionId);

	LWLockAcquire(le_shared->lock, LW_EXCLUSIVE);
	for (; pending.reservations != NULL && pending.reservations->subxact >= subxact;
		 pending.reservations = pending.reservations->older)
	{
		LeDatabase *db = le_database_find(pending.reservations->dboid, false);

		if (db == NULL || db->reserved_by != MyProcPid)
			continue;
		le_database_reserve(db, 0);
		if (committed && db->dboid == pending.dropped_database && db->state == LE_DB_IDLE)
			le_database_free(db);
	}
	assert_reservations();
	LWLockRelease(le_shared->lock);
	le_wake_launcher();
}

/* --- end of transaction --------------------------------------------------- */

/* May not fail: the transaction is over. */
static void
at_transaction_end(XactEvent event, void *arg)
{
	bool committed = event == XACT_EVENT_COMMIT;

	if (!pending.any || (!committed && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE))
		return;

	LE_FAULT_NOFAIL("reserve-before-release");
	release_reservations(TopSubTransactionId, committed);
	LE_FAULT_NOFAIL("reserve-released");

	Assert(pending.reservations == NULL);
	memset(&pending, 0, sizeof(pending));
}

/* A command that has failed needs the database no more, however long the transaction goes on.  May not fail. */
static void
at_subtransaction_end(SubXactEvent event, SubTransactionId subxact, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB && pending.reservations != NULL &&
		pending.reservations->subxact >= subxact)
		release_reservations(subxact, false);
}

/* --- commands and queries --------------------------------------------------- */

/* Before each utility command: reserve the database that it needs for itself. */
static void
le_command_utility(PlannedStmt *pstmt, const char *query, bool read_only_tree, ProcessUtilityContext context,
				   ParamListInfo params, QueryEnvironment *env, DestReceiver *dest, QueryCompletion *qc)
{
	Node *node = pstmt->utilityStmt;
	LeDatabaseCommand command;

	if (le_shared != NULL)
	{
		pending.any |= IsA(node, AlterDatabaseStmt);
		if (database_command(node, &command))
			prepare_database_command(&command, context);
	}
	if (prev_utility)
		prev_utility(pstmt, query, read_only_tree, context, params, env, dest, qc);
	else
		standard_ProcessUtility(pstmt, query, read_only_tree, context, params, env, dest, qc);
}

void
le_commands_init(void)
{
	prev_utility = ProcessUtility_hook;
	ProcessUtility_hook = le_command_utility;
	RegisterXactCallback(at_transaction_end, NULL);
	RegisterSubXactCallback(at_subtransaction_end, NULL);
}
