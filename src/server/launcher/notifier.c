/*
 * launcher/notifier.c
 *		The notifier of one database: sends a NOTIFY for each hint.
 *
 * NOTIFY takes a lock of the whole cluster and keeps it through the commit, even while the commit waits for a
 * standby: a manager that sent a NOTIFY could have to wait for another session's commit, and all its locks
 * would wait with it.  So NOTIFY is sent by a separate process, which waits until the announced grants are
 * flushed, and then commits without waiting for disk or standby.  No lock ever waits for this process: the
 * manager fills a ring (see LeHintRing), and drops hints that do not fit.
 *
 * Hints are also dropped when PostgreSQL's queue of notifications is full: an old hint is worth little, and a
 * client that missed one finds out by asking.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "commands/async.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "tcop/tcopprot.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "launcher/notifier.h"
#include "shared/channel.h"
#include "shared/compat.h"
#include "shared/fault.h"
#include "shared/settings.h"
#include "shared/shmem.h"
#include "shared/sleep.h"
#include "shared/worker.h"
#include "shared/words.h"

/* Upper limit of notifications in one transaction */
#define HINTS_A_COMMIT 64
/* A notifier without hints exits after this time, and is started again with the next hint */
#define IDLE_US (20 * LE_SECOND)
/* Pause after a failure, so that transaction ids are not used up */
#define PAUSE_MS 100
/* Time between two checks whether the previous notifier is gone */
#define POLL_MS 50
/* Shortest time between two messages about dropped hints */
#define COMPLAINT_PERIOD (60 * LE_SECOND)

static LeDatabase *my_db = NULL;

/* Copies of the hints that are being sent, and the LSN that they rest on */
static LeHint hints[HINTS_A_COMMIT];
static XLogRecPtr hints_lsn;

/*
 * Pin the settings that must not affect the notifier, whoever has set them.  A commit that has logged
 * something, as the first transaction id of a page of the commit log does, would wait for the disk and for
 * standbys, while it holds the lock that every NOTIFY needs; a transaction_timeout would end it.  Other
 * settings do not matter: the notifier runs no statement, and ignores cancels, which other timeouts send.
 */
static void
pin_settings(void)
{
	static const LeSetting settings[] = {{"synchronous_commit", "off"}, {"transaction_timeout", "0"}};

	le_worker_pin(settings, lengthof(settings));
}

/* --- the entry --- */

/* Must not fail: the process is exiting. */
static void
notifier_exit(int code, Datum arg)
{
	LWLockAcquire(le_shared->lock, LW_EXCLUSIVE);
	le_database_notifier_leave((LeDatabase *) DatumGetPointer(arg));
	LWLockRelease(le_shared->lock);
}

/*
 * Become the notifier of the database; false: an earlier one still exists.  Exits if the database has no
 * entry any more, and so no manager.
 */
static bool
try_attach(Oid dboid)
{
	LeDatabase *db;
	bool gone;

	LWLockAcquire(le_shared->lock, LW_EXCLUSIVE);
	db = le_database_find(dboid, false);
	gone = db == NULL;
	if (db != NULL && db->notifier_pid == 0)
	{
		le_database_notifier_enter(db);
		my_db = db;
	}
	LWLockRelease(le_shared->lock);
	if (gone)
		proc_exit(0);
	return my_db != NULL;
}

/* --- sending --- */

/* Copy the next hints of the ring; returns their number: 0 if the entry was given to another database. */
static int
take(void)
{
	LeHintRing *ring = &my_db->ring;
	int n = 0;

	LWLockAcquire(le_shared->lock, LW_SHARED);
	if (my_db->notifier_pid == MyProcPid)
	{
		uint64 sent = pg_atomic_read_u64(&ring->sent);
		uint64 pushed = pg_atomic_read_u64(&ring->pushed);

		pg_read_barrier();
		Assert(sent <= pushed && pushed - sent <= LE_HINTS);
		for (; sent < pushed && n < HINTS_A_COMMIT; sent++)
			hints[n++] = ring->hints[sent % LE_HINTS];
		hints_lsn = (XLogRecPtr) pg_atomic_read_u64(&ring->lsn);
	}
	LWLockRelease(le_shared->lock);
	return n;
}

/* Free the room of the copied hints, which are sent, or given up. */
static void
done(int n, bool sent)
{
	LeHintRing *ring = &my_db->ring;

	LWLockAcquire(le_shared->lock, LW_SHARED);
	if (my_db->notifier_pid == MyProcPid)
	{
		Assert(n > 0 && pg_atomic_read_u64(&ring->sent) + n <= pg_atomic_read_u64(&ring->pushed));
		pg_memory_barrier(); /* after they were copied */
		pg_atomic_fetch_add_u64(&ring->sent, n);
		pg_atomic_fetch_add_u64(sent ? &my_db->counters.hints_sent : &my_db->counters.hints_dropped, n);
	}
	LWLockRelease(le_shared->lock);
}

/* Send one NOTIFY; docs/guide.md promises channel and payload. */
static void
notify(const LeHint *hint)
{
	char channel[LE_CHANNEL_SIZE];
	char payload[256];

	Assert(hint->token != 0 && (hint->name_len > 0 || hint->kind == LE_HINT_LEASE));
	Assert((hint->how != 0) == (hint->change != 0) && hint->previous >= 0);
	if (hint->kind == LE_HINT_LEASE)
	{
		le_channel_of_lease(hint->token, channel);
		Async_Notify(channel, NULL);
		return;
	}

	/* tokens as text, because some clients read numbers as doubles */
	le_channel_name((LeKind) hint->kind, (LeText){hint->name, hint->name_len}, channel);
	if (hint->how == 0)
		snprintf(payload, sizeof(payload),
				 "{\"event\":\"granted\",\"token\":\"" INT64_FORMAT "\",\"sequence\":" UINT64_FORMAT "}",
				 hint->token, hint->sequence);
	else
		snprintf(payload, sizeof(payload),
				 "{\"event\":\"%s\",\"term\":\"" INT64_FORMAT "\",\"change\":\"" INT64_FORMAT
				 "\",\"previous\":\"" INT64_FORMAT "\"}",
				 le_how_name((LeHow) hint->how), hint->token, hint->change, hint->previous);
	Assert(strlen(payload) < sizeof(payload) - 1);
	Async_Notify(channel, payload);
}

/* Send the copied hints, in one transaction. */
static void
send_all(int n)
{
	Assert(n > 0 && n <= HINTS_A_COMMIT);

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	pgstat_report_activity(STATE_RUNNING, "sending notifications");

	/* a crash must not take back a grant that was announced */
	XLogFlush(hints_lsn);
	Assert(hints_lsn <= GetFlushRecPtr(NULL));
	LE_FAULT("notifier-before-notify");
	for (int i = 0; i < n; i++)
	{
		Assert(i == 0 || hints[i].sequence > hints[i - 1].sequence);
		notify(&hints[i]);
	}
	LE_FAULT("notifier-before-commit");
	CommitTransactionCommand();
}

/* Log that hints are dropped, at most once in COMPLAINT_PERIOD. */
static void
report_failure(void)
{
	static LeTime not_before = 0;

	if (le_clock() >= not_before)
	{
		not_before = le_clock() + COMPLAINT_PERIOD;
		EmitErrorReport();
		ereport(
			LOG,
			(errmsg("lock_election could not send notifications"),
			 errdetail(
				 "They are dropped, and counted in view lock_election.stat; this is logged once a minute.")));
	}
	FlushErrorState();
}

/* Send the copied hints; false: that failed, and the failure is logged. */
static bool
try_send(int n)
{
	volatile bool ok = false;

	PG_TRY();
	{
		send_all(n);
		ok = true;
	}
	PG_CATCH();
	{
		/* do not log while others wait for these locks */
		LWLockReleaseAll();
		report_failure();
		AbortCurrentTransaction();
	}
	PG_END_TRY();
	pgstat_report_activity(STATE_IDLE, NULL);
	return ok;
}

/* --- the worker --- */

/* Exit, or reload the configuration, if a signal has asked for it. */
static void
handle_signals(void)
{
	/* the process is idle: no need for a FATAL in the log */
	if (ProcDiePending)
		proc_exit(0);
	CHECK_FOR_INTERRUPTS();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
}

/* Sleep for the whole time. */
static void
pause_ms(long ms)
{
	(void) WaitLatch(NULL, WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms, le_wait_event(LE_WAIT_NOTIFIER));
}

/*
 * Send hints as they arrive, until there was none for IDLE_US.  The manager checks the ring again when this
 * process is gone, so a hint that arrives at that moment starts another notifier.
 */
static void
serve(void)
{
	LeTime idle_at = le_clock();

	for (;;)
	{
		int n;
		bool sent;

		/* 1. handle signals */
		ResetLatch(MyLatch);
		handle_signals();

		/* 2. nothing to send: sleep, and exit after IDLE_US */
		n = take();
		if (n == 0)
		{
			LeTime left_us = idle_at + IDLE_US - le_clock();

			Assert(left_us <= IDLE_US);
			if (left_us <= 0)
				proc_exit(0);
			(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
							 (long) (left_us / LE_MS + 1), le_wait_event(LE_WAIT_NOTIFIER));
			continue;
		}

		/* 3. send */
		sent = try_send(n);
		LE_FAULT("notifier-sent");
		done(n, sent);
		pgstat_report_stat(false);
		idle_at = le_clock();
		if (!sent)
			pause_ms(PAUSE_MS);
	}
}

void
le_notifier_main(Datum arg)
{
	Oid dboid = DatumGetObjectId(arg);

	Assert(OidIsValid(dboid));
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGINT, PG_SIG_IGN); /* cancels are meant for queries */
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	le_sleep_reset(); /* as le_attach() */
	le_wait_events_init(LE_WAIT_NOTIFIER);
	le_worker_name_context();
	BackgroundWorkerInitializeConnectionByOid(dboid, InvalidOid, 0);
	pin_settings();
	while (!try_attach(dboid))
	{
		pause_ms(POLL_MS);
		handle_signals();
	}
	before_shmem_exit(notifier_exit, PointerGetDatum(my_db));
	serve();
}
