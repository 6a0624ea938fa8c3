/*
 * manager/leave.c
 *		Finishes the work of a manager before it exits, on request or because
 *		the extension was dropped.
 */
#include "postgres.h"

#include "manager/answer.h"
#include "manager/batch.h"
#include "manager/leave.h"
#include "manager/replay.h"
#include "manager/state.h"
#include "shared/fault.h"
#include "shared/releases.h"
#include "shared/sleep.h"

/* Maximum time by which the exit is delayed, for example by a stopped session or a full disk. */
#define LEAVING_AT_MOST (5 * LE_SECOND)

/* Pauses before the next try: while a session is about to post a release, and after a failed batch. */
#define POSTING_TICK (1 * LE_MS)
#define FAILED_TICK  (100 * LE_MS)

/* Returns whether a session has begun an asynchronous release that it has not posted yet. */
static bool
any_releasing(void)
{
	for (int i = 0; i < le_shared->max_sessions; i++)
	{
		if (pg_atomic_read_u32(&mailbox_of(i)->releasing) != 0)
			return true;
	}
	return false;
}

/* Returns whether any mailbox contains a release that is not applied yet. */
static bool
any_released(void)
{
	for (int i = 0; i < le_shared->max_sessions; i++)
	{
		if (pg_atomic_read_u32(&mailbox_of(i)->mail) & LE_MAIL_RELEASED)
			return true;
	}
	return false;
}

/*
 * If the server shuts down, no other manager applies the remaining asynchronous releases.  Therefore:
 *
 *	1.	Clear running: from then on, sessions begin no asynchronous releases, see backend/granted.c.
 *	2.	Wait for the sessions that have begun an asynchronous release but have not posted it
 *		(LeMailbox.releasing).
 *	3.	Run a batch of all mailboxes, which applies the posted releases and writes those whose write was
 *		postponed.  If the batch fails, for example because an exiting session has locked the tables, retry
 *		it.
 */
void
le_leave_in_order(uint32 *procs, LeTime slept_until)
{
	LeTime give_up = le_clock() + LEAVING_AT_MOST;

	pg_atomic_write_u32(&le_mgr.db->running, 0);
	pg_memory_barrier();
	for (;;)
	{
		bool releasing;
		int n;

		le_sleep_reset();
		Assert(pg_atomic_read_u32(&le_mgr.db->running) == 0);
		releasing = any_releasing();
		pg_read_barrier();
		n = le_mailboxes_with_work(procs);
		le_batch_check_stall(slept_until, procs, n);
		slept_until = 0;
		le_mgr.outage.try_at = 0; /* retry now, because there will be no other batch */
		if (n > 0 || le_batch_has_later())
			le_serve(procs, n);
		if (le_mgr.core_state == CORE_DROPPED || le_clock() >= give_up ||
			!(releasing || any_released() || le_batch_has_later()))
			return;
		le_sleep(le_mgr.retry_at != 0 ? FAILED_TICK : POSTING_TICK);
	}
}

void
le_leave_serving_nobody(uint32 *procs)
{
	ErrorData *error;
	Batch none = {.procs = procs, .horizon = le_clock(), .rung_until = le_clock()};

	pg_atomic_write_u32(&le_mgr.db->running, 0);
	if (le_mgr.core_state == CORE_SERVING && le_batch_has_later())
		(void) le_batch_run(&none, &error);
}

void
le_leave_dropped(void)
{
	for (int i = 0; i < le_shared->max_sessions; i++)
	{
		LeMailbox *box = mailbox_of(i);

		if (box->session == 0)
			continue;
		if (is_unanswered(box))
			le_answer_error(i, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
							"extension lock_election was dropped");
		pg_atomic_write_u64(&box->undo, 0);
		if (pg_atomic_read_u32(&box->mail) & LE_MAIL_RELEASED)
		{
			le_releases_drop(&box->releases);
			pg_atomic_fetch_or_u32(&box->note, LE_NOTE_GONE);
			pg_atomic_fetch_and_u32(&box->mail, ~LE_MAIL_RELEASED);
		}

		/* if the session ends right now, the next manager or le_database_free() clears its mailbox */
		LE_FAULT_NOFAIL("extension-gone");
		pg_atomic_fetch_and_u32(&box->mail, LE_MAIL_SESSION_END | LE_MAIL_RELEASED);
		le_wake(i);
	}
}
