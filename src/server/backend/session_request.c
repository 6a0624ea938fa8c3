/*
 * backend/session_request.c
 *		Sends a request to the manager, waits for the reply, and handles every way in which the wait can end.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/wait_event.h"

#include "backend/session_acquirer.h"
#include "backend/client.h"
#include "backend/durability.h"
#include "backend/session_request.h"
#include "backend/session_mailbox.h"
#include "backend/wait.h"
#include "backend/xactstate.h"
#include "shared/compat.h"
#include "shared/fault.h"
#include "shared/flush.h"
#include "shared/names.h"
#include "shared/settings.h"
#include "shared/shmem.h"
#include "shared/sleep.h"
#include "shared/words.h"

/* Time between two requests for a deadlock search during a wait. */
#define BLOCKED_EVERY (1 * LE_SECOND)

/* Grace period after the end of the caller's wait, before the call wakes up the manager again. */
#define RING_AFTER (1 * LE_SECOND)

/* Time after which a wait that holds a snapshot is logged. */
#define SNAPSHOT_LOG_AFTER (60 * LE_SECOND)

/* Whether a quiet mailbox may contain releases of an earlier commit that the manager has not taken. */
typedef enum Releases
{
	RELEASES_TAKEN,
	RELEASES_MAY_WAIT
} Releases;

/*
 * Returns whether the last request has a reply, no rollback is unread and, with RELEASES_TAKEN, no releases
 * are left: step 1 of the protocol in shared/shmem.h.
 */
static bool
mailbox_is_quiet(Releases releases)
{
	return pg_atomic_read_u32(&le_my_mailbox->answered) == pg_atomic_read_u32(&le_my_mailbox->posted) &&
		   pg_atomic_read_u64(&le_my_mailbox->undo) == 0 &&
		   (releases == RELEASES_MAY_WAIT ||
			(pg_atomic_read_u32(&le_my_mailbox->mail) & LE_MAIL_RELEASED) == 0);
}

bool
le_mailbox_is_quiet(void)
{
	return mailbox_is_quiet(RELEASES_TAKEN);
}

/* Appends a text to the payload, of which *len bytes are in use. */
static LeTextSpan
put_text(LeText text, uint32 *len)
{
	LeTextSpan span = {.at = (uint16) *len, .len = (uint16) text.len, .given = text.data != NULL};

	if (text.data == NULL)
		return span;
	Assert(*len + text.len <= LE_PAYLOAD_SIZE);
	memcpy(le_my_mailbox->payload + *len, text.data, text.len);
	*len += text.len;
	return span;
}

/* A request to send.  For PAGE, which has no core command, *cmd is all zero. */
typedef struct Sent
{
	LeRequestType type;
	LeCommand *cmd;
	const LePageRequest *page; /* only for LE_REQUEST_PAGE */
	LeEachAnswer *answers;     /* only for commands with "each" */
	LeSync *sync;              /* only for LE_REQUEST_SYNC */
	LeTime until;              /* end of the wait for durability; 0 = unlimited, not allowed for SYNC */
	bool *durable;             /* output: whether the reply has become durable by "until" */
	bool snapshot_kept;
} Sent;

/*
 * Fills in a request that has a core command.  Writes the command's texts to the payload.  Writes its body to
 * the payload, too, or to a segment if the payload has no room for it.
 */
static void
put_command(const Sent *sent, uint32 number)
{
	const LeCommand *cmd = sent->cmd;
	LeMailbox *box = le_my_mailbox;
	uint32 len = 0;

	Assert(box->session != 0 && le_mailbox_proc(box) == (uint32) le_my_proc());
	box->command = *cmd;
	box->command.request = number;
	box->command.session = box->session;
	box->command.sessno = (uint32) le_my_proc();
	box->command.name = box->command.owner = box->command.value = box->command.acquirer = (LeText){NULL, 0};
	box->command.names = NULL;
	box->command.tokens = NULL;
	box->name = put_text(cmd->name, &len);
	box->owner = put_text(cmd->owner, &len);
	box->value = put_text(cmd->value, &len);
	box->acquirer = put_text(
		cmd->type == LE_CMD_ACQUIRE || sent->sync != NULL ? le_acquirer_self() : (LeText){NULL, 0}, &len);
	if (cmd->nnames > 0)
		le_names_put(box, cmd, len);
	if (sent->sync != NULL)
		le_sync_put(box, sent->sync, len);
}

/*
 * Posts a request: steps 1 and 2 of the protocol in shared/shmem.h.  The mailbox must be quiet, and the
 * caller must have filled in the members for this type of request.
 */
static void
post(LeRequestType type, uint32 number)
{
	LeMailbox *box = le_my_mailbox;

	Assert(mailbox_is_quiet(RELEASES_MAY_WAIT) && type >= LE_REQUEST_COMMAND && type <= LE_REQUEST_SYNC);

	/* "releasing" must not be set: an exiting manager would wait for this session to post a release */
	Assert(pg_atomic_read_u32(&box->releasing) == 0);
	Assert(pg_atomic_read_u32(&le_shared->processes[le_my_proc()].present) != 0);
	box->type = type;
	box->need_flush = le_needs_flush();
	box->need_standby = le_needs_standby();
	box->durable_release = le_durable_release;
	box->posted_at = le_clock();
	box->sqlstate = 0;
	box->revision = 0;
	pg_atomic_write_u32(&box->note, 0);
	LE_FAULT_NOFAIL("request-timed");
	pg_write_barrier();
	pg_atomic_write_u32(&box->posted, number);
	LE_FAULT_NOFAIL("request-before-ring");
	le_ring(box);
}

/* Reports the manager's notes about a waiting request to the client. */
static void
read_notes(const LeCommand *cmd)
{
	uint32 note = pg_atomic_read_u32(&le_my_mailbox->note);

	if (note == 0)
		return;
	pg_atomic_fetch_and_u32(&le_my_mailbox->note, ~note);
	pg_read_barrier();
	if (note & LE_NOTE_OWN_SESSION)
	{
		LeText name = le_command_name(cmd, le_my_mailbox->reply.which);

		ereport(NOTICE, (errmsg("%s is already held by this connection, which now waits for itself",
								le_named(cmd->kind, name)),
						 errhint("Only a named owner, a named lease or the transaction that acquired it can "
								 "acquire it again.")));
	}
}

static void
log_kept_snapshot(const LeCommand *cmd)
{
	ereport(LOG, (errmsg("a wait for %s has held a snapshot for %d seconds", le_named(cmd->kind, cmd->name),
						 (int) (SNAPSHOT_LOG_AFTER / LE_SECOND)),
				  errdetail("VACUUM cannot remove rows that were deleted since then."),
				  errhint("Call it as SELECT %s(...) alone, in READ COMMITTED.",
						  cmd->kind == LE_KIND_ELECTION ? "campaign" : "acquire_lock")));
}

/* Returns whether the caller specifies a maximum wait, after which the call returns without the lock. */
static bool
has_own_wait(const LeCommand *cmd)
{
	return (cmd->type == LE_CMD_ACQUIRE && !cmd->enqueue) || cmd->type == LE_CMD_AWAIT;
}

/* Logs a wait as PostgreSQL does for its own locks: at deadlock_timeout, and again when the wait ends. */
static void
log_wait(const LeCommand *cmd, LeTime started_at, bool over)
{
	LeTime waited_us = le_clock() - started_at;
	LeText name = le_command_name(cmd, 0);

	ereport(LOG, (errmsg(over ? "process %d no longer waits for %s after %.3f ms"
							  : "process %d still waiting for %s after %.3f ms",
						 MyProcPid, le_named(cmd->kind, name), (double) waited_us / LE_MS),
				  over ? 0 : errhint("The views lock_election.waiters and locks show what it waits for.")));
}

/*
 * Returns whether the call should give up waiting for the reply.  When the caller's wait ends, a working
 * manager replies, but a stuck manager does not.  Called in each turn of the wait, at least once a second.
 * The following times count from the end of the caller's wait:
 *
 *	1.	After RING_AFTER, wakes up the manager once more (*rung), so that a working manager takes the request.
 *	2.	After LE_TAKE_GRACE, gives up if the mailbox is still linked, because the manager has not taken the
 *		request.
 *	3.	After LE_ANSWER_GRACE, gives up in any case.
 */
static bool
gave_no_answer(const LeWait *wait, LeTime now, bool *rung)
{
	if (!le_wait_is_over(wait, now, RING_AFTER))
		return false;
	if (!*rung)
		le_ring(le_my_mailbox);
	*rung = true;
	if (!le_wait_is_over(wait, now, LE_TAKE_GRACE))
		return false;
	return le_wait_is_over(wait, now, LE_ANSWER_GRACE) || pg_atomic_read_u32(&le_my_mailbox->linked) != 0;
}

/*
 * Waits for the reply to this request.  Each turn of the loop gives up if the manager is stuck, requests a
 * deadlock search, logs a long wait, reads notes, flushes the WAL if this session was named the flusher, and
 * sleeps.  Returns LE_WAIT_OVER if it gave up.
 */
static LeWaitEnd
wait_for_answer(uint32 number, const Sent *sent, LeWait *wait)
{
	const LeCommand *cmd = sent->cmd;
	bool snapshot_kept = sent->snapshot_kept;
	LeMailbox *box = le_my_mailbox;
	LeTime started_at = le_clock(), next_check_at = started_at + DeadlockTimeout * LE_MS;
	bool rung = false, logged = false;

	Assert(number == pg_atomic_read_u32(&box->posted));
	while (pg_atomic_read_u32(&box->answered) != number)
	{
		LeTime now = le_clock();

		/* 1. give up if the manager is stuck */
		if (gave_no_answer(wait, now, &rung))
			return LE_WAIT_OVER;

		/* 2. request a deadlock search, and log a long wait */
		if (rung)
			next_check_at = LE_NEVER;
		else if (now >= next_check_at)
		{
			le_mail(LE_MAIL_WAITS_LONG);
			if (log_lock_waits && !logged && has_own_wait(cmd))
			{
				logged = true;
				log_wait(cmd, started_at, false);
			}
			next_check_at = now + BLOCKED_EVERY;
		}
		if (snapshot_kept && now - started_at >= SNAPSHOT_LOG_AFTER)
		{
			snapshot_kept = false;
			log_kept_snapshot(cmd);
		}

		/* 3. report the manager's notes, and flush the WAL for all waiting sessions */
		read_notes(cmd);
		le_flush_turn(box, sent->until != 0 ? sent->until : LE_NEVER);
		if (pg_atomic_read_u32(&box->answered) == number)
			break;

		/* 4. sleep */
		LE_FAULT("request-before-wait");
		le_wait_turn(wait, le_my_database(), next_check_at);
	}
	pg_read_barrier();
	Assert(pg_atomic_read_u32(&box->posted) == number);
	if (logged)
		log_wait(cmd, started_at, true);
	return LE_WAIT_DONE;
}

/*
 * Resets everything that a wait has set up, if the wait ends without a reply.  This is step 2 of undoing a
 * cancelled wait, see backend/xact.c.  Must not fail, because it is called for ERROR and FATAL.
 */
static void
wait_cleanup(int code, Datum arg)
{
	/* the manager still has the request, but no caller is waiting for the reply */
	if (le_my_mailbox != NULL)
		pg_atomic_write_u32(&le_my_mailbox->given_up, pg_atomic_read_u32(&le_my_mailbox->posted));
	le_flush_leave();
	le_client_wait_over();
	le_body_done();
}

const char *
le_answer_hint(int sqlstate)
{
	return sqlstate == ERRCODE_LOCK_NOT_AVAILABLE
			   ? "SELECT blocked_by FROM lock_election.health() shows the process of that session."
			   : NULL;
}

void
le_raise_answer(int sqlstate, const char *message)
{
	const char *hint = le_answer_hint(sqlstate);

	ereport(ERROR, (errcode(sqlstate), errmsg("%s", message), hint != NULL ? errhint("%s", hint) : 0));
}

/* If the manager has written an error to the mailbox, as its reply or in a note, raises that error. */
static void
raise_answer(void)
{
	char *message;

	if (le_my_mailbox->sqlstate == 0)
		return;
	message = pstrdup(le_my_mailbox->message);
	if (le_my_mailbox->sqlstate == ERRCODE_T_R_DEADLOCK_DETECTED)
	{
		/* the detail has one line for each member of the cycle */
		char *detail = pnstrdup(le_my_mailbox->payload + le_my_mailbox->answer_at, le_my_mailbox->answer_len);

		pgstat_report_deadlock();
		ereport(ERROR,
				(errcode(le_my_mailbox->sqlstate), errmsg("%s", message), errdetail_internal("%s", detail),
				 strchr(detail, '\n') != NULL
					 ? errhint("Acquire locks in the same order everywhere.")
					 : errhint("Only a named owner, a named lease or the transaction that acquired it can "
							   "acquire it again.")));
	}
	le_raise_answer(le_my_mailbox->sqlstate, message);
}

/*
 * Waits until the mailbox is quiet.  Raises the manager's error if the manager cannot apply earlier mail of
 * this session.  Returns LE_WAIT_OVER if the caller's wait ended first.
 */
static LeWaitEnd
wait_until_quiet(LeWait *wait, Releases releases)
{
	if (mailbox_is_quiet(releases))
		return LE_WAIT_DONE;
	pg_atomic_fetch_and_u32(&le_my_mailbox->note, ~LE_NOTE_UNREAD);
	le_ring(le_my_mailbox);
	while (!mailbox_is_quiet(releases))
	{
		LeTime now = le_clock();

		if (pg_atomic_read_u32(&le_my_mailbox->note) & LE_NOTE_UNREAD)
		{
			pg_read_barrier();
			raise_answer();
		}
		if (le_wait_is_over(wait, now, LE_TAKE_GRACE))
			return LE_WAIT_OVER;
		le_wait_poll(wait, le_my_database());
	}
	return LE_WAIT_DONE;
}

void
le_mailbox_await_quiet(void)
{
	LeWait wait;

	le_wait_begin(&wait, LE_RELEASE_TIMEOUT, false);
	if (wait_until_quiet(&wait, RELEASES_TAKEN) == LE_WAIT_OVER)
		ereport(ERROR, (errcode(ERRCODE_CANNOT_CONNECT_NOW),
						errmsg("an earlier release of this session is still pending"),
						errdetail("The lock_election manager is not running, or cannot write.")));
}

/*
 * A renewal waits for the flush of its row for at most RAISE_PATIENCE, and at most 1 / RAISE_PART of its
 * validity.  It checks every RAISE_PERIOD.
 */
#define RAISE_PATIENCE (500 * LE_MS)
#define RAISE_PART     10
#define RAISE_PERIOD   (2 * LE_MS)

/*
 * Waits until the row of a renewal is flushed.  If it is not flushed in time, reduces the validity in the
 * reply to valid_least, which needs no flush.
 */
static void
wait_for_raise(LeWait *wait)
{
	LeReply *reply = &le_my_mailbox->reply;
	LeTime until = le_clock() + Min(RAISE_PATIENCE, reply->valid_for / RAISE_PART);

	while (!le_flush_done((XLogRecPtr) reply->lsn))
	{
		LeTime now = le_clock();

		if (now >= until)
		{
			reply->valid_for = reply->valid_least;
			reply->valid_lease = Min(reply->valid_lease, reply->valid_least);
			return;
		}
		le_wait_turn(wait, NULL, Min(until, now + RAISE_PERIOD));
	}
}

/*
 * Carries out step 5 of send_and_wait() for a lease_sync(): waits for the flush until sent->until.  Without
 * the flush, the lease is valid only for the time that its previous row guarantees, or not at all if there is
 * no previous row.  The wait for standbys comes later, as for all replies.
 */
static void
wait_for_sync(const Sent *sent, LeWait *wait)
{
	LeReply *reply = &le_my_mailbox->reply;
	uint64 lease_lsn = le_my_mailbox->sync.lease_lsn;

	*sent->durable = true;
	if (reply->status != LE_OK || reply->lsn == 0 || !le_my_mailbox->need_flush ||
		le_my_mailbox->sqlstate != 0)
		return;
	if (le_renewal_is_raised(reply, le_my_mailbox->need_standby))
	{
		wait_for_raise(wait);
		return;
	}
	*sent->durable = le_flush_wait_until(le_my_mailbox, sent->until);
	if (*sent->durable)
		return;
	if (lease_lsn == LE_LSN_OF_BATCH)
		lease_lsn = reply->lsn;
	reply->valid_for = le_flush_done((XLogRecPtr) lease_lsn) ? Min(reply->valid_for, reply->valid_least) : 0;
}

/*
 * Carries out the steps of a request that can raise an error or wait:
 *
 *	1.	Take this session's mailbox, and wait until it is quiet.
 *	2.	Number the request, if a rollback can undo it.
 *	3.	Fill it in and post it.
 *	4.	Wait for the reply.  If there is none (LE_WAIT_OVER), mail an undo, because the manager may still
 *		grant the request.
 *	5.	Wait until the reply is flushed; for a renewal, only for a limited time.
 */
static LeWaitEnd
send_and_wait(const Sent *sent, LeWait *wait)
{
	LeCommand *cmd = sent->cmd;
	uint32 number;

	Assert((sent->page != NULL) == (sent->type == LE_REQUEST_PAGE));
	Assert((sent->sync != NULL) == (sent->type == LE_REQUEST_SYNC));

	/*
	 * 1. The mailbox may still contain an asynchronous release, because the manager takes the release before
	 * the request.
	 */
	if (le_attach(wait) == LE_WAIT_OVER ||
		wait_until_quiet(wait, le_my_mailbox->releases.async ? RELEASES_MAY_WAIT : RELEASES_TAKEN) ==
			LE_WAIT_OVER)
		return LE_WAIT_OVER;

	/* 2. number the request */
	if (cmd->type == LE_CMD_ACQUIRE || cmd->type == LE_CMD_AWAIT)
	{
		cmd->xact = le_xact_open();
		cmd->subxact = le_xact_acquire();
		Assert(cmd->xact == pg_atomic_read_u32(&le_my_mailbox->open_xact) && cmd->subxact > 0);
	}
	else
		cmd->xact = le_xact_number();
	if (pg_atomic_read_u32(&le_my_database()->running) == 0)
		le_want_manager(le_my_database());

	/* 3. fill in and post the request, with the mailbox's next number, which wraps around */
	number = pg_atomic_read_u32(&le_my_mailbox->posted) + 1;
	LE_FAULT("request-before-post");
	if (sent->page != NULL)
	{
		uint32 len = 0;

		le_my_mailbox->page.kind = sent->page->kind;
		le_my_mailbox->page.from = sent->page->from;
		le_my_mailbox->name = put_text(sent->page->name, &len);
	}
	else
		put_command(sent, number);

	/* le_flush_leave() has cleared "present" at the end of the last wait */
	Assert(pg_atomic_read_u32(&le_shared->processes[le_my_proc()].present) == 0);
	le_flush_enter();
	post(sent->type, number);
	LE_FAULT("request-posted");

	/* 4. wait for the reply */
	if (wait_for_answer(number, sent, wait) == LE_WAIT_OVER)
	{
		le_mail_undo(cmd->xact, cmd->subxact);
		return LE_WAIT_OVER;
	}
	LE_FAULT("request-answered");

	/* 5. wait for the flush */
	if (sent->sync != NULL)
		wait_for_sync(sent, wait);
	else if (sent->until != 0)
		*sent->durable = le_flush_wait_until(le_my_mailbox, sent->until);
	else if (le_my_mailbox->reply.lsn != 0 && le_my_mailbox->need_flush)
	{
		if (le_renewal_is_raised(&le_my_mailbox->reply, le_my_mailbox->need_standby))
		{
			wait_for_raise(wait);
			return LE_WAIT_DONE;
		}
		le_flush_wait(le_my_mailbox);
		Assert((XLogRecPtr) le_my_mailbox->reply.lsn <= GetFlushRecPtr(NULL));
	}
	return LE_WAIT_DONE;
}

/*
 * Sends a request, waits for its reply, and always resets everything that the wait has set up.  Returns
 * LE_WAIT_OVER if the manager did not reply within the caller's wait.
 */
static LeWaitEnd
request(const Sent *sent)
{
	LeCommand *cmd = sent->cmd;
	LeWait wait;
	LeWaitEnd end;

	Assert(IsTransactionState() && CritSectionCount == 0);
	Assert(!sent->snapshot_kept || has_own_wait(cmd));

	/* 1. check whether this session may send the request */
	le_check_can_attach();
	if (sent->type == LE_REQUEST_COMMAND || sent->type == LE_REQUEST_SYNC)
		le_check_standby_defined(cmd->type);
	le_wait_begin(&wait, has_own_wait(cmd) ? cmd->wait : LE_WAIT_FOREVER,
				  has_own_wait(cmd) && cmd->wait != 0);

	/* 2. send it and wait; an error or an exit runs wait_cleanup() */
	PG_ENSURE_ERROR_CLEANUP(wait_cleanup, (Datum) 0);
	{
		end = send_and_wait(sent, &wait);

		/* if the client has died during the wait, exit now; the exit undoes the grant */
		if (end == LE_WAIT_DONE && le_my_mailbox->reply.waited)
		{
			LE_FAULT("request-granted");
			le_client_look();
			CHECK_FOR_INTERRUPTS();
		}
	}
	PG_END_ENSURE_ERROR_CLEANUP(wait_cleanup, (Datum) 0);
	if (end == LE_WAIT_OVER)
	{
		wait_cleanup(0, (Datum) 0);
		le_raise_if_no_manager(&wait);
		return LE_WAIT_OVER;
	}

	/* 3. read the reply, which may be an error */
	le_flush_leave();
	if (sent->answers != NULL)
		memcpy(sent->answers, le_body_mine(le_my_mailbox), cmd->nnames * sizeof(LeEachAnswer));
	if (sent->sync != NULL)
		le_sync_read(le_my_mailbox, sent->sync);
	le_body_done();
	le_client_hold(pg_atomic_read_u32(&le_my_mailbox->bound) != 0,
				   cmd->type == LE_CMD_ACQUIRE && cmd->ttl == LE_TTL_BOUND);
	le_client_wait_over();
	if (sent->sync == NULL)
		raise_answer();
	LE_FAULT("request-done");
	return LE_WAIT_DONE;
}

/*
 * Sends a command for one name, for several names together, or (answers not NULL) for each of several names
 * separately, with one result for each.
 */
static void
request_command(LeCommand *cmd, LeReply *reply, LeEachAnswer *answers, bool snapshot_kept)
{
	Sent sent = {.type = LE_REQUEST_COMMAND, .cmd = cmd, .answers = answers, .snapshot_kept = snapshot_kept};

	Assert(cmd->each == (answers != NULL));
	if (request(&sent) == LE_WAIT_DONE)
		*reply = le_my_mailbox->reply;
	else
		*reply = (LeReply){.status = cmd->type == LE_CMD_AWAIT ? LE_QUEUED : LE_NOT_GRANTED};
	Assert(cmd->nnames == 0 || reply->which < cmd->nnames);
	if (cmd->nnames > 0)
		cmd->name = cmd->names[reply->which];
	if (cmd->type == LE_CMD_ACQUIRE && (reply->status == LE_OK || reply->status == LE_QUEUED))
		le_xact.is_touched = true;
}

void
le_request(LeCommand *cmd, LeReply *reply, bool snapshot_kept)
{
	request_command(cmd, reply, NULL, snapshot_kept);
}

bool
le_request_until(LeCommand *cmd, LeReply *reply, LeTime until)
{
	bool durable = true;

	(void) request(&(Sent){.type = LE_REQUEST_COMMAND, .cmd = cmd, .until = until, .durable = &durable});
	*reply = le_my_mailbox->reply;
	return durable && (reply->lsn == 0 || !le_needs_flush() || le_confirmed_by(reply->lsn, until));
}

void
le_request_each(LeCommand *cmd, LeReply *reply, LeEachAnswer *answers)
{
	Assert(cmd->each && cmd->nnames > 0);
	request_command(cmd, reply, answers, false);
}

void
le_request_leader(LeCommand *cmd, LeReply *reply, LeLeader *leader)
{
	LeMailbox *box;

	(void) request(&(Sent){.type = LE_REQUEST_LEADER, .cmd = cmd});
	box = le_my_mailbox;
	*reply = box->reply;
	leader->since = box->leader_since;
	leader->candidate = (LeText){box->payload + box->answer_at, box->answer_len};
}

void
le_request_changes(LeReply *reply)
{
	LeCommand cmd = {.type = LE_CMD_CHECK, .kind = LE_KIND_ELECTION};

	(void) request(&(Sent){.type = LE_REQUEST_CHANGES, .cmd = &cmd});
	*reply = le_my_mailbox->reply;
}

LeText
le_request_page(LePageRequest *page)
{
	LeCommand none = {0};
	LeMailbox *box;

	(void) request(&(Sent){.type = LE_REQUEST_PAGE, .cmd = &none, .page = page});
	box = le_my_mailbox;
	page->from = box->next_page;
	return (LeText){box->payload + box->answer_at, box->answer_len};
}

void
le_request_sync(LeSync *sync, LeTime until)
{
	LeCommand cmd = {.type = LE_CMD_KEEP_ALIVE, .lease = sync->lease, .role = sync->role};
	const LeReply *reply = &sync->renewal;
	bool needs_standby = le_needs_standby();

	(void) request(&(Sent){
		.type = LE_REQUEST_SYNC, .cmd = &cmd, .sync = sync, .until = until, .durable = &sync->durable});
	if (!sync->answered || reply->status != LE_OK)
		return;
	sync->validity = reply->valid_for;
	if (!sync->durable)
		sync->validity = le_waits_for_standby(needs_standby) ? 0 : sync->validity;
	else if (reply->lsn != 0 && le_needs_flush() && !le_renewal_is_raised(reply, needs_standby) &&
			 !le_confirmed_by(reply->lsn, until))
	{
		sync->durable = false;
		sync->validity = 0;
	}
}
