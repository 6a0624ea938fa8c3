/*
 * le_request.c
 *		The backend's side: a session's slot, sending a request, waiting for
 *		its answer in every way a wait can end, and for its durability.
 */
#include "postgres.h"

#include <netinet/tcp.h>
#include <sched.h>

#include "access/xact.h"
#include "access/xlog.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "replication/syncrep.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/timeout.h"
#include "utils/wait_event.h"

#include "le_args.h"
#include "le_compat.h"
#include "le_fault.h"
#include "le_hooks.h"
#include "le_names.h"
#include "le_request.h"
#include "le_xact.h"

/* A caller waits this long for a manager to start, unless its own wait is
 * shorter. */
#define MANAGER_START_TIMEOUT (5 * LE_SECOND)
/* Even a try waits this long: a manager that restarts is back sooner. */
#define MANAGER_MIN_TIMEOUT (1 * LE_SECOND)

/* How often a wait looks at the client's socket and at the manager. */
#define WAIT_TICK_MS 1000

/* A flush is waited for without sleeping, but no longer than this. */
#define SOON 200

/* A wait that holds a snapshot is logged after this long. */
#define SNAPSHOT_LOG_AFTER (60 * LE_SECOND)

/*
 * Keepalive probes: a silent host is noticed in 4 + 3 * 2 = 10 s.  No probe is
 * sent while something is unacknowledged, such as the grant for which it has
 * waited: that may take as long.
 */
#define KEEPALIVE_IDLE     4
#define KEEPALIVE_INTERVAL 2
#define KEEPALIVE_COUNT    3
#define USER_TIMEOUT_MS    10000

static LeRequestSlot *my_slot = NULL;
static bool exit_registered = false;
static bool client_watched = false; /* for a wait */
static bool client_held = false;    /* for a connection-bound lock */

LeRequestSlot *
le_my_slot(void)
{
	return my_slot;
}

static LeDatabase *
my_database(void)
{
	return &le_shared->databases[my_slot->database];
}

/* --- the client's socket --- */

static void
set_keepalives(bool on)
{
	if (MyProcPort == NULL)
		return;
	(void) pq_setkeepalivesidle(on ? KEEPALIVE_IDLE : tcp_keepalives_idle, MyProcPort);
	(void) pq_setkeepalivesinterval(on ? KEEPALIVE_INTERVAL : tcp_keepalives_interval, MyProcPort);
	(void) pq_setkeepalivescount(on ? KEEPALIVE_COUNT : tcp_keepalives_count, MyProcPort);
#ifdef TCP_USER_TIMEOUT
	(void) pq_settcpusertimeout(on ? USER_TIMEOUT_MS : tcp_user_timeout, MyProcPort);
#endif
}

static void
watch_client(bool wait, bool hold)
{
	bool was = client_watched || client_held;

	client_watched = wait;
	client_held = hold;
	if (was != (wait || hold))
		set_keepalives(wait || hold);
}

void
le_watch_client(bool hold)
{
	watch_client(client_watched, hold);
}

/* Is the client still there?  The check does not read, so it loses nothing. */
static void
look_at_client(void)
{
	if (MyProcPort != NULL && !pq_check_connection())
	{
		ClientConnectionLost = true;
		InterruptPending = true;
	}
}

/* In a wait: a host that falls silent is noticed as well. */
static void
check_client(void)
{
	if (MyProcPort != NULL)
		watch_client(true, client_held);
	look_at_client();
}

/* --- sessions --- */

/*
 * The backend exits.  This comes after its last transaction was aborted and
 * before its PGPROC goes.
 */
static void
session_exit(int code, Datum arg)
{
	LeRequestSlot *slot = my_slot;
	LeDatabase *db;

	if (slot == NULL)
		return;
	db = my_database();
	LE_FAULT_NOFAIL("session-end");
	my_slot = NULL;
	LWLockAcquire(le_shared->lock, LW_EXCLUSIVE);
	db->attached--;
	pg_atomic_fetch_or_u32(&slot->mail, LE_MAIL_SESSION_END);

	/* under the lock: a manager that leaves must not leave us linked */
	if (db->state == LE_DB_IDLE)
		le_database_unlink_all(db);
	else
		le_ring(slot);
	LWLockRelease(le_shared->lock);
}

static void
no_manager(LeTime patience)
{
	ereport(ERROR, (errcode(ERRCODE_CANNOT_CONNECT_NOW),
					errmsg("the lock_election manager of database \"%s\" is not running",
						   get_database_name(MyDatabaseId)),
					errdetail("It did not start within %.1f seconds.", (double) patience / LE_SECOND),
					errhint("See the server log; max_worker_processes may be too low.")));
}

/* Ask for a manager if there is none. */
static void
want_manager(LeDatabase *db)
{
	if (pg_atomic_read_u32(&db->running) != 0)
		return;
	LWLockAcquire(le_shared->lock, LW_EXCLUSIVE);
	if (db->state == LE_DB_IDLE || db->state == LE_DB_STARTING)
		db->wanted = true;
	LWLockRelease(le_shared->lock);
	le_wake_launcher();
}

/*
 * One turn of a wait.  Returns after the latch was set or the time ran out;
 * *down_since keeps track of how long there has been no manager.
 */
static void
wait_turn(LeDatabase *db, long timeout_ms, LeTime *down_since, LeTime patience)
{
	if (pg_atomic_read_u32(&db->running) != 0)
		*down_since = 0;
	else
	{
		LeTime now = le_clock();

		want_manager(db);
		if (*down_since == 0)
			*down_since = now;
		else if (now - *down_since >= patience)
			no_manager(patience);
		timeout_ms = Min(timeout_ms, 10);
	}
	le_sleep(timeout_ms * LE_MS);
	le_sleep_reset();
	CHECK_FOR_INTERRUPTS();
}

static void
check_can_attach(void)
{
	if (le_shared == NULL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("lock_election is not in shared_preload_libraries"),
						errhint("Add this line to postgresql.conf and restart the server: "
								"shared_preload_libraries = 'lock_election'")));
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION), errmsg("cannot use locks during recovery"),
				 errhint("Locks live on the primary server; the views can be read on a standby.")));

	/* a worker's transaction commits by itself, whatever becomes of ours */
	PreventCommandIfParallelMode("lock functions");
	if (le_created_in_this_transaction())
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("cannot use locks in the transaction that created extension lock_election"),
						errhint("Commit first.")));
}

/* Still to be cleared up after the backend that had it before, or in its manager's stack. */
static bool
slot_in_use(LeRequestSlot *slot)
{
	return slot->session != 0 || pg_atomic_read_u32(&slot->linked) != 0;
}

/*
 * While it is linked it belongs to that manager, which may have cleared it
 * before it came to the link, and would take our request for one of its own
 * database.  If there is no manager to clear it, it is not waited for longer
 * than a caller waits for its own.
 */
static void
wait_for_slot(LeRequestSlot *slot)
{
	LeDatabase *db = &le_shared->databases[slot->database];
	LeTime give_up = le_clock() + MANAGER_START_TIMEOUT, down_since = 0;

	while (slot_in_use(slot))
	{
		LWLockAcquire(le_shared->lock, LW_EXCLUSIVE);
		if (db->state == LE_DB_FREE || (db->state == LE_DB_IDLE && le_clock() >= give_up))
			le_database_clear_slots(db);
		LWLockRelease(le_shared->lock);
		if (!slot_in_use(slot))
			break;
		wait_turn(db, 10, &down_since, 2 * MANAGER_START_TIMEOUT);
	}
	pg_read_barrier();
}

/*
 * Take part in this database's entry.  -1: all are in use; not only by the
 * launcher, which looks whether a database has the extension, or by a command
 * that needs a database for itself.
 */
static int
attach_database(void)
{
	LeTime give_up = le_clock() + MANAGER_START_TIMEOUT;

	for (;;)
	{
		bool passing = false;
		int database;

		LWLockAcquire(le_shared->lock, LW_EXCLUSIVE);
		database = le_database_find(MyDatabaseId, true);
		if (database >= 0)
			le_shared->databases[database].attached++;
		for (int i = 0; i < le_shared->max_databases; i++)
		{
			LeDatabase *db = &le_shared->databases[i];

			passing |= db->attached == 0 && db->state != LE_DB_RUNNING;
		}
		LWLockRelease(le_shared->lock);
		if (database >= 0 || !passing || le_clock() >= give_up)
			return database;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 10, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

void
le_attach(void)
{
	LeRequestSlot *slot;
	int database;

	check_can_attach();
	if (my_slot != NULL)
		return;
	slot = &le_shared->slots[le_my_proc()];

	/* whoever had this number before may have died asleep */
	le_sleep_reset();
	wait_for_slot(slot);
	LE_FAULT("attach");

	database = attach_database();
	if (database < 0)
		ereport(ERROR, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
						errmsg("lock_election serves no more than %d databases", le_max_databases),
						errhint("Raise lock_election.max_databases and restart the server.")));

	slot->database = database;
	slot->pid = MyProcPid;
	slot->generation++;
	pg_atomic_write_u32(&slot->open_xact, 0);
	pg_atomic_write_u64(&slot->undo, 0);
	pg_atomic_write_u32(&slot->mail, 0);
	pg_write_barrier();
	slot->session = ((uint64) slot->generation << LE_PROC_BITS) | (uint32) le_my_proc();
	my_slot = slot;
	if (!exit_registered)
	{
		on_shmem_exit(session_exit, (Datum) 0);
		exit_registered = true;
	}
}

void
le_session_reset(void)
{
	LeRequestSlot *slot = my_slot;

	if (slot == NULL)
		return;
	watch_client(false, false);
	session_exit(0, (Datum) 0);
	/* the next call attaches anew, under another session's name */
}

/* --- mailbox --- */

/* The lowest subtransaction of the newest transaction counts. */
void
le_mail_undo(uint32 xact, uint32 subxact)
{
	uint64 mail = ((uint64) xact << 32) | subxact;
	uint64 old = pg_atomic_read_u64(&my_slot->undo);

	while ((old >> 32) != xact || (uint32) old == 0 || (uint32) old > subxact)
	{
		if (pg_atomic_compare_exchange_u64(&my_slot->undo, &old, mail))
			break;
	}
	le_ring(my_slot);
}

void
le_mail(uint32 flag)
{
	pg_atomic_fetch_or_u32(&my_slot->mail, flag);
	le_ring(my_slot);
}

/* --- requests --- */

static bool
slot_is_quiet(void)
{
	return pg_atomic_read_u32(&my_slot->answered) == pg_atomic_read_u32(&my_slot->posted) &&
		   pg_atomic_read_u64(&my_slot->undo) == 0;
}

static void
put_text(LeText *text, char *payload, uint32 *len)
{
	if (text->data == NULL)
		return;
	Assert(*len + text->len <= LE_PAYLOAD_SIZE);
	memcpy(payload + *len, text->data, text->len);
	text->data = payload + *len;
	*len += text->len;
}

static bool
needs_flush(void)
{
	return synchronous_commit > SYNCHRONOUS_COMMIT_OFF || le_min_durability > 0;
}

/* Steps 1 and 2 of the protocol, the slot being quiet; returns the number. */
static uint32
post(LeRequestKind kind, const LeCommand *cmd)
{
	LeRequestSlot *slot = my_slot;
	uint32 number = pg_atomic_read_u32(&slot->posted) + 1;
	uint32 len = 0;

	slot->kind = kind;
	slot->command = *cmd;
	slot->command.request = number;
	slot->command.session = slot->session;
	slot->command.sessno = (uint32) le_my_proc();
	if (kind != LE_REQUEST_RELEASE_MANY)
	{
		put_text(&slot->command.name, slot->payload, &len);
		put_text(&slot->command.owner, slot->payload, &len);
		put_text(&slot->command.value, slot->payload, &len);
	}
	if (cmd->nnames > 0)
		le_names_put(slot, cmd, len);
	slot->need_flush = needs_flush();
	slot->need_standby = synchronous_commit > SYNCHRONOUS_COMMIT_LOCAL_FLUSH;
	slot->posted_at = le_clock();
	slot->sqlstate = 0;
	slot->revision = 0;
	pg_atomic_write_u32(&slot->note, 0);
	pg_write_barrier();
	pg_atomic_write_u32(&slot->posted, number);
	le_ring(slot);
	return number;
}

/* The answer is on its way to the disk: not worth another sleep. */
static void
await_flush(uint32 number)
{
	LeTime give_up = le_clock() + SOON;

	while (pg_atomic_read_u32(&my_slot->answered) != number && le_clock() < give_up)
		sched_yield();
}

static void
read_notes(const LeCommand *cmd, uint32 number)
{
	uint32 note = pg_atomic_read_u32(&my_slot->note);

	if (note == 0)
		return;
	pg_atomic_fetch_and_u32(&my_slot->note, ~note);
	pg_read_barrier();
	if (note & LE_NOTE_SOON)
		await_flush(number);
	if (note & LE_NOTE_OWN)
	{
		LeText name = cmd->nnames > 0 ? cmd->names[my_slot->reply.which] : cmd->name;

		ereport(
			NOTICE,
			(errmsg("%s \"%.*s\" is held by this very connection, which now waits for itself",
					le_kind_word(cmd->ns), (int) name.len, name.data),
			 errhint(
				 "Only a named owner, a named lease or the transaction that acquired can acquire again.")));
	}
}

static void
log_kept_snapshot(const LeCommand *cmd)
{
	ereport(LOG, (errmsg("a wait for %s \"%.*s\" has held a snapshot for %d seconds", le_kind_word(cmd->ns),
						 (int) cmd->name.len, cmd->name.data, (int) (SNAPSHOT_LOG_AFTER / LE_SECOND)),
				  errdetail("VACUUM cannot remove rows that died since."),
				  errhint("Call it as SELECT %s(...) alone, in READ COMMITTED.",
						  cmd->ns == LE_KIND_ELECTION ? "campaign" : "acquire_lock")));
}

static void
wait_for_answer(uint32 number, const LeCommand *cmd, bool snapshot_kept)
{
	LeRequestSlot *slot = my_slot;
	LeDatabase *db = my_database();
	LeTime start = 0, next_tick = 0, next_check = 0, down_since = 0, patience = MANAGER_START_TIMEOUT;

	/* of the others nobody says how long they may wait */
	if (cmd->wait >= 0 && (cmd->kind == LE_CMD_ACQUIRE || cmd->kind == LE_CMD_AWAIT))
		patience = Min(patience, Max(cmd->wait, MANAGER_MIN_TIMEOUT));
	while (pg_atomic_read_u32(&slot->answered) != number)
	{
		LeTime now = le_clock();

		if (start == 0)
		{
			start = now;
			next_tick = now + WAIT_TICK_MS * LE_MS;
			next_check = now + DeadlockTimeout * LE_MS;
		}
		if (now >= next_check)
		{
			le_mail(LE_MAIL_BLOCKED);
			next_check = now + WAIT_TICK_MS * LE_MS;
		}
		if (now >= next_tick)
		{
			check_client();
			CHECK_FOR_INTERRUPTS();
			next_tick = now + WAIT_TICK_MS * LE_MS;
			if (snapshot_kept && now - start >= SNAPSHOT_LOG_AFTER)
			{
				snapshot_kept = false;
				log_kept_snapshot(cmd);
			}
		}
		read_notes(cmd, number);
		if (pg_atomic_read_u32(&slot->answered) == number)
			break;
		LE_FAULT("request-before-wait");
		wait_turn(db, (long) Max(1, (Min(next_tick, next_check) - now + LE_MS - 1) / LE_MS), &down_since,
				  patience);
	}
	pg_read_barrier();
}

/*
 * All that has to be put back however a wait ends.  A lock_timeout that has
 * just struck keeps its mark: the cancel that is on its way then says so.
 */
static void
wait_cleanup(int code, Datum arg)
{
	if (LockTimeout > 0)
		disable_timeout(LOCK_TIMEOUT, true);
	watch_client(false, client_held);
	le_names_done();
}

static void
raise_answer(void)
{
	char *message;

	if (my_slot->sqlstate == 0)
		return;
	message = pstrdup(my_slot->message);
	if (my_slot->sqlstate == ERRCODE_T_R_DEADLOCK_DETECTED)
	{
		/* one line for each of the cycle */
		char *detail = pnstrdup(my_slot->payload, my_slot->payload_len);

		pgstat_report_deadlock();
		ereport(ERROR,
				(errcode(my_slot->sqlstate), errmsg("%s", message), errdetail_internal("%s", detail),
				 strchr(detail, '\n') != NULL
					 ? errhint("Acquire locks in the same order everywhere.")
					 : errhint("Only a named owner, a named lease or the transaction that acquired can "
							   "acquire again.")));
	}
	ereport(ERROR, (errcode(my_slot->sqlstate), errmsg("%s", message)));
}

/* Until what this session has sent before is applied. */
static void
wait_until_quiet(void)
{
	LeTime down_since = 0;

	if (slot_is_quiet())
		return;
	pg_atomic_fetch_and_u32(&my_slot->note, ~LE_NOTE_UNREAD);
	le_ring(my_slot);
	while (!slot_is_quiet())
	{
		if (pg_atomic_read_u32(&my_slot->note) & LE_NOTE_UNREAD)
		{
			pg_read_barrier();
			raise_answer();
		}
		wait_turn(my_database(), 100, &down_since, MANAGER_START_TIMEOUT);
	}
}

/* What a commit has not told comes first. */
static void
send_unsent(void)
{
	LeRequestSlot *slot = my_slot;
	LeCommand cmd = {.kind = LE_CMD_RELEASE};

	while (le_unsent_take(slot->payload, &slot->payload_len, &cmd.permits))
	{
		cmd.xact = le_xact_number();
		post(LE_REQUEST_RELEASE_MANY, &cmd);
		wait_until_quiet();
	}
}

static void
request(LeRequestKind kind, LeCommand *cmd, bool snapshot_kept)
{
	uint32 number;

	le_attach();
	wait_until_quiet();
	send_unsent();

	if (cmd->kind == LE_CMD_ACQUIRE || cmd->kind == LE_CMD_AWAIT)
	{
		cmd->xact = le_xact_open();
		cmd->subxact = GetCurrentSubTransactionId();
	}
	else
		cmd->xact = le_xact_number();
	if (pg_atomic_read_u32(&my_database()->running) == 0)
		want_manager(my_database());

	/* lock_timeout runs as for any other lock */
	if (cmd->wait != 0 && LockTimeout > 0)
		enable_timeout_after(LOCK_TIMEOUT, LockTimeout);
	PG_ENSURE_ERROR_CLEANUP(wait_cleanup, (Datum) 0);
	{
		LE_FAULT("request-before-post");
		number = post(kind, cmd);
		LE_FAULT("request-posted");
		wait_for_answer(number, cmd, snapshot_kept);
		LE_FAULT("request-answered");
	}
	PG_END_ENSURE_ERROR_CLEANUP(wait_cleanup, (Datum) 0);
	le_names_done();

	/* who died while it waited gets nothing: the exit undoes the grant */
	if (my_slot->reply.waited)
	{
		look_at_client();
		CHECK_FOR_INTERRUPTS();
	}
	if ((cmd->wait != 0 && LockTimeout > 0) || client_watched)
		wait_cleanup(0, (Datum) 0);
	raise_answer();
	LE_FAULT("request-done");
}

void
le_request(LeCommand *cmd, LeReply *reply, bool snapshot_kept)
{
	request(LE_REQUEST_COMMAND, cmd, snapshot_kept);
	*reply = my_slot->reply;
	if (cmd->kind == LE_CMD_ACQUIRE && (reply->status == LE_OK || reply->status == LE_QUEUED))
		le_xact_touched();
}

uint32
le_request_look(LeRequestKind kind, LeCommand *cmd, LeReply *reply, char **page)
{
	request(kind, cmd, false);
	*reply = my_slot->reply;
	*page = my_slot->payload;
	return my_slot->payload_len;
}

bool
le_request_release_many(const char *payload, uint32 len, int count, LeTime give_up)
{
	LeRequestSlot *slot = my_slot;
	LeDatabase *db = my_database();
	LeCommand cmd = {.kind = LE_CMD_RELEASE};
	uint32 number = 0;

	/*
	 * The transaction is committed: no interrupt may break out of here.  So
	 * a manager that is away, or cannot write, is not waited for without end;
	 * it finds the request when it can.
	 */
	for (;;)
	{
		if (number == 0 && slot_is_quiet())
		{
			memcpy(slot->payload, payload, len);
			slot->payload_len = len;
			cmd.xact = le_xact_number();
			cmd.permits = count;
			LE_FAULT_NOFAIL("release-before-post");
			number = post(LE_REQUEST_RELEASE_MANY, &cmd);
			LE_FAULT_NOFAIL("release-posted");
		}
		if ((number != 0 && pg_atomic_read_u32(&slot->answered) == number) ||
			pg_atomic_read_u32(&slot->note) & LE_NOTE_UNREAD)
			break;
		if (le_clock() >= give_up)
			break;
		want_manager(db);
		if (WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_POSTMASTER_DEATH, 100, PG_WAIT_EXTENSION) &
			WL_POSTMASTER_DEATH)
			break;
		ResetLatch(MyLatch);
	}
	SetLatch(MyLatch);
	return number != 0;
}

static int
sync_rep_mode(void)
{
	switch (synchronous_commit)
	{
		case SYNCHRONOUS_COMMIT_REMOTE_WRITE:
			return SYNC_REP_WAIT_WRITE;
		case SYNCHRONOUS_COMMIT_REMOTE_FLUSH:
			return SYNC_REP_WAIT_FLUSH;
		case SYNCHRONOUS_COMMIT_REMOTE_APPLY:
			return SYNC_REP_WAIT_APPLY;
		default:
			return SYNC_REP_NO_WAIT;
	}
}

/*
 * Wait for the synchronous standbys.  PostgreSQL's own wait ends with a
 * warning when it is cancelled, because a commit cannot be taken back; a
 * grant can.
 */
static void
wait_for_standbys(XLogRecPtr lsn)
{
	int mode = sync_rep_mode();
	bool confirmed;

	if (mode == SYNC_REP_NO_WAIT || !SyncRepRequested() || !le_sync_standbys_defined())
		return;
	HOLD_INTERRUPTS();
	SyncRepWaitForLSN(lsn, true);
	RESUME_INTERRUPTS();
	CHECK_FOR_INTERRUPTS();

	LWLockAcquire(SyncRepLock, LW_SHARED);
	confirmed = lsn <= WalSndCtl->lsn[mode] || !le_sync_standbys_defined();
	LWLockRelease(SyncRepLock);
	if (!confirmed)
		ereport(ERROR,
				(errcode(ERRCODE_QUERY_CANCELED),
				 errmsg("canceling wait for the replication of %s",
						my_slot->command.ns == LE_KIND_ELECTION ? "an election" : "a lock"),
				 my_slot->command.kind == LE_CMD_ACQUIRE
					 ? errdetail("It was granted locally, and may not be replicated; it is given back.")
					 : errdetail("The request has taken effect locally, and may not be replicated.")));
}

bool
le_durable_in_time(const LeReply *reply)
{
	LeTime answered_at = my_slot->reply_at;

	if (reply->lsn == 0 || !needs_flush())
		return true;
	LE_FAULT("durable-before");
	XLogFlush((XLogRecPtr) reply->lsn);
	wait_for_standbys((XLogRecPtr) reply->lsn);
	LE_FAULT("durable-after");
	return reply->valid_for == LE_NEVER || reply->valid_for <= 0 ||
		   le_clock() - answered_at < reply->valid_for;
}

void
le_wait_durable(const LeReply *reply, const char *what, LeText name)
{
	if (!le_durable_in_time(reply))
		ereport(ERROR, (errcode(MAKE_SQLSTATE('L', 'E', '0', '0', '1')),
						errmsg("%s \"%.*s\" was lost while its durability was waited for", what,
							   (int) name.len, name.data)));
}
