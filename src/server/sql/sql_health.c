/*
 * sql/sql_health.c
 *		Reports the state of lock_election on this server and in this database.
 *
 * Load balancers, probes and monitors call health() all the time, and must get a result even if nothing else
 * works.  So it sends no requests to other processes, and takes no lock in shared memory.  It only reads the
 * data that other processes write there, which may be slightly out of date.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "miscadmin.h"
#include "replication/syncrep.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "shared/compat.h"
#include "shared/database.h"
#include "shared/settings.h"
#include "shared/shmem.h"
#include "shared/library_version.h"
#include "sql/sql_args.h"
#include "sql/sql.h"

LE_FUNCTION(le_health);

/* Microseconds; if a session waits this long for the manager or a standby, that is reported as a problem. */
#define TOO_LONG (2 * LE_SECOND)

/* Microseconds after the last failed batch during which the outage is still reported. */
#define OUTAGE_HOLD (10 * LE_SECOND)

typedef struct Health
{
	bool primary;
	bool manager;
	bool loading;
	bool standby_defined;
	bool standby_confirms;
	LeTime untaken_us;      /* age of the oldest request that the manager has not taken, in microseconds */
	LeTime request_wait_us; /* same as untaken_us, but only for requests whose callers are still waiting */
	LeTime standby_wait_us; /* longest current wait for a standby */
	int64 incarnation;      /* 0 = unknown */

	/* an outage, during which the manager cannot write */
	TimestampTz outage_since; /* 0 = no outage */
	uint32 outage_sqlstate;
	uint32 outage_pid; /* process that has locked the tables; 0 = unknown */
} Health;

/*
 * Returns this database's entry without taking the lock that protects it.  The caller may see the entry
 * before or after a concurrent change.
 */
static LeDatabase *
entry_without_lock(void)
{
	for (int i = 0; i < le_shared->max_databases; i++)
	{
		LeDatabase *db = &le_shared->databases[i];

		if (*(volatile Oid *) &db->dboid == MyDatabaseId && db->has_mailboxes)
			return db;
	}
	return NULL;
}

/*
 * Measures the age of a request that the manager has neither replied to, nor queued, nor deferred (heavy
 * requests are deferred until their turn).  A request that has just left the queue is about to get its reply,
 * so "answered" is read last.  Requests whose callers have given up still count for untaken_us, because the
 * manager may be stuck even if no caller waits for TOO_LONG.
 */
static void
look_at_request(LeMailbox *box, LeTime now, Health *health)
{
	uint32 posted = pg_atomic_read_u32(&box->posted);
	LeTime posted_at;
	bool queued;

	pg_read_barrier();
	posted_at = *(volatile LeTime *) &box->posted_at;
	queued = *(volatile int64 *) &box->revision != 0 || pg_atomic_read_u32(&box->deferred) == posted;
	pg_read_barrier();
	if (queued || pg_atomic_read_u32(&box->answered) == posted)
		return;
	health->untaken_us = Max(health->untaken_us, now - posted_at);
	if (pg_atomic_read_u32(&box->given_up) != posted)
		health->request_wait_us = Max(health->request_wait_us, now - posted_at);
}

/*
 * Returns whether a wait for a standby is included in the report.  A wait for replay is included only if
 * commits of the caller would wait for replay, too, because queries on the standby can delay replay
 * indefinitely.
 */
static bool
counts(bool for_replay)
{
	return !for_replay || synchronous_commit == SYNCHRONOUS_COMMIT_REMOTE_APPLY;
}

/* Returns how long this session has been waiting for a standby; 0 = it is not waiting. */
static LeTime
standby_wait(LeMailbox *box, LeTime now)
{
	LeTime since = (LeTime) pg_atomic_read_u64(&box->confirming_since);

	pg_read_barrier();
	return since != 0 && counts(*(volatile bool *) &box->confirming_replay) ? now - since : 0;
}

/* Returns the age of an unconfirmed commit whose session has stopped waiting; 0 = there is none. */
static LeTime
given_up_wait(LeDatabase *db, LeTime now)
{
	LeTime since = (LeTime) pg_atomic_read_u64(&db->unconfirmed_since);
	uint32 mode;

	pg_read_barrier();
	mode = pg_atomic_read_u32(&db->unconfirmed_mode);
	if (since == 0 ||
		*(volatile XLogRecPtr *) &WalSndCtl->lsn[mode] >= pg_atomic_read_u64(&db->unconfirmed_lsn))
		return 0;
	return counts(mode == SYNC_REP_WAIT_APPLY) ? now - since : 0;
}

/* Reads the current or last outage of the manager, see manager/outage.c. */
static void
look_at_outage(LeDatabase *db, LeTime now, Health *health)
{
	LeTime failed_at = (LeTime) pg_atomic_read_u64(&db->outage_failed_at);

	health->outage_since = (TimestampTz) pg_atomic_read_u64(&db->outage_since);
	pg_read_barrier();
	health->outage_sqlstate = pg_atomic_read_u32(&db->outage_sqlstate);
	health->outage_pid = pg_atomic_read_u32(&db->outage_pid);
	if (health->outage_since == 0 && failed_at != 0 && now - failed_at < OUTAGE_HOLD)
		health->outage_since = GetCurrentTimestamp() - (now - failed_at);
}

/* Reads everything that health() reports. */
static void
look(Health *health)
{
	LeDatabase *db = le_shared != NULL ? entry_without_lock() : NULL;
	SyncRepStandbyData *standbys;
	LeTime now = le_clock();

	/* 1. read the state of the manager and of the sessions of this database */
	memset(health, 0, sizeof(*health));
	health->primary = !RecoveryInProgress();
	health->standby_defined = health->primary && max_wal_senders > 0 && le_sync_standbys_defined();
	if (db != NULL)
	{
		health->manager = pg_atomic_read_u32(&db->running) != 0;
		health->loading = pg_atomic_read_u32(&db->loading) != 0;
		if (health->manager)
			health->incarnation = (int64) (pg_atomic_read_u64(&db->revision) >> LE_COUNTER_BITS);
		for (int i = 0; i < le_shared->max_sessions; i++)
		{
			LeMailbox *box = le_mailbox(db, (uint32) i);

			if (*(volatile uint64 *) &box->session == 0)
				continue;
			look_at_request(box, now, health);
			health->standby_wait_us = Max(health->standby_wait_us, standby_wait(box, now));
		}

		/* while no standby is defined, commits need no confirmation */
		if (health->standby_defined)
			health->standby_wait_us = Max(health->standby_wait_us, given_up_wait(db, now));
		look_at_outage(db, now, health);
	}
	Assert(health->request_wait_us <= health->untaken_us);

	/* 2. check that there are enough synchronous standbys, and that they confirm in time */
	if (health->standby_defined && SyncRepConfig != NULL)
		health->standby_confirms = SyncRepGetCandidateStandbys(&standbys) >= SyncRepConfig->num_sync &&
								   health->standby_wait_us < TOO_LONG;
}

/*
 * Returns the reason why the manager cannot write.  Holders keep their locks as long as their releases cannot
 * be written.
 */
static const char *
outage_problem(const Health *health)
{
	switch (health->outage_sqlstate)
	{
		case ERRCODE_LOCK_NOT_AVAILABLE:
			return health->outage_pid != 0 ? psprintf("nothing can be written: process %u has locked the "
													  "tables of lock_election, or waits to",
													  health->outage_pid)
										   : "nothing can be written: the tables of lock_election are locked";
		case ERRCODE_DISK_FULL:
			return "nothing can be written: the disk is full";
		case ERRCODE_PROGRAM_LIMIT_EXCEEDED:
			return "nothing can be written: the database assigns no transaction IDs, to avoid wraparound";
		default:
			return psprintf("nothing can be written: error %s, see the server log",
							unpack_sql_state((int) health->outage_sqlstate));
	}
}

/* Returns the first known reason why a client cannot get a lock on this server, or NULL. */
static const char *
problem(const Health *health)
{
	if (le_shared == NULL)
		return "lock_election is not in shared_preload_libraries";
	if (!health->primary)
		return "this is a standby: it shows locks, and grants none";
	if (health->loading)
		return "the manager of this database is loading its tables";
	if (!health->manager)
		return "no manager runs for this database";
	if (health->untaken_us >= TOO_LONG)
		return "the manager of this database does not reply";
	if (health->outage_since != 0)
		return outage_problem(health);
	if (health->standby_defined && !health->standby_confirms)
		return "no synchronous standby confirms";
	if (!health->standby_defined && le_min_durability == LE_DURABLE_REMOTE)
		return "no synchronous standby is defined, and lock_election.min_durability is remote";
	return NULL;
}

/* Implements health(). */
Datum
le_health(PG_FUNCTION_ARGS)
{
	LeTuple tuple = {0};
	Health health;
	const char *wrong;
	char *sql_version = le_version_installed();
	TimestampTz replayed_at;

	look(&health);
	wrong = problem(&health);
	replayed_at = health.primary ? 0 : GetLatestXTime();
	le_tuple_add(&tuple, BoolGetDatum(wrong == NULL));
	le_tuple_add_string(&tuple, wrong);
	le_tuple_add_string(&tuple, health.primary ? "primary" : "standby");
	le_tuple_add(&tuple, BoolGetDatum(health.manager));
	le_tuple_add(&tuple, BoolGetDatum(health.loading));
	le_tuple_add(&tuple, le_interval_datum(health.request_wait_us));
	le_tuple_add_if(&tuple, health.standby_defined, BoolGetDatum(health.standby_confirms));
	le_tuple_add(&tuple, le_interval_datum(health.standby_wait_us));
	le_tuple_add_if(&tuple, health.incarnation != 0, Int64GetDatum(health.incarnation));
	le_tuple_add_string(&tuple, le_shared != NULL ? LE_VERSION : NULL);
	le_tuple_add_string(&tuple, sql_version);
	le_tuple_add_if(&tuple, replayed_at != 0, TimestampTzGetDatum(replayed_at));
	le_tuple_add_if(&tuple, health.outage_since != 0, TimestampTzGetDatum(health.outage_since));
	le_tuple_add_if(&tuple, health.outage_since != 0 && health.outage_pid != 0,
					Int32GetDatum((int32) health.outage_pid));
	return le_tuple_datum(fcinfo, &tuple);
}
