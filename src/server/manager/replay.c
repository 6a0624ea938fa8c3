/*
 * manager/replay.c
 *		Runs batches, and repeats the work of a batch that has failed.
 *
 * After a failed batch, the core is discarded and loaded again, and waiting requests are enqueued again at
 * their old positions.  Then the mailboxes of the batch are served one by one, so that only a request that
 * cannot be written fails.  While the tables cannot even be read, every request gets the error of the load as
 * its reply.  The comment of le_answer_failed_one() lists which session gets which error.
 *
 * If a batch fails, its asynchronous releases, whose calls have already returned, stay in their mailboxes.
 * The replay applies them before any new request, so that no request finds a lock held that its session has
 * released.  Only requests that already waited before the load are applied earlier.  If a release fails
 * again, or nothing can be read, no session gets an error: the release stays in its mailbox, and all
 * mailboxes are checked again after RETRY_AFTER.  A manager applies it before it exits; if a manager dies,
 * the next one applies it.  The release is lost only if the extension is dropped, if the server crashes, or
 * if the server stops and the manager cannot write it within LEAVING_AT_MOST (leave.c).
 */
#include "postgres.h"

#include "manager/answer.h"
#include "manager/batch.h"
#include "manager/outage.h"
#include "manager/reload.h"
#include "manager/replay.h"
#include "manager/state.h"
#include "manager/take.h"
#include "shared/fault.h"
#include "shared/flush.h"

/*
 * Time after which the replay of a failed batch starts no new round.  Clients retry failed requests at once,
 * so without a limit a replay might never end.
 */
#define REPLAY_AT_MOST (1 * LE_SECOND)

/*
 * Prepares for the next batch after a batch whose result is not BATCH_DONE: loads the core again if it is
 * stale.  If the batch failed because of an outage, begins or continues the outage.  Returns false, and sets
 * *error, if nothing can be read.
 */
static bool
reload(BatchEnd end, ErrorData **error)
{
	Assert(end != BATCH_DONE && (end == BATCH_LOCKED) == core_is_loaded());
	if (end == BATCH_LOCKED)
	{
		le_outage_locked(*error);
		return true;
	}
	if (end == BATCH_UNWRITABLE)
		le_outage_failed(*error);
	if (le_load_again(error))
		return true;

	/* the batch that found the tables replaced cannot run again, so count it as failed */
	if (end == BATCH_FILES_DIFFER)
		pg_atomic_fetch_add_u64(&le_mgr.db->counters.failed_batches, 1);
	return false;
}

/*
 * Serves the requests in these mailboxes that need not write.  Returns false, and sets *error, if that fails.
 */
static bool
run_looks(const Batch *all, ErrorData **error)
{
	Batch looks = {.procs = all->procs,
				   .n = all->n,
				   .horizon = all->horizon,
				   .rung_until = le_clock(),
				   .looks_only = true};
	BatchEnd end;

	Assert(core_is_loaded());
	end = le_batch_run(&looks, error);
	return end == BATCH_DONE || reload(end, error);
}

/*
 * Called in an outage: serves the requests in these mailboxes that need not write.  All others wait, or get
 * an error.
 */
static void
serve_looks(const Batch *all)
{
	ErrorData *error;

	Assert(le_mgr.outage.since != 0);
	if (run_looks(all, &error))
	{
		LE_FAULT_NOFAIL("outage-looked");
		le_outage_refuse(all);
	}
	else
		le_answer_failed(all->procs, all->n, error);
}

/*
 * Handles a mailbox whose batch failed with "failure": if its request need not write, serves it, otherwise
 * replies with that error.  A renewal writes only to be valid for longer, so it is served without the write.
 * Returns false, and sets *error, if nothing can be read.
 */
static bool
refuse_but_looks(const Batch *batch, const ErrorData *failure, ErrorData **error)
{
	uint32 number = pg_atomic_read_u32(&mailbox_of(batch->procs[0])->posted);
	bool ok = run_looks(batch, error);

	Assert(batch->n == 1);
	le_answer_failed_one(batch->procs[0], number, failure);
	le_mailboxes_retry_later();
	return ok;
}

/*
 * Serves one mailbox of a failed batch.  Returns false if an outage has begun, or, with *error set, if
 * nothing can be read.
 */
static bool
replay_one(const Batch *failed, uint32 proc, bool async_only, ErrorData **error)
{
	Batch batch = {.procs = &proc,
				   .n = 1,
				   .horizon = failed->horizon,
				   .rung_until = failed->rung_until,
				   .async_only = async_only};
	BatchEnd end;

	Assert(core_is_loaded());
	LE_FAULT_NOFAIL("replay");
	le_mgr.backoff_until = 0;
	do
	{
		ErrorData failure = {0};
		char text[LE_MESSAGE_SIZE];

		end = le_batch_run(&batch, error);
		if (end == BATCH_FAILED)
		{
			/* keep the error, because the next batch resets its memory context */
			failure.sqlerrcode = (*error)->sqlerrcode;
			failure.message = text;
			strlcpy(text, (*error)->message, sizeof(text));
		}
		if (end != BATCH_DONE && (!reload(end, error) || le_mgr.outage.since != 0))
		{
			if (end == BATCH_FAILED)
				le_answer_failed(batch.procs, batch.n, &failure);
			return false;
		}
		if (end == BATCH_FAILED && !refuse_but_looks(&batch, &failure, error))
			return false;
	} while (end == BATCH_FILES_DIFFER);
	Assert(core_is_loaded());
	return true;
}

/*
 * Ends a replay because the tables cannot be read or written: replies to the mailboxes from index "from" on.
 */
static void
give_up(const Batch *failed, int from, const ErrorData *error)
{
	Batch left = *failed;

	left.procs += from;
	left.n -= from;
	if (core_is_loaded())
		serve_looks(&left);
	else
		le_answer_failed(left.procs, left.n, error);
}

/* Runs step 3 of the order in take.c for all mailboxes.  Returns false if give_up() was called. */
static bool
replay_async_releases(const Batch *failed)
{
	ErrorData *error;

	for (int i = 0; i < failed->n; i++)
	{
		if (le_mailbox_has_async(failed->procs[i]) && !replay_one(failed, failed->procs[i], true, &error))
		{
			give_up(failed, 0, error);
			return false;
		}
	}
	return true;
}

/* Runs the other steps of the order in take.c, mailbox by mailbox.  Returns false if give_up() was called. */
static bool
replay_others(const Batch *failed)
{
	ErrorData *error;

	for (int i = 0; i < failed->n; i++)
	{
		if (!replay_one(failed, failed->procs[i], false, &error))
		{
			give_up(failed, i, error);
			return false;
		}
	}
	return true;
}

/*
 * Serves the mailboxes of a failed batch one by one, and then, in one batch, all mailboxes that have rung
 * meanwhile.
 */
static void
run_one_by_one(Batch *batch)
{
	ErrorData *error;
	BatchEnd end;
	LeTime began = le_clock();

	batch->horizon = began;
	le_take_rung(batch);
	while (replay_async_releases(batch) && replay_others(batch) && le_clock() - began < REPLAY_AT_MOST)
	{
		/* take the renewals that have arrived meanwhile, before anything expires */
		batch->n = 0;
		batch->horizon = le_clock();
		le_take_rung(batch);
		batch->expire = le_clock() >= le_mgr.expire_after;
		end = le_batch_run(batch, &error);
		if (end == BATCH_DONE)
			return;
		le_mgr.expire_after = le_clock() + RETRY_AFTER;
		if (!reload(end, &error) || le_mgr.outage.since != 0)
		{
			give_up(batch, 0, error);
			return;
		}
		if (batch->n == 0)
			return;
	}
}

/* Serves mailboxes: first all together in one batch, and if that fails, one by one. */
static void
run(Batch *batch)
{
	ErrorData *error;
	BatchEnd end;

	Assert(CurrentMemoryContext == le_mgr.batch_context);

	/*
	 * Mail and requests of a failed batch are on no stack.  Check all mailboxes, so that no request overtakes
	 * a release.
	 */
	if (!core_is_loaded() || (le_mgr.retry_at != 0 && le_mgr.retry_at <= le_clock()))
	{
		batch->n = le_mailboxes_with_work(batch->procs);
		le_mgr.retry_at = 0;
	}
	if (!core_is_loaded() && !le_load_again(&error))
	{
		le_answer_failed(batch->procs, batch->n, error);
		return;
	}
	batch->horizon = le_clock();
	LE_FAULT_NOFAIL("batch-horizon");
	le_take_deferred(batch);

	/*
	 * Take the stack after the horizon is set.  The batch then has every renewal that was posted before a
	 * deadline passed.  If a request is in procs, the batch also has all asynchronous releases that had
	 * returned before that request was posted.
	 */
	le_take_rung(batch);
	LE_FAULT_NOFAIL("batch-rung");
	batch->expire = le_clock() >= le_mgr.expire_after;
	if (!le_outage_allows_batch())
	{
		serve_looks(batch);
		return;
	}
	end = le_batch_run(batch, &error);
	if (end == BATCH_DONE)
		return;
	if (!reload(end, &error) || le_mgr.outage.since != 0)
		give_up(batch, 0, error);
	else
		run_one_by_one(batch);
}

void
le_serve(uint32 *procs, int n)
{
	Batch batch = {.procs = procs, .n = n};

	Assert(procs != NULL && n >= 0 && n <= le_shared->max_sessions);
	run(&batch);
	Assert(core_is_loaded() || le_mgr.retry_at != 0);

	/* this also starts the flush for a batch that failed after it had sent its replies */
	le_flush_start();
}
