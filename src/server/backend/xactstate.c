/*
 * backend/xactstate.c
 *		Tracks the acquires, releases and fences of the current transaction.
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/memutils.h"

#include "backend/session_mailbox.h"
#include "backend/xactstate.h"
#include "shared/shmem.h"

LeXactState le_xact = {.number = 1};

/*
 * The acquires of a transaction are numbered, because a rollback to a savepoint undoes all acquires since the
 * savepoint, and a caller that gives up waiting for a reply undoes its last acquire.  This list contains the
 * open and committed subtransactions that have sent acquires.  An acquire of an open subtransaction may be
 * counted for a newer, committed subtransaction.  This is harmless, because the committed one can only roll
 * back together with the open one, which contains it.
 */
typedef struct SubxactAcquires
{
	struct SubxactAcquires *older;
	SubTransactionId subxact;
	uint32 first; /* number of its first acquire */
} SubxactAcquires;

static uint32 acquires = 0;
static SubxactAcquires *subxacts = NULL; /* allocated in TopTransactionContext */

uint32
le_xact_number(void)
{
	return le_xact.is_open ? le_xact.number : le_xact.number + 2;
}

uint32
le_xact_open(void)
{
	LeMailbox *box = le_my_mailbox;

	if (!le_xact.is_open)
	{
		uint32 announced PG_USED_FOR_ASSERTS_ONLY = le_xact_number();

		/* the number stays odd, so that it is never 0, which would mean that no transaction is open */
		le_xact.number += 2;
		Assert(le_xact.number == announced && le_xact.number % 2 == 1);
		Assert(subxacts == NULL && pg_atomic_read_u32(&box->open_xact) == 0);
		le_xact.is_open = true;
		acquires = 0;
		pg_atomic_write_u32(&box->open_xact, le_xact.number);
	}
	return le_xact.number;
}

uint32
le_xact_acquire(void)
{
	SubTransactionId subxact = GetCurrentSubTransactionId();

	Assert(le_xact.is_open);
	if (subxacts == NULL || subxacts->subxact < subxact)
	{
		SubxactAcquires *newest = MemoryContextAlloc(TopTransactionContext, sizeof(SubxactAcquires));

		*newest = (SubxactAcquires){.older = subxacts, .subxact = subxact, .first = acquires + 1};
		subxacts = newest;
		Assert(newest->older == NULL || newest->older->first < newest->first);
	}
	Assert(subxacts->first > 0 && subxacts->first <= acquires + 1);
	return ++acquires;
}

uint32
le_xact_forget_acquires(SubTransactionId subxact)
{
	uint32 first = 0;

	for (; subxacts != NULL && subxacts->subxact >= subxact; subxacts = subxacts->older)
		first = subxacts->first;
	Assert(first <= acquires);
	return first;
}

void
le_xact_fencing(void)
{
	Assert(le_my_mailbox != NULL && IsTransactionState());
	if (!le_xact.has_fence)
		pg_atomic_fetch_add_u32(&le_my_database()->fences, 1);
	le_xact.has_fence = true;
	le_xact.is_touched = true;
}
