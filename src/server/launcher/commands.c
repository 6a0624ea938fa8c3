/*
 * launcher/commands.c
 *		Handles commands that need a database without other sessions, such as DROP DATABASE: the manager must
 *		leave, and no other manager may start before the command ends.  See the comment "reserving a database"
 *		in this file.
 *
 * "pending" records the work to do at the end of a transaction.  A transaction callback does that work,
 * because callbacks also run after ERROR and FATAL.  A callback at a commit runs when other processes can
 * already see the effects of the transaction.
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

/* Longest time that a command waits for a manager to leave, and interval in ms of the checks */
#define RESERVE_TIMEOUT (5 * LE_SECOND)
#define RESERVE_POLL_MS 5

static ProcessUtility_hook_type prev_utility = NULL;

/* A database in which a (sub)transaction prevents managers from starting */
typedef struct LeReservation
{
	struct LeReservation *older;
	Oid dboid;
	SubTransactionId subxact; /* later subtransactions have higher numbers */
} LeReservation;

/* Work to do at the end of this transaction */
static struct
{
	bool any;                    /* there is work to do, or pg_database may have changed */
	LeReservation *reservations; /* allocated in TopTransactionContext */
	Oid dropped_database;
} pending;

/* A command that needs a database without other sessions */
typedef struct LeDatabaseCommand
{
	const char *name; /* name of the database */
	bool copy;        /* the command copies the database, which needs fewer privileges */
	bool force;       /* the command terminates other sessions */
	bool drop;
	bool in_block; /* the command is allowed in a transaction block */
} LeDatabaseCommand;

/* --- reserving a database -------------------------------------------------- */

/*
 * A command that needs a database without other sessions takes these steps:
 *
 *	1.	It sets reserved_by to this process.  From now on no manager is started.  This step is harmless, so it
 *		is taken even if the command is going to fail.
 *	2.	If no client is connected to the database, or if the command terminates the clients' sessions (FORCE),
 *		it sets "leave" and waits until the worker's process has ended.  Otherwise the command is likely to
 *		fail, so it does not disturb the connected clients.  But PostgreSQL waits 5 s for clients
 *		that are about to disconnect; during that time the launcher watches them, and makes the worker leave
 *		after the last client.
 *	3.	After RESERVE_TIMEOUT at the latest, the command runs.  PostgreSQL's own check decides whether it can
 *		proceed, and reports the reason if not.
 *	4.	At the end of the transaction, or when the subtransaction rolls back, reserved_by is cleared.
 *
 * If there are two commands for the same database, the later one takes over reserved_by.  At that time,
 * either PostgreSQL has already checked the earlier command, or both commands still wait.
 */

/* Returns the option with this name, or NULL if the statement does not have it. */
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

/* Returns whether the statement needs a database without other sessions.  If so, fills in *command. */
static bool
database_command(Node *node, LeDatabaseCommand *command)
{
	DefElem *template;
	const char *name;

	switch (nodeTag(node))
	{
		/* the command drops or moves the database */
		case T_DropdbStmt:
			*command =
				(LeDatabaseCommand){.name = ((DropdbStmt *) node)->dbname,
									.force = find_option(((DropdbStmt *) node)->options, "force") != NULL,
									.drop = true};
			return true;

		case T_AlterDatabaseStmt:
			*command = (LeDatabaseCommand){.name = ((AlterDatabaseStmt *) node)->dbname};
			return find_option(((AlterDatabaseStmt *) node)->options, "tablespace") != NULL;

		/* the command renames the database */
		case T_RenameStmt:
			*command = (LeDatabaseCommand){.name = ((RenameStmt *) node)->subname, .in_block = true};
			return ((RenameStmt *) node)->renameType == OBJECT_DATABASE;

		/* the command copies the database */
		case T_CreatedbStmt:
			template = find_option(((CreatedbStmt *) node)->options, "template");
			name = template != NULL && template->arg != NULL ? defGetString(template) : "template1";
			*command = (LeDatabaseCommand){.name = name, .copy = true};
			return true;

		default:
			return false;
	}
}

/* Returns whether the caller may create a copy of this database. */
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

/* Returns this transaction's reservation of the database, or NULL if there is none. */
static LeReservation *
find_reservation(Oid dboid)
{
	LeReservation *reservation = pending.reservations;

	while (reservation != NULL && reservation->dboid != dboid)
		reservation = reservation->older;
	return reservation;
}

#ifdef USE_ASSERT_CHECKING
/* Asserts that "pending" lists all entries that this process has reserved, so that they will be cleared. */
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
 * Reserves the database's entry.  If "ask" is set, asks its worker to leave; its notifier leaves with it.
 * Returns true when neither process exists any more.
 */
static bool
reserve_entry(Oid dboid, bool ask, int *worker_pid, int *notifier_pid)
{
	LeDatabase *db;
	bool idle = true;

	Assert(OidIsValid(dboid) && !LWLockHeldByMe(le_shared->lock));

	LWLockAcquire(le_shared->lock, LW_EXCLUSIVE);
	db = le_database_find(dboid, true);
	if (db != NULL) /* NULL: no entry is free, so no manager can start, either */
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

	/* look for the processes, because a worker announces its exit before its process has ended */
	return idle && (*worker_pid == 0 || BackendPidGetProc(*worker_pid) == NULL) &&
		   (*notifier_pid == 0 || BackendPidGetProc(*notifier_pid) == NULL);
}

/*
 * Records a reservation, so that the end of the (sub)transaction clears it.  If the transaction reserves a
 * database several times, the outermost reservation counts.
 */
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

/* Reserves a database, and waits until its worker has left: steps 1 to 3 of "reserving a database". */
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

/* Reserves the command's database, if the command can succeed. */
static void
prepare_database_command(const LeDatabaseCommand *command, ProcessUtilityContext context)
{
	Oid dboid;

	/* ignore a command that is going to fail */
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
 * Clears the reservations of this subtransaction and its children, and wakes up the launcher: step 4 of
 * "reserving a database".  Must not fail: the subtransaction has already ended.
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

/* Clears all reservations.  Must not fail: the transaction has already ended. */
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

/* Clears the reservations of a subtransaction that has rolled back.  Must not fail. */
static void
at_subtransaction_end(SubXactEvent event, SubTransactionId subxact, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB && pending.reservations != NULL &&
		pending.reservations->subxact >= subxact)
		release_reservations(subxact, false);
}

/* --- commands and queries --------------------------------------------------- */

/* Runs a utility command.  First reserves the database that the command needs without other sessions. */
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
