/*
 * backend/session_fence.c
 *		Takes fences.  A transaction takes a fence to keep the manager from replacing a holder.
 *
 * A fence is a share lock in PostgreSQL's own lock manager, held until the end of the (sub)transaction.  The
 * manager does not end a holder that has a fence.  It checks whether the fence's lock is held, but does not
 * take that lock.  This is safe because of the following order:
 *
 *	1.	le_fence_take() takes the fence's lock.
 *	2.	The caller then asks the manager whether the token holds the name.  If the manager checked for fences
 *		before step 1, its reply already reflects the result of that check.
 *	3.	le_fence_note() records the name, for fence_guard().  The record exists as long as the lock.
 *
 * A fence uses an entry of PostgreSQL's lock table, which all sessions share.  A single entry for all fences
 * of a transaction would not be enough, because the manager looks for the fences of one particular token.
 * After a restart of the manager, only that table shows which tokens are fenced.  An entry without a token
 * would prevent the replacement of every holder.  So the number of fences is limited:
 *
 *	-	A transaction can always take max_locks_per_transaction fences, which is its share of the table.
 *	-	All transactions that have more fences than that may together use half of the table.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/memutils.h"

#include "backend/newest.h"
#include "backend/session_fence.h"
#include "backend/session_mailbox.h"
#include "backend/xactstate.h"
#include "shared/compat.h"
#include "shared/fence_lock.h"
#include "shared/shmem.h"

typedef struct LeFence
{
	struct LeFence *older;
	struct LeFence *alike; /* next older fence whose name has the same hash */
	SubTransactionId subxact;
	LeKind kind;
	int64 token;
	uint64 hash; /* hash of kind and name */
	uint32 name_len;
	char name[FLEXIBLE_ARRAY_MEMBER];
} LeFence;

/* Number of tokens fenced in a subtransaction, including those of committed subtransactions within it. */
typedef struct LeFenceCount
{
	struct LeFenceCount *older;
	SubTransactionId subxact;
	int count;
} LeFenceCount;

/* lists of this transaction, from the newest element on; allocated in TopTransactionContext */
static LeFence *fences = NULL;
static LeNewest newest = NULL; /* index of the fences by their hash */
static LeFenceCount *counts = NULL;

/* Number of fences that this transaction has added to LeShared.many_fences: 0, or the sum of counts. */
static int my_many_fences = 0;

/*
 * Returns the total limit for all transactions that have more than max_locks_per_transaction fences: half the
 * size of the lock table.
 */
static int64
max_fences(void)
{
	return (int64) max_locks_per_xact * MaxBackends / 2;
}

/* Updates the number that this transaction has added to many_fences.  count: number of its fences. */
static void
share_fences(int count)
{
	int many = count > max_locks_per_xact ? count : 0;

	if (many == my_many_fences)
		return;
	pg_atomic_fetch_add_u32(&le_shared->many_fences, many - my_many_fences);
	my_many_fences = many;
}

static int
count_fences(void)
{
	int count = 0;

	for (const LeFenceCount *c = counts; c != NULL; c = c->older)
		count += c->count;
	return count;
}

/* Raises an error if this transaction would exceed the limit with this number of fences. */
static void
check_room(int count)
{
	int64 all;

	share_fences(count);
	all = pg_atomic_read_u32(&le_shared->many_fences);
	if (my_many_fences == 0 || all <= max_fences())
		return;
	share_fences(count - 1);
	ereport(
		ERROR,
		(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
		 count > max_fences()
			 ? errmsg("this transaction fences or releases too many locks")
			 : errmsg("the transactions of this server fence or release too many locks at a time"),
		 errdetail("Each token that a transaction fences or releases stays fenced until the transaction "
				   "ends: " INT64_FORMAT " at most, half of the lock table.",
				   max_fences()),
		 errhint("Release in several transactions, or acquire locks that are released together with "
				 "acquire_locks(), which gives them one token, or on one lease, which revoke_lease() ends.  "
				 "See max_locks_per_transaction (%d).",
				 max_locks_per_xact)));
}

/* Counts one more fence of the current subtransaction. */
static void
count_fence(void)
{
	SubTransactionId subxact = GetCurrentSubTransactionId();

	check_room(count_fences() + 1);
	if (counts == NULL || counts->subxact < subxact)
	{
		LeFenceCount *c = MemoryContextAlloc(TopTransactionContext, sizeof(LeFenceCount));

		c->older = counts;
		c->subxact = subxact;
		c->count = 0;
		counts = c;
	}
	counts->count++;
}

void
le_fence_take(int64 token)
{
	LOCKTAG tag = le_fence_tag(token);

	Assert(token > 0 && IsTransactionState());
	if (!le_lock_held_by_me(&tag, ShareLock))
		count_fence();

	/* count the fence before it is taken, because the manager checks for fences only if the count is not 0 */
	le_xact_fencing();
	(void) LockAcquire(&tag, ShareLock, false, false);
	Assert(counts != NULL && counts->count > 0);
	Assert(le_xact.has_fence && pg_atomic_read_u32(&le_my_database()->fences) > 0);
}

void
le_fence_note(LeKind kind, LeText name, int64 token)
{
	LeFence *fence = MemoryContextAlloc(TopTransactionContext, offsetof(LeFence, name) + name.len);
	LOCKTAG tag PG_USED_FOR_ASSERTS_ONLY = le_fence_tag(token);

	Assert(le_lock_held_by_me(&tag, ShareLock) && name.len > 0);
	fence->hash = le_newest_hash(name, (uint64) kind);
	le_newest_reserve(&newest, fence->hash);
	fence->subxact = GetCurrentSubTransactionId();
	fence->kind = kind;
	fence->token = token;
	fence->name_len = name.len;
	memcpy(fence->name, name.data, name.len);
	fence->alike = le_newest(newest, fence->hash);
	le_newest_set(newest, fence->hash, fence);
	fence->older = fences;
	fences = fence;
}

bool
le_fence_is_mine(LeKind kind, LeText name, int64 token)
{
	uint64 hash = le_newest_hash(name, (uint64) kind);

	for (const LeFence *fence = le_newest(newest, hash); fence != NULL; fence = fence->alike)
	{
		LOCKTAG tag = le_fence_tag(fence->token);

		if (fence->kind == kind && (token == 0 || fence->token == token) && fence->name_len == name.len &&
			memcmp(fence->name, name.data, name.len) == 0 && le_lock_held_by_me(&tag, ShareLock))
			return true;
	}
	return false;
}

/* --- end of (sub)transactions --- */

void
le_fence_sub_aborted(SubTransactionId subxact)
{
	for (; fences != NULL && fences->subxact >= subxact; fences = fences->older)
		le_newest_set(newest, fences->hash, fences->alike);
	while (counts != NULL && counts->subxact >= subxact)
		counts = counts->older;
	share_fences(count_fences());
}

void
le_fence_top_ended(void)
{
	fences = NULL;
	newest = NULL;
	counts = NULL;
	share_fences(0);
}
