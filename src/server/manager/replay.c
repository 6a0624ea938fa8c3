/*
 * manager/replay.c
 *		Runs batches, and does again what one has failed to do.
 *
 * After a batch that has failed the core is thrown away and loaded again, waiting
 * requests go back to their places, and the requests of the batch are applied one by
 * one, so that only the one that cannot be written fails.  While the tables cannot
 * even be read, every request is answered with that error.
 */
#include "postgres.h"

#include "manager/manager.h"
#include "shared/flush.h"

/* False: nothing can be read, and *error says why. */
static bool
replay_one(uint32 proc, bool async_only, LeTime horizon, ErrorData **error)
{
	bool readable = true, again;

	LE_FAULT_NOFAIL("replay");
	le_mgr.backoff_until = 0;
	le_mgr.async_only = async_only;
	do
	{
		again = false;
		if (!le_batch_try(&proc, 1, false, horizon, error))
		{
			/* rewritten once more: no fault of this request */
			again = le_mgr.rewritten;
			if (!again)
				le_answer_failed(&proc, 1, *error);
			readable = le_batch_reload(error);
		}
	} while (again && readable);
	le_mgr.async_only = false;
	return readable;
}

/* False: nothing can be read, and all have got that error.  As in le_take(), asynchronous releases come first. */
static bool
replay(uint32 *procs, int n, LeTime horizon)
{
	ErrorData *error;

	for (int i = 0; i < n; i++)
	{
		if (le_take_has_async(procs[i]) && !replay_one(procs[i], true, horizon, &error))
		{
			le_answer_failed(procs, n, error);
			return false;
		}
	}
	for (int i = 0; i < n; i++)
	{
		if (!replay_one(procs[i], false, horizon, &error))
		{
			le_answer_failed(&procs[i], n - i, error);
			return false;
		}
	}
	return true;
}

/* Refused clients ask again at once.  After this long the manager looks at what else there is to do. */
#define REPLAY_AT_MOST (1 * LE_SECOND)

static void
run_one_by_one(uint32 *procs, int n)
{
	ErrorData *error;
	LeTime began = le_clock(), horizon = began;

	n = le_take_rung(procs, n);
	while (replay(procs, n, horizon) && le_clock() - began < REPLAY_AT_MOST)
	{
		/* what came meanwhile may be renewals: before anything expires */
		horizon = le_clock();
		n = le_take_rung(procs, 0);
		if (le_batch_try(procs, n, le_clock() >= le_mgr.expire_after, horizon, &error))
			return;
		le_mgr.expire_after = le_clock() + RETRY_AFTER;
		if (!le_batch_reload(&error))
		{
			le_answer_failed(procs, n, error);
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
	bool all;

	/* what was refused is on no stack: nobody is served before a release among that */
	all = !le_mgr.core_valid || (le_mgr.retry_at != 0 && le_mgr.retry_at <= le_clock());
	if (all)
	{
		n = le_batch_all_mailboxes(procs);
		le_mgr.retry_at = 0;
	}
	if (!le_mgr.core_valid && !le_batch_reload(&error))
	{
		le_answer_failed(procs, n, error);
		return;
	}
	horizon = le_clock();
	LE_FAULT_NOFAIL("batch-horizon");
	n = le_take_deferred(procs, n);

	/*
	 * All that was posted until the horizon, so that a renewal that was posted before a
	 * deadline wins; and asynchronous releases that were answered before any request in
	 * procs was posted.
	 */
	n = le_take_rung(procs, n);
	LE_FAULT_NOFAIL("batch-rung");
	if (le_batch_try(procs, n, le_clock() >= le_mgr.expire_after, horizon, &error))
		return;
	if (!le_batch_reload(&error))
		le_answer_failed(procs, n, error);
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
