/*
 * manager/deadlock.c
 *		Cycles of connections that wait for each other.
 *
 * A connection that has waited for deadlock_timeout, and each second from then
 * on, asks the manager to look whether it waits for itself.  The manager knows
 * who waits for which lock, and asks PostgreSQL about those who wait there:
 *
 *	-	A request waits for a holder that only one connection can end: one that
 *		is bound to its connection, was acquired in a transaction that is still
 *		open, or is fenced by one.  A named owner can release from anywhere,
 *		and what has a TTL ends by itself: no edge.  Nor is there one to those
 *		who have permits, where another may come back just as well.  Who waits
 *		ahead in the queue waits for the same holders, unless it waits for other
 *		locks as well: then it may keep this one from being granted, and there is
 *		an edge to it.
 *	-	A backend that has waited for a lock of PostgreSQL for deadlock_timeout,
 *		time enough for PostgreSQL's own detector, waits for those whom
 *		pg_blocking_pids() tells.
 *
 * Who is part of a cycle can do nothing to leave it; so it is still there when
 * it is looked for a second time, and what was put together from edges that
 * have never been at the same time is not.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/array.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "manager/deadlock.h"
#include "shared/compat.h"
#include "shared/fence.h"
#include "shared/shmem.h"
#include "shared/words.h"

/* A breadth-first search; arrays by proc number. */
typedef struct Search
{
	const LeCore *core;
	uint32 start;
	uint32 *found; /* in the order in which they were found */
	int nfound;
	int *waiter; /* who was seen to wait for it; -1: not found */
	int last;    /* of the cycle, it waits for start; -1 */
} Search;

static Search s;

static void
search_init(uint32 start)
{
	if (s.found == NULL)
	{
		s.found = MemoryContextAlloc(TopMemoryContext, le_shared->max_slots * sizeof(uint32));
		s.waiter = MemoryContextAlloc(TopMemoryContext, le_shared->max_slots * sizeof(int));
	}
	memset(s.waiter, -1, le_shared->max_slots * sizeof(int));
	s.start = start;
	s.last = -1;
	s.found[0] = start;
	s.nfound = 1;
}

static void
add_edge(uint32 from, uint32 to)
{
	if (to >= (uint32) le_shared->max_slots)
		return; /* a prepared transaction */
	if (to == s.start)
		s.last = (int) from;
	else if (s.waiter[to] < 0)
	{
		s.waiter[to] = (int) from;
		s.found[s.nfound++] = to;
	}
}

/* What the blocked call of this backend waits for; NULL: it does not wait. */
static LeEntry *
waits_for(uint32 proc)
{
	LeRequestSlot *slot = &le_shared->slots[proc];

	/* its wait may have ended, only that has not been read yet */
	if (slot->session == 0 || pg_atomic_read_u32(&slot->posted) == pg_atomic_read_u32(&slot->answered) ||
		pg_atomic_read_u64(&slot->undo) != 0 || (pg_atomic_read_u32(&slot->mail) & LE_MAIL_SESSION_END) != 0)
		return NULL;
	return le_core_waiting_on(s.core, slot->session, proc);
}

static void
add_holder(uint32 from, const LeEntry *holder)
{
	LeDatabase *db = &le_shared->databases[le_shared->slots[from].database];

	if (holder->owner == NULL && !holder->lapsed)
	{
		if (holder->ttl == LE_TTL_BOUND && holder->lease == NULL)
			add_edge(from, holder->sessno);
		for (const LeHold *hold = holder->holds; hold != NULL; hold = hold->next)
		{
			uint32 proc = le_session_proc(hold->session);
			LeRequestSlot *slot = &le_shared->slots[proc];

			if (slot->session == hold->session && pg_atomic_read_u32(&slot->open_xact) == hold->xact)
				add_edge(from, proc);
		}
	}
	if (pg_atomic_read_u32(&db->fences) != 0)
	{
		List *procs = le_fence_procs(holder->token, NULL, 0);
		ListCell *lc;

		foreach (lc, procs)
			add_edge(from, (uint32) lfirst_int(lc));
		list_free(procs);
	}
}

/* What this entry waits for in its lock. */
static void
add_edges(uint32 from, const LeEntry *entry)
{
	const LeLock *lock = entry->lock;

	for (const LeSlot *slot = lock->slots; slot != NULL && lock->permits <= 1; slot = slot->next)
	{
		if (slot->holder != NULL)
			add_holder(from, slot->holder);
	}

	/* the nearest one, which waits for those before it */
	for (const LeLink *link = entry->queue_link.prev; link != &lock->queue; link = link->prev)
	{
		const LeEntry *ahead = le_container(link, LeEntry, queue_link);

		if (!ahead->grouped)
			continue;
		add_edge(from, ahead->group->members->waiter_sessno);
		break;
	}
}

/* The next of several locks that a blocked call waits for. */
static const LeEntry *
next_member(const LeEntry *entry)
{
	return entry->grouped ? entry->group_next : NULL;
}

static bool
waits_in_postgres(uint32 number)
{
	PGPROC *proc = le_proc(number);
	TimestampTz since = (TimestampTz) pg_atomic_read_u64(&proc->waitStart);

	if (proc->pid == 0)
		return false;
	if (since == 0)
		return proc->lockGroupLeader == proc; /* perhaps one of its workers */
	return GetCurrentTimestamp() - since >= DeadlockTimeout * INT64CONST(1000);
}

static void
add_blockers(uint32 from)
{
	ArrayType *pids =
		DatumGetArrayTypeP(DirectFunctionCall1(pg_blocking_pids, Int32GetDatum(le_proc(from)->pid)));
	int n = ArrayGetNItems(ARR_NDIM(pids), ARR_DIMS(pids));

	for (int i = 0; i < n; i++)
	{
		PGPROC *proc = BackendPidGetProc(((int32 *) ARR_DATA_PTR(pids))[i]);

		if (proc != NULL && proc != le_proc(from))
			add_edge(from, (uint32) (proc - le_proc(0)));
	}
	pfree(pids);
}

/* Is there a way from start to start? */
static bool
search(uint32 start)
{
	search_init(start);
	for (int i = 0; i < s.nfound && s.last < 0; i++)
	{
		uint32 proc = s.found[i];
		const LeEntry *entry = waits_for(proc);

		if (entry == NULL)
		{
			if (waits_in_postgres(proc))
				add_blockers(proc);
		}
		for (; entry != NULL; entry = next_member(entry))
			add_edges(proc, entry);
	}
	return s.last >= 0;
}

/* --- telling --- */

static void
describe_lock(StringInfo buf, int pid)
{
	LockData *data = GetLockStatusData();

	for (int i = 0; i < data->nelements; i++)
	{
		const LockInstanceData *lock = &data->locks[i];

		if (lock->pid != pid || lock->waitLockMode == NoLock)
			continue;
		appendStringInfo(buf, "%s on ",
						 GetLockmodeName(lock->locktag.locktag_lockmethodid, lock->waitLockMode));
		DescribeLockTag(buf, &lock->locktag);
		return;
	}
	appendStringInfoString(buf, "a lock");
}

/* Of the locks that "from" waits for the one that leads to "to". */
static const LeLock *
lock_between(uint32 from, const LeEntry *entry, uint32 to)
{
	const LeLock *lock = entry->lock;

	for (; entry != NULL; entry = next_member(entry))
	{
		search_init(from);
		add_edges(from, entry);
		if (to == from ? s.last >= 0 : s.waiter[to] >= 0)
			return entry->lock;
	}
	return lock;
}

static void
describe_edge(StringInfo buf, uint32 from, uint32 to)
{
	const LeEntry *entry = waits_for(from);

	if (buf->len > 0)
		appendStringInfoChar(buf, '\n');
	appendStringInfo(buf, "Process %d waits for ", le_proc(from)->pid);
	if (entry == NULL)
		describe_lock(buf, le_proc(from)->pid);
	else
	{
		const LeLock *lock = lock_between(from, entry, to);

		appendStringInfo(buf, "%s \"%.*s\"", le_kind_word((LeKind) lock->kind), (int) lock->name_len,
						 lock->name);
	}
	appendStringInfo(buf, "; blocked by process %d.", le_proc(to)->pid);
}

int
le_deadlock_find(const LeCore *core, uint32 proc, StringInfo detail)
{
	uint32 *cycle;
	int n = 0, newest = -1;

	s.core = core;
	if (waits_for(proc) == NULL || !search(proc) || !search(proc))
		return -1;

	/* the path leads backwards: cycle[i] is waited for by cycle[i + 1] */
	cycle = palloc(s.nfound * sizeof(uint32));
	for (int p = s.last; p != (int) proc; p = s.waiter[p])
		cycle[n++] = (uint32) p;
	cycle[n++] = proc;
	for (int i = 0; i < n; i++)
	{
		if (waits_for(cycle[i]) != NULL &&
			(newest < 0 || le_shared->slots[cycle[i]].posted_at > le_shared->slots[cycle[newest]].posted_at))
			newest = i;
	}
	if (newest < 0)
		return -1;
	for (int i = 0; i < n; i++)
		describe_edge(detail, cycle[(newest + n - i) % n], cycle[(newest + n - i - 1 + n) % n]);
	return (int) cycle[newest];
}
