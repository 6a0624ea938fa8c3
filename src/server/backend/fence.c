/*
 * backend/fence.c
 *		Fences: a transaction holds a lock's holder in place.
 *
 * A fence is a share lock of PostgreSQL's own lock manager, held to the end of
 * the (sub)transaction.  The manager ends no holder while there is one; it
 * looks, and takes nothing.  That is enough: whoever fences checks the token
 * after he has the fence, and the manager answers that after what it was doing
 * when it looked.
 *
 * Which names are fenced is also noted here, for the guards of tables.  A note
 * is made after the check and lives as long as its share lock.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/memutils.h"

#include "backend/fence.h"
#include "backend/xact.h"
#include "shared/compat.h"
#include "shared/fence.h"

typedef struct LeFence
{
	struct LeFence *older;
	SubTransactionId subxact;
	LeKind kind;
	int64 token;
	uint32 name_len;
	char name[FLEXIBLE_ARRAY_MEMBER];
} LeFence;

static LeFence *fences = NULL; /* in TopTransactionContext */

void
le_fence_take(int64 token)
{
	LOCKTAG tag = le_fence_tag(token);

	/* counted before it is taken: the manager looks only where there is one */
	le_xact_fencing();
	(void) LockAcquire(&tag, ShareLock, false, false);
}

void
le_fence_note(LeKind kind, LeText name, int64 token)
{
	LeFence *fence = MemoryContextAlloc(TopTransactionContext, offsetof(LeFence, name) + name.len);

	fence->subxact = GetCurrentSubTransactionId();
	fence->kind = kind;
	fence->token = token;
	fence->name_len = name.len;
	memcpy(fence->name, name.data, name.len);
	fence->older = fences;
	fences = fence;
}

bool
le_fence_is_mine(LeKind kind, LeText name, int64 token)
{
	for (const LeFence *fence = fences; fence != NULL; fence = fence->older)
	{
		LOCKTAG tag = le_fence_tag(fence->token);

		if (fence->kind == kind && (token == 0 || fence->token == token) && fence->name_len == name.len &&
			memcmp(fence->name, name.data, name.len) == 0 && le_lock_held_by_me(&tag, ShareLock))
			return true;
	}
	return false;
}

/* --- ends --- */

void
le_fence_sub_committed(SubTransactionId subxact, SubTransactionId parent)
{
	for (LeFence *f = fences; f != NULL && f->subxact >= subxact; f = f->older)
		f->subxact = parent;
}

void
le_fence_sub_aborted(SubTransactionId subxact)
{
	while (fences != NULL && fences->subxact >= subxact)
		fences = fences->older;
}

void
le_fence_top_ended(void)
{
	fences = NULL;
}
