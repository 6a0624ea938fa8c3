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
#include "backend/fence.h"
#include "backend/pending.h"
#include "backend/request.h"
#include "backend/session.h"
#include "backend/xact.h"
#include "shared/fault.h"
#include "shared/shmem.h"

static uint32 xact_number = 0;
static bool xact_is_open = false;
static bool xact_is_touched = false;
static bool xact_has_fence = false;
static SubTransactionId aborting = InvalidSubTransactionId;

/*
 * The acquires of a transaction are numbered: a rollback to a savepoint undoes
 * all since the first one after that, and a caller that does without an answer
 * undoes its last one.
 */
typedef struct Acquirer
{
	struct Acquirer *outer;
	SubTransactionId subxact;
	uint32 first; /* number of its first acquire */
} Acquirer;

static uint32 acquires = 0;
static Acquirer *acquirers = NULL; /* in TopTransactionContext */

uint32
le_xact_number(void)
{
	return xact_is_open ? xact_number : xact_number + 1;
}

uint32
le_xact_open(void)
{
	LeRequestSlot *slot = le_my_slot;

	if (!xact_is_open)
	{
		/* 0 means none */
		if (++xact_number == 0)
			++xact_number;
		xact_is_open = true;
		acquires = 0;
		pg_atomic_write_u32(&slot->open_xact, xact_number);
	}
	return xact_number;
}

uint32
le_xact_acquire(void)
{
	SubTransactionId subxact = GetCurrentSubTransactionId();

	if (acquirers == NULL || acquirers->subxact < subxact)
	{
		Acquirer *inner = MemoryContextAlloc(TopTransactionContext, sizeof(Acquirer));

		*inner = (Acquirer){.outer = acquirers, .subxact = subxact, .first = acquires + 1};
		acquirers = inner;
	}
	return ++acquires;
}

/* The first acquire of this subtransaction, which is to be forgotten; 0: none. */
static uint32
forget_acquires(SubTransactionId subxact)
{
	uint32 first = 0;

	for (; acquirers != NULL && acquirers->subxact >= subxact; acquirers = acquirers->outer)
		first = acquirers->first;
	return first;
}

/* From now on they stand and fall with the parent. */
static void
reparent_acquires(SubTransactionId subxact, SubTransactionId parent)
{
	while (acquirers != NULL && acquirers->subxact >= subxact)
	{
		if (acquirers->outer == NULL || acquirers->outer->subxact < parent)
			acquirers->subxact = parent;
		else
			acquirers = acquirers->outer;
	}
}

void
le_xact_touched(void)
{
	xact_is_touched = true;
}

static LeDatabase *
my_database(void)
{
	return &le_shared->databases[le_my_slot->database];
}

void
le_xact_fencing(void)
{
	if (!xact_has_fence)
		pg_atomic_fetch_add_u32(&my_database()->fences, 1);
	xact_has_fence = true;
	xact_is_touched = true;
}

/* --- ends --- */

static void
top_ended(bool is_commit)
{
	bool was_open = xact_is_open, had_fence = xact_has_fence;

	/* the callback comes once for every resource owner: only the first counts */
	if (!was_open && !had_fence && !xact_is_touched)
		return;

	LE_FAULT_NOFAIL("xact-locks-released");

	xact_is_open = false;
	xact_is_touched = false;
	xact_has_fence = false;
	aborting = InvalidSubTransactionId;
	acquirers = NULL;

	if (le_my_slot != NULL)
	{
		if (was_open)
		{
			if (!is_commit)
				le_mail_undo(xact_number, 1);
			pg_atomic_write_u32(&le_my_slot->open_xact, 0);
		}
		if (had_fence)
			pg_atomic_fetch_sub_u32(&my_database()->fences, 1);
	}
	le_pending_top_ended(is_commit);
	if (le_my_slot != NULL)
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
	uint32 first = forget_acquires(subxact);

	aborting = InvalidSubTransactionId;
	le_pending_sub_aborted(subxact);
	le_fence_sub_aborted(subxact);
	if (le_my_slot == NULL)
		return;
	LE_FAULT_NOFAIL("subxact-before-undo");
	if (xact_is_open && first != 0)
		le_mail_undo(xact_number, first);
	LE_FAULT_NOFAIL("subxact-undone");
	if (xact_has_fence)
		le_mail(LE_MAIL_FENCE_ENDED);
}

static void
resources_released(ResourceReleasePhase phase, bool is_commit, bool is_top_level, void *arg)
{
	if (phase == RESOURCE_RELEASE_BEFORE_LOCKS && is_top_level && xact_is_touched)
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
		reparent_acquires(subxact, parent);
		le_fence_sub_committed(subxact, parent);
	}
}

static void
xact_event(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PRE_COMMIT && xact_is_touched)
	{
		le_pending_prepare();
		LE_FAULT("xact-before-commit");
	}
	if (event == XACT_EVENT_PRE_PREPARE && xact_is_touched)
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
