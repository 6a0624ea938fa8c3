/*
 * backend/xact.c
 *		Undoes acquires, posts releases and ends fences at the end of transactions.
 *
 * An acquire takes effect at once, and is undone if its (sub)transaction rolls back.  A release in a
 * transaction is queued by backend/pending.c and posted after the transaction's own PostgreSQL locks are
 * released, so that the next holder cannot see data from before the transaction.  The undo and the posting
 * happen in a resource-release callback, because no other code runs after those locks are released.
 *
 * A cancelled wait is undone by these functions:
 *
 *	1.	le_wait_turn() in backend/wait.c raises the error, because of a cancel, a timeout, or a lost client.
 *		The request remains posted, and may still be granted.
 *	2.	wait_cleanup() in backend/session_request.c runs, for ERROR and FATAL alike.  It records that no
 *		caller is waiting for the reply (given_up).  le_flush_leave() names another flusher,
 *		le_client_wait_over() stops the keepalive probes, and le_body_done() frees the body of the request.
 *	3.	PostgreSQL aborts the transaction, or a subtransaction, which sub_xact_event() records.  PostgreSQL
 *		then releases its own locks and calls resources_released(), which calls top_ended() or sub_aborted()
 *		below.
 *	4.	sub_aborted() asks le_xact_forget_acquires() in backend/xactstate.c for the number of the first
 *		acquire to be undone; in top_ended() this is always 1.  le_mail_undo() in backend/session_mailbox.c
 *		mails the number and wakes up the manager.
 *	5.	The manager takes the mail before the request (manager/take.c).  le_apply_undo() in core/sessions.c
 *		ends the waiter, or the holder if the lock was already granted.  A place that existed before the
 *		cancelled call stays, and only the wait for it ends.  A fenced holder lapses.  If the manager has not
 *		taken the request yet, it replies without applying it.
 *	6.	Once its batch is committed, the manager clears the mail (manager/batch.c).  Until then
 *		mailbox_is_quiet() in backend/session_request.c keeps the next request of the session from
 *		being posted.
 *
 * Two other cases use some of these steps.  If the caller's wait has ended and a stuck manager has not
 * replied, the call mails the undo of its acquire (send_and_wait(), step 4) and returns.  If a process exits,
 * it first aborts its transaction; session_exit() in backend/session_mailbox.c then mails the end of the
 * session, which also ends all holders and places that are bound to the connection.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "backend/durability.h"
#include "backend/session_fence.h"
#include "backend/pending.h"
#include "backend/session_mailbox.h"
#include "backend/xact.h"
#include "backend/xactstate.h"
#include "shared/fault.h"
#include "shared/shmem.h"

/* The subtransaction that is rolling back, from its abort event until its locks are released. */
static SubTransactionId aborting = InvalidSubTransactionId;

/*
 * Handles the end of a transaction, once its PostgreSQL locks are released.  Must not fail, because the
 * transaction has committed, or its abort is under way.  The order matters:
 *
 *	1.	Forget the state of the transaction.  The callback runs once for each resource owner, and only the
 *		first call does anything.
 *	2.	After a rollback, mail the undo of its acquires.  This comes before open_xact is cleared, because a
 *		manager that starts meanwhile treats uncommitted holds as committed if their transaction is not open.
 *	3.	Stop counting the transaction's fence, before step 5 makes the manager check for fences.
 *	4.	After a commit, post its releases and wait for them.  Its fences have ended with its PostgreSQL locks,
 *		so a holder may expire before its release is applied, which has the same effect.
 *	5.	Mail the end of the fence last, so that the manager sees the final releases and fences of this
 *		transaction, and grants the locks that have become free.
 *	6.	Wait for the standbys.  No other session waits for this session meanwhile.
 */
static void
top_ended(bool is_commit)
{
	bool was_open = le_xact.is_open, had_fence = le_xact.has_fence;
	uint64 lsn;

	/* 1. forget the state of the transaction */
	if (!was_open && !had_fence && !le_xact.is_touched)
	{
		Assert(le_my_mailbox == NULL || (pg_atomic_read_u32(&le_my_mailbox->open_xact) == 0 &&
										 pg_atomic_read_u32(&le_my_mailbox->releasing) == 0));
		return;
	}

	LE_FAULT_NOFAIL("xact-locks-released");

	le_xact.is_open = false;
	le_xact.is_touched = false;
	le_xact.has_fence = false;
	aborting = InvalidSubTransactionId;
	le_xact_forget_acquires(TopSubTransactionId);

	if (le_my_mailbox != NULL)
	{
		/* 2. mail the undo */
		if (was_open)
		{
			Assert(pg_atomic_read_u32(&le_my_mailbox->open_xact) == le_xact.number);
			if (!is_commit)
				le_mail_undo(le_xact.number, 1);
			pg_atomic_write_u32(&le_my_mailbox->open_xact, 0);
		}

		/* 3. stop counting the fence */
		if (had_fence)
		{
			uint32 fences PG_USED_FOR_ASSERTS_ONLY = pg_atomic_fetch_sub_u32(&le_my_database()->fences, 1);

			Assert(fences > 0 && fences <= (uint32) le_shared->max_sessions);
		}
	}

	/* 4. post the releases */
	lsn = le_pending_top_ended(is_commit);

	/* 5. mail the end of the fence */
	if (le_my_mailbox != NULL)
	{
		LE_FAULT_NOFAIL("xact-before-unfence");
		if (had_fence)
			le_mail(LE_MAIL_FENCE_ENDED);
		LE_FAULT_NOFAIL("xact-told");
	}
	le_fence_top_ended();

	/* 6. wait for the standbys */
	le_wait_durable_commit(lsn);
}

/*
 * Forgets the releases and fences of a subtransaction that has rolled back and released its PostgreSQL locks,
 * and undoes its acquires.  Must not fail, because an abort is under way.
 */
static void
sub_aborted(void)
{
	SubTransactionId subxact = aborting;
	uint32 first = le_xact_forget_acquires(subxact);

	Assert(subxact > TopSubTransactionId);
	aborting = InvalidSubTransactionId;
	le_pending_sub_aborted(subxact);
	le_fence_sub_aborted(subxact);
	if (le_my_mailbox == NULL)
		return;
	LE_FAULT_NOFAIL("subxact-before-undo");
	if (le_xact.is_open && first != 0)
		le_mail_undo(le_xact.number, first);
	LE_FAULT_NOFAIL("subxact-undone");
	if (le_xact.has_fence)
		le_mail(LE_MAIL_FENCE_ENDED);
}

/*
 * Calls top_ended() or sub_aborted() when PostgreSQL has released the locks of a resource owner.  Must not
 * fail, because it runs during commits and aborts.
 */
static void
resources_released(ResourceReleasePhase phase, bool is_commit, bool is_top_level, void *arg)
{
	if (phase == RESOURCE_RELEASE_BEFORE_LOCKS && is_top_level && le_xact.is_touched)
		LE_FAULT_NOFAIL("xact-before-locks");
	if (phase != RESOURCE_RELEASE_AFTER_LOCKS)
		return;
	if (is_top_level)
		top_ended(is_commit);
	else if (aborting != InvalidSubTransactionId)
		sub_aborted();
}

/*
 * Records the subtransaction that aborts; sub_aborted() handles it when its locks are released.  Must not
 * fail.
 *
 * The items of a committed subtransaction keep its number, and numbers only grow.  So all items that were
 * added since a subtransaction S began have the number of S or a higher one, and are at the head of each
 * list.  A rollback of S undoes exactly these items.
 */
static void
sub_xact_event(SubXactEvent event, SubTransactionId subxact, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
		aborting = subxact;
}

/* Prepares the releases before a commit, while an error still causes a rollback.  Rejects PREPARE. */
static void
xact_event(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PRE_COMMIT && le_xact.is_touched)
	{
		le_pending_prepare();
		LE_FAULT("xact-before-commit");
	}
	if (event == XACT_EVENT_PRE_PREPARE && le_xact.is_touched)
		ereport(
			ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg(
				 "cannot PREPARE a transaction that has acquired, released or fenced a lock or an election"),
			 errhint("Acquire and release locks outside of two-phase transactions.")));
}

void
le_xact_init(void)
{
	RegisterXactCallback(xact_event, NULL);
	RegisterSubXactCallback(sub_xact_event, NULL);
	RegisterResourceReleaseCallback(resources_released, NULL);
}
