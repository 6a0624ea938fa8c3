/*
 * backend/xact.c
 *		What transactions do to locks.
 *
 * An acquire takes effect at once and is undone with its (sub)transaction:
 * the manager has listed it, and is told in the mailbox from which
 * subtransaction on everything is void.
 *
 * A release in a transaction is remembered (backend/pending.c) and sent after
 * the commit, when the transaction's own locks are gone, so that the next
 * holder cannot see data as they were before.
 *
 * All of it happens in a resource-release callback: the only place that comes
 * after the locks are released.  Nothing in there may fail.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "backend/durability.h"
#include "backend/session_fence.h"
#include "backend/pending.h"
#include "backend/session_request.h"
#include "backend/session_mailbox.h"
#include "backend/xact.h"
#include "backend/xactstate.h"
#include "shared/fault.h"
#include "shared/shmem.h"

static SubTransactionId aborting = InvalidSubTransactionId;

static LeDatabase *
my_database(void)
{
	return &le_shared->databases[le_my_mailbox->database];
}

/* --- ends --- */

static void
top_ended(bool is_commit)
{
	bool was_open = le_xact.is_open, had_fence = le_xact.has_fence;

	/* the callback comes once for every resource owner: only the first counts */
	if (!was_open && !had_fence && !le_xact.is_touched)
		return;

	LE_FAULT_NOFAIL("xact-locks-released");

	le_xact.is_open = false;
	le_xact.is_touched = false;
	le_xact.has_fence = false;
	aborting = InvalidSubTransactionId;
	le_xact_forget_acquires(TopSubTransactionId);

	if (le_my_mailbox != NULL)
	{
		if (was_open)
		{
			if (!is_commit)
				le_mail_undo(le_xact.number, 1);
			pg_atomic_write_u32(&le_my_mailbox->open_xact, 0);
		}
		if (had_fence)
			pg_atomic_fetch_sub_u32(&my_database()->fences, 1);
	}
	le_pending_top_ended(is_commit);
	if (le_my_mailbox != NULL)
	{
		LE_FAULT_NOFAIL("xact-before-unfence");
		if (had_fence)
			le_mail(LE_MAIL_FENCE_ENDED);
		LE_FAULT_NOFAIL("xact-told");
	}
	le_fence_top_ended();

	/* nobody waits for this session any more while it waits for the standbys */
	le_wait_durable_commit();
}

static void
sub_aborted(void)
{
	SubTransactionId subxact = aborting;
	uint32 first = le_xact_forget_acquires(subxact);

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

static void
sub_xact_event(SubXactEvent event, SubTransactionId subxact, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
		aborting = subxact;
	else if (event == SUBXACT_EVENT_COMMIT_SUB)
	{
		le_pending_sub_committed(subxact, parent);
		le_xact_reparent_acquires(subxact, parent);
		le_fence_sub_committed(subxact, parent);
	}
}

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
