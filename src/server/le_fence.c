/*
 * le_fence.c
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

#include <signal.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "utils/memutils.h"

#include "le_args.h"
#include "le_compat.h"
#include "le_fence.h"
#include "le_shmem.h"
#include "le_xact.h"

typedef struct LeFence
{
	struct LeFence *older;
	SubTransactionId subxact;
	LeKind ns;
	int64 token;
	uint32 name_len;
	char name[FLEXIBLE_ARRAY_MEMBER];
} LeFence;

static LeFence *fences = NULL; /* in TopTransactionContext */

static LOCKTAG
fence_tag(int64 token)
{
	LOCKTAG tag;

	memset(&tag, 0, sizeof(tag));
	tag.locktag_field1 = MyDatabaseId;
	tag.locktag_field2 = (uint32) ((uint64) token >> 32);
	tag.locktag_field3 = (uint32) token;
	tag.locktag_type = LOCKTAG_USERLOCK;
	tag.locktag_lockmethodid = USER_LOCKMETHOD;
	return tag;
}

void
le_fence_take(int64 token)
{
	LOCKTAG tag = fence_tag(token);

	/* counted before it is taken: the manager looks only where there is one */
	le_xact_fencing();
	(void) LockAcquire(&tag, ShareLock, false, false);
}

void
le_fence_note(LeKind ns, LeText name, int64 token)
{
	LeFence *fence = MemoryContextAlloc(TopTransactionContext, offsetof(LeFence, name) + name.len);

	fence->subxact = GetCurrentSubTransactionId();
	fence->ns = ns;
	fence->token = token;
	fence->name_len = name.len;
	memcpy(fence->name, name.data, name.len);
	fence->older = fences;
	fences = fence;
}

bool
le_fence_is_mine(LeKind ns, LeText name, int64 token)
{
	for (const LeFence *fence = fences; fence != NULL; fence = fence->older)
	{
		LOCKTAG tag = fence_tag(fence->token);

		if (fence->ns == ns && (token == 0 || fence->token == token) && fence->name_len == name.len &&
			memcmp(fence->name, name.data, name.len) == 0 && le_lock_held_by_me(&tag, ShareLock))
			return true;
	}
	return false;
}

/*
 * A transaction that has ended for everybody else counts no more, though its
 * locks may be there for a moment longer.
 */
bool
le_fence_held(int64 token)
{
	LOCKTAG tag = fence_tag(token);
	int count;

	pfree(GetLockConflicts(&tag, ExclusiveLock, &count));
	return count > 0;
}

List *
le_fence_procs(int64 token, List **pids, int signo)
{
	LOCKTAG tag = fence_tag(token);
	VirtualTransactionId *vxids;
	List *procs = NIL;
	int count;

	/* nobody ends a transaction, or exits, under this lock */
	LWLockAcquire(ProcArrayLock, LW_SHARED);
	vxids = GetLockConflicts(&tag, ExclusiveLock, &count);
	for (int i = 0; i < count; i++)
	{
		PGPROC *proc = le_vxid_proc(vxids[i]);

		if (proc == NULL || proc->pid == 0)
			continue;
		if (signo != 0)
			(void) kill(proc->pid, signo);
		if (pids != NULL)
			*pids = lappend_int(*pids, proc->pid);
		procs = lappend_int(procs, (int) (proc - le_proc(0)));
	}
	LWLockRelease(ProcArrayLock);
	pfree(vxids);
	return procs;
}

/*
 * The connection, not its statement: a cancel would leave what was fenced
 * before a savepoint, and says nothing to a client that is idle.
 */
void
le_fence_end_overdue(LeCore *core, LeTime now)
{
	LeTime timeout = (LeTime) le_fence_timeout * LE_MS;
	LeEntry *entry;

	while (timeout > 0 && (entry = le_core_overdue(core, timeout, now)) != NULL)
	{
		List *pids = NIL;
		ListCell *lc;

		list_free(le_fence_procs(entry->token, &pids, SIGTERM));
		foreach (lc, pids)
			ereport(
				LOG,
				(errmsg("terminating connection of process %d due to lock_election.fence_timeout",
						lfirst_int(lc)),
				 errdetail("Its transaction has fenced %s \"%.*s\", whose lease ended more than %d ms ago.",
						   le_kind_word((LeKind) entry->lock->ns), (int) entry->lock->name_len,
						   entry->lock->name, le_fence_timeout)));
		list_free(pids);
	}
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
