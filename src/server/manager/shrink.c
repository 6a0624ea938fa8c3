/*
 * manager/shrink.c
 *		The manager's care for the size of its tables; store/shrink.c does it.
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/memutils.h"

#include "manager/internal.h"
#include "manager/shrink.h"
#include "shared/fault.h"
#include "shared/shmem.h"
#include "store/store.h"

/* From one look to the next, and from the start to the first: whoever waits for a manager comes first. */
#define LOOK_AFTER (5 * LE_SECOND)

static LeTime look_at = 0;
static uint64 batches = PG_UINT64_MAX; /* when it was looked last */

static void
look(void)
{
	uint64 bytes[LE_DB_TABLES];

	for (int i = 0; i < LE_DB_TABLES; i++)
		bytes[i] = pg_atomic_read_u64(&le_mgr.db->table_bytes[i]);
	le_store_shrink(le_mgr.core, le_mgr.batch_context, bytes);
	LE_FAULT("shrink-done");
	(void) le_batch_commit(false);
	le_store_shrunk();
	LE_FAULT_NOFAIL("shrink-committed");
	for (int i = 0; i < LE_DB_TABLES; i++)
		pg_atomic_write_u64(&le_mgr.db->table_bytes[i], bytes[i]);
}

LeTime
le_shrink_tend(void)
{
	uint64 written = pg_atomic_read_u64(&le_mgr.db->counters.batches);

	/*
	 * Where the core's rows are is known only while it agrees with the tables; and
	 * rows that a load has left out would be lost.  Without a batch nothing has grown.
	 */
	if (!le_mgr.core_valid || le_mgr.left_out > 0 || written == batches)
		return LE_NEVER;
	if (look_at == 0)
		look_at = le_clock() + LOOK_AFTER;
	if (le_clock() < look_at)
		return look_at;
	look_at = le_clock() + LOOK_AFTER;
	batches = written;
	le_chore(look);
	return look_at;
}
