/*
 * manager/mailbox.c
 *		What the slots have for the manager.
 */
#include "postgres.h"

#include "manager/batch.h"
#include "manager/internal.h"
#include "shared/shmem.h"

static bool
has_mail(LeRequestSlot *slot)
{
	return pg_atomic_read_u32(&slot->mail) != 0 || pg_atomic_read_u64(&slot->undo) != 0;
}

/* In which order they rang is not known: what has ended comes before what others ask for. */
int
le_batch_all_slots(uint32 *procs)
{
	int n = 0, nmailed = 0;

	for (int i = 0; i < le_shared->max_slots; i++)
	{
		LeRequestSlot *slot = slot_of(i);
		bool mailed = has_mail(slot);

		if (slot->session == 0 ||
			(!mailed && pg_atomic_read_u32(&slot->posted) == pg_atomic_read_u32(&slot->answered)))
			continue;
		procs[n++] = i;
		if (mailed)
		{
			procs[n - 1] = procs[nmailed];
			procs[nmailed++] = i;
		}
	}
	return n;
}

bool
le_take_has_async(uint32 proc)
{
	LeRequestSlot *slot = slot_of(proc);

	if ((pg_atomic_read_u32(&slot->mail) & LE_MAIL_RELEASED) == 0)
		return false;
	pg_read_barrier();
	return slot->releases.async;
}

void
le_retry_later(void)
{
	if (le_mgr.retry_at == 0)
		le_mgr.retry_at = le_clock() + RETRY_AFTER;
}
