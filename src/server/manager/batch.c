/*
 * manager/batch.c
 *		Runs a batch: applies requests, writes the changed rows, and replies.
 *
 * The core decides, and the store writes.  This file and manager/take.c connect
 * the mailboxes with both.  manager/take.c decides the order of service.  A
 * batch that fails before its commit has no effect.  A batch that fails after
 * its replies keeps all its effects, see manager/replay.c.
 */
#include "postgres.h"

#include "access/xact.h"
#include "pgstat.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "manager/answer.h"
#include "manager/batch.h"
#include "manager/chores.h"
#include "manager/deadlock.h"
#include "manager/hints.h"
#include "manager/looks.h"
#include "manager/outage.h"
#include "manager/publish.h"
#include "manager/reload.h"
#include "manager/state.h"
#include "manager/take.h"
#include "manager/txn.h"
#include "shared/fault.h"
#include "shared/flush.h"
#include "shared/releases.h"
#include "shared/sleep.h"

/*
 * Maximum time between the reply to a release and the write of its row, for releases that a crash may undo.
 */
#define LATER_AT_MOST (50 * LE_MS)

/* --- writing --- */

/* Returns the incarnation of the next token.  An incarnation must be on disk before any token contains it. */
static int64
next_incarnation(void)
{
	return le_core_next_revision(le_mgr.core) >> LE_COUNTER_BITS;
}

static bool
anything_to_write(void)
{
	return next_incarnation() != le_mgr.meta.incarnation || le_next_dirty_slot(le_mgr.core, NULL) != NULL ||
		   le_next_dirty_lease(le_mgr.core, NULL) != NULL || le_next_dirty_place(le_mgr.core, NULL) != NULL ||
		   le_next_change(le_mgr.core, NULL) != NULL;
}

/*
 * Returns whether postponed writes of releases are due now.  When the manager exits, all of them are due,
 * because there is no later batch.
 */
static bool
later_is_due(LeTime now)
{
	return le_core_later_since(le_mgr.core) <= now - LATER_AT_MOST ||
		   pg_atomic_read_u32(&le_mgr.db->running) == 0;
}

bool
le_batch_has_later(void)
{
	return le_core_later_since(le_mgr.core) != LE_NEVER;
}

/*
 * Writes the decisions of the core in one transaction.  Returns the end of the commit record, on which the
 * replies depend, or 0 if nothing was written.  Must not fail after the commit, because the batch would then
 * be applied a second time.
 */
static XLogRecPtr
write_batch(Batch *batch)
{
	LeCounters *counters = &le_mgr.db->counters;
	LeTime start = le_clock();
	LeMeta meta = le_mgr.meta;
	XLogRecPtr lsn;
	int rows;
	bool wrote, flush = false;

	if (!batch->begun)
		le_txn_begin();
	batch->begun = true;
	if (!le_store_open(le_mgr.core))
	{
		batch->files_differ = true;
		ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE), errmsg("the tables of lock_election were replaced")));
	}
	LE_FAULT("batch-begun");
	le_core_recycle_rows(le_mgr.core, batch->now);
	rows = le_store_write(le_mgr.core, batch->now);
	meta.incarnation = next_incarnation();
	Assert(meta.incarnation >= le_mgr.meta.incarnation);
	if (meta.incarnation != le_mgr.meta.incarnation)
	{
		/* the revision's counter has overflowed, or ADVANCE has raised the revision */
		meta.taken_at = GetCurrentTimestamp();
		le_store_write_meta(&meta);
		flush = true;
	}
	le_store_close();
	LE_FAULT("batch-written");
	wrote = TransactionIdIsValid(GetTopTransactionIdIfAny());
	lsn = le_txn_commit(flush);
	batch->begun = false;
	Assert(!wrote || lsn > le_mgr.changes_lsn);
	Assert(wrote || le_next_change(le_mgr.core, NULL) == NULL);
	Assert(meta.incarnation == le_mgr.meta.incarnation || le_flush_done(lsn));
	le_mgr.meta = meta;
	LE_FAULT_NOFAIL("batch-committed");

	pg_atomic_fetch_add_u64(&counters->batches, 1);
	pg_atomic_fetch_add_u64(&counters->xids, 1);
	pg_atomic_fetch_add_u64(&counters->rows, rows);
	pg_atomic_fetch_add_u64(&counters->write_us, le_clock() - start);

	/*
	 * nothing was written if all locks of the batch were also released in it; lsn then belongs to an older
	 * commit
	 */
	return wrote ? lsn : InvalidXLogRecPtr;
}

/* --- pauses --- */

/* Logs how long the manager did not run.  May fail, so it must be called only after all replies are sent. */
static void
tell_pause(LeTime paused, LeTime moved)
{
	if (moved == 0)
		return;
	pg_atomic_fetch_add_u64(&le_mgr.db->counters.stalls, 1);
	ereport(LOG,
			(errmsg("the lock_election manager did not run for %ld ms; all leases are extended by %ld ms",
					(long) (paused / LE_MS), (long) (moved / LE_MS))));
}

/*
 * Records that the manager did not run from "since" until now. le_pause_seen() decides by how much deadlines
 * move.
 */
static void
seen_running(LeTime since, LeTime now)
{
	tell_pause(now - since, le_pause_seen(&le_mgr.pause, since, now));
}

/* --- after the commit --- */

/*
 * Sets the LSN that the session must wait for before it returns this reply.  lsn: the batch's commit record;
 * 0 = none.  confirm: the reply must also wait until a standby has received a record of this batch.
 * *confirmed is the LSN of that record; if it is 0, sets it, and writes a record if the batch has none.
 */
static void
set_lsn(LeReply *reply, XLogRecPtr lsn, bool confirm, XLogRecPtr *confirmed)
{
	if (reply->bound)
	{
		reply->lsn = 0; /* a bound entry needs no durability */
		return;
	}
	if (reply->wrote && !reply->may_return)
		reply->lsn = Max(reply->lsn, lsn);
	if (!confirm)
		return;
	if (*confirmed == 0)
		*confirmed = lsn != 0 ? lsn : le_txn_log_nothing();
	Assert(lsn == 0 || *confirmed == lsn);
	reply->lsn = Max(reply->lsn, *confirmed);
}

/*
 * Removes the committed releases from the mailboxes.  Must not fail.  Must be called first after the commit,
 * because a release that is applied twice would end another hold as well.
 */
static void
clear_releases(const Batch *batch, XLogRecPtr lsn)
{
	for (int i = 0; i < batch->nmails; i++)
	{
		Mail *mail = &batch->mails[i];
		LeMailbox *box = mailbox_of(mail->proc);

		if ((mail->flags & LE_MAIL_RELEASED) == 0)
			continue;
		Assert(!mail->async || box->releases.async);
		Assert(mail->released_to >= box->releases.done && mail->released_to <= box->releases.len);
		mail->flags &= ~LE_MAIL_RELEASED;
		box->releases.done = mail->released_to;
		if (mail->released)
			box->releases.lsn = lsn;
		if (box->releases.done < box->releases.len)
			continue;
		box->released_lsn = box->releases.lsn;
		le_releases_drop(&box->releases);
		pg_write_barrier();
		pg_atomic_fetch_and_u32(&box->mail, ~LE_MAIL_RELEASED);
	}
}

/*
 * Replies to all requests that waited for the commit: requests of this batch, then requests of earlier
 * batches that this batch has granted or ended.  Must not fail: a reply that is not sent now is lost, because
 * a replay does not apply its request again.
 */
static void
give_answers(const Batch *batch, XLogRecPtr lsn)
{
	LeTime now = core_now();
	LeTime as_of = le_clock() - (now - batch->now);
	XLogRecPtr confirmed = 0;

	Assert(batch->now <= now && batch->began_at <= as_of);
	clear_releases(batch, lsn);

	/* reply to requests of this batch */
	for (int i = 0; i < batch->nanswers; i++)
	{
		CommitAnswer *d = &batch->answers[i];

		set_lsn(&d->reply, lsn, d->confirm, &confirmed);
		le_answer_request(d->proc, d->number, &d->reply, as_of);
		LE_FAULT_NOFAIL("batch-answering");
	}

	/* reply to requests of earlier batches */
	for (LeEntry *entry = NULL; (entry = le_next_answer(le_mgr.core, entry)) != NULL;)
	{
		LeMailbox *box = mailbox_of(entry->waiter->sessno);
		LeReply reply;

		if (box->session != entry->waiter->session)
			continue;
		le_entry_answer(le_mgr.core, entry, now, &reply);
		set_lsn(&reply, lsn, le_answer_needs_standby(box, &reply), &confirmed);
		reply.waited = true;
		le_answer_request(entry->waiter->sessno, entry->waiter->request, &reply, le_clock());
		LE_FAULT_NOFAIL("batch-waking");
	}
	le_flush_start();
}

/*
 * Removes the committed mail from the mailboxes, and wakes up the sessions that wait until it is removed.
 * Must not fail.
 */
static void
empty_mailboxes(const Batch *batch)
{
	for (int i = 0; i < batch->nmails; i++)
	{
		Mail *mail = &batch->mails[i];
		LeMailbox *box = mailbox_of(mail->proc);
		uint64 undo = mail->undo;

		Assert((mail->flags & LE_MAIL_RELEASED) == 0); /* clear_releases() has cleared this flag */
		/* keep an undo that was posted meanwhile */
		(void) pg_atomic_compare_exchange_u64(&box->undo, &undo, 0);
		pg_atomic_fetch_and_u32(&box->mail, ~(mail->flags & ~LE_MAIL_FENCE_ENDED));
		if (mail->flags & LE_MAIL_SESSION_END)
		{
			Assert(le_core_bound_to(le_mgr.core, box->session, mail->proc) == 0);
			Assert(le_core_waiting_on(le_mgr.core, box->session, mail->proc) == NULL);
			le_mailbox_clear(box);
		}
		else
			le_publish_bound(box);
		if (!mail->async)
			le_wake((int) mail->proc);
		mail->flags &= ~LE_MAIL_FENCE_ENDED; /* otherwise untake() would set this flag again */
	}
}

/* Registers the sessions that ask for a deadlock search, and runs a search if it is due. */
static void
search_deadlocks(const Batch *batch)
{
	for (int i = 0; i < batch->nmails; i++)
	{
		if (batch->mails[i].flags & LE_MAIL_WAITS_LONG)
			le_deadlock_ask(batch->mails[i].proc);
	}
	if (le_clock() >= le_deadlock_next_search())
		le_deadlock_search(le_mgr.core);
}

/* --- a batch --- */

#ifdef USE_ASSERT_CHECKING
/*
 * Asserts, after the replies, that each request that was taken either has a reply or waits, both in the core
 * and in its mailbox.  The victim of a deadlock has its reply, but waits in the core until its rollback
 * arrives.
 */
static void
assert_waiting(void)
{
	for (int i = 0; i < le_shared->max_sessions; i++)
	{
		LeMailbox *box = mailbox_of(i);
		uint64 session = box->session;
		uint32 answered = pg_atomic_read_u32(&box->answered), posted = pg_atomic_read_u32(&box->posted);
		const LeEntry *entry = session != 0 ? le_core_waiting_on(le_mgr.core, session, i) : NULL;
		bool waits = session != 0 && posted != answered && posted == le_mgr.taken[i];

		Assert(!waits || (entry != NULL && box->revision == entry->token));
		Assert(entry == NULL || entry->waiter->request == posted);
		Assert(entry == NULL || waits || posted == answered);
	}
}
#else
#define assert_waiting() ((void) 0)
#endif

/*
 * Takes and applies the requests and the mail of the batch, then expires everything that is due at the
 * horizon.  The batch contains everything that was posted by the horizon, and "now" is not before any of
 * these postings.
 */
static void
apply(Batch *batch)
{
	batch->applied = true;
	Assert(batch->horizon <= batch->rung_until && batch->rung_until <= batch->began_at);
	le_load_limits(le_mgr.core, batch->backing_off ? WORK_BACKING_OFF : WORK_A_BATCH);
	le_core_set_horizon(le_mgr.core, le_pause_time(&le_mgr.pause, batch->horizon));
	le_outage_end_waits(batch->now);
	if (le_mgr.core_state == CORE_LOADED)
		le_take_waiting(batch);
	le_take(batch);
	LE_FAULT("batch-before-expiry");
	if (batch->expire)
		le_core_expire(le_mgr.core, batch->now, EXPIRE_A_BATCH);
	batch->heavy |= le_core_is_full(le_mgr.core);
}

/*
 * Resets the state of a batch, and sets its time.  This time is not earlier than the posting of any request
 * that the batch takes.
 */
static void
begin(Batch *batch)
{
	Assert(batch->n >= 0 && batch->n <= le_shared->max_sessions);
	Assert(!batch->async_only || (batch->n == 1 && !batch->expire));
	Assert(!IsTransactionState());
	batch->nanswers = batch->nmails = batch->nfresh = 0;
	batch->answers = le_mgr.answers;
	batch->mails = le_mgr.mails;
	batch->fresh = le_mgr.fresh;
	batch->files_differ = batch->heavy = false;
	batch->begun = batch->locked = batch->applied = batch->explained = false;
	batch->backing_off = le_take_is_backing_off();
	le_store_begin_batch();
	MemoryContextReset(le_mgr.batch_context);
	MemoryContextSwitchTo(le_mgr.batch_context);
	le_assert_procs(batch->procs, batch->n);
	batch->began_at = le_clock();
	seen_running(le_mgr.pause.seen_at, batch->began_at);
	batch->now = le_pause_time(&le_mgr.pause, batch->began_at);
	le_core_set_uptime(le_mgr.core, uptime(batch->now));
	le_core_set_writable(le_mgr.core, false);
}

/*
 * Returns whether this batch may have to write: for the requests that it takes, for a deadline, or because
 * earlier batches have left something to write.
 */
static bool
may_write(const Batch *batch)
{
	return le_mgr.outage.since != 0 || le_mgr.core_state == CORE_LOADED || le_take_may_write(batch) ||
		   anything_to_write() || le_batch_has_later() ||
		   (batch->expire && le_core_next_deadline(le_mgr.core) <= batch->now);
}

/*
 * Runs a batch in an outage: serves only requests that need not write.  Earlier changes of the core that are
 * not written yet stay unwritten.
 */
static void
run_looks(Batch *batch)
{
	LeTime now;
	XLogRecPtr confirmed = 0;

	le_load_limits(le_mgr.core, batch->backing_off ? WORK_BACKING_OFF : WORK_A_BATCH);
	le_take_looks(batch);
	le_outage_end_calls();
	now = core_now();
	for (int i = 0; i < batch->nanswers; i++)
	{
		CommitAnswer *d = &batch->answers[i];

		set_lsn(&d->reply, 0, d->confirm, &confirmed);
		le_answer_request(d->proc, d->number, &d->reply, le_clock() - (now - batch->now));
	}
	le_flush_start();
}

/*
 * Runs the steps of a batch.  No reply is given before the rows on which it depends are committed.  Returns
 * false if the tables are locked; then nothing was applied.
 */
static bool
run(Batch *batch)
{
	XLogRecPtr lsn = 0;
	LeTime committed_at, moved;

	/* 1. lock the tables, so that locks of other sessions cannot prevent the write of step 3 */
	begin(batch);
	if (batch->looks_only)
	{
		run_looks(batch);
		return true;
	}
	if (may_write(batch) && !le_txn_lock_tables(batch))
	{
		(void) le_txn_commit(false);
		return false;
	}

	/* 2. apply, in the order described at the top of take.c */
	apply(batch);
	LE_FAULT("batch-applied");

	/* 3. write */
	if (later_is_due(batch->now))
		le_core_write_now(le_mgr.core);
	le_history_reserve(le_mgr.core);
	if (anything_to_write())
		lsn = write_batch(batch);
	else if (batch->begun)
		(void) le_txn_commit(false);
	batch->begun = false;
	if (batch->locked && !le_mgr.outage.failed)
		le_outage_over();
	if (le_next_change(le_mgr.core, NULL) != NULL)
		le_mgr.changes_lsn = lsn;

	/* 4. reply, and send hints; a slow commit counts as a pause, so that it shortens no lease */
	committed_at = le_clock();
	moved = le_pause_seen(&le_mgr.pause, batch->began_at, committed_at);
	give_answers(batch, lsn);
	LE_FAULT_NOFAIL("batch-before-hints");
	le_hints_of_batch(le_mgr.core, lsn);
	le_history_written(le_mgr.core);
	LE_FAULT_NOFAIL("batch-before-mailboxes");

	/* 5. clear the finished work */
	empty_mailboxes(batch);
	le_core_batch_done(le_mgr.core, lsn);
	Assert(le_next_change(le_mgr.core, NULL) == NULL && le_next_answer(le_mgr.core, NULL) == NULL);
	Assert(le_core_later_since(le_mgr.core) > batch->now - LATER_AT_MOST);
	assert_waiting();
	le_publish();
	le_take_back_off(batch);

	/* 6. run steps that may fail: a failure reloads the state, but loses no reply or write */
	tell_pause(committed_at - batch->began_at, moved);
	pgstat_report_stat(false);
	LE_FAULT_CHECK(le_mgr.core);
	LE_FAULT("batch-done");
	le_fence_end_overdue(le_mgr.core, batch->now);
	search_deadlocks(batch);
	return true;
}

/*
 * Marks the requests of the failed batch as not taken, and restores the mail flags that the batch has
 * cleared, so that a later batch takes both.  Must not fail, because it is called in an error handler.
 */
static void
untake(const Batch *batch)
{
	for (int i = 0; i < batch->nfresh; i++)
	{
		LeMailbox *box = mailbox_of(batch->fresh[i]);

		/* a request that got its reply is not taken again */
		le_mgr.taken[batch->fresh[i]] = pg_atomic_read_u32(&box->answered);
		box->revision = 0;
	}
	for (int i = 0; i < batch->nmails; i++)
		pg_atomic_fetch_or_u32(&mailbox_of(batch->mails[i].proc)->mail,
							   batch->mails[i].flags & LE_MAIL_FENCE_ENDED);
}

/* Handles the failure of a batch that may have changed the core: from now on the core is unusable. */
static BatchEnd
failed(const Batch *batch, const ErrorData *error)
{
	if (!batch->files_differ)
		pg_atomic_fetch_add_u64(&le_mgr.db->counters.failed_batches, 1);
	le_outage_note(error);

	/*
	 * If only locked tables caused the outage, it is over, because this batch has locked them.  The batch
	 * then failed because of one of its requests.
	 */
	if (batch->locked && !le_mgr.outage.failed && !batch->explained)
		le_outage_over();
	untake(batch);
	le_mgr.backoff_until = 0;
	set_core_state(CORE_STALE);
	le_pause_broken(&le_mgr.pause);
	if (error->sqlerrcode == ERRCODE_UNIQUE_VIOLATION)
		pg_atomic_fetch_add_u64(&le_mgr.db->counters.key_violations, 1);
	return batch->files_differ ? BATCH_FILES_DIFFER : batch->explained ? BATCH_UNWRITABLE : BATCH_FAILED;
}

BatchEnd
le_batch_run(Batch *batch, ErrorData **error)
{
	volatile BatchEnd end = BATCH_FAILED;

	Assert(core_is_loaded());
	*error = NULL;
	PG_TRY();
	{
		end = run(batch) ? BATCH_DONE : BATCH_LOCKED;
	}
	PG_CATCH();
	{
		bool has_xid = IsTransactionState() && TransactionIdIsValid(GetTopTransactionIdIfAny());

		/* if the tables were replaced, log no error, because the batch runs again */
		*error = le_txn_failed(!batch->files_differ);
		batch->explained = le_outage_explains(*error, has_xid);
		end = batch->applied || batch->looks_only ? failed(batch, *error) : BATCH_LOCKED;
	}
	PG_END_TRY();
	Assert(!IsTransactionState() && (end <= BATCH_LOCKED) == core_is_loaded());
	return end;
}

/* --- between batches --- */

void
le_batch_check_stall(LeTime slept_until, const uint32 *procs, int n)
{
	LeTime now = le_clock(), rang_at = LE_NEVER;

	for (int i = 0; i < n; i++)
	{
		LeMailbox *box = mailbox_of(procs[i]);

		/* skip requests that were posted before the manager was last seen running: they were handled */
		if (box->posted_at > le_mgr.pause.seen_at)
			rang_at = Min(rang_at, box->posted_at);
	}
	seen_running(le_pause_since(&le_mgr.pause, slept_until, rang_at, now), now);
}

/*
 * Deadlines are on the core's clock, which is behind le_clock() by the time lost to pauses.  All other times
 * here are by le_clock().
 */
Wakeup
le_batch_next_wakeup(void)
{
	Wakeup wakeup = {LE_NEVER, "nothing"};
	LeTime deadline;

	if (le_mgr.retry_at != 0)
		wake_earlier(&wakeup, le_mgr.retry_at, "a failure");
	if (le_mgr.outage.since != 0 && core_is_loaded())
	{
		/* nothing else is done until the next retry */
		wake_earlier(&wakeup, le_mgr.outage.try_at, "an outage");
		return wakeup;
	}
	Assert(core_is_loaded() || le_mgr.retry_at != 0);
	Assert(le_mgr.ndeferred >= 0 && le_mgr.ndeferred <= le_shared->max_sessions);
	if (!core_is_loaded())
		return wakeup;

	/* run the next batch now or, after a failed write, at expire_after */
	if (le_mgr.core_state == CORE_LOADED || anything_to_write() || le_next_answer(le_mgr.core, NULL) != NULL)
		return (Wakeup){le_mgr.expire_after, "work that is left"};
	wake_earlier(&wakeup, le_deadlock_next_search(), "a search for deadlocks");
	if (le_mgr.ndeferred > 0)
		wake_earlier(&wakeup, le_mgr.backoff_until, "deferred work");
	if (le_core_later_since(le_mgr.core) != LE_NEVER)
		wake_earlier(&wakeup, le_core_later_since(le_mgr.core) + LATER_AT_MOST + le_mgr.pause.lost,
					 "releases to write");
	deadline = le_core_next_deadline(le_mgr.core);
	if (deadline != LE_NEVER)
	{
		wake_earlier(&wakeup, Max(deadline + le_mgr.pause.lost, le_mgr.expire_after), "a deadline");
		wake_earlier(&wakeup, le_clock() + HEARTBEAT, "the heartbeat");
	}
	return wakeup;
}
