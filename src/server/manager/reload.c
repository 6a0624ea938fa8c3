/*
 * manager/reload.c
 *		Builds the manager's state from the tables: at its start, and after a
 *		failed batch.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "miscadmin.h"
#include "port.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "manager/answer.h"
#include "manager/chores.h"
#include "manager/memory.h"
#include "manager/publish.h"
#include "manager/reload.h"
#include "manager/state.h"
#include "manager/txn.h"
#include "shared/fault.h"
#include "shared/fence_lock.h"
#include "shared/flush.h"
#include "shared/library_version.h"
#include "shared/settings.h"

/* 2025-01-01 as a TimestampTz: the time of incarnation 0. */
#define INCARNATION_EPOCH (INT64CONST(9132) * USECS_PER_DAY)

/* --- callbacks of a load --- */

static bool
session_alive(void *arg, uint64 session, uint32 *sessno)
{
	uint32 proc = *sessno = le_session_proc(session);

	return le_mgr.meta.boot == le_shared->boot && session != 0 && proc < (uint32) le_shared->max_sessions &&
		   mailbox_of(proc)->session == session;
}

bool
le_load_uncommitted(void *arg, uint64 session, uint32 xact)
{
	LeMailbox *box = mailbox_of(le_session_proc(session));

	if (pg_atomic_read_u32(&box->open_xact) == xact)
		return true;

	/* the rollback is mailed before open_xact is cleared */
	pg_read_barrier();
	return (uint32) (pg_atomic_read_u64(&box->undo) >> 32) == xact;
}

static bool
core_flushed(void *arg, uint64 lsn)
{
	return le_flush_done((XLogRecPtr) lsn);
}

static bool
core_fenced(void *arg, int64 token)
{
	return pg_atomic_read_u32(&le_mgr.db->fences) != 0 && le_fence_held(token);
}

void
le_load_limits(LeCore *core, int work)
{
	LeLimits limits = {.waiters_per_lock = le_max_waiters_per_lock,
					   .locks_per_role = le_max_locks_per_role,
					   .leases_per_role = le_max_leases_per_role,
					   .bytes_per_role = le_max_memory_per_role_mb * LE_MB,
					   .work = work,
					   .expiry_grace = (LeTime) le_expiry_grace_ms * LE_MS};

	le_core_set_limits(core, &limits);
}

/*
 * Builds a core from the tables, in the open transaction.  If that succeeds, the new core replaces
 * le_mgr.core. copied: the tables are a copy of those of another database.
 */
static void
load_core(int64_t next_revision, bool copied)
{
	MemoryContext old_context = le_mgr.core_context;
	LeEnv env = {.alloc = le_memory_alloc,
				 .free = le_memory_free,
				 .fenced = core_fenced,
				 .flushed = core_flushed,
				 .epochs = le_mgr.db->epochs};
	LePause mended = le_mgr.pause;
	LeTime clock = le_clock(), now;
	LeLoadEnv load = {.life = &le_mgr.life,
					  .copied = copied,
					  .failed = le_mgr.core,
					  .alive = session_alive,
					  .uncommitted = le_load_uncommitted};
	LeCore *volatile core = NULL;
	bool complete;

	/* after this load, the core's time does not include the time since the failed batch */
	(void) le_pause_mended(&mended, clock);
	now = le_pause_time(&mended, clock);
	load.clock = (LeClock){now, le_wall(now)};
	Assert(le_mgr.core_state == CORE_STALE && next_revision > 0);
	if (!pg_strong_random(env.seed, sizeof(env.seed)))
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate a random seed")));
	le_mgr.core_context = le_memory_new_context();
	PG_TRY();
	{
		/*
		 * the rows may not be flushed or replicated yet, so sessions whose replies depend on them wait for
		 * this LSN
		 */
		load.lsn = le_txn_log_nothing();
		Assert(load.lsn > le_mgr.loaded_lsn && load.lsn > le_mgr.changes_lsn);
		le_mgr.loaded_lsn = le_mgr.changes_lsn = load.lsn;
		do
		{
			MemoryContextReset(le_mgr.core_context);
			core = le_core_create(&env, le_shared->max_sessions, next_revision);
			if (core == NULL)
				ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
			le_load_limits(core, WORK_A_BATCH);
			le_core_load_begin(core, &load);
			complete = le_store_load(core, le_mgr.core);
		} while (!complete);
	}
	PG_CATCH();
	{
		MemoryContextDelete(le_mgr.core_context);
		le_mgr.core_context = old_context;
		PG_RE_THROW();
	}
	PG_END_TRY();
	Assert(core != NULL && le_core_next_revision(core) >= next_revision);
	if (old_context != NULL)
		MemoryContextDelete(old_context);
	le_mgr.core = core;
	Assert(le_mgr.pause.lost <= mended.lost && now <= clock);
	memset(&le_mgr.seen, 0, sizeof(le_mgr.seen));
	set_core_state(CORE_LOADED);
	le_memory_warn();
}

/*
 * Replies to calls whose own wait has timed out, while there is no usable core.  Must not fail, because it
 * runs in an error handler.
 */
static void
end_waits(void)
{
	LeTime now = le_clock();
	LeReply reply = {.status = LE_NOT_GRANTED};

	for (int i = 0; i < le_shared->max_sessions; i++)
	{
		LeMailbox *box = mailbox_of(i);

		if (box->session != 0 && box->revision != 0 && box->type == LE_REQUEST_COMMAND &&
			box->command.type == LE_CMD_ACQUIRE && box->command.wait > 0 &&
			now - box->posted_at >= box->command.wait)
			le_answer_request(i, pg_atomic_read_u32(&box->posted), &reply, now);
	}
}

bool
le_load_again(ErrorData **error)
{
	volatile bool ok = false;

	Assert(le_mgr.core_state == CORE_STALE && le_mgr.core != NULL);
	Assert(CurrentMemoryContext == le_mgr.batch_context);
	PG_TRY();
	{
		/* check that the extension still exists, and is still the one that this manager serves */
		le_txn_begin();
		LE_FAULT("reload-begun");
		if (!le_store_find() || !le_store_is_claimed())
		{
			set_core_state(CORE_DROPPED);
			ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
							errmsg("extension lock_election was dropped")));
		}
		load_core(le_core_next_revision(le_mgr.core), false);
		LE_FAULT("reload-loaded");
		(void) le_txn_commit(false);
		(void) le_pause_mended(&le_mgr.pause, le_clock());
		ok = true;
	}
	PG_CATCH();
	{
		*error = le_txn_failed(true);

		/* retry later, and end the calls whose own wait has timed out */
		if (le_mgr.core_state != CORE_DROPPED)
			set_core_state(CORE_STALE);
		le_mailboxes_retry_later();
		le_pause_refused(&le_mgr.pause);
		end_waits();
	}
	PG_END_TRY();
	Assert(!IsTransactionState() && ok == (le_mgr.core_state == CORE_LOADED));
	return ok;
}

/*
 * Returns the latest time known to this server, counted from INCARNATION_EPOCH.  A standby whose clock is
 * behind knows a later time from the commits of its primary or, if it was started after those commits, from
 * its last checkpoint.
 */
static LeTime
latest_time(uint32 timelines)
{
	TimestampTz known = GetLatestXTime();

	if (known == 0 && timelines > 0)
		known = le_shared->checkpoint_at;
	return Max(GetCurrentTimestamp(), known) - INCARNATION_EPOCH;
}

/* Sets the incarnation of this start in meta. le_next_incarnation() implements the rules. */
static void
next_incarnation(LeMeta *meta, uint32 timeline)
{
	bool copy = meta->database != MyDatabaseId;

	/* number of timelines since the state was stored; pg_upgrade starts with timeline 1 again */
	uint32 timelines = copy || meta->timeline == timeline ? 0
					   : timeline > meta->timeline        ? timeline - meta->timeline
														  : 1;
	LeStart start = {.stored = meta->incarnation,
					 .stored_at = meta->taken_at - INCARNATION_EPOCH,
					 .floor = meta->floor > meta->incarnation ? meta->floor + 1 : 0,
					 .time = latest_time(timelines),
					 .timelines = timelines};

	Assert(timelines == 0 || !copy);
	meta->incarnation = le_next_incarnation(&start);
	Assert(meta->incarnation > Max(start.stored, meta->floor));
	meta->taken_at = start.time + INCARNATION_EPOCH;

	/*
	 * if the extension was dropped and created again, use a number above all earlier incarnations that are
	 * known
	 */
	if (!OidIsValid(meta->database))
		meta->incarnation = Max(meta->incarnation, (int64) pg_atomic_read_u64(&le_shared->incarnation) + 1);
}

/*
 * Begins the life of this manager. meta describes the previous life, and is changed to describe the new one.
 */
static void
next_life(LeLife *life, LeMeta *meta)
{
	uint32 n = meta->lives.len / sizeof(life->starts[0]);

	/*
	 * an edited table may contain any number of starts; a copy needs no check, because its leases have ended
	 */
	life->number = meta->life;
	life->uptime = meta->uptime;
	life->nstarts = Min(n, LE_LIFE_STARTS);
	if (life->nstarts > 0)
		memcpy(life->starts, meta->lives.data, life->nstarts * sizeof(life->starts[0]));
	le_life_begin(life);
	meta->life = life->number;
	meta->uptime = life->uptime;
	meta->lives = (LeText){(const char *) life->starts, life->nstarts * (uint32) sizeof(life->starts[0])};
}

bool
le_load_first(void)
{
	uint32 timeline = GetWALInsertionTimeLine();
	const char *advice;
	int64_t revision;
	XLogRecPtr lsn;
	bool copy;

	Assert(le_mgr.core == NULL && OidIsValid(MyDatabaseId));
	le_txn_begin();
	if (!le_store_find())
	{
		(void) le_txn_commit(false);
		return false;
	}

	/* log a difference of versions; locks work nevertheless */
	advice = le_version_advice();
	if (advice != NULL)
		ereport(LOG, (errmsg("the library and the SQL of lock_election have different versions"),
					  errhint("%s", advice)));

	/* keep other sessions from writing the tables; then take a new incarnation, and load */
	le_store_claim();
	le_store_read_meta(&le_mgr.meta);
	copy = OidIsValid(le_mgr.meta.database) && le_mgr.meta.database != MyDatabaseId;
	next_incarnation(&le_mgr.meta, timeline);
	le_mgr.incarnation = le_mgr.meta.incarnation;
	next_life(&le_mgr.life, &le_mgr.meta);
	le_mgr.life_began = core_now();
	if (le_mgr.meta.incarnation > LE_INCARNATION_MAX)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						errmsg("incarnation " INT64_FORMAT " of lock_election is out of range",
							   le_mgr.meta.incarnation)));
	revision = le_first_revision(le_mgr.meta.incarnation, le_mgr.meta.taken_at - INCARNATION_EPOCH);
	load_core(revision, copy);
	le_history_begin(revision);
	LE_FAULT("load-before-meta");

	/*
	 * Write the ends of the copied holders together with the row of table meta that assigns the tables to
	 * this database.  Otherwise the next load would treat these holders as valid.
	 */
	if (copy)
	{
		if (!le_store_open(le_mgr.core))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE), errmsg("the tables of lock_election were replaced")));
		le_history_reserve(le_mgr.core);
		(void) le_store_write(le_mgr.core, core_now());
		le_store_close();
	}

	/* make the new incarnation durable before the first grant */
	le_mgr.meta.database = MyDatabaseId;
	le_mgr.meta.timeline = timeline;
	le_mgr.meta.boot = le_shared->boot;
	Assert(le_core_next_revision(le_mgr.core) >> LE_COUNTER_BITS >= le_mgr.meta.incarnation);
	le_store_write_meta(&le_mgr.meta);
	LE_FAULT("load-before-commit");
	lsn = le_txn_commit(true);
	LE_FAULT("load-committed");
	Assert(lsn != InvalidXLogRecPtr && le_flush_done(lsn));
	if (copy)
	{
		le_history_written(le_mgr.core);
		le_core_batch_done(le_mgr.core, lsn);
	}
	le_publish();
	return true;
}
