/*
 * store/write.c
 *		Writes a batch to all tables, and loads the tables that contain the state.
 *
 * A batch writes slots, leases, places and changes of elections, in this order, in one transaction;
 * manager/batch.c writes meta in the same transaction.
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/snapmgr.h"

#include "core/effects.h"
#include "shared/fault.h"
#include "shared/shmem.h"
#include "store/store.h"
#include "store/table.h"

bool
le_store_open(LeCore *core)
{
	le_slot_table.rel = le_lease_table.rel = le_queue_table.rel = NULL;
	Assert(IsTransactionState() && ActiveSnapshotSet());
	return le_table_open_loaded(&le_slot_table) &&
		   (le_next_dirty_lease(core, NULL) == NULL || le_table_open_loaded(&le_lease_table)) &&
		   (le_next_dirty_place(core, NULL) == NULL || le_table_open_loaded(&le_queue_table));
}

void
le_store_close(void)
{
	le_table_close(&le_slot_table);
	le_table_close(&le_lease_table);
	le_table_close(&le_queue_table);
}

#ifdef USE_ASSERT_CHECKING
/*
 * Asserts that all dirty rows were written: objects that still exist have a row, and objects that have ended
 * have none.
 */
static void
assert_written(const LeCore *core)
{
	for (LeSlot *slot = NULL; (slot = le_next_dirty_slot(core, slot)) != NULL;)
	{
		Assert(slot->row.on_disk || le_slot_holder(slot) == NULL);
		Assert(!slot->row.on_disk || !slot->drop || le_slot_holder(slot) != NULL);
		Assert(!slot->row.on_disk || slot->row.locator != 0);
	}
	for (LeLease *lease = NULL; (lease = le_next_dirty_lease(core, lease)) != NULL;)
		Assert(lease->row.on_disk == !lease->ended);
	for (LeEntry *entry = NULL; (entry = le_next_dirty_place(core, entry)) != NULL;)
		Assert(entry->waiter->row.on_disk == (entry->state == LE_STATE_QUEUED));
}
#else
#define assert_written(core) ((void) 0)
#endif

int
le_store_write(LeCore *core, LeTime now)
{
	LeClock clock = {now, le_wall(now)};
	int rows;

	Assert(le_slot_table.rel != NULL);
	Assert(le_lease_table.rel != NULL || le_next_dirty_lease(core, NULL) == NULL);
	Assert(le_queue_table.rel != NULL || le_next_dirty_place(core, NULL) == NULL);
	rows = le_store_write_slots(core, &clock);
	rows += le_store_write_leases(core, &clock);
	LE_FAULT("store-slots-written");
	rows += le_store_write_places(core, &clock);
	LE_FAULT("store-places-written");
	rows += le_store_write_changes(core, &clock);
	assert_written(core);
	return rows;
}

bool
le_store_load(LeCore *core, LeCore *failed)
{
	if (!le_store_load_leases(core, failed) || !le_store_load_slots(core, failed) ||
		!le_store_load_places(core, failed))
		return false;

	/* all tables are loaded, and nothing can fail from here on */
	le_lease_table.known = le_slot_table.known = le_queue_table.known = true;
	return true;
}
