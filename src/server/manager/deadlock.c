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
 * Whoever is part of a cycle can do nothing to leave it; so it is still there when
 * its edges are looked at a second time, and what was put together from edges that
 * have never been at the same time is not.
 *
 * A search goes depth first, from all who have asked since the last one.  Its
 * nodes are processes, and the locks that they wait for, so that the holders of a
 * lock are looked at once, however many wait for it.  What leads to no cycle is
 * not visited again.  So a search takes time for each waiter and each holder
 * once.
 *
 * A search has a budget of time, and goes on with those who are left in a later batch,
 * after nine times as long, or a few seconds.  What has led to no cycle by then is
 * still passed over although things may have changed: whoever has closed a cycle since
 * asks again, within a second, and that is for the next search.  One start that takes
 * the whole budget gets twice as much the next time, so each search ends.
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

#include "manager/manager.h"
#include "shared/compat.h"
#include "shared/fence_lock.h"
#include "shared/words.h"

/* Searching takes this part of the manager's time at most, and so long at first. */
#define SEARCH_PART   10
#define SEARCH_BUDGET (5 * LE_MS)
/* The longest pause between two parts of a search: a process that was stopped in one is not to make up for that. */
#define SEARCH_PAUSE (5 * LE_SECOND)
/* The clock is read after so many edges. */
#define EDGES_A_LOOK 256
/* A process that waits, or a lock. */
typedef struct WaitNode
{
	LeLock *lock; /* NULL: a process */
	uint32 proc;
} WaitNode;

/* "via": the lock on account of which a process waits; NULL: one of PostgreSQL. */
typedef struct WaitEdge
{
	WaitNode to;
	const LeLock *via;
} WaitEdge;

typedef enum NodeState
{
	NEW = 0,
	ON_PATH,
	CLEAR /* leads to no cycle */
} NodeState;

/* Who holds a token's fence. */
typedef struct Fence
{
	int64 token; /* hash key */
	List *procs;
} Fence;

/* A node on the path from where the search began. */
typedef struct Step
{
	WaitNode node;
	const LeLock *via; /* of the edge to it */
	int first;         /* of its edges; they end where those of the next step begin */
	int next;          /* the one to be followed next */
} Step;

/* What a search knows of a process. */
typedef struct ProcState
{
	uint32 mark;
	bool asks; /* since the last search that has looked at it */
} ProcState;

/* All but procs is allocated in the context of a batch, for its part of the search. */
typedef struct Search
{
	const LeCore *core;
	ProcState *procs; /* by number; NULL: nobody has asked yet */
	int nasking;      /* how many of them ask */
	LeTime not_before;
	uint32 base; /* what nodes are marked with: this and their state.  An older mark means nothing */
	bool under_way;
	uint32 next;      /* proc to start from next */
	LeTime budget_us; /* of one start */
	LeTime deadline;
	uint32 edges_seen;
	HTAB *fences; /* Fence; NULL: not read */
	Step *path;
	int length, path_room;
	WaitEdge *edges;
	int nedges, edges_room;
	int edges_of_node; /* where those begin that are being added */
	HTAB *expanded;    /* for assertions: WaitNodes on the path, or followed, since this part began */
} Search;

/* A power of two: a mark of 0, which a new node has, is none of a search, or NEW, also where the base goes round. */
#define BASE_STEP 4

/* The base, a multiple of that, goes round after a few searches, so that tests meet it. */
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

/* Once for a process that has many slots: whoever acquires a lock a million times in a transaction has so many. */
static void
add_proc(uint32 proc, const LeLock *via)
{
	const WaitEdge *last = s.nedges > s.edges_of_node ? &s.edges[s.nedges - 1] : NULL;

	if (last == NULL || last->to.lock != NULL || last->to.proc != proc)
		add_edge((WaitNode){.proc = proc}, via);
}

/* The entry that the blocked call of this backend waits for; NULL: it does not wait. */
static LeEntry *
waits_for(uint32 proc)
{
	LeMailbox *box = mailbox_of(proc);

	/* its wait may have ended, only that has not been read yet */
	if (!is_unanswered(box) || mail_ends_wait(box))
		return NULL;
	return le_core_waiting_on(s.core, box->session, proc);
}

/* The fences of this database, all at once. */
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

/* An edge to each process that holds the fence of this token. */
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

/* Edges to the processes without which this holder does not end: see the top. */
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
 * The nearest request ahead of this one that somebody waits for with other locks: that
 * one waits for those before it.  What is ahead of a process that leads to no cycle
 * leads to none either.
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
 * Does this process wait for a lock of PostgreSQL, for deadlock_timeout or longer?  A leader of parallel
 * workers counts as well, as one of them may wait.
 */
static bool
waits_in_postgres(uint32 number)
{
	PGPROC *proc = le_proc(number);
	TimestampTz since = (TimestampTz) pg_atomic_read_u64(&proc->waitStart);

	if (since == 0)
		return proc->lockGroupLeader == proc; /* perhaps one of its workers */
	return GetCurrentTimestamp() - since >= DeadlockTimeout * INT64CONST(1000);
}

/* Edges to those whom pg_blocking_pids() tells. */
static void
add_blockers(uint32 from)
{
	ArrayType *pids =
		DatumGetArrayTypeP(DirectFunctionCall1(pg_blocking_pids, Int32GetDatum(le_proc(from)->pid)));
	int n = ArrayGetNItems(ARR_NDIM(pids), ARR_DIMS(pids));

	for (int i = 0; i < n; i++)
	{
		PGPROC *proc = BackendPidGetProc(((int32 *) ARR_DATA_PTR(pids))[i]);

		if (proc != NULL) /* else it has ended, or is a prepared transaction */
			add_proc((uint32) (proc - le_proc(0)), NULL);
	}
}

static void
add_edges_of_proc(uint32 proc)
{
	const LeEntry *entry = waits_for(proc);
	const LeGroup *behind = NULL; /* mostly it is the same one everywhere */

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
 * All edges of a node: of a process, to what it waits for; of a lock, to the processes without which its
 * holders do not end.  Not to what leads to no cycle, as far as that is known.
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
/* A state that is forgotten, or taken for another one, makes the search exponential. */
static void
assert_expanded(const WaitNode *node, HASHACTION action)
{
	HASHCTL ctl = {.keysize = sizeof(WaitNode), .entrysize = sizeof(WaitNode), .hcxt = CurrentMemoryContext};
	WaitNode key;
	bool found;

	memset(&key, 0, sizeof(key)); /* no bytes between the members */
	key.lock = node->lock;
	key.proc = node->proc;
	if (s.expanded == NULL)
		s.expanded = hash_create("lock_election search", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	(void) hash_search(s.expanded, &key, action, &found);
	Assert(found == (action == HASH_REMOVE));
}

/* Between two starts: nothing is on the path, and what leads to no cycle was expanded, and stays so. */
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

/* Put a node on the path, with its edges. */
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

/* Leave the path's last node, with its edges. */
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
 * A way from this process into a cycle: the cycle is the path from the returned
 * step on, *back its last edge.  -1: there is none, or *late: the time is over.
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

		/* all edges of the last node are followed: back */
		if (last->next == s.nedges)
		{
			step_back(CLEAR);
			continue;
		}
		*late = ++s.edges_seen % EDGES_A_LOOK == 0 && le_clock() >= s.deadline;
		if (*late)
			return -1;

		/* the next edge */
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
				Assert(false); /* what is marked so is on the path */
				break;
			case CLEAR:
				break;
		}
	}
	return -1;
}

/* Look once more: is each edge of the cycle still there? */
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

/* --- telling --- */

/* Describe the lock of PostgreSQL that this process waits for. */
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

/* "lock": on account of which it waits; NULL: one of PostgreSQL. */
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
 * The cycle from this step of the path on: the newest of those who wait for a
 * lock of ours is to give up, and is told of first.
 */
static int
choose_victim(int first, const WaitEdge *back, StringInfo detail)
{
	int length = s.length - first, n = 0, newest = -1;
	uint32 *procs = palloc(length * sizeof(uint32));
	const LeLock **waits = palloc(length * sizeof(LeLock *));

	/* the processes of the cycle, and the newest of them */
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

	/* a line for each, from the newest on */
	Assert(newest < n && n <= length);
	for (int i = 0; i < n; i++)
	{
		int at = (newest + i) % n;

		describe_edge(detail, procs[at], waits[at], procs[(at + 1) % n]);
	}
	return (int) procs[newest];
}

/* Begin a batch's part of a search.  Pointers are good for this part only. */
static void
begin_part(const LeCore *core)
{
	/* an error has ended the last part in the middle of a path */
	if (s.length > 0)
		s.under_way = false;
	if (!s.under_way)
	{
		/* a new search, from all who have asked by now */
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
 * Search from one process that has asked, and let the victim of its cycle give up.  False: the
 * budget is spent, and this process is the next one again.
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

	/* processes that have asked meanwhile, and were passed, are for the next search */
	s.under_way = s.next < (uint32) le_shared->max_sessions;
	end = le_clock();
	s.not_before =
		end + Min((SEARCH_PART - 1) * (end - start), Max((SEARCH_PART - 1) * s.budget_us, SEARCH_PAUSE));
}
