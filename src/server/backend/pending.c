/*
 * backend/pending.c
 *		Releases that wait for the commit of their transaction.
 *
 * A release takes these steps:
 *
 *	1.	le_pending_add() lists it.  The caller has fenced the token before: not even
 *		the TTL hands the lock on.  (A statement that is alone in its transaction and
 *		releases a lock that it has proved to hold takes no fence, and its commit
 *		waits for nothing: backend/granted.h.)
 *	2.	A rollback to a savepoint takes it off the list (le_pending_sub_aborted); so
 *		does acquiring again (le_pending_cancel).
 *	3.	le_pending_prepare(), before the commit: memory, and a mailbox without
 *		earlier releases.  An error here still rolls back.
 *	4.	le_pending_top_ended(), after the commit: the manager gets the list by mail,
 *		see shared/releases.h.  From then on the releases are made, whatever becomes
 *		of this process and of the manager; only a stop of the server loses them, and
 *		then each lock is held until its TTL ends.
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

/* A commit looks this often whether there is a manager. */
#define LOOK_MS 100

/* Each item is found in two ways. */
typedef enum Way
{
	BY_TOKEN, /* and name: several locks that were acquired at once have one token */
	BY_NAME   /* and kind, whatever the token */
} Way;

#define WAYS 2

/*
 * A release deferred to the commit or, if cancel is set, a re-acquire that
 * takes back the older releases of this token and name.
 */
typedef struct LePending
{
	struct LePending *older;       /* of the transaction */
	struct LePending *alike[WAYS]; /* the next older item that has the same hash */
	int64 total;                   /* holds of the token and name that are to be released, as of this item */
	SubTransactionId subxact;
	bool cancel;
	bool cancelled; /* by a newer item; known in drop_cancelled() alone */
	bool unnamed;   /* an unnamed holder of this connection */
	LeKind kind;
	Oid role;
	uint32 holds;
	LeTime hold_for_us;
	int64 token;
	int64 lease; /* that of the client which releases; 0 */
	uint64 hash[WAYS];
	uint32 name_len;
	char name[FLEXIBLE_ARRAY_MEMBER];
} LePending;

static LePending *pending = NULL; /* newest item; in TopTransactionContext */
static bool any_cancel = false;   /* one of them may have cancel set */

/* by the hash of each way */
static LeNewest newest[WAYS];

/* The segment that le_pending_prepare() has made for more releases than a mailbox has room for. */
static dsm_handle prepared = DSM_HANDLE_INVALID;
static bool is_closed = false; /* le_pending_prepare() has been called: nothing may be added */

static bool is_async = false; /* all releases are asynchronous */

static bool
is_named(const LePending *p, LeText name)
{
	return p->name_len == name.len && memcmp(p->name, name.data, name.len) == 0;
}

/* The newest item of this token and name; NULL: none. */
static LePending *
find_token(int64 token, LeText name)
{
	LePending *p = le_newest(newest[BY_TOKEN], le_newest_hash(name, (uint64) token));

	while (p != NULL && !(p->token == token && is_named(p, name)))
		p = p->alike[BY_TOKEN];
	return p;
}

/* A new item of the list, of the current subtransaction; an error once the commit has begun. */
static LePending *
pending_new(LeKind kind, int64 token, LeText name, uint32 holds)
{
	LePending *p, *before;

	if (is_closed)
		elog(ERROR, "cannot release a lock while its transaction commits");
	Assert(token > 0 && name.len <= LE_MAX_NAME);

	/* 1. what may fail */
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

	/* 2. link it */
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

	/* step 1 above: nobody takes the lock away before the commit, or its end is on its way already */
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

	/* however the transaction ends, le_pending_top_ended() ends this */
	le_xact.is_touched = true;

	/* a full barrier: the manager that leaves clears running before it looks at releasing */
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

	/* a token whose releases were taken back counts none; those of its releases that were not are newer */
	for (; p != NULL; p = p->alike[BY_NAME])
	{
		if (!p->cancel && p->unnamed && p->kind == kind && is_named(p, name) &&
			le_pending_count(p->token, name) > 0)
			return p->token;
	}
	return 0;
}

/* --- before the commit --- */

/* The next older item of the same token and name; NULL: none. */
static LePending *
find_older(const LePending *p)
{
	LePending *older = p->alike[BY_TOKEN];

	while (older != NULL && !(older->token == p->token && is_named(older, (LeText){p->name, p->name_len})))
		older = older->alike[BY_TOKEN];
	return older;
}

/*
 * Take off the releases that an acquire has taken back, and the items that did it.
 * Newest first: whatever is older than a cancel, and of its token and name, goes.
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

/* Writes the releases as shared/releases.h lays them out. */
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

	/* a segment that outlives this process, and belongs to the holder of its handle */
	segment = dsm_create(size, 0);
	fill(dsm_segment_address(segment));
	prepared = dsm_segment_handle(segment);
	dsm_pin_segment(segment);
	dsm_detach(segment);
}

/* --- after it --- */

/* The releases go into the mailbox, which le_pending_prepare() has found empty.  May not fail. */
static void
post(void)
{
	LeReleases *releases = &le_my_mailbox->releases;

	Assert(is_closed && !is_posted());
	Assert((prepared != DSM_HANDLE_INVALID) == (pending_size() > LE_RELEASES_SIZE));
	Assert(is_async == (pg_atomic_read_u32(&le_my_mailbox->releasing) != 0));
	Assert(!is_async || prepared == DSM_HANDLE_INVALID);
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
 * Take the releases back if the last manager has left because there is no extension
 * any more.  While no manager is starting, nobody else looks at the mail.
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
	le_warn_committed(
		ERRCODE_WARNING, "the transaction is committed, but the locks that it releases may still be held",
		detail,
		"The manager releases them as soon as it can, also after the end of this session.  If the "
		"server stops before, they are held until their TTL ends.");
}

/*
 * Wait until the manager has applied the releases.  May not fail, nor be interrupted:
 * the transaction is committed.  So a manager that is away, or cannot write, is not
 * waited for without end; it finds the mail when it can.  The wait ends when
 *
 *	1.	the releases are made: the commit goes on to wait for what they rest on;
 *	2.	the manager says that it cannot write: a warning with its reason;
 *	3.	there is no extension any more: a warning;
 *	4.	LE_RELEASE_TIMEOUT is over: a warning.
 *
 * Returns the LSN that the releases rest on; 0: none.
 */
static uint64
wait_for_manager(void)
{
	LeTime give_up_at = le_clock() + LE_RELEASE_TIMEOUT;
	uint64 lsn = 0;

	while (is_posted())
	{
		/* 2. */
		if (pg_atomic_read_u32(&le_my_mailbox->note) & LE_NOTE_UNREAD)
		{
			char message[LE_MESSAGE_SIZE];

			pg_read_barrier();
			strlcpy(message, le_my_mailbox->message, sizeof(message));
			warn_late(message);
			break;
		}

		/* 3. */
		if (withdraw_if_gone())
		{
			warn_gone();
			break;
		}

		/* 4. */
		if (le_clock() >= give_up_at)
		{
			warn_late("The lock_election manager did not answer within 5 seconds.");
			break;
		}

		/* none of them yet: sleep */
		le_want_manager(le_my_database());
		if (WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_POSTMASTER_DEATH, LOOK_MS,
					  le_wait_event(LE_WAIT_COMMIT)) &
			WL_POSTMASTER_DEATH)
			break;
		ResetLatch(MyLatch);
	}
	if (pg_atomic_read_u32(&le_my_mailbox->note) & LE_NOTE_GONE)
		warn_gone();

	/* 1. */
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
