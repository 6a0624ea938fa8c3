/*
 * manager/answer.c
 *		Finds the mailboxes that have work for the manager, and replies to them.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "mb/pg_wchar.h"

#include "manager/answer.h"
#include "manager/state.h"
#include "shared/fault.h"
#include "shared/flush.h"
#include "shared/settings.h"
#include "shared/sleep.h"

/* --- work for the manager --- */

/*
 * Puts the mailboxes with mail first, because mail may end a session, which makes room for other requests.
 * The order in which the mailboxes rang is not known here.
 */
int
le_mailboxes_with_work(uint32 *procs)
{
	int n = 0, nmailed = 0;

	for (int i = 0; i < le_shared->max_sessions; i++)
	{
		LeMailbox *box = mailbox_of(i);
		bool mailed = pg_atomic_read_u32(&box->mail) != 0 || pg_atomic_read_u64(&box->undo) != 0;

		if (!mailed && !is_unanswered(box))
			continue;
		procs[n++] = i;
		if (mailed)
		{
			procs[n - 1] = procs[nmailed];
			procs[nmailed++] = i;
		}
	}
	Assert(nmailed <= n);
	return n;
}

bool
le_mailbox_has_async(uint32 proc)
{
	LeMailbox *box = mailbox_of(proc);

	if ((pg_atomic_read_u32(&box->mail) & LE_MAIL_RELEASED) == 0)
		return false;
	pg_read_barrier();
	return box->releases.async;
}

void
le_mailboxes_retry_later(void)
{
	if (le_mgr.retry_at == 0)
		le_mgr.retry_at = le_clock() + RETRY_AFTER;
}

/* --- replies --- */

void
le_publish_bound(LeMailbox *box)
{
	pg_atomic_write_u32(&box->bound, le_core_bound_to(le_mgr.core, box->session, le_mailbox_proc(box)));
}

void
le_answer_request(uint32 proc, uint32 number, const LeReply *reply, LeTime as_of)
{
	LeMailbox *box = mailbox_of(proc);
	bool flush;

	if (pg_atomic_read_u32(&box->posted) != number || pg_atomic_read_u32(&box->answered) == number)
		return;
	Assert(box->session != 0);
	Assert(!reply->bound || reply->lsn == 0); /* bound entries end with the server, so their replies wait for
											   * no flush */
	Assert(reply->lsn <= GetXLogInsertRecPtr() && as_of <= le_clock());
	box->reply = *reply;
	box->reply_as_of = as_of;
	le_publish_bound(box);
	box->revision = 0;

	/*
	 * Compute this before "answered" is set, because from then on the mailbox belongs to the session.  A
	 * renewal needs no flush: it is valid even before its row is flushed, for a shorter time.
	 */
	flush = reply->lsn != 0 && box->need_flush && !le_renewal_is_raised(reply, box->need_standby) &&
			!le_flush_done((XLogRecPtr) reply->lsn);
	pg_write_barrier();
	pg_atomic_write_u32(&box->answered, number);
	if (flush)
	{
		LE_FAULT_NOFAIL("answer-before-flush");
		le_flush_ask(proc, (XLogRecPtr) reply->lsn);
	}
	else
		le_wake((int) proc);
}

void
le_answer_at_commit(Batch *batch, uint32 proc, uint32 number, const LeReply *reply, bool confirm)
{
	Assert(batch->nanswers < le_shared->max_sessions);
	batch->answers[batch->nanswers++] =
		(CommitAnswer){.proc = proc, .number = number, .confirm = confirm, .reply = *reply};
}

static void
put_error(LeMailbox *box, int sqlstate, const char *message)
{
	/* cut the text at a character boundary */
	int len = pg_mbcliplen(message, (int) strlen(message), sizeof(box->message) - 1);

	Assert(sqlstate != 0 && len >= 0 && len < (int) sizeof(box->message));
	box->sqlstate = sqlstate;
	strlcpy(box->message, message, len + 1);
}

/*
 * Returns the error text for a client.  The text of a lock timeout is replaced, because clients do not know
 * the manager's lock_timeout.
 */
static const char *
error_text(const ErrorData *error)
{
	if (error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)
		return "the tables of extension lock_election are locked by another session";
	return error->message;
}

void
le_answer_error(uint32 proc, int sqlstate, const char *message)
{
	LeMailbox *box = mailbox_of(proc);
	LeReply reply = {0};

	put_error(box, sqlstate, message);
	le_answer_request(proc, pg_atomic_read_u32(&box->posted), &reply, le_clock());
}

void
le_answer_withdrawn(uint32 proc)
{
	LeReply reply = {.status = LE_NOT_GRANTED};

	le_answer_request(proc, pg_atomic_read_u32(&mailbox_of(proc)->posted), &reply, le_clock());
}

void
le_answer_displaced(Batch *batch, const LeReply *by)
{
	LeReply reply = {.status = LE_QUEUED, .lsn = by->lsn, .wrote = by->wrote, .bound = by->bound};

	le_answer_at_commit(batch, by->displaced_sessno, by->displaced_request, &reply, false);
}

/* Sends the error and its detail.  The session then rolls back, which undoes its request. */
void
le_answer_deadlock(uint32 proc, const StringInfoData *detail)
{
	LeMailbox *box = mailbox_of(proc);

	/* cut the text at a character boundary */
	box->answer_at = 0;
	box->answer_len = (uint32) pg_mbcliplen(detail->data, detail->len, LE_PAYLOAD_SIZE);
	Assert(is_unanswered(box) && box->answer_len <= LE_PAYLOAD_SIZE);
	memcpy(box->payload, detail->data, box->answer_len);
	le_answer_error(proc, ERRCODE_T_R_DEADLOCK_DETECTED, "deadlock detected");
}

#ifdef USE_ASSERT_CHECKING
void
le_assert_procs(const uint32 *procs, int n)
{
	bool *seen = palloc0(le_shared->max_sessions * sizeof(bool));

	Assert(n >= 0 && n <= le_shared->max_sessions);
	for (int i = 0; i < n; i++)
	{
		Assert(procs[i] < (uint32) le_shared->max_sessions && !seen[procs[i]]);
		seen[procs[i]] = true;
	}
	pfree(seen);
}
#endif

/*
 * Replies after a failed batch:
 *
 *	the mailbox has						its session gets
 *	----------------------------------	--------------------------------------------------
 *	no session any more					nothing
 *	a request that waits, no mail		nothing: the request continues to wait
 *	a new request						the error as its reply
 *	mail								a note with the error, which no request can overwrite
 *	a new request and mail				both
 *	an asynchronous release				nothing: the call has returned already
 *	a new request and such a release	the error as its reply
 *
 * "Mail" here is a rollback, the end of the session, or releases that a COMMIT waits for.  It stays in the
 * mailbox and is retried after RETRY_AFTER.  If there is mail, the session does not wait for its request any
 * more.
 */
void
le_answer_failed_one(uint32 proc, uint32 number, const ErrorData *error)
{
	LeMailbox *box = mailbox_of(proc);
	uint32 mail = pg_atomic_read_u32(&box->mail) & (LE_MAIL_SESSION_END | LE_MAIL_RELEASED);
	bool waits = box->revision != 0;
	bool mailed;

	/* the session has received a reply and posted a newer request, which another batch will serve */
	if (pg_atomic_read_u32(&box->posted) != number)
		return;

	/*
	 * do not report the failure of an asynchronous release, because its session may be reading a reply in
	 * this mailbox
	 */
	if (le_mailbox_has_async(proc))
		mail &= ~LE_MAIL_RELEASED;
	/* if the extension was dropped, le_leave_dropped() informs the session instead */
	mailed = le_mgr.core_state != CORE_DROPPED && (mail != 0 || pg_atomic_read_u64(&box->undo) != 0);
	if (pg_atomic_read_u32(&box->answered) != number && !waits)
		le_answer_error(proc, error->sqlerrcode, error_text(error));
	else if (mailed)
		put_error(box, error->sqlerrcode, error_text(error));
	if (mailed)
	{
		pg_write_barrier();
		pg_atomic_fetch_or_u32(&box->note, LE_NOTE_UNREAD);
		le_wake((int) proc);
	}
}

void
le_answer_failed(const uint32 *procs, int n, const ErrorData *error)
{
	le_assert_procs(procs, n);
	for (int i = 0; i < n; i++)
		le_answer_failed_one(procs[i], pg_atomic_read_u32(&mailbox_of(procs[i])->posted), error);
	le_mailboxes_retry_later();
}

/*
 * If the session's synchronous_commit requires a standby, every reply that reports a holder or a queue place
 * waits for that standby, even if the request wrote nothing.  If a request is carried out in several steps,
 * only the reply to the last step waits, because its WAL record follows the records of the other steps.
 */
bool
le_answer_needs_standby(const LeMailbox *box, const LeReply *reply)
{
	return (reply->status == LE_OK || reply->status == LE_QUEUED) && !reply->bound && reply->next == 0 &&
		   le_waits_for_standby(box->need_standby);
}

/*
 * A session that waits for standbys must not return before the flush of its release, because its reply also
 * confirms that the lock was held until now.
 */
bool
le_answer_may_return(const LeReply *reply, bool durable_release, bool need_standby)
{
	return reply->may_return && !durable_release && !le_waits_for_standby(need_standby);
}
