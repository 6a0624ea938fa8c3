/*
 * backend/request.c
 *		A session sends a request to its manager, and waits for the answer in
 *		every way a wait can end.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/timeout.h"
#include "utils/wait_event.h"

#include "backend/durability.h"
#include "backend/request.h"
#include "backend/session.h"
#include "backend/xact.h"
#include "shared/compat.h"
#include "shared/fault.h"
#include "shared/names.h"
#include "shared/shmem.h"
#include "shared/wake.h"
#include "shared/words.h"

/* Even a try waits this long: a manager that restarts is back sooner. */
#define MANAGER_MIN_TIMEOUT (1 * LE_SECOND)

/* How often a wait looks at the client's socket and at the manager. */
#define WAIT_TICK_MS 1000

/* A wait that holds a snapshot is logged after this long. */
#define SNAPSHOT_LOG_AFTER (60 * LE_SECOND)

/* --- mailbox --- */

/* The lowest subtransaction of the newest transaction counts. */
void
le_mail_undo(uint32 xact, uint32 subxact)
{
	uint64 mail = ((uint64) xact << 32) | subxact;
	uint64 old = pg_atomic_read_u64(&le_my_slot->undo);

	while ((old >> 32) != xact || (uint32) old == 0 || (uint32) old > subxact)
	{
		if (pg_atomic_compare_exchange_u64(&le_my_slot->undo, &old, mail))
			break;
	}
	le_ring(le_my_slot);
}

void
le_mail(uint32 flag)
{
	pg_atomic_fetch_or_u32(&le_my_slot->mail, flag);
	le_ring(le_my_slot);
}

/* --- requests --- */

static bool
slot_is_quiet(void)
{
	return pg_atomic_read_u32(&le_my_slot->answered) == pg_atomic_read_u32(&le_my_slot->posted) &&
		   pg_atomic_read_u64(&le_my_slot->undo) == 0;
}

static uint32
next_number(void)
{
	return pg_atomic_read_u32(&le_my_slot->posted) + 1;
}

static LeTextSpan
put_text(LeText text, uint32 *len)
{
	LeTextSpan span = {.at = (uint16) *len, .len = (uint16) text.len, .given = text.data != NULL};

	if (text.data == NULL)
		return span;
	Assert(*len + text.len <= LE_PAYLOAD_SIZE);
	memcpy(le_my_slot->payload + *len, text.data, text.len);
	*len += text.len;
	return span;
}

static void
put_command(const LeCommand *cmd)
{
	LeRequestSlot *slot = le_my_slot;
	uint32 len = 0;

	slot->command = *cmd;
	slot->command.request = next_number();
	slot->command.session = slot->session;
	slot->command.sessno = (uint32) le_my_proc();
	slot->command.name = slot->command.owner = slot->command.value = (LeText){NULL, 0};
	slot->command.names = NULL;
	slot->name = put_text(cmd->name, &len);
	slot->owner = put_text(cmd->owner, &len);
	slot->value = put_text(cmd->value, &len);
	if (cmd->nnames > 0)
		le_names_put(slot, cmd, len);
}

static void
put_look(const LeLook *look)
{
	uint32 len = 0;

	le_my_slot->look.kind = look->kind;
	le_my_slot->look.from = look->from;
	le_my_slot->name = put_text(look->name, &len);
}

/* The payload is filled in already. */
static void
put_releases(uint32 len)
{
	le_my_slot->releases.xact = le_xact_number();
	le_my_slot->releases.len = len;
}

/*
 * Steps 1 and 2 of the protocol: the slot was quiet, and what belongs to this
 * type has been put into it.  Returns the request's number.
 */
static uint32
post(LeRequestType type)
{
	LeRequestSlot *slot = le_my_slot;
	uint32 number = next_number();

	slot->type = type;
	slot->need_flush = le_needs_flush();
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

static void
read_notes(const LeCommand *cmd, uint32 number)
{
	uint32 note = pg_atomic_read_u32(&le_my_slot->note);

	if (note == 0)
		return;
	pg_atomic_fetch_and_u32(&le_my_slot->note, ~note);
	pg_read_barrier();
	if (note & LE_NOTE_SOON)
		le_await_answer_soon(le_my_slot, number);
	if (note & LE_NOTE_OWN_SESSION)
	{
		LeText name = cmd->nnames > 0 ? cmd->names[le_my_slot->reply.which] : cmd->name;

		ereport(
			NOTICE,
			(errmsg("%s \"%.*s\" is held by this very connection, which now waits for itself",
					le_kind_word(cmd->kind), (int) name.len, name.data),
			 errhint(
				 "Only a named owner, a named lease or the transaction that acquired can acquire again.")));
	}
}

static void
log_kept_snapshot(const LeCommand *cmd)
{
	ereport(LOG, (errmsg("a wait for %s \"%.*s\" has held a snapshot for %d seconds", le_kind_word(cmd->kind),
						 (int) cmd->name.len, cmd->name.data, (int) (SNAPSHOT_LOG_AFTER / LE_SECOND)),
				  errdetail("VACUUM cannot remove rows that died since."),
				  errhint("Call it as SELECT %s(...) alone, in READ COMMITTED.",
						  cmd->kind == LE_KIND_ELECTION ? "campaign" : "acquire_lock")));
}

static void
wait_for_answer(uint32 number, const LeCommand *cmd, bool snapshot_kept)
{
	LeRequestSlot *slot = le_my_slot;
	LeDatabase *db = le_my_database();
	LeTime start = 0, next_tick = 0, next_check = 0, down_since = 0, patience = LE_MANAGER_START_TIMEOUT;

	/* of the others nobody says how long they may wait */
	if (cmd->wait >= 0 && (cmd->type == LE_CMD_ACQUIRE || cmd->type == LE_CMD_AWAIT))
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
			le_watch_client_in_wait();
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
		le_wait_turn(db, (long) Max(1, (Min(next_tick, next_check) - now + LE_MS - 1) / LE_MS), &down_since,
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
	le_unwatch_client();
	le_names_done();
}

static void
raise_answer(void)
{
	char *message;

	if (le_my_slot->sqlstate == 0)
		return;
	message = pstrdup(le_my_slot->message);
	if (le_my_slot->sqlstate == ERRCODE_T_R_DEADLOCK_DETECTED)
	{
		/* one line for each of the cycle */
		char *detail = pnstrdup(le_my_slot->payload + le_my_slot->answer_at, le_my_slot->answer_len);

		pgstat_report_deadlock();
		ereport(ERROR,
				(errcode(le_my_slot->sqlstate), errmsg("%s", message), errdetail_internal("%s", detail),
				 strchr(detail, '\n') != NULL
					 ? errhint("Acquire locks in the same order everywhere.")
					 : errhint("Only a named owner, a named lease or the transaction that acquired can "
							   "acquire again.")));
	}
	ereport(ERROR, (errcode(le_my_slot->sqlstate), errmsg("%s", message)));
}

/* Until what this session has sent before is applied. */
static void
wait_until_quiet(void)
{
	LeTime down_since = 0;

	if (slot_is_quiet())
		return;
	pg_atomic_fetch_and_u32(&le_my_slot->note, ~LE_NOTE_UNREAD);
	le_ring(le_my_slot);
	while (!slot_is_quiet())
	{
		if (pg_atomic_read_u32(&le_my_slot->note) & LE_NOTE_UNREAD)
		{
			pg_read_barrier();
			raise_answer();
		}
		le_wait_turn(le_my_database(), 100, &down_since, LE_MANAGER_START_TIMEOUT);
	}
}

/* What a commit has not told comes first. */
static void
send_unsent(void)
{
	uint32 len;

	while (le_unsent_take(le_my_slot->payload, &len))
	{
		put_releases(len);
		post(LE_REQUEST_RELEASE_MANY);
		wait_until_quiet();
	}
}

/* A look has no command of its own; then cmd is blank. */
static void
request(LeRequestType type, LeCommand *cmd, const LeLook *look, bool snapshot_kept)
{
	uint32 number;

	le_attach();
	wait_until_quiet();
	send_unsent();

	if (cmd->type == LE_CMD_ACQUIRE || cmd->type == LE_CMD_AWAIT)
	{
		cmd->xact = le_xact_open();
		cmd->subxact = GetCurrentSubTransactionId();
	}
	else
		cmd->xact = le_xact_number();
	if (pg_atomic_read_u32(&le_my_database()->running) == 0)
		le_want_manager(le_my_database());

	/* lock_timeout runs as for any other lock */
	if (cmd->wait != 0 && LockTimeout > 0)
		enable_timeout_after(LOCK_TIMEOUT, LockTimeout);
	PG_ENSURE_ERROR_CLEANUP(wait_cleanup, (Datum) 0);
	{
		LE_FAULT("request-before-post");
		if (look != NULL)
			put_look(look);
		else
			put_command(cmd);
		number = post(type);
		LE_FAULT("request-posted");
		wait_for_answer(number, cmd, snapshot_kept);
		LE_FAULT("request-answered");
	}
	PG_END_ENSURE_ERROR_CLEANUP(wait_cleanup, (Datum) 0);
	le_names_done();

	/* who died while it waited gets nothing: the exit undoes the grant */
	if (le_my_slot->reply.waited)
	{
		le_look_at_client();
		CHECK_FOR_INTERRUPTS();
	}
	if ((cmd->wait != 0 && LockTimeout > 0) || le_client_is_watched())
		wait_cleanup(0, (Datum) 0);
	raise_answer();
	LE_FAULT("request-done");
}

void
le_request(LeCommand *cmd, LeReply *reply, bool snapshot_kept)
{
	request(LE_REQUEST_COMMAND, cmd, NULL, snapshot_kept);
	*reply = le_my_slot->reply;
	if (cmd->type == LE_CMD_ACQUIRE && (reply->status == LE_OK || reply->status == LE_QUEUED))
		le_xact_touched();
}

void
le_request_leader(LeCommand *cmd, LeReply *reply, LeLeader *leader)
{
	LeRequestSlot *slot;

	request(LE_REQUEST_LEADER, cmd, NULL, false);
	slot = le_my_slot;
	*reply = slot->reply;
	leader->since = slot->leader_since;
	leader->candidate = (LeText){slot->payload + slot->answer_at, slot->answer_len};
}

LeText
le_request_look(LeRequestType type, LeLook *look)
{
	LeCommand none = {0};
	LeRequestSlot *slot;

	request(type, &none, look, false);
	slot = le_my_slot;
	look->from = slot->next_page;
	return (LeText){slot->payload + slot->answer_at, slot->answer_len};
}

bool
le_request_release_many(const char *payload, uint32 len, LeTime give_up)
{
	LeRequestSlot *slot = le_my_slot;
	LeDatabase *db = le_my_database();
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
			put_releases(len);
			LE_FAULT_NOFAIL("release-before-post");
			number = post(LE_REQUEST_RELEASE_MANY);
			LE_FAULT_NOFAIL("release-posted");
		}
		if ((number != 0 && pg_atomic_read_u32(&slot->answered) == number) ||
			pg_atomic_read_u32(&slot->note) & LE_NOTE_UNREAD)
			break;
		if (le_clock() >= give_up)
			break;
		le_want_manager(db);
		if (WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_POSTMASTER_DEATH, 100, PG_WAIT_EXTENSION) &
			WL_POSTMASTER_DEATH)
			break;
		ResetLatch(MyLatch);
	}
	SetLatch(MyLatch);
	return number != 0;
}
