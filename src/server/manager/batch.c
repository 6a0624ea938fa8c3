/*
 * manager/batch.c
 *		The manager's work: a batch of requests, applied, written, answered.
 *
 * The core decides, the store writes; this file and manager/take.c carry between
 * the slots and the two.  A batch that fails leaves no trace: the core is thrown
 * away and loaded again, waiting requests go back to their places, and the
 * requests of the batch are applied one by one, so that only the one that cannot
 * be written fails.  While the tables cannot even be read, every request is
 * answered with that error.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "catalog/pg_control.h"
#include "mb/pg_wchar.h"
#include "pgstat.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "manager/batch.h"
#include "manager/deadlock.h"
#include "manager/fence.h"
#include "manager/hints.h"
#include "manager/history.h"
#include "manager/internal.h"
#include "shared/compat.h"
#include "shared/fault.h"
#include "shared/flush.h"
#include "shared/releases.h"
#include "shared/settings.h"
#include "shared/shmem.h"
#include "shared/wake.h"
#include "store/store.h"

Manager le_mgr;

/* --- answers --- */

static void
publish_bound(LeRequestSlot *slot)
{
	pg_atomic_write_u32(&slot->bound, le_core_bound_to(le_mgr.core, slot->session, le_slot_proc(slot)));
}

void
le_batch_answer(uint32 proc, uint32 number, const LeReply *reply)
{
	LeRequestSlot *slot = slot_of(proc);
	bool flush;

	if (pg_atomic_read_u32(&slot->posted) != number || pg_atomic_read_u32(&slot->answered) == number)
		return;
	slot->reply = *reply;
	slot->reply_at = le_clock();
	publish_bound(slot);
	slot->revision = 0;

	/* from the answer on the slot is the session's, which may be awake */
	flush = reply->lsn != 0 && slot->need_flush && !le_flush_done((XLogRecPtr) reply->lsn);
	pg_write_barrier();
	pg_atomic_write_u32(&slot->answered, number);
	if (flush)
		le_flush_ask(proc, (XLogRecPtr) reply->lsn);
	else
		le_wake((int) proc);
}

static void
put_error(LeRequestSlot *slot, int sqlstate, const char *message)
{
	/* cut at a character's end */
	int len = pg_mbcliplen(message, (int) strlen(message), sizeof(slot->message) - 1);

	slot->sqlstate = sqlstate;
	memcpy(slot->message, message, len);
	slot->message[len] = '\0';
}

/* The manager's own lock_timeout says nothing to anybody else. */
static const char *
error_text(const ErrorData *error)
{
	if (error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)
		return "the tables of extension lock_election are locked by another session";
	return error->message;
}

void
le_batch_answer_error(uint32 proc, int sqlstate, const char *message)
{
	LeRequestSlot *slot = slot_of(proc);
	LeReply reply = {0};

	put_error(slot, sqlstate, message);
	le_batch_answer(proc, pg_atomic_read_u32(&slot->posted), &reply);
}

/* --- writing --- */

/* The incarnation of the next token: it is on disk before a token uses it. */
static int64
next_incarnation(void)
{
	return le_core_next_revision(le_mgr.core) >> LE_COUNTER_BITS;
}

static bool
anything_to_write(void)
{
	return next_incarnation() != le_mgr.meta.incarnation || le_core_dirty_slots(le_mgr.core) != NULL ||
		   le_core_dirty_leases(le_mgr.core) != NULL || le_core_dirty_places(le_mgr.core) != NULL ||
		   le_core_changes(le_mgr.core) != NULL;
}

/* The early notice of shared/wake.h: it makes a hand-over shorter by 5 us. */
static void
announce_answers(void)
{
	int n = 0;

	for (LeEntry *entry = le_core_answers(le_mgr.core); entry != NULL && n < LE_WAKE_EARLY;
		 entry = entry->waiter->answer_next, n++)
	{
		LeRequestSlot *slot = slot_of(entry->waiter->sessno);

		if (entry->waiter->answer != LE_OK || slot->session != entry->waiter->session)
			continue;
		le_wake_early(slot);
	}
}

void
le_batch_begin(void)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
}

XLogRecPtr
le_batch_commit(bool flush)
{
	PopActiveSnapshot();

	/* the variable alone: the setting, "local", keeps us from any standby */
	synchronous_commit = flush ? SYNCHRONOUS_COMMIT_LOCAL_FLUSH : SYNCHRONOUS_COMMIT_OFF;
	CommitTransactionCommand();
	synchronous_commit = SYNCHRONOUS_COMMIT_LOCAL_FLUSH;
	MemoryContextSwitchTo(le_mgr.batch_context);
	return XactLastCommitEnd;
}

static XLogRecPtr
write_batch(LeTime now)
{
	LeCounters *counters = &le_mgr.db->counters;
	LeTime start = le_clock();
	LeMeta meta = le_mgr.meta;
	XLogRecPtr lsn;
	int rows;
	bool wrote, flush = false;

	le_batch_begin();
	if (!le_store_open(le_mgr.core))
	{
		le_mgr.rewritten = true;
		ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE), errmsg("the tables of lock_election were replaced")));
	}
	LE_FAULT("batch-begun");
	rows = le_store_write(le_mgr.core, now);
	meta.incarnation = next_incarnation();
	if (meta.incarnation != le_mgr.meta.incarnation)
	{
		/* the counter was full, or advanced */
		meta.taken_at = GetCurrentTimestamp();
		le_store_write_meta(&meta);
		flush = true;
	}
	le_store_close();
	announce_answers();
	LE_FAULT("batch-written");
	wrote = TransactionIdIsValid(GetTopTransactionIdIfAny());
	lsn = le_batch_commit(flush);
	le_mgr.meta = meta;
	LE_FAULT_NOFAIL("batch-committed");

	pg_atomic_fetch_add_u64(&counters->batches, 1);
	pg_atomic_fetch_add_u64(&counters->xids, 1);
	pg_atomic_fetch_add_u64(&counters->rows, rows);
	pg_atomic_fetch_add_u64(&counters->write_us, le_clock() - start);

	/* what came and went within the batch has left nothing: then lsn is an older commit's */
	return wrote ? lsn : InvalidXLogRecPtr;
}

/*
 * Log a record for callers whose answer wrote nothing (a renewal, is_held(), a
 * lock that is held already), so that they can wait for it: a primary that is cut
 * off from its synchronous standbys confirms nothing.
 */
XLogRecPtr
le_batch_log_nothing(void)
{
	uint32 nothing = 0;

	XLogBeginInsert();
	XLogRegisterData((char *) &nothing, sizeof(nothing));
	return XLogInsert(RM_XLOG_ID, XLOG_NOOP);
}

/*
 * Is this such an answer, to a session that asks for a standby?  Whatever says
 * that something is so now: also that a queue place is still there.
 */
bool
le_batch_confirms(const LeRequestSlot *slot, const LeReply *reply)
{
	return (reply->status == LE_OK || reply->status == LE_QUEUED) && !reply->bound &&
		   le_waits_for_standby(slot->need_standby);
}

/* With a standby a release is an answer like others: it says that the lock was held until now. */
bool
le_batch_may_return(const LeReply *reply, bool durable_release, bool need_standby)
{
	return reply->may_return && !durable_release && !le_waits_for_standby(need_standby);
}

/* --- after the commit --- */

/*
 * What the caller of this answer has to wait for.  confirmed: the end of a
 * record of this batch, written for the first that needs one.
 */
static void
set_lsn(LeReply *reply, XLogRecPtr lsn, bool confirm, XLogRecPtr *confirmed)
{
	if (reply->bound)
	{
		reply->lsn = 0; /* durable for nobody */
		return;
	}
	if (reply->wrote && !reply->may_return)
		reply->lsn = Max(reply->lsn, lsn);
	if (!confirm)
		return;
	if (*confirmed == 0)
		*confirmed = lsn != 0 ? lsn : le_batch_log_nothing();
	reply->lsn = Max(reply->lsn, *confirmed);
}

/* Before anything that could fail: a second time they would release holds that are not meant. */
static void
clear_releases(XLogRecPtr lsn)
{
	for (int i = 0; i < le_mgr.nmails; i++)
	{
		Mail *mail = &le_mgr.mails[i];
		LeRequestSlot *slot = slot_of(mail->proc);

		if ((mail->flags & LE_MAIL_RELEASED) == 0)
			continue;
		mail->flags &= ~LE_MAIL_RELEASED;
		slot->releases.done = mail->released_to;
		if (mail->released)
			slot->releases.lsn = lsn;
		if (slot->releases.done < slot->releases.len)
			continue;
		slot->released_lsn = slot->releases.lsn;
		le_releases_drop(&slot->releases);
		pg_write_barrier();
		pg_atomic_fetch_and_u32(&slot->mail, ~LE_MAIL_RELEASED);
		if (!mail->told)
			le_wake((int) mail->proc);
	}
}

static void
give_answers(XLogRecPtr lsn)
{
	LeTime now = core_now();
	XLogRecPtr confirmed = 0;

	clear_releases(lsn);
	for (int i = 0; i < le_mgr.ndeferred; i++)
	{
		Deferred *d = &le_mgr.deferred[i];

		set_lsn(&d->reply, lsn, d->confirm, &confirmed);
		le_batch_answer(d->proc, d->number, &d->reply);
		LE_FAULT_NOFAIL("batch-answering");
	}
	for (LeEntry *entry = le_core_answers(le_mgr.core); entry != NULL; entry = entry->waiter->answer_next)
	{
		LeRequestSlot *slot = slot_of(entry->waiter->sessno);
		LeReply reply;

		if (slot->session != entry->waiter->session)
			continue;
		le_entry_answer(le_mgr.core, entry, now, &reply);
		set_lsn(&reply, lsn, le_batch_confirms(slot, &reply), &confirmed);
		reply.waited = true;
		le_batch_answer(entry->waiter->sessno, entry->waiter->request, &reply);
		LE_FAULT_NOFAIL("batch-waking");
	}
	le_flush_start();
}

/* What was read from the mailboxes is committed: empty them. */
static void
empty_mailboxes(void)
{
	for (int i = 0; i < le_mgr.nmails; i++)
	{
		Mail *mail = &le_mgr.mails[i];
		LeRequestSlot *slot = slot_of(mail->proc);
		uint64 undo = mail->undo;

		if (undo != 0)
			(void) pg_atomic_compare_exchange_u64(&slot->undo, &undo, 0);
		pg_atomic_fetch_and_u32(&slot->mail, ~(mail->flags & ~LE_MAIL_FENCE_ENDED));
		if (mail->flags & LE_MAIL_SESSION_END)
			le_slot_clear(slot);
		else
			publish_bound(slot);
		if (!mail->told)
			le_wake((int) mail->proc);
	}
}

/* The newest waiter of a cycle gets the error; its request is undone by the rollback that follows. */
static void
end_deadlock(uint32 proc, const StringInfoData *detail)
{
	LeRequestSlot *slot = slot_of(proc);

	/* cut at a character's end */
	slot->answer_at = 0;
	slot->answer_len = (uint32) pg_mbcliplen(detail->data, detail->len, LE_PAYLOAD_SIZE);
	memcpy(slot->payload, detail->data, slot->answer_len);
	le_batch_answer_error(proc, ERRCODE_T_R_DEADLOCK_DETECTED, "deadlock detected");
}

/* Those who have waited long. */
static void
end_deadlocks(void)
{
	for (int i = 0; i < le_mgr.nmails; i++)
	{
		if (le_mgr.mails[i].flags & LE_MAIL_BLOCKED)
			le_deadlock_ask(le_mgr.mails[i].proc);
	}
	if (le_clock() >= le_deadlock_next_search())
		le_deadlock_search(le_mgr.core, end_deadlock);
}

/* --- a batch --- */

static void
batch_reset(void)
{
	le_mgr.ndeferred = le_mgr.nmails = le_mgr.nfresh = 0;
	le_mgr.rewritten = le_mgr.much = false;
	le_mgr.resting = le_take_rests();
	le_store_begin_batch();
	MemoryContextReset(le_mgr.batch_context);
	MemoryContextSwitchTo(le_mgr.batch_context);
}

void
le_batch_set_limits(LeCore *core, int work)
{
	LeLimits limits = {.waiters_per_lock = le_max_waiters_per_lock,
					   .locks_per_role = le_max_locks_per_role,
					   .leases_per_role = le_max_leases_per_role,
					   .bytes_per_role = (int64) le_max_memory_per_role * 1024 * 1024,
					   .work = work,
					   .expiry_grace = (LeTime) le_expiry_grace * LE_MS};

	le_core_set_limits(core, &limits);
}

/* It has not run since then: le_pause_seen() has the rule. */
static void
seen_running(LeTime since, LeTime now)
{
	LeTime moved = le_pause_seen(&le_mgr.pause, since, now);

	if (moved == 0)
		return;
	pg_atomic_fetch_add_u64(&le_mgr.db->counters.stalls, 1);
	ereport(LOG, (errmsg("the lock_election manager did not run for %ld ms; all leases go on by %ld ms",
						 (long) ((now - since) / LE_MS), (long) (moved / LE_MS))));
}

/*
 * What is taken is applied at a time that is no earlier than it was posted.
 * What ends was due at the horizon: all that was posted until then is in procs.
 */
static LeTime
apply(const uint32 *procs, int n, bool expire, LeTime horizon)
{
	LeTime now;

	le_mgr.taken_at = le_clock();
	seen_running(le_mgr.pause.seen_at, le_mgr.taken_at);
	now = le_pause_time(&le_mgr.pause, le_mgr.taken_at);
	horizon = le_pause_time(&le_mgr.pause, horizon);

	le_batch_set_limits(le_mgr.core, le_mgr.resting ? WORK_AT_REST : WORK_A_BATCH);
	le_core_set_horizon(le_mgr.core, horizon);
	if (le_mgr.reenter)
		le_take_waiting(now);
	le_take(procs, n, now);
	LE_FAULT("batch-before-expiry");
	if (expire)
		le_core_expire(le_mgr.core, now, EXPIRE_A_BATCH);
	le_mgr.much |= le_core_is_full(le_mgr.core);
	return now;
}

static void
batch(const uint32 *procs, int n, bool expire, LeTime horizon)
{
	LeTime now;
	XLogRecPtr lsn = 0;

	batch_reset();
	now = apply(procs, n, expire, horizon);
	LE_FAULT("batch-applied");
	if (anything_to_write())
		lsn = write_batch(now);
	if (le_core_changes(le_mgr.core) != NULL)
		le_mgr.changes_lsn = lsn;
	give_answers(lsn);
	LE_FAULT_NOFAIL("batch-before-hints");
	le_hints_of_batch(le_mgr.core, lsn);
	le_history_written(le_mgr.core);
	LE_FAULT_NOFAIL("batch-before-mailboxes");
	empty_mailboxes();
	le_core_batch_done(le_mgr.core, lsn);
	le_publish();
	if (lsn != 0)
		pgstat_report_stat(false); /* may fail: not before the answers are given */
	le_take_rest();
	LE_FAULT_CHECK(le_mgr.core);
	LE_FAULT("batch-done");
	le_fence_end_overdue(le_mgr.core, now);
	end_deadlocks();
}

/* What the failed batch has taken is to be taken again. */
static void
untake(void)
{
	for (int i = 0; i < le_mgr.nfresh; i++)
	{
		LeRequestSlot *slot = slot_of(le_mgr.fresh[i]);
		uint32 number = pg_atomic_read_u32(&slot->posted);

		if (pg_atomic_read_u32(&slot->answered) != number)
		{
			le_mgr.taken[le_mgr.fresh[i]] = pg_atomic_read_u32(&slot->answered);
			slot->revision = 0;
		}
	}
	for (int i = 0; i < le_mgr.nmails; i++)
		pg_atomic_fetch_or_u32(&slot_of(le_mgr.mails[i].proc)->mail,
							   le_mgr.mails[i].flags & LE_MAIL_FENCE_ENDED);
}

/* False: it failed, *error says why, and the core is not to be used. */
static bool
try_batch(const uint32 *procs, int n, bool expire, LeTime horizon, ErrorData **error)
{
	volatile bool ok = false;

	PG_TRY();
	{
		batch(procs, n, expire, horizon);
		ok = true;
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(le_mgr.batch_context);
		*error = CopyErrorData();
		/* tables with new files are loaded again, and nobody notices: no failure */
		if (!le_mgr.rewritten)
		{
			EmitErrorReport();
			pg_atomic_fetch_add_u64(&le_mgr.db->counters.failed_batches, 1);
		}
		FlushErrorState();
		AbortCurrentTransaction();
		untake();
		le_mgr.rest_until = 0;
		le_mgr.core_valid = false;
		le_pause_broken(&le_mgr.pause);
		if ((*error)->sqlerrcode == ERRCODE_UNIQUE_VIOLATION)
			pg_atomic_fetch_add_u64(&le_mgr.db->counters.key_violations, 1);
	}
	PG_END_TRY();
	return ok;
}

/* --- running --- */

int
le_batch_all_slots(uint32 *procs)
{
	int n = 0;

	for (int i = 0; i < le_shared->max_slots; i++)
	{
		LeRequestSlot *slot = slot_of(i);

		if (slot->session == 0)
			continue;
		if (pg_atomic_read_u32(&slot->posted) != pg_atomic_read_u32(&slot->answered) ||
			pg_atomic_read_u32(&slot->mail) != 0 || pg_atomic_read_u64(&slot->undo) != 0)
			procs[n++] = i;
	}
	return n;
}

/*
 * Requests that wait go on waiting.  Mail and the releases of a commit stay where
 * they are and are tried again; a backend that wants to go on before that is told
 * why it cannot.
 */
static void
fail_requests(const uint32 *procs, int n, const ErrorData *error)
{
	for (int i = 0; i < n; i++)
	{
		LeRequestSlot *slot = slot_of(procs[i]);
		bool unanswered = pg_atomic_read_u32(&slot->posted) != pg_atomic_read_u32(&slot->answered);
		uint32 mail =
			pg_atomic_read_u32(&slot->mail) & (LE_MAIL_SESSION_END | LE_MAIL_RELEASED | LE_MAIL_UNCONFIRMED);
		bool mailed;

		/* nobody waits for it, and its session may be reading an answer */
		if (le_take_is_told(procs[i]))
			mail &= ~LE_MAIL_RELEASED;
		mailed = mail != 0 || pg_atomic_read_u64(&slot->undo) != 0;
		if (slot->session == 0 || (slot->revision != 0 && mail == 0))
			continue;
		if (unanswered && slot->revision == 0)
			le_batch_answer_error(procs[i], error->sqlerrcode, error_text(error));
		else if (mailed)
			put_error(slot, error->sqlerrcode, error_text(error));
		if (mailed)
		{
			pg_write_barrier();
			pg_atomic_fetch_or_u32(&slot->note, LE_NOTE_UNREAD);
			le_wake((int) procs[i]);
		}
	}
	le_mgr.retry_at = le_clock() + RETRY_AFTER;
}

/* False: nothing can be read, and *error says why. */
static bool
replay_one(uint32 proc, bool told_only, LeTime horizon, ErrorData **error)
{
	bool readable = true, again;

	LE_FAULT_NOFAIL("replay");
	le_mgr.rest_until = 0;
	le_mgr.told_only = told_only;
	do
	{
		again = false;
		if (!try_batch(&proc, 1, false, horizon, error))
		{
			/* rewritten once more: no fault of this request */
			again = le_mgr.rewritten;
			if (!again)
				fail_requests(&proc, 1, *error);
			readable = le_batch_reload(error);
		}
	} while (again && readable);
	le_mgr.told_only = false;
	return readable;
}

/* False: nothing can be read, and all have got that error.  As in le_take(), releases that were told come first. */
static bool
replay(uint32 *procs, int n, LeTime horizon)
{
	ErrorData *error;

	for (int i = 0; i < n; i++)
	{
		if (le_take_is_told(procs[i]) && !replay_one(procs[i], true, horizon, &error))
		{
			fail_requests(procs, n, error);
			return false;
		}
	}
	for (int i = 0; i < n; i++)
	{
		if (!replay_one(procs[i], false, horizon, &error))
		{
			fail_requests(&procs[i], n - i, error);
			return false;
		}
	}
	return true;
}

static void
run_one_by_one(uint32 *procs, int n)
{
	ErrorData *error;
	LeTime horizon = le_clock();

	n = le_take_rung(procs, n);
	while (replay(procs, n, horizon))
	{
		/* what came meanwhile may be renewals: before anything expires */
		horizon = le_clock();
		n = le_take_rung(procs, 0);
		if (try_batch(procs, n, le_clock() >= le_mgr.expire_after, horizon, &error))
			return;
		le_mgr.expire_after = le_clock() + RETRY_AFTER;
		if (!le_batch_reload(&error))
		{
			fail_requests(procs, n, error);
			return;
		}
		if (n == 0)
			return;
	}
}

static void
run(uint32 *procs, int n)
{
	ErrorData *error;
	LeTime horizon;

	if (le_mgr.retry_at != 0 && le_mgr.retry_at <= le_clock())
	{
		le_mgr.retry_at = 0;
		n = le_batch_all_slots(procs);
	}
	if (le_batch_has_room())
	{
		le_mgr.core_valid = false;
		le_pause_broken(&le_mgr.pause);
	}
	if (!le_mgr.core_valid && !le_batch_reload(&error))
	{
		fail_requests(procs, n, error);
		return;
	}
	horizon = le_clock();
	LE_FAULT_NOFAIL("batch-horizon");
	n = le_take_aside(procs, n);

	/*
	 * All that was posted until the horizon, so that a renewal that was posted before a
	 * deadline wins; and what was told to be released before anything in procs was posted.
	 */
	n = le_take_rung(procs, n);
	LE_FAULT_NOFAIL("batch-rung");
	if (try_batch(procs, n, le_clock() >= le_mgr.expire_after, horizon, &error))
		return;
	if (!le_batch_reload(&error))
		fail_requests(procs, n, error);
	else
		run_one_by_one(procs, n);
}

void
le_batch_run(uint32 *procs, int n)
{
	run(procs, n);

	/* also for answers of a batch that failed after them */
	le_flush_start();
}

bool
le_batch_is_gone(void)
{
	return le_mgr.gone;
}

void
le_batch_gone(void)
{
	for (int i = 0; i < le_shared->max_slots; i++)
	{
		LeRequestSlot *slot = slot_of(i);

		if (slot->session == 0)
			continue;
		if (pg_atomic_read_u32(&slot->posted) != pg_atomic_read_u32(&slot->answered))
			le_batch_answer_error(i, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
								  "extension lock_election was dropped");
		pg_atomic_write_u64(&slot->undo, 0);
		if (pg_atomic_read_u32(&slot->mail) & LE_MAIL_RELEASED)
		{
			le_releases_drop(&slot->releases);
			pg_atomic_fetch_or_u32(&slot->note, LE_NOTE_GONE);
			pg_atomic_fetch_and_u32(&slot->mail, ~LE_MAIL_RELEASED);
		}

		/* a session that ends right now: the next manager clears its slot, or le_database_free() */
		LE_FAULT_NOFAIL("extension-gone");
		pg_atomic_fetch_and_u32(&slot->mail, LE_MAIL_SESSION_END | LE_MAIL_RELEASED);
		le_wake(i);
	}
}

void
le_batch_check_stall(LeTime slept_until, const uint32 *procs, int n)
{
	LeTime now = le_clock(), rang_at = LE_NEVER;

	for (int i = 0; i < n; i++)
	{
		LeRequestSlot *slot = slot_of(procs[i]);

		if (pg_atomic_read_u32(&slot->posted) != pg_atomic_read_u32(&slot->answered) &&
			le_mgr.taken[procs[i]] != pg_atomic_read_u32(&slot->posted) && slot->revision == 0 &&
			slot->posted_at > le_mgr.pause.seen_at)
			rang_at = Min(rang_at, slot->posted_at);
	}
	seen_running(le_pause_since(&le_mgr.pause, slept_until, rang_at, now), now);
}

LeTime
le_batch_next_wakeup(void)
{
	LeTime deadline, wakeup = LE_NEVER;

	if (le_mgr.retry_at != 0)
		wakeup = le_mgr.retry_at;
	if (!le_mgr.core_valid)
		return wakeup;

	/* at once; what could not be written, after a while */
	if (le_mgr.reenter || anything_to_write() || le_core_answers(le_mgr.core) != NULL)
		return le_mgr.expire_after;
	wakeup = Min(wakeup, le_deadlock_next_search());
	if (le_mgr.naside > 0)
		wakeup = Min(wakeup, le_mgr.rest_until);
	if (le_mgr.left_out > 0)
		wakeup = le_mgr.left_out_of < le_max_memory ? 0 : Min(wakeup, le_mgr.left_out_at);
	deadline = le_core_next_deadline(le_mgr.core);
	if (deadline != LE_NEVER)
	{
		deadline = Max(deadline + le_mgr.pause.lost, le_mgr.expire_after);
		wakeup = Min(wakeup, Min(deadline, le_clock() + HEARTBEAT));
	}
	return wakeup;
}

void
le_batch_init(LeDatabase *db)
{
	int n = le_shared->max_slots;

	le_mgr.db = db;
	le_mgr.taken = MemoryContextAllocZero(TopMemoryContext, n * sizeof(uint32));
	le_mgr.fresh = MemoryContextAllocZero(TopMemoryContext, n * sizeof(uint32));
	le_mgr.mails = MemoryContextAllocZero(TopMemoryContext, 2 * n * sizeof(Mail));
	le_mgr.deferred = MemoryContextAllocZero(TopMemoryContext, n * sizeof(Deferred));
	le_mgr.extended = MemoryContextAllocZero(TopMemoryContext, n * sizeof(Extended));
	le_mgr.aside = MemoryContextAllocZero(TopMemoryContext, n * sizeof(uint32));
	le_mgr.listed = MemoryContextAllocZero(TopMemoryContext, n * sizeof(uint32));
	for (int i = 0; i < n; i++)
	{
		le_mgr.taken[i] = pg_atomic_read_u32(&slot_of(i)->answered);
		pg_atomic_write_u32(&slot_of(i)->aside, le_mgr.taken[i]);
	}
	le_mgr.batch_context =
		AllocSetContextCreate(TopMemoryContext, "lock_election batch", ALLOCSET_DEFAULT_SIZES);
	le_pause_init(&le_mgr.pause, le_clock());
}
