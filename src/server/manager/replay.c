/*
 * manager/replay.c
 *		Runs batches, and does again what one has failed to do.
 *
 * After a batch that has failed the core is thrown away and loaded again, waiting
 * requests go back to their places, and the mailboxes of the batch are served one by
 * one, so that only the one that cannot be written fails.  While the tables cannot
 * even be read, every request is answered with that error.  Who gets which error is
 * told at le_answer_failed().
 *
 * What becomes of an asynchronous release, which its session has answered already, when its
 * batch fails: it stays in the mailbox, as its mail is cleared only after a commit
 * (clear_releases() in batch.c).  The replay makes all of them before any new request, so
 * nobody finds a lock held that its session has released.  Requests that waited before the
 * load are queued again first.  A release that fails again, or cannot be tried because nothing
 * can be read, is refused to nobody: it stays where it is, and after RETRY_AFTER all mailboxes
 * are looked at again, this one before any new request.  A manager that is asked to leave
 * makes it first (leave.c); one that dies leaves it to the next manager.  The release is lost
 * only with the extension, in a crash of the server, or if the server stops and the manager
 * cannot write it within LEAVING_AT_MOST (leave.c).
 */
#include "postgres.h"

#include "manager/manager.h"
#include "shared/flush.h"

/* Refused clients ask again at once.  After this long the manager looks at what else there is to do. */
#define REPLAY_AT_MOST (1 * LE_SECOND)

/*
 * After a batch has ended so, load again, if the core is stale; and an outage begins, or goes on, if that was why.
 * False: nothing can be read, and *error says why.
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

	/* so the batch that has found new files has failed after all */
	if (end == BATCH_FILES_DIFFER)
		pg_atomic_fetch_add_u64(&le_mgr.db->counters.failed_batches, 1);
	return false;
}

/* Serve what need not write in these mailboxes.  False: not even that, and *error says why. */
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

/* In an outage: serve what need not write in these mailboxes; all else waits, or is refused. */
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
 * This cannot be written.  A renewal writes only so that it is valid for longer: it goes without.
 * False: nothing can be read, and *error says why.
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
 * Serve one mailbox of a batch that has failed.  False: nothing can be read, and *error says why; or nothing can be
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
			/* the next batch empties the context of this error */
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

/* These have not been served: nothing can be read, or nothing can be written. */
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

/* Step 3 of the order in take.c, for all mailboxes.  False: see give_up(). */
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

/* All other steps.  False: see give_up(). */
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

/* Serve the mailboxes of a batch that has failed one by one, and what has come meanwhile together. */
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
		/* renewals may have come meanwhile: they are taken before anything expires */
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

/* Serve a batch: at first all mailboxes together, one by one if that has failed. */
static void
run(Batch *batch)
{
	ErrorData *error;
	BatchEnd end;

	Assert(CurrentMemoryContext == le_mgr.batch_context);

	/*
	 * Mail and requests that were refused are on no stack: look at all mailboxes, so that no request
	 * passes a release.
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
	 * Take the stack after the horizon.  It then has every renewal that was posted before a
	 * deadline, and every asynchronous release that was answered before a request in procs was
	 * posted.
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

	/* also for answers of a batch that failed after them */
	le_flush_start();
}
