/*
 * manager/state.c
 *		Defines the state of the manager.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "manager/state.h"

Manager le_mgr;

void
le_state_init(LeDatabase *db)
{
	int n = le_shared->max_sessions;

	Assert(le_mgr.db == NULL && le_mgr.core_state == CORE_STALE);
	le_mgr.db = db;
	pg_atomic_write_u64(&db->outage_since, 0);
	pg_atomic_write_u64(&db->outage_failed_at, 0);
	le_mgr.taken = MemoryContextAllocZero(TopMemoryContext, n * sizeof(uint32));
	le_mgr.looked = MemoryContextAllocZero(TopMemoryContext, n * sizeof(uint32));
	le_mgr.fresh = MemoryContextAllocZero(TopMemoryContext, n * sizeof(uint32));
	le_mgr.mails = MemoryContextAllocZero(TopMemoryContext, 2 * n * sizeof(Mail));
	le_mgr.answers = MemoryContextAllocZero(TopMemoryContext, n * sizeof(CommitAnswer));
	le_mgr.deferred = MemoryContextAllocZero(TopMemoryContext, n * sizeof(uint32));
	for (int i = 0; i < n; i++)
	{
		le_mgr.taken[i] = pg_atomic_read_u32(&mailbox_of(i)->answered);
		pg_atomic_write_u32(&mailbox_of(i)->deferred, le_mgr.taken[i]);
	}
	le_mgr.batch_context =
		AllocSetContextCreate(TopMemoryContext, "lock_election batch", ALLOCSET_DEFAULT_SIZES);
	le_pause_init(&le_mgr.pause, le_clock());
}
