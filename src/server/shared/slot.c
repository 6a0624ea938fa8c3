/*
 * shared/slot.c
 *		The slots of sessions, and the stacks of those that have rung.
 *
 * shared/shmem.h has the protocol.  The backend's side is backend/request.c, the
 * manager's is manager/take.c and manager/batch.c.
 */
#include "postgres.h"

#include "shared/releases.h"
#include "shared/shmem.h"
#include "shared/wake.h"

static void
slot_init(LeRequestSlot *slot)
{
	pg_atomic_init_u32(&slot->posted, 0);
	pg_atomic_init_u32(&slot->given_up, 0);
	pg_atomic_init_u32(&slot->answered, 0);
	pg_atomic_init_u32(&slot->deferred, 0);
	pg_atomic_init_u32(&slot->open_xact, 0);
	pg_atomic_init_u64(&slot->undo, 0);
	pg_atomic_init_u32(&slot->mail, 0);
	pg_atomic_init_u32(&slot->releasing, 0);
	pg_atomic_init_u32(&slot->linked, 0);
	pg_atomic_init_u32(&slot->note, 0);
	pg_atomic_init_u32(&slot->bound, 0);
	pg_atomic_init_u64(&slot->confirming_since, 0);
}

/* Until then they take no memory: the system gives a page when it is written to. */
void
le_slots_init(LeDatabase *db)
{
	if (db->has_slots)
		return;
	memset(le_slot(db, 0), 0, le_shared->max_slots * sizeof(LeRequestSlot));
	for (int i = 0; i < le_shared->max_slots; i++)
	{
		slot_init(le_slot(db, i));
		le_slot(db, i)->database = (int) (db - le_shared->databases);
	}
	db->has_slots = true;
}

/*
 * Link it, unless it is.  Returns whether there is nobody on the stack for whom the
 * manager was woken, also not this one.
 */
static bool
link_slot(LeRequestSlot *slot, bool rung)
{
	LeDatabase *db = &le_shared->databases[slot->database];
	uint32 self = le_slot_proc(slot) + 1;
	uint32 head, unrung;

	if (pg_atomic_exchange_u32(&slot->linked, 1) != 0)
		return rung && (pg_atomic_fetch_and_u32(&db->stack, ~LE_STACK_UNRUNG) & LE_STACK_UNRUNG) != 0;
	head = pg_atomic_read_u32(&db->stack);
	do
	{
		slot->next = head & ~LE_STACK_UNRUNG;
		unrung = head == 0 ? LE_STACK_UNRUNG : head & LE_STACK_UNRUNG;
	} while (!pg_atomic_compare_exchange_u32(&db->stack, &head, rung ? self : self | unrung));
	return unrung != 0;
}

void
le_ring(LeRequestSlot *slot)
{
	if (link_slot(slot, true))
		le_wake(le_shared->databases[slot->database].worker_proc);
}

void
le_ring_softly(LeRequestSlot *slot)
{
	LeDatabase *db = &le_shared->databases[slot->database];

	if (!link_slot(slot, false))
		return;

	/* the manager sets asleep before it looks at the stack: one of the two sees the other */
	pg_memory_barrier();
	if (pg_atomic_read_u32(&db->asleep) != 0 || pg_atomic_read_u64(&db->queued) != 0)
		le_ring(slot);
}

int
le_take_stack(LeDatabase *db, uint32 *procs)
{
	uint32 link = pg_atomic_exchange_u32(&db->stack, 0) & ~LE_STACK_UNRUNG;
	int n = 0;

	while (link != 0)
	{
		LeRequestSlot *slot = le_slot(db, link - 1);

		procs[n++] = link - 1;
		link = slot->next;

		/* from here on a ring links it again */
		pg_atomic_exchange_u32(&slot->linked, 0);
	}
	for (int i = 0; i < n / 2; i++)
	{
		uint32 swap = procs[i];

		procs[i] = procs[n - 1 - i];
		procs[n - 1 - i] = swap;
	}
	return n;
}

void
le_slot_clear(LeRequestSlot *slot)
{
	if (pg_atomic_read_u32(&slot->mail) & LE_MAIL_RELEASED)
		le_releases_drop(&slot->releases);
	pg_atomic_write_u32(&slot->answered, pg_atomic_read_u32(&slot->posted));
	pg_atomic_write_u64(&slot->undo, 0);
	pg_atomic_write_u32(&slot->mail, 0);
	pg_atomic_write_u32(&slot->open_xact, 0);
	slot->revision = 0;
	pg_write_barrier();
	slot->session = 0;
}
