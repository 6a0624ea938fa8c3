/*
 * launcher/notifier.c
 *		The notifier of a database: sends a NOTIFY for each hint.
 *
 * NOTIFY takes a cluster-wide lock and holds it until its commit has finished, even while the commit waits
 * for a standby.  If the manager itself sent a NOTIFY, it might have to wait for another session's commit,
 * which would delay all its locks.  So a separate process sends NOTIFY.  It waits until the announced grants
 * are flushed, and then commits without waiting for the disk or a standby.  No lock ever waits for this
 * process, because the manager puts hints into a ring (see LeHintRing) and drops those that do not fit.
 *
 * Hints are also dropped if PostgreSQL's notification queue is full, because an old hint is worth little, and
 * a client that misses a hint finds out at its next poll.
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

/* Maximum number of notifications in a transaction */
#define HINTS_A_COMMIT 64
/* A notifier exits after this time without hints; the next hint starts another one */
#define IDLE_US (20 * LE_SECOND)
/* Pause after a failure, so that repeated failures do not use up transaction ids */
#define PAUSE_MS 100
/* Interval in ms at which a notifier checks whether its predecessor has ended */
#define POLL_MS 50
/* Minimum time between two messages about dropped hints */
#define COMPLAINT_PERIOD (60 * LE_SECOND)

static LeDatabase *my_db = NULL;

/* Copies of the hints that are being sent, and the LSN that must be flushed first */
static LeHint hints[HINTS_A_COMMIT];
static XLogRecPtr hints_lsn;

/*
 * Fixes the settings that could disturb the notifier, whatever their source.  With another
 * synchronous_commit, a commit that has written WAL would wait for the disk and for standbys while it holds
 * the lock that every NOTIFY needs.  Some commits have written WAL, because the first transaction id on each
 * page of the commit log writes WAL.  A transaction_timeout would end the notifier.  No other setting
 * matters, because the notifier runs no statements, and ignores the cancels that other timeouts send.
 */
static void
pin_settings(void)
{
	static const LeSetting settings[] = {{"synchronous_commit", "off"}, {"transaction_timeout", "0"}};

	le_worker_pin(settings, lengthof(settings));
}

/* --- the entry --- */

/* Unregisters the notifier.  Must not fail: the process is exiting. */
static void
notifier_exit(int code, Datum arg)
{
	LWLockAcquire(le_shared->lock, LW_EXCLUSIVE);
	le_database_notifier_leave((LeDatabase *) DatumGetPointer(arg));
	LWLockRelease(le_shared->lock);
}

/*
 * Registers this process as the notifier of the database.  Returns false if an earlier notifier still exists.
 * Exits if the database has no entry any more, which means that it has no manager.
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

/*
 * Copies the next hints from the ring, and returns their number.  Returns 0 if the entry now belongs to
 * another database.
 */
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

/* Frees the ring's space of the copied hints, and counts them as sent or dropped. */
static void
done(int n, bool sent)
{
	LeHintRing *ring = &my_db->ring;

	LWLockAcquire(le_shared->lock, LW_SHARED);
	if (my_db->notifier_pid == MyProcPid)
	{
		Assert(n > 0 && pg_atomic_read_u64(&ring->sent) + n <= pg_atomic_read_u64(&ring->pushed));
		pg_memory_barrier(); /* free the space only after the hints were copied */
		pg_atomic_fetch_add_u64(&ring->sent, n);
		pg_atomic_fetch_add_u64(sent ? &my_db->counters.hints_sent : &my_db->counters.hints_dropped, n);
	}
	LWLockRelease(le_shared->lock);
}

/* Sends one NOTIFY. docs/guide.md documents its channel and payload. */
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

	/* tokens are sent as text, because some clients read numbers as doubles */
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

/* Sends the copied hints in one transaction. */
static void
send_all(int n)
{
	Assert(n > 0 && n <= HINTS_A_COMMIT);

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	pgstat_report_activity(STATE_RUNNING, "sending notifications");

	/* flush the announced grants, which a crash must not undo */
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

/* Logs that hints are dropped, at most once per COMPLAINT_PERIOD. */
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

/* Sends the copied hints.  Returns false if that failed; the failure has then been logged. */
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
		/* release LWLocks before logging, because other processes wait for them */
		LWLockReleaseAll();
		report_failure();
		AbortCurrentTransaction();
	}
	PG_END_TRY();
	pgstat_report_activity(STATE_IDLE, NULL);
	return ok;
}

/* --- the worker --- */

/* If a signal has requested it, exits or reloads the configuration. */
static void
handle_signals(void)
{
	/* exit without a FATAL in the log, because the process is idle */
	if (ProcDiePending)
		proc_exit(0);
	CHECK_FOR_INTERRUPTS();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
}

/* Sleeps for this time, even if the latch is set. */
static void
pause_ms(long ms)
{
	(void) WaitLatch(NULL, WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms, le_wait_event(LE_WAIT_NOTIFIER));
}

/*
 * Sends hints as they arrive, and exits after IDLE_US without hints.  The manager checks the ring again when
 * this process has ended, so a hint that arrives during the exit starts another notifier.
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

		/* 2. if there is nothing to send, sleep; exit after IDLE_US */
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
	pqsignal(SIGINT, PG_SIG_IGN); /* ignore cancels, which are meant for queries */
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	le_sleep_reset(); /* the previous process with this proc number may have died while sleeping */
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
