/*
 * manager/shrink.c
 *		The manager's care for the size of its tables; store/shrink.c does it.
 */
#include "postgres.h"

#include "access/xact.h"
#include "pgstat.h"
#include "utils/memutils.h"

#include "manager/internal.h"
#include "manager/shrink.h"
#include "shared/fault.h"
#include "shared/shmem.h"
#include "store/store.h"

/* From one look to the next; only if a batch was written in between, or a table was locked. */
#define LOOK_AFTER (5 * LE_SECOND)

static LeTime look_at = 0;
static bool looked = false; /* the first time for the view alone: whoever waits for the manager comes first */
static uint64 batches = 0;  /* when it was looked last */
static bool locked = true;  /* or not looked at yet */

static void
look(void)
{
	LeCore *core = looked ? le_mgr.core : NULL;
	uint64 bytes[LE_STORE_TABLES];

	for (int i = 0; i < LE_STORE_TABLES; i++)
		bytes[i] = pg_atomic_read_u64(&le_mgr.db->table_bytes[i]);
	looked = true;
	le_batch_begin();
	if (!le_store_find())
	{
		(void) le_batch_commit(false);
		return;
	}
	locked = !le_store_shrink(core, le_mgr.batch_context, bytes);
	LE_FAULT("shrink-done");
	(void) le_batch_commit(false);
	le_store_shrunk();
	LE_FAULT_NOFAIL("shrink-committed");
	for (int i = 0; i < LE_STORE_TABLES; i++)
		pg_atomic_write_u64(&le_mgr.db->table_bytes[i], bytes[i]);
	pgstat_report_stat(false);
}

LeTime
le_shrink_tend(void)
{
	uint64 written = pg_atomic_read_u64(&le_mgr.db->counters.batches);

	/* where the core's rows are is known only while it agrees with the tables */
	if (!le_mgr.core_valid || (written == batches && !locked))
		return LE_NEVER;
	if (le_clock() < look_at)
		return look_at;
	look_at = le_clock() + LOOK_AFTER;
	batches = written;
	locked = true;
	le_aside(look);
	return look_at;
}
