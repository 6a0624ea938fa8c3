/*
 * shared/database.c
 *		Changes the state of database entries, and the members that depend on the state.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/lwlock.h"
#include "utils/timestamp.h"

#include "shared/compat.h"
#include "shared/database.h"
#include "shared/shmem.h"
#include "shared/sleep.h"

/*
 * Sets all counters to 0 with the function "set", and reset_at to the current time.  LeCounters consists of
 * counters only.
 */
static void
set_counters(LeCounters *counters, void (*set)(volatile pg_atomic_uint64 *, uint64))
{
	pg_atomic_uint64 *counter = (pg_atomic_uint64 *) counters;

	for (; counter < (pg_atomic_uint64 *) (counters + 1); counter++)
		set(counter, 0);
	set(&counters->reset_at, GetCurrentTimestamp());
}

void
le_counters_reset(LeCounters *counters)
{
	set_counters(counters, pg_atomic_write_u64);
}

void
le_database_init(LeDatabase *db)
{
	/* 1. members that the lock protects; the others are zero, from the start or from le_database_free() */
	Assert(db->state == LE_DB_FREE && !OidIsValid(db->dboid) && !db->leave && db->reserved_by == 0);
	Assert(db->attached == 0 && db->worker_pid == 0 && db->notifier_pid == 0);
	db->exit = LE_EXIT_NONE;
	db->wanted = db->created = false;
	db->manager_proc = -1;
	db->notifier_proc = -1;

	/* 2. members without a lock */
	pg_atomic_init_u64(&db->ring.pushed, 0);
	pg_atomic_init_u64(&db->ring.sent, 0);
	pg_atomic_init_u64(&db->ring.lsn, 0);
	pg_atomic_init_u32(&db->stack, 0);
	pg_atomic_init_u32(&db->asleep, 0);
	pg_atomic_init_u32(&db->recheck, 0);
	pg_atomic_init_u32(&db->running, 0);
	pg_atomic_init_u32(&db->loading, 0);
	pg_atomic_init_u32(&db->fences, 0);
	pg_atomic_init_u64(&db->revision, 0);
	pg_atomic_init_u64(&db->memory, 0);
	pg_atomic_init_u64(&db->locks, 0);
	pg_atomic_init_u64(&db->held, 0);
	pg_atomic_init_u64(&db->queued, 0);
	pg_atomic_init_u64(&db->oldest_wait, 0);
	pg_atomic_init_u64(&db->outage_since, 0);
	pg_atomic_init_u64(&db->outage_failed_at, 0);
	pg_atomic_init_u32(&db->outage_sqlstate, 0);
	pg_atomic_init_u32(&db->outage_pid, 0);
	pg_atomic_init_u64(&db->unconfirmed_since, 0);
	pg_atomic_init_u64(&db->unconfirmed_lsn, 0);
	pg_atomic_init_u32(&db->unconfirmed_mode, 0);
	for (int i = 0; i < LE_DB_TABLES; i++)
		pg_atomic_init_u64(&db->table_bytes[i], 0);
	set_counters(&db->counters, pg_atomic_init_u64);
}

/* Used only in assertions, which are enabled in test builds. */
static inline pg_attribute_unused() bool is_locked(void)
{
	return LWLockHeldByMeInMode(le_shared->lock, LW_EXCLUSIVE);
}

/* Returns whether the list at LeDbState contains this change of the state. */
static inline pg_attribute_unused() bool may_change(LeDbState from, LeDbState to)
{
	switch (to)
	{
		case LE_DB_FREE:
		case LE_DB_STARTING:
			return from == LE_DB_IDLE;
		case LE_DB_IDLE:
			return from != LE_DB_IDLE;
		case LE_DB_RUNNING:
			return from == LE_DB_STARTING;
	}
	return false;
}

#ifdef USE_ASSERT_CHECKING
/* Asserts that the members of an entry agree with its state.  Called before the lock is released. */
static void
assert_entry(LeDatabase *db)
{
	bool serves = db->state == LE_DB_STARTING || db->state == LE_DB_RUNNING;

	Assert(is_locked());

	/* 1. a worker or a notifier is registered completely or not at all */
	Assert((db->worker_pid != 0) == (db->manager_proc >= 0));
	Assert((db->notifier_pid != 0) == (db->notifier_proc >= 0));
	Assert(serves || db->worker_pid == 0);
	Assert(db->state != LE_DB_RUNNING || db->worker_pid != 0);

	/* 2. a worker is asked to leave only on behalf of a command */
	Assert(!db->leave || (serves && db->reserved_by != 0));

	/* 3. a reader without the lock never sees a manager that does not exist */
	Assert(pg_atomic_read_u32(&db->running) == 0 || db->state == LE_DB_RUNNING);
	Assert(pg_atomic_read_u32(&db->loading) == 0 || db->state == LE_DB_STARTING);

	/* 4. no process uses a free entry */
	Assert(db->attached >= 0);
	Assert((db->state == LE_DB_FREE) == !OidIsValid(db->dboid));
	Assert(db->state != LE_DB_FREE || (db->attached == 0 && db->reserved_by == 0 && db->notifier_pid == 0));
}

/* Asserts that nothing is left of the database that used this entry before. */
static void
assert_new(LeDatabase *db)
{
	const char *first = (const char *) &db->stack, *end = (const char *) &db->counters;

	while (first < end)
		Assert(*first++ == 0);
	Assert(pg_atomic_read_u64(&db->ring.pushed) == 0 && pg_atomic_read_u64(&db->ring.sent) == 0);
	Assert(pg_atomic_read_u64(&db->ring.lsn) == 0 && pg_atomic_read_u64(&db->counters.requests[0]) == 0);
}

/* Asserts that no session has left mail in a free entry: the next database's manager would find it. */
static void
assert_mailboxes_free(const LeDatabase *db)
{
	for (int i = 0; i < le_shared->max_sessions; i++)
	{
		LeMailbox *box = le_mailbox(db, (uint32) i);

		Assert(box->session == 0 && box->database == (int) (db - le_shared->databases));
		Assert(pg_atomic_read_u32(&box->linked) == 0);
		Assert(pg_atomic_read_u32(&box->mail) == 0 && pg_atomic_read_u64(&box->undo) == 0);
	}
}
#else
#define assert_entry(db)          ((void) 0)
#define assert_new(db)            ((void) 0)
#define assert_mailboxes_free(db) ((void) 0)
#endif

/*
 * Changes the state of an entry; no other function does.  Like all functions of this file, it must not fail,
 * because it is called at the end of transactions and at exit.
 */
static void
set_state(LeDatabase *db, LeDbState from, LeDbState to)
{
	Assert(is_locked());
	Assert(db->state == from);
	Assert(may_change(from, to));

	db->state = to;
	pg_atomic_write_u32(&db->running, to == LE_DB_RUNNING);
	pg_atomic_write_u32(&db->loading, 0);
	if (to == LE_DB_RUNNING)
		return;
	db->leave = false;
	db->worker_pid = 0;
	db->manager_proc = -1;
}

LeDatabase *
le_database_find(Oid dboid, bool create)
{
	LeDatabase *unused = NULL;

	Assert(create ? is_locked() : LWLockHeldByMe(le_shared->lock));
	for (int i = 0; i < le_shared->max_databases; i++)
	{
		LeDatabase *db = &le_shared->databases[i];

		if (db->state == LE_DB_FREE)
		{
			if (unused == NULL)
				unused = db;
		}
		else if (db->dboid == dboid)
			return db;
	}
	if (!create || unused == NULL)
		return NULL;
	assert_entry(unused);
	le_database_init(unused);
	assert_new(unused);
	le_mailboxes_init(unused);
	assert_mailboxes_free(unused);
	unused->dboid = dboid;
	set_state(unused, LE_DB_FREE, LE_DB_IDLE);
	assert_entry(unused);
	return unused;
}

/*
 * Unlinks and clears the mailboxes of ended sessions, because no manager of this database will do it.  The
 * manager of the next database must not find their mail, which is about locks of this one.
 */
static void
clear_mailboxes(LeDatabase *db)
{
	Assert(is_locked());
	Assert(db->state == LE_DB_FREE);

	pg_atomic_write_u32(&db->stack, 0);
	for (int i = 0; i < le_shared->max_sessions; i++)
	{
		LeMailbox *box = le_mailbox(db, i);

		pg_atomic_write_u32(&box->linked, 0);
		if (box->session == 0)
			continue;
		Assert((pg_atomic_read_u32(&box->mail) & LE_MAIL_SESSION_END) != 0);
		le_mailbox_clear(box);
	}
}

/* --- called by the launcher --- */

bool
le_database_has_mail(LeDatabase *db)
{
	Assert(is_locked() && db->attached == 0);
	for (int i = 0; i < le_shared->max_sessions; i++)
	{
		if (le_mailbox(db, i)->session != 0)
			return true;
	}
	return false;
}

void
le_database_starting(LeDatabase *db)
{
	set_state(db, LE_DB_IDLE, LE_DB_STARTING);
	db->wanted = false; /* later requests are for the manager after this one */
	db->created = false;
	db->exit = LE_EXIT_NONE;
	assert_entry(db);
}

void
le_database_free(LeDatabase *db)
{
	/* A session detaches before its process leaves the process array. */
	Assert(db->attached == 0);

	set_state(db, LE_DB_IDLE, LE_DB_FREE);
	clear_mailboxes(db);
	db->dboid = InvalidOid; /* informs a notifier that is still exiting that this is no longer its entry */
	db->notifier_pid = 0;
	db->notifier_proc = -1;
	assert_mailboxes_free(db);
	assert_entry(db);
}

/* --- called by the worker --- */

void
le_database_enter(LeDatabase *db)
{
	Assert(is_locked());
	Assert(db->state == LE_DB_STARTING && db->worker_pid == 0);

	db->worker_pid = MyProcPid;
	db->manager_proc = le_my_proc();
	db->started = GetCurrentTimestamp();
	assert_entry(db);
}

void
le_database_running(LeDatabase *db)
{
	Assert(db->worker_pid == MyProcPid);

	set_state(db, LE_DB_STARTING, LE_DB_RUNNING);
	db->wanted = false;
	assert_entry(db);
}

void
le_database_stopped(LeDatabase *db, LeDbExit why)
{
	Assert(db->state == LE_DB_STARTING || db->state == LE_DB_RUNNING);
	set_state(db, db->state, LE_DB_IDLE);
	db->exit = why;
	assert_entry(db);
}

/* --- called by any process --- */

void
le_database_want(LeDatabase *db)
{
	Assert(is_locked());
	Assert(db->state != LE_DB_FREE);

	db->wanted = true;
}

void
le_database_created(LeDatabase *db)
{
	le_database_want(db);
	db->created = true;
}

void
le_database_reserve(LeDatabase *db, int pid)
{
	Assert(is_locked());
	Assert(db->state != LE_DB_FREE);
	Assert(pid == 0 || pid == MyProcPid);

	db->reserved_by = pid;
	if (pid == 0)
		db->leave = false;
	assert_entry(db);
}

void
le_database_ask_to_leave(LeDatabase *db)
{
	Assert(is_locked());
	Assert(db->state == LE_DB_STARTING || db->state == LE_DB_RUNNING);

	db->leave = true;
	assert_entry(db);
	le_wake(db->manager_proc);
}

void
le_database_notifier_enter(LeDatabase *db)
{
	Assert(is_locked());
	Assert(db->notifier_pid == 0);

	db->notifier_pid = MyProcPid;
	db->notifier_proc = le_my_proc();
	assert_entry(db);
}

void
le_database_notifier_leave(LeDatabase *db)
{
	Assert(is_locked());

	/* the entry may belong to another database by now */
	if (db->notifier_pid != MyProcPid)
		return;
	Assert(db->notifier_proc == le_my_proc());
	db->notifier_pid = 0;
	db->notifier_proc = -1;
	assert_entry(db);
}

/* --- called by a session --- */

void
le_database_attach(LeDatabase *db)
{
	Assert(is_locked());
	Assert(db->state != LE_DB_FREE);

	db->attached++;
	Assert(db->attached <= le_shared->max_sessions);
	assert_entry(db);
}

void
le_database_detach(LeMailbox *box)
{
	LeDatabase *db = &le_shared->databases[box->database];

	Assert(is_locked());
	Assert(db->attached > 0 && db->state != LE_DB_FREE && box->session != 0);
	Assert(le_mailbox_proc(box) == (uint32) le_my_proc() && pg_atomic_read_u32(&box->open_xact) == 0);

	db->attached--;
	pg_atomic_fetch_or_u32(&box->mail, LE_MAIL_SESSION_END);

	/*
	 * Ring while holding the lock.  A manager takes this lock before it leaves, so either this manager or the
	 * next one reads the mail.
	 */
	le_ring(box);
	assert_entry(db);
}
