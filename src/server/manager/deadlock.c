/*
 * manager/deadlock.c
 *		Finds cycles of connections that wait for each other.
 *
 * A connection that has waited for deadlock_timeout asks the manager to check whether it is part of a cycle,
 * and asks again every second.  The manager knows the waiters of each lock, and gets the other waits of these
 * processes from PostgreSQL.  Each wait is an edge:
 *
 *	-	A request waits for a holder that only one connection can end, because the holder is bound to its
 *		connection, was acquired in a transaction that is still open, or is fenced by a transaction.  There is
 *		no edge to any other holder, because its end does not depend on one connection: any connection can
 *		release the holder of a named owner, a holder with a TTL expires by itself, and any holder of a permit
 *		may return one.  A waiter ahead of the request in its queue waits for the same holders.  If that
 *		waiter also waits for other locks, it may delay this request, so there is an edge to that waiter.
 *	-	A backend that has waited for a lock of PostgreSQL for deadlock_timeout waits for the processes that
 *		pg_blocking_pids() returns.  PostgreSQL's own detector has run by then.
 *
 * A process that is part of a real cycle cannot leave it, so all edges of the cycle still exist when they are
 * checked a second time.  In a false cycle, the edges never existed at the same time, so the second check
 * finds that one is missing.
 *
 * A search is a depth-first search that starts from all processes that have asked since the last search.  Its
 * nodes are the processes and the locks that they wait for, so that the holders of a lock are visited once
 * for all its waiters.  Nodes that lead to no cycle are not visited again.  So the time of a search is
 * proportional to the number of waiters and holders.
 *
 * A search has a time budget.  When the budget is exhausted, the search continues with the remaining
 * processes in a later batch, after a pause of nine times the duration of this part, limited to a few
 * seconds.  Nodes that led to no cycle earlier in the search are still skipped, although their waits may have
 * changed: if a process has closed a cycle since then, it asks again within a second, and the next search
 * finds that cycle.  If the search from a single process takes the whole budget, the budget is doubled, so
 * that every search ends.
 */
#include "postgres.h"

#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/array.h"
#include "utils/fmgrprotos.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "manager/answer.h"
#include "manager/deadlock.h"
#include "manager/state.h"
#include "shared/compat.h"
#include "shared/fault.h"
#include "shared/fence_lock.h"
#include "shared/words.h"

/*
 * Maximum share of the manager's time spent on searches: 1 / SEARCH_PART.  SEARCH_BUDGET: initial time budget
 * for one part of a search.
 */
#define SEARCH_PART   10
#define SEARCH_BUDGET (5 * LE_MS)
/*
 * Limit of the pause between two parts of a search.  If the process was suspended during a part, SEARCH_PART
 * alone would give a very long pause.
 */
#define SEARCH_PAUSE (5 * LE_SECOND)
/* Number of edges between two checks of the clock. */
#define EDGES_A_LOOK 256
/* A node of the search: a process that waits, or a lock. */
typedef struct WaitNode
{
	LeLock *lock; /* NULL = the node is a process */
	uint32 proc;
} WaitNode;

/* An edge of the search. via: the lock that the process waits for; NULL = a lock of PostgreSQL. */
typedef struct WaitEdge
{
	WaitNode to;
	const LeLock *via;
} WaitEdge;

typedef enum NodeState
{
	NEW = 0,
	ON_PATH,
	CLEAR /* the node leads to no cycle */
} NodeState;

/* The processes that hold a fence on this token. */
typedef struct Fence
{
	int64 token; /* hash key */
	List *procs;
} Fence;

/* A node on the path from the start of the search. */
typedef struct Step
{
	WaitNode node;
	const LeLock *via; /* WaitEdge.via of the edge that leads to this node */
	int first;         /* index of the node's first edge in Search.edges; its edges end where those of the
					    * next step begin */
	int next;          /* index of the next edge to follow */
} Step;

/* State of a process in a search. */
typedef struct ProcState
{
	uint32 mark;
	bool asks; /* the process has asked for a search, and no search has started from it since */
} ProcState;

/*
 * State of the search.  All memory except procs is in the memory context of the batch, and is valid for one
 * part of the search.
 */
typedef struct Search
{
	const LeCore *core;
	ProcState *procs; /* indexed by proc number; NULL = no process has asked yet */
	int nasking;      /* number of processes that ask */
	LeTime not_before;
	uint32 base; /* mark of a node = base + its NodeState; any other mark is from an older search, and means
				  * NEW */
	bool under_way;
	uint32 next;      /* proc number at which to continue */
	LeTime budget_us; /* time budget for one part; doubled if the search from one process needs more */
	LeTime deadline;
	uint32 edges_seen;
	HTAB *fences; /* the fences (Fence) by token; NULL = not read yet */
	Step *path;
	int length, path_room;
	WaitEdge *edges;
	int nedges, edges_room;
	int edges_of_node; /* index of the first edge of the node whose edges are being added */
	HTAB *expanded;    /* for assertions: the nodes that were expanded in this part */
} Search;

/*
 * Difference between the bases of two searches.  A power of two, so that the base wraps around to exactly 0.
 * Therefore the mark 0 of a new node means NEW with any base.
 */
#define BASE_STEP 4

/*
 * The base starts just below its maximum, so that it wraps around after a few searches, and tests cover that.
 */
static Search s = {.base = PG_UINT32_MAX - 15};

static uint32 *
mark_of(const WaitNode *node)
{
	return node->lock != NULL ? &node->lock->mark : &s.procs[node->proc].mark;
}

static NodeState
get_state(const WaitNode *node)
{
	uint32 state = *mark_of(node) - s.base;

	return state <= CLEAR ? (NodeState) state : NEW;
}

static void
set_state(const WaitNode *node, NodeState state)
{
	*mark_of(node) = s.base + state;
}

static bool
same_node(const WaitNode *a, const WaitNode *b)
{
	return a->lock == b->lock && a->proc == b->proc;
}

/* --- edges --- */

static void
add_edge(WaitNode to, const LeLock *via)
{
	Assert(to.lock != NULL || to.proc < (uint32) le_shared->max_sessions);
	Assert(to.lock != NULL || s.nedges == s.edges_of_node || !same_node(&to, &s.edges[s.nedges - 1].to));
	if (s.nedges == s.edges_room)
	{
		s.edges_room *= 2;
		s.edges = repalloc_huge(s.edges, s.edges_room * sizeof(WaitEdge));
	}
	s.edges[s.nedges++] = (WaitEdge){.to = to, .via = via};
}

/*
 * Adds an edge to a process, unless the last edge leads to it.  This avoids a million equal edges if one
 * transaction fills a million slots of a lock.
 */
static void
add_proc(uint32 proc, const LeLock *via)
{
	const WaitEdge *last = s.nedges > s.edges_of_node ? &s.edges[s.nedges - 1] : NULL;

	if (last == NULL || last->to.lock != NULL || last->to.proc != proc)
		add_edge((WaitNode){.proc = proc}, via);
}

/* Returns the entry that the blocked call of this backend waits for; NULL = it does not wait. */
static LeEntry *
waits_for(uint32 proc)
{
	LeMailbox *box = mailbox_of(proc);

	/* the wait has ended if there is a reply, or mail that is not applied yet */
	if (!is_unanswered(box) || mail_ends_wait(box))
		return NULL;
	return le_core_waiting_on(s.core, box->session, proc);
}

/* Reads all fences of this database. */
static void
read_fences(void)
{
	HASHCTL ctl = {.keysize = sizeof(int64), .entrysize = sizeof(Fence), .hcxt = CurrentMemoryContext};
	LockData *data = GetLockStatusData();

	s.fences = hash_create("lock_election fences", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	for (int i = 0; i < data->nelements; i++)
	{
		const LockInstanceData *lock = &data->locks[i];
		int64 token = le_fence_token(&lock->locktag);
		PGPROC *proc;
		Fence *fence;
		bool found;

		if (token == 0 || lock->holdMask == 0)
			continue;
		proc = BackendPidGetProc(lock->pid);
		if (proc == NULL)
			continue;
		fence = hash_search(s.fences, &token, HASH_ENTER, &found);
		if (!found)
			fence->procs = NIL;
		fence->procs = lappend_int(fence->procs, (int) (proc - le_proc(0)));
	}
}

/* Adds an edge to each process that holds a fence on this token. */
static void
add_fences(int64 token)
{
	const Fence *fence;
	ListCell *lc;

	if (pg_atomic_read_u32(&le_mgr.db->fences) == 0)
		return;
	if (s.fences == NULL)
		read_fences();
	fence = hash_search(s.fences, &token, HASH_FIND, NULL);
	foreach (lc, fence != NULL ? fence->procs : NIL)
		add_proc((uint32) lfirst_int(lc), NULL);
}

/*
 * Adds an edge to each process whose connection must act before this holder can end, see the top of this
 * file.
 */
static void
add_holder(const LeEntry *holder)
{
	if (holder->owner == NULL && holder->state == LE_STATE_HELD)
	{
		if (holder->ttl == LE_TTL_BOUND && holder->lease == NULL)
			add_proc(holder->sessno, NULL);
		for (const LeUncommitted *hold = holder->uncommitted; hold != NULL; hold = hold->next)
		{
			uint32 proc = le_session_proc(hold->session);
			LeMailbox *box = mailbox_of(proc);

			if (box->session == hold->session && pg_atomic_read_u32(&box->open_xact) == hold->xact)
				add_proc(proc, NULL);
		}
	}
	add_fences(holder->token);
}

static bool
somebody_waits(const LeEntry *entry)
{
	return entry->grouped && entry->waiter->group->members->waiter->session != 0;
}

/*
 * Looks, in the queue ahead of this entry, for entries of groups with a blocked call.  Returns the nearest
 * such entry; NULL = none.  Entries farther ahead need no edge, because the returned entry waits for them.
 * Stops at a waiter that is known to lead to no cycle, because then no entry ahead of it leads to one.
 */
static const LeEntry *
grouped_ahead(const LeEntry *entry)
{
	const LeLink *queue = &entry->lock->queue;

	for (const LeLink *link = entry->waiter->queue_link.prev; link != queue; link = link->prev)
	{
		const LeEntry *ahead = le_queued(link);

		if (somebody_waits(ahead))
			return ahead;
		if (ahead->waiter->session != 0 && get_state(&(WaitNode){.proc = ahead->waiter->sessno}) == CLEAR)
			return NULL;
	}
	return NULL;
}

/*
 * Returns whether this process has waited for a lock of PostgreSQL for deadlock_timeout.  A leader of
 * parallel workers counts as waiting, because one of its workers may wait.
 */
static bool
waits_in_postgres(uint32 number)
{
	PGPROC *proc = le_proc(number);
	TimestampTz since = (TimestampTz) pg_atomic_read_u64(&proc->waitStart);

	if (since == 0)
		return proc->lockGroupLeader == proc;
	return GetCurrentTimestamp() - since >= DeadlockTimeout * INT64CONST(1000);
}

/* Adds edges to the processes that pg_blocking_pids() returns. */
static void
add_blockers(uint32 from)
{
	ArrayType *pids =
		DatumGetArrayTypeP(DirectFunctionCall1(pg_blocking_pids, Int32GetDatum(le_proc(from)->pid)));
	int n = ArrayGetNItems(ARR_NDIM(pids), ARR_DIMS(pids));

	for (int i = 0; i < n; i++)
	{
		PGPROC *proc = BackendPidGetProc(((int32 *) ARR_DATA_PTR(pids))[i]);

		if (proc != NULL) /* NULL = the process has ended, or is a prepared transaction */
			add_proc((uint32) (proc - le_proc(0)), NULL);
	}
}

/*
 * Adds the edges of a process: to the locks of its blocked call and to the groups ahead in their queues, or,
 * if it waits for a lock of PostgreSQL itself, to the processes that block it.
 */
static void
add_edges_of_proc(uint32 proc)
{
	const LeEntry *entry = waits_for(proc);
	const LeGroup *behind = NULL; /* group of the last edge, which is usually the same for all entries */

	if (entry == NULL && waits_in_postgres(proc))
		add_blockers(proc);
	if (entry != NULL && entry->grouped)
		entry = entry->waiter->group->members;
	for (; entry != NULL; entry = entry->grouped ? entry->waiter->group_next : NULL)
	{
		const LeEntry *ahead = grouped_ahead(entry);
		WaitNode lock = {.lock = entry->lock};

		if (entry->lock->permits <= 1 && get_state(&lock) != CLEAR)
			add_edge(lock, entry->lock);
		if (ahead != NULL && ahead->waiter->group != behind)
		{
			behind = ahead->waiter->group;
			add_proc(ahead->waiter->group->members->waiter->sessno, entry->lock);
		}
	}
}

/*
 * Adds all edges of a node: from a process to the locks and processes that it waits for, or from a lock to
 * the processes that prevent the end of its holders.  Leaves out nodes that are known to lead to no cycle.
 */
static void
add_edges(const WaitNode *node)
{
	s.edges_of_node = s.nedges;
	if (node->lock == NULL)
		add_edges_of_proc(node->proc);
	for (const LeSlot *slot = node->lock != NULL ? node->lock->slots : NULL; slot != NULL; slot = slot->next)
	{
		if (le_slot_holder(slot) != NULL)
			add_holder(le_slot_holder(slot));
	}
}

/* --- the search --- */

#ifdef USE_ASSERT_CHECKING
/* Asserts that a node is expanded only once.  A lost or wrong state would make the search exponential. */
static void
assert_expanded(const WaitNode *node, HASHACTION action)
{
	HASHCTL ctl = {.keysize = sizeof(WaitNode), .entrysize = sizeof(WaitNode), .hcxt = CurrentMemoryContext};
	WaitNode key;
	bool found;

	memset(&key, 0, sizeof(key)); /* clear the padding */
	key.lock = node->lock;
	key.proc = node->proc;
	if (s.expanded == NULL)
		s.expanded = hash_create("lock_election search", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	(void) hash_search(s.expanded, &key, action, &found);
	Assert(found == (action == HASH_REMOVE));
}

/* Asserts the state between two starts: the path is empty, and the number of asking processes is correct. */
static void
assert_states(void)
{
	int nasking = 0;

	Assert(s.length == 0 && s.nedges == 0);
	for (int i = 0; i < le_shared->max_sessions; i++)
	{
		Assert(get_state(&(WaitNode){.proc = (uint32) i}) != ON_PATH);
		nasking += s.procs[i].asks;
	}
	Assert(nasking == s.nasking);
}
#else
#define assert_expanded(node, action) ((void) 0)
#define assert_states()               ((void) 0)
#endif

/* Adds a node and its edges to the path. */
static void
step_to(WaitNode node, const LeLock *via)
{
	Assert(get_state(&node) == NEW);
	if (s.length == s.path_room)
	{
		s.path_room *= 2;
		s.path = repalloc_huge(s.path, s.path_room * sizeof(Step));
	}
	s.path[s.length++] = (Step){.node = node, .via = via, .first = s.nedges, .next = s.nedges};
	set_state(&node, ON_PATH);
	assert_expanded(&node, HASH_ENTER);
	LE_FAULT("deadlock-step");
	add_edges(&node);
}

/* Removes the last node and its edges from the path. */
static void
step_back(NodeState state)
{
	Step *last = &s.path[--s.length];

	Assert(s.length >= 0 && get_state(&last->node) == ON_PATH && last->first <= s.nedges);
	set_state(&last->node, state);
	if (state == NEW)
		assert_expanded(&last->node, HASH_REMOVE);
	s.nedges = last->first;
}

/*
 * Searches for a cycle that can be reached from this process.  Returns the index of the step at which the
 * cycle begins, and sets *back to the edge that closes it.  Returns -1 if there is no cycle, or, with *late
 * set, if the budget is exhausted.
 */
static int
find_cycle(uint32 start, WaitEdge *back, bool *late)
{
	WaitNode node = {.proc = start};

	if (get_state(&node) == CLEAR)
		return -1;
	step_to(node, NULL);
	while (s.length > 0)
	{
		Step *last = &s.path[s.length - 1];
		WaitEdge edge;

		Assert(get_state(&last->node) == ON_PATH);
		Assert(last->first <= last->next && last->next <= s.nedges);

		/* all edges of the last node have been followed, so step back */
		if (last->next == s.nedges)
		{
			step_back(CLEAR);
			continue;
		}
		*late = ++s.edges_seen % EDGES_A_LOOK == 0 && le_clock() >= s.deadline;
		if (*late)
			return -1;

		/* follow the next edge */
		edge = s.edges[last->next++];
		switch (get_state(&edge.to))
		{
			case NEW:
				step_to(edge.to, edge.via);
				break;
			case ON_PATH:
				*back = edge;
				for (int i = 0; i < s.length; i++)
				{
					if (same_node(&s.path[i].node, &edge.to))
						return i;
				}
				Assert(false); /* a node marked ON_PATH is on the path */
				break;
			case CLEAR:
				break;
		}
	}
	return -1;
}

/* Returns whether each edge of the cycle that begins at step "first" still exists. */
static bool
is_still_there(int first)
{
	int edges_before = s.nedges;

	s.fences = NULL;
	for (int i = first; i < s.length; i++)
	{
		const WaitNode *to = &s.path[i + 1 < s.length ? i + 1 : first].node;
		WaitNode from = s.path[i].node;
		bool found = false;

		add_edges(&from);
		Assert(s.nedges >= edges_before);
		for (int e = edges_before; e < s.nedges && !found; e++)
			found = same_node(&s.edges[e].to, to);
		s.nedges = edges_before;
		if (!found)
			return false;
	}
	return true;
}

/* --- the error message --- */

/* Appends a description of the lock of PostgreSQL for which this process waits. */
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

/*
 * Appends a description of an edge. lock: the lock that process "from" waits for; NULL = a lock of
 * PostgreSQL.
 */
static void
describe_edge(StringInfo buf, uint32 from, const LeLock *lock, uint32 to)
{
	if (buf->len > 0)
		appendStringInfoChar(buf, '\n');
	appendStringInfo(buf, "Process %d waits for ", le_proc(from)->pid);
	if (lock == NULL)
		describe_lock(buf, le_proc(from)->pid);
	else
		appendStringInfo(buf, "%s \"%.*s\"", le_kind_word((LeKind) lock->kind), (int) lock->name_len,
						 lock->name);
	appendStringInfo(buf, "; blocked by process %d.", le_proc(to)->pid);
}

/*
 * Describes the cycle that begins at this step of the path.  The victim is the newest waiter for a lock of
 * this extension, and is described first.  Returns its proc number; -1 = there is no such waiter.
 */
static int
choose_victim(int first, const WaitEdge *back, StringInfo detail)
{
	int length = s.length - first, n = 0, newest = -1;
	uint32 *procs = palloc(length * sizeof(uint32));
	const LeLock **waits = palloc(length * sizeof(LeLock *));

	/* collect the processes of the cycle, and find the newest waiter among them */
	for (int i = first; i < s.length; i++)
	{
		uint32 proc = s.path[i].node.proc;

		if (s.path[i].node.lock != NULL)
			continue;
		procs[n] = proc;
		waits[n] = i + 1 < s.length ? s.path[i + 1].via : back->via;
		if (waits_for(proc) != NULL &&
			(newest < 0 || mailbox_of(proc)->posted_at > mailbox_of(procs[newest])->posted_at))
			newest = n;
		n++;
	}
	if (newest < 0)
		return -1;

	/* append one line per process, from the newest waiter on */
	Assert(newest < n && n <= length);
	for (int i = 0; i < n; i++)
	{
		int at = (newest + i) % n;

		describe_edge(detail, procs[at], waits[at], procs[(at + 1) % n]);
	}
	return (int) procs[newest];
}

/*
 * Begins the part of a search that this batch runs.  The pointers that it sets are valid for this part only.
 */
static void
begin_part(const LeCore *core)
{
	/* if an error has ended the last part in the middle of a path, begin a new search */
	if (s.length > 0)
		s.under_way = false;
	if (!s.under_way)
	{
		/* a new search starts from all processes that have asked by now */
		s.base += BASE_STEP;
		s.next = 0;
		s.budget_us = SEARCH_BUDGET;
		s.under_way = true;
	}
	s.core = core;
	s.fences = NULL;
	s.expanded = NULL;
	s.path_room = s.edges_room = 64;
	s.path = palloc_array(Step, s.path_room);
	s.edges = palloc_array(WaitEdge, s.edges_room);
	s.length = s.nedges = 0;
	s.deadline = le_clock() + s.budget_us;
}

void
le_deadlock_ask(uint32 proc)
{
	if (s.procs == NULL)
		s.procs = MemoryContextAllocZero(TopMemoryContext, le_shared->max_sessions * sizeof(ProcState));
	Assert(proc < (uint32) le_shared->max_sessions);
	s.nasking += !s.procs[proc].asks;
	s.procs[proc].asks = true;
}

LeTime
le_deadlock_next_search(void)
{
	return s.nasking > 0 ? s.not_before : LE_NEVER;
}

/*
 * Searches from one process that has asked, and sends the error to the victim if it finds a cycle.  Returns
 * false if the budget is exhausted; the next part then begins with this process again.
 */
static bool
search_from(uint32 proc, bool first)
{
	StringInfoData detail;
	WaitEdge back;
	int begin, victim = -1;
	bool late = false;

	Assert(s.length == 0 && s.nedges == 0);
	if (waits_for(proc) == NULL)
		return true;
	initStringInfo(&detail);
	begin = find_cycle(proc, &back, &late);
	Assert(begin < s.length && !(late && begin >= 0));
	Assert(late || begin >= 0 || (s.length == 0 && get_state(&(WaitNode){.proc = proc}) == CLEAR));
	if (begin >= 0 && is_still_there(begin))
		victim = choose_victim(begin, &back, &detail);
	while (s.length > 0)
		step_back(NEW);
	if (late && first)
		s.budget_us *= 2;
	if (victim >= 0)
		le_answer_deadlock((uint32) victim, &detail);
	return !late;
}

void
le_deadlock_search(const LeCore *core)
{
	LeTime start = le_clock(), end;
	bool first = true;

	Assert(CurrentMemoryContext == le_mgr.batch_context);
	begin_part(core);
	for (; s.next < (uint32) le_shared->max_sessions; s.next++)
	{
		if (!s.procs[s.next].asks)
			continue;
		if ((!first && le_clock() >= s.deadline) || !search_from(s.next, first))
			break;
		s.procs[s.next].asks = false;
		s.nasking--;
		first = false;
	}
	assert_states();

	/* a process below s.next that asks during this search must wait for the next search */
	s.under_way = s.next < (uint32) le_shared->max_sessions;
	end = le_clock();
	s.not_before =
		end + Min((SEARCH_PART - 1) * (end - start), Max((SEARCH_PART - 1) * s.budget_us, SEARCH_PAUSE));
}
