/*
 * backend/xactstate.c
 *		What the current transaction has done to locks so far.
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/memutils.h"

#include "backend/session_mailbox.h"
#include "backend/xactstate.h"
#include "shared/shmem.h"

LeXactState le_xact = {0};

/*
 * The acquires of a transaction are numbered: a rollback to a savepoint undoes
 * all since the first one after that, and a caller that does without an answer
 * undoes its last one.
 */
typedef struct OpenSubxact
{
	struct OpenSubxact *outer;
	SubTransactionId subxact;
	uint32 first; /* number of its first acquire */
} OpenSubxact;

static uint32 acquires = 0;
static OpenSubxact *open_subxacts = NULL; /* in TopTransactionContext */

uint32
le_xact_number(void)
{
	return le_xact.is_open ? le_xact.number : le_xact.number + 1;
}

uint32
le_xact_open(void)
{
	LeMailbox *box = le_my_mailbox;

	if (!le_xact.is_open)
	{
		/* 0 means none */
		if (++le_xact.number == 0)
			++le_xact.number;
		Assert(open_subxacts == NULL && pg_atomic_read_u32(&box->open_xact) == 0);
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
	if (open_subxacts == NULL || open_subxacts->subxact < subxact)
	{
		OpenSubxact *inner = MemoryContextAlloc(TopTransactionContext, sizeof(OpenSubxact));

		*inner = (OpenSubxact){.outer = open_subxacts, .subxact = subxact, .first = acquires + 1};
		open_subxacts = inner;
	}
	return ++acquires;
}

uint32
le_xact_forget_acquires(SubTransactionId subxact)
{
	uint32 first = 0;

	for (; open_subxacts != NULL && open_subxacts->subxact >= subxact; open_subxacts = open_subxacts->outer)
		first = open_subxacts->first;
	Assert(first <= acquires);
	return first;
}

void
le_xact_reparent_acquires(SubTransactionId subxact, SubTransactionId parent)
{
	Assert(parent < subxact);
	while (open_subxacts != NULL && open_subxacts->subxact >= subxact)
	{
		if (open_subxacts->outer == NULL || open_subxacts->outer->subxact < parent)
			open_subxacts->subxact = parent;
		else
			open_subxacts = open_subxacts->outer;
	}
}

void
le_xact_fencing(void)
{
	if (!le_xact.has_fence)
		pg_atomic_fetch_add_u32(&le_my_database()->fences, 1);
	le_xact.has_fence = true;
	le_xact.is_touched = true;
}
