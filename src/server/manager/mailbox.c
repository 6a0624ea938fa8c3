/*
 * manager/mailbox.c
 *		What the mailboxes have for the manager.
 */
#include "postgres.h"

#include "manager/batch.h"
#include "manager/internal.h"
#include "shared/shmem.h"

static bool
has_mail(LeMailbox *box)
{
	return pg_atomic_read_u32(&box->mail) != 0 || pg_atomic_read_u64(&box->undo) != 0;
}

/* In which order they rang is not known: what has ended comes before what others ask for. */
int
le_batch_all_mailboxes(uint32 *procs)
{
	int n = 0, nmailed = 0;

	for (int i = 0; i < le_shared->max_sessions; i++)
	{
		LeMailbox *box = mailbox_of(i);
		bool mailed = has_mail(box);

		if (box->session == 0 ||
			(!mailed && pg_atomic_read_u32(&box->posted) == pg_atomic_read_u32(&box->answered)))
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
	LeMailbox *box = mailbox_of(proc);

	if ((pg_atomic_read_u32(&box->mail) & LE_MAIL_RELEASED) == 0)
		return false;
	pg_read_barrier();
	return box->releases.async;
}

void
le_retry_later(void)
{
	if (le_mgr.retry_at == 0)
		le_mgr.retry_at = le_clock() + RETRY_AFTER;
}
