/*
 * backend/xact.c
 *		What the ends of transactions do to locks.
 *
 * An acquire takes effect at once, and is undone with its (sub)transaction.  A release in a
 * transaction is kept by backend/pending.c, and posted after the transaction's own PostgreSQL locks
 * are released, so that the next holder cannot see data from before the transaction.  Both happen
 * in a resource-release callback, the only place that runs after those locks are released.
 *
 * A cancelled wait is undone by these functions:
 *
 *	1.	le_wait_turn() in backend/wait.c raises the error: a cancel, a timeout, a lost client.  The
 *		request stays posted, and may still be granted.
 *	2.	wait_cleanup() in backend/session_request.c runs, for ERROR and FATAL alike: it notes that
 *		nobody waits for the reply (given_up), le_flush_leave() names another flusher,
 *		le_client_wait_over() stops the probes of the socket, le_body_done() frees the body of the
 *		request.
 *	3.	PostgreSQL aborts the transaction, or the subtransaction: sub_xact_event() notes which one.
 *		It releases its locks, and calls resources_released(), which calls top_ended() or
 *		sub_aborted() below.
 *	4.	sub_aborted() asks le_xact_forget_acquires() in backend/xactstate.c for the first acquire
 *		that is void; for top_ended() that is number 1.  le_mail_undo() in backend/session_mailbox.c
 *		mails the number and wakes up the manager.
 *	5.	The manager takes the mail before the request (manager/take.c).  le_apply_undo() in
 *		core/sessions.c ends the waiter, or the holder if the grant came first.  A place that was
 *		taken earlier stays, and only its wait ends; a fenced holder lapses.  A void request that is
 *		not taken yet is answered without being read.
 *	6.	Once its batch is committed, the manager clears the mail (manager/batch.c).  Until then
 *		mailbox_is_quiet() in backend/session_request.c keeps the next request of the session from
 *		being posted.
 *
 * Two other waits end by parts of this.  A call whose own wait has ended, and to which a stuck
 * manager does not reply, mails the undo of its own acquire (send_and_wait(), step 4) and goes on.
 * A process that exits aborts its transaction first; session_exit() in backend/session_mailbox.c
 * then mails the end of the session, which also ends what is bound to the connection.
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

/* Subtransaction that is rolling back, from its event to the release of its locks. */
static SubTransactionId aborting = InvalidSubTransactionId;

/*
 * Called when the transaction has ended and its PostgreSQL locks are released.  Must not fail: the
 * transaction is committed, or its abort is under way.  The order matters:
 *
 *	1.	Forget the state of the transaction.  The callback runs once for each resource owner, and
 *		only the first call does anything.
 *	2.	After a rollback, mail the undo of its acquires.  This comes before open_xact is cleared: a
 *		manager that starts meanwhile treats uncommitted holds of a transaction that is not open as
 *		committed.
 *	3.	Stop counting its fence, before the manager is told to look.
 *	4.	After a commit, post its releases and wait for them.  Its fences are gone with its locks, so
 *		one of the holders may expire first; that is a release as well.
 *	5.	Mail the end of the fence, last: the manager then finds releases and fences as this
 *		transaction leaves them, and grants locks that either of them had kept.
 *	6.	Wait for the standbys.  Nobody waits for this session meanwhile.
 */
static void
top_ended(bool is_commit)
{
	bool was_open = le_xact.is_open, had_fence = le_xact.has_fence;
	uint64 lsn;

	/* 1. */
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
		/* 2. */
		if (was_open)
		{
			Assert(pg_atomic_read_u32(&le_my_mailbox->open_xact) == le_xact.number);
			if (!is_commit)
				le_mail_undo(le_xact.number, 1);
			pg_atomic_write_u32(&le_my_mailbox->open_xact, 0);
		}

		/* 3. */
		if (had_fence)
		{
			uint32 fences PG_USED_FOR_ASSERTS_ONLY = pg_atomic_fetch_sub_u32(&le_my_database()->fences, 1);

			Assert(fences > 0 && fences <= (uint32) le_shared->max_sessions);
		}
	}

	/* 4. */
	lsn = le_pending_top_ended(is_commit);

	/* 5. */
	if (le_my_mailbox != NULL)
	{
		LE_FAULT_NOFAIL("xact-before-unfence");
		if (had_fence)
			le_mail(LE_MAIL_FENCE_ENDED);
		LE_FAULT_NOFAIL("xact-told");
	}
	le_fence_top_ended();

	/* 6. */
	le_wait_durable_commit(lsn);
}

/*
 * Forgets the releases and fences of a subtransaction that has rolled back and released its locks,
 * and undoes its acquires.  Must not fail: an abort is under way.
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
 * Called when PostgreSQL releases the resources of a resource owner.  Must not fail: it does that
 * in commits and aborts.
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
 * Notes the subtransaction of an abort, whose event comes before its locks are released.  Must not
 * fail.
 *
 * A commit changes nothing: the items of a subtransaction keep its number.  Numbers only grow.  So
 * among the subtransactions that are open later, those that enclosed it have lower numbers, and all
 * others higher ones; and the head of each list holds the items since a subtransaction began.  A
 * rollback of subtransaction S therefore undoes exactly the items with numbers from S on.
 */
static void
sub_xact_event(SubXactEvent event, SubTransactionId subxact, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
		aborting = subxact;
}

/* Runs before a commit, while an error still turns it into a rollback. */
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
