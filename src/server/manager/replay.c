/*
 * manager/replay.c
 *		Runs batches, and repeats the work of a batch that has failed.
 *
 * After a failed batch the core is discarded and loaded again, waiting requests go back to their places, and
 * the mailboxes of the batch are served one by one, so that only the one that cannot be written fails.  While
 * the tables cannot even be read, every request gets that error as its reply.  The comment at
 * le_answer_failed_one() lists which session gets which error.
 *
 * An asynchronous release, from which its session has already returned, stays in the mailbox when its batch
 * fails, because its mail is cleared only after a commit (clear_releases() in batch.c).  The replay applies
 * all of them before any new request, so no request finds a lock held that its session has released.  Only
 * requests that waited before the load are enqueued again first.  A release that fails again, or cannot be
 * tried because nothing can be read, is not reported to anyone: it stays in the mailbox, and after
 * RETRY_AFTER all mailboxes are looked at again, this one before any new request.  A manager that is asked to
 * leave applies it first (leave.c); one that dies leaves it to the next manager.  The release is lost only
 * with the extension, in a crash of the server, or if the server stops and the manager cannot write it within
 * LEAVING_AT_MOST (leave.c).
 */
#include "postgres.h"

#include "manager/manager.h"
#include "shared/flush.h"

/* Upper limit of a replay.  Refused clients retry at once, so the manager has to return to its other work. */
#define REPLAY_AT_MOST (1 * LE_SECOND)

/*
 * Handle a batch that has not succeeded: load again if the core is stale; and if the reason was an outage,
 * begin or continue it.  False: nothing can be read, and *error says why.
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

	/* so the batch that found the tables replaced has failed after all */
	if (end == BATCH_FILES_DIFFER)
		pg_atomic_fetch_add_u64(&le_mgr.db->counters.failed_batches, 1);
	return false;
}

/*
 * Serve the requests in these mailboxes that need not write.  False: not even that is possible, and *error
 * says why.
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
 * In an outage: serve the requests in these mailboxes that need not write; all others wait, or are refused.
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
 * Refuse a request that cannot be written.  A renewal writes only to be valid for longer, so it is served
 * without the write.  False: nothing can be read, and *error says why.
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
 * Serve one mailbox of a failed batch.  False: nothing can be read, and *error says why; or nothing can be
 * written, and an outage has begun.
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
			/* the next batch resets the memory context of this error */
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

/* Reply to the mailboxes that have not been served, because nothing can be read or nothing can be written. */
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

/* Run step 3 of the order in take.c, for all mailboxes.  False: give_up() was called. */
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

/* Run all other steps.  False: give_up() was called. */
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

/* Serve the mailboxes of a failed batch one by one, and then those that have rung meanwhile together. */
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
		/* renewals may have arrived meanwhile: they are taken before anything expires */
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

/* Serve mailboxes: first all together in one batch, and one by one if that has failed. */
static void
run(Batch *batch)
{
	ErrorData *error;
	BatchEnd end;

	Assert(CurrentMemoryContext == le_mgr.batch_context);

	/*
	 * Mail and requests of a failed batch are on no stack: look at all mailboxes, so that no request
	 * overtakes a release.
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
	 * Take the stack after the horizon.  Then it has every renewal that was posted before a deadline, and
	 * every asynchronous release that returned before a request in procs was posted.
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

	/* also for the replies of a batch that failed after them */
	le_flush_start();
}
