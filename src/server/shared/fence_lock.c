/*
 * shared/fence_lock.c
 *		Finds the PostgreSQL lock that implements a fence, and the holders of this lock.
 */
#include "postgres.h"

#include <signal.h>

#include "miscadmin.h"
#include "storage/lwlock.h"
#include "storage/proc.h"

#include "shared/compat.h"
#include "shared/fault.h"
#include "shared/fence_lock.h"

LOCKTAG
le_fence_tag(int64 token)
{
	LOCKTAG tag;

	Assert(OidIsValid(MyDatabaseId));
	memset(&tag, 0, sizeof(tag));
	tag.locktag_field1 = MyDatabaseId;
	tag.locktag_field2 = (uint32) ((uint64) token >> 32);
	tag.locktag_field3 = (uint32) token;
	tag.locktag_type = LOCKTAG_USERLOCK;
	tag.locktag_lockmethodid = USER_LOCKMETHOD;
	return tag;
}

int64
le_fence_token(const LOCKTAG *tag)
{
	int64 token = (int64) (((uint64) tag->locktag_field2 << 32) | tag->locktag_field3);
	LOCKTAG of_token = le_fence_tag(token);

	return memcmp(tag, &of_token, sizeof(LOCKTAG)) == 0 ? token : 0;
}

/*
 * Ignores a transaction that has already ended for other processes.  Its locks may still exist for a moment.
 */
bool
le_fence_held(int64 token)
{
	LOCKTAG tag = le_fence_tag(token);
	int count;

	pfree(GetLockConflicts(&tag, ExclusiveLock, &count));
	return count > 0;
}

List *
le_fence_pids(int64 token, int signo)
{
	LOCKTAG tag = le_fence_tag(token);
	VirtualTransactionId *vxids;
	List *pids = NIL;
	int count;

	Assert(token > 0);

	/*
	 * 1. While ProcArrayLock is held, no process exits, and no transaction with an id ends.  A transaction
	 * without an id may end after GetLockConflicts() has found it.  Such a transaction no longer holds the
	 * fence, and its process must not get the signal.
	 */
	LWLockAcquire(ProcArrayLock, LW_SHARED);
	vxids = GetLockConflicts(&tag, ExclusiveLock, &count);
	LE_FAULT("fence-pids-locked");

	/* 2. signal and list the processes that are still in that transaction */
	for (int i = 0; i < count; i++)
	{
		PGPROC *proc = le_vxid_proc(vxids[i]);
		VirtualTransactionId now;

		if (proc == NULL || proc->pid == 0)
			continue;
		GET_VXID_FROM_PGPROC(now, *proc);
		if (!VirtualTransactionIdEquals(now, vxids[i]))
			continue;
		(void) kill(proc->pid, signo);
		pids = lappend_int(pids, proc->pid);
	}
	LWLockRelease(ProcArrayLock);
	pfree(vxids);
	return pids;
}
