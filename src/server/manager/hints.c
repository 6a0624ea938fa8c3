/*
 * manager/hints.c
 *		Adds hints for clients that wait outside of the server.
 *
 * A hint reports that something has happened.  It decides nothing, and it may be lost.  The manager only puts
 * it into a ring in shared memory.  A separate process, the notifier (launcher/notifier.c), sends a NOTIFY
 * for it, because the manager must not wait for the cluster-wide lock that NOTIFY holds until its commit has
 * finished.
 *
 * The notifier is a background worker.  The manager registers it when there are hints and no notifier runs.
 * The notifier exits after a while without hints, so that an idle database uses no worker.  A manager
 * terminates its notifier when it exits.  If that notifier is slow to exit, the notifier of the next manager
 * waits for it.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "utils/memutils.h"

#include "manager/hints.h"
#include "manager/state.h"
#include "shared/compat.h"
#include "shared/settings.h"
#include "shared/sleep.h"
#include "shared/worker.h"

/* Minimum time between two starts of a notifier. */
#define RESTART_AFTER (1 * LE_SECOND)
/* Minimum time between two log messages about max_worker_processes. */
#define COMPLAINT_PERIOD (60 * LE_SECOND)

static BackgroundWorkerHandle *handle = NULL;
static pid_t notifier_pid = 0; /* 0 = none, or not known yet */
static LeTime started_at = 0;
static LeTime retry_at = 0;

/* --- the ring --- */

/* Returns the next free element of the ring.  If the ring is full, counts a dropped hint and returns NULL. */
static LeHint *
next_hint(void)
{
	LeHintRing *ring = &le_mgr.db->ring;
	uint64 pushed = pg_atomic_read_u64(&ring->pushed);
	LeHint *hint = &ring->hints[pushed % LE_HINTS];

	ring->sequence++;
	Assert(pushed - pg_atomic_read_u64(&ring->sent) <= LE_HINTS && ring->sequence > pushed);
	if (pushed - pg_atomic_read_u64(&ring->sent) >= LE_HINTS)
	{
		pg_atomic_fetch_add_u64(&le_mgr.db->counters.hints_dropped, 1);
		return NULL;
	}
	pg_memory_barrier(); /* read "sent" before the element is overwritten */
	memset(hint, 0, offsetof(LeHint, name));
	hint->sequence = ring->sequence;
	return hint;
}

/* Publishes the hint that next_hint() has returned. */
static void
push(void)
{
	pg_write_barrier();
	pg_atomic_fetch_add_u64(&le_mgr.db->ring.pushed, 1);
}

/*
 * Adds a hint for a change of an election or, if change is NULL, for a grant to a queue place.  Returns false
 * if the ring is full.
 */
static bool
push_event(int64 token, const LeLock *lock, const LeChange *change)
{
	LeHint *hint = next_hint();

	if (hint == NULL)
		return false;
	Assert(lock->name_len <= LE_MAX_NAME);
	hint->token = token;
	hint->change = change != NULL ? change->number : 0;
	hint->previous = change != NULL ? change->previous : 0;
	hint->how = change != NULL ? change->how : 0;
	hint->kind = lock->kind;
	hint->name_len = lock->name_len;
	memcpy(hint->name, lock->name, lock->name_len);
	push();
	return true;
}

static bool
push_lease(int64 lease)
{
	LeHint *hint = next_hint();

	if (hint == NULL)
		return false;
	hint->token = lease;
	hint->kind = LE_HINT_LEASE;
	push();
	return true;
}

/* Adds hints for the queue places that this batch has granted.  Returns whether it has added any. */
static bool
push_granted(LeCore *core)
{
	int64 lease = 0; /* last lease that got a hint; consecutive places on the same lease need only one */
	bool any = false;

	for (LeEntry *entry = NULL; (entry = le_next_dirty_place(core, entry)) != NULL;)
	{
		const LeWaiter *waiter = entry->waiter;
		const LeLease *named;

		if (entry->state != LE_STATE_HELD || waiter->tells == LE_TELLS_NOBODY)
			continue;
		named = le_entry_named_lease(entry);
		if (waiter->tells != LE_TELLS_NAME && named != NULL && named->id != lease)
		{
			lease = named->id;
			any |= push_lease(lease);
		}

		/* for a group, add a hint only for its first name */
		if (entry->lock->kind == LE_KIND_LOCK && waiter->member <= 1 && waiter->tells != LE_TELLS_LEASE)
			any |= push_event(entry->token, entry->lock, NULL);
	}
	return any;
}

void
le_hints_of_batch(LeCore *core, XLogRecPtr lsn)
{
	bool any = false;

	if (lsn != InvalidXLogRecPtr)
		pg_atomic_write_u64(&le_mgr.db->ring.lsn, lsn);
	if (le_notify & LE_NOTIFY_WAITERS)
		any = push_granted(core);

	/* a candidate with a queue place gets the same notification as observers */
	for (const LeChange *change = NULL; (change = le_next_change(core, change)) != NULL;)
	{
		if (le_notify & LE_NOTIFY_ELECTIONS ||
			(le_notify & LE_NOTIFY_WAITERS && change->how == LE_HOW_ELECTED && change->place))
			any |= push_event(change->term, change->lock, change);
	}
	if (any)
		le_wake(le_mgr.db->notifier_proc);
}

/* --- the notifier --- */

/* Logs that there is no notifier, at most once in COMPLAINT_PERIOD. */
static void
complain(LeTime now)
{
	static LeTime quiet_until = 0;

	if (now < quiet_until)
		return;
	quiet_until = now + COMPLAINT_PERIOD;
	ereport(
		LOG,
		(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
		 errmsg("could not register the lock_election notifier"),
		 errdetail("Grants to queue places are not announced; only clients that poll will see them."),
		 errhint("Raise max_worker_processes and restart the server, or set lock_election.notify to none.")));
}

/* Registers a notifier with the postmaster.  If that fails, sets the time of the next try. */
static void
start_notifier(LeTime now)
{
	BackgroundWorker worker = {0};
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	Assert(handle == NULL);
	notifier_pid = 0;
	le_worker_init(&worker, "notifier", "le_notifier_main");
	worker.bgw_main_arg = ObjectIdGetDatum(le_mgr.db->dboid);
	worker.bgw_notify_pid = MyProcPid;
	started_at = now;
	if (!RegisterDynamicBackgroundWorker(&worker, &handle))
	{
		Assert(handle == NULL);
		retry_at = now + RESTART_AFTER;
		complain(now);
	}
	MemoryContextSwitchTo(old);
}

LeTime
le_hints_tend(void)
{
	bool hints = pg_atomic_read_u64(&le_mgr.db->ring.pushed) != pg_atomic_read_u64(&le_mgr.db->ring.sent);
	LeTime now;

	/*
	 * if the notifier is running, do not call GetBackgroundWorkerPid(), which locks the state of all workers
	 */
	if (!hints || (notifier_pid != 0 && le_mgr.db->notifier_pid == notifier_pid))
		return LE_NEVER;
	if (handle != NULL)
	{
		/* the postmaster wakes up the manager when the notifier has ended */
		if (GetBackgroundWorkerPid(handle, &notifier_pid) != BGWH_STOPPED)
			return LE_NEVER;
		pfree(handle);
		handle = NULL;
		retry_at = started_at + RESTART_AFTER;
	}
	now = le_clock();
	if (now < retry_at)
		return retry_at;
	start_notifier(now);
	return handle != NULL ? LE_NEVER : retry_at;
}

void
le_hints_leave(void)
{
	if (handle != NULL)
		TerminateBackgroundWorker(handle);
}
