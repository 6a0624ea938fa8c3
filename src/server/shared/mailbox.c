/*
 * shared/mailbox.c
 *		The mailboxes of sessions, and the stacks of those that have rung.
 *
 * shared/shmem.h has the protocol.  The backend's side is backend/session_request.c, the
 * manager's is manager/take.c and manager/batch.c.
 */
#include "postgres.h"

#include "shared/releases.h"
#include "shared/shmem.h"
#include "shared/sleep.h"

static void
mailbox_init(LeMailbox *box)
{
	pg_atomic_init_u32(&box->posted, 0);
	pg_atomic_init_u32(&box->given_up, 0);
	pg_atomic_init_u32(&box->answered, 0);
	pg_atomic_init_u32(&box->deferred, 0);
	pg_atomic_init_u32(&box->open_xact, 0);
	pg_atomic_init_u64(&box->undo, 0);
	pg_atomic_init_u32(&box->mail, 0);
	pg_atomic_init_u32(&box->releasing, 0);
	pg_atomic_init_u32(&box->linked, 0);
	pg_atomic_init_u32(&box->note, 0);
	pg_atomic_init_u32(&box->bound, 0);
	pg_atomic_init_u64(&box->confirming_since, 0);
}

/* Until then they take no memory: the system gives a page when it is written to. */
void
le_mailboxes_init(LeDatabase *db)
{
	if (db->has_mailboxes)
		return;
	memset(le_mailbox(db, 0), 0, le_shared->max_sessions * sizeof(LeMailbox));
	for (int i = 0; i < le_shared->max_sessions; i++)
	{
		mailbox_init(le_mailbox(db, i));
		le_mailbox(db, i)->database = (int) (db - le_shared->databases);
	}
	db->has_mailboxes = true;
}

/*
 * Link it, unless it is.  Returns whether there is nobody on the stack for whom the
 * manager was woken, also not this one.
 */
static bool
link_mailbox(LeMailbox *box, bool rung)
{
	LeDatabase *db = &le_shared->databases[box->database];
	uint32 self = le_mailbox_proc(box) + 1;
	uint32 head, unrung;

	if (pg_atomic_exchange_u32(&box->linked, 1) != 0)
		return rung && (pg_atomic_fetch_and_u32(&db->stack, ~LE_STACK_UNRUNG) & LE_STACK_UNRUNG) != 0;
	head = pg_atomic_read_u32(&db->stack);
	do
	{
		box->next = head & ~LE_STACK_UNRUNG;
		unrung = head == 0 ? LE_STACK_UNRUNG : head & LE_STACK_UNRUNG;
	} while (!pg_atomic_compare_exchange_u32(&db->stack, &head, rung ? self : self | unrung));
	return unrung != 0;
}

void
le_ring(LeMailbox *box)
{
	if (link_mailbox(box, true))
		le_wake(le_shared->databases[box->database].worker_proc);
}

void
le_ring_softly(LeMailbox *box)
{
	LeDatabase *db = &le_shared->databases[box->database];

	if (!link_mailbox(box, false))
		return;

	/* the manager sets asleep before it looks at the stack: one of the two sees the other */
	pg_memory_barrier();
	if (pg_atomic_read_u32(&db->asleep) != 0 || pg_atomic_read_u64(&db->queued) != 0)
		le_ring(box);
}

int
le_take_stack(LeDatabase *db, uint32 *procs)
{
	uint32 link = pg_atomic_exchange_u32(&db->stack, 0) & ~LE_STACK_UNRUNG;
	int n = 0;

	while (link != 0)
	{
		LeMailbox *box = le_mailbox(db, link - 1);

		procs[n++] = link - 1;
		link = box->next;

		/* from here on a ring links it again */
		pg_atomic_exchange_u32(&box->linked, 0);
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
le_mailbox_clear(LeMailbox *box)
{
	if (pg_atomic_read_u32(&box->mail) & LE_MAIL_RELEASED)
		le_releases_drop(&box->releases);
	pg_atomic_write_u32(&box->answered, pg_atomic_read_u32(&box->posted));
	pg_atomic_write_u64(&box->undo, 0);
	pg_atomic_write_u32(&box->mail, 0);
	pg_atomic_write_u32(&box->open_xact, 0);
	box->revision = 0;
	pg_write_barrier();
	box->session = 0;
}
