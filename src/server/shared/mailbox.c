/*
 * shared/mailbox.c
 *		Implements the mailboxes of sessions, and the stacks of linked mailboxes.
 *
 * shared/shmem.h has the protocol.  The backend's side is backend/session_request.c,
 * session_mailbox.c and pending.c, the manager's is manager/take.c and manager/batch.c.
 */
#include "postgres.h"

#include "shared/releases.h"
#include "shared/shmem.h"
#include "shared/sleep.h"

/* Initializes the atomic members of a mailbox; all other members are zero. */
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

void
le_mailboxes_init(LeDatabase *db)
{
	Assert(LWLockHeldByMeInMode(le_shared->lock, LW_EXCLUSIVE));
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

/* Whether a ring should wake up the manager. */
typedef enum Ring
{
	RING_WAKES,
	RING_IS_SILENT
} Ring;

/* Whether the manager must still be woken up for the mailboxes on the stack. */
typedef enum Wake
{
	WAKE_NEEDED,
	WAKE_NOT_NEEDED
} Wake;

/*
 * Links a mailbox into its database's stack, unless it is already linked.  RING_WAKES also clears
 * LE_STACK_SILENT, and the caller must then wake up the manager if the result is WAKE_NEEDED.  With
 * RING_IS_SILENT, the caller decides whether to wake up the manager.
 */
static Wake
link_mailbox(LeMailbox *box, Ring ring)
{
	LeDatabase *db = &le_shared->databases[box->database];
	uint32 self = le_mailbox_proc(box) + 1;
	uint32 head, silent;

	Assert(db->has_mailboxes && (self & LE_STACK_SILENT) == 0);

	/* 1. if the mailbox is already linked, change at most the flag */
	if (pg_atomic_exchange_u32(&box->linked, 1) != 0)
	{
		if (ring == RING_IS_SILENT)
			return WAKE_NOT_NEEDED;
		silent = pg_atomic_fetch_and_u32(&db->stack, ~LE_STACK_SILENT) & LE_STACK_SILENT;
		return silent != 0 ? WAKE_NEEDED : WAKE_NOT_NEEDED;
	}

	/* 2. push the mailbox; if the stack was empty, the manager has not been woken up for this stack yet */
	head = pg_atomic_read_u32(&db->stack);
	do
	{
		box->next = head & ~LE_STACK_SILENT;
		silent = head == 0 ? LE_STACK_SILENT : head & LE_STACK_SILENT;
	} while (!pg_atomic_compare_exchange_u32(&db->stack, &head, ring == RING_WAKES ? self : self | silent));
	return silent != 0 ? WAKE_NEEDED : WAKE_NOT_NEEDED;
}

void
le_ring(LeMailbox *box)
{
	if (link_mailbox(box, RING_WAKES) == WAKE_NEEDED)
		le_wake(le_shared->databases[box->database].manager_proc);
}

void
le_ring_softly(LeMailbox *box)
{
	LeDatabase *db = &le_shared->databases[box->database];

	if (link_mailbox(box, RING_IS_SILENT) == WAKE_NOT_NEEDED)
		return;

	/*
	 * The manager sets "asleep" before it checks the stack, so at least one of the two processes sees what
	 * the other has stored.
	 */
	pg_memory_barrier();
	if (pg_atomic_read_u32(&db->asleep) != 0 || pg_atomic_read_u64(&db->queued) != 0)
		le_ring(box);
}

int
le_take_stack(LeDatabase *db, uint32 *procs)
{
	uint32 link = pg_atomic_exchange_u32(&db->stack, 0) & ~LE_STACK_SILENT;
	uint32 oldest PG_USED_FOR_ASSERTS_ONLY = 0;
	int n = 0;

	Assert(db->has_mailboxes);

	/* 1. unlink all mailboxes, newest first */
	while (link != 0)
	{
		LeMailbox *box = le_mailbox(db, link - 1);

		Assert(n < le_shared->max_sessions && link <= (uint32) le_shared->max_sessions);
		oldest = link - 1;
		procs[n++] = link - 1;
		link = box->next;

		/* from here on, a ring links the mailbox again */
		pg_atomic_exchange_u32(&box->linked, 0);
	}

	/* 2. reverse the order */
	for (int i = 0; i < n / 2; i++)
	{
		uint32 swap = procs[i];

		procs[i] = procs[n - 1 - i];
		procs[n - 1 - i] = swap;
	}
	Assert(n == 0 || procs[0] == oldest);
	return n;
}

void
le_mailbox_clear(LeMailbox *box)
{
	/* a session ends only after its last transaction */
	Assert(box->session != 0 && pg_atomic_read_u32(&box->releasing) == 0);
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
