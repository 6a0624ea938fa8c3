/*
 * backend/xact.c
 *		What transactions do to locks.
 *
 * An acquire takes effect at once and is undone with its (sub)transaction:
 * the manager has listed it, and is told in the mailbox from which
 * subtransaction on everything is void.
 *
 * A release in a transaction is remembered here and sent after the commit,
 * when the transaction's own locks are gone, so that the next holder cannot
 * see data as they were before.  Until then the token's fence is held, which
 * keeps even the TTL from handing the lock on.
 *
 * All of it happens in a resource-release callback: the only place that comes
 * after the locks are released.  Nothing in there may fail.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "backend/fence.h"
#include "backend/request.h"
#include "backend/session.h"
#include "backend/xact.h"
#include "shared/fault.h"
#include "shared/shmem.h"

/* A release that waits for the commit, or (token 0 < cancels) its taking back. */
typedef struct LePending
{
	struct LePending *older;
	SubTransactionId subxact;
	bool cancel;  /* of all older ones of this token and name */
	bool unnamed; /* an unnamed holder of this connection */
	LeKind kind;
	Oid role;
	uint32 holds;
	LeTime hold_for;
	int64 token;
	uint32 name_len;
	char name[FLEXIBLE_ARRAY_MEMBER];
} LePending;

static uint32 xact_number = 0;
static bool xact_is_open = false;
static bool xact_is_touched = false;
static bool xact_has_fence = false;
static LePending *pending = NULL; /* in TopTransactionContext */
static bool any_cancel = false;   /* there may be one among them */
static LePending *unsent = NULL;  /* of commits; in TopMemoryContext */
static SubTransactionId aborting = InvalidSubTransactionId;

uint32
le_xact_number(void)
{
	return xact_is_open ? xact_number : xact_number + 1;
}

uint32
le_xact_open(void)
{
	LeRequestSlot *slot = le_my_slot;

	if (!xact_is_open)
	{
		/* 0 means none */
		if (++xact_number == 0)
			++xact_number;
		xact_is_open = true;
		pg_atomic_write_u32(&slot->open_xact, xact_number);
	}
	return xact_number;
}

void
le_xact_touched(void)
{
	xact_is_touched = true;
}

static LeDatabase *
my_database(void)
{
	return &le_shared->databases[le_my_slot->database];
}

void
le_xact_fencing(void)
{
	if (!xact_has_fence)
		pg_atomic_fetch_add_u32(&my_database()->fences, 1);
	xact_has_fence = true;
	xact_is_touched = true;
}

/* --- releases that wait for the commit --- */

static LePending *
pending_new(int64 token, LeText name)
{
	LePending *p = MemoryContextAllocZero(TopTransactionContext, offsetof(LePending, name) + name.len);

	p->subxact = GetCurrentSubTransactionId();
	p->token = token;
	p->name_len = name.len;
	if (name.len > 0)
		memcpy(p->name, name.data, name.len);
	p->older = pending;
	pending = p;
	return p;
}

void
le_pending_add(int64 token, LeKind kind, LeText name, LeTime hold_for, uint32 holds, bool unnamed)
{
	LePending *p = pending_new(token, name);

	p->kind = kind;
	p->role = GetUserId();
	p->hold_for = hold_for;
	p->holds = holds;
	p->unnamed = unnamed;
	xact_is_touched = true;
}

void
le_pending_cancel(int64 token, LeText name)
{
	if (le_pending_count(token, name) == 0)
		return;
	pending_new(token, name)->cancel = true;
	any_cancel = true;
}

/* Several locks that were acquired at once have one token. */
static bool
is_of(const LePending *p, int64 token, LeText name)
{
	return p->token == token && p->name_len == name.len && memcmp(p->name, name.data, name.len) == 0;
}

static bool
is_cancelled(const LePending *release)
{
	LeText name = {release->name, release->name_len};

	/* each asks for all newer ones: not for nothing */
	for (LePending *p = pending; any_cancel && p != release; p = p->older)
	{
		if (p->cancel && is_of(p, release->token, name))
			return true;
	}
	return false;
}

int64
le_pending_count(int64 token, LeText name)
{
	int64 n = 0;

	for (LePending *p = pending; p != NULL; p = p->older)
	{
		if (is_of(p, token, name) && !p->cancel && !is_cancelled(p))
			n += p->holds;
	}
	return n;
}

bool
le_pending_any(int64 token)
{
	for (LePending *p = pending; p != NULL; p = p->older)
	{
		if (p->token == token)
			return true;
	}
	return false;
}

int64
le_pending_own(LeKind kind, LeText name)
{
	for (LePending *p = pending; p != NULL; p = p->older)
	{
		if (!p->cancel && p->unnamed && p->kind == kind && p->name_len == name.len &&
			memcmp(p->name, name.data, name.len) == 0 && !is_cancelled(p))
			return p->token;
	}
	return 0;
}

static void
drop_cancelled(void)
{
	for (LePending **p = &pending; *p != NULL;)
	{
		if (!(*p)->cancel && is_cancelled(*p))
			*p = (*p)->older;
		else
			p = &(*p)->older;
	}
}

/* As many to a request as fit; returns what is left. */
static LePending *
fill_payload(LePending *p, char *payload, uint32 *len)
{
	*len = 0;
	for (; p != NULL; p = p->older)
	{
		uint32 size = MAXALIGN(sizeof(LeReleaseItem) + p->name_len);
		LeReleaseItem *item = (LeReleaseItem *) (payload + *len);

		if (p->cancel)
			continue;
		if (*len + size > LE_PAYLOAD_SIZE)
			break;
		memset(item, 0, sizeof(*item));
		item->token = p->token;
		item->hold_for = p->hold_for;
		item->name_len = (uint16_t) p->name_len;
		item->kind = (uint8_t) p->kind;
		item->role = p->role;
		item->holds = p->holds;
		memcpy((char *) item + sizeof(LeReleaseItem), p->name, p->name_len);
		*len += size;
	}
	return p;
}

/*
 * The manager is away, and only one request can be left to it.  The rest goes
 * before this session's next one.  Without memory they are held to their TTL.
 */
static void
keep_unsent(const LePending *p)
{
	for (; p != NULL; p = p->older)
	{
		Size size = offsetof(LePending, name) + p->name_len;
		LePending *copy;

		if (p->cancel)
			continue;
		copy = MemoryContextAllocExtended(TopMemoryContext, size, MCXT_ALLOC_NO_OOM);
		if (copy == NULL)
			return;
		memcpy(copy, p, size);
		copy->older = unsent;
		unsent = copy;
	}
}

bool
le_unsent_take(char *payload, uint32 *len)
{
	LePending *rest;

	if (unsent == NULL)
		return false;
	rest = fill_payload(unsent, payload, len);
	while (unsent != rest)
	{
		LePending *taken = unsent;

		unsent = taken->older;
		pfree(taken);
	}
	return true;
}

static void
send_releases(void)
{
	static char payload[LE_PAYLOAD_SIZE] pg_attribute_aligned(8);
	LeTime give_up = le_clock() + LE_RELEASE_TIMEOUT;
	LePending *rest;

	drop_cancelled();
	for (LePending *p = pending; p != NULL; p = rest)
	{
		uint32 len;

		rest = fill_payload(p, payload, &len);
		if (len > 0 && !le_request_release_many(payload, len, give_up))
		{
			keep_unsent(p);
			return;
		}
	}
}

/* --- ends --- */

static void
top_ended(bool is_commit)
{
	bool was_open = xact_is_open, had_fence = xact_has_fence;
	LePending *had_pending = pending;

	if (!was_open && !had_fence && had_pending == NULL && !xact_is_touched)
		return;

	LE_FAULT_NOFAIL("xact-locks-released");

	/* the callback comes once for every resource owner: only the first counts */
	xact_is_open = false;
	xact_is_touched = false;
	xact_has_fence = false;
	aborting = InvalidSubTransactionId;

	if (le_my_slot != NULL)
	{
		if (was_open)
		{
			if (!is_commit)
				le_mail_undo(xact_number, TopSubTransactionId);
			pg_atomic_write_u32(&le_my_slot->open_xact, 0);
		}
		if (had_fence)
			pg_atomic_fetch_sub_u32(&my_database()->fences, 1);
		if (is_commit && had_pending != NULL)
			send_releases();
		LE_FAULT_NOFAIL("xact-before-unfence");
		if (had_fence)
			le_mail(LE_MAIL_FENCE_ENDED);
		LE_FAULT_NOFAIL("xact-told");
	}
	pending = NULL;
	any_cancel = false;
	le_fence_top_ended();
}

static void
sub_aborted(void)
{
	SubTransactionId subxact = aborting;

	aborting = InvalidSubTransactionId;
	while (pending != NULL && pending->subxact >= subxact)
		pending = pending->older;
	le_fence_sub_aborted(subxact);
	if (le_my_slot == NULL)
		return;
	LE_FAULT_NOFAIL("subxact-before-undo");
	if (xact_is_open)
		le_mail_undo(xact_number, subxact);
	LE_FAULT_NOFAIL("subxact-undone");
	if (xact_has_fence)
		le_mail(LE_MAIL_FENCE_ENDED);
}

static void
resources_released(ResourceReleasePhase phase, bool is_commit, bool is_top_level, void *arg)
{
	if (phase == RESOURCE_RELEASE_BEFORE_LOCKS && is_top_level && xact_is_touched)
		LE_FAULT_NOFAIL("xact-before-locks");
	if (phase != RESOURCE_RELEASE_AFTER_LOCKS)
		return;
	if (is_top_level)
		top_ended(is_commit);
	else if (aborting != InvalidSubTransactionId)
		sub_aborted();
}

static void
sub_xact_event(SubXactEvent event, SubTransactionId subxact, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
		aborting = subxact;
	else if (event == SUBXACT_EVENT_COMMIT_SUB)
	{
		/* from now on they stand and fall with the parent */
		for (LePending *p = pending; p != NULL && p->subxact >= subxact; p = p->older)
			p->subxact = parent;
		le_fence_sub_committed(subxact, parent);
	}
}

static void
xact_event(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PRE_COMMIT && xact_is_touched)
		LE_FAULT("xact-before-commit");
	if (event == XACT_EVENT_PRE_PREPARE && xact_is_touched)
		ereport(
			ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg(
				 "cannot PREPARE a transaction that has acquired, released or fenced a lock or an election"),
			 errhint("Acquire and release locks outside of two-phase transactions.")));
}

void
le_xact_init(void)
{
	RegisterXactCallback(xact_event, NULL);
	RegisterSubXactCallback(sub_xact_event, NULL);
	RegisterResourceReleaseCallback(resources_released, NULL);
}
