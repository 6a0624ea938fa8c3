/*
 * backend/pending.c
 *		Keeps the releases of a transaction until its commit.
 *
 * A release takes these steps:
 *
 *	1.	le_pending_add() adds it to a list.  The caller has already fenced the token, so that the lock stays
 *		with its holder even if the TTL expires.  (A statement that is alone in its transaction and releases a
 *		lock that is known to be held takes no fence, and its commit does not wait: see backend/granted.h.)
 *	2.	A rollback to a savepoint removes the release from the list (le_pending_sub_aborted); acquiring the
 *		lock again withdraws it (le_pending_cancel).
 *	3.	Before the commit, le_pending_prepare() allocates memory, and waits until the mailbox contains no
 *		earlier releases.  An error at this point still causes a rollback.
 *	4.	After the commit, le_pending_top_ended() mails the list to the manager, see shared/releases.h.  From
 *		then on the releases will take effect even if this process or the manager ends.  They are lost only if
 *		the server stops; then each lock is held until its TTL expires.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/dsm.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#include "backend/durability.h"
#include "backend/newest.h"
#include "backend/pending.h"
#include "backend/session_request.h"
#include "backend/session_mailbox.h"
#include "backend/xactstate.h"
#include "shared/compat.h"
#include "shared/fault.h"
#include "shared/fence_lock.h"
#include "shared/releases.h"
#include "shared/settings.h"
#include "shared/shmem.h"
#include "shared/sleep.h"

/* Period, in milliseconds, at which a waiting commit checks whether a manager is running. */
#define LOOK_MS 100

/* The keys by which an item can be found. */
typedef enum Way
{
	BY_TOKEN, /* token and name: several locks that were acquired together have the same token */
	BY_NAME   /* name and kind, with any token */
} Way;

#define WAYS 2

/*
 * A release that is deferred to the commit or, if "cancel" is set, a repeated acquire that withdraws the
 * older releases of this token and name.
 */
typedef struct LePending
{
	struct LePending *older;       /* next older item of the transaction */
	struct LePending *alike[WAYS]; /* next older item with the same hash, for each way */
	int64 total; /* number of holds of this token and name that are released by this item and older ones */
	SubTransactionId subxact;
	bool cancel;
	bool cancelled; /* withdrawn by a newer item; set only in drop_cancelled() */
	bool unnamed;   /* the holder is this connection, without a named owner */
	LeKind kind;
	Oid role;
	uint32 holds;
	LeTime hold_for_us;
	int64 token;
	int64 lease; /* lease of the releasing client, or 0 */
	uint64 hash[WAYS];
	uint32 name_len;
	char name[FLEXIBLE_ARRAY_MEMBER];
} LePending;

static LePending *pending = NULL; /* newest item; allocated in TopTransactionContext */
static bool any_cancel = false;   /* whether any item may have "cancel" set */

/* indexes of the newest items by their hashes, one for each way */
static LeNewest newest[WAYS];

/* Segment that le_pending_prepare() has created for releases that do not fit into the mailbox. */
static dsm_handle prepared = DSM_HANDLE_INVALID;
static bool is_closed = false; /* le_pending_prepare() was called: no item may be added */

static bool is_async = false; /* all releases are asynchronous */

static bool
is_named(const LePending *p, LeText name)
{
	return p->name_len == name.len && memcmp(p->name, name.data, name.len) == 0;
}

/* Returns the newest item of this token and name, or NULL. */
static LePending *
find_token(int64 token, LeText name)
{
	LePending *p = le_newest(newest[BY_TOKEN], le_newest_hash(name, (uint64) token));

	while (p != NULL && !(p->token == token && is_named(p, name)))
		p = p->alike[BY_TOKEN];
	return p;
}

/*
 * Adds a release or, if holds is 0, a withdrawal of older releases to the list, for the current
 * subtransaction.  Raises an error if the commit has already begun.
 */
static LePending *
pending_new(LeKind kind, int64 token, LeText name, uint32 holds)
{
	LePending *p, *before;

	if (is_closed)
		elog(ERROR, "cannot release a lock while its transaction commits");
	Assert(token > 0 && name.len <= LE_MAX_NAME);

	/* 1. do everything that can fail */
	before = find_token(token, name);
	p = MemoryContextAllocZero(TopTransactionContext, offsetof(LePending, name) + name.len);
	p->subxact = GetCurrentSubTransactionId();
	p->kind = kind;
	p->token = token;
	p->holds = holds;
	p->cancel = holds == 0;
	p->total = holds == 0 ? 0 : (before != NULL ? before->total : 0) + holds;
	p->name_len = name.len;
	if (name.len > 0)
		memcpy(p->name, name.data, name.len);
	p->hash[BY_TOKEN] = le_newest_hash(name, (uint64) token);
	p->hash[BY_NAME] = le_newest_hash(name, (uint64) kind);
	for (int way = 0; way < WAYS; way++)
		le_newest_reserve(&newest[way], p->hash[way]);

	/* 2. link the item */
	for (int way = 0; way < WAYS; way++)
	{
		p->alike[way] = le_newest(newest[way], p->hash[way]);
		le_newest_set(newest[way], p->hash[way], p);
	}
	p->older = pending;
	pending = p;
	return p;
}

void
le_pending_add(int64 token, LeKind kind, LeText name, LeTime hold_for_us, uint32 holds, bool unnamed)
{
	LePending *p;
	LOCKTAG tag PG_USED_FOR_ASSERTS_ONLY = le_fence_tag(token);

	/* the caller has fenced the token until the commit, or the release is asynchronous */
	Assert(le_lock_held_by_me(&tag, ShareLock) || pg_atomic_read_u32(&le_my_mailbox->releasing) != 0);
	Assert(holds > 0 && hold_for_us >= 0);
	p = pending_new(kind, token, name, holds);
	p->role = GetUserId();
	p->hold_for_us = hold_for_us;
	p->unnamed = unnamed;
	le_xact.is_touched = true;
}

bool
le_pending_begin_async(void)
{
	Assert(le_pending_is_free());

	/* at the end of a touched transaction, le_pending_top_ended() runs, and resets "releasing" */
	le_xact.is_touched = true;

	/*
	 * The exchange is a full barrier, because an exiting manager clears "running" before it reads
	 * "releasing".
	 */
	(void) pg_atomic_exchange_u32(&le_my_mailbox->releasing, 1);
	is_async = pg_atomic_read_u32(&le_my_database()->running) != 0;
	if (!is_async)
		pg_atomic_write_u32(&le_my_mailbox->releasing, 0);
	return is_async;
}

void
le_pending_cancel_async(void)
{
	Assert(is_async && pending == NULL);
	is_async = false;
	pg_atomic_write_u32(&le_my_mailbox->releasing, 0);
}

void
le_pending_add_async(int64 token, LeKind kind, LeText name, uint32 holds, int64 lease)
{
	Assert(is_async && pg_atomic_read_u32(&le_my_mailbox->releasing) != 0);
	le_pending_add(token, kind, name, 0, holds, false);
	pending->lease = lease;
}

bool
le_pending_is_free(void)
{
	return pending == NULL && le_mailbox_is_quiet();
}

void
le_pending_cancel(int64 token, LeText name)
{
	const LePending *p = find_token(token, name);

	if (p == NULL || p->total == 0)
		return;
	(void) pending_new(p->kind, token, name, 0);
	any_cancel = true;
}

void
le_pending_cancel_all(const LeCommand *cmd, int64 token)
{
	for (uint32 i = 0; i < le_command_names(cmd); i++)
		le_pending_cancel(token, le_command_name(cmd, i));
}

int64
le_pending_count(int64 token, LeText name)
{
	const LePending *p = find_token(token, name);

	return p != NULL ? p->total : 0;
}

int64
le_pending_own(LeKind kind, LeText name)
{
	const LePending *p = le_newest(newest[BY_NAME], le_newest_hash(name, (uint64) kind));

	/* skip a token whose releases were all withdrawn */
	for (; p != NULL; p = p->alike[BY_NAME])
	{
		if (!p->cancel && p->unnamed && p->kind == kind && is_named(p, name) &&
			le_pending_count(p->token, name) > 0)
			return p->token;
	}
	return 0;
}

/* --- before the commit --- */

/* Returns the next older item of the same token and name, or NULL. */
static LePending *
find_older(const LePending *p)
{
	LePending *older = p->alike[BY_TOKEN];

	while (older != NULL && !(older->token == p->token && is_named(older, (LeText){p->name, p->name_len})))
		older = older->alike[BY_TOKEN];
	return older;
}

/*
 * Removes the releases that an acquire has withdrawn, and the items that withdrew them.  Scans the list from
 * the newest item to the oldest, and removes each cancel item with all older items of its token and name.
 */
static void
drop_cancelled(void)
{
	LePending **at = &pending;

	while (any_cancel && *at != NULL)
	{
		LePending *p = *at;
		LePending *next = find_older(p);

		if ((p->cancel || p->cancelled) && next != NULL)
			next->cancelled = true;
		if (p->cancel || p->cancelled)
			*at = p->older;
		else
			at = &p->older;
	}
	any_cancel = false;
}

static Size
pending_size(void)
{
	Size size = 0;

	for (LePending *p = pending; p != NULL; p = p->older)
		size += le_release_size(p->name_len);
	return size;
}

/* Writes the releases in the format of shared/releases.h. */
static void
fill(char *to)
{
	char *start PG_USED_FOR_ASSERTS_ONLY = to;

	for (LePending *p = pending; p != NULL; p = p->older)
	{
		LeReleaseItem *item = (LeReleaseItem *) to;

		Assert(!p->cancel && p->holds > 0 && p->token > 0);
		memset(item, 0, sizeof(*item));
		item->token = p->token;
		item->lease = p->lease;
		item->hold_for_us = p->hold_for_us;
		item->name_len = (uint16) p->name_len;
		item->kind = (uint8) p->kind;
		item->role = p->role;
		item->holds = p->holds;
		memcpy(to + sizeof(*item), p->name, p->name_len);
		to += le_release_size(p->name_len);
	}
	Assert(to == start + pending_size());
}

static bool
is_posted(void)
{
	return (pg_atomic_read_u32(&le_my_mailbox->mail) & LE_MAIL_RELEASED) != 0;
}

void
le_pending_prepare(void)
{
	dsm_segment *segment;
	Size size;

	if (pending == NULL)
		return;

	/* an asynchronous release of an earlier commit may still be in the mailbox */
	if (!is_async && le_my_mailbox != NULL && is_posted())
		le_mailbox_await_quiet();
	is_closed = true;
	drop_cancelled();
	size = pending_size();
	Assert(prepared == DSM_HANDLE_INVALID && !any_cancel);
	if (size <= LE_RELEASES_SIZE)
		return;

	/*
	 * Pin the segment, so that it outlives this process.  le_pending_top_ended() or le_releases_drop() frees
	 * it.
	 */
	segment = dsm_create(size, 0);
	fill(dsm_segment_address(segment));
	prepared = dsm_segment_handle(segment);
	dsm_pin_segment(segment);
	dsm_detach(segment);
}

/* --- after the commit --- */

/*
 * Puts the releases into the mailbox.  le_pending_prepare() has ensured that the mailbox contains no other
 * releases.  Must not fail.
 */
static void
post(void)
{
	LeReleases *releases = &le_my_mailbox->releases;

	Assert(is_closed && !is_posted());
	Assert((prepared != DSM_HANDLE_INVALID) == (pending_size() > LE_RELEASES_SIZE));
	Assert(is_async == (pg_atomic_read_u32(&le_my_mailbox->releasing) != 0));
	Assert(!is_async || prepared == DSM_HANDLE_INVALID);

	/* fill in the releases */
	le_my_mailbox->released_lsn = 0;
	releases->xact = le_xact_number();
	releases->len = (uint32) pending_size();
	releases->need_standby = le_needs_standby();
	releases->durable_release = le_durable_release;
	releases->async = is_async;
	releases->done = 0;
	releases->lsn = 0;
	releases->segment = prepared;
	if (prepared == DSM_HANDLE_INVALID)
		fill(releases->data);
	prepared = DSM_HANDLE_INVALID;
	pg_atomic_fetch_and_u32(&le_my_mailbox->note, ~(LE_NOTE_UNREAD | LE_NOTE_GONE));

	/* raise the mail flag, and ring */
	LE_FAULT_NOFAIL("release-before-post");
	pg_write_barrier();
	pg_atomic_fetch_or_u32(&le_my_mailbox->mail, LE_MAIL_RELEASED);
	if (is_async)
		le_ring_softly(le_my_mailbox);
	else
		le_ring(le_my_mailbox);
	LE_FAULT_NOFAIL("release-posted");
}

/*
 * If no process will read the mail, withdraws the releases from the mailbox, and returns true.  This is the
 * case if the last manager has exited because the extension no longer exists, and no manager is starting.
 */
static bool
withdraw_if_gone(void)
{
	LeDatabase *db = le_my_database();
	bool gone = false;

	if (pg_atomic_read_u32(&db->running) != 0)
		return false;
	LWLockAcquire(le_shared->lock, LW_EXCLUSIVE);
	if (db->state == LE_DB_IDLE && db->exit == LE_EXIT_NO_EXTENSION && is_posted())
	{
		le_releases_drop(&le_my_mailbox->releases);
		pg_atomic_fetch_and_u32(&le_my_mailbox->mail, ~LE_MAIL_RELEASED);
		gone = true;
	}
	LWLockRelease(le_shared->lock);
	return gone;
}

static void
warn_gone(void)
{
	le_warn_committed(
		ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
		"extension lock_election was dropped before the locks of this transaction were released", NULL, NULL);
}

static void
warn_late(const char *detail)
{
	le_warn_committed(ERRCODE_WARNING,
					  "the transaction is committed, but the locks that it releases may still be held",
					  detail,
					  "The manager releases them as soon as it can, even after this session has ended.  If "
					  "the server stops before that, they are held until their TTL expires.");
}

/*
 * Waits until the manager has applied the releases.  Must neither fail nor be interrupted, because the
 * transaction has committed.  So the wait for a manager that is not running or cannot write is limited; a
 * later manager finds the mail.  The wait ends when
 *
 *	1.	the releases have been applied: the commit then waits until they are durable;
 *	2.	the manager reports that it cannot write: a warning states the reason;
 *	3.	the extension no longer exists: a warning says so;
 *	4.	LE_RELEASE_TIMEOUT has passed: a warning says so.
 *
 * Returns the LSN that must become durable, or 0.
 */
static uint64
wait_for_manager(void)
{
	LeTime give_up_at = le_clock() + LE_RELEASE_TIMEOUT;
	uint64 lsn = 0;

	while (is_posted())
	{
		/* 2. the manager cannot write */
		if (pg_atomic_read_u32(&le_my_mailbox->note) & LE_NOTE_UNREAD)
		{
			char message[LE_MESSAGE_SIZE];

			pg_read_barrier();
			strlcpy(message, le_my_mailbox->message, sizeof(message));
			warn_late(message);
			break;
		}

		/* 3. the extension no longer exists */
		if (withdraw_if_gone())
		{
			warn_gone();
			break;
		}

		/* 4. the time is up */
		if (le_clock() >= give_up_at)
		{
			warn_late("The lock_election manager did not answer within 5 seconds.");
			break;
		}

		/* otherwise sleep */
		le_want_manager(le_my_database());
		if (WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_POSTMASTER_DEATH, LOOK_MS,
					  le_wait_event(LE_WAIT_COMMIT)) &
			WL_POSTMASTER_DEATH)
			break;
		ResetLatch(MyLatch);
	}
	if (pg_atomic_read_u32(&le_my_mailbox->note) & LE_NOTE_GONE)
		warn_gone();

	/* 1. the releases have been applied */
	if (!is_posted())
	{
		pg_read_barrier();
		lsn = le_my_mailbox->released_lsn;
	}
	SetLatch(MyLatch);
	return lsn;
}

uint64_t
le_pending_top_ended(bool is_commit)
{
	uint64 lsn = 0;

	if (is_commit && pending != NULL && le_my_mailbox != NULL)
	{
		post();
		if (!is_async)
			lsn = wait_for_manager();
	}
	if (le_my_mailbox != NULL)
	{
		pg_write_barrier();
		pg_atomic_write_u32(&le_my_mailbox->releasing, 0);
	}
	if (prepared != DSM_HANDLE_INVALID)
		dsm_unpin_segment(prepared);
	prepared = DSM_HANDLE_INVALID;
	pending = NULL;
	newest[BY_TOKEN] = newest[BY_NAME] = NULL;
	any_cancel = is_closed = is_async = false;
	return lsn;
}

void
le_pending_sub_aborted(SubTransactionId subxact)
{
	Assert(subxact > TopSubTransactionId);
	for (; pending != NULL && pending->subxact >= subxact; pending = pending->older)
	{
		for (int way = 0; way < WAYS; way++)
		{
			Assert(le_newest(newest[way], pending->hash[way]) == pending);
			le_newest_set(newest[way], pending->hash[way], pending->alike[way]);
		}
	}
}
